#include "outer/report/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "outer/report/plot.h"
#include "outer/report/progress.h"
#include "outer/report/report_outer.h"

enum { BARS_MAX = 48, POINTS_MAX = 700 };
/* The first fall of a loss would squeeze all the rest: this share of the steps may leave its
 * picture. */
static const double FALL = 0.08;

/* clang-format off */
static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<style>\n"
    ":root{--bg:#fff;--card:#fff;--ink:#1c2127;--soft:#5b6570;--rule:#e3e7eb;--axis:#9aa4ae;--mark:#1c2127;\n"
    "--s0:#0b6bb3;--s1:#d1570a;--s2:#12805c;--s3:#a6478c;--s4:#8a6d00;--s5:#2f8f9d;--s6:#b3343f;--s7:#6a737d;\n"
    "--p0:#9fc3e3;--p1:#12805c;--p2:#8a6d00;--p3:#d1570a;--p4:#c3cad1;--p5:#a6478c;--p6:#0b6bb3}\n"
    "@media(prefers-color-scheme:dark){:root{\n"
    "--bg:#14171a;--card:#1a1e22;--ink:#e6e9ec;--soft:#9aa5b0;--rule:#2b3137;--axis:#56606a;--mark:#f2f4f6;\n"
    "--s0:#5ab0f2;--s1:#ff9a57;--s2:#4fc79b;--s3:#e08ac8;--s4:#dcbb4a;--s5:#6fced9;--s6:#ff8088;--s7:#a9b3bd;\n"
    "--p0:#335c80;--p1:#4fc79b;--p2:#dcbb4a;--p3:#ff9a57;--p4:#49525b;--p5:#e08ac8;--p6:#5ab0f2}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\n"
    "main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}\n"
    "h1{font-size:24px;margin:0}\n"
    "h2{font-size:16px;margin:0 0 2px}\n"
    "p{margin:4px 0}\n"
    "section{margin-top:34px}\n"
    ".soft{color:var(--soft)}\n"
    ".note{color:var(--soft);font-size:13px;margin:0 0 10px;max-width:75ch}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:12px;margin-top:18px}\n"
    ".tile{border:1px solid var(--rule);border-radius:8px;padding:10px 14px;background:var(--card);min-width:132px}\n"
    ".tile b{display:block;font-size:21px;font-weight:600;font-variant-numeric:tabular-nums}\n"
    ".tile span{color:var(--soft);font-size:12.5px}\n"
    ".grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,470px),1fr));gap:30px 28px}\n"
    ".grid2>div{display:flex;flex-direction:column}\n"
    ".grid2 svg{margin-top:auto}\n"
    "svg{display:block;width:100%;height:auto}\n"
    "svg text{font-size:12px;fill:var(--soft)}\n"
    "svg .tag{font-size:12.5px;font-weight:600}\n"
    ".grid{stroke:var(--rule);stroke-width:1}\n"
    ".axis,.tickmark{stroke:var(--axis);stroke-width:1}\n"
    ".line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}\n"
    ".raw{fill:none;stroke-width:.8;opacity:.28}\n"
    ".dot{stroke:var(--bg);stroke-width:1}\n"
    ".mark{stroke:var(--mark);stroke-width:1.6}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;color:var(--soft);margin:0 0 6px}\n"
    ".legend i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:6px;vertical-align:-1px}\n"
    ".legend i.l{height:0;border-top:2px solid var(--mark);border-radius:0;vertical-align:4px}\n"
    ".wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}\n"
    "th{text-align:left;font-weight:600;color:var(--soft);white-space:nowrap}\n"
    "td,th{padding:4px 16px 4px 0;border-bottom:1px solid var(--rule);vertical-align:top}\n"
    "td.n,th.n{text-align:right}\n"
    "pre{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:12px 14px;"
    "overflow-x:auto;font-size:12.5px;line-height:1.45;margin:8px 0}\n"
    "code{font-size:12.5px}\n"
    "summary{cursor:pointer;font-weight:600}\n"
    "</style>\n";
