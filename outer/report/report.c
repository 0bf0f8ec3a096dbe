#include "outer/report/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "outer/report/progress.h"
#include "outer/report/report_own.h"

/* clang-format off */
static const char page_head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<style>\n"
    ":root{--bg:#fff;--card:#fff;--ink:#1c2127;--soft:#5b6570;--rule:#e3e7eb;--axis:#9aa4ae;--mark:#1c2127;\n"
    "--s0:#0b6bb3;--s1:#d1570a;--s2:#12805c;--s3:#a6478c;--s4:#8a6d00;--s5:#2f8f9d;--s6:#7f4fc9;--s7:#6a737d;\n"
    "--p0:#d7dde3;--p1:#b08968;--p2:#8a8f5c;--p3:#5a8f8c;--p4:#e3b341;--p5:#7fb069;--p6:#9a7fb0;--p7:#c0392b}\n"
    "@media(prefers-color-scheme:dark){:root{\n"
    "--bg:#14171a;--card:#1a1e22;--ink:#e6e9ec;--soft:#9aa5b0;--rule:#2b3137;--axis:#56606a;--mark:#f2f4f6;\n"
    "--s0:#5ab0f2;--s1:#ff9a57;--s2:#4fc79b;--s3:#e08ac8;--s4:#dcbb4a;--s5:#6fced9;--s6:#b794f6;--s7:#a9b3bd;\n"
    "--p0:#3a424a;--p1:#b08968;--p2:#9da26a;--p3:#6fa8a4;--p4:#d9a93b;--p5:#84b56c;--p6:#a78bbd;--p7:#e05a4b}}\n"
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
    ".gridw{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,620px),1fr));gap:26px 28px}\n"
    ".gridw>div{min-width:0}\n"
    ".grid2>div{min-width:0;display:flex;flex-direction:column}\n"
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
    "white-space:pre-wrap;overflow-wrap:anywhere;font-size:12.5px;line-height:1.45;margin:8px 0}\n"
    "code{font-size:12.5px;overflow-wrap:anywhere}\n"
    "@media(max-width:700px){table,tbody,tr{display:block;width:100%}tr.head{display:none}\n"
    "tr{border-bottom:1px solid var(--rule);padding:6px 0}\n"
    "td,th{border:0;padding:1px 0;display:flex;justify-content:space-between;gap:14px;white-space:normal}\n"
    "td.none{display:none}td[data-l]::before{content:attr(data-l);color:var(--soft)}td.n{text-align:right}}\n"
    "summary{cursor:pointer;font-weight:600}\n"
    "</style>\n";
/* clang-format on */

void report_page_begin(FILE *out, const char *title)
{
    fputs(page_head, out);
    fputs("<title>", out);
    plot_escape(out, title);
    fputs("</title></head><body><main>\n<section>", out);
}

/* ---- what the sections share ---- */
unsigned report_color(const struct report_runs *r, size_t i)
{
    bool site = r->run[i].role == REPORT_SITE || r->run[i].role == REPORT_SEEN;
    return site ? (unsigned)(i % (PLOT_COLORS - 1)) : PLOT_COLORS - 1;
}

void report_color_css(char out[24], const struct report_runs *r, size_t i)
{
    snprintf(out, 24, "var(--s%u)", report_color(r, i));
}

bool report_exchanges(const struct report_run *r)
{
    return r->round_count && r->role != REPORT_AGGREGATOR;
}

bool report_fragments(const struct report_run *r)
{
    for (size_t i = 0; i < r->round_count; i++)
        if (r->rounds[i].fragment > 0)
            return true;
    return false;
}

double report_round_x(const struct report_run *r, size_t i)
{
    return report_fragments(r) ? (double)i : r->rounds[i].round;
}

const char *report_round_label(const struct report_run *r)
{
    return report_fragments(r) ? "rounds of all fragments, in order" : "round";
}

double report_byte_unit(double most, const char **name)
{
    double unit = most >= 2e9 ? 1e9 : most >= 2e6 ? 1e6 : most >= 2e3 ? 1e3 : 1;
    *name = unit == 1e9 ? "GB" : unit == 1e6 ? "MB" : unit == 1e3 ? "kB" : "B";
    return unit;
}

