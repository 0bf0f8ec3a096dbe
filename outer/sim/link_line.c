/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/sim/link_line.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HOLD_MS = 3600000 };

struct link_line_held {
    struct link_line_held *next, **from;
    const struct wire_poll *m;
    const char *peer;
};

/* ---- polls that wait ---- */

/* All of one fragment ask the same question, so one of them asks for all: a thousand sites' calls
 * would wake a thousand polls each otherwise. */
static void worked(void *self)
{
    struct link_line_hub *h = self;
    struct link_sim_server *s = h->server;
    struct wire_poll_answer answer;
    for (unsigned f = 0; f < ROUND_FRAGMENTS_MAX; f++) {
        if (!h->held[f])
            continue;
        s->service.poll(s->service.self, h->held[f]->peer, h->held[f]->m, &answer);
        if (answer.answer.outcome != ROUND_PENDING)
            sim_kick(s->clock, &h->held[f]);
    }
}

static void hold(struct link_line_hub *h, struct link_line_held *p, unsigned fragment,
                 uint64_t until_ms)
{
    struct link_line_held **first = &h->held[fragment];
    p->next = *first;
    p->from = first;
    if (p->next)
        p->next->from = &p->next;
    *first = p;
    sim_sleep(h->server->clock, until_ms, first);
    *p->from = p->next;
    if (p->next)
        p->next->from = p->from;
}

void link_line_hub_open(struct link_line_hub *h, struct link_sim_server *s, const size_t *elements,
                        const struct schedule *schedule, const struct exchange_cost *outer,
                        double bps)
{
    *h = (struct link_line_hub){.server = s,
                                .elements = elements,
                                .schedule = schedule,
                                .outer = outer,
                                .in.bps = bps,
                                .out.bps = bps};
    s->worked = worked;
    s->watcher = h;
}

/* ---- time ---- */

void link_line_wait(struct link_line_end *e, double seconds)
{
    struct clock_sim *c = e->env->clock;
    e->owed_ms += 1e3 * seconds;
    double whole = floor(e->owed_ms);
    if (whole < 1)
        return;
    e->owed_ms -= whole;
    sim_sleep(c, c->now_ms + (uint64_t)whole, e->env);
}

static void half_trip(struct link_line *l)
{
    link_line_wait(l->end, l->end->plan.rtt_s / 2);
}

static double now_s(const struct link_line *l)
{
    return ((double)l->hub->server->clock->now_ms + l->end->owed_ms) / 1e3;
}

static void wait_until(struct link_line *l, double at_s)
{
    double now = now_s(l);
    if (at_s > now)
        link_line_wait(l->end, at_s - now);
}

/* ---- the aggregator's work ---- */

/* When something that takes so long, and can begin at that time, is done. */
static double hub_works(struct link_line_hub *h, double from_s, double takes_s)
{
    h->free_s = (from_s > h->free_s ? from_s : h->free_s) + takes_s;
    return h->free_s;
}

void link_line_committed(void *hub, const struct manifest *m, uint64_t waited_ms)
{
    (void)waited_ms;
    struct link_line_hub *h = hub;
    double takes_s = (h->outer->commit_s + manifest_included(m) * h->outer->sum_s) *
                     (double)h->elements[m->fragment];
    h->ready_s[m->fragment] = hub_works(h, (double)h->server->clock->now_ms / 1e3, takes_s);
}

struct link_line_flow {
    struct link_line_flow *next;
    double until; /* done when the pipe has given each so much */
};

static void pipe_go_on(struct link_line_pipe *p, double to_s)
{
    if (p->flows && to_s > p->at_s)
        p->each += (to_s - p->at_s) * p->bps / 8 / p->flows;
    p->at_s = to_s > p->at_s ? to_s : p->at_s;
}

static void pipe_join(struct link_line_pipe *p, struct link_line_flow *f, double bytes)
{
    struct link_line_flow **at = &p->first;
    f->until = p->each + bytes;
    while (*at && (*at)->until <= f->until)
        at = &(*at)->next;
    f->next = *at;
    *at = f;
    p->flows++;
}

