#ifndef SOURCE_H
#define SOURCE_H
/* A file that `atoll data` reads: plain text, one field of JSON lines (a blank line ends a
 * document), both also as .gz and .zst; or ids that another program's tokenizer made. Without a
 * tokenizer a byte of text is an id. What is wrong with a file is found when it is opened.
 */
#include <stdbool.h>
#include "inner/data/owners.h"
#include "inner/data/tokenizer/buffer.h"
#include "kernels/base/file.h"

struct source_options {
    const char *field; /* JSON lines: the field that holds the text; NULL: not JSON lines */
    const char *ids;   /* "npy", "uint16", "uint32"; NULL: text */
    const char *owner; /* JSON lines: the field that says whose the line is; NULL: not asked for */
    bool documents;    /* text: find the documents, and refuse what is not UTF-8 */
    bool whole_files;  /* a plain file is one document; false: a blank line ends one */
};
struct source_document { /* bytes of its text, without the line ends behind it */
    uint64_t start, end;
};
struct source {
    struct file_map map;
    struct buffer unpacked, lines; /* contents of a compressed file; texts of JSON lines */
    const uint8_t *data;
    uint64_t count;    /* ids */
    unsigned id_bytes; /* of an id in `data`, little-endian: 1 is text */
    uint32_t largest_id;
    struct source_document *documents; /* in order; NULL: not asked for */
    size_t document_count, document_room;
    struct owner *owners; /* of the documents; NULL: not asked for */
    size_t owner_room;
};

/* ERR_INPUT: missing, empty, damaged, of another kind than the options say, not UTF-8 (with line
 * and byte), a negative id. */
enum err source_open(struct source *s, const char *path, const struct source_options *o,
                     struct arena *a) MUST;
void source_close(struct source *s); /* a zeroed or partly opened source is fine */
uint32_t source_id(const struct source *s, uint64_t i);
/* All files of the operands: those of a directory are taken in order of their names, and so are the
 * ones of its directories. `listed[i]`: it was found in a directory. */
enum err source_list(const char *const *operands, size_t count, struct arena *a, char ***paths,
                     bool **listed, size_t *path_count) MUST;

#endif
