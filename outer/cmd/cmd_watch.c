/* SPDX-License-Identifier: Apache-2.0 */
/* atoll watch: the live page of a run whose processes are elsewhere or serve none, at its own
 * loopback. */
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "kernels/base/args.h"
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "outer/cmd/cmd.h"
#include "outer/run/observe.h"
#include "outer/view/page.h"
#include "outer/link/loopback.h"
#include "outer/view/live.h"

enum { LOOK_S = 2 };

struct watch_options {
    const char *http, *metrics;
    bool table;
    struct observe_options observe;
};

struct watcher {
    struct page page;
    struct observe *link; /* NULL: directories */
    sigset_t signals;
    bool away; /* the aggregator did not answer last */
    atomic_bool reached;
};

static enum err watch_row(void *self, const struct jsonl_row *row)
{
    return page_row(self, row);
}

/* On the page, as a site says it of itself. */
static enum err watch_say(struct watcher *w, const char *text)
{
    char line[512];
    struct jsonl_row row;
    uint64_t now = clock_wall_ms();
    snprintf(line, sizeof line, "{\"kind\":\"notice\",\"t\":%llu.%03llu,\"text\":\"%s\"}",
             (unsigned long long)(now / 1000), (unsigned long long)(now % 1000), text);
    return jsonl_parse(&row, line) ? page_row(&w->page, &row) : ERR_OK;
}

/* An aggregator that does not answer is news, not an end; what it refuses is one. */
static enum err watch_look(struct watcher *w)
{
    enum err e = observe_read(w->link, watch_row, &w->page);
    bool away = e == ERR_LINK;
    if (e != ERR_OK && !away)
        return e;
    atomic_store(&w->reached, !away);
    if (away && !w->away)
        fprintf(stderr, "atoll watch: %s; trying again\n", err_message());
    if (away != w->away)
        TRY(watch_say(w, away ? "aggregator unreachable from here" : "aggregator reached again"));
    w->away = away;
    return ERR_OK;
}

/* Until Ctrl-C or SIGTERM. */
static enum err watch_wait(struct watcher *w)
{
    const struct timespec look = {LOOK_S, 0};
    for (;;) {
        if (w->link)
            TRY(watch_look(w));
        if (w->link ? sigtimedwait(&w->signals, NULL, &look) > 0
                    : sigwaitinfo(&w->signals, NULL) > 0)
            return ERR_OK;
    }
}

static bool watch_ready(void *self, char *why, size_t size)
{
    struct watcher *w = self;
    bool ready = !w->link || atomic_load(&w->reached);
    if (!ready)
        snprintf(why, size, "the aggregator did not answer last");
    return ready;
}

/* A page of a name that was mistyped would wait for its first record for ever. */
static enum err directories_check(const struct args *args)
{
    for (int i = 0; i < args->operand_count; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", args->operand[i], RECORD_FILE);
        if (n >= (int)sizeof path || !file_exists(path))
            return err_set(
                ERR_INPUT,
                "%s: there is no such file: give the run.dir of an `atoll train`, or the "
                "serve.dir of an `atoll serve`",
                path);
    }
    return ERR_OK;
}

static enum err watch_open(struct watcher *w, const struct args *args,
                           const struct watch_options *o)
{
    size_t count = (size_t)args->operand_count;
    if (!loopback_address(o->http))
        return err_set(
            ERR_CONFIG,
            "watch: --http %.60s is no loopback address with a port: any reader who reaches "
            "the page sees it",
            o->http);
    sigemptyset(&w->signals);
    sigaddset(&w->signals, SIGINT);
    sigaddset(&w->signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &w->signals, NULL);
    TRY(observe_choose(&w->link, &o->observe, count, "watch"));
    TRY(directories_check(args));
    TRY(page_open(&w->page, &(struct page_options){.address = o->http,
                                                   .metrics = o->metrics,
                                                   .dirs = (const char *const *)args->operand,
                                                   .dir_count = count,
                                                   .ready = watch_ready,
                                                   .self = w}));
    printf("%s\n", w->page.url);
    if (o->metrics)
        printf("%smetrics\n", w->page.metrics_url);
    return fflush(stdout) == 0 ? ERR_OK : err_set(ERR_IO, "standard output: cannot write");
}

static enum err watch(const struct args *args, const struct watch_options *o)
{
    struct watcher *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(ERR_MEMORY, "no memory for the page");
    enum err e = watch_open(w, args, o);
    if (e == ERR_OK)
        e = watch_wait(w);
    page_close(&w->page);
    observe_close(w->link);
    free(w);
    return e;
}

enum err cmd_watch(int argc, char **argv, struct arena *arena)
{
    struct watch_options o = {.http = "127.0.0.1:8090", .observe = OBSERVE_DEFAULTS};
    const struct args_option options[] = {
        {"http", ARGS_TEXT, &o.http, .value = "ADDRESS",
         .help = "Loopback address and port of the page; port 0 picks one."},
        {"metrics", ARGS_TEXT, &o.metrics, .value = "ADDRESS",
         .help = "Any address and port, for a Prometheus elsewhere: /metrics, /healthz and /readyz "
                 "alone, to every reader. The page stays at the loopback."},
        {"help-metrics", ARGS_FLAG, &o.table,
         .help = "Print the table of what /metrics says, as Markdown, and stop."},
        OBSERVE_ROWS(&o.observe),
    };
    struct args args = {
        .command = "watch",
        .summary =
            "Serves the live page of a run at this machine's loopback, until Ctrl-C: sites, "
            "what they wait for, loss, bytes, where the time goes, events; and /metrics for "
            "Prometheus. It reads the records of the given directories and disturbs nothing; with "
            "--aggregator those of an aggregator elsewhere.",
        .example = "atoll watch aggregator",
        .operands = "[DIR...]",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    log_min(LOG_ERROR); /* a sentence says it */
    if (args.help)
        return ERR_OK;
    if (!o.table)
        return watch(&args, &o);
    live_metrics_table(stdout);
    return ERR_OK;
}