/* Only the flow that will be done first has a time to wake at; it wakes the next one. Another that
 * joins makes it later: then it looks again. */
static void pipe_transfer(struct link_line *l, struct link_line_pipe *p, double bytes)
{
    enum { ROUNDING = 1 }; /* bytes */
    struct clock_sim *c = l->hub->server->clock;
    struct link_line_flow flow;
    pipe_go_on(p, now_s(l));
    pipe_join(p, &flow, bytes);
    for (;;) {
        double left = flow.until - p->each;
        if (left < ROUNDING)
            break;
        if (p->first == &flow)
            sim_sleep(c, c->now_ms + 1 + (uint64_t)(left * p->flows * 8e3 / p->bps), &flow);
        else
            sim_sleep(c, UINT64_MAX, &flow);
        pipe_go_on(p, now_s(l));
    }
    ASSERT(p->first == &flow); /* the flow before this one in the list was done before it */
    p->first = flow.next;
    p->flows--;
    sim_kick(c, p->first);
}

/* The payload leaves when the site's line is free, and arrives when the aggregator's has taken it
 * too. */
static void transfer(struct link_line *l, double payload, bool up)
{
    struct link_line_pipe *shared = up ? &l->hub->in : &l->hub->out;
    double now = now_s(l), *mine = up ? &l->end->up_free_s : &l->end->down_free_s;
    *mine = (now > *mine ? now : *mine) + line_transfer_s(&l->end->plan, payload, up);
    double end = *mine;
    if (shared->bps > 0)
        pipe_transfer(l, shared, line_wire_bytes(payload));
    wait_until(l, end);
}

static enum err down(void)
{
    return err_set(ERR_LINK, "no answer");
}

/* The answer of a call comes back. */
static enum err back(struct link_line *l)
{
    l->hub->calls++;
    half_trip(l);
    return !l->hub->server->up ? down() : ERR_OK;
}

/* After a call that changes something the aggregator works. */
static enum err work(struct link_line *l)
{
    link_sim_work(l->hub->server);
    return back(l);
}

static enum err there(struct link_line *l)
{
    half_trip(l);
    return !l->hub->server->up ? down() : ERR_OK;
}

/* ---- the calls ---- */

static enum err line_hello(struct link *link, const struct wire_hello *m,
                           struct wire_hello_answer *answer)
{
    struct link_line *l = (struct link_line *)link;
    const struct link_service *s = &l->hub->server->service;
    TRY(there(l));
    s->hello(s->self, l->peer, m, answer);
    return work(l);
}

static enum err line_contribute(struct link *link, const struct wire_contribution *m,
                                const uint8_t *payload, struct wire_answer *answer)
{
    struct link_line *l = (struct link_line *)link;
    const struct link_service *s = &l->hub->server->service;
    const struct codec *c = codec_get((enum codec_kind)m->codec);
    size_t elements = l->hub->elements[m->fragment];
    double real = (double)c->payload_max(c, elements);
    bool early = l->fresh[m->fragment] && m->round >= l->fresh[m->fragment];
    void *upload;
    TRY(there(l));
    s->offer(s->self, l->peer, m, answer, &upload);
    if (answer->outcome != ROUND_RESUME || !upload)
        return back(l);
    if (!early) { /* the answer to the offer, then the bytes */
        TRY(back(l));
        TRY(there(l));
    }
    transfer(l, real, true);
    uint64_t at = answer->offset;
    link_service_chunk(s, upload, at, payload + at, m->payload_bytes - at, answer);
    link_line_wait(l->end, l->hub->outer->accept_s * (double)elements);
    struct wire_answer ignored;
    bool complete = answer->outcome == ROUND_NONE;
    link_service_finish(s, upload, complete, complete ? answer : &ignored);
    l->counters.payload_up += (uint64_t)real;
    l->fresh[m->fragment] = m->round + 1;
    return work(l);
}

