#include "outer/exchange.h"
#include <string.h>

static enum fragment_kind kind_of(const char *name)
{
    static const char *const names[] = {"strided", "sequential", "balanced", "random", "slices"};
    unsigned kind = 0;
    while (strcmp(names[kind], name) != 0)
        kind++; /* the key's choices are these */
    return (enum fragment_kind)kind;
}

static enum err plan_make(struct fragment_plan *p, const struct settings *s,
                          const struct outer_settings *o, struct arena *perm)
{
    struct fragment_slice *slices;
    *p = (struct fragment_plan){.kind = kind_of(o->outer_partition),
                                .count = (unsigned)o->outer_fragments,
                                .seed = (uint64_t)s->run_seed,
                                .synchronised = {[FRAGMENT_PARAMETERS] = true}};
    if (p->kind != FRAGMENT_SLICES)
        return ERR_OK;
    p->count = (unsigned)o->outer_slices.count;
    TRY_ALLOC(slices = arena_array(perm, p->count, sizeof *slices));
    for (unsigned i = 0; i < p->count; i++) {
        bool good = fragment_slice_parse(&slices[i], o->outer_slices.items[i], (int)s->model_layers,
                                         o->outer_every);
        ASSERT(good); /* keys_outer_check has refused others */
    }
    p->slices = slices;
    return ERR_OK;
}

static struct schedule schedule_of(const struct settings *s, const struct outer_settings *o,
                                   const struct fragment_plan *p)
{
    const struct codec *c = codec_find(o->outer_codec);
    struct schedule x = {.steps = s->train_steps,
                         .fragments = p->count,
                         .whole_rounds = (uint64_t)o->outer_whole_rounds};
    ASSERT(c); /* the key's choices are the codecs' names */
    if (p->kind != FRAGMENT_SLICES)
        x = schedule_streaming(x.steps, o->outer_every, x.fragments, x.whole_rounds, c->kind);
    else
        for (unsigned i = 0; i < p->count; i++)
            x.beat[i] =
                (struct schedule_beat){o->outer_every, p->slices[i].at - o->outer_every, c->kind};
    x.overlap = o->outer_overlap_steps;
    x.back_off = codec_backlog(o->outer_back_off * o->outer_back_off, 1);
    return x;
}

enum err exchange_make(struct exchange *x, const struct settings *s, const struct outer_settings *o,
                       const struct table *t, struct arena *perm)
{
    struct fragment_plan plan;
    TRY(plan_make(&plan, s, o, perm));
    TRY(fragment_make(&x->fragments, t, &plan, perm));
    x->schedule = schedule_of(s, o, &plan);
    return nesterov_configure(&x->outer, o);
}
