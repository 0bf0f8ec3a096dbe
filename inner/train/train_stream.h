/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAIN_STREAM_H
#define TRAIN_STREAM_H
/* Slabs <-> the checkpoint that the lead writes or reads, in pieces of at most STREAM_PIECE
 * elements, so that no rank needs room for more than a piece: the lead has what a piece holds of
 * the ranks' parts, and sends on what it has read. Between two steps. All ranks call all functions
 * of an open stream in the same order. */
#include "inner/train/train.h"

enum { STREAM_PIECE = 1 << 20 }; /* elements */

struct stream {
    struct train *t;
    float *room; /* device: a piece */
    float *host; /* lead: a piece in host memory; `room` where that is host memory */
    struct arena arena;
    struct checkpoint_writer *to;         /* lead, while it stores */
    const struct checkpoint_reader *from; /* lead, while it loads: */
    const char *part;                     /* what comes next is byte `at` of this part */
    size_t at;
    bool there;     /* the checkpoint holds the part */
    enum err error; /* the lead's first of reading; what is read then is undefined */
};
/* Bytes of a piece. */
size_t stream_bytes(const struct table *t);
/* room: a piece in device memory, the caller's. */
enum err stream_open(struct stream *s, struct train *t, float *room) MUST;
void stream_close(struct stream *s); /* a zeroed one is fine */

/* ---- to the checkpoint: the bytes that come next ---- */
/* Elements first[0] .. first[ranks] of a slab, of which rank r holds first[r] .. first[r + 1]; own:
 * device, this rank's. */
enum err stream_out(struct stream *s, const size_t *first, const float *own) MUST;
/* All units of a slab; shard: device, of this rank. */
enum err stream_out_units(struct stream *s, const struct unit_map *m, const float *shard) MUST;
/* The lead's slab, on its device. */
enum err stream_out_whole(struct stream *s, const float *slab, size_t count) MUST;
/* From the lead's host memory. */
void stream_out_host(struct stream *s, const void *data, size_t bytes);

/* ---- from the checkpoint ---- */
/* Its part of this name and size comes next. A part that is not there reads as zeros. */
void stream_begin(struct stream *s, const char *part, size_t bytes);
enum err stream_in(struct stream *s, const size_t *first, float *own) MUST;
enum err stream_in_units(struct stream *s, const struct unit_map *m, float *shard) MUST;
enum err stream_in_whole(struct stream *s, float *slab, size_t count) MUST; /* of every rank */
/* To the lead's host memory; other ranks do nothing. */
void stream_in_host(struct stream *s, void *data, size_t bytes);

/* The initial parameters, from the seed, of elements r of the table. */
enum err stream_seed(struct stream *s, struct dev_range r, float *device) MUST;

#endif