/* clang-format on */

static unsigned run_color(const struct report_run *runs, size_t i)
{
    return runs[i].alone ? PLOT_COLORS - 1 : (unsigned)(i % (PLOT_COLORS - 1));
}

static double last_y(const struct report_points *p)
{
    return p->count ? p->y[p->count - 1] : NAN;
}

/* ---- tiles --------------------------------------------------------------------------------- */
static void tile(FILE *out, const char *value, const char *what)
{
    fputs("<div class=\"tile\"><b>", out);
    plot_escape(out, value);
    fputs("</b><span>", out);
    plot_escape(out, what);
    fputs("</span></div>\n", out);
}

struct totals {
    double up, up_predicted, down, down_predicted, wire_up, wire_down, ms[REPORT_TIMES];
};

static struct totals total_of(const struct report_run *r)
{
    struct totals t = {0};
    for (size_t i = 0; i < r->round_count; i++) {
        const struct report_round *n = &r->rounds[i];
        t.up += n->up;
        t.up_predicted += n->up_predicted;
        t.down += n->down;
        t.down_predicted += n->down_predicted;
        t.wire_up += n->wire_up;
        t.wire_down += n->wire_down;
        for (int k = 0; k < REPORT_TIMES; k++)
            t.ms[k] += n->ms[k];
    }
    return t;
}

static void write_tiles(FILE *out, const struct report_run *runs, size_t count)
{
    char value[64], what[96];
    const struct report_run *site = &runs[0], *alone = NULL;
    fputs("<div class=\"tiles\">\n", out);
    for (size_t i = 0; i < count; i++)
        if (runs[i].alone && i > 0)
            alone = &runs[i];
    if (site->held_out.count) {
        snprintf(value, sizeof value, "%.3f", last_y(&site->held_out));
        snprintf(what, sizeof what, "held-out loss%s (%.3f at start)",
                 site->alone ? "" : ", all sites together", site->held_out.y[0]);
        tile(out, value, what);
    }
    if (alone && alone->held_out.count) {
        snprintf(value, sizeof value, "%.3f", last_y(&alone->held_out));
        tile(out, value, "held-out loss of one site alone");
    }
    snprintf(value, sizeof value, "%.2f M", site->tokens / 1e6);
    tile(out, value, "tokens per site");
    snprintf(value, sizeof value, "%.2f M", site->parameters / 1e6);
    tile(out, value, "parameters");
    if (site->round_count) {
        struct totals t = total_of(site);
        progress_bytes(value, sizeof value, t.up);
        tile(out, value, "sent by each site");
        /* per-step data-parallel in f32: every step's gradients leave the site */
        double per_step =
            site->parameters * 4 * (site->loss.count ? site->loss.x[site->loss.count - 1] : 0);
        if (t.up > 0 && per_step > 0) {
            snprintf(value, sizeof value, "%.0f x", per_step / t.up);
            tile(out, value, "less than f32 gradients each step");
        }
    }
    progress_duration(value, sizeof value, site->last_t - site->first_t);
    tile(out, value, "wall time");
    fputs("</div>\n", out);
}

/* ---- loss ---------------------------------------------------------------------------------- */
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
static struct report_points thin(const struct report_points *p, size_t window, struct arena *a)
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

static void bounds(const struct report_points *p, double from, double *lo, double *hi)
{
    for (size_t i = 0; i < p->count; i++)
        if (isfinite(p->y[i]) && p->x[i] >= from) {
            *lo = fmin(*lo, p->y[i]);
            *hi = fmax(*hi, p->y[i]);
        }
}

