/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/inside_print.h"
#include <stdio.h>
#include "outer/record/json_write.h"

/* ---- times ---- */

static void print_knee(const struct scaling *rows, size_t count)
{
    size_t knee = scaling_knee(rows, count);
    printf(
        "\nKnee: %.0f. Among rows with E >= %.1f, n T(n)^2 is least there: each further doubling "
        "saves less than it costs (2509.03263).\n",
        rows[knee].n, SCALING_EFFICIENCY);
    for (size_t i = 1; i < count; i++)
        if (rows[i].marginal < SCALING_MARGINAL) {
            printf("Diminishing returns from %.0f to %.0f: d ln(tokens/s) / d ln n = %.2f, below "
                   "%.1f. Raise outer.sync_every or add a site instead (2411.13055).\n",
                   rows[i - 1].n, rows[i].n, rows[i].marginal, SCALING_MARGINAL);
            return;
        }
}

static void json_begin(struct json_write *w)
{
    json_object(w, NULL);
    json_array(w, "rows");
}

static void row_json(struct json_write *w, const struct scaling *r, bool knee)
{
    json_object(w, NULL);
    json_int(w, "n", (int64_t)r->n);
    json_real(w, "seconds", r->seconds);
    json_real(w, "speedup", r->speedup);
    json_real(w, "efficiency", r->efficiency);
    json_real(w, "gpu_hours", r->hours);
    json_real(w, "marginal", r->marginal);
    json_bool(w, "knee", knee);
    json_end(w);
}

static void times_json(const struct scaling *rows, size_t count)
{
    struct json_write w = {.out = stdout, .digits = 10};
    size_t knee = scaling_knee(rows, count);
    json_begin(&w);
    for (size_t i = 0; i < count; i++)
        row_json(&w, &rows[i], i == knee);
    json_close(&w);
}

void inside_print_times(const struct scaling *rows, size_t count, bool json)
{
    if (json) {
        times_json(rows, count);
        return;
    }
    printf("%8s %12s %9s %11s %11s %9s\n", "n", "minutes", "S", "E", "GPU-hours", "marginal");
    for (size_t i = 0; i < count; i++)
        printf("%8.0f %12.4f %9.3f %11.4f %11.4f %9.3f\n", rows[i].n, rows[i].seconds / 60,
               rows[i].speedup, rows[i].efficiency, rows[i].hours, rows[i].marginal);
    print_knee(rows, count);
}

/* ---- ranks ---- */
static void print_head(const struct site_table *c, const struct run *run)
{
    const struct ranks_fit *f = &c->machine->link.fit[RANKS_ALL_REDUCE];
    const char *known = *run->measured.ranks.plan_gpu ? run->measured.ranks.plan_gpu
                        : c->machine->count           ? "as measured, class by class"
                                                      : "as measured, products only";
    printf("%.4g M parameters, %lld tokens a step, %lld steps; ranks %s: %.4g TFLOP/s, %.4g GB/s",
           (double)run->table.parameters / 1e6, (long long)c->s->train_batch_tokens,
           (long long)c->s->train_steps, known, 1e-12 * c->machine->peak.flop,
           1e-9 * c->machine->peak.bytes);
    if (!c->machine->count)
        printf(", %.0f %% of it", 100 * c->machine->utilisation);
    printf("\n");
    if (f->beta_s > 0)
        printf("a hop takes %.3g us and %.4g GB/s (%s, %s)\n", 1e6 * f->alpha_s, 1e-9 / f->beta_s,
               config_choice_name(plan_algorithm_choices, c->machine->link.algorithm),
               c->machine->link.ranks > 1 ? "measured" : "published");
    printf("\n%6s %7s %3s %5s %5s %6s %10s %10s %6s %6s %6s %10s %8s %10s %9s %9s %9s\n", "ranks",
           "micro", "A", "zero", "again", "bucket", "step", "exposed", "S", "E", "MFU", "tokens/s",
           "tok/J", "GPU-hours", "price", "memory", "fits");
}

static void print_row(const struct site_table *c, size_t i)
{
    const struct site_choice *o = &c->choices[i];
    const struct site_step *x = &o->step;
    const struct scaling *r = &c->rows[i];
    char joules[24] = "-", price[24] = "-";
    double bytes = (double)x->memory.total, exposed = x->exposed_s + x->gather_s;
    if (c->costs->watts > 0)
        snprintf(joules, sizeof joules, "%.4g", x->tokens_s / (r->n * c->costs->watts));
    if (c->costs->price_hour > 0)
        snprintf(price, sizeof price, "%.2f", r->hours * c->costs->price_hour);
    printf("%6.0f %7zu %3d %5lld %5s %6.4g %8.4g s %8.3f %% %6.2f %6.2f %5.1f%% %10.4g %8s %10.4g "
           "%9s %5.2f GiB %4s\n",
           r->n, train_micro_batch_tokens(&o->settings, (int)r->n), x->accumulate,
           (long long)o->settings.train_zero_stage,
           o->settings.train_activation_checkpointing == TRAIN_CHECKPOINTING_BLOCK ? "yes" : "no",
           o->settings.train_bucket_mb, x->step_s, 100 * exposed / x->step_s, r->speedup,
           r->efficiency, 100 * x->mfu, x->tokens_s, joules, r->hours, price, bytes / (1 << 30),
           x->fits ? "yes" : "no");
}

