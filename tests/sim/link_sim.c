/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/link_sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MESSAGE_MAX = 1 << 24,
    HALF_OPEN_MS = 20000,
    FETCH_ATTEMPTS = 4,
    STORE_MS = 4,
    VERIFY_MS = 200
};

static const struct link_sim_watch *watch_of(const struct link_sim_server *s)
{
    return s->watcher;
}

/* ---- one message ---- */

static void pause_ms(struct link_sim *l, uint64_t ms)
{
    if (!l->env->disk.dead)
        sim_sleep(l->server->clock, l->server->clock->now_ms + ms, NULL);
}

static enum err down(void)
{
    return err_set(ERR_LINK, "no answer");
}

static bool partitioned(const struct link_sim *l)
{
    uint64_t now = l->server->clock->now_ms;
    return now >= l->faults->part_from_ms && now < l->faults->part_until_ms;
}

/* One way over the link. A lost message shows by the deadline only. */
static enum err travel(struct link_sim *l, double lost)
{
    struct clock_sim *c = l->server->clock;
    pause_ms(l, 1 + sim_below(c, l->faults->delay_ms + 1));
    if (l->env->disk.dead)
        return down();
    if (!partitioned(l) && !sim_strikes(c, lost, "a message is lost", l->env->name))
        return ERR_OK;
    pause_ms(l, LINK_SIM_TIMEOUT_MS);
    return down();
}

static enum err there(struct link_sim *l, uint64_t *generation)
{
    TRY(travel(l, l->faults->lost));
    *generation = l->server->generation;
    return link_sim_serving(l->server, *generation) ? ERR_OK : down();
}

/* Back: the work of the call has been done, also if its answer is lost. */
static enum err back(struct link_sim *l, uint64_t generation)
{
    link_sim_work(l->server);
    if (!link_sim_serving(l->server, generation))
        return down(); /* it died in this very call */
    TRY(travel(l, l->faults->lost_answer));
    return l->env->disk.dead ? down() : ERR_OK;
}

/* ---- the second delivery ---- */

enum again_kind { AGAIN_HELLO, AGAIN_CONTRIBUTE, AGAIN_REPORT, AGAIN_MASK };
struct again { /* a copy of a message that arrives once more, if its process still lives */
    enum again_kind kind;
    struct link_sim_server *server;
    uint64_t generation, after_ms;
    void *site;
    char peer[192];
    union {
        struct wire_hello hello;
        struct wire_contribution contribution;
        struct wire_report report;
        struct wire_mask mask;
    } m;
    uint8_t *payload; /* of a contribution, or the body of a step */
    char *config;
};

/* The service verifies during all other calls: some come before, some after it. False: its process
 * ended meanwhile. */
static bool stream_finish(struct link_sim_server *s, uint64_t generation, void *upload,
                          bool complete, struct wire_answer *answer)
{
    struct clock_sim *c = s->clock;
    s->service.finish(s->service.self, upload, complete, answer);
    if (answer->outcome != ROUND_PENDING)
        return true;
    sim_sleep(c, c->now_ms + sim_below(c, VERIFY_MS), NULL);
    if (!link_sim_serving(s, generation))
        return false;
    s->service.verify(s->service.self, upload);
    link_sim_work(s); /* it may have died in there */
    sim_sleep(c, c->now_ms + sim_below(c, VERIFY_MS), NULL);
    if (!link_sim_serving(s, generation))
        return false;
    s->service.verified(s->service.self, upload, answer);
    return true;
}

/* A chunk's bytes: the same faults as those of a call. */
struct upload_part {
    void *upload;
    uint64_t at;
    const uint8_t *data;
    size_t n;
};

static bool stream_chunk(struct link_sim_server *s, uint64_t generation,
                         const struct upload_part *p, struct wire_answer *answer)
{
    struct clock_sim *c = s->clock;
    s->service.chunk(s->service.self, p->upload, p->at, p->data, p->n, answer);
    if (answer->outcome != ROUND_PENDING)
        return true;
    sim_sleep(c, c->now_ms + sim_below(c, STORE_MS), NULL);
    if (!link_sim_serving(s, generation))
        return false;
    s->service.stored(s->service.self, p->upload, p->at, p->n,
                      s->service.store(s->service.self, p->upload, p->at, p->data, p->n), answer);
    return true;
}

static void stream_again(struct link_sim_server *s, const struct again *a)
{
    struct wire_answer answer;
    void *upload;
    s->service.offer(s->service.self, a->peer, &a->m.contribution, &answer, &upload);
    if (answer.outcome != ROUND_RESUME || !upload)
        return;
    uint64_t at = answer.offset;
    link_service_chunk(&s->service, upload, at, a->payload + at,
                       a->m.contribution.payload_bytes - at, &answer);
    stream_finish(s, a->generation, upload, answer.outcome == ROUND_NONE, &answer);
}

