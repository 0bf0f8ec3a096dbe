/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads. Workers take runs of missing blocks from one list; each run is one call. Two workers
 * share a connection, so the next request arrives before the previous answer ends. Runs get shorter
 * towards the end, and slow connections take fewer (outer/link/deal.h), so that all workers finish
 * at about the same time. Blocks that a worker could
 * not fetch return to the list.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/signals.h"
#include "outer/link/grpc/link_client.h"

enum { TEXT_BYTES = 512, FEW_STREAMS = 4 };

struct download {
    struct link_grpc *l;
    const struct wire_fetch *m;
    uint8_t *out;
    unsigned workers;
    unsigned streams;
    uint32_t least;        /* fewest blocks of a run */
    pthread_cond_t cond;   /* only times out */
    pthread_mutex_t mutex; /* guards all below */
    struct blocks blocks;  /* received parts of `out` */
    bool taken[BLOCKS_MAX];
    struct deal deal;
    struct wire_answer answer; /* the first refusal */
    enum err e;                /* the first failure, with its text; other workers continue */
    char why[TEXT_BYTES];
};
struct run { /* blocks [from, to); the first may be partly received */
    uint32_t from, to;
    double bytes; /* missing when it was taken */
};
struct worker {
    struct download *d;
    unsigned index;
    pthread_t thread;
    bool started;
    struct link_call *c;
    uint64_t at, end;
};

static bool missing(const struct download *d, uint32_t k)
{
    return !d->taken[k] && d->blocks.stored[k] < blocks_bytes(&d->blocks, k);
}

static unsigned connection_of(const struct download *d, unsigned worker)
{
    return worker % d->streams;
}

static double run_left(const struct download *d, const struct run *run)
{
    double bytes = 0;
    for (uint32_t k = run->from; k < run->to; k++)
        bytes += (double)(blocks_bytes(&d->blocks, k) - d->blocks.stored[k]);
    return bytes;
}

static uint32_t missing_count(const struct download *d)
{
    uint32_t left = 0;
    for (uint32_t k = 0; k < d->blocks.count; k++)
        left += missing(d, k);
    return left;
}

/* Waits until a block is this connection's to take. 0: none is left. */
static uint32_t blocks_wait(struct download *d, unsigned connection)
{
    for (;;) {
        uint32_t left = missing_count(d);
        double bytes = (double)blocks_bytes(&d->blocks, 0);
        if (d->answer.outcome != ROUND_NONE || !left)
            return 0;
        if (deal_takes(&d->deal, connection, left, bytes, clock_mono_s()))
            return left;
        clock_cond_wait(&d->cond, &d->mutex, clock_mono_ms() + DEAL_AGAIN_MS);
    }
}

/* The first run of missing blocks: at most an even share of half of the rest, at least `least`
 * blocks; twice as much at first for one worker of two, else both end their runs at the same time
 * and the connection has nothing to send for a round trip. */
static bool run_take(struct download *d, unsigned worker, bool first, struct run *run)
{
    unsigned connection = connection_of(d, worker);
    pthread_mutex_lock(&d->mutex);
    uint32_t left = blocks_wait(d, connection);
    uint32_t share = left / (2 * d->workers) > d->least ? left / (2 * d->workers) : d->least;
    if (first && worker < d->streams && d->workers > d->streams)
        share *= 2;
    run->from = 0;
    while (run->from < d->blocks.count && !missing(d, run->from))
        run->from++;
    run->to = run->from;
    while (left && run->to < d->blocks.count && missing(d, run->to) &&
           run->to - run->from < share) {
        bool begun = d->blocks.stored[run->to] > 0;
        if (begun && run->to > run->from) /* a run is contiguous */
            break;
        d->taken[run->to++] = true;
    }
    run->bytes = run_left(d, run);
    if (run->bytes > 0)
        deal_took(&d->deal, connection, run->bytes, clock_mono_s());
    pthread_mutex_unlock(&d->mutex);
    return run->to > run->from;
}

static void run_give_back(struct download *d, unsigned worker, const struct run *run)
{
    pthread_mutex_lock(&d->mutex);
    deal_done(&d->deal, connection_of(d, worker), run->bytes, run->bytes - run_left(d, run),
              clock_mono_s());
    for (uint32_t k = run->from; k < run->to; k++)
        d->taken[k] = false;
    pthread_mutex_unlock(&d->mutex);
}

/* ---- one call ---- */

