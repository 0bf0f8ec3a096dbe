/* atoll report: one HTML page about one or more run directories. */
#include <stdio.h>
#include <string.h>
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

/* One site's page for those who answer for its data. */
static enum err privacy(const struct args *args, const char *out, const char *format,
                        struct arena *a)
{
    bool text = strcmp(format, "text") == 0;
    if (args->operand_count != 1 || (!text && strcmp(format, "html") != 0))
        return err_set(ERR_CONFIG, "report --privacy: give the run.dir of one site, and --format "
                                   "html or text");
    TRY(report_privacy(text ? NULL : out, args->operand[0], a));
    if (!text)
        printf("%s\n", out);
    return ERR_OK;
}

enum err cmd_report(int argc, char **argv)
{
    const char *out = "report.html", *wan = NULL, *format = "html";
    bool officer = false;
    const struct args_option options[] = {
        {"out", ARGS_TEXT, &out, .value = "FILE", .help = "Where the page goes."},
        {"wan", ARGS_TEXT, &wan, .value = "FILE",
         .help =
             "What an emulated network between them did (atoll wan --record FILE): a table of it."},
        {"privacy", ARGS_FLAG, &officer,
         .help = "Instead, of one site: what left it, when, to whom and under which keys, its "
                 "epsilon, the audit, what that proves; for a data-protection officer."},
        {"format", ARGS_TEXT, &format, .value = "html|text",
         .help = "With --privacy: text goes to the terminal."},
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
        e = officer ? privacy(&args, out, format, &arena) : report(&args, out, wan, &arena);
    arena_free(&arena);
    return e;
}