static void mask_again(struct link_sim_server *s, const struct again *a)
{
    struct wire_mask_answer *answer = malloc(sizeof *answer);
    ASSERT(answer);
    link_service_mask(&s->service, a->peer, &a->m.mask, answer);
    watch_of(s)->masked(watch_of(s)->self, a->site, &a->m.mask, answer);
    free(answer);
}

static void again_run(void *self)
{
    struct again *a = self;
    struct link_sim_server *s = a->server;
    struct wire_hello_answer hello;
    struct wire_answer answer;
    sim_sleep(s->clock, s->clock->now_ms + a->after_ms, NULL);
    if (link_sim_serving(s, a->generation)) {
        if (a->kind == AGAIN_HELLO) {
            s->service.hello(s->service.self, a->peer, &a->m.hello, &hello);
            watch_of(s)->hello(watch_of(s)->self, a->site, &a->m.hello, &hello);
        } else if (a->kind == AGAIN_REPORT) {
            s->service.report(s->service.self, a->peer, &a->m.report, &answer);
        } else if (a->kind == AGAIN_MASK) {
            mask_again(s, a);
        } else {
            stream_again(s, a);
        }
        link_sim_work(s);
    }
    free(a->payload);
    free(a->config);
    free(a);
}

static struct again *again(struct link_sim *l, enum again_kind kind, uint64_t generation)
{
    struct clock_sim *c = l->server->clock;
    if (!sim_strikes(c, l->faults->twice, "a message arrives twice", l->env->name))
        return NULL;
    struct again *a = calloc(1, sizeof *a);
    ASSERT(a);
    a->kind = kind;
    a->server = l->server;
    a->generation = generation;
    a->after_ms = sim_below(c, sim_chance(c, 0.5) ? 500 : LINK_SIM_TWICE_MS);
    a->site = l->env->watch_self;
    memcpy(a->peer, l->peer, sizeof a->peer);
    return a;
}

/* ---- the calls ---- */

/* A site's threads call at the same time: each call has its own copy. */
static struct link_sim call_begin(struct link *link)
{
    struct link_sim l = *(struct link_sim *)link;
    l.server = *l.route;
    l.process = l.server->clock->process;
    l.server->clock->process = 0;
    return l;
}

static enum err call_end(struct link_sim *l, enum err e)
{
    l->server->clock->process = l->process;
    return e;
}

static enum err call_hello(struct link_sim *l, const struct wire_hello *m,
                           struct wire_hello_answer *answer)
{
    struct link_sim_server *s = l->server;
    uint64_t generation;
    TRY(there(l, &generation));
    struct again *a = again(l, AGAIN_HELLO, generation);
    if (a) {
        a->m.hello = *m;
        a->m.hello.config = a->config = strdup(m->config);
        sim_start(s->clock, again_run, a);
    }
    s->service.hello(s->service.self, l->peer, m, answer);
    watch_of(s)->hello(watch_of(s)->self, l->env->watch_self, m, answer);
    return back(l, generation);
}

struct half_open { /* a stream whose site is gone: the aggregator learns it by its keepalive */
    struct link_sim_server *server;
    uint64_t generation;
    void *upload;
};

static void half_open_run(void *self)
{
    struct half_open *h = self;
    struct link_sim_server *s = h->server;
    struct wire_answer ignored;
    sim_sleep(s->clock, s->clock->now_ms + sim_below(s->clock, HALF_OPEN_MS), NULL);
    if (link_sim_serving(s, h->generation)) {
        s->service.finish(s->service.self, h->upload, false, &ignored);
        link_sim_work(s);
    }
    free(h);
}

static enum err stream_cut(struct link_sim *l, uint64_t generation, void *upload)
{
    struct half_open *h = malloc(sizeof *h);
    ASSERT(h);
    *h = (struct half_open){l->server, generation, upload};
    sim_start(l->server->clock, half_open_run, h);
    return down();
}

static enum err stream(struct link_sim *l, const struct wire_contribution *m,
                       const uint8_t *payload, uint64_t generation, void *upload,
                       struct wire_answer *answer)
{
    struct link_sim_server *s = l->server;
    uint64_t at = answer->offset;
    answer->outcome = ROUND_NONE;
    while (at < m->payload_bytes && answer->outcome == ROUND_NONE) {
        size_t n = m->payload_bytes - at < LINK_SIM_CHUNK_BYTES ? m->payload_bytes - at
                                                                : LINK_SIM_CHUNK_BYTES;
        pause_ms(l, sim_below(s->clock, l->faults->delay_ms + 1));
        if (!link_sim_serving(s, generation))
            return down();
        if (l->env->disk.dead || partitioned(l) ||
            sim_strikes(s->clock, l->faults->cut, "a stream is cut", l->env->name))
            return stream_cut(l, generation, upload);
        const struct upload_part part = {upload, at, payload + at, n};
        if (!stream_chunk(s, generation, &part, answer))
            return down();
        link_sim_work(s);
        at += n;
        l->counted->payload_up += n;
    }
    if (!link_sim_serving(s, generation))
        return down();
    struct wire_answer ignored;
    bool complete = answer->outcome == ROUND_NONE;
    return stream_finish(s, generation, upload, complete, complete ? answer : &ignored) ? ERR_OK
                                                                                        : down();
}

