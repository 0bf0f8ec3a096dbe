/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/link_many.h"
#include <stdlib.h>

struct many {
    struct link base;
    struct link *links[WIRE_AGGREGATORS_MAX];
    unsigned count;
};

static struct link *to(struct link *l, const struct wire_head *head)
{
    struct many *m = (struct many *)l;
    ASSERT(head->aggregator < m->count);
    return m->links[head->aggregator];
}

static enum err many_hello(struct link *l, const struct wire_hello *m,
                           struct wire_hello_answer *answer)
{
    struct link *one = to(l, &m->head);
    return one->ops->hello(one, m, answer);
}

static enum err many_contribute(struct link *l, const struct wire_contribution *m,
                                const uint8_t *payload, struct wire_answer *answer)
{
    struct link *one = to(l, &m->head);
    return one->ops->contribute(one, m, payload, answer);
}

static enum err many_poll(struct link *l, const struct wire_poll *m, uint32_t hold_ms,
                          struct wire_poll_answer *answer)
{
    struct link *one = to(l, &m->head);
    return one->ops->poll(one, m, hold_ms, answer);
}

static enum err many_fetch(struct link *l, const struct wire_fetch *m, uint8_t *out,
                           size_t size_bytes, struct wire_answer *answer)
{
    struct link *one = to(l, &m->head);
    return one->ops->fetch(one, m, out, size_bytes, answer);
}

static enum err many_report(struct link *l, const struct wire_report *m, struct wire_answer *answer)
{
    struct link *one = to(l, &m->head);
    return one->ops->report(one, m, answer);
}

static enum err many_leave(struct link *l, const struct wire_leave *m, struct wire_answer *answer)
{
    struct link *one = to(l, &m->head);
    return one->ops->leave(one, m, answer);
}

static enum err many_mask(struct link *l, const struct wire_mask *m,
                          struct wire_mask_answer *answer)
{
    struct link *one = to(l, &m->head);
    return one->ops->mask(one, m, answer);
}

static void many_counters(struct link *l, struct link_counters *out)
{
    struct many *m = (struct many *)l;
    *out = (struct link_counters){0};
    for (unsigned i = 0; i < m->count; i++) {
        struct link_counters c;
        m->links[i]->ops->counters(m->links[i], &c);
        out->payload_up += c.payload_up;
        out->payload_down += c.payload_down;
        out->messages_up += c.messages_up;
        out->messages_down += c.messages_down;
        out->wire_up += c.wire_up;
        out->wire_down += c.wire_down;
    }
}

static void many_close(struct link *l)
{
    struct many *m = (struct many *)l;
    for (unsigned i = 0; i < m->count; i++)
        m->links[i]->ops->close(m->links[i]);
    free(m);
}

static const struct link_ops many_ops = {
    .hello = many_hello,
    .contribute = many_contribute,
    .poll = many_poll,
    .fetch = many_fetch,
    .report = many_report,
    .leave = many_leave,
    .mask = many_mask,
    .counters = many_counters,
    .close = many_close,
};

enum err link_many_open(struct link **out, struct link *const *links, unsigned count)
{
    ASSERT(count >= 1 && count <= WIRE_AGGREGATORS_MAX);
    struct many *m = calloc(1, sizeof *m);
    TRY_ALLOC(m);
    m->base.ops = &many_ops;
    m->count = count;
    for (unsigned i = 0; i < count; i++)
        m->links[i] = links[i];
    *out = &m->base;
    return ERR_OK;
}