static enum err line_poll(struct link *link, const struct wire_poll *m, uint32_t hold_ms,
                          struct wire_poll_answer *answer)
{
    struct link_line *l = (struct link_line *)link;
    const struct link_service *s = &l->hub->server->service;
    struct link_line_held held = {.m = m, .peer = l->peer};
    TRY(there(l));
    s->poll(s->self, l->peer, m, answer);
    if (link_service_holds(answer) &&
        hold_ms) { /* without faults asking every two seconds finds out nothing */
        hold(l->hub, &held, m->fragment, l->hub->server->clock->now_ms + HOLD_MS);
        s->poll(s->self, l->peer, m, answer);
    }
    if (answer->answer.outcome == ROUND_COMMIT) {
        wait_until(l, l->hub->ready_s[m->fragment]);
        l->committed[m->fragment].codec = codec_get((enum codec_kind)answer->manifest.codec);
        l->committed[m->fragment].payloads =
            schedule_payloads(l->hub->schedule, (enum codec_kind)answer->manifest.codec,
                              manifest_included(&answer->manifest));
    }
    return back(l);
}

/* What the stand-in's bytes are in the real model. A snapshot is theta, momentum and codes, all as
 * long as the fragment. */
static double real_bytes(const struct link_line *l, const struct wire_fetch *m, size_t size)
{
    const struct codec *c = l->committed[m->fragment].codec;
    size_t elements = l->hub->elements[m->fragment];
    if (m->what == WIRE_SNAPSHOT)
        return (double)size / DEV_BLOCK * (double)elements;
    ASSERT(c); /* an aggregate is fetched after its manifest is known */
    return (double)c->aggregate_max(c, elements, l->committed[m->fragment].payloads);
}

static enum err line_fetch(struct link *link, const struct wire_fetch *m, uint8_t *out,
                           size_t size_bytes, struct wire_answer *answer)
{
    struct link_line *l = (struct link_line *)link;
    const struct link_service *s = &l->hub->server->service;
    struct link_content c;
    TRY(there(l));
    s->fetch(s->self, l->peer, m, &c, answer);
    if (answer->outcome != ROUND_NONE)
        return back(l);
    bool fits = c.size_bytes == size_bytes && m->offset == 0;
    if (fits)
        memcpy(out, c.data, c.size_bytes);
    s->fetched(s->self, c.source);
    if (!fits)
        return err_set(ERR_PROTO, "%zu bytes announced, %zu expected", c.size_bytes, size_bytes);
    double real = real_bytes(l, m, c.size_bytes);
    transfer(l, real, false);
    l->counters.payload_down += (uint64_t)real;
    answer->offset = c.size_bytes;
    return back(l);
}

static enum err line_report(struct link *link, const struct wire_report *m,
                            struct wire_answer *answer)
{
    struct link_line *l = (struct link_line *)link;
    const struct link_service *s = &l->hub->server->service;
    TRY(there(l));
    s->report(s->self, l->peer, m, answer);
    return work(l);
}

static enum err line_leave(struct link *link, const struct wire_leave *m,
                           struct wire_answer *answer)
{
    struct link_line *l = (struct link_line *)link;
    const struct link_service *s = &l->hub->server->service;
    TRY(there(l));
    s->leave(s->self, l->peer, m, answer);
    return work(l);
}

static enum err line_mask(struct link *link, const struct wire_mask *m,
                          struct wire_mask_answer *answer)
{
    struct link_line *l = (struct link_line *)link;
    TRY(there(l));
    link_service_mask(&l->hub->server->service, l->peer, m, answer);
    return work(l);
}

static void line_counters(struct link *link, struct link_counters *out)
{
    *out = ((struct link_line *)link)->counters;
}

static void line_close(struct link *link)
{
    (void)link; /* owned by the simulation */
}

static const struct link_ops ops = {
    .hello = line_hello,
    .contribute = line_contribute,
    .poll = line_poll,
    .fetch = line_fetch,
    .report = line_report,
    .leave = line_leave,
    .mask = line_mask,
    .counters = line_counters,
    .close = line_close,
};

void link_line_open(struct link_line *l, struct link_line_hub *h, struct link_line_end *end,
                    const char *run, const char *name)
{
    *l = (struct link_line){.link = {&ops}, .hub = h, .end = end};
    snprintf(l->peer, sizeof l->peer, "atoll://%s/site/%s", run, name);
}