static void write_loss(FILE *out, const struct report_run *runs, size_t count, struct arena *a)
{
    double lo = INFINITY, hi = -INFINITY, steps = 1;
    for (size_t i = 0; i < count; i++)
        steps = fmax(steps, runs[i].loss.count ? runs[i].loss.x[runs[i].loss.count - 1] : 1);
    for (size_t i = 0; i < count; i++)
        bounds(&runs[i].loss, steps * FALL, &lo, &hi);
    fputs("<div><h2>Training loss</h2><p class=\"note\">Each run on its own text, smoothed; the "
          "thin line behind it is every "
          "step. The first fall is above the picture.</p>",
          out);
    if (!isfinite(lo)) {
        fputs("<p class=\"soft\">No step is on record yet.</p></div>", out);
        return;
    }
    struct plot p;
    plot_begin(&p, out,
               &(struct plot_options){.title = "Training loss by step",
                                      .x_label = "step",
                                      .y_label = "nats per token",
                                      .x_lo = 0,
                                      .x_hi = steps,
                                      .y_lo = lo,
                                      .y_hi = hi,
                                      .tags = true});
    for (size_t i = 0; i < count; i++) {
        struct report_points raw = thin(&runs[i].loss, 1, a);
        plot_line(&p, run_color(runs, i), true, raw.x, raw.y, raw.count);
    }
    for (size_t i = count; i-- > 0;) {
        struct report_points smooth = thin(&runs[i].loss, runs[i].loss.count / 25 + 1, a);
        plot_line(&p, run_color(runs, i), false, smooth.x, smooth.y, smooth.count);
        plot_tag(&p, run_color(runs, i), last_y(&smooth), runs[i].name);
    }
    plot_end(&p);
    fputs("</div>\n", out);
}

static void write_held_out(FILE *out, const struct report_run *runs, size_t count)
{
    double lo = INFINITY, hi = -INFINITY, steps = 1;
    for (size_t i = 0; i < count; i++)
        steps = fmax(steps,
                     runs[i].held_out.count ? runs[i].held_out.x[runs[i].held_out.count - 1] : 1);
    for (size_t i = 0; i < count; i++)
        bounds(&runs[i].held_out, steps * FALL, &lo, &hi);
    fputs("<div><h2>Held-out loss</h2><p class=\"note\">The same text for all, seen by none. After "
          "a round all sites hold the "
          "same parameters: their points coincide.</p>",
          out);
    if (!isfinite(lo)) {
        fputs(
            "<p class=\"soft\">No evaluation is on record (train.eval_every, data.eval).</p></div>",
            out);
        return;
    }
    struct plot p;
    plot_begin(&p, out,
               &(struct plot_options){.title = "Held-out loss by step",
                                      .x_label = "step",
                                      .y_label = "nats per token",
                                      .x_lo = 0,
                                      .x_hi = steps,
                                      .y_lo = lo,
                                      .y_hi = hi,
                                      .tags = true});
    for (size_t i = count; i-- > 0;) {
        const struct report_points *h = &runs[i].held_out;
        plot_line(&p, run_color(runs, i), false, h->x, h->y, h->count);
        plot_dots(&p, run_color(runs, i), h->x, h->y, h->count, runs[i].name);
        char text[48];
        snprintf(text, sizeof text, "%.24s %.3f", runs[i].name, last_y(h));
        plot_tag(&p, run_color(runs, i), last_y(h), text);
    }
    plot_end(&p);
    fputs("</div>\n", out);
}

/* ---- rounds: bars, several rounds to a bar when there are many ----------------------------- */
static double byte_unit(double most, const char **name)
{
    double unit = most >= 2e9 ? 1e9 : most >= 2e6 ? 1e6 : most >= 2e3 ? 1e3 : 1;
    *name = unit == 1e9 ? "GB" : unit == 1e6 ? "MB" : unit == 1e3 ? "kB" : "B";
    return unit;
}

static size_t bar_group(const struct report_run *r)
{
    return (r->round_count + BARS_MAX - 1) / BARS_MAX;
}

struct bar { /* means over its exchanges, bytes */
    double up, up_predicted, down, down_predicted;
};

static size_t in_bar(const struct report_run *r, size_t first, size_t group)
{
    return r->round_count - first < group ? r->round_count - first : group;
}