void report_legend(FILE *out, const struct report_runs *r,
                   bool (*shows)(const struct report_run *run))
{
    fputs("<div class=\"legend\">", out);
    for (size_t i = 0; i < r->count; i++) {
        if (!shows(&r->run[i]))
            continue;
        fprintf(out, "<span><i style=\"background:var(--s%u)\"></i>", report_color(r, i));
        plot_escape(out, r->run[i].name);
        fputs("</span>", out);
    }
    fputs("<span><i class=\"l\"></i>predicted</span></div>", out);
}

/* ---- tiles ---- */
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

static void tiles_loss(FILE *out, const struct report_run *site, const struct report_run *alone)
{
    char value[64], what[96];
    const struct report_points *e = &site->series[REPORT_EVAL];
    if (e->count) {
        snprintf(value, sizeof value, "%.3f", report_last(e));
        snprintf(what, sizeof what, "eval loss%s (%.3f at start)",
                 site->role == REPORT_ALONE ? "" : ", all sites together", e->y[0]);
        tile(out, value, what);
    }
    if (alone && alone->series[REPORT_EVAL].count) {
        snprintf(value, sizeof value, "%.3f", report_last(&alone->series[REPORT_EVAL]));
        tile(out, value, "eval loss of one site alone");
    }
}

static void tiles_bytes(FILE *out, const struct report_run *site)
{
    char value[64];
    const struct report_points *loss = &site->series[REPORT_LOSS];
    struct totals t = total_of(site);
    progress_bytes(value, sizeof value, t.up);
    tile(out, value, "sent by each site");
    /* data parallel over the link: the f32 gradients of every step leave the site */
    double per_step = site->parameters * 4 * (loss->count ? loss->x[loss->count - 1] : 0);
    if (t.up > 0 && per_step > 0) {
        snprintf(value, sizeof value, "%.0f x", per_step / t.up);
        tile(out, value, "less than f32 gradients each step");
    }
}

static void tiles_write(FILE *out, const struct report_runs *r)
{
    char value[64];
    const struct report_run *site = &r->run[0], *alone = NULL;
    fputs("<div class=\"tiles\">\n", out);
    for (size_t i = r->count; i-- > 0;) {
        if (report_exchanges(&r->run[i]))
            site = &r->run[i];
        if (r->run[i].role == REPORT_ALONE && r->count > 1)
            alone = &r->run[i];
    }
    tiles_loss(out, site, alone == site ? NULL : alone);
    if (site->tokens > 0) {
        snprintf(value, sizeof value, "%.2f M", site->tokens / 1e6);
        tile(out, value, "tokens per site");
    }
    snprintf(value, sizeof value, "%.2f M", site->parameters / 1e6);
    tile(out, value, "parameters");
    if (report_exchanges(site))
        tiles_bytes(out, site);
    progress_duration(value, sizeof value, site->last_t - site->first_t);
    tile(out, value, "wall time");
    fputs("</div>\n", out);
}

/* ---- tables ---- */
static const char *const summary_row[] = {"",
                                          "steps",
                                          "tokens/s",
                                          "training loss, last step",
                                          "eval loss, first",
                                          "eval loss, last",
                                          "payload up",
                                          "payload up, predicted",
                                          "payload down",
                                          "payload down, predicted",
                                          "up with TLS and framing",
                                          "down with TLS and framing",
                                          "time computing",
                                          "time in exchanges",
                                          "of that, waiting for others",
                                          "of that, aggregator unreachable"};
enum { SUMMARY_COLUMNS = sizeof summary_row / sizeof *summary_row, CELL_MAX = 40 };

static void summary_times(const struct report_run *r, char cell[SUMMARY_COLUMNS][CELL_MAX])
{
    double s[REPORT_SPENTS], all;
    report_spent(r, s, &all);
    double exchange = s[REPORT_SPENT_EXCHANGE] + s[REPORT_SPENT_WAIT] + s[REPORT_SPENT_OUTAGE];
    double of = exchange > 0 ? exchange : 1;
    const double share[] = {report_compute_share(r), exchange / all, s[REPORT_SPENT_WAIT] / of,
                            s[REPORT_SPENT_OUTAGE] / of};
    for (int k = 0; all > 0 && k < 4; k++)
        snprintf(cell[12 + k], CELL_MAX, "%.1f %%", 100 * share[k]);
}

