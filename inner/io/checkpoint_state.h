/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHECKPOINT_STATE_H
#define CHECKPOINT_STATE_H
/* One state file of a checkpoint, written or read in pieces: it may be larger than memory. Private
 * to checkpoint. */
#include "inner/io/checkpoint.h"
#include "kernels/base/record.h"

/* The sections of the file are the parts. Read: names and settings lie in the arena. */
struct state {
    struct checkpoint_meta meta;
    struct checkpoint_part *parts; /* read: data NULL */
    size_t part_count;
    struct record record;
    char *path;
    int fd; /* read; -1: not open */
};

/* Checks all of it once: ERR_CORRUPT names what is damaged. */
enum err state_open(struct state *s, const char *path, struct arena *a) MUST;
enum err state_read(const struct state *s, size_t part, size_t at, void *data, size_t n) MUST;
void state_close(struct state *s); /* one that is not open is fine */
/* The index of a part; part_count: there is none of this name. */
size_t state_find(const struct state *s, const char *name);

struct state_writer { /* checkpoint_state.c alone writes it */
    struct file_stream file;
    struct state state;
    struct record_view *views;
    struct digest_stream digest; /* of what was put of part `now` */
    size_t now, put;             /* put: bytes of it */
};
/* `parts` and `meta` are borrowed; the data of parts without a source comes by state_put. */
enum err state_create(struct state_writer *w, const char *path, const struct checkpoint_meta *meta,
                      const struct checkpoint_part *parts, size_t count, struct arena *a) MUST;
enum err state_put(struct state_writer *w, const void *data, size_t n) MUST;
enum err state_commit(struct state_writer *w, struct arena *a) MUST; /* durable */
void state_abandon(struct state_writer *w); /* one that is committed or zeroed is fine */

#endif
