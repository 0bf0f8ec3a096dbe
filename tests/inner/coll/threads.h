/* SPDX-License-Identifier: Apache-2.0 */
#ifndef THREADS_H
#define THREADS_H
/* Ranks as threads of a test: collectives over shared pointers and a barrier. What a rank runs must
 * not fail a test of cmocka itself, which belongs to the main thread: it returns an error. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "inner/coll/coll.h"

enum { THREADS_MAX = 8 };
struct threads {
    pthread_barrier_t barrier;
    void *at[THREADS_MAX];
};
struct threads_rank {
    struct coll coll; /* first */
    struct threads *all;
    enum err (*run)(struct coll *c, void *self);
    void *self;
    enum err result;
    char message[512];
};

static struct threads *threads_of(struct coll *c)
{
    return ((struct threads_rank *)c)->all;
}

/* Every rank sees every rank's pointer after this, until threads_leave. */
static void threads_meet(struct coll *c, void *mine)
{
    threads_of(c)->at[c->rank] = mine;
    pthread_barrier_wait(&threads_of(c)->barrier);
}

static void threads_leave(struct coll *c)
{
    pthread_barrier_wait(&threads_of(c)->barrier);
}

static enum err threads_all_gather(struct coll *c, void *x, size_t unit_bytes, const size_t *first)
{
    threads_meet(c, x);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && first[r + 1] > first[r])
            memcpy((char *)x + first[r] * unit_bytes,
                   (char *)threads_of(c)->at[r] + first[r] * unit_bytes,
                   (first[r + 1] - first[r]) * unit_bytes);
    threads_leave(c);
    return ERR_OK;
}

static enum err threads_all_to_all(struct coll *c, void *to, const void *from, size_t unit_bytes,
                                   const size_t *first)
{
    size_t mine = (first[c->rank + 1] - first[c->rank]) * unit_bytes;
    threads_meet(c, (void *)(uintptr_t)from);
    for (int r = 0; r < c->size && mine && c->size > 1; r++)
        memcpy((char *)to + (size_t)r * mine,
               (char *)threads_of(c)->at[r] + first[c->rank] * unit_bytes, mine);
    threads_leave(c);
    return ERR_OK;
}

static enum err threads_all_reduce(struct coll *c, double *x, size_t count)
{
    double *sum = calloc(count, sizeof *sum);
    if (!sum)
        return err_set(ERR_MEMORY, "no memory for a sum");
    threads_meet(c, x);
    for (int r = 0; r < c->size; r++)
        for (size_t i = 0; i < count; i++)
            sum[i] += ((double *)threads_of(c)->at[r])[i];
    threads_leave(c);
    memcpy(x, sum, count * sizeof *sum);
    free(sum);
    return ERR_OK;
}

static enum err threads_reduce(struct coll *c, void *x, enum dtype type, size_t count)
{
    float *sum = calloc(count, sizeof *sum);
    if (!sum || type != DTYPE_F32)
        return err_set(ERR_INTERNAL, "no such sum");
    threads_meet(c, x);
    for (int r = 0; r < c->size; r++)
        for (size_t i = 0; i < count; i++)
            sum[i] += ((float *)threads_of(c)->at[r])[i];
    threads_leave(c);
    memcpy(x, sum, count * sizeof *sum);
    free(sum);
    return ERR_OK;
}

static enum err threads_broadcast(struct coll *c, void *x, size_t bytes, int from)
{
    threads_meet(c, x);
    if (c->rank != from)
        memcpy(x, threads_of(c)->at[from], bytes);
    threads_leave(c);
    return ERR_OK;
}

static enum err threads_nothing(struct coll *c)
{
    (void)c;
    return ERR_OK;
}

static void *threads_body(void *self)
{
    struct threads_rank *r = self;
    r->result = r->run(&r->coll, r->self);
    if (r->result)
        strncpy(r->message, err_message(), sizeof r->message - 1);
    return NULL;
}

/* Runs `run` once for each rank, with the rank's entry of `selves` (size_bytes each), and counts
 * bytes as coll_open does. The first error of a rank; its sentence is err_message(). */
static inline enum err threads_run(int ranks, enum err (*run)(struct coll *c, void *self),
                                   void *selves, size_t size_bytes)
{
    static const struct coll_ops ops = {.reduce_begin = threads_reduce,
                                        .progress = threads_nothing,
                                        .reduce_wait = threads_nothing,
                                        .all_gather = threads_all_gather,
                                        .all_to_all = threads_all_to_all,
                                        .all_reduce = threads_all_reduce,
                                        .event_record = threads_nothing,
                                        .event_wait = threads_nothing,
                                        .all_reduce_host = threads_all_reduce,
                                        .broadcast = threads_broadcast,
                                        .broadcast_host = threads_broadcast,
                                        .barrier = threads_nothing};
    static struct threads_rank of[THREADS_MAX];
    struct threads all;
    pthread_t thread[THREADS_MAX];
    pthread_barrier_init(&all.barrier, NULL, (unsigned)ranks);
    for (int r = 0; r < ranks; r++) {
        of[r] = (struct threads_rank){
            .coll = {.ops = &ops, .rank = r, .size = ranks, .kind = "threads"},
            .all = &all,
            .run = run,
            .self = (char *)selves + (size_t)r * size_bytes};
        coll_count(&of[r].coll);
    }
    for (int r = 0; r < ranks; r++)
        if (pthread_create(&thread[r], NULL, threads_body, &of[r]))
            abort();
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&all.barrier);
    for (int r = 0; r < ranks; r++)
        if (of[r].result)
            return err_set(of[r].result, "rank %d: %s", r, of[r].message);
    return ERR_OK;
}

#endif