static void summary_make(const struct report_run *r, char cell[SUMMARY_COLUMNS][CELL_MAX])
{
    const struct report_points *loss = &r->series[REPORT_LOSS], *eval = &r->series[REPORT_EVAL];
    struct totals t = total_of(r);
    if (loss->count) {
        snprintf(cell[1], CELL_MAX, "%.0f", loss->x[loss->count - 1]);
        snprintf(cell[2], CELL_MAX, "%.0f", r->tokens_per_second);
        if (isfinite(report_last(loss)))
            snprintf(cell[3], CELL_MAX, "%.4f", report_last(loss));
    }
    if (eval->count) {
        snprintf(cell[4], CELL_MAX, "%.4f", eval->y[0]);
        snprintf(cell[5], CELL_MAX, "%.4f", report_last(eval));
    }
    if (!report_exchanges(r))
        return;
    const double bytes[] = {t.up, t.up_predicted, t.down, t.down_predicted, t.wire_up, t.wire_down};
    for (int k = 0; k < 6; k++)
        if (bytes[k] > 0)
            progress_bytes(cell[6 + k], CELL_MAX, bytes[k]);
    summary_times(r, cell);
}

/* One row a quantity, one column a run: few runs side by side, on a narrow page one below the
 * other. */
static void summary_write(FILE *out, const struct report_runs *r)
{
    typedef char cells[SUMMARY_COLUMNS][CELL_MAX];
    cells *cell = arena_array(r->a, r->count, sizeof *cell);
    const char *head[REPORT_COLUMNS_MAX] = {""};
    unsigned columns = 1;
    struct report_table t;
    if (!cell)
        return;
    for (size_t i = 0; i < r->count && columns < REPORT_COLUMNS_MAX; i++)
        if (r->run[i].role != REPORT_AGGREGATOR) {
            summary_make(&r->run[i], cell[columns - 1]);
            head[columns++] = r->run[i].name;
        }
    if (columns == 1)
        return;
    fputs("<section><h2>In numbers</h2>", out);
    table_begin(&t, out, head, columns, 1);
    for (int k = 1; k < SUMMARY_COLUMNS; k++) {
        bool any = false;
        for (unsigned i = 0; i + 1 < columns; i++)
            any = any || cell[i][k][0];
        if (any)
            table_name(&t, summary_row[k]);
        for (unsigned i = 0; any && i + 1 < columns; i++)
            table_number(&t, cell[i][k]);
    }
    table_end(&t);
    fputs("</section>\n", out);
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

static void events_write(FILE *out, const struct report_runs *r)
{
    enum { EVENTS_SHOWN = 60 };
    static const char *const head[] = {"after", "where", "what"};
    size_t total = 0, n = 0;
    struct report_table t;
    for (size_t i = 0; i < r->count; i++)
        total += r->run[i].event_count;
    struct happened *all = arena_array(r->a, total + 1, sizeof *all);
    if (!all || !total)
        return;
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->run[i].event_count; k++)
            all[n++] = (struct happened){&r->run[i], &r->run[i].events[k]};
    qsort(all, total, sizeof *all, by_time);
    fputs("<section><h2>Events</h2>", out);
    table_begin(&t, out, head, 3, 3);
    for (size_t i = 0; i < total; i++) {
        char text[64];
        if (i == EVENTS_SHOWN / 2 && total > EVENTS_SHOWN) {
            snprintf(text, sizeof text, "%zu more", total - EVENTS_SHOWN);
            table_wide(&t, text);
            i += total - EVENTS_SHOWN;
        }
        progress_duration(text, sizeof text, all[i].event->t - all[0].event->t);
        table_text(&t, text);
        table_text(&t, all[i].run->name);
        table_text(&t, all[i].event->text);
    }
    table_end(&t);
    fputs("</section>\n", out);
}

