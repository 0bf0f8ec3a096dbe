/* The report's plots by step: loss, eval loss, gradient norm, learning rate, speed, bytes. */
#include <math.h>
#include "outer/report/report_own.h"

enum { POINTS_MAX = 700, POINTS_FEW = 5 };
/* The initial drop of a loss would squeeze all the rest: this share of the steps may be clipped. */
static const double DROP = 0.08;

struct frame { /* of one plot: what it shows, and how */
    enum report_series series;
    const char *heading, *note, *title, *x_label, *y_label;
    const char *none; /* what is said where there is nothing */
    bool drop;        /* its initial drop may be clipped */
    bool zero;        /* the axis begins at 0 */
    bool smooth;      /* means over many points before every point, faint */
    bool dots;        /* few points: each is marked and has its value at the end */
};
static const struct frame loss_frames[] = {
    {REPORT_LOSS, "Training loss",
     "Each site on its own text, smoothed; the faint line is every step.", "Training loss by step",
     "step", "nats per token", "No step is on record yet.", true, false, true, false},
    {REPORT_EVAL, "Eval loss",
     "The same text for all, seen by none. After a round all sites hold the same parameters: their "
     "points coincide.",
     "Eval loss by step", "step", "nats per token",
     "No evaluation is on record (train.eval_every, data.eval).", true, false, false, true}};
static const struct frame series_frames[] = {
    {REPORT_NORM, "Gradient norm", "Before clipping, smoothed.", "Gradient norm by step", "step",
     "norm", NULL, true, true, true, false},
    {REPORT_LR, "Learning rate", "Of the inner optimizer.", "Learning rate by step", "step", "rate",
     NULL, false, true, false, false},
    {REPORT_RATE, "Speed", "Tokens per second of each site's steps, exchanges left out.",
     "Tokens per second by time", "minutes", "tokens/s", NULL, false, true, true, false}};

/* Mean over the points within `half` of i that are finite. */
static double mean_around(const struct report_points *p, size_t i, size_t half)
{
    double sum = 0, n = 0;
    for (size_t k = i > half ? i - half : 0; k <= i + half && k < p->count; k++)
        if (isfinite(p->y[k])) {
            sum += p->y[k];
            n++;
        }
    return n > 0 ? sum / n : NAN;
}

/* At most POINTS_MAX points, each the mean over half a window to both sides. */
static struct report_points points_thin(const struct report_points *p, size_t window,
                                        struct arena *a)
{
    struct report_points t = {0};
    size_t group = p->count / POINTS_MAX + 1, half = (window > group ? window : group) / 2;
    t.x = arena_array(a, p->count + 1, sizeof *t.x);
    t.y = arena_array(a, p->count + 1, sizeof *t.y);
    if (!t.x || !t.y)
        return t;
    for (size_t i = 0; i < p->count; i += group) {
        t.x[t.count] = p->x[i];
        t.y[t.count++] = mean_around(p, i, half);
    }
    if (p->count > 1 && t.x[t.count - 1] < p->x[p->count - 1]) { /* the end belongs to it */
        t.x[t.count] = p->x[p->count - 1];
        t.y[t.count++] = mean_around(p, p->count - 1, half);
    }
    return t;
}

/* Bounds of the values at or after `from`; how many there are. */
static size_t points_bounds(const struct report_points *p, double from, double *lo, double *hi)
{
    size_t n = 0;
    for (size_t i = 0; i < p->count; i++)
        if (isfinite(p->y[i]) && p->x[i] >= from) {
            *lo = fmin(*lo, p->y[i]);
            *hi = fmax(*hi, p->y[i]);
            n++;
        }
    return n;
}

struct bounds {
    double lo, hi, x; /* x: the last */
    bool clipped;     /* some values are above hi */
};

/* Of one series of all runs. The initial drop is left out where enough is left. */
static struct bounds frame_bounds(const struct report_runs *r, const struct frame *f)
{
    struct bounds all = {INFINITY, -INFINITY, 0, false}, late = all;
    size_t fewest = SIZE_MAX;
    for (size_t i = 0; i < r->count; i++) {
        const struct report_points *p = &r->run[i].series[f->series];
        all.x = p->count ? fmax(all.x, p->x[p->count - 1]) : all.x;
    }
    late.x = all.x;
    for (size_t i = 0; i < r->count; i++) {
        const struct report_points *p = &r->run[i].series[f->series];
        size_t n = points_bounds(p, all.x * DROP, &late.lo, &late.hi);
        points_bounds(p, -INFINITY, &all.lo, &all.hi);
        fewest = p->count && n < fewest ? n : fewest;
    }
    late.clipped = all.hi > late.hi;
    struct bounds b = f->drop && fewest >= POINTS_FEW ? late : all;
    b.lo = f->zero ? fmin(0, b.lo) : b.lo;
    return b;
}

