/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/site_search.h"
#include "inner/config/keys.h"

static bool better(const struct site_step *a, const struct site_choice *best)
{
    if (a->fits != best->step.fits)
        return a->fits;
    return a->fits ? a->tokens_s > best->step.tokens_s : a->memory.total < best->step.memory.total;
}

static void look_at(struct site_choice *best, const struct site_compute *b,
                    const struct settings *s, const struct table *t, const struct site_machine *m,
                    int ranks)
{
    struct config_rules rules = {0};
    struct site_step step;
    keys_check(&rules, s); /* not every optimizer goes with ZeRO */
    if (rules.length)
        return;
    site_model_step_of(&step, b, s, t, m, ranks);
    if (!best->tried++ || better(&step, best)) {
        best->settings = *s;
        best->step = step;
    }
}

static void buckets(struct site_choice *best, const struct site_compute *b, struct settings s,
                    const struct table *t, const struct site_machine *m, int ranks)
{
    static const double mib[] = {25, 100, 6.25, 0};
    look_at(best, b, &s, t, m, ranks); /* as configured, first: of equals it stays */
    for (unsigned i = 0; ranks > 1 && i < sizeof mib / sizeof *mib; i++) {
        s.train_bucket_mb = mib[i];
        look_at(best, b, &s, t, m, ranks);
    }
}

/* The highest train.zero_stage that these settings allow (inner/config/keys.c). */
static int most_stage(const struct settings *s, int ranks)
{
    bool whole = s->train_clip_per == TRAIN_CLIP_PER_BUCKET ||
                 s->privacy_unit != PRIVACY_UNIT_NONE || s->train_compress != TRAIN_COMPRESS_NONE;
    return ranks == 1 ? 0 : whole ? 1 : 3;
}

void site_search_given(struct site_choice *c, const struct settings *s, const struct table *t,
                       const struct site_machine *m, int ranks)
{
    *c = (struct site_choice){.settings = *s};
    site_model_step(&c->step, s, t, m, ranks);
}

void site_search(struct site_choice *best, const struct settings *s, const struct table *t,
                 const struct site_machine *m, int ranks)
{
    struct settings now = *s;
    int64_t sequences = s->train_batch_tokens / s->train_seq_len / ranks;
    *best = (struct site_choice){0};
    for (int64_t parts = 1; parts <= sequences; parts++) {
        if (sequences % parts)
            continue;
        now.train_micro_batch_tokens = sequences / parts * s->train_seq_len;
        for (int recompute = 0; recompute < 2; recompute++) {
            now.train_activation_checkpointing =
                recompute ? TRAIN_CHECKPOINTING_BLOCK : TRAIN_CHECKPOINTING_NONE;
            struct site_compute b = site_model_compute(&now, t, m, ranks);
            for (int zero = 0; zero <= most_stage(s, ranks); zero++) {
                now.train_zero_stage = zero;
                buckets(best, &b, now, t, m, ranks);
            }
        }
    }
}