static struct bar bar_of(const struct report_run *r, size_t first, size_t n)
{
    struct bar b = {0};
    for (size_t i = first; i < first + n; i++) {
        b.up += r->rounds[i].up / (double)n;
        b.up_predicted += r->rounds[i].up_predicted / (double)n;
        b.down += r->rounds[i].down / (double)n;
        b.down_predicted += r->rounds[i].down_predicted / (double)n;
    }
    return b;
}

static void draw_bytes(struct plot *p, const struct report_run *r, size_t group, double unit)
{
    for (size_t i = 0; i < r->round_count; i += group) {
        size_t n = in_bar(r, i, group);
        struct bar b = bar_of(r, i, n);
        double middle = (double)i + 1 + ((double)n - 1) / 2, quarter = (double)n * 0.2;
        char what[128];
        snprintf(what, sizeof what, "exchange %zu: up %.0f B counted, %.0f B predicted", i + 1,
                 b.up, b.up_predicted);
        plot_bar(p, 6, middle - quarter, quarter * 0.92, 0, b.up / unit, what);
        snprintf(what, sizeof what, "exchange %zu: down %.0f B counted, %.0f B predicted", i + 1,
                 b.down, b.down_predicted);
        plot_bar(p, 3, middle + quarter, quarter * 0.92, 0, b.down / unit, what);
        plot_mark(p, middle - quarter, quarter, b.up_predicted / unit);
        plot_mark(p, middle + quarter, quarter, b.down_predicted / unit);
    }
}

static void write_bytes(FILE *out, const struct report_run *r)
{
    size_t group = bar_group(r);
    double most = 0;
    for (size_t i = 0; i < r->round_count; i += group) {
        struct bar b = bar_of(r, i, in_bar(r, i, group));
        most = fmax(most, fmax(fmax(b.up, b.up_predicted), fmax(b.down, b.down_predicted)));
    }
    const char *unit_name;
    double unit = byte_unit(most, &unit_name);
    char label[48];
    snprintf(label, sizeof label, "%s per exchange", unit_name);
    fputs("<div><h2>", out);
    plot_escape(out, r->name);
    fputs("</h2>", out);
    struct plot p;
    plot_begin(&p, out,
               &(struct plot_options){.title = "Bytes by exchange",
                                      .x_label = "exchange",
                                      .y_label = label,
                                      .x_lo = 0.5,
                                      .x_hi = (double)r->round_count + 0.5,
                                      .y_lo = 0,
                                      .y_hi = most / unit,
                                      .bars = true});
    draw_bytes(&p, r, group, unit);
    plot_end(&p);
    fputs("</div>\n", out);
}

static double mean_ms(const struct report_run *r, size_t first, size_t n, int part)
{
    double sum = 0;
    for (size_t i = first; i < first + n; i++)
        sum += r->rounds[i].ms[part];
    return sum / (double)n;
}

/* from: first of the parts shown; 0 with compute, 1 the exchange alone. */
static void write_times(FILE *out, const struct report_run *r, int from)
{
    size_t group = bar_group(r);
    double most = 0;
    for (size_t i = 0; i < r->round_count; i += group) {
        double height = 0;
        for (int k = from; k < REPORT_TIMES; k++)
            height += mean_ms(r, i, in_bar(r, i, group), k);
        most = fmax(most, height);
    }
    double unit = most >= 2000 ? 1000 : 1;
    struct plot p;
    fputs("<div><h2>", out);
    plot_escape(out, r->name);
    fputs(from == 0 ? ": whole round</h2>" : ": exchange only</h2>", out);
    plot_begin(&p, out,
               &(struct plot_options){.title = "Time by exchange",
                                      .x_label = "exchange",
                                      .y_label = unit == 1000 ? "seconds" : "milliseconds",
                                      .x_lo = 0.5,
                                      .x_hi = (double)r->round_count + 0.5,
                                      .y_lo = 0,
                                      .y_hi = most / unit,
                                      .bars = true});
    for (size_t i = 0; i < r->round_count; i += group) {
        double below = 0;
        size_t n = in_bar(r, i, group);
        for (int k = from; k < REPORT_TIMES; k++) {
            double ms = mean_ms(r, i, n, k);
            char what[96];
            snprintf(what, sizeof what, "exchange %zu: %s %.1f ms", i + 1, report_time_name[k], ms);
            plot_bar(&p, (unsigned)k, (double)i + 1 + ((double)n - 1) / 2, (double)n * 0.4, below,
                     below + ms / unit, what);
            below += ms / unit;
        }
    }
    plot_end(&p);
    fputs("</div>\n", out);
}

