/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/link_self.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct self {
    struct link base;
    struct env *env;
    struct env_mutex *mutex;
    struct link_service service;
    char peer[192];
    struct link_counters counters;
};

static struct self *lock(struct link *l)
{
    struct self *s = (struct self *)l;
    s->env->ops->lock(s->env, s->mutex);
    return s;
}

/* After every call that may complete a round. */
static void work(struct self *s)
{
    bool stop;
    (void)link_service_work(&s->service, &stop);
    s->env->ops->signal(s->env, s->mutex);
}

static enum err unlock(struct self *s, bool changed)
{
    if (changed)
        work(s);
    s->env->ops->unlock(s->env, s->mutex);
    return ERR_OK;
}

static enum err self_hello(struct link *l, const struct wire_hello *m,
                           struct wire_hello_answer *answer)
{
    struct self *s = lock(l);
    s->service.hello(s->service.self, s->peer, m, answer);
    return unlock(s, true);
}

/* The missing bytes, from the first one on. */
static void upload_all(struct self *s, void *upload, const struct wire_contribution *m,
                       const uint8_t *payload, struct wire_answer *answer)
{
    enum { CHUNK = 1 << 20 };
    struct wire_answer ignored;
    uint64_t at = answer->offset;
    answer->outcome = ROUND_NONE;
    while (at < m->payload_bytes && answer->outcome == ROUND_NONE) {
        size_t left = m->payload_bytes - at, n = left < CHUNK ? left : CHUNK;
        link_service_chunk(&s->service, upload, at, payload + at, n, answer);
        at += n;
        s->counters.payload_up += n;
    }
    bool complete = answer->outcome == ROUND_NONE;
    link_service_finish(&s->service, upload, complete, complete ? answer : &ignored);
}

static enum err self_contribute(struct link *l, const struct wire_contribution *m,
                                const uint8_t *payload, struct wire_answer *answer)
{
    struct self *s = lock(l);
    void *upload = NULL;
    s->service.offer(s->service.self, s->peer, m, answer, &upload);
    if (answer->outcome == ROUND_RESUME && upload)
        upload_all(s, upload, m, payload, answer);
    return unlock(s, true);
}

static enum err self_poll(struct link *l, const struct wire_poll *m, uint32_t hold_ms,
                          struct wire_poll_answer *answer)
{
    struct self *s = lock(l);
    uint64_t now = s->env->ops->now_ms(s->env), end = now + hold_ms;
    for (;;) {
        s->service.poll(s->service.self, s->peer, m, answer);
        if (!link_service_holds(answer) || now >= end)
            break;
        s->env->ops->wait(s->env, s->mutex, end - now);
        work(s);
        now = s->env->ops->now_ms(s->env);
    }
    return unlock(s, false);
}

static enum err self_fetch(struct link *l, const struct wire_fetch *m, uint8_t *out,
                           size_t size_bytes, struct wire_answer *answer)
{
    struct self *s = lock(l);
    struct link_content c;
    s->service.fetch(s->service.self, s->peer, m, &c, answer);
    if (answer->outcome != ROUND_NONE)
        return unlock(s, false);
    bool fits = c.size_bytes == size_bytes && m->offset <= size_bytes;
    if (fits)
        memcpy(out + m->offset, c.data + m->offset, size_bytes - m->offset);
    s->counters.payload_down += fits ? size_bytes - m->offset : 0;
    answer->offset = size_bytes;
    s->service.fetched(s->service.self, c.source);
    TRY(unlock(s, false));
    return fits ? ERR_OK
                : err_set(ERR_PROTO, "%zu bytes announced, %zu expected", c.size_bytes, size_bytes);
}

static enum err self_report(struct link *l, const struct wire_report *m, struct wire_answer *answer)
{
    struct self *s = lock(l);
    s->service.report(s->service.self, s->peer, m, answer);
    return unlock(s, true);
}

static enum err self_leave(struct link *l, const struct wire_leave *m, struct wire_answer *answer)
{
    struct self *s = lock(l);
    s->service.leave(s->service.self, s->peer, m, answer);
    return unlock(s, true);
}

static enum err self_mask(struct link *l, const struct wire_mask *m,
                          struct wire_mask_answer *answer)
{
    struct self *s = lock(l);
    link_service_mask(&s->service, s->peer, m, answer);
    return unlock(s, true);
}

static void self_counters(struct link *l, struct link_counters *out)
{
    struct self *s = lock(l);
    *out = s->counters;
    (void)unlock(s, false);
}

static void self_close(struct link *l)
{
    struct self *s = (struct self *)l;
    s->env->ops->mutex_close(s->env, s->mutex);
    free(s);
}

enum err link_self_open(struct link **out, struct env *env, const struct link_service *service,
                        const char *run, const char *site)
{
    static const struct link_ops ops = {.hello = self_hello,
                                        .contribute = self_contribute,
                                        .poll = self_poll,
                                        .fetch = self_fetch,
                                        .report = self_report,
                                        .leave = self_leave,
                                        .mask = self_mask,
                                        .counters = self_counters,
                                        .close = self_close};
    struct self *s = calloc(1, sizeof *s);
    TRY_ALLOC(s);
    *s = (struct self){.base = {&ops}, .env = env, .service = *service};
    snprintf(s->peer, sizeof s->peer, "atoll://%s/site/%s", run, site);
    enum err e = env->ops->mutex_open(env, &s->mutex);
    if (e != ERR_OK) {
        free(s);
        return e;
    }
    work(lock(&s->base));
    (void)unlock(s, false);
    *out = &s->base;
    return ERR_OK;
}
