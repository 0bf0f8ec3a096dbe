/* SPDX-License-Identifier: Apache-2.0 */
/* Contributions. The leading stream sends the offer, receives the list of missing bytes and the
 * final answer. When more than one chunk is missing, further streams join, each on its own
 * connection and thread. All streams take blocks from one list, as outer/link/deal.h deals them, so
 * a slow connection delays no other. The leading stream ends last. The block of a broken stream is
 * sent after the next offer, whose answer says which bytes are stored: no stored byte is sent
 * twice.
 *
 * When the previous round got its receipt over this link, the first offer of a round finds no
 * stored bytes: the data follows the offer at once, which saves a round trip. If the offer is
 * refused, these bytes are wasted.
 */
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/signals.h"
#include "outer/link/grpc/link_client.h"

enum { TRIES = 3 }; /* consecutive offers without progress before the call fails */

struct upload {
    struct link_grpc *l;
    const uint8_t *payload;
    unsigned streams;
    struct wire_contribution m;
    struct blocks blocks; /* stored blocks by the aggregator's answer, before this call sent data */
    pthread_cond_t cond;  /* only times out */
    pthread_mutex_t mutex; /* guards all below */
    bool taken[BLOCKS_MAX];
    struct deal deal;
    bool over;       /* streams take no more blocks */
    unsigned joined; /* running threads of streams 1, 2, ...; used by the leading stream alone */
};
enum stream_state {
    STREAM_OFFERED, /* data waits for the answer to the offer */
    STREAM_EARLY,   /* data is sent, the offer is not yet answered */
    STREAM_SENDING, /* the offer was answered RESUME */
    STREAM_FINAL    /* `answer` is the last one */
};
struct stream {
    struct upload *u;
    struct link_call *c;
    unsigned index;
    pthread_t thread;
    enum stream_state state;
    struct wire_answer answer;
};

static double block_left(const struct upload *u, uint32_t k)
{
    return (double)(blocks_bytes(&u->blocks, k) - u->blocks.stored[k]);
}

/* *again: none now, but blocks are left; after a short wait. */
static bool block_take(struct upload *u, unsigned index, uint32_t *block, bool *again)
{
    uint32_t first = 0, left = 0;
    double now = clock_mono_s();
    pthread_mutex_lock(&u->mutex);
    for (uint32_t k = u->blocks.count; k-- > 0;)
        if (!u->taken[k] && block_left(u, k) > 0) {
            first = k;
            left++;
        }
    bool found = left && !u->over &&
                 deal_takes(&u->deal, index, left, (double)blocks_bytes(&u->blocks, first), now);
    *again = left && !u->over && !found;
    if (*again)
        clock_cond_wait(&u->cond, &u->mutex, clock_mono_ms() + DEAL_AGAIN_MS);
    if (found) {
        u->taken[first] = true;
        deal_took(&u->deal, index, block_left(u, first), now);
        *block = first;
    }
    pthread_mutex_unlock(&u->mutex);
    return found;
}

static void block_done(struct upload *u, unsigned index, uint32_t block)
{
    double bytes = block_left(u, block);
    pthread_mutex_lock(&u->mutex);
    deal_done(&u->deal, index, bytes, bytes, clock_mono_s());
    pthread_mutex_unlock(&u->mutex);
}

static void upload_over(struct upload *u)
{
    pthread_mutex_lock(&u->mutex);
    u->over = true;
    pthread_mutex_unlock(&u->mutex);
}

static bool upload_is_over(struct upload *u)
{
    pthread_mutex_lock(&u->mutex);
    bool over = u->over;
    pthread_mutex_unlock(&u->mutex);
    return over;
}

/* Reads the received Answer. ERR_LINK without a text: the stream has ended, its status gives the
 * reason. */
static enum err stream_answer(struct stream *s)
{
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    grpc_byte_buffer *bb = link_received(s->u->l, s->c);
    enum err e = bb ? link_decode(bb, WIRE_ANSWER, &s->answer, &a) : ERR_LINK;
    arena_free(&a);
    bool offered = s->state == STREAM_OFFERED || s->state == STREAM_EARLY;
    if (e == ERR_OK && offered && s->answer.outcome == ROUND_RESUME)
        s->state = STREAM_SENDING;
    else if (e == ERR_OK && s->answer.outcome != ROUND_NONE)
        s->state = STREAM_FINAL;
    return e;
}

