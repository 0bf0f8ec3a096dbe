/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/site_table.h"
#include <stdlib.h>

enum { RANKS_MOST = 1024 };

/* "1,2,4", or with `pairs` "8:5.47,64:0.898"; ascending. */
static enum err read_rows(const char *what, const char *text, bool pairs, struct scaling *rows,
                          size_t *count)
{
    const char *at = text;
    for (*count = 0; *count < SITE_TABLE_ROWS_MAX;) {
        struct scaling *r = &rows[*count];
        char *end;
        *r = (struct scaling){.n = (double)strtol(at, &end, 10)};
        bool good = end != at && r->n >= 1 && r->n <= 1e6 && (!*count || r->n > r[-1].n);
        if (good && pairs && *end == ':') {
            at = end + 1;
            r->seconds = 60 * strtod(at, &end);
            good = end != at && r->seconds > 0 && r->seconds < 1e9;
        } else {
            good = good && !pairs;
        }
        if (!good || (*end && *end != ','))
            break;
        ++*count;
        if (!*end)
            return ERR_OK;
        at = end + 1;
    }
    return err_set(ERR_CONFIG, "%s \"%.80s\": give up to %d %s in ascending order, such as %s",
                   what, text, SITE_TABLE_ROWS_MAX, pairs ? "GPUS:MINUTES" : "numbers of ranks",
                   pairs ? "8:5.47,64:0.898" : "1,2,4,8");
}

static bool possible(const struct settings *s, int64_t ranks)
{
    return s->train_batch_tokens % (s->train_seq_len * ranks) == 0;
}

static enum err rows_of(const struct settings *s, const char *list, struct scaling *rows,
                        size_t *count)
{
    if (list) {
        TRY(read_rows("--ranks", list, false, rows, count));
        for (size_t i = 0; i < *count; i++)
            if (!possible(s, (int64_t)rows[i].n))
                return err_set(ERR_CONFIG,
                               "train.batch_tokens = %lld is not a multiple of train.seq_len x "
                               "ranks = %lld x %.0f; give other numbers with --ranks",
                               (long long)s->train_batch_tokens, (long long)s->train_seq_len,
                               rows[i].n);
        return ERR_OK;
    }
    *count = 0;
    for (int64_t n = 1; n <= RANKS_MOST && possible(s, n); n *= 2)
        rows[(*count)++] = (struct scaling){.n = (double)n};
    return *count ? ERR_OK
                  : err_set(ERR_CONFIG,
                            "train.batch_tokens = %lld is not a multiple of train.seq_len = %lld",
                            (long long)s->train_batch_tokens, (long long)s->train_seq_len);
}

static void fill(struct site_table *c, const struct table *table, bool search)
{
    for (size_t i = 0; i < c->count; i++) {
        struct site_choice *o = &c->choices[i];
        int ranks = (int)c->rows[i].n;
        (search ? site_search : site_search_given)(o, c->s, table, c->machine, ranks);
        c->rows[i].seconds = o->step.step_s * (double)c->s->train_steps;
    }
    scaling_fill(c->rows, c->count);
}

/* device.dtype = auto is the device's choice. */
static enum err find_type(struct site_machine *m, const struct run *p)
{
    struct dev *d;
    if (*p->measured.ranks.plan_gpu || p->s.device_kind != DEVICE_CPU)
        return ERR_OK;
    const char *type = config_choice_name(device_dtype_choices, p->s.device_dtype);
    TRY(dev_open(&d, &(struct dev_options){.kind = "cpu", .model_type = type, .threads = 1}));
    m->type = d->model_type;
    dev_close(d);
    return ERR_OK;
}

enum err site_table_make(struct site_table *t, struct run *p, const char *ranks, bool search)
{
    struct arena *a = &p->perm;
    TRY_ALLOC(t->s = arena_array(a, 1, sizeof *t->s));
    TRY_ALLOC(t->machine = arena_array(a, 1, sizeof *t->machine));
    TRY_ALLOC(t->costs = arena_array(a, 1, sizeof *t->costs));
    TRY_ALLOC(t->rows = arena_array(a, SITE_TABLE_ROWS_MAX, sizeof *t->rows));
    TRY_ALLOC(t->choices = arena_array(a, SITE_TABLE_ROWS_MAX, sizeof *t->choices));
    *t->s = p->s;
    TRY(site_settings_machine(t->machine, t->costs, t->s, &p->measured));
    TRY(find_type(t->machine, p));
    if (t->machine->memory_bytes <= 0)
        t->machine->memory_bytes = (double)train_memory_left();
    TRY(rows_of(t->s, ranks, t->rows, &t->count));
    if (t->machine->link.ranks < 2 && !*p->measured.ranks.plan_gpu && t->rows[t->count - 1].n > 1)
        return err_set(ERR_CONFIG, "the collectives were not measured: run atoll probe --ranks "
                                   "with several ranks (mpirun -n 2), or give --ranks 1");
    fill(t, &p->table, search);
    return ERR_OK;
}

enum err site_table_fits(const struct site_table *t)
{
    const struct site_step *x = &t->choices[t->count - 1].step;
    for (size_t i = 0; i < t->count; i++)
        if (t->choices[i].step.fits)
            return ERR_OK;
    return err_set(ERR_CONFIG,
                   "no row fits: %.2f GiB of memory a rank at least, %.2f GiB are there; each rank "
                   "runs all layers, so take more ranks, GPUs with more memory or a smaller model",
                   (double)x->memory.total / (1 << 30), t->machine->memory_bytes / (1 << 30));
}

double site_table_intensity(const struct site_table *t, const struct site_step *x)
{
    return x->sum_bytes > 0 ? x->mfu * t->machine->peak.flop * x->step_s / x->sum_bytes : 0;
}

enum err site_table_times(const char *times, struct scaling rows[SITE_TABLE_ROWS_MAX],
                          size_t *count)
{
    TRY(read_rows("plan times", times, true, rows, count));
    scaling_fill(rows, *count);
    return ERR_OK;
}
