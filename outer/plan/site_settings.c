/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/site_settings.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/number.h"
#include "outer/plan/accelerator.h"

/* A hop of a machine's and of the network's GPUs, where nothing was measured. Our choice: the order
 * of NCCL's small all-reduces. */
static const double HOP_S = 3e-6, NET_HOP_S = 10e-6;

static enum err number_of(double *x, const char *key, const char *text)
{
    if (number_good(text, x) && *x > 0 && *x < 1e18)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: \"%.60s\" is no number above 0; measure again: atoll probe "
                   "--ranks --write FILE",
                   key, text);
}

static enum err times_of(struct ranks_times *t, const char *key, const struct config_list *list)
{
    char name[40];
    snprintf(name, sizeof name, "plan.%s", key);
    if (list->count && list->count != RANKS_LINK_TIMES)
        return err_set(ERR_CONFIG,
                       "%s has %zu entries, not the %d times of 4 KiB, 8 KiB, ..., 64 MiB; measure "
                       "again: atoll probe --ranks --write FILE",
                       name, list->count, RANKS_LINK_TIMES);
    t->count = (unsigned)list->count;
    for (unsigned i = 0; i < t->count; i++)
        TRY(number_of(&t->seconds[i], name, list->items[i]));
    return ERR_OK;
}

static enum err measured_link(struct ranks_link *l, const struct measured_ranks *o)
{
    const struct config_list *lists[RANKS_OP_COUNT] = {[RANKS_ALL_REDUCE] = &o->plan_all_reduce_s,
                                                       [RANKS_ALL_GATHER] = &o->plan_all_gather_s,
                                                       [RANKS_REDUCE_SCATTER] =
                                                           &o->plan_reduce_scatter_s};
    static const char *const keys[] = {
#define X(NAME, key) key,
        RANKS_OPS(X)
#undef X
    };
    for (enum ranks_op op = 0; op < RANKS_OP_COUNT; op++) {
        TRY(times_of(&l->times[op], keys[op], lists[op]));
        if (l->ranks > 1 && !l->times[op].count)
            return err_set(ERR_CONFIG,
                           "plan.ranks = %d, but plan.%s has %u entries; measure again: atoll "
                           "probe --ranks --write FILE",
                           l->ranks, keys[op], l->times[op].count);
        if (l->ranks > 1)
            l->fit[op] = ranks_link_fit(op, l->algorithm, l->ranks, &l->times[op]);
    }
    return ERR_OK;
}

enum err site_settings_point(struct site_point *p, const char *text)
{
    char name[24], end;
    *p = (struct site_point){.class = PROFILE_COUNT};
    int n = sscanf(text, "%23[a-z_]/%lf/%lf/%lf/%lf%c", name, &p->width, &p->flop, &p->bytes,
                   &p->seconds, &end);
    for (enum profile_class c = 0; n == 5 && c < PROFILE_COUNT; c++)
        if (!strcmp(name, profile_name(c)))
            p->class = c;
    bool good = p->class != PROFILE_COUNT && p->width >= 1 && p->flop >= 0 && p->bytes >= 0 &&
                p->flop + p->bytes > 0 && p->seconds > 0 && p->seconds < 1e6 && p->flop < 1e30 &&
                p->bytes < 1e30 && p->width < 1e9;
    if (good)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "plan.rates: \"%.80s\" is not class/width/operations/bytes/seconds; measure "
                   "again: atoll probe --ranks --write FILE",
                   text);
}

enum err site_settings_point_text(char **text, const struct site_point *p, struct arena *a)
{
    TRY_ALLOC(*text = arena_printf(a, "%s/%.0f/%.5g/%.5g/%.5g", profile_name(p->class), p->width,
                                   p->flop, p->bytes, p->seconds));
    return ERR_OK;
}

static enum err measured_machine(struct site_machine *m, const struct measured_ranks *o)
{
    double tflops;
    for (size_t i = 0; i < o->plan_products_tflops.count; i++) {
        TRY(number_of(&tflops, "plan.products_tflops", o->plan_products_tflops.items[i]));
        m->peak.flop = fmax(m->peak.flop, 1e12 * tflops);
    }
    m->peak.bytes = 1e9 * o->plan_memory_gbs;
    if (!(m->peak.flop > 0) || !(m->peak.bytes > 0))
        return err_set(ERR_CONFIG,
                       "nothing is known of the ranks; measure them on this machine and give the "
                       "file: mpirun -n 2 atoll probe --ranks --write FILE, atoll plan inside "
                       "--probe FILE; or plan for a GPU: --plan.gpu %s",
                       accelerator_names());
    if (o->plan_rates.count > SITE_MODEL_POINTS_MAX)
        return err_set(ERR_CONFIG, "plan.rates has %zu entries, at most %d", o->plan_rates.count,
                       SITE_MODEL_POINTS_MAX);
    m->count = (unsigned)o->plan_rates.count;
    for (unsigned i = 0; i < m->count; i++)
        TRY(site_settings_point(&m->points[i], o->plan_rates.items[i]));
    return ERR_OK;
}

/* ---- GPUs that are not here ----
 * What share of the published peaks each class of a step reached on an H200: one run, commit
 * b75bcf8 (tests/bench/log.md, results.csv). No other figure is in it, and none is fitted to what
 * others have published (test_published). GPT-2 124M, 64 x 1,024 tokens: least ms at 989 TFLOP/s
 * and 4.8 TB/s over the measured ms, which add up to 140.0 where the step without the profile took
 * 135.1. Width 8,192: the product of 8192^3, 793 TFLOP/s. Attention at width 2,048 and more: heads
 * of 128, 4,096 tokens, cuDNN forward (579 TFLOP/s) and our own backward (182), whose bits repeat.
 */