static void joins_start(struct upload *u, struct stream *s);

/* Reads answers received while sending: progress, or the final one. */
static enum err stream_answers(struct stream *s)
{
    while (s->state != STREAM_FINAL && link_call_done(s->c, &s->c->recv)) {
        bool early = s->state == STREAM_EARLY;
        TRY(stream_answer(s));
        if (early && s->state == STREAM_SENDING)
            joins_start(s->u, s);
        if (s->state != STREAM_FINAL && !link_call_recv_start(s->c))
            return ERR_LINK;
    }
    return ERR_OK;
}

/* *open false: the stream accepts no more data; the answers or the status give the reason. */
static enum err stream_chunk(struct stream *s, uint64_t offset, uint32_t size, bool *open)
{
    struct link_grpc *l = s->u->l;
    const uint8_t *data = s->u->payload + offset;
    struct wire_chunk chunk = {offset, s->u->m.payload_bytes, digest_crc32c(0, data, size), size};
    link_pace(l, &l->pace_up, size);
    grpc_byte_buffer *bb = link_chunk(s->c, &chunk, data);
    link_count(l, bb, NULL, size, 0);
    *open = link_call_send_start(s->c, bb);
    while (*open && s->state != STREAM_FINAL && !link_call_done(s->c, &s->c->send)) {
        link_call_wait_any(s->c, &s->c->send, &s->c->recv);
        TRY(stream_answers(s));
    }
    if (*open && s->state != STREAM_FINAL)
        *open = link_call_wait(s->c, &s->c->send);
    return ERR_OK;
}

static enum err stream_block(struct stream *s, uint32_t block, bool *open)
{
    const struct upload *u = s->u;
    uint64_t at = blocks_start(&u->blocks, block) + u->blocks.stored[block];
    uint64_t end = blocks_start(&u->blocks, block) + blocks_bytes(&u->blocks, block);
    size_t most = pace_chunk_bytes(&u->l->pace_up, WIRE_CHUNK_BYTES);
    while (*open && s->state != STREAM_FINAL && at < end && !upload_is_over(s->u)) {
        uint32_t size = (uint32_t)(end - at < most ? end - at : most);
        TRY(stream_chunk(s, at, size, open));
        at += size;
    }
    return ERR_OK;
}

/* ERR_OK: all blocks that it took are sent, or the final answer has arrived. *open: as in
 * stream_chunk. */
static enum err stream_blocks(struct stream *s, bool *open)
{
    struct upload *u = s->u;
    enum err e = ERR_OK;
    uint32_t block;
    bool again = true;
    *open = true;
    if (s->state != STREAM_EARLY && !link_call_recv_start(s->c))
        return ERR_LINK;
    while (e == ERR_OK && *open && s->state != STREAM_FINAL && again) {
        if (block_take(u, s->index, &block, &again)) {
            again = true;
            e = stream_block(s, block, open);
            block_done(u, s->index, block);
        } else if (again) {
            e = stream_answers(s);
        }
    }
    return e;
}

static enum err stream_final(struct stream *s)
{
    while (s->state != STREAM_FINAL) {
        TRY(stream_answer(s));
        if (s->state != STREAM_FINAL && !link_call_recv_start(s->c))
            return ERR_LINK;
    }
    return ERR_OK;
}

/* Sends the offer. early: data is sent before the answer arrives. */
static enum err stream_offer(struct stream *s)
{
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct wire_contribution m = s->u->m;
    uint8_t *data;
    size_t n;
    m.stream = s->index;
    enum err e = wire_encode(WIRE_UPLOAD, &m, &a, &data, &n);
    if (e == ERR_OK) {
        grpc_byte_buffer *bb = link_buffer(data, n);
        link_count(s->u->l, bb, NULL, 0, 0);
        e = link_call_send(s->c, bb) && link_call_recv_start(s->c) ? ERR_OK : ERR_LINK;
        if (e == ERR_OK && s->state == STREAM_OFFERED)
            e = stream_answer(s);
    }
    arena_free(&a);
    return e;
}

/* ---- a stream that joins ---- */

static void stream_takes(struct upload *u, unsigned index, bool takes)
{
    pthread_mutex_lock(&u->mutex);
    if (takes)
        deal_join(&u->deal, index);
    else
        deal_leave(&u->deal, index);
    pthread_mutex_unlock(&u->mutex);
}

