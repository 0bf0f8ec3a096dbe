/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RECORD_H
#define RECORD_H
/* The one format of every file that is replaced as a whole: a head with a version, a kind and named
 * fields, then sections of raw bytes (large arrays). Little-endian.
 *
 *     8 "atollrec"   u32 version   u32 sections   u64 bytes of the head   8 kind, zeros after it
 *     the fields, in the order in which the kind's visitor names them
 *     for each section: u64 bytes, SHA-256
 *     zeros up to a multiple of 64 bytes, the last 32 of which are the SHA-256 of all before them
 *     the sections, back to back
 *
 * A kind has one visitor that names its fields once, for writing and for reading. A reader encodes
 * the head again from the fields it has read and compares the bytes, so a head that no writer can
 * produce counts as damage. Version and digest have the same offset in every version: an intact
 * file of another version gives ERR_MISMATCH, not ERR_CORRUPT. No file access: the caller passes
 * the bytes.
 */
#include "kernels/base/arena.h"
#include "kernels/base/digest.h"
#include "kernels/base/file.h"

/* Version 1: the separate file formats before this one. */
enum { RECORD_FORMAT = 2, RECORD_SECTIONS_MAX = 1 << 20, RECORD_HEAD_MAX = 64 << 20 };

struct record_cursor; /* opaque: one pass over the fields, writing or reading */
typedef void record_visit(struct record_cursor *c, void *self);
void record_u8(struct record_cursor *c, uint8_t *v);
void record_bool(struct record_cursor *c, bool *v);
void record_u32(struct record_cursor *c, uint32_t *v);
void record_u64(struct record_cursor *c, uint64_t *v);
void record_f32(struct record_cursor *c, float *v);
void record_digest(struct record_cursor *c, struct digest *v);
/* At most max_bytes, no zero byte inside. Reading: *text lies in the reader's arena. */
void record_text(struct record_cursor *c, const char **text, size_t max_bytes);
bool record_reading(const struct record_cursor *c);
/* Reading: zeroed memory of the reader's arena; NULL: none left, the read fails. */
void *record_alloc(struct record_cursor *c, size_t count, size_t size);

struct record_form {
    const char *kind;     /* at most 8 bytes */
    record_visit *fields; /* NULL: none */
    void *self;           /* argument of the visitor: source of a write, target of a read */
};
struct record_section {            /* a section to write: arrays under one digest */
    const struct file_part *parts; /* [part_count] */
    size_t part_count;
    struct digest digest; /* SHA-256 of the parts in order; zero: not known yet */
};
struct record_view { /* a section of a read file */
    const uint8_t *data;
    size_t size_bytes;
    struct digest digest;
};
struct record {
    struct record_view *sections; /* [section_count], in the reader's arena; the data is borrowed */
    size_t section_count;
    size_t head_bytes; /* where the first section begins */
};

/* Makes the parts of a whole file for file_write: the head, in `a`, then the sections' parts,
 * borrowed.
 */
enum err record_make(const struct record_form *f, struct record_section *sections, size_t count,
                     struct file_part **parts, size_t *part_count, struct arena *a) MUST;
/* The digests that are not known yet, on up to `threads` threads. record_make does the same on one.
 */
void record_sum(struct record_section *sections, size_t count, int threads);
/* Reads fields into f->self and sections into r, without checking the sections' digests. path: for
 * messages. ERR_CORRUPT: not intact; ERR_MISMATCH: another version; ERR_MEMORY. */
enum err record_open(struct record *r, const struct record_form *f, const char *path,
                     const void *data, size_t size_bytes, struct arena *a) MUST;
/* Of a file that is read in pieces: `head` holds its first head_bytes bytes, which are the whole
 * head where record_head_bytes says so; `data` of the views is NULL. */
enum err record_open_head(struct record *r, const struct record_form *f, const char *path,
                          const uint8_t *head, size_t head_bytes, uint64_t size_bytes,
                          struct arena *a) MUST;
/* Of a file that is written in pieces: the head of these sections. Its size does not depend on the
 * views' sizes and digests. */
enum err record_make_head(const struct record_form *f, const struct record_view *views,
                          size_t count, struct arena *a, struct file_part *head) MUST;
/* True: the section exists and matches its digest. */
bool record_intact(const struct record *r, size_t section) MUST;
/* Of `count` sections from `first` on, on up to `threads` threads. */
bool record_intact_all(const struct record *r, size_t first, size_t count, int threads) MUST;
/* For a reader that takes a file in pieces and does not know its kind. Bytes of the head, from the
 * first RECORD_START bytes of a file of `size_bytes`; 0: damaged. */
enum { RECORD_START = 32 };
size_t record_head_bytes(const uint8_t start[RECORD_START], uint64_t size_bytes);
/* Sizes and digests of the sections after a whole head; `data` of the views is NULL. False: the
 * head is damaged. A head of another version, or no memory: no sections. */
bool record_head_sections(const uint8_t *head, size_t head_bytes, uint64_t size_bytes,
                          struct record *r, struct arena *a) MUST;
/* Copies a section into the memory of `parts`. False: not intact or of another size; nothing is
 * copied. */
bool record_take(const struct record *r, size_t section, const struct file_part *to,
                 size_t part_count) MUST;
/* `count` sections from `first` on, each into the parts of one of `to`, on up to `threads` threads.
 */
bool record_take_all(const struct record *r, size_t first, const struct record_section *to,
                     size_t count, int threads) MUST;

#endif
