/* SPDX-License-Identifier: Apache-2.0 */
/* atoll report: one HTML page about one or more run directories. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "kernels/base/args.h"
#include "outer/cmd/cmd.h"
#include "outer/view/officer.h"
#include "outer/view/page_report.h"

enum { FOLLOW_S = 5 };

struct report_options {
    const char *out, *wan;
    bool follow;
};

static enum err report(const struct args *args, const struct report_options *o, bool *ended,
                       struct arena *a)
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
    TRY(page_report_write(o->out, runs, count, o->wan));
    for (size_t i = 0; i < count; i++)
        if (runs[i].role == REPORT_AGGREGATOR && *runs[i].end.short_of_sites)
            fprintf(strcmp(o->out, "-") == 0 ? stderr : stdout, "%s: %s\n", runs[i].name,
                    runs[i].end.short_of_sites);
    *ended = true;
    for (size_t i = 0; i < count; i++)
        *ended = *ended && (runs[i].end.finished || runs[i].role == REPORT_SEEN);
    return ERR_OK;
}

/* Bytes of all records: the page is written again when there are more. */
static uint64_t records_bytes(const struct args *args)
{
    uint64_t bytes = 0;
    char path[4096];
    struct stat st;
    for (int i = 0; i < args->operand_count; i++) {
        snprintf(path, sizeof path, "%s/%s", args->operand[i], RECORD_FILE);
        bytes += stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    }
    return bytes;
}

/* Until every directory's run has ended. */
static enum err report_follow(const struct args *args, const struct report_options *o)
{
    const struct timespec pause = {FOLLOW_S, 0};
    bool ended = false;
    uint64_t before = 0;
    for (;;) {
        uint64_t bytes = records_bytes(args);
        struct arena a = arena_make(0);
        enum err e = bytes == before ? ERR_OK : report(args, o, &ended, &a);
        arena_free(&a);
        if (e != ERR_OK || ended)
            return e;
        if (!before) {
            printf("%s\n", o->out);
            fflush(stdout);
        }
        before = bytes;
        nanosleep(&pause, NULL);
    }
}

static enum err report_once(const struct args *args, const struct report_options *o,
                            struct arena *a)
{
    bool ended;
    bool page = strcmp(o->out, "-") == 0; /* to standard output */
    if (page && o->follow)
        return err_set(ERR_CONFIG, "--follow needs a file: it writes the page again and again");
    TRY(o->follow ? report_follow(args, o) : report(args, o, &ended, a));
    if (!page)
        printf("%s\n", o->out);
    return ERR_OK;
}

/* One site's page for those who answer for its data. */
static enum err privacy(const struct args *args, const char *out, const char *format,
                        struct arena *a)
{
    static const char *const forms[] = {
        [OFFICER_HTML] = "html", [OFFICER_TEXT] = "text", [OFFICER_JSON] = "json"};
    enum { FORMS = sizeof forms / sizeof *forms };
    int form = 0;
    while (form < FORMS && strcmp(format, forms[form]) != 0)
        form++;
    if (form == FORMS || args->operand_count != 1)
        return err_set(ERR_CONFIG, "report --privacy: give the run.dir of one site, and --format "
                                   "html, text or json");
    const char *path = form == OFFICER_HTML ? out : "-";
    TRY(officer_write(path, (enum officer_form)form, args->operand[0], a));
    if (strcmp(path, "-") != 0)
        printf("%s\n", path);
    return ERR_OK;
}

enum err cmd_report(int argc, char **argv, struct arena *arena)
{
    struct report_options o = {.out = "report.html"};
    const char *format = "html";
    bool officer = false;
    const struct args_option options[] = {
        {"out", ARGS_TEXT, &o.out, .value = "FILE",
         .help = "Where the page goes; - is standard output."},
        {"wan", ARGS_TEXT, &o.wan, .value = "FILE",
         .help =
             "What an emulated network between them did (atoll wan --record FILE): a table of it."},
        {"privacy", ARGS_FLAG, &officer,
         .help = "Instead, of one site: what left it, when, to whom and under which keys, its "
                 "epsilon, the audit, what that proves; for a data-protection officer."},
        {"format", ARGS_TEXT, &format, .value = "html|text|json",
         .help = "With --privacy: text and json (one object: title, sections with heading and "
                 "content) go to standard output."},
        {"follow", ARGS_FLAG, &o.follow,
         .help = "Writes the page again as records come, every 5 s, until the run has ended."},
    };
    struct args args = {
        .command = "report",
        .summary =
            "Writes one self-contained HTML page about the given directories (run.dir of each "
            "`atoll train`, serve.dir of `atoll serve`; any of them, and metrics.jsonl alone is "
            "enough): loss, bytes, time, events, configuration. It opens offline.",
        .example = "atoll report run-a run-b aggregator --out report.html",
        .operands = "DIR...",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    return officer ? privacy(&args, o.out, format, arena) : report_once(&args, &o, arena);
}