/* Its result is ignored: the leading stream learns which bytes are stored. */
static void *join_main(void *arg)
{
    struct stream *s = arg;
    struct upload *u = s->u;
    bool open = true;
    s->c = link_begin(u->l, LINK_CONTRIBUTE, link_channel(u->l, u->streams, s->index), UINT64_MAX);
    if (!s->c) {
        stream_takes(u, s->index, false);
        err_clear();
        return NULL;
    }
    link_call_about(s->c, LINK_CONTRIBUTE, &u->m);
    enum err e = stream_offer(s);
    bool joined = e == ERR_OK && s->state == STREAM_SENDING;
    if (joined)
        e = stream_blocks(s, &open);
    stream_takes(u, s->index, false);
    if (joined && e == ERR_OK && open && s->state != STREAM_FINAL && !upload_is_over(u)) {
        link_call_half_close(s->c);
        e = stream_final(s);
    }
    bool well =
        joined && e == ERR_OK && s->state == STREAM_FINAL && s->answer.outcome == ROUND_NONE;
    if (!well)
        grpc_call_cancel(s->c->call, NULL);
    if (joined && s->state == STREAM_FINAL)
        upload_over(u);
    link_end(u->l, s->c);
    err_clear();
    return NULL;
}

static uint64_t chunks_left(struct upload *u)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&u->mutex);
    for (uint32_t k = 0; k < u->blocks.count; k++)
        bytes += u->taken[k] ? 0 : blocks_bytes(&u->blocks, k) - u->blocks.stored[k];
    pthread_mutex_unlock(&u->mutex);
    return (bytes + WIRE_CHUNK_BYTES - 1) / WIRE_CHUNK_BYTES;
}

/* Starts as many streams as have blocks to send. Their threads block all signals. */
static void joins_start(struct upload *u, struct stream *s)
{
    uint64_t chunks = chunks_left(u);
    sigset_t before;
    signals_block(&before);
    for (unsigned i = 1; i < u->streams && i < chunks; i++) {
        s[i] = (struct stream){.u = u, .index = i};
        stream_takes(u, i, true);
    }
    for (unsigned i = 1; i < u->streams && i < chunks; i++) {
        if (pthread_create(&s[i].thread, NULL, join_main, &s[i]) == 0)
            u->joined = i;
        else
            stream_takes(u, i, false);
    }
    signals_restore(&before);
}

static void joins_wait(const struct upload *u, struct stream *s)
{
    for (unsigned i = 1; i <= u->joined; i++)
        pthread_join(s[i].thread, NULL);
}

/* ---- the leading stream ---- */

/* Sets the stored blocks from the aggregator's answer. An answer without blocks means: all bytes
 * before its offset. */
static enum err upload_blocks(struct upload *u, const struct wire_answer *answer)
{
    blocks_make(&u->blocks, u->m.payload_bytes);
    if (answer->blocks.count) {
        u->blocks.count = answer->blocks.count;
        memcpy(u->blocks.stored, answer->blocks.stored, sizeof u->blocks.stored);
    } else if (answer->offset <= u->m.payload_bytes) {
        blocks_fill(&u->blocks, answer->offset);
    }
    if (answer->offset <= u->m.payload_bytes && blocks_valid(&u->blocks))
        return ERR_OK;
    return err_set(ERR_PROTO, "%s wants to continue at %llu of %llu bytes", u->l->o.target,
                   (unsigned long long)answer->offset, (unsigned long long)u->m.payload_bytes);
}

static enum err upload_chunks(struct upload *u, struct stream *s)
{
    bool open;
    bool early = s->state == STREAM_EARLY;
    if (early)
        blocks_make(&u->blocks, u->m.payload_bytes);
    else
        TRY(upload_blocks(u, &s->answer));
    if (!early && blocks_sum(&u->blocks) < u->m.payload_bytes)
        joins_start(u, s);
    enum err e = stream_blocks(s, &open);
    stream_takes(u, 0, false);
    if (e != ERR_OK || !open || s->state == STREAM_FINAL)
        upload_over(u);
    joins_wait(u, s);
    TRY(e);
    if (open && s->state != STREAM_FINAL)
        link_call_half_close(s->c);
    return stream_final(s);
}

