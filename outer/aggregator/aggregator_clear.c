/* SPDX-License-Identifier: Apache-2.0 */
/* Contributions in the clear: a sum of them, or, of a codec that cannot be summed, all of them. */
#include <stdio.h>
#include <string.h>
#include "outer/aggregator/aggregator_sums.h"
#include "outer/store/aggregate.h"

static enum err clear_open(void **kept, struct arena *perm)
{
    (void)kept, (void)perm;
    return ERR_OK;
}

static void clear_close(struct aggregator *a)
{
    (void)a;
}

static enum err clear_read(struct aggregator *a, struct arena *perm)
{
    (void)a, (void)perm;
    return ERR_OK;
}

static enum err clear_restore(struct aggregator *a, const struct journal_record *r)
{
    (void)a, (void)r;
    return err_set(ERR_MISMATCH, "the journal has a seal, and privacy.secure is off");
}

static enum err clear_nothing(struct aggregator *a)
{
    (void)a;
    return ERR_OK;
}

static size_t clear_records(const struct aggregator *a, unsigned fragment,
                            struct journal_record *keep)
{
    (void)a, (void)fragment, (void)keep;
    return 0;
}

static void clear_hello(struct aggregator *a, unsigned site, const struct wire_hello *m)
{
    (void)a, (void)site, (void)m;
}

static void clear_poll(const struct aggregator *a, unsigned fragment, unsigned site,
                       struct wire_poll_answer *out)
{
    (void)a, (void)fragment, (void)site;
    out->wants = WIRE_MASK_NONE;
}

static void clear_mask(struct aggregator *a, unsigned site, const struct wire_mask *m,
                       struct wire_mask_answer *answer)
{
    (void)a, (void)site, (void)m;
    aggregator_say(&answer->answer, ROUND_INVALID,
                   "this run has no secure aggregation (privacy.secure = off)");
}

static uint64_t clear_payload_max(const struct aggregator *a, unsigned fragment)
{
    const struct codec *c = codec_get(outer_state_codec(a->replica, fragment));
    return c->payload_max(c, a->replica->fragments->f[fragment].elements);
}

static uint64_t clear_masked_bytes(const struct aggregator *a, unsigned fragment)
{
    (void)a, (void)fragment;
    return 0;
}

static const char *clear_header(const struct aggregator *a, const struct wire_contribution *m)
{
    (void)a, (void)m;
    return NULL;
}

static const char *clear_missing(const struct aggregator *a, unsigned fragment, struct set *missing)
{
    (void)a, (void)fragment, (void)missing;
    return NULL;
}

static enum err clear_ready(struct aggregator *a, unsigned fragment, bool *ready)
{
    (void)a, (void)fragment;
    *ready = true;
    return ERR_OK;
}

static enum err aggregate_gathered(struct aggregator *a, unsigned fragment,
                                   const struct codec_payload *payloads, unsigned count,
                                   struct aggregate *g)
{
    uint8_t *sizes = arena_alloc(&g->arena, 8 * (size_t)count);
    struct file_part *parts = arena_array(&g->arena, count + 1, sizeof *parts);
    TRY_ALLOC(sizes && parts ? sizes : NULL);
    codec_gather_parts(parts, sizes, payloads, count);
    TRY(outer_state_aggregate_put(a->replica, fragment, parts, count + 1, &g->map));
    g->data = g->map.data;
    g->size_bytes = g->map.size_bytes;
    return ERR_OK;
}

static enum err clear_sum(struct aggregator *a, unsigned fragment,
                          const struct codec_payload *payloads, unsigned count, struct aggregate *g)
{
    const struct codec *c = codec_get(outer_state_codec(a->replica, fragment));
    bool again = schedule_compresses_downlink(&a->replica->schedule, c->kind, count);
    struct aggregate_bytes made = {0};
    if (!c->summable && !again)
        return aggregate_gathered(a, fragment, payloads, count, g);
    TRY(aggregate_sum(a->replica, fragment, &(struct downlink_input){payloads, count}, again, &made,
                      &g->arena));
    g->data = g->made = made.data;
    g->size_bytes = made.size_bytes;
    return ERR_OK;
}

static void clear_over(struct aggregator *a, unsigned fragment)
{
    (void)a, (void)fragment;
}

static enum err clear_committed(struct aggregator *a, const struct manifest *m)
{
    (void)a, (void)m;
    return ERR_OK;
}

static int clear_apart(const struct aggregator *a)
{
    (void)a;
    return -1;
}

static const char *clear_unpaired(const struct aggregator *a)
{
    (void)a;
    return NULL;
}

const struct aggregator_sums aggregator_sums_clear = {.open = clear_open,
                                                      .close = clear_close,
                                                      .read = clear_read,
                                                      .restore = clear_restore,
                                                      .again = clear_nothing,
                                                      .recovered = clear_nothing,
                                                      .records = clear_records,
                                                      .hello = clear_hello,
                                                      .poll = clear_poll,
                                                      .mask = clear_mask,
                                                      .payload_max = clear_payload_max,
                                                      .masked_bytes = clear_masked_bytes,
                                                      .header = clear_header,
                                                      .missing = clear_missing,
                                                      .ready = clear_ready,
                                                      .sum = clear_sum,
                                                      .over = clear_over,
                                                      .committed = clear_committed,
                                                      .added = clear_nothing,
                                                      .apart = clear_apart,
                                                      .unpaired = clear_unpaired};
