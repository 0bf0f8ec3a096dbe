/* The report's bars: bytes and times of each round, and the aggregator's rounds. */
#include <math.h>
#include "outer/report/report_own.h"

enum { BARS_MAX = 160 };

struct bar { /* means over rounds that are alike: first .. first + n */
    size_t first, n;
    double up, up_predicted, down, down_predicted, ms[REPORT_TIMES], waited_ms;
};

/* A full-precision round is larger than the others of its fragment: a mean would hide it. */
static double smallest_up(const struct report_run *r, double fragment)
{
    double least = INFINITY;
    for (size_t i = 0; i < r->round_count; i++)
        if (r->rounds[i].fragment == fragment && r->rounds[i].up_predicted > 0)
            least = fmin(least, r->rounds[i].up_predicted);
    return least;
}

struct bars {
    const struct report_run *run;
    double least[64]; /* of each fragment; fragments beyond share the last */
    size_t group;     /* rounds of a bar, at most */
};

static void bars_open(struct bars *b, const struct report_run *r)
{
    *b = (struct bars){.run = r, .group = (r->round_count + BARS_MAX - 1) / BARS_MAX};
    for (int f = 0; f < 64; f++)
        b->least[f] = smallest_up(r, f);
}

static bool is_full(const struct bars *b, size_t i)
{
    const struct report_round *n = &b->run->rounds[i];
    int f = n->fragment >= 0 && n->fragment < 64 ? (int)n->fragment : 63;
    return n->up_predicted > 1.3 * b->least[f];
}

/* The bar that begins at `first`; n 0: there is none. */
static struct bar bar_next(const struct bars *b, size_t first)
{
    const struct report_run *r = b->run;
    struct bar s = {.first = first};
    while (first + s.n < r->round_count && s.n < b->group &&
           is_full(b, first + s.n) == is_full(b, first))
        s.n++;
    for (size_t i = first; i < first + s.n; i++) {
        const struct report_round *n = &r->rounds[i];
        double share = 1.0 / (double)s.n;
        s.up += n->up * share;
        s.up_predicted += n->up_predicted * share;
        s.down += n->down * share;
        s.down_predicted += n->down_predicted * share;
        s.waited_ms += n->waited_ms * share;
        for (int k = 0; k < REPORT_TIMES; k++)
            s.ms[k] += n->ms[k] * share;
    }
    return s;
}

static double bar_x(const struct bars *b, const struct bar *s)
{
    return (report_round_x(b->run, s->first) + report_round_x(b->run, s->first + s->n - 1)) / 2;
}

/* "round 8", "rounds 8 to 9", "fragment 2 round 8" */
static void bar_name(char out[64], const struct bars *b, const struct bar *s)
{
    const struct report_round *n = &b->run->rounds[s->first];
    if (s->n > 1)
        snprintf(out, 64, "rounds %.0f to %.0f", report_round_x(b->run, s->first),
                 report_round_x(b->run, s->first + s->n - 1));
    else if (report_fragments(b->run))
        snprintf(out, 64, "fragment %.0f round %.0f", n->fragment, n->round);
    else
        snprintf(out, 64, "round %.0f", n->round);
}

static void rounds_begin(struct plot *p, FILE *out, const struct report_run *r, const char *title,
                         const char *y_label, double most)
{
    fputs("<div><h2>", out);
    plot_escape(out, r->name);
    fputs("</h2>", out);
    plot_begin(p, out,
               &(struct plot_options){.title = title,
                                      .x_label = report_round_label(r),
                                      .y_label = y_label,
                                      .x_lo = report_round_x(r, 0) - 0.5,
                                      .x_hi = report_round_x(r, r->round_count - 1) + 0.5,
                                      .y_hi = most,
                                      .bars = true});
}

/* ---- bytes ---- */
struct byte_bar {
    const char *fill, *direction;
    double unit, opacity, x, half, bytes, predicted;
};

static void byte_bar_draw(struct plot *p, const struct byte_bar *d, const char *name)
{
    char what[160], counted[32], predicted[32];
    snprintf(what, sizeof what, "%s: %s %s B counted, %s B predicted", name, d->direction,
             table_digits(counted, d->bytes), table_digits(predicted, d->predicted));
    plot_bar(p, &(struct plot_bar){d->fill, d->opacity, d->x, d->half * 0.92, 0, d->bytes / d->unit,
                                   what});
    plot_mark(p, d->x, d->half, d->predicted / d->unit);
}

