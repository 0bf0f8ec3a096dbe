/* What sites evaluated in the run: tasks in a table and by round, the newest texts of probes. Texts
 * come from a model: they are escaped like any other. */
#include <math.h>
#include "outer/report/report_own.h"

static void percent(struct report_table *t, double share)
{
    char text[32];
    snprintf(text, sizeof text, "%.1f %%", 100 * share);
    table_number(t, text);
}

static void tasks_write(FILE *out, const struct report_runs *r)
{
    static const char *const head[] = {"",         "task",      "round", "questions",
                                       "accuracy", "by length", "chance"};
    struct report_table t;
    table_begin(&t, out, head, 7, 2);
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->run[i].task_count; k++) {
            const struct report_task *x = &r->run[i].tasks[k];
            table_name(&t, r->run[i].name);
            table_text(&t, x->name);
            table_count(&t, x->round);
            table_count(&t, x->questions);
            percent(&t, x->accuracy);
            percent(&t, x->accuracy_norm);
            percent(&t, x->chance);
        }
    table_end(&t);
}

static const struct report_points *points_of(const struct report_task *x, bool by_length)
{
    return by_length ? &x->by_round_norm : &x->by_round;
}

static void chart_write(FILE *out, const struct report_runs *r, bool by_length)
{
    const char *heading = by_length ? "Accuracy by length, by round" : "Accuracy by round";
    double lo = INFINITY, hi = -INFINITY, top = 0.1;
    unsigned color = 0;
    struct plot p;
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->run[i].task_count; k++) {
            const struct report_points *x = points_of(&r->run[i].tasks[k], by_length);
            lo = fmin(lo, x->x[0]);
            hi = fmax(hi, x->x[x->count - 1]);
            for (size_t n = 0; n < x->count; n++)
                top = fmax(top, x->y[n]);
        }
    fprintf(out, "<div><h2>%s</h2><p class=\"note\">Rounds of the first fragment.%s</p>", heading,
            by_length ? " Likelihoods over the lengths of the choices." : "");
    plot_begin(&p, out,
               &(struct plot_options){.title = heading,
                                      .x_label = "round",
                                      .y_label = "accuracy",
                                      .x_lo = lo - 0.5,
                                      .x_hi = hi + 0.5,
                                      .y_lo = 0,
                                      .y_hi = top,
                                      .bars = true,
                                      .tags = true});
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->run[i].task_count; k++, color++) {
            const struct report_points *x = points_of(&r->run[i].tasks[k], by_length);
            plot_line(&p, color % PLOT_COLORS, false, x->x, x->y, x->count);
            plot_dots(&p, color % PLOT_COLORS, x->x, x->y, x->count < 40 ? x->count : 0,
                      r->run[i].tasks[k].name);
            plot_tag(&p, color % PLOT_COLORS, report_last(x), r->run[i].tasks[k].name);
        }
    plot_end(&p);
    fputs("</div>\n", out);
}

static void probes_write(FILE *out, const struct report_run *run)
{
    for (size_t i = 0; i < run->probe_count; i++) {
        const struct report_probe *x = &run->probes[i];
        if (!isfinite(x->round))
            continue;
        fputs("<p class=\"note\">", out);
        plot_escape(out, run->name);
        fprintf(out, ", after round %.0f</p><pre><b>", x->round);
        plot_escape(out, x->prompt);
        fputs("</b>", out);
        plot_escape(out, x->text);
        fputs("</pre>\n", out);
    }
}

void report_eval(FILE *out, const struct report_runs *r)
{
    size_t tasks = 0, probes = 0;
    for (size_t i = 0; i < r->count; i++) {
        tasks += r->run[i].task_count;
        probes += r->run[i].probe_count;
    }
    if (!tasks && !probes)
        return;
    fputs("<section><h2>Evaluation</h2><p class=\"note\">Of the outer parameters, on public tasks "
          "and prompts (eval.every_rounds).</p>",
          out);
    if (tasks) {
        tasks_write(out, r);
        fputs("<div class=\"grid2\" style=\"margin-top:18px\">\n", out);
        chart_write(out, r, false);
        chart_write(out, r, true);
        fputs("</div>\n", out);
    }
    for (size_t i = 0; i < r->count; i++)
        probes_write(out, &r->run[i]);
    fputs("</section>\n", out);
}