/* Overlap (outer.overlap_steps): what it was good for. */
static void write_hidden(FILE *out, const struct report_run *r)
{
    double hidden = 0, exposed = 0;
    for (size_t i = 0; i < r->round_count; i++) {
        hidden += 1e-3 * r->rounds[i].hidden_ms;
        exposed += 1e-3 * r->rounds[i].exposed_ms;
    }
    if (hidden == 0)
        return;
    fputs("<p class=\"note\">", out);
    plot_escape(out, r->name);
    fprintf(out,
            ": of %.1f s of exchanges %.1f s (%.1f %%) went on beside training; it waited for the "
            "other %.1f s.</p>\n",
            hidden + exposed, hidden, 100 * hidden / (hidden + exposed), exposed);
}

static void write_rounds(FILE *out, const struct report_run *runs, size_t count)
{
    size_t largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = bar_group(&runs[i]) > largest ? bar_group(&runs[i]) : largest;
    if (largest == 0)
        return;
    fputs("<section><h2>Bytes by exchange</h2><p class=\"note\">Payload of contributions and "
          "aggregates as the link counted it; "
          "the line across a bar is what was predicted from the configuration before the run.",
          out);
    if (largest > 1)
        fprintf(out, " One bar is the mean of %zu exchanges.", largest);
    fputs("</p><div class=\"legend\"><span><i style=\"background:var(--p6)\"></i>up</span><span><i "
          "style=\"background:"
          "var(--p3)\"></i>down</span><span><i class=\"l\"></i>predicted</span></div><div "
          "class=\"grid2\">\n",
          out);
    for (size_t i = 0; i < count; i++)
        if (runs[i].round_count)
            write_bytes(out, &runs[i]);
    fputs("</div></section>\n<section><h2>Where the time goes</h2><p class=\"note\">Per exchange: "
          "computing since the one "
          "before, then encode, store (durable outbox), send, wait (for the other sites and the "
          "commit), fetch, "
          "apply. Overlapped exchanges run beside the computing.</p>",
          out);
    for (size_t i = 0; i < count; i++)
        write_hidden(out, &runs[i]);
    fputs("<div class=\"legend\">", out);
    for (int k = 0; k < REPORT_TIMES; k++)
        fprintf(out, "<span><i style=\"background:var(--p%d)\"></i>%s</span>", k,
                report_time_name[k]);
    fputs("</div><div class=\"grid2\">\n", out);
    for (size_t i = 0; i < count; i++)
        if (runs[i].round_count) {
            write_times(out, &runs[i], 0);
            write_times(out, &runs[i], 1);
        }
    fputs("</div></section>\n", out);
}

/* ---- tables -------------------------------------------------------------------------------- */
struct summary { /* one run's column */
    char cell[16][40];
};
static const char *const summary_row[] = {"steps",
                                          "tokens/s",
                                          "training loss, last step",
                                          "held-out loss, first",
                                          "held-out loss, last",
                                          "payload up",
                                          "predicted",
                                          "payload down",
                                          "predicted",
                                          "with TLS and framing, up",
                                          "down",
                                          "time computing",
                                          "time in exchanges",
                                          "of that, waiting for others"};
enum { SUMMARY_ROWS = sizeof summary_row / sizeof *summary_row };

