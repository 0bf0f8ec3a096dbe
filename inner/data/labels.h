/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LABELS_H
#define LABELS_H
/* Labelled documents. NAME.labels next to NAME.bin and NAME.idx (indexed.h) has the class of each
 * document, which is one text, or two for a task on pairs of texts (a sentence each):
 *
 *     8 bytes     "ATLABELS"
 *     uint64 n    documents
 *     int32[n]    class, 0 .. classes - 1; the sidecar (sidecar.h) has their names
 *
 * They are made from lines `label<TAB>text` or `label<TAB>text<TAB>text_b`, perhaps after
 * `owner<TAB>` (owners.h), or from the columns of CSV files (columns.h), .csv. The texts become ids
 * here, so that training needs no tokenizer.
 */
#include "inner/data/columns.h"
#include "inner/data/owners.h"
#include "inner/data/sidecar.h"

/* Checks NAME.labels in memory: *labels gets its classes, little-endian int32 at any byte. */
enum err labels_parse(const uint8_t **labels, const char *path, const uint8_t *data,
                      size_t size_bytes, uint64_t documents) MUST;
int32_t labels_at(const uint8_t *labels, uint64_t document);
/* STEM.labels, durable. */
enum err labels_write(const char *stem, const int32_t *classes, uint64_t documents) MUST;

/* A text -> ids in memory of `a`, without special ids. */
struct labels_encoder {
    void *self;
    enum err (*encode)(void *self, const char *text, size_t bytes, struct arena *a, int32_t **ids,
                       size_t *count);
};
struct labels_options {
    const char *out;   /* directory, made if missing */
    uint32_t sites;    /* > 0 */
    double held_out;   /* share of the lines of each class, 0 .. 0.5 */
    struct sidecar of; /* the tokenizer; written as data.json with classes and counts */
    struct labels_encoder encoder;
    const char *const *classes; /* NULL: the labels that occur, sorted by their bytes */
    size_t classes_count;
    bool owners; /* the lines begin with whose they are; a column `owner` of CSV says it anyway */
    bool csv;    /* CSV is what is not .tsv or .txt, and not only .csv */
    struct columns_names columns;
    bool replace; /* remove shards that are in `out`; false: their presence is an error */
};
struct labels_report {
    uint64_t documents, tokens, held_out, owners; /* owners 0: none were given */
    uint64_t *train;                              /* (sites) documents */
    struct sidecar of;
};

/* OUT/eval-0000.{bin,idx,labels}, OUT/train-SITE-0000.*, OUT/data.json. Of each class every k-th
 * line is held out, the others go to the sites in turn; with owners all lines of an owner go where
 * it goes (owners_deal). ERR_INPUT names file and line: no label, no text, more than two texts, one
 * here and two there, texts that are not UTF-8, a label that is not in `classes`; or there is one
 * class only. */
enum err labels_prepare(const char *const *paths, size_t path_count, const struct labels_options *o,
                        struct arena *a, struct labels_report *report) MUST;

#endif
