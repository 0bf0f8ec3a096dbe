/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/config/sync_config.h"
#include "outer/config/tuning.h"

static enum err plan_make(struct fragment_plan *p, const struct settings *s,
                          const struct outer_settings *o, struct arena *perm)
{
    struct fragment_slice *slices;
    *p = (struct fragment_plan){
        .kind = o->outer_partition,
        .count = (unsigned)o->outer_fragments,
        .seed = (uint64_t)s->run_seed,
        .synchronised = {true, o->outer_moment1_every > 0, o->outer_moment2_every > 0}};
    if (p->kind != FRAGMENT_SLICES)
        return ERR_OK;
    p->count = (unsigned)o->outer_slices.count;
    TRY_ALLOC(slices = arena_array(perm, p->count, sizeof *slices));
    for (unsigned i = 0; i < p->count; i++) {
        bool good = fragment_slice_parse(&slices[i], o->outer_slices.items[i], (int)s->model_layers,
                                         o->outer_sync_every);
        ASSERT(good); /* keys_outer_check has refused others */
    }
    p->slices = slices;
    return ERR_OK;
}

/* Part i of a state in its period: at the same step of the period as the parameters' part. */
static struct period period_of(const struct outer_settings *o, const struct fragment_plan *p,
                               unsigned i, enum fragment_state state)
{
    const int64_t every[] = {o->outer_sync_every, o->outer_moment1_every, o->outer_moment2_every};
    struct period x = {.every = every[state],
                       .offset = i * (o->outer_sync_every / (int64_t)p->count)};
    keys_grow(o, &x.growth);
    if (p->kind != FRAGMENT_SLICES)
        return x;
    const struct fragment_slice *slice = &p->slices[i];
    x.offset = slice->at - o->outer_sync_every;
    for (unsigned k = 0; k < slice->more_count && state == FRAGMENT_PARAMETERS; k++)
        x.more[x.more_count++] = slice->more[k] - slice->at;
    return x;
}

static struct schedule schedule_of(const struct settings *s, const struct outer_settings *o,
                                   const struct fragment_plan *p)
{
    struct schedule x = {.steps = s->train_steps,
                         .full_precision_rounds = (uint64_t)o->outer_full_precision_rounds,
                         .full_precision = o->outer_full_precision,
                         .masked_sites = keys_masks(o).on ? (unsigned)o->outer_sites.count : 0};
    for (unsigned state = 0; state < FRAGMENT_STATES; state++)
        for (unsigned i = 0; p->synchronised[state] && i < p->count; i++)
            x.period[x.fragments++] =
                (struct schedule_period){.p = period_of(o, p, i, (enum fragment_state)state),
                                         .codec = state ? o->outer_moments_codec : o->outer_codec,
                                         .moments = state != FRAGMENT_PARAMETERS};
    x.overlap = o->outer_overlap_steps;
    if (o->outer_sync_fraction < 1)
        x.draw = (struct draw){o->outer_sync_fraction, (uint64_t)s->run_seed};
    x.downlink_compression_from = (unsigned)o->outer_downlink_compression_from;
    x.eager = o->outer_eager;
    x.clips = o->outer_clip > 0;
    x.residual_reset = codec_residual_ratio(o->outer_residual_reset * o->outer_residual_reset, 1);
    return x;
}

enum err sync_config_optimizer(struct outer_opt *o, const struct outer_settings *s)
{
    TRY(outer_opt_make(o, s->outer_optimizer, (float)tuning_of(s).lr, (float)s->outer_momentum));
    if (outer_opt_row(o->kind)->cycle)
        o->delay = (unsigned)s->outer_nesterov_period;
    o->beta2 = (float)s->outer_beta2;
    o->eps = (float)s->outer_eps;
    o->interpolation = (float)s->outer_interpolation;
    o->merge = s->outer_merge;
    if (o->merge == MERGE_EDIT)
        o->length_max = (float)s->outer_edit_norm;
    o->anneal = (struct anneal){.kind = s->outer_lr_schedule,
                                .end = s->outer_min_lr_ratio,
                                .restart = (uint64_t)s->outer_momentum_restart,
                                .warmup = (uint64_t)s->outer_momentum_warmup,
                                .cooldown = (uint64_t)s->outer_momentum_cooldown,
                                .momentum_start = (float)s->outer_momentum_start,
                                .momentum_end = (float)s->outer_momentum_end};
    return ERR_OK;
}

static enum err check_rules(const struct settings *s, const struct outer_settings *o)
{
    struct config_rules rules = {0};
    keys_check(&rules, s);
    keys_outer_check(&rules, o, s);
    return config_rules_report(&rules);
}

enum err sync_config_make(struct sync_config *x, const struct settings *s,
                          const struct outer_settings *o, const struct table *t, struct arena *perm)
{
    struct fragment_plan plan;
    TRY(check_rules(s, o));
    TRY(plan_make(&plan, s, o, perm));
    TRY(fragment_make(&x->fragments, t, &plan, perm));
    x->schedule = schedule_of(s, o, &plan);
    x->digest = o->outer_state_digest;
    TRY(stages_schedule(&x->schedule, s, t, perm));
    TRY(sync_config_optimizer(&x->outer, o));
    return anneal_check(&x->outer.anneal, &x->schedule);
}

enum err sync_config_cut(struct fragments *f, const struct settings *s,
                         const struct outer_settings *o, const struct table *t, unsigned count,
                         struct arena *perm)
{
    struct fragment_plan plan;
    TRY(plan_make(&plan, s, o, perm));
    if (plan.kind == FRAGMENT_SLICES && count != plan.count)
        plan.kind = FRAGMENT_STRIDED;
    plan.count = count;
    plan.synchronised[FRAGMENT_FIRST] = plan.synchronised[FRAGMENT_SECOND] = false;
    return fragment_make(f, t, &plan, perm);
}

struct outer_state_options sync_config_state(const struct fragments *f, const struct schedule *s,
                                             const struct outer_opt *outer,
                                             const struct sync_config_replica *r)
{
    struct outer_state_options o = {
        .fragments = f,
        .schedule = *s,
        .outer = *outer,
        .digest = r->digest,
        .residuals = r->site,
        .discards = r->site && schedule_discards(s, r->error_feedback_decay),
        .stages = {r->stages.settings, r->stages.table, s->draw.share > 0 ? f->f[0].elements : 0},
        .keep = r->keep};
    if (!r->site)
        outer_state_aggregates(&o, r->sites);
    return o;
}
