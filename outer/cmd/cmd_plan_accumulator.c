/* SPDX-License-Identifier: Apache-2.0 */
/* atoll plan accumulator: the sums of a model's matrix products, and whether an accumulator of so
 * many bits of mantissa holds them.
 */
#include "outer/cmd/cmd_plan.h"
#include "kernels/base/number.h"
#include "outer/plan/accumulator.h"
#include "outer/plan/accumulator_sums.h"

struct accumulator_options {
    const struct args *args;
    int64_t product; /* bits of mantissa of a product */
    const char *format;
};

static enum err accumulator(struct run *p, void *self)
{
    const struct accumulator_options *o = self;
    int64_t bits = 0;
    bool json;
    TRY(cmd_format(o->format, &json));
    if (o->args->operand_count != 1 || !number_read_whole(o->args->operand[0], &bits) || bits < 1 ||
        bits > ACCUMULATOR_BITS_MAX)
        return err_set(ERR_CONFIG, "plan accumulator: give BITS, from 1 to %d",
                       ACCUMULATOR_BITS_MAX);
    const struct accumulator_sums l = accumulator_sums_of(p);
    accumulator_sums_print(&l, (int)bits, (int)o->product, json);
    return ERR_OK;
}

enum err cmd_plan_accumulator(int argc, char **argv, struct arena *arena)
{
    struct args args;
    struct accumulator_options o = {.args = &args, .product = 5, .format = "text"};
    struct run_source source = {.role = RUN_PLAN, .sites = 1};
    const struct args_option options[] = {
        PLAN_ROWS(&source),
        {"product", ARGS_INT, &o.product, .min = 1, .max = ACCUMULATOR_BITS_MAX, .value = "BITS",
         .help = "Bits of mantissa of a product."},
        FORMAT_ROW(&o.format, ": sums, each with lost, ok, least_bits of one level and of chunks"),
    };
    args = (struct args){.command = "plan accumulator",
                         .summary = "Whether accumulators with BITS bits of mantissa hold the sums "
                                    "of the model's matrix products, plain and in chunks of 64 "
                                    "terms.",
                         .example = "atoll plan accumulator 9 --config run.yaml",
                         .operands = "BITS",
                         .settings = run_nearest_of_plan,
                         ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    return cmd_run(&args, &source, accumulator, &o);
}