static enum err worker_chunk(struct worker *w, grpc_byte_buffer *bb)
{
    struct download *d = w->d;
    struct wire_chunk chunk;
    size_t data_at;
    TRY(link_chunk_head(w->c, bb, &chunk, &data_at));
    if (chunk.total != d->blocks.total || chunk.offset != w->at ||
        chunk.size_bytes > w->end - w->at)
        return err_set(ERR_PROTO, "%s sent bytes at %llu of %llu, expected %llu of %llu",
                       d->l->o.target, (unsigned long long)chunk.offset,
                       (unsigned long long)chunk.total, (unsigned long long)w->at,
                       (unsigned long long)d->blocks.total);
    TRY(link_chunk_data(bb, &chunk, data_at, d->out + w->at));
    w->at += chunk.size_bytes;
    pthread_mutex_lock(&d->mutex);
    blocks_add(&d->blocks, chunk.offset, chunk.size_bytes);
    pthread_mutex_unlock(&d->mutex);
    link_count(d->l, NULL, NULL, 0, chunk.size_bytes);
    link_pace(d->l, &d->l->pace_down, chunk.size_bytes);
    return ERR_OK;
}

static enum err worker_next(struct worker *w, grpc_byte_buffer **bb)
{
    *bb = link_call_recv_start(w->c) ? link_received(w->d->l, w->c) : NULL;
    if (*bb)
        return ERR_OK;
    enum err e = link_result(w->d->l, w->c);
    return e == ERR_OK ? err_set(ERR_PROTO, "%s ended a download early", w->d->l->o.target) : e;
}

static enum err worker_stream(struct worker *w, grpc_byte_buffer *request,
                              struct wire_answer *answer, struct arena *a)
{
    grpc_byte_buffer *bb = NULL;
    link_count(w->d->l, request, NULL, 0, 0);
    if (link_call_send(w->c, request))
        link_call_half_close(w->c);
    TRY(worker_next(w, &bb));
    TRY(link_decode(bb, WIRE_DOWNLOAD, answer, a));
    while (answer->outcome == ROUND_NONE && w->at < w->end) {
        TRY(worker_next(w, &bb));
        enum err e = worker_chunk(w, bb);
        grpc_byte_buffer_destroy(bb);
        TRY(e);
    }
    return ERR_OK;
}

static bool download_complete(struct download *d)
{
    pthread_mutex_lock(&d->mutex);
    bool complete = blocks_first(&d->blocks) == d->blocks.total;
    pthread_mutex_unlock(&d->mutex);
    return complete;
}

static enum err worker_request(struct worker *w, const struct wire_fetch *m,
                               grpc_byte_buffer *request, struct wire_answer *answer,
                               struct arena *a)
{
    struct download *d = w->d;
    w->c = link_begin(d->l, LINK_FETCH, link_channel(d->l, d->streams, w->index), UINT64_MAX);
    if (!w->c) {
        grpc_byte_buffer_destroy(request);
        return ERR_MEMORY;
    }
    link_call_about(w->c, LINK_FETCH, m);
    link_call_total(w->c, d->blocks.total);
    enum err e = worker_stream(w, request, answer, a);
    link_call_whole(w->c, download_complete(d));
    if (e != ERR_OK)
        grpc_call_cancel(w->c->call, NULL);
    link_end(d->l, w->c);
    return e;
}

static enum err worker_call(struct worker *w, struct wire_answer *answer)
{
    struct download *d = w->d;
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct wire_fetch m = *d->m;
    uint8_t *data;
    size_t n;
    m.offset = w->at;
    m.size_bytes = w->end == d->blocks.total ? 0 : w->end - w->at;
    m.chunk_bytes = (uint32_t)pace_chunk_bytes(&d->l->pace_down, WIRE_CHUNK_BYTES);
    enum err e = wire_encode(WIRE_FETCH, &m, &a, &data, &n);
    if (e == ERR_OK)
        e = worker_request(w, &m, link_buffer(data, n), answer, &a);
    arena_free(&a);
    return e;
}

/* ---- a worker ---- */

static void worker_failed(struct download *d, enum err e)
{
    pthread_mutex_lock(&d->mutex);
    if (d->e == ERR_OK || d->e == ERR_LINK) { /* a lost link is the least informative error */
        d->e = e;
        snprintf(d->why, sizeof d->why, "%s", err_message());
    }
    pthread_mutex_unlock(&d->mutex);
}

static void worker_refused(struct download *d, const struct wire_answer *answer)
{
    pthread_mutex_lock(&d->mutex);
    if (answer->outcome != ROUND_NONE && d->answer.outcome == ROUND_NONE)
        d->answer = *answer;
    pthread_mutex_unlock(&d->mutex);
}

