/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_SLOW_H
#define LINK_SLOW_H
/* A link inside one process, for tests of lanes: calls an aggregator's service, one call at a time,
 * each after a while that a seed draws. It can be down, refuse, or bend a manifest.
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "kernels/base/rng.h"
#include "outer/link/link.h"

enum { SLOW_PARTS = 4 };

struct slow {
    struct link link;       /* first */
    const char *peer;       /* who calls */
    pthread_mutex_t *mutex; /* of all links to the service */
    struct link_service service;
    uint64_t seed, drawn;
    enum err refuse;           /* answer of contribute for fragment 1 */
    bool down;                 /* no call gets through */
    unsigned spoil;            /* manifests whose state is bent when they are first seen */
    uint64_t seen[SLOW_PARTS]; /* rounds */
    unsigned offers[SLOW_PARTS];
    struct digest sent[SLOW_PARTS]; /* of the last offer */
};

static struct slow *slow_begin(struct link *link)
{
    struct slow *l = (struct slow *)link;
    pthread_mutex_lock(l->mutex);
    useconds_t us = (useconds_t)rng_below(l->seed, RNG_TEST, l->drawn++, 3000);
    pthread_mutex_unlock(l->mutex);
    usleep(us);
    pthread_mutex_lock(l->mutex);
    return l;
}

static enum err slow_end(struct slow *l, enum err e)
{
    bool stop;
    link_service_work(&l->service, &stop);
    pthread_mutex_unlock(l->mutex);
    return e;
}

static enum err slow_down(struct slow *l)
{
    pthread_mutex_unlock(l->mutex);
    return err_set(ERR_LINK, "down");
}

static enum err slow_hello(struct link *link, const struct wire_hello *m,
                           struct wire_hello_answer *a)
{
    struct slow *l = slow_begin(link);
    l->service.hello(l->service.self, l->peer, m, a);
    return slow_end(l, ERR_OK);
}

static enum err slow_contribute(struct link *link, const struct wire_contribution *m,
                                const uint8_t *payload, struct wire_answer *a)
{
    struct slow *l = slow_begin(link);
    void *upload;
    l->offers[m->fragment]++;
    l->sent[m->fragment] = digest_of(payload, m->payload_bytes);
    if (l->down)
        return slow_down(l);
    if (l->refuse && m->fragment == 1)
        return slow_end(l, err_set(l->refuse, "refused on purpose"));
    l->service.offer(l->service.self, l->peer, m, a, &upload);
    if (a->outcome == ROUND_RESUME) {
        uint64_t at = a->offset;
        link_service_chunk(&l->service, upload, at, payload + at, m->payload_bytes - at, a);
        link_service_finish(&l->service, upload, true, a);
    }
    return slow_end(l, ERR_OK);
}

static enum err slow_poll(struct link *link, const struct wire_poll *m, uint32_t hold_ms,
                          struct wire_poll_answer *a)
{
    struct slow *l = slow_begin(link);
    (void)hold_ms;
    if (l->down)
        return slow_down(l);
    l->service.poll(l->service.self, l->peer, m, a);
    if (a->answer.outcome == ROUND_COMMIT && l->spoil && m->round > l->seen[m->fragment]) {
        l->seen[m->fragment] = m->round;
        l->spoil--;
        a->manifest.state_after.bytes[3] ^= 1;
    }
    return slow_end(l, ERR_OK);
}

static enum err slow_fetch(struct link *link, const struct wire_fetch *m, uint8_t *out,
                           size_t size_bytes, struct wire_answer *a)
{
    struct slow *l = slow_begin(link);
    struct link_content c;
    l->service.fetch(l->service.self, l->peer, m, &c, a);
    if (a->outcome == ROUND_NONE) {
        assert_int_equal(c.size_bytes, size_bytes);
        memcpy(out, c.data, c.size_bytes);
        l->service.fetched(l->service.self, c.source);
    }
    return slow_end(l, ERR_OK);
}

static enum err slow_report(struct link *link, const struct wire_report *m, struct wire_answer *a)
{
    struct slow *l = slow_begin(link);
    l->service.report(l->service.self, l->peer, m, a);
    return slow_end(l, ERR_OK);
}

static enum err slow_leave(struct link *link, const struct wire_leave *m, struct wire_answer *a)
{
    struct slow *l = slow_begin(link);
    l->service.leave(l->service.self, l->peer, m, a);
    return slow_end(l, ERR_OK);
}

static void slow_counters(struct link *link, struct link_counters *out)
{
    (void)link;
    *out = (struct link_counters){0};
}

static void slow_close(struct link *link)
{
    (void)link;
}

static const struct link_ops slow_ops = {
    .hello = slow_hello,
    .contribute = slow_contribute,
    .poll = slow_poll,
    .fetch = slow_fetch,
    .report = slow_report,
    .leave = slow_leave,
    .counters = slow_counters,
    .close = slow_close,
};

#endif