static void curve_draw(struct plot *p, const struct report_runs *r, size_t i, const struct frame *f)
{
    const struct report_points *s = &r->run[i].series[f->series];
    unsigned color = report_color(r, i);
    char text[48];
    if (!s->count)
        return;
    size_t window = f->smooth ? s->count / 25 + 1 : 1;
    struct report_points line = points_thin(s, window, r->a);
    plot_line(p, color, false, line.x, line.y, line.count);
    if (f->dots)
        plot_dots(p, color, s->x, s->y, s->count, r->run[i].name);
    snprintf(text, sizeof text, f->dots ? "%.24s %.3f" : "%.24s", r->run[i].name, report_last(s));
    plot_tag(p, color, report_last(&line), text);
}

static void frame_write(FILE *out, const struct report_runs *r, const struct frame *f)
{
    struct bounds b = frame_bounds(r, f);
    if (!isfinite(b.lo) && !f->none)
        return;
    fprintf(out, "<div><h2>%s</h2><p class=\"note\">%s%s</p>", f->heading, f->note,
            b.clipped && isfinite(b.lo) && b.hi < INFINITY && f->drop ? " Initial drop clipped."
                                                                      : "");
    if (!isfinite(b.lo)) {
        fprintf(out, "<p class=\"soft\">%s</p></div>", f->none);
        return;
    }
    struct plot p;
    plot_begin(&p, out,
               &(struct plot_options){.title = f->title,
                                      .x_label = f->x_label,
                                      .y_label = f->y_label,
                                      .x_hi = b.x > 0 ? b.x : 1,
                                      .y_lo = b.lo,
                                      .y_hi = b.hi,
                                      .tags = true});
    for (size_t i = 0; i < r->count && f->smooth; i++) {
        struct report_points raw = points_thin(&r->run[i].series[f->series], 1, r->a);
        plot_line(&p, report_color(r, i), true, raw.x, raw.y, raw.count);
    }
    for (size_t i = r->count; i-- > 0;)
        curve_draw(&p, r, i, f);
    plot_end(&p);
    fputs("</div>\n", out);
}

void report_plots(FILE *out, const struct report_runs *r)
{
    fputs("<section class=\"grid2\">\n", out);
    for (size_t i = 0; i < sizeof loss_frames / sizeof *loss_frames; i++)
        frame_write(out, r, &loss_frames[i]);
    fputs("</section>\n", out);
}

/* Up and down of each site, in one unit. */
static void bytes_write(FILE *out, const struct report_runs *r)
{
    double most = 0, x = 0;
    for (size_t i = 0; i < r->count; i++)
        for (int k = REPORT_BYTES_UP; k <= REPORT_BYTES_DOWN; k++) {
            const struct report_points *p = &r->run[i].series[k];
            most = p->count ? fmax(most, report_last(p)) : most;
            x = p->count ? fmax(x, p->x[p->count - 1]) : x;
        }
    if (!(most > 0))
        return;
    const char *unit_name;
    double unit = report_byte_unit(most, &unit_name);
    struct plot p;
    fputs("<div><h2>Bytes so far</h2><p class=\"note\">Payload of each site: contributions up "
          "(line), aggregates down (faint line).</p>",
          out);
    plot_begin(&p, out,
               &(struct plot_options){.title = "Bytes so far by step",
                                      .x_label = "step",
                                      .y_label = unit_name,
                                      .x_hi = x > 0 ? x : 1,
                                      .y_hi = most / unit,
                                      .tags = true});
    for (size_t i = 0; i < r->count; i++)
        for (int k = REPORT_BYTES_UP; k <= REPORT_BYTES_DOWN; k++) {
            struct report_points t = points_thin(&r->run[i].series[k], 1, r->a);
            for (size_t n = 0; n < t.count; n++)
                t.y[n] /= unit;
            plot_line(&p, report_color(r, i), k == REPORT_BYTES_DOWN, t.x, t.y, t.count);
            if (k == REPORT_BYTES_UP && t.count)
                plot_tag(&p, report_color(r, i), report_last(&t), r->run[i].name);
        }
    plot_end(&p);
    fputs("</div>\n", out);
}

void report_series(FILE *out, const struct report_runs *r)
{
    fputs("<section class=\"grid2\">\n", out);
    for (size_t i = 0; i < sizeof series_frames / sizeof *series_frames; i++)
        frame_write(out, r, &series_frames[i]);
    bytes_write(out, r);
    fputs("</section>\n", out);
}