static void worker_takes(struct worker *w, bool takes)
{
    struct download *d = w->d;
    pthread_mutex_lock(&d->mutex);
    if (takes)
        deal_join(&d->deal, connection_of(d, w->index));
    else
        deal_leave(&d->deal, connection_of(d, w->index));
    pthread_mutex_unlock(&d->mutex);
}

/* After a broken link or a damaged chunk, tries again at once as long as each try brings bytes. */
static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct download *d = w->d;
    struct run run;
    bool going = true, first = true;
    while (going && run_take(d, w->index, first, &run)) {
        first = false;
        struct wire_answer answer = {0};
        uint32_t last = run.to - 1;
        uint64_t before = w->at = blocks_start(&d->blocks, run.from) + d->blocks.stored[run.from];
        w->end = blocks_start(&d->blocks, last) + blocks_bytes(&d->blocks, last);
        enum err e = worker_call(w, &answer);
        worker_refused(d, &answer);
        run_give_back(d, w->index, &run);
        going = e == ERR_OK || ((e == ERR_LINK || e == ERR_CORRUPT) && w->at > before);
        if (!going)
            worker_failed(d, e);
    }
    worker_takes(w, false);
    return NULL;
}

static void workers_run(struct download *d)
{
    struct worker w[2 * LINK_STREAMS_MAX];
    sigset_t before;
    signals_block(&before);
    for (unsigned i = 0; i < d->workers; i++) {
        w[i] = (struct worker){.d = d, .index = i};
        worker_takes(&w[i], true);
    }
    for (unsigned i = 1; i < d->workers; i++) {
        w[i].started = pthread_create(&w[i].thread, NULL, worker_main, &w[i]) == 0;
        if (!w[i].started)
            worker_takes(&w[i], false);
    }
    signals_restore(&before);
    worker_main(&w[0]);
    for (unsigned i = 1; i < d->workers; i++)
        if (w[i].started)
            pthread_join(w[i].thread, NULL);
}

/* The last worker ends only when the list is empty, so blocks missing at the end could not be
 * fetched. */
static enum err download_end(struct download *d, struct wire_answer *answer)
{
    bool complete = blocks_first(&d->blocks) == d->blocks.total;
    *answer = d->answer;
    answer->offset = blocks_first(&d->blocks);
    answer->blocks = d->blocks;
    if (complete || d->answer.outcome != ROUND_NONE) {
        err_clear();
        return ERR_OK;
    }
    return d->e == ERR_CORRUPT ? err_set(ERR_PROTO, "%s: %s", d->l->o.target, d->why)
                               : err_set(d->e, "%s", d->why);
}

static bool download_begin(struct download *d, const struct wire_answer *answer,
                           uint64_t size_bytes)
{
    blocks_make(&d->blocks, size_bytes);
    if (d->m->offset > size_bytes)
        return false;
    if (answer->blocks.total == size_bytes && answer->blocks.count == d->blocks.count &&
        blocks_valid(&answer->blocks))
        d->blocks = answer->blocks;
    blocks_fill(&d->blocks, d->m->offset);
    uint32_t left = 0;
    unsigned most = d->streams > 1 ? 2 * d->streams : 1;
    for (uint32_t k = 0; k < d->blocks.count; k++)
        left += missing(d, k);
    d->workers = left < 2 ? 1 : left < most ? left : most;
    /* Small downloads use one call per worker: a second call would cost a round trip. Not with many
     * connections, where a slow one would have it end late. */
    bool few = (left <= 2 * most && d->streams <= FEW_STREAMS) || d->workers == 1;
    d->least = few ? (left + d->workers - 1) / d->workers : 1;
    return true;
}

enum err link_fetch(struct link *base, const struct wire_fetch *m, uint8_t *out, size_t size_bytes,
                    struct wire_answer *answer)
{
    struct download *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(ERR_MEMORY, "no memory for a download");
    *d = (struct download){.l = (struct link_grpc *)base, .m = m, .out = out};
    d->streams = link_streams(d->l, false);
    pthread_mutex_init(&d->mutex, NULL);
    clock_cond_init(&d->cond);
    enum err e = ERR_INTERNAL;
    if (download_begin(d, answer, size_bytes)) {
        link_deal_begin(d->l, &d->deal, false, d->streams);
        workers_run(d);
        link_deal_end(d->l, &d->deal, false);
        e = download_end(d, answer);
    } else {
        err_set(e, "a download from %llu of %zu bytes", (unsigned long long)m->offset, size_bytes);
    }
    pthread_cond_destroy(&d->cond);
    pthread_mutex_destroy(&d->mutex);
    free(d);
    return e;
}