static struct summary summarise(const struct report_run *r)
{
    struct summary s = {0};
    struct totals t = total_of(r);
    double all = 0;
    for (int k = 0; k < REPORT_TIMES; k++)
        all += t.ms[k];
    double exchange = all - t.ms[0];
    snprintf(s.cell[0], sizeof s.cell[0], "%.0f", r->loss.count ? r->loss.x[r->loss.count - 1] : 0);
    snprintf(s.cell[1], sizeof s.cell[1], "%.0f", r->tokens_per_second);
    if (isfinite(last_y(&r->loss)))
        snprintf(s.cell[2], sizeof s.cell[2], "%.4f", last_y(&r->loss));
    if (r->held_out.count) {
        snprintf(s.cell[3], sizeof s.cell[3], "%.4f", r->held_out.y[0]);
        snprintf(s.cell[4], sizeof s.cell[4], "%.4f", last_y(&r->held_out));
    }
    if (r->round_count == 0)
        return s;
    const double bytes[] = {t.up, t.up_predicted, t.down, t.down_predicted, t.wire_up, t.wire_down};
    for (int k = 0; k < 6; k++)
        progress_bytes(s.cell[5 + k], sizeof s.cell[5 + k], bytes[k]);
    const double share[] = {t.ms[0] / all, exchange / all, exchange > 0 ? t.ms[4] / exchange : 0};
    for (int k = 0; all > 0 && k < 3; k++)
        snprintf(s.cell[11 + k], sizeof s.cell[11 + k], "%.1f %%", 100 * share[k]);
    return s;
}