#define WHOLE (140.0 / 135.1)
#define SHARES(X)                                                                                  \
    X(UPLOAD, 768, 0.60 * WHOLE)                                                                   \
    X(EMBED, 768, 0.60 * WHOLE)                                                                    \
    X(EMBED_BWD, 768, 0.60 * WHOLE)                                                                \
    X(UPDATE, 768, 0.60 * WHOLE)                                                                   \
    X(NORM, 768, 0.395 * WHOLE)                                                                    \
    X(NORM_BWD, 768, 0.395 * WHOLE)                                                                \
    X(QKV, 768, 0.595 * WHOLE)                                                                     \
    X(QKV, 8192, 793.0 / 989)                                                                      \
    X(QKV_BWD, 768, 0.595 * WHOLE)                                                                 \
    X(QKV_BWD, 8192, 793.0 / 989)                                                                  \
    X(PROJ, 768, 0.595 * WHOLE)                                                                    \
    X(PROJ, 8192, 793.0 / 989)                                                                     \
    X(PROJ_BWD, 768, 0.595 * WHOLE)                                                                \
    X(PROJ_BWD, 8192, 793.0 / 989)                                                                 \
    X(ATTENTION, 768, 0.323 * WHOLE)                                                               \
    X(ATTENTION, 2048, 579.2 / 989)                                                                \
    X(ATTENTION_BWD, 768, 0.126 * WHOLE)                                                           \
    X(ATTENTION_BWD, 2048, 182.4 / 989)                                                            \
    X(MLP, 768, 0.467 * WHOLE)                                                                     \
    X(MLP, 8192, 793.0 / 989)                                                                      \
    X(MLP_BWD, 768, 0.467 * WHOLE)                                                                 \
    X(MLP_BWD, 8192, 793.0 / 989)                                                                  \
    X(CLASSIFIER, 768, 0.487 * WHOLE)                                                              \
    X(CLASSIFIER, 8192, 793.0 / 989)

static const struct {
    enum profile_class class;
    double width, share;
} shares[] = {
#define X(name, width, share) {PROFILE_##name, width, share},
    SHARES(X)
#undef X
};

static unsigned reached_shares(struct site_point points[SITE_MODEL_POINTS_MAX],
                               const struct work_peak *peak)
{
    unsigned n = 0;
    for (; n < sizeof shares / sizeof *shares; n++)
        points[n] = (struct site_point){.class = shares[n].class,
                                        .width = shares[n].width,
                                        .bytes = peak->bytes, /* a second's worth */
                                        .seconds = 1 / shares[n].share};
    return n;
}

/* Published peaks, and of them what our run reached: nothing measured here counts but the
 * collectives, where they were. */
static enum err published_machine(struct site_machine *m, struct site_costs *c, struct settings *s,
                                  const char *name)
{
    const struct accelerator *g = accelerator_find(name);
    if (!g)
        return err_set(ERR_CONFIG, "plan.gpu = \"%.40s\" is not known; known are %s", name,
                       accelerator_names());
    m->peak = (struct work_peak){g->flop, g->bytes};
    m->memory_bytes = g->memory_bytes;
    m->type = DTYPE_BF16;
    m->count = g->shares ? reached_shares(m->points, &m->peak) : 0;
    for (enum ranks_op op = 0; op < RANKS_OP_COUNT && m->link.ranks < 2; op++)
        m->link.fit[op] = (struct ranks_fit){.alpha_s = HOP_S, .beta_s = 1 / g->link_bytes};
    s->device_kind = DEVICE_CUDA;
    c->watts = g->watts;
    c->watts_from = "the GPU's published largest power";
    return ERR_OK;
}

static void costs_of(struct site_costs *c, const struct measured *m)
{
    const struct measured_ranks *o = &m->ranks;
    c->price_hour = m->plan_price_hour;
    if (o->plan_rapl_watts > 0 && !*o->plan_gpu) {
        c->watts = o->plan_rapl_watts;
        c->watts_from = "RAPL, the processor's energy counters";
    }
    if (o->plan_watts > 0) {
        c->watts = o->plan_watts;
        c->watts_from = "plan.watts";
    }
}

enum err site_settings_machine(struct site_machine *m, struct site_costs *c, struct settings *s,
                               const struct measured *measured)
{
    const struct measured_ranks *o = &measured->ranks;
    *m = (struct site_machine){
        .utilisation = SITE_MODEL_UTILISATION,
        .type = s->device_kind == DEVICE_CPU ? DTYPE_F32 : DTYPE_BF16, /* or as the device says */
        .overlap = o->plan_overlap / 100,
        .link = {.ranks = (int)o->plan_ranks,
                 .algorithm = o->plan_algorithm,
                 .machine_ranks = o->plan_net_gbs > 0 ? (int)o->plan_machine_ranks : 0,
                 .net_alpha_s = NET_HOP_S,
                 .net_beta_s = o->plan_net_gbs > 0 ? 1e-9 / o->plan_net_gbs : 0}};
    *c = (struct site_costs){.watts_from = "plan.watts is not set"};
    TRY(measured_link(&m->link, o));
    if (*o->plan_gpu)
        TRY(published_machine(m, c, s, o->plan_gpu));
    else
        TRY(measured_machine(m, o));
    costs_of(c, measured);
    if (o->plan_memory_gib > 0)
        m->memory_bytes = o->plan_memory_gib * (1 << 30);
    return ERR_OK;
}
