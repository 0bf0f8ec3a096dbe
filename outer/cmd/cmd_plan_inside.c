/* SPDX-License-Identifier: Apache-2.0 */
/* atoll plan inside: what the ranks of one site will take for a step, with their memory, energy,
 * price, and the number beyond which more of them stop paying. atoll plan times: the same of times
 * that were measured.
 */
#include "outer/cmd/cmd_plan.h"
#include "outer/plan/inside_print.h"

struct inside_options {
    const char *ranks; /* "1,2,4"; NULL: powers of two */
    bool search;       /* settings, too, for each number of ranks */
    const char *format;
};

static enum err inside(struct run *p, void *self)
{
    const struct inside_options *o = self;
    struct site_table c;
    bool json;
    TRY(cmd_format(o->format, &json));
    TRY(site_table_make(&c, p, o->ranks, o->search));
    inside_print(&c, p, o->search, json);
    return o->search ? site_table_fits(&c) : ERR_OK;
}

enum err cmd_plan_inside(int argc, char **argv, struct arena *arena)
{
    struct inside_options o = {.format = "text"};
    struct run_source source = {.role = RUN_PLAN, .sites = 1};
    const struct args_option options[] = {
        PLAN_ROWS(&source),
        {"ranks", ARGS_TEXT, &o.ranks, .value = "LIST",
         .help = "These numbers of ranks; powers of two."},
        {"search", ARGS_FLAG, &o.search,
         .help = "For each number of ranks the micro-batch, recomputation, ZeRO stage and bucket "
                 "with the most tokens per second that fit the memory."},
        FORMAT_ROW(&o.format, ": rows, times in seconds"),
    };
    struct args args = {.command = "plan inside",
                        .summary = "The ranks of one site: step time, exposed communication, "
                                   "efficiency, energy, price, memory, and the number of ranks "
                                   "beyond which more stop paying, from --probe (atoll probe "
                                   "--ranks) or plan.gpu.",
                        .example = "atoll plan inside --config run.yaml --probe ranks.yaml",
                        .settings = run_nearest_of_plan,
                        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    return cmd_run(&args, &source, inside, &o);
}

enum err cmd_plan_times(int argc, char **argv, struct arena *arena)
{
    struct scaling rows[SITE_TABLE_ROWS_MAX];
    size_t count;
    const char *format = "text";
    bool json;
    const struct args_option options[] = {
        FORMAT_ROW(&format, ": rows, times in seconds"),
    };
    struct args args = {.command = "plan times",
                        .summary = "Speed-up, efficiency, GPU-hours and knee of measured times.",
                        .example = "atoll plan times 8:5.47,64:0.898",
                        .operands = "GPUS:MINUTES,...",
                        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    TRY(cmd_format(format, &json));
    TRY(site_table_times(args.operand_count == 1 ? args.operand[0] : "", rows, &count));
    inside_print_times(rows, count, json);
    return ERR_OK;
}
