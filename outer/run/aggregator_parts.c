/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/aggregator_parts.h"
#include <math.h>

static enum err begin(struct outer_state *replica, const struct run *run)
{
    struct arena scratch = arena_make(0);
    float *slab = arena_array(&scratch, run->table.elements, sizeof *slab);
    enum err e = ERR_MEMORY;
    if (slab) {
        e = run_initial(run, slab);
        e = e == ERR_OK ? outer_state_begin(replica, slab) : e;
    }
    arena_free(&scratch);
    return e;
}

enum err aggregator_parts_state(struct outer_state *replica, struct dev **cpu, struct env *env,
                                struct run *run)
{
    struct outer_state_options o = run_outer_state(run, false);
    const struct dev_options device = {
        .kind = "cpu", .model_type = "f32", .threads = (int)run->s.device_threads};
    o.remake = aggregator_remake;
    o.states = (uint64_t)run->o.serve_keep_states;
    TRY(dev_open(cpu, &device));
    TRY(outer_state_open(replica, env, *cpu, &o, &run->perm));
    return outer_state_begun(replica) ? outer_state_load(replica) : begin(replica, run);
}

struct aggregator_options aggregator_parts_options(const struct run *run)
{
    const struct outer_settings *k = &run->o;
    unsigned sites = (unsigned)k->outer_sites.count;
    return (struct aggregator_options){
        .run = run->s.run_name,
        .sites = {.names = k->outer_sites.items,
                  .count = sites,
                  .room = sites + MANIFEST_ADDED_MAX < ROUND_SITES_MAX ? sites + MANIFEST_ADDED_MAX
                                                                       : ROUND_SITES_MAX},
        .canonical = run->identity,
        .strict = true,
        .bounds = {.norm_limit = (float)k->outer_norm_limit,
                   .clip = (float)k->outer_clip,
                   .edit_warmup = (uint32_t)k->outer_edit_warmup,
                   .strikes_max = AGGREGATOR_STRIKES,
                   .share_max = KEYS_SHARE_MAX,
                   .weights = k->outer_weights},
        .masks = keys_masks(k),
        .straggler_ms = (uint64_t)llround(1e3 * k->outer_straggler_timeout_s),
        .files = {.scrub_every_ms = run_scrub_every_ms(run),
                  .scrub_bytes_per_s = run_scrub_bytes_per_s(run)},
        .grace = {k->outer_grace_fraction,
                  (double)k->outer_overlap_steps / (double)k->outer_sync_every}};
}
