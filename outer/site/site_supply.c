/* SPDX-License-Identifier: Apache-2.0 */
/* The aggregator has lost its directory: what this site has of the run goes to it, part by part,
 * over the link for contributions (docs/protocol.md 3.5). Only the state that all replicas share,
 * and the aggregator's announcements: no residual, no contribution.
 */
#include <inttypes.h>
#include <stdio.h>
#include "kernels/base/log.h"
#include "outer/site/site_own.h"
#include "outer/site/site_repair.h"

enum { FILE_BYTES_MAX = 1 << 16 };

struct site_part {
    enum wire_supply supply;
    unsigned fragment;
    uint64_t round;
};

/* One part, until the aggregator has it. ERR_LINK: the hello is repeated. */
static enum err part_send(struct site_slot *l, const struct site_part *p, const uint8_t *data,
                          size_t n)
{
    struct site *s = l->site;
    struct wire_contribution m = {.head = site_head(l, p->fragment),
                                  .fragment = p->fragment,
                                  .round = p->round,
                                  .payload_bytes = n,
                                  .supply = p->supply};
    struct wire_answer a = {.outcome = ROUND_NONE};
    site_unlock(s);
    m.payload = digest_of(data, n); /* a large state takes its time */
    enum err e = s->own.link->ops->contribute(s->own.link, &m, data, &a);
    site_lock(s);
    if (e != ERR_OK || a.outcome == ROUND_RECEIPT)
        return e;
    return err_set(ERR_LINK, "the aggregator that is rebuilt answers %s: %s",
                   round_outcome_name(a.outcome), a.text);
}

static enum err file_send(struct site_slot *l, enum wire_supply supply, const char *path)
{
    struct site *s = l->site;
    struct arena scratch = arena_make(0);
    uint8_t *data;
    size_t n;
    if (!s->env->ops->exists(s->env, path))
        return ERR_OK;
    enum err e = s->env->ops->read(s->env, path, FILE_BYTES_MAX, &scratch, &data, &n);
    if (e == ERR_OK)
        e = part_send(l, &(struct site_part){supply, l->peer, 0}, data, n);
    arena_free(&scratch);
    return e;
}

static enum err manifest_send(struct site_slot *l, const struct manifest *m)
{
    struct arena scratch = arena_make(0);
    uint8_t *data = arena_alloc(&scratch, MANIFEST_BYTES_MAX);
    enum err e = ERR_MEMORY;
    if (data)
        e = part_send(l, &(struct site_part){WIRE_SUPPLY_MANIFEST, m->fragment, m->round}, data,
                      manifest_encode(m, data));
    arena_free(&scratch);
    return e;
}

/* *kept false: this round is not kept, nor are those before it. */
static enum err round_send(struct site_slot *l, unsigned fragment, uint64_t round, bool *kept)
{
    struct site *s = l->site;
    struct manifest m;
    struct file_map map = {.data = NULL};
    enum err e = outer_state_manifest(s->replica, fragment, round, &m);
    if (e == ERR_OK && m.aggregate_bytes)
        e = outer_state_aggregate(s->replica, fragment, round, &map);
    *kept = e == ERR_OK;
    if (e == ERR_OK)
        e = manifest_send(l, &m);
    if (e == ERR_OK && map.data)
        e = part_send(l, &(struct site_part){WIRE_SUPPLY_AGGREGATE, fragment, round}, map.data,
                      map.size_bytes);
    s->env->ops->unmap(s->env, &map);
    return *kept ? e : ERR_OK;
}

/* The state first, and the manifest that made it: without them the rounds before are of no use. */
static enum err fragment_send(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    uint64_t round = s->replica->state[fragment].round;
    size_t n = outer_state_snapshot_bytes(s->replica, fragment);
    struct manifest m;
    bool kept = true;
    if (round == 0)
        return ERR_OK;
    TRY(outer_state_manifest(s->replica, fragment, round - 1, &m));
    TRY(site_download_grow(l, n));
    TRY(outer_state_snapshot_write(s->replica, fragment, l->download.bytes));
    TRY(manifest_send(l, &m));
    TRY(part_send(l, &(struct site_part){WIRE_SUPPLY_STATE, fragment, round}, l->download.bytes,
                  n));
    for (uint64_t t = round; kept && t-- > 0 && round - t <= s->replica->o.keep;)
        TRY(round_send(l, fragment, t, &kept));
    return ERR_OK;
}

enum err site_supply(struct site_slot *l)
{
    struct site *s = l->site;
    unsigned peer = l->peer;
    char announced[32];
    if (s->supplying[peer])
        return err_set(ERR_LINK, "the aggregator is rebuilt from the sites");
    s->supplying[peer] = true;
    log_event(LOG_INFO, "supply", "aggregator=%u", peer);
    site_notice(l, "the aggregator has lost its directory, and gets the states of this site");
    enum err e = ERR_OK;
    for (unsigned f = peer; e == ERR_OK && f < s->replica->fragments->count; f += site_peers(s))
        e = fragment_send(l, f);
    l->peer = peer;
    snprintf(announced, sizeof announced, "id/announced.%u", peer);
    if (e == ERR_OK)
        e = file_send(l, WIRE_SUPPLY_ANNOUNCED, announced);
    if (e == ERR_OK)
        e = file_send(l, WIRE_SUPPLY_SEEN, "id/site");
    s->supplying[peer] = false;
    return e == ERR_OK
               ? err_set(ERR_LINK, "the aggregator is rebuilt from the sites, and waits for others")
               : e;
}