static void digests_write(FILE *out, const struct report_runs *r)
{
    static const char *const name[] = {"parameters", "momentum", "residual", "outer state"};
    static const char *const head[] = {"", "of", "SHA-256"};
    struct report_table t;
    bool any = false;
    for (size_t i = 0; i < r->count; i++)
        any = any || r->run[i].finished;
    if (!any)
        return;
    fputs("<section><h2>Final state</h2><p class=\"note\">All sites must agree on parameters, "
          "momentum and outer state; residuals are each site's own. A run repeated with the same "
          "settings, and any run that was killed and restarted on the way, ends with the same "
          "ones.</p>",
          out);
    table_begin(&t, out, head, 3, 3);
    for (size_t i = 0; i < r->count; i++)
        for (int k = 0; k < 4; k++)
            if (r->run[i].digest[k][0] && strcmp(r->run[i].digest[k], "-") != 0) {
                table_name(&t, r->run[i].name);
                table_text(&t, name[k]);
                table_code(&t, r->run[i].digest[k]);
            }
    table_end(&t);
    fputs("</section>\n", out);
}

static void settings_write(FILE *out, const struct report_runs *r)
{
    static const char *const head[] = {"",       "version", "commit", "compiler",
                                       "device", "ranks",   "threads"};
    struct report_table t;
    fputs("<section><h2>Versions and hardware</h2>", out);
    table_begin(&t, out, head, 7, 5);
    for (size_t i = 0; i < r->count; i++) {
        const struct report_run *run = &r->run[i];
        if (run->role == REPORT_SEEN)
            continue;
        table_name(&t, run->name);
        table_text(&t, run->version);
        table_text(&t, run->commit);
        table_text(&t, run->compiler);
        table_text(&t, run->device);
        table_count(&t, run->ranks);
        table_count(&t, run->threads);
    }
    table_end(&t);
    fputs("</section>\n<section><h2>Reproduce with</h2><pre>", out);
    for (size_t i = 0; i < r->count; i++)
        if (*r->run[i].command) {
            plot_escape(out, r->run[i].command);
            fputs("\n", out);
        }
    fputs("</pre></section>\n<section><h2>Configuration</h2>\n", out);
    for (size_t i = 0; i < r->count; i++) {
        if (!*r->run[i].config)
            continue;
        fprintf(out, "<details%s><summary>", i == 0 ? " open" : "");
        plot_escape(out, r->run[i].name);
        fputs("</summary><pre>", out);
        plot_escape(out, r->run[i].config);
        fputs("</pre></details>\n", out);
    }
    fputs("</section>\n", out);
}

/* ---- the page ---- */
static void title_write(FILE *out, const struct report_runs *r)
{
    char when[64] = "";
    size_t directories = 0;
    jsonl_date(when, sizeof when, "%Y-%m-%d %H:%M UTC",
               r->run[0].first_t > 0 ? r->run[0].first_t : r->run[0].life_t);
    for (size_t i = 0; i < r->count; i++)
        directories += r->run[i].role != REPORT_SEEN;
    fputs(page_head, out);
    fputs("<title>Atoll: ", out);
    plot_escape(out, r->run[0].run);
    fputs("</title></head><body><main>\n<h1>Atoll run \xe2\x80\x9c", out);
    plot_escape(out, r->run[0].run);
    fprintf(out, "\xe2\x80\x9d</h1><p class=\"soft\">%s, %zu director%s</p>\n", when, directories,
            directories == 1 ? "y" : "ies");
}

static enum err page_write(FILE *out, const struct report_runs *r, const char *wan)
{
    title_write(out, r);
    tiles_write(out, r);
    report_plots(out, r);
    report_eval(out, r);
    report_series(out, r);
    report_rounds(out, r);
    report_ledger(out, r);
    if (wan)
        TRY(report_wan(out, wan));
    report_outer(out, r);
    report_aggregator(out, r);
    report_counted(out, r);
    summary_write(out, r);
    events_write(out, r);
    digests_write(out, r);
    settings_write(out, r);
    fputs("</main></body></html>\n", out);
    return ERR_OK;
}

enum err report_write(const char *path, const struct report_run *runs, size_t count,
                      const char *wan, struct arena *a)
{
    const struct report_runs r = {runs, count, a};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return err_set(ERR_MEMORY, "no memory for the report");
    enum err e = page_write(out, &r, wan);
    bool bad = ferror(out);
    bad = fclose(out) != 0 || bad;
    if (e == ERR_OK && bad)
        e = err_set(ERR_MEMORY, "no memory for the report");
    if (e == ERR_OK)
        e = file_write(path, &(struct file_part){text, size}, 1, 0644);
    free(text);
    return e;
}