static void bytes_write(FILE *out, const struct report_runs *runs, size_t index)
{
    const struct report_run *r = &runs->run[index];
    struct bars b;
    struct plot p;
    const char *unit_name;
    char label[48], fill[24], name[64];
    double most = 0;
    bars_open(&b, r);
    report_color_css(fill, runs, index);
    for (struct bar s = bar_next(&b, 0); s.n; s = bar_next(&b, s.first + s.n))
        most = fmax(most, fmax(fmax(s.up, s.up_predicted), fmax(s.down, s.down_predicted)));
    double unit = report_byte_unit(most, &unit_name);
    snprintf(label, sizeof label, "%s per round", unit_name);
    rounds_begin(&p, out, r, "Bytes by round", label, most / unit);
    for (struct bar s = bar_next(&b, 0); s.n; s = bar_next(&b, s.first + s.n)) {
        double x = bar_x(&b, &s), quarter = (double)s.n * 0.2;
        bar_name(name, &b, &s);
        byte_bar_draw(
            &p, &(struct byte_bar){fill, "up", unit, 1, x - quarter, quarter, s.up, s.up_predicted},
            name);
        byte_bar_draw(&p,
                      &(struct byte_bar){fill, "down", unit, 0.45, x + quarter, quarter, s.down,
                                         s.down_predicted},
                      name);
    }
    plot_end(&p);
    fputs("</div>\n", out);
}

/* ---- times ---- */
static double bar_height(const struct bar *s, int from)
{
    double height = 0;
    for (int k = from; k < REPORT_TIMES; k++)
        height += s->ms[k];
    return height;
}

/* from: REPORT_COMPUTE, or REPORT_ENCODE for the exchange alone. */
static void times_write(FILE *out, const struct report_run *r, int from)
{
    struct bars b;
    struct plot p;
    double most = 0;
    char name[64], what[160], fill[24];
    bars_open(&b, r);
    for (struct bar s = bar_next(&b, 0); s.n; s = bar_next(&b, s.first + s.n))
        most = fmax(most, bar_height(&s, from));
    double unit = most >= 2000 ? 1000 : 1;
    rounds_begin(&p, out, r, from == 0 ? "Time by round" : "Time of the exchange by round",
                 from == 0      ? unit == 1000 ? "seconds, with computing" : "ms, with computing"
                 : unit == 1000 ? "seconds, exchange only"
                                : "ms, exchange only",
                 most / unit);
    for (struct bar s = bar_next(&b, 0); s.n; s = bar_next(&b, s.first + s.n)) {
        double below = 0;
        bar_name(name, &b, &s);
        for (int k = from; k < REPORT_TIMES; k++) {
            snprintf(what, sizeof what, "%s: %s %.1f ms", name, report_time_name[k], s.ms[k]);
            snprintf(fill, sizeof fill, "var(--p%d)", k);
            plot_bar(&p, &(struct plot_bar){fill, 1, bar_x(&b, &s), (double)s.n * 0.4, below,
                                            below + s.ms[k] / unit, what});
            below += s.ms[k] / unit;
        }
    }
    plot_end(&p);
    fputs("</div>\n", out);
}

/* Overlap (outer.overlap_steps): what it was good for. */
static void hidden_write(FILE *out, const struct report_run *r)
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

static bool is_timed(const struct report_run *r)
{
    return report_exchanges(r) && r->role == REPORT_SITE;
}

static bool any_of(const struct report_runs *r, bool (*shows)(const struct report_run *run))
{
    for (size_t i = 0; i < r->count; i++)
        if (shows(&r->run[i]))
            return true;
    return false;
}

static void times_section(FILE *out, const struct report_runs *r)
{
    fputs("<section><h2>Where the time goes</h2><p class=\"note\">Per round: computing since the "
          "one before, then encode, store (durable outbox), send, wait (for the other sites and "
          "the commit), fetch, apply; outage: the aggregator was unreachable. Overlapped exchanges "
          "run beside the computing.</p>",
          out);
    for (size_t i = 0; i < r->count; i++)
        hidden_write(out, &r->run[i]);
    fputs("<div class=\"legend\">", out);
    for (int k = 0; k < REPORT_TIMES; k++)
        fprintf(out, "<span><i style=\"background:var(--p%d)\"></i>%s</span>", k,
                report_time_name[k]);
    fputs("</div><div class=\"grid2\">\n", out);
    for (size_t i = 0; i < r->count; i++)
        if (is_timed(&r->run[i])) {
            times_write(out, &r->run[i], REPORT_COMPUTE);
            times_write(out, &r->run[i], REPORT_ENCODE);
        }
    fputs("</div></section>\n", out);
}

