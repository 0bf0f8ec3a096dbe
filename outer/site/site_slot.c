/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a slot: its size, its buffers, and their growth during a run. */
#include "outer/site/site_own.h"

/* ---- sizes ---- */

/* With threads: a round that is applied late flies longer, while others leave. */
unsigned site_slot_count(const struct schedule *s, int64_t max_local_steps_offline)
{
    struct schedule late = *s;
    late.overlap += s->overlap ? max_local_steps_offline : 0;
    return schedule_slots(&late);
}

/* What a codec that the schedule uses makes of a fragment, at most: in the clear, and masked. */
static void largest_payloads(const struct outer_state_options *o, size_t *clear, size_t *masked)
{
    *clear = *masked = 0;
    for (unsigned f = 0; f < o->fragments->count; f++)
        for (unsigned k = 0; shards_hold(&o->shards, f) && k < CODEC_COUNT; k++) {
            const struct codec *c = codec_get((enum codec_kind)k);
            size_t elements = o->fragments->f[f].elements, words, bytes;
            if (!schedule_uses(&o->schedule, c->kind))
                continue;
            bytes = c->payload_max(c, elements);
            words = o->schedule.masked_sites
                        ? codec_words_bytes(c, elements, o->schedule.masked_sites)
                        : 0;
            *clear = bytes > *clear ? bytes : *clear;
            *masked = words > *masked ? words : *masked;
        }
}

/* Aggregate of all sites, or a snapshot: all that replicas share. */
static size_t largest_download(const struct outer_state_options *o, unsigned site_count)
{
    size_t elements = shards_largest(&o->shards, o->fragments);
    size_t most = elements * outer_opt_bytes(&o->outer) + elements / DEV_BLOCK;
    for (unsigned k = 0; k < CODEC_COUNT; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        bool used = schedule_uses(&o->schedule, c->kind);
        unsigned payloads = schedule_payloads_max(&o->schedule, c->kind, site_count);
        size_t bytes = c->aggregate_max(c, elements, payloads);
        most = used && bytes > most ? bytes : most;
    }
    return most;
}

struct outer_memory site_memory(const struct outer_state_options *o, unsigned site_count,
                                int64_t max_local_steps_offline, bool here)
{
    size_t elements = shards_largest(&o->shards, o->fragments), values = elements * sizeof(float);
    size_t threads = site_slot_count(&o->schedule, max_local_steps_offline);
    size_t locals = (threads ? threads : 1) * values, metrics = 0;
    size_t clear, masked;
    largest_payloads(o, &clear, &masked);
    size_t slot = values + (o->discards ? elements * sizeof(double) : 0) + clear + masked +
                  largest_download(o, site_count);
    for (unsigned f = 0; f < o->fragments->count; f++)
        metrics += !shards_hold(&o->shards, f) ? 0
                                               : sizeof(struct outer_metrics_state) +
                                                     metrics_bytes(o->fragments->f[f].elements);
    return (struct outer_memory){.device = here ? 0 : locals,
                                 .host = metrics + slot +
                                         threads * (slot + (o->schedule.eager ? values : 0)) +
                                         (here ? locals : 0)};
}

/* ---- buffers ---- */

static enum err buffer_make(struct site_buffer *b, size_t room, struct arena *perm)
{
    TRY_ALLOC(b->bytes = arena_alloc(perm, room));
    b->room = room;
    return ERR_OK;
}

enum err site_slot_make(struct site_slot *l, struct site *s, struct arena *perm)
{
    const struct outer_state_options *o = &s->replica->o;
    size_t elements = shards_largest(&o->shards, o->fragments);
    *l = (struct site_slot){.site = s};
    size_t payload, masked; /* masked: allocated when it is needed, by site_masks_room */
    largest_payloads(o, &payload, &masked);
    TRY(buffer_make(&l->payload, payload, perm));
    TRY_ALLOC(l->residual = arena_array(perm, elements, sizeof *l->residual));
    TRY(buffer_make(&l->download, largest_download(o, s->o->site_count), perm));
    if (o->discards)
        TRY_ALLOC(l->discarded = arena_array(perm, elements, sizeof *l->discarded));
    return ERR_OK;
}

void site_slot_memory_free(struct site_slot *l)
{
    arena_free(&l->payload.larger);
    arena_free(&l->masked.larger);
    arena_free(&l->download.larger);
}

enum err site_buffer_grow(struct site_buffer *b, struct arena fresh, size_t size, const char *what)
{
    if (size <= b->room)
        return ERR_OK;
    arena_free(&b->larger);
    b->larger = fresh;
    b->bytes = arena_alloc(&b->larger, size);
    b->room = b->bytes ? size : 0;
    return b->bytes ? ERR_OK : err_set(ERR_MEMORY, "no memory for %s of %zu bytes", what, size);
}

enum err site_download_grow(struct site_slot *l, size_t size)
{
    return site_buffer_grow(&l->download, dev_arena(l->site->replica->dev), size, "an aggregate");
}

enum err site_payload_grow(struct site_slot *l, size_t size)
{
    return site_buffer_grow(&l->payload, dev_arena(l->site->replica->dev), size, "a payload");
}