static enum err upload_all(struct upload *u, struct stream *s)
{
    enum err e = stream_offer(s);
    if (e == ERR_OK && (s->state == STREAM_EARLY || s->state == STREAM_SENDING))
        e = upload_chunks(u, s);
    if (e != ERR_LINK) { /* cancels messages in flight */
        if (e != ERR_OK || s->c->send.pending)
            grpc_call_cancel(s->c->call, NULL);
        return e;
    }
    e = link_result(u->l, s->c);
    return e == ERR_OK
               ? err_set(ERR_LINK, "%s ended a contribution without an answer", u->l->o.target)
               : e;
}

/* True at the first call for a round only: later offers of the round wait for the answer. */
static bool early_may(struct link_grpc *l, const struct wire_contribution *m)
{
    ASSERT(m->fragment < ROUND_FRAGMENTS_MAX);
    uint64_t *fresh = &l->uploads.fresh[m->fragment];
    pthread_mutex_lock(&l->mutex);
    bool may = *fresh && m->round >= *fresh;
    if (may)
        *fresh = m->round + 1;
    pthread_mutex_unlock(&l->mutex);
    return may;
}

static void early_next(struct link_grpc *l, const struct wire_contribution *m)
{
    uint64_t *fresh = &l->uploads.fresh[m->fragment];
    pthread_mutex_lock(&l->mutex);
    *fresh = m->round + 1 > *fresh ? m->round + 1 : *fresh;
    pthread_mutex_unlock(&l->mutex);
}

static enum err contribute_streams(struct upload *u, struct stream *s, struct wire_answer *answer)
{
    struct link_grpc *l = u->l;
    s->c = link_begin(l, LINK_CONTRIBUTE, link_channel(l, u->streams, 0), UINT64_MAX);
    TRY_ALLOC(s->c);
    link_call_about(s->c, LINK_CONTRIBUTE, &u->m);
    enum err e = upload_all(u, s);
    bool whole = e == ERR_OK && s->answer.outcome == ROUND_RECEIPT;
    link_call_whole(s->c, whole);
    if (whole)
        early_next(l, &u->m);
    link_end(l, s->c);
    *answer = s->answer;
    return e;
}

/* *had: bytes stored before this call. */
static enum err contribute_once(struct link_grpc *l, const struct wire_contribution *m,
                                const uint8_t *payload, struct wire_answer *answer, uint64_t *had)
{
    struct upload u = {.l = l, .payload = payload, .m = *m};
    struct stream *s = calloc(LINK_STREAMS_MAX, sizeof *s);
    if (!s)
        return err_set(ERR_MEMORY, "no memory for a contribution");
    pthread_mutex_init(&u.mutex, NULL);
    clock_cond_init(&u.cond);
    pthread_mutex_lock(&l->mutex);
    u.m.transfer = ++l->uploads.transfers;
    pthread_mutex_unlock(&l->mutex);
    link_up_begin(l);
    u.streams = link_streams(l, true);
    s[0] = (struct stream){.u = &u, .state = early_may(l, m) ? STREAM_EARLY : STREAM_OFFERED};
    link_deal_begin(l, &u.deal, true, u.streams);
    deal_join(&u.deal, 0);
    enum err e = contribute_streams(&u, s, answer);
    if (e == ERR_OK)
        link_deal_end(l, &u.deal, true);
    *had = blocks_sum(&u.blocks);
    link_up_end(l);
    pthread_cond_destroy(&u.cond);
    pthread_mutex_destroy(&u.mutex);
    free(s);
    return e;
}

/* Repeats while each offer finds more stored bytes than the one before: streams break, chunks are
 * damaged. */
enum err link_contribute(struct link *base, const struct wire_contribution *m,
                         const uint8_t *payload, struct wire_answer *answer)
{
    struct link_grpc *l = (struct link_grpc *)base;
    uint64_t had, most = 0;
    for (int tries = TRIES; tries > 0; tries--) {
        TRY(contribute_once(l, m, payload, answer, &had));
        if (answer->outcome != ROUND_RESUME)
            return ERR_OK;
        if (had > most)
            tries = TRIES;
        most = had > most ? had : most;
    }
    return err_set(ERR_PROTO, "%s found the contribution damaged %d times: %s", l->o.target, TRIES,
                   answer->text);
}
