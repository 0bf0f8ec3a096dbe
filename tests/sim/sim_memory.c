/* SPDX-License-Identifier: Apache-2.0 */
/* Whose code allocates, and which of its allocations fails: kernels/base/arena.c asks through the
 * test's calloc. The aggregator's code runs in the tasks of the sites that call it, so each call of
 * its service says so. */
#include "tests/sim/sim_own.h"

enum { LASTING_MS = 60000 };
static struct sim *running; /* the run that allocates */
static uint64_t lasts_until_ms;

void sim_memory_begin(struct sim *s)
{
    running = s;
    lasts_until_ms = 0;
}

void sim_memory_end(void)
{
    running = NULL;
}

bool sim_memory_fails(void)
{
    struct sim *s = running;
    unsigned process = s ? s->clock.process : 0;
    if (!process)
        return false;
    uint64_t count = ++s->r->allocations[process - 1];
    if (s->o.memory.node != process - 1)
        return false;
    bool begins = s->o.memory.at == count, fails = begins || s->clock.now_ms < lasts_until_ms;
    if (begins && s->o.memory.lasting)
        lasts_until_ms = s->clock.now_ms + LASTING_MS;
    s->r->struck = s->r->struck || fails;
    return fails;
}

/* ---- the guard ---- */

static struct link_service *begin(void *self)
{
    struct sim_aggregator *a = self;
    a->sim->clock.process = 1 + a->sim->o.sites;
    return &a->guarded;
}

static void end(void *self)
{
    ((struct sim_aggregator *)self)->sim->clock.process = 0;
}

static void guard_hello(void *self, const char *peer, const struct wire_hello *m,
                        struct wire_hello_answer *answer)
{
    struct link_service *s = begin(self);
    s->hello(s->self, peer, m, answer);
    end(self);
}

static void guard_offer(void *self, const char *peer, const struct wire_contribution *m,
                        struct wire_answer *answer, void **upload)
{
    struct link_service *s = begin(self);
    s->offer(s->self, peer, m, answer, upload);
    end(self);
}

static void guard_chunk(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n,
                        struct wire_answer *answer)
{
    struct link_service *s = begin(self);
    s->chunk(s->self, upload, offset, data, n, answer);
    end(self);
}

static enum err guard_store(void *self, void *upload, uint64_t offset, const uint8_t *data,
                            size_t n)
{
    struct link_service *s = begin(self);
    enum err e = s->store(s->self, upload, offset, data, n);
    end(self);
    return e;
}

static void guard_stored(void *self, void *upload, uint64_t offset, size_t n, enum err e,
                         struct wire_answer *answer)
{
    struct link_service *s = begin(self);
    s->stored(s->self, upload, offset, n, e, answer);
    end(self);
}

static void guard_finish(void *self, void *upload, bool complete, struct wire_answer *answer)
{
    struct link_service *s = begin(self);
    s->finish(s->self, upload, complete, answer);
    end(self);
}

static void guard_verify(void *self, void *upload)
{
    struct link_service *s = begin(self);
    s->verify(s->self, upload);
    end(self);
}

static void guard_verified(void *self, void *upload, struct wire_answer *answer)
{
    struct link_service *s = begin(self);
    s->verified(s->self, upload, answer);
    end(self);
}

static void guard_poll(void *self, const char *peer, const struct wire_poll *m,
                       struct wire_poll_answer *answer)
{
    struct link_service *s = begin(self);
    s->poll(s->self, peer, m, answer);
    end(self);
}

static void guard_fetch(void *self, const char *peer, const struct wire_fetch *m,
                        struct link_content *out, struct wire_answer *answer)
{
    struct link_service *s = begin(self);
    s->fetch(s->self, peer, m, out, answer);
    end(self);
}

static void guard_fetched(void *self, void *source)
{
    struct link_service *s = begin(self);
    s->fetched(s->self, source);
    end(self);
}

static void guard_report(void *self, const char *peer, const struct wire_report *m,
                         struct wire_answer *answer)
{
    struct link_service *s = begin(self);
    s->report(s->self, peer, m, answer);
    end(self);
}

static void guard_leave(void *self, const char *peer, const struct wire_leave *m,
                        struct wire_answer *answer)
{
    struct link_service *s = begin(self);
    s->leave(s->self, peer, m, answer);
    end(self);
}

static void guard_mask(void *self, const char *peer, const struct wire_mask *m,
                       struct wire_mask_answer *answer)
{
    struct link_service *s = begin(self);
    link_service_mask(s, peer, m, answer);
    end(self);
}

static void guard_operate(void *self, const char *peer, const struct wire_operate *m,
                          struct wire_answer *answer)
{
    struct link_service *s = begin(self);
    s->operate(s->self, peer, m, answer);
    end(self);
}

static uint64_t guard_work(void *self, bool *stop)
{
    struct link_service *s = begin(self);
    uint64_t wake_ms = s->work(s->self, stop);
    end(self);
    return wake_ms;
}

static bool guard_commit(void *self)
{
    struct link_service *s = begin(self);
    bool again = s->commit(s->self);
    end(self);
    return again;
}

struct link_service sim_memory_guard(struct sim_aggregator *a, const struct link_service *service)
{
    a->guarded = *service;
    return (struct link_service){.self = a,
                                 .hello = guard_hello,
                                 .offer = guard_offer,
                                 .chunk = guard_chunk,
                                 .store = guard_store,
                                 .stored = guard_stored,
                                 .finish = guard_finish,
                                 .verify = guard_verify,
                                 .verified = guard_verified,
                                 .poll = guard_poll,
                                 .fetch = guard_fetch,
                                 .fetched = guard_fetched,
                                 .report = guard_report,
                                 .leave = guard_leave,
                                 .mask = guard_mask,
                                 .operate = guard_operate,
                                 .work = guard_work,
                                 .commit = guard_commit};
}