static enum err call_contribute(struct link_sim *l, const struct wire_contribution *m,
                                const uint8_t *payload, struct wire_answer *answer)
{
    struct link_sim_server *s = l->server;
    uint64_t generation;
    void *upload;
    watch_of(s)->offered(watch_of(s)->self, l->env->watch_self, m, payload);
    TRY(there(l, &generation));
    bool announced = m->payload_bytes > MESSAGE_MAX; /* a lie: there are no such bytes */
    struct again *a = announced ? NULL : again(l, AGAIN_CONTRIBUTE, generation);
    if (a) {
        a->m.contribution = *m;
        a->payload = malloc(m->payload_bytes);
        ASSERT(a->payload);
        memcpy(a->payload, payload, m->payload_bytes);
        sim_start(s->clock, again_run, a);
    }
    s->service.offer(s->service.self, l->peer, m, answer, &upload);
    if (answer->outcome == ROUND_RESUME && upload)
        TRY(stream(l, m, payload, generation, upload, answer));
    if (link_sim_serving(s, generation))
        watch_of(s)->answered(watch_of(s)->self, l->env->watch_self, m, answer);
    return back(l, generation);
}

/* What a poll's answer brings of a step counts as an answer to that step. */
static void poll_masked(struct link_sim *l, const struct wire_poll *m,
                        const struct wire_poll_answer *answer)
{
    struct link_sim_server *s = l->server;
    if (answer->answer.outcome != ROUND_PENDING || !answer->wants || !answer->body_bytes)
        return;
    struct wire_mask step = {
        .head = m->head, .step = answer->wants, .fragment = m->fragment, .round = m->round};
    struct wire_mask_answer *told = calloc(1, sizeof *told);
    ASSERT(told);
    told->body_bytes = answer->body_bytes;
    memcpy(told->body, answer->body, answer->body_bytes);
    watch_of(s)->masked(watch_of(s)->self, l->env->watch_self, &step, told);
    free(told);
}

static enum err call_poll(struct link_sim *l, const struct wire_poll *m, uint32_t hold_ms,
                          struct wire_poll_answer *answer)
{
    struct link_sim_server *s = l->server;
    uint64_t generation, end = s->clock->now_ms + hold_ms;
    TRY(there(l, &generation));
    for (;;) {
        s->service.poll(s->service.self, l->peer, m, answer);
        if (!link_service_holds(answer) || s->clock->now_ms >= end)
            break;
        sim_sleep(s->clock, end, s);
        if (!link_sim_serving(s, generation) || l->env->disk.dead)
            return down();
    }
    poll_masked(l, m, answer);
    return back(l, generation);
}

/* One stream of the rest; ERR_LINK: cut, *have says how far it came. */
static enum err download(struct link_sim *l, struct wire_fetch *m, uint8_t *out, size_t size_bytes,
                         size_t *have, struct wire_answer *answer)
{
    struct link_sim_server *s = l->server;
    struct link_content c;
    uint64_t generation;
    TRY(there(l, &generation));
    watch_of(s)->fetching(watch_of(s)->self, l->env->watch_self, m);
    s->service.fetch(s->service.self, l->peer, m, &c, answer);
    if (answer->outcome != ROUND_NONE)
        return back(l, generation);
    bool fits = c.size_bytes == size_bytes, cut = false;
    while (fits && !cut && *have < c.size_bytes) {
        size_t n = c.size_bytes - *have < LINK_SIM_CHUNK_BYTES ? c.size_bytes - *have
                                                               : LINK_SIM_CHUNK_BYTES;
        pause_ms(l, sim_below(s->clock, l->faults->delay_ms + 1));
        if (!link_sim_serving(s, generation))
            return down(); /* with its memory */
        cut = l->env->disk.dead || partitioned(l) ||
              sim_strikes(s->clock, l->faults->cut, "a stream is cut", l->env->name);
        if (!cut) {
            memcpy(out + *have, c.data + *have, n);
            *have += n;
            l->counted->payload_down += n;
        }
    }
    s->service.fetched(s->service.self, c.source);
    if (!fits)
        return err_set(ERR_PROTO, "%zu bytes announced, %zu expected", c.size_bytes, size_bytes);
    return cut ? down() : back(l, generation);
}

