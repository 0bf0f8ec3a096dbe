/* The report's numbers of the outer step: one plot each, all sites in it. */
#include <math.h>
#include "outer/report/report_own.h"

static const struct {
    enum report_metric metric;
    const char *heading, *note, *y_label;
    double lo, hi; /* the axis shows these at least */
} charts[] = {
    {REPORT_RHO, "rho",
     "Cosine of successive mean deltas. Near 1 the momentum amplifies them: lower outer.lr or take "
     "more steps a round.",
     "cosine", 0, 0.1},
    {REPORT_AGREEMENT, "Agreement",
     "Cosine of the site's own delta and the mean. It falls as the sites drift apart.", "cosine", 0,
     0.1},
    {REPORT_GAIN, "Gain", "Length of the applied step along the mean delta, over outer.lr.",
     "ratio", 1, 1.1},
    {REPORT_RESIDUAL, "Residual ratio",
     "What the codec left in the residual, over the site's delta. Above outer.residual_reset the "
     "next round is sent in full precision.",
     "ratio", 0, 0.01}};
enum { CHARTS = sizeof charts / sizeof *charts };

static bool is_known(const struct report_run *r, enum report_metric metric)
{
    for (size_t i = 0; i < r->round_count; i++)
        if (isfinite(r->rounds[i].metrics[metric]))
            return true;
    return false;
}

struct range {
    double x_lo, x_hi, lo, hi;
    bool any;
};

static struct range range_of(const struct report_runs *r, int chart)
{
    struct range g = {INFINITY, -INFINITY, charts[chart].lo, charts[chart].hi, false};
    for (size_t i = 0; i < r->count; i++) {
        const struct report_run *run = &r->run[i];
        if (!is_known(run, charts[chart].metric))
            continue;
        g.any = true;
        for (size_t k = 0; k < run->round_count; k++) {
            double y = run->rounds[k].metrics[charts[chart].metric];
            g.lo = isfinite(y) ? fmin(g.lo, y) : g.lo;
            g.hi = isfinite(y) ? fmax(g.hi, y) : g.hi;
        }
        g.x_lo = fmin(g.x_lo, report_round_x(run, 0));
        g.x_hi = fmax(g.x_hi, report_round_x(run, run->round_count - 1));
    }
    return g;
}

static void curve_draw(struct plot *p, const struct report_runs *r, size_t index,
                       enum report_metric metric)
{
    const struct report_run *run = &r->run[index];
    double *x = arena_array(r->a, run->round_count + 1, sizeof *x), last = NAN;
    double *y = arena_array(r->a, run->round_count + 1, sizeof *y);
    if (!x || !y)
        return;
    for (size_t i = 0; i < run->round_count; i++) {
        x[i] = report_round_x(run, i);
        y[i] = run->rounds[i].metrics[metric];
        last = isfinite(y[i]) ? y[i] : last;
    }
    plot_line(p, report_color(r, index), false, x, y, run->round_count);
    plot_dots(p, report_color(r, index), x, y, run->round_count < 40 ? run->round_count : 0,
              run->name);
    plot_tag(p, report_color(r, index), last, run->name);
}

static void chart_write(FILE *out, const struct report_runs *r, int chart)
{
    struct range g = range_of(r, chart);
    struct plot p;
    const struct report_run *any = NULL;
    for (size_t i = r->count; i-- > 0;)
        any = is_known(&r->run[i], charts[chart].metric) ? &r->run[i] : any;
    if (!any)
        return;
    fprintf(out, "<div><h2>%s</h2><p class=\"note\">%s</p>", charts[chart].heading,
            charts[chart].note);
    plot_begin(&p, out,
               &(struct plot_options){.title = charts[chart].heading,
                                      .x_label = report_round_label(any),
                                      .y_label = charts[chart].y_label,
                                      .x_lo = g.x_lo - 0.5,
                                      .x_hi = g.x_hi + 0.5,
                                      .y_lo = g.lo,
                                      .y_hi = g.hi,
                                      .bars = true,
                                      .tags = true});
    for (size_t i = r->count; i-- > 0;)
        if (is_known(&r->run[i], charts[chart].metric))
            curve_draw(&p, r, i, charts[chart].metric);
    plot_end(&p);
    fputs("</div>\n", out);
}

void report_outer(FILE *out, const struct report_runs *r)
{
    bool any = false;
    for (int k = 0; k < CHARTS; k++)
        any = any || range_of(r, k).any;
    if (!any)
        return;
    fputs("<section><h2>The outer step</h2><div class=\"grid2\">\n", out);
    for (int k = 0; k < CHARTS; k++)
        chart_write(out, r, k);
    fputs("</div></section>\n", out);
}
