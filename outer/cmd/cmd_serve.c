/* SPDX-License-Identifier: Apache-2.0 */
/* atoll serve: the aggregator of a run. */
#include "outer/cmd/cmd.h"
#include "outer/config/run.h"
#include "outer/run/serve.h"

enum err cmd_serve(int argc, char **argv, struct arena *arena)
{
    struct serve_options o = {.from_sites = false};
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &o.config, .value = "FILE",
         .help = "Configuration (YAML), the same file as the sites'; - is standard input."},
        {"rebuild", ARGS_TEXT, &o.rebuild, .value = "DIR,DIR",
         .help = "serve.dir was lost: rebuild it from the run.dir of every site, or of more than "
                 "half of them (copies, or the sites have ended). serve.dir must be empty."},
        {"rebuild-from-sites", ARGS_FLAG, &o.from_sites,
         .help = "serve.dir was lost: rebuild it from what the running sites send, which dial "
                 "this aggregator as always. serve.dir must be empty."},
    };
    struct args args = {
        .command = "serve",
        .summary =
            "The aggregator of a run: collects the sites' contributions, commits rounds, "
            "keeps the outer "
            "state. Ends by itself when every site has the last round. Ctrl-C stops it with "
            "exit code 75; the "
            "same command continues from there, and so it does after a crash. SIGUSR2 prints "
            "its status.",
        .example =
            "atoll serve --config run.yaml --serve.listen 0.0.0.0:7443 --serve.dir /var/lib/atoll",
        .settings = run_nearest_setting,
        ARGS_OPTIONS(options)};
    o.command = args_line(arena, argc, argv);
    TRY(args_parse(&args, argc, argv, arena));
    if (o.rebuild && o.from_sites)
        return err_set(ERR_CONFIG, "--rebuild and --rebuild-from-sites: give one of them");
    return args.help ? ERR_OK : serve_run(&o, &args);
}