static enum err call_fetch(struct link_sim *l, const struct wire_fetch *m, uint8_t *out,
                           size_t size_bytes, struct wire_answer *answer)
{
    struct wire_fetch rest = *m;
    size_t have = m->offset;
    enum err e = ERR_LINK;
    for (int i = 0; i < FETCH_ATTEMPTS && e == ERR_LINK && !l->env->disk.dead; i++) {
        rest.offset = have;
        e = download(l, &rest, out, size_bytes, &have, answer);
        if (e == ERR_LINK &&
            have == size_bytes) /* all bytes are here: the end of the stream is nothing */
            e = ERR_OK;
    }
    answer->offset = have;
    return l->env->disk.dead ? down() : e;
}

static enum err call_report(struct link_sim *l, const struct wire_report *m,
                            struct wire_answer *answer)
{
    struct link_sim_server *s = l->server;
    uint64_t generation;
    TRY(there(l, &generation));
    struct again *a = again(l, AGAIN_REPORT, generation);
    if (a) {
        a->m.report = *m;
        sim_start(s->clock, again_run, a);
    }
    s->service.report(s->service.self, l->peer, m, answer);
    return back(l, generation);
}

static enum err call_leave(struct link_sim *l, const struct wire_leave *m,
                           struct wire_answer *answer)
{
    uint64_t generation;
    TRY(there(l, &generation));
    l->server->service.leave(l->server->service.self, l->peer, m, answer);
    return back(l, generation);
}

static enum err call_mask(struct link_sim *l, const struct wire_mask *m,
                          struct wire_mask_answer *answer)
{
    struct link_sim_server *s = l->server;
    uint64_t generation;
    watch_of(s)->masking(watch_of(s)->self, l->env->watch_self, m);
    TRY(there(l, &generation));
    struct again *a = m->body_bytes ? again(l, AGAIN_MASK, generation) : NULL;
    if (a) {
        a->m.mask = *m;
        a->m.mask.body = a->payload = malloc(m->body_bytes);
        ASSERT(a->payload);
        memcpy(a->payload, m->body, m->body_bytes);
        sim_start(s->clock, again_run, a);
    }
    link_service_mask(&s->service, l->peer, m, answer);
    watch_of(s)->masked(watch_of(s)->self, l->env->watch_self, m, answer);
    return back(l, generation);
}

static enum err sim_hello(struct link *link, const struct wire_hello *m,
                          struct wire_hello_answer *answer)
{
    struct link_sim l = call_begin(link);
    return call_end(&l, call_hello(&l, m, answer));
}

static enum err sim_contribute(struct link *link, const struct wire_contribution *m,
                               const uint8_t *payload, struct wire_answer *answer)
{
    struct link_sim l = call_begin(link);
    return call_end(&l, call_contribute(&l, m, payload, answer));
}

static enum err sim_poll(struct link *link, const struct wire_poll *m, uint32_t hold_ms,
                         struct wire_poll_answer *answer)
{
    struct link_sim l = call_begin(link);
    return call_end(&l, call_poll(&l, m, hold_ms, answer));
}

static enum err sim_fetch(struct link *link, const struct wire_fetch *m, uint8_t *out,
                          size_t size_bytes, struct wire_answer *answer)
{
    struct link_sim l = call_begin(link);
    return call_end(&l, call_fetch(&l, m, out, size_bytes, answer));
}

static enum err sim_report(struct link *link, const struct wire_report *m,
                           struct wire_answer *answer)
{
    struct link_sim l = call_begin(link);
    return call_end(&l, call_report(&l, m, answer));
}

static enum err sim_leave(struct link *link, const struct wire_leave *m, struct wire_answer *answer)
{
    struct link_sim l = call_begin(link);
    return call_end(&l, call_leave(&l, m, answer));
}

static enum err sim_mask(struct link *link, const struct wire_mask *m,
                         struct wire_mask_answer *answer)
{
    struct link_sim l = call_begin(link);
    return call_end(&l, call_mask(&l, m, answer));
}

static void sim_counters(struct link *link, struct link_counters *out)
{
    *out = ((struct link_sim *)link)->counters;
}

static void sim_close(struct link *link)
{
    (void)link; /* owned by the simulator */
}

static const struct link_ops ops = {
    .hello = sim_hello,
    .contribute = sim_contribute,
    .poll = sim_poll,
    .fetch = sim_fetch,
    .report = sim_report,
    .leave = sim_leave,
    .mask = sim_mask,
    .counters = sim_counters,
    .close = sim_close,
};

void link_sim_open(struct link_sim *l, struct link_sim_server *const *route,
                   struct env_faulty *site, const struct link_sim_faults *f, const char *run,
                   const char *name)
{
    *l = (struct link_sim){.link = {&ops}, .route = route, .env = site, .faults = f};
    l->counted = &l->counters;
    snprintf(l->peer, sizeof l->peer, "atoll://%s/site/%s", run, name);
}
