/* atoll report: one HTML page about one or more run directories. */
#include <stdio.h>
#include "kernels/base/args.h"
#include "outer/cmd/cmd.h"
#include "outer/report/report.h"

static enum err report(const struct args *args, const char *out, const char *wan, struct arena *a)
{
    struct report_run *runs;
    size_t count = (size_t)args->operand_count;
    if (count == 0 || count > REPORT_RUNS_MAX)
        return err_set(
            ERR_CONFIG,
            "report: give one to %d directories of sites, of the aggregator, or of both: "
            "atoll report run-a run-b aggregator --out report.html",
            REPORT_RUNS_MAX);
    TRY(report_data_read(&runs, &count, (const char *const *)args->operand, count, a));
    TRY(report_write(out, runs, count, wan, a));
    for (size_t i = 0; i < count; i++)
        if (runs[i].role == REPORT_AGGREGATOR && *runs[i].ended_short)
            printf("%s: %s\n", runs[i].name, runs[i].ended_short);
    printf("%s\n", out);
    return ERR_OK;
}

enum err cmd_report(int argc, char **argv)
{
    const char *out = "report.html", *wan = NULL;
    const struct args_option options[] = {
        {"out", ARGS_TEXT, &out, .value = "FILE", .help = "Where the page goes."},
        {"wan", ARGS_TEXT, &wan, .value = "FILE",
         .help =
             "What an emulated network between them did (atoll wan --record FILE): a table of it."},
    };
    struct args args = {
        .command = "report",
        .summary =
            "Writes one self-contained HTML page about the given directories (run.dir of each "
            "`atoll train`, serve.dir of `atoll serve`; any of them, and metrics.jsonl alone is "
            "enough): loss, bytes, time, events, configuration. It opens offline.",
        .example = "atoll report run-a run-b aggregator --out report.html",
        .operands = "DIR...",
        .options = options,
        .count = sizeof options / sizeof *options};
    struct arena arena = arena_make(0);
    enum err e = args_parse(&args, argc, argv, &arena);
    if (e == ERR_OK && !args.help)
        e = report(&args, out, wan, &arena);
    arena_free(&arena);
    return e;
}
