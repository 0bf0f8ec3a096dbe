/* SPDX-License-Identifier: Apache-2.0 */
/* atoll demo: its arguments (outer/run/demo.h). */
#include "kernels/base/args.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/config/run.h"
#include "outer/run/demo.h"
#include "outer/run/process.h"

static enum err demo(const struct demo_options *o, bool json, struct arena *a)
{
    struct demo_result r;
    struct demo *d = demo_make(o);
    TRY_ALLOC(d);
    enum err e = demo_run(d, &r);
    if (e == ERR_OK)
        e = demo_summary(d, &r, o->dir, json, a);
    return demo_close(d, e);
}

enum err cmd_demo(int argc, char **argv, struct arena *arena)
{
    const char *format = "text";
    bool json;
    struct demo_options o = {.dir = "atoll-demo", .steps = 1600, .http = "127.0.0.1:0"};
    const struct args_option options[] = {
        {"text", ARGS_TEXT, &o.text, .value = "FILE",
         .help = "Plain text to train on; a megabyte or more. Without it the text that "
                 "deploy/run-demo.sh has prepared, where there is one."},
        {"dir", ARGS_TEXT, &o.dir, .value = "DIR",
         .help = "Where everything goes; an earlier demo there is replaced."},
        {"wan", ARGS_TEXT, &o.topology, .value = "FILE",
         .help =
             "Topology of an emulated network between them, or a preset's name; `atoll wan --list` "
             "shows those. Without it: loopback."},
        {"steps", ARGS_INT, &o.steps, .value = "N", .min = 20, .max = 1e6,
         .help = "Inner steps of each site."},
        {"http", ARGS_TEXT, &o.http, .value = "ADDRESS",
         .help = "Loopback address and port of the live page while it runs; port 0 picks one, "
                 "empty: none."},
        FORMAT_ROW(&format, ": eval_loss, rounds, sites with bytes and time_shares, report"),
    };
    struct args args = {.command = "demo",
                        .summary = "Two sites and an aggregator on this machine, over mutual TLS, "
                                   "on real text; then one site "
                                   "alone for comparison; a summary and a report.",
                        .example = "atoll demo --text book.txt",
                        .settings = run_nearest_setting,
                        ARGS_OPTIONS(options)};
    process_files_private();
    TRY(args_parse(&args, argc, argv, arena));
    if (args.setting_count > DEMO_SETTINGS_MAX)
        return err_set(ERR_CONFIG, "demo: more than %d arguments for the configuration",
                       DEMO_SETTINGS_MAX);
    if (args.help)
        return ERR_OK;
    TRY(cmd_format(format, &json));
    TRY(demo_text(&o.text, arena));
    o.settings = args.setting_count;
    o.setting = args.setting;
    return demo(&o, json, arena);
}
