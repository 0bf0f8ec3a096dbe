/* SPDX-License-Identifier: Apache-2.0 */
/* atoll status: where a run stands, from its directories, or from its aggregator with an observer's
 * certificate. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "kernels/base/args.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/run/observe.h"
#include "outer/view/live.h"
#include "outer/view/page_data.h"

struct status_options {
    const char *format;
    bool json, watch;
    struct observe_options observe;
};

static double status_now(void)
{
    return (double)clock_wall_ms() / 1e3;
}

static void status_show(const struct report_follow *f, const struct status_options *o)
{
    if (o->json) {
        page_data_live(stdout, f, status_now());
        return;
    }
    if (o->watch)
        fputs("\x1b[H\x1b[2J", stdout);
    live_text(stdout, f, status_now());
}

static enum err status_check(const struct report_follow *f)
{
    for (size_t i = 0; i < f->source_count; i++)
        if (!f->source[i].begun)
            return err_set(ERR_INPUT,
                           "%s/%s: there is no record: give the run.dir of an `atoll train`, or "
                           "the serve.dir of an `atoll serve`",
                           f->source[i].dir, RECORD_FILE);
    return ERR_OK;
}

static enum err status_row(void *self, const struct jsonl_row *row)
{
    return report_follow_row(self, row);
}

/* What is new; from afar when there is a link. */
static enum err status_read(struct report_follow *f, struct observe *link)
{
    if (link)
        return observe_read(link, status_row, f);
    TRY(report_follow_read(f));
    return status_check(f);
}

static enum err status(const struct args *args, const struct status_options *o, struct arena *a)
{
    const struct timespec pause = {2, 0};
    struct report_follow f;
    struct observe *link;
    size_t count = (size_t)args->operand_count;
    TRY(observe_choose(&link, &o->observe, count, "status"));
    report_follow_open(&f, (const char *const *)args->operand, count, a);
    enum err e;
    for (;;) {
        e = status_read(&f, link);
        if (e == ERR_OK)
            status_show(&f, o);
        if (e != ERR_OK || !o->watch || fflush(stdout) != 0)
            break;
        nanosleep(&pause, NULL);
    }
    report_follow_close(&f);
    observe_close(link);
    return e;
}

enum err cmd_status(int argc, char **argv, struct arena *arena)
{
    struct status_options o = {.format = "text", .observe = OBSERVE_DEFAULTS};
    const struct args_option options[] = {
        FORMAT_ROW(&o.format, ", the one that the live page reads"),
        {"watch", ARGS_FLAG, &o.watch, .help = "Again every 2 s, until Ctrl-C."},
        OBSERVE_ROWS(&o.observe),
    };
    struct args args = {
        .command = "status",
        .summary =
            "Where a run stands, from the directories of its sites and of its aggregator "
            "(metrics.jsonl): state, step, loss, rounds, time to the next sync, time left, "
            "tokens/s, payload, certificate, disk. It disturbs nothing. With --aggregator: from an "
            "aggregator elsewhere.",
        .example = "atoll status aggregator",
        .operands = "[DIR...]",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    log_min(LOG_ERROR); /* a sentence says it */
    TRY(cmd_format(o.format, &o.json));
    return args.help ? ERR_OK : status(&args, &o, arena);
}
