#ifndef SOURCE_H
#define SOURCE_H
/* A file that `atoll data` reads as a sequence of token ids: plain text (a byte is an id), one
 * field of JSON lines (a byte is an id, a blank line ends a document), or ids that another
 * program's tokenizer made. What is wrong with a file is found when it is opened.
 */
#include "kernels/base/file.h"

struct source_options {
    const char *field; /* JSON lines: the field that holds the text; NULL: not JSON lines */
    const char *ids;   /* "npy", "uint16", "uint32"; NULL: text */
};
struct source {
    struct file_map map;
    const uint8_t *data;
    uint64_t count;    /* ids */
    unsigned id_bytes; /* of an id in `data`, little-endian: 1 is text */
    uint32_t largest_id;
};

/* JSON lines become text in `a`. ERR_INPUT: missing, empty, compressed, of another kind than the
 * options say, a negative id. */
enum err source_open(struct source *s, const char *path, const struct source_options *o,
                     struct arena *a) MUST;
void source_close(struct source *s); /* a zeroed or partly opened source is fine */
uint32_t source_id(const struct source *s, uint64_t i);

#endif
