/* Contributions. One stream leads: it makes the offer, learns which bytes are missing, and hears
 * the final answer. Where more are missing than one chunk, further streams on connections of their
 * own join it, each on a thread; all take blocks from one list as they have room, so a slow
 * connection holds up no other. The leading stream ends last. A stream that dies leaves its block
 * to the next offer, which says what has arrived of it: no stored byte is sent twice.
 *
 * The first offer of a round, from a site whose round before had its receipt over this very link,
 * finds nothing stored: its bytes follow at once, and save the round trip. Is it refused, what went
 * out meanwhile was in vain.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "outer/link/grpc/link_client.h"

enum { TRIES = 3 }; /* offers in a row that bring nothing, before we give up */

struct upload {
    struct link_grpc *l;
    const uint8_t *payload;
    grpc_byte_buffer *offer;
    struct wire_contribution m;
    struct blocks blocks;  /* as the aggregator said, before we sent */
    pthread_mutex_t mutex; /* guards all below */
    bool taken[BLOCKS_MAX];
    bool over;       /* take no more */
    unsigned joined; /* threads of streams 1, 2, ... that run; the leading stream's */
};
enum stream_state {
    STREAM_OFFERED, /* the answer to the offer is awaited before bytes go out */
    STREAM_EARLY,   /* bytes go out, the offer is not yet answered */
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

static bool block_take(struct upload *u, uint32_t *block)
{
    bool found = false;
    pthread_mutex_lock(&u->mutex);
    for (uint32_t k = 0; k < u->blocks.count && !u->over && !found; k++)
        if (!u->taken[k] && u->blocks.stored[k] < blocks_bytes(&u->blocks, k)) {
            u->taken[k] = found = true;
            *block = k;
        }
    pthread_mutex_unlock(&u->mutex);
    return found;
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

/* Takes the Answer that has come. ERR_LINK without a sentence: the stream is over, its status says
 * why. */
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

/* Answers that came while we send: progress, or the end. */
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

/* *open: false when the stream takes no more; why, the answers or the status will say. */
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

/* ERR_OK: all that it took is out, or the final answer is there; *open as above. */
static enum err stream_blocks(struct stream *s, bool *open)
{
    uint32_t block;
    *open = true;
    if (s->state != STREAM_EARLY && !link_call_recv_start(s->c))
        return ERR_LINK;
    while (*open && s->state != STREAM_FINAL && block_take(s->u, &block))
        TRY(stream_block(s, block, open));
    return ERR_OK;
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

/* The offer; early: its answer may come while the bytes are on their way. */
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

/* Whatever becomes of it, the leading stream learns what is stored. */
static void *join_main(void *arg)
{
    struct stream *s = arg;
    struct upload *u = s->u;
    bool open = true;
    s->c = link_begin(u->l, LINK_CONTRIBUTE, LINK_BULK + s->index, UINT64_MAX);
    if (!s->c) {
        err_clear();
        return NULL;
    }
    link_call_about(s->c, LINK_CONTRIBUTE, &u->m);
    enum err e = stream_offer(s);
    bool joined = e == ERR_OK && s->state == STREAM_SENDING;
    if (joined)
        e = stream_blocks(s, &open);
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

/* As many as have something to do. Signals are for the threads that the program means. */
static void joins_start(struct upload *u, struct stream *s)
{
    uint64_t chunks = chunks_left(u);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned i = 1; i < u->l->streams && i < chunks; i++) {
        s[i] = (struct stream){.u = u, .index = i};
        if (pthread_create(&s[i].thread, NULL, join_main, &s[i]) != 0)
            break;
        u->joined = i;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void joins_wait(const struct upload *u, struct stream *s)
{
    for (unsigned i = 1; i <= u->joined; i++)
        pthread_join(s[i].thread, NULL);
}

/* ---- the leading stream ---- */

/* What the aggregator says it has. One that names no blocks has everything before its offset. */
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
    return err_set(ERR_PROTO, "%s wants to go on at %llu of %llu bytes", u->l->target,
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
    if (e != ERR_LINK) { /* what may still be on its way is not wanted */
        if (e != ERR_OK || s->c->send.pending)
            grpc_call_cancel(s->c->call, NULL);
        return e;
    }
    e = link_result(u->l, s->c);
    return e == ERR_OK
               ? err_set(ERR_LINK, "%s ended a contribution without an answer", u->l->target)
               : e;
}

/* Asked once for each round: from then on the answer to the offer comes first. */
static bool early_may(struct link_grpc *l, const struct wire_contribution *m)
{
    ASSERT(m->fragment < ROUND_FRAGMENTS_MAX);
    uint64_t *fresh = &l->fresh[m->fragment];
    pthread_mutex_lock(&l->mutex);
    bool may = *fresh && m->round >= *fresh;
    if (may)
        *fresh = m->round + 1;
    pthread_mutex_unlock(&l->mutex);
    return may;
}

static void early_next(struct link_grpc *l, const struct wire_contribution *m)
{
    uint64_t *fresh = &l->fresh[m->fragment];
    pthread_mutex_lock(&l->mutex);
    *fresh = m->round + 1 > *fresh ? m->round + 1 : *fresh;
    pthread_mutex_unlock(&l->mutex);
}

static enum err contribute_streams(struct upload *u, struct stream *s, struct wire_answer *answer)
{
    struct link_grpc *l = u->l;
    s->c = link_begin(l, LINK_CONTRIBUTE, LINK_BULK, UINT64_MAX);
    TRY_ALLOC(s->c);
    link_call_about(s->c, LINK_CONTRIBUTE, &u->m);
    enum err e = upload_all(u, s);
    s->c->row.done = e == ERR_OK && s->answer.outcome == ROUND_RECEIPT;
    if (s->c->row.done)
        early_next(l, &u->m);
    link_end(l, s->c);
    *answer = s->answer;
    return e;
}

/* *had: bytes that were there before. */
static enum err contribute_once(struct link_grpc *l, const struct wire_contribution *m,
                                const uint8_t *payload, struct wire_answer *answer, uint64_t *had)
{
    struct upload u = {.l = l, .payload = payload, .m = *m};
    struct stream *s = calloc(LINK_STREAMS_MAX, sizeof *s);
    if (!s)
        return err_set(ERR_MEMORY, "no memory for a contribution");
    pthread_mutex_init(&u.mutex, NULL);
    pthread_mutex_lock(&l->mutex);
    u.m.transfer = ++l->transfers;
    pthread_mutex_unlock(&l->mutex);
    s[0] = (struct stream){.u = &u, .state = early_may(l, m) ? STREAM_EARLY : STREAM_OFFERED};
    enum err e = contribute_streams(&u, s, answer);
    *had = blocks_sum(&u.blocks);
    pthread_mutex_destroy(&u.mutex);
    free(s);
    return e;
}

/* Again for as long as each offer finds more bytes there than the one before: streams die, chunks
 * are damaged. */
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
    return err_set(ERR_PROTO, "%s found the contribution damaged %d times: %s", l->target, TRIES,
                   answer->text);
}
