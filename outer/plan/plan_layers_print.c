/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include "outer/plan/plan_layers.h"
#include "outer/record/json_write.h"

static void layers_json(const struct run *p, const struct plan_layers *l, double period_s,
                        int64_t every)
{
    char text[PLAN_LAYERS_TEXT];
    struct json_write w = {.out = stdout, .digits = 9};
    json_object(&w, NULL);
    json_int(&w, "sync_every", p->o.outer_sync_every);
    json_array(&w, "slices");
    for (unsigned i = 0; i < l->count; i++) {
        plan_layers_text(&l->slice[i], (int)p->s.model_layers, text, sizeof text);
        json_text(&w, NULL, text);
    }
    json_end(&w);
    json_int(&w, "overlap_steps", l->span);
    json_bool(&w, "before_update", l->span < p->o.outer_sync_every);
    json_text(&w, "codec", config_choice_name(outer_codec_choices, p->o.outer_codec));
    json_real(&w, "wait_s", l->wait_s);
    json_real(&w, "wait_percent", 100 * l->wait_s / period_s);
    json_int(&w, "fill_in_exchanges", l->more);
    if (every)
        json_int(&w, "try_sync_every", every);
    json_close(&w);
}

enum err plan_layers_print(struct run *p, const struct plan_layers *l, const struct line *link,
                           bool json)
{
    char text[PLAN_LAYERS_TEXT];
    int64_t every = 0;
    double period_s = (double)p->o.outer_sync_every * p->measured.times.plan_step_s;
    bool slow = l->wait_s > PLAN_LAYERS_WAIT * period_s;
    if (slow)
        TRY(plan_layers_every(&every, p, link));
    if (json) {
        layers_json(p, l, period_s, every);
        return ERR_OK;
    }
    printf("outer:\n  sync_every: %lld\n  partition: slices\n  slices: [",
           (long long)p->o.outer_sync_every);
    for (unsigned i = 0; i < l->count; i++) {
        plan_layers_text(&l->slice[i], (int)p->s.model_layers, text, sizeof text);
        printf("%s%s", i ? ", " : "", text);
    }
    printf("]\n  overlap_steps: %lld\n  before_update: %s\n  codec: %s\n", (long long)l->span,
           l->span < p->o.outer_sync_every ? "true" : "false",
           config_choice_name(outer_codec_choices, p->o.outer_codec));
    printf("# %u slices, each %s the %lld steps after it; training waits %.3g s (%.3g %% of the "
           "period)\n",
           l->count, slow ? "partly hidden under" : "hidden under", (long long)l->span, l->wait_s,
           100 * l->wait_s / period_s);
    if (l->more)
        printf("# fill-in: %u further exchanges of slices in a period, which wait for nothing\n",
               l->more);
    else if (l->span > 1)
        printf(
            "# no fill-in: with slots of %lld steps a further exchange would replace the updates "
            "of %lld of them; outer.sync_every = %lld has slots of one step\n",
            (long long)l->span, (long long)l->span - 1, (long long)p->s.model_layers + 2);
    if (every)
        printf("# the link is too slow for this H; try outer.sync_every %lld\n", (long long)every);
    else if (slow)
        printf("# the link is too slow for any H up to %d; take a smaller codec or a faster link\n",
               PLAN_EVERY_MAX);
    return ERR_OK;
}
