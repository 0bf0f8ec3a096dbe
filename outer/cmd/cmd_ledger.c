/* SPDX-License-Identifier: Apache-2.0 */
/* atoll ledger: what went over the link, by layer, site, round, fragment or kind of call:
 * predicted, counted, and what the kernel's sockets say. Ends with an error when a payload is not
 * what was predicted.
 */
#include <string.h>
#include "kernels/base/args.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/view/ledger_print.h"

enum { MEMBERS_MAX = 1025 }; /* the largest roster and its aggregator */
struct ledger_wish {
    const char *by, *format;
    bool csv;
};

static enum err read_all(const struct args *args, struct ledger_member *members, struct arena *a)
{
    for (int i = 0; i < args->operand_count; i++) {
        TRY(ledger_read(&members[i], args->operand[i], i ? members : NULL, a));
        for (int k = 0; k < i; k++)
            if (strcmp(members[k].name, members[i].name) == 0)
                return err_set(ERR_CONFIG, "%s and %s are both of %s: give each replica once",
                               args->operand[k], args->operand[i], members[i].name);
    }
    return ERR_OK;
}

static enum err ledger_inside(const struct args *directories, const struct ledger_print *p,
                              struct arena *a)
{
    struct inner_bytes *in;
    TRY_ALLOC(in = arena_array(a, 1, sizeof *in));
    for (int i = 0; i < directories->operand_count; i++) {
        TRY(inner_bytes_read(in, directories->operand[i], a));
        ledger_print_inside(p, directories->operand[i], in);
    }
    return ERR_OK;
}

static enum err ledger(const struct args *args, const struct ledger_wish *o, struct arena *a)
{
    struct json_write w = {.out = stdout};
    struct ledger_print p = {.csv = o->csv};
    struct ledger_member *members;
    size_t count = (size_t)args->operand_count;
    int by = 0;
    bool json, inside = strcmp(o->by, "inside") == 0;
    TRY(cmd_format(o->format, &json));
    if (o->csv && json)
        return err_set(ERR_CONFIG, "ledger: --csv and --format json: give one of them");
    while (by < LEDGER_BYS && strcmp(ledger_by_name[by], o->by) != 0)
        by++;
    if (by == LEDGER_BYS && !inside)
        return err_set(ERR_CONFIG,
                       "--by %s: one of layer, site, round, fragment, call, hour, inside", o->by);
    if (count == 0 || count > MEMBERS_MAX)
        return err_set(ERR_CONFIG,
                       "ledger: give the directories of sites, of the aggregator, or of both: "
                       "atoll ledger run-a run-b aggregator");
    TRY_ALLOC(members = arena_array(a, count, sizeof *members));
    if (!inside)
        TRY(read_all(args, members, a));
    p.w = json ? &w : NULL;
    ledger_print_begin(&p, o->by, inside);
    if (inside)
        TRY(ledger_inside(args, &p, a));
    for (size_t i = 0; i < count && !inside; i++)
        TRY(ledger_print_member(&p, &members[i], (enum ledger_by)by, a));
    ledger_print_end(&p);
    return inside ? ERR_OK : ledger_check(members, count);
}

enum err cmd_ledger(int argc, char **argv, struct arena *arena)
{
    struct ledger_wish o = {.by = "layer", .format = "text"};
    const struct args_option options[] = {
        {"by", ARGS_TEXT, &o.by, .value = "WHAT",
         .help = "layer, site, round, fragment, call (hello, poll, ...) or hour (UTC; of earlier "
                 "days: day); inside: what the ranks of a site sent each other, by bytes of a "
                 "step."},
        {"csv", ARGS_FLAG, &o.csv, .help = "Comma-separated, with all layers of both directions."},
        FORMAT_ROW(&o.format, ": directories, each with its lines, bytes up and down by layer"),
    };
    struct args args = {.command = "ledger",
                        .summary =
                            "Adds up what went over the link: payload as predicted and as "
                            "counted, protobuf and gRPC, HTTP/2, TLS, and "
                            "the kernel's socket counters for comparison. Ends with exit code "
                            "1 when a payload is not what was "
                            "predicted.",
                        .example = "atoll ledger run-a run-b aggregator --by site",
                        .operands = "DIR...",
                        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    return args.help ? ERR_OK : ledger(&args, &o, arena);
}
