/* atoll watch: the live page of a run whose processes are elsewhere or serve none, at the own
 * loopback. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/args.h"
#include "outer/cmd/cmd.h"
#include "outer/cmd/page.h"
#include "outer/link/loopback.h"
#include "outer/report/live.h"

struct watch_options {
    const char *http;
    bool metrics;
};

/* Until Ctrl-C or SIGTERM. */
static enum err watch_wait(const sigset_t *signals)
{
    while (sigwaitinfo(signals, NULL) < 0)
        ;
    return ERR_OK;
}

static enum err watch_directories(const struct args *args, const struct watch_options *o)
{
    struct page page = {0};
    sigset_t signals;
    size_t count = (size_t)args->operand_count;
    if (!count || count > REPORT_RUNS_MAX)
        return err_set(ERR_CONFIG,
                       "watch: give one to %d directories of sites, of the aggregator, or of both: "
                       "atoll watch aggregator",
                       REPORT_RUNS_MAX);
    if (!loopback_address(o->http))
        return err_set(
            ERR_CONFIG,
            "watch: --http %.60s is no loopback address with a port: whoever reaches the "
            "page sees it",
            o->http);
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    enum err e = page_open(&page, &(struct page_options){.address = o->http,
                                                         .dirs = (const char *const *)args->operand,
                                                         .dir_count = count});
    if (e == ERR_OK) {
        printf("%s\n", page.url);
        fflush(stdout);
        e = watch_wait(&signals);
    }
    page_close(&page);
    return e;
}

enum err cmd_watch(int argc, char **argv)
{
    struct watch_options o = {.http = "127.0.0.1:8090"};
    const struct args_option options[] = {
        {"http", ARGS_TEXT, &o.http, .value = "ADDRESS",
         .help = "Loopback address and port of the page; port 0 picks one."},
        {"help-metrics", ARGS_FLAG, &o.metrics,
         .help = "Print the table of what /metrics says, as Markdown, and stop."},
    };
    struct args args = {
        .command = "watch",
        .summary =
            "Serves the live page of a run at this machine's loopback, until Ctrl-C: sites, "
            "what they wait for, loss, bytes, where the time goes, events; and /metrics for "
            "Prometheus. It reads the records of the given directories and disturbs nothing.",
        .example = "atoll watch aggregator",
        .operands = "DIR...",
        .options = options,
        .count = sizeof options / sizeof *options};
    struct arena arena = arena_make(0);
    enum err e = args_parse(&args, argc, argv, &arena);
    if (e == ERR_OK && !args.help && o.metrics)
        live_metrics_table(stdout);
    else if (e == ERR_OK && !args.help)
        e = watch_directories(&args, &o);
    arena_free(&arena);
    return e;
}
