#include "outer/report/report_outer.h"
#include <math.h>
#include "outer/report/plot.h"

/* Two lines of one chart. */
struct chart {
    const char *title, *y_label;
    enum report_gauge metrics[2];
    double lo; /* the axis begins here at least */
};
static const struct chart charts[] = {
    {"Agreement by exchange", "cosine", {REPORT_RHO, REPORT_AGREEMENT}, 0},
    {"Momentum and residual by exchange", "ratio", {REPORT_GAIN, REPORT_RESIDUAL}, 0},
};

static bool known(const struct report_run *r)
{
    for (size_t i = 0; i < r->round_count; i++)
        for (int k = 0; k < REPORT_GAUGES; k++)
            if (isfinite(r->rounds[i].metrics[k]))
                return true;
    return false;
}

static void range(const struct report_run *r, const struct chart *c, double *lo, double *hi)
{
    *lo = c->lo;
    *hi = c->lo + 0.1;
    for (size_t i = 0; i < r->round_count; i++)
        for (int k = 0; k < 2; k++) {
            double y = r->rounds[i].metrics[c->metrics[k]];
            *lo = isfinite(y) ? fmin(*lo, y) : *lo;
            *hi = isfinite(y) ? fmax(*hi, y) : *hi;
        }
}

static enum err write_chart(FILE *out, const struct report_run *r, const struct chart *c,
                            struct arena *a)
{
    struct plot p;
    double lo, hi, *x, *y;
    TRY_ALLOC(x = arena_array(a, r->round_count, sizeof *x));
    TRY_ALLOC(y = arena_array(a, r->round_count, sizeof *y));
    range(r, c, &lo, &hi);
    fputs("<div><h2>", out);
    plot_escape(out, r->name);
    fputs("</h2>", out);
    plot_begin(&p, out,
               &(struct plot_options){.title = c->title,
                                      .x_label = "exchange",
                                      .y_label = c->y_label,
                                      .x_lo = 0.5,
                                      .x_hi = (double)r->round_count + 0.5,
                                      .y_lo = lo,
                                      .y_hi = hi,
                                      .bars = true,
                                      .tags = true});
    for (unsigned k = 0; k < 2; k++) {
        double last = NAN;
        for (size_t i = 0; i < r->round_count; i++) {
            x[i] = (double)i + 1;
            y[i] = r->rounds[i].metrics[c->metrics[k]];
            last = isfinite(y[i]) ? y[i] : last;
        }
        plot_line(&p, 2 * k, false, x, y, r->round_count);
        if (isfinite(last))
            plot_tag(&p, 2 * k, last, report_gauge_name[c->metrics[k]]);
    }
    plot_end(&p);
    fputs("</div>\n", out);
    return ERR_OK;
}

enum err report_outer(FILE *out, const struct report_run *runs, size_t count, struct arena *a)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any = any || known(&runs[i]);
    if (!any)
        return ERR_OK;
    fputs(
        "<section><h2>The outer step</h2><p class=\"note\">rho: cosine of successive mean deltas; "
        "near 1 the momentum adds up, and a lower outer.lr or more steps a round would be right. "
        "agreement: cosine of the site's own delta and the mean. gain: length of the applied step "
        "along the delta, over outer.lr. behind: what the codec left in the residual, over the "
        "site's delta; above outer.residual_reset the next round is sent whole.</p><div "
        "class=\"grid2\">\n",
        out);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; known(&runs[i]) && k < sizeof charts / sizeof *charts; k++)
            TRY(write_chart(out, &runs[i], &charts[k], a));
    fputs("</div></section>\n", out);
    return ERR_OK;
}
