/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/stages.h"

enum err stages_open(struct stages *x, const struct stages_options *o, struct arena *perm)
{
    *x = (struct stages){.o.drawn = o->drawn};
    if (o->drawn)
        TRY_ALLOC(x->ranges = arena_array(perm, draw_ranges_max(o->drawn), sizeof *x->ranges));
    if (!o->settings || !depth_stages(o->settings))
        return ERR_OK;
    ASSERT(!o->drawn);
    x->o = *o;
    TRY_ALLOC(x->ranges = arena_array(perm, o->table->count, sizeof *x->ranges));
    TRY_ALLOC(x->copies = arena_array(perm, o->table->count, sizeof *x->copies));
    return ERR_OK;
}

/* A round is of the stage of its last step. */
size_t stages_held(const struct stages *x, const struct schedule *s, unsigned fragment,
                   uint64_t round)
{
    if (x->o.drawn && schedule_draws(s, fragment, round))
        return draw_ranges(&s->draw, round, x->o.drawn, false, x->ranges);
    if (!x->o.settings)
        return 0;
    uint64_t last = (uint64_t)schedule_step(s, fragment, round) - 1;
    return depth_ranges(x->o.settings, x->o.table, last, false, x->ranges);
}

size_t stages_growth(const struct stages *x, const struct schedule *s, unsigned fragment,
                     uint64_t round)
{
    if (!x->o.settings)
        return 0;
    uint64_t next = (uint64_t)schedule_step(s, fragment, round);
    return depth_growth(x->o.settings, x->o.table, next, x->copies);
}

enum err stages_schedule(struct schedule *s, const struct settings *settings,
                         const struct table *table, struct arena *perm)
{
    struct stages x;
    TRY(stages_open(&x, &(struct stages_options){settings, table, 0}, perm));
    s->stages.count = (unsigned)settings->train_stages.count;
    ASSERT(s->stages.count <= SCHEDULE_STAGES_MAX);
    for (int64_t i = 0, begin = 0; i < s->stages.count; i++) {
        struct depth_stage stage = depth_stage_of(settings, (uint64_t)begin);
        size_t n = depth_ranges(settings, table, (uint64_t)begin, true, x.ranges), values = 0;
        for (size_t k = 0; k < n; k++)
            values += x.ranges[k].count;
        s->stages.list[i] = (struct schedule_stage){stage.end, values};
        begin = stage.end;
    }
    return ERR_OK;
}