void report_rounds(FILE *out, const struct report_runs *r)
{
    size_t largest = 0;
    if (!any_of(r, report_exchanges))
        return;
    for (size_t i = 0; i < r->count; i++) {
        size_t group = (r->run[i].round_count + BARS_MAX - 1) / BARS_MAX;
        largest = report_exchanges(&r->run[i]) && group > largest ? group : largest;
    }
    fputs(
        "<section><h2>Bytes by round</h2><p class=\"note\">Payload of contributions up (full "
        "colour) and aggregates down (pale) as the link counted it; the line across a bar is what "
        "was predicted from the configuration before the run.",
        out);
    if (largest > 1)
        fprintf(out,
                " A bar is the mean of up to %zu rounds; full-precision rounds have their own.",
                largest);
    fputs("</p>", out);
    report_legend(out, r, report_exchanges);
    fputs("<div class=\"grid2\">\n", out);
    for (size_t i = 0; i < r->count; i++)
        if (report_exchanges(&r->run[i]))
            bytes_write(out, r, i);
    fputs("</div></section>\n", out);
    if (any_of(r, is_timed))
        times_section(out, r);
}

/* ---- the aggregator ---- */
static bool is_committing(const struct report_run *r)
{
    return r->role == REPORT_AGGREGATOR && r->round_count;
}

static void waited_write(FILE *out, const struct report_run *r)
{
    struct bars b;
    struct plot p;
    double most = 0;
    char name[64], what[160];
    bars_open(&b, r);
    for (struct bar s = bar_next(&b, 0); s.n; s = bar_next(&b, s.first + s.n))
        most = fmax(most, s.waited_ms / 1000);
    rounds_begin(&p, out, r, "Wait by round", "seconds from the first contribution to the commit",
                 most);
    for (struct bar s = bar_next(&b, 0); s.n; s = bar_next(&b, s.first + s.n)) {
        const struct report_round *n = &r->rounds[s.first];
        bar_name(name, &b, &s);
        snprintf(what, sizeof what, "%s: %.1f s, %.0f of %.0f sites", name, s.waited_ms / 1000,
                 n->included, n->sites);
        plot_bar(&p,
                 &(struct plot_bar){n->included < n->sites ? "var(--p7)" : "var(--p4)", 1,
                                    bar_x(&b, &s), (double)s.n * 0.4, 0, s.waited_ms / 1000, what});
    }
    plot_end(&p);
    fputs("</div>\n", out);
}

static void norm_write(FILE *out, const struct report_runs *runs, const struct report_run *r)
{
    double *x = arena_array(runs->a, r->round_count, sizeof *x), most = 0;
    double *y = arena_array(runs->a, r->round_count, sizeof *y);
    struct plot p;
    for (size_t i = 0; x && y && i < r->round_count; i++) {
        x[i] = report_round_x(r, i);
        y[i] = r->rounds[i].momentum_norm;
        most = isfinite(y[i]) ? fmax(most, y[i]) : most;
    }
    if (!x || !y || !(most > 0))
        return;
    rounds_begin(&p, out, r, "Norm of the outer momentum", "norm of the outer momentum", most);
    plot_line(&p, PLOT_COLORS - 1, false, x, y, r->round_count);
    plot_end(&p);
    fputs("</div>\n", out);
}

void report_aggregator(FILE *out, const struct report_runs *r)
{
    if (!any_of(r, is_committing))
        return;
    fputs("<section><h2>The aggregator</h2><p class=\"note\">How long each round waited for its "
          "last contribution; red: a site is missing from the round.</p><div class=\"grid2\">\n",
          out);
    for (size_t i = 0; i < r->count; i++)
        if (is_committing(&r->run[i])) {
            waited_write(out, &r->run[i]);
            norm_write(out, r, &r->run[i]);
        }
    fputs("</div></section>\n", out);
}
