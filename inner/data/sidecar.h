/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_H
#define SIDECAR_H
/* DIR/data.json: what `atoll data` knows about the shards in DIR and training has to know: which
 * tokenizer made the ids, its special ids, how many tokens there are, the names of the classes
 * where the documents have labels.
 *
 *     {"tokenizer": "tokenizer.json", "kind": "wordpiece", "sha256": "..", "vocab": 30522,
 *      "special": {"cls": 101, "sep": 102, "mask": 103, "pad": 0, "unk": 100}, "word_start": "##",
 *      "tokens": 1000, "documents": 10, "classes": [{"name": "neg", "count": 4}, ..]}
 *
 * `vocab` is the only key that must be there; keys that are not known are left alone.
 */
#include "inner/config/config.h"

enum sidecar_special {
    SIDECAR_CLS,
    SIDECAR_SEP,
    SIDECAR_MASK,
    SIDECAR_PAD,
    SIDECAR_UNK,
    SIDECAR_SPECIALS
};
enum { SIDECAR_CLASSES_MAX = 65536 };

struct sidecar_class {
    const char *name;
    uint64_t count; /* documents with this label */
};
struct sidecar {
    const char *tokenizer; /* file next to it; "": none */
    const char *kind;      /* "bytes", "wordpiece", "bpe", "unigram"; "": not known */
    const char *sha256;    /* of the tokenizer's file, 64 hexadecimal characters; "": none */
    int64_t vocab;
    int32_t special[SIDECAR_SPECIALS]; /* negative: none */
    /* How ids make words: "##" begins an id that continues a word; any other text (the marks of
     * SentencePiece and of byte-level BPE) begins an id that starts one. "": not known. */
    const char *word_start;
    uint64_t tokens, documents; /* of all shards in DIR; 0: not known */
    const struct sidecar_class *classes;
    size_t classes_count;
};

/* A sidecar that says nothing. */
struct sidecar sidecar_none(void);
/* found false: the directory has none. Texts are in `a`. ERR_INPUT names the file and the key. */
enum err sidecar_read(struct sidecar *s, const char *directory, struct arena *a, bool *found) MUST;
enum err sidecar_write(const struct sidecar *s, const char *directory) MUST;
/* Are these ids of one tokenizer? Digest, size of the vocabulary and special ids. */
bool sidecar_same_tokenizer(const struct sidecar *a, const struct sidecar *b);
const char *sidecar_special_name(enum sidecar_special i);
bool sidecar_is_special(const struct sidecar *s, int32_t id);

#endif