static void write_summary(FILE *out, const struct report_run *runs, size_t count)
{
    struct summary column[REPORT_RUNS_MAX];
    fputs("<section><h2>In numbers</h2><div class=\"wide\"><table><tr><th></th>", out);
    for (size_t i = 0; i < count; i++) {
        column[i] = summarise(&runs[i]);
        fputs("<th class=\"n\">", out);
        plot_escape(out, runs[i].name);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
    for (int k = 0; k < SUMMARY_ROWS; k++) {
        fprintf(out, "<tr><th>%s</th>", summary_row[k]);
        for (size_t i = 0; i < count; i++)
            fprintf(out, "<td class=\"n\">%s</td>", column[i].cell[k]);
        fputs("</tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

struct happened { /* an event and where */
    const struct report_run *run;
    const struct report_event *event;
};

static int by_time(const void *a, const void *b)
{
    const struct happened *x = a, *y = b;
    return (x->event->t > y->event->t) - (x->event->t < y->event->t);
}

static void write_events(FILE *out, const struct report_run *runs, size_t count, struct arena *a)
{
    enum { EVENTS_SHOWN = 60 };
    size_t total = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        total += runs[i].event_count;
    struct happened *all = arena_array(a, total + 1, sizeof *all);
    if (!all)
        return;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < runs[i].event_count; k++)
            all[n++] = (struct happened){&runs[i], &runs[i].events[k]};
    qsort(all, total, sizeof *all, by_time);
    fputs("<section><h2>Events</h2><div class=\"wide\"><table><tr><th "
          "class=\"n\">after</th><th>where</th><th>what</th></tr>\n",
          out);
    for (size_t i = 0; i < total; i++) {
        if (i == EVENTS_SHOWN / 2 && total > EVENTS_SHOWN) {
            fprintf(out, "<tr><td></td><td></td><td class=\"soft\">%zu more</td></tr>\n",
                    total - EVENTS_SHOWN);
            i += total - EVENTS_SHOWN;
        }
        char after[32];
        progress_duration(after, sizeof after, all[i].event->t - all[0].event->t);
        fprintf(out, "<tr><td class=\"n\">%s</td><td>", after);
        plot_escape(out, all[i].run->name);
        fputs("</td><td>", out);
        plot_escape(out, all[i].event->text);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

static void write_digests(FILE *out, const struct report_run *runs, size_t count)
{
    static const char *const name[] = {"parameters", "momentum", "residual"};
    fputs("<section><h2>Final state</h2><p class=\"note\">SHA-256 of the outer state. All sites "
          "must agree on parameters and "
          "momentum; residuals are each site's own. A run repeated with the same settings, and any "
          "run that was "
          "killed and restarted on the way, ends with the same three.</p><div "
          "class=\"wide\"><table>\n",
          out);
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < 3; k++) {
            if (!runs[i].digest[k][0])
                continue;
            fputs("<tr><th>", out);
            plot_escape(out, runs[i].name);
            fprintf(out, "</th><td>%s</td><td><code>", name[k]);
            plot_escape(out, runs[i].digest[k]);
            fputs("</code></td></tr>\n", out);
        }
    fputs("</table></div></section>\n", out);
}

static void write_settings(FILE *out, const struct report_run *runs, size_t count)
{
    fputs(
        "<section><h2>Versions and hardware</h2><div "
        "class=\"wide\"><table><tr><th></th><th>version</th><th>commit</th><th>"
        "compiler</th><th>device</th><th class=\"n\">ranks</th><th class=\"n\">threads</th></tr>\n",
        out);
    for (size_t i = 0; i < count; i++) {
        const char *cell[] = {runs[i].name, runs[i].version, runs[i].commit, runs[i].compiler,
                              runs[i].device};
        fputs("<tr>", out);
        for (int k = 0; k < 5; k++) {
            fputs(k ? "<td>" : "<th>", out);
            plot_escape(out, cell[k]);
            fputs(k ? "</td>" : "</th>", out);
        }
        fprintf(out, "<td class=\"n\">%.0f</td><td class=\"n\">%.0f</td></tr>\n", runs[i].ranks,
                runs[i].threads);
    }
    fputs("</table></div></section>\n<section><h2>Reproduce with</h2><pre>", out);
    for (size_t i = 0; i < count; i++) {
        plot_escape(out, runs[i].command);
        fputs("\n", out);
    }
    fputs("</pre></section>\n<section><h2>Configuration</h2>\n", out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "<details%s><summary>", i == 0 ? " open" : "");
        plot_escape(out, runs[i].name);
        fputs("</summary><pre>", out);
        plot_escape(out, runs[i].config);
        fputs("</pre></details>\n", out);
    }
    fputs("</section>\n", out);
}

static enum err write_page(FILE *out, const struct report_run *runs, size_t count, const char *wan,
                           struct arena *a)
{
    char when[64] = "";
    time_t t = (time_t)runs[0].first_t;
    struct tm parts;
    if (gmtime_r(&t, &parts))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", &parts);
    fputs(head, out);
    fputs("<title>Atoll: ", out);
    plot_escape(out, runs[0].run);
    fputs("</title></head><body><main>\n<h1>Atoll run \xe2\x80\x9c", out);
    plot_escape(out, runs[0].run);
    fprintf(out, "\xe2\x80\x9d</h1><p class=\"soft\">%s, %zu run director%s</p>\n", when, count,
            count == 1 ? "y" : "ies");
    write_tiles(out, runs, count);
    fputs("<section class=\"grid2\">\n", out);
    write_loss(out, runs, count, a);
    write_held_out(out, runs, count);
    fputs("</section>\n", out);
    write_rounds(out, runs, count);
    report_ledger(out, runs, count);
    if (wan)
        TRY(report_wan(out, wan));
    TRY(report_outer(out, runs, count, a));
    write_summary(out, runs, count);
    write_events(out, runs, count, a);
    write_digests(out, runs, count);
    write_settings(out, runs, count);
    fputs("</main></body></html>\n", out);
    return ERR_OK;
}

enum err report_write(const char *path, const struct report_run *runs, size_t count,
                      const char *wan, struct arena *a)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return err_set(ERR_MEMORY, "no memory for the report");
    enum err e = write_page(out, runs, count, wan, a);
    bool bad = ferror(out);
    bad = fclose(out) != 0 || bad;
    if (e == ERR_OK && bad)
        e = err_set(ERR_MEMORY, "no memory for the report");
    if (e == ERR_OK)
        e = file_write(path, &(struct file_part){text, size}, 1, 0644);
    free(text);
    return e;
}