static void choice_json(struct json_write *w, const struct site_table *c, size_t i, bool knee)
{
    const struct site_choice *o = &c->choices[i];
    const struct site_step *x = &o->step;
    const struct scaling *r = &c->rows[i];
    json_object(w, NULL);
    json_int(w, "ranks", (int64_t)r->n);
    json_int(w, "micro_batch_tokens", (int64_t)train_micro_batch_tokens(&o->settings, (int)r->n));
    json_int(w, "accumulate", x->accumulate);
    json_int(w, "zero_stage", o->settings.train_zero_stage);
    json_bool(w, "recompute",
              o->settings.train_activation_checkpointing == TRAIN_CHECKPOINTING_BLOCK);
    json_real(w, "bucket_mb", o->settings.train_bucket_mb);
    json_real(w, "micro_s", x->micro_s);
    json_real(w, "update_s", x->update_s);
    json_real(w, "sums_s", x->sums_s);
    json_real(w, "exposed_s", x->exposed_s);
    json_real(w, "gather_s", x->gather_s);
    json_real(w, "step_s", x->step_s);
    json_real(w, "tokens_per_second", x->tokens_s);
    json_real(w, "mfu", x->mfu);
    json_real(w, "speedup", r->speedup);
    json_real(w, "efficiency", r->efficiency);
    json_real(w, "marginal", r->marginal);
    json_real(w, "gpu_hours", r->hours);
    json_real(w, "price", r->hours * c->costs->price_hour);
    json_real(w, "watts", c->costs->watts);
    json_int(w, "sum_bytes", (int64_t)x->sum_bytes);
    json_real(w, "intensity", site_table_intensity(c, x));
    json_int(w, "memory_bytes", (int64_t)x->memory.total);
    json_bool(w, "fits", x->fits);
    json_int(w, "accumulate_hidden", site_model_accumulate(x));
    json_bool(w, "knee", knee);
    json_end(w);
}

static void print_json(const struct site_table *c)
{
    struct json_write w = {.out = stdout, .digits = 6};
    size_t knee = scaling_knee(c->rows, c->count);
    json_begin(&w);
    for (size_t i = 0; i < c->count; i++)
        choice_json(&w, c, i, i == knee);
    json_close(&w);
}

static void print_legend(const struct site_table *c, bool searched)
{
    printf("\nmicro: train.micro_batch_tokens%s. again: train.activation_checkpointing. exposed: "
           "communication that the backward pass does not hide,\nof a step. S, E: speed-up and "
           "efficiency against the first row. MFU: operations of the model over %.4g TFLOP/s a "
           "rank.\ntok/J: tokens per joule; power: %s. memory: of the start-up table; fits: in "
           "%.0f %% of a rank's memory.\n",
           searched ? ", chosen with A, zero, again and bucket" : "", 1e-12 * c->machine->peak.flop,
           c->costs->watts_from, 100 * SITE_MODEL_MEMORY);
}

/* The batch that would hide the exchange (2008.00177). */
static void print_accumulation(const struct site_table *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct site_step *x = &c->choices[i].step;
        int need = site_model_accumulate(x);
        if (need <= x->accumulate)
            continue;
        size_t micro = train_micro_batch_tokens(&c->choices[i].settings, (int)c->rows[i].n);
        printf("%.0f ranks: the exchange takes at most %.0f %% of a step from A = %d on, a batch "
               "of %.4g tokens (2008.00177).\n",
               c->rows[i].n, 100 * SITE_MODEL_EXPOSED, need,
               (double)need * (double)micro * c->rows[i].n);
        return;
    }
}

static void print_intensity(const struct site_table *c)
{
    const struct site_step *x = &c->choices[c->count - 1].step;
    if (x->sum_bytes > 0)
        printf("Intensity with %.0f ranks: %.4g operations of a rank for each byte that its "
               "gradients sum (2005.13247).\n",
               c->rows[c->count - 1].n, site_table_intensity(c, x));
}

void inside_print(const struct site_table *c, const struct run *run, bool searched, bool json)
{
    if (json) {
        print_json(c);
        return;
    }
    print_head(c, run);
    for (size_t i = 0; i < c->count; i++)
        print_row(c, i);
    print_legend(c, searched);
    print_knee(c->rows, c->count);
    print_accumulation(c);
    print_intensity(c);
}
