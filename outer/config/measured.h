/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MEASURED_H
#define MEASURED_H
/* A probe file: what atoll probe measured of a link, of this machine and of the ranks of a site,
 * and what a plan is to assume of them. It has the form of a configuration with the one section
 * `plan`, and is none: a configuration with a key of plan.* is refused. atoll probe --write makes
 * it; site.probe and --probe name it; arguments --plan.* of atoll plan and atoll sim go first.
 */
#include "inner/config/config.h"
#include "kernels/base/args.h"

#define PLAN_CONGESTION(X) X(PLAN_CONGESTION_CUBIC, cubic) X(PLAN_CONGESTION_BBR, bbr)
#define PLAN_ALGORITHM(X)                                                                          \
    X(PLAN_ALGORITHM_RING, ring) X(PLAN_ALGORITHM_HALVING, halving) X(PLAN_ALGORITHM_TREE, tree)
#define PLAN_RANK(X) X(PLAN_RANK_TIME, time) X(PLAN_RANK_COST, cost) X(PLAN_RANK_LOSS, loss)
#define CHOICES_MEASURED(X)                                                                        \
    X(plan_congestion, PLAN_CONGESTION) X(plan_rank, PLAN_RANK) X(plan_algorithm, PLAN_ALGORITHM)
CHOICES_MEASURED(CONFIG_ENUM)

/* Rows: config.h. Of a step, of a round and of the link. */
#define KEYS_MEASURED_TIMES(X)                                                                     \
    X(plan, step_s, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "s",                      \
      .help = "Measured time of one inner step (atoll probe --step); 0: unknown. With the rates "  \
              "below, atoll train logs predicted and measured values.")                            \
    X(plan, encode_ns, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "ns",                  \
      .help = "Time per value of a site to encode and store a contribution (atoll probe --step).") \
    X(plan, apply_ns, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "ns",                   \
      .help = "Time per value of a site from the aggregate to the stored outer step (atoll probe " \
              "--step).")                                                                          \
    X(plan, accept_ns, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "ns",                  \
      .help = "Time per value of the aggregator for each contribution: verify and store.")         \
    X(plan, commit_ns, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "ns",                  \
      .help = "Time per value of the aggregator for a round: outer step, store, the fixed part "   \
              "of a sum.")                                                                         \
    X(plan, sum_ns, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "ns",                     \
      .help = "Time per value of the aggregator for each contribution in a round: verify again "   \
              "and add.")                                                                          \
    X(plan, layers_ms, LIST, .fallback = "", .unit = "ms",                                         \
      .help = "Backward time of the embeddings, each layer and the final norm (atoll probe "       \
              "--step), for atoll plan layers.")
/* Of the link, and what a plan is to cost. */
#define KEYS_MEASURED(X)                                                                           \
    X(plan, up_mbit, REAL, .fallback = "0", .min = 0, .max = 1e7, .unit = "Mbit/s",                \
      .help = "Upload rate from this site to the aggregator, IP packets; 0: unknown.")             \
    X(plan, down_mbit, REAL, .fallback = "0", .min = 0, .max = 1e7, .unit = "Mbit/s",              \
      .help = "Download rate from the aggregator to this site, IP packets; 0: unknown.")           \
    X(plan, rtt_ms, REAL, .fallback = "0", .min = 0, .max = 3600000, .unit = "ms",                 \
      .help = "Round trip between this site and the aggregator.")                                  \
    X(plan, loss_percent, REAL, .fallback = "0", .min = 0, .max = 10, .unit = "%",                 \
      .help = "Packet loss of the link. 0 with measured rates, which include it. Above 10 % TCP "  \
              "hardly works, and no model of its rate holds.")                                     \
    X(plan, congestion, CHOICE(plan_congestion), .fallback = "cubic",                              \
      .help = "TCP congestion control of a link without measured times. cubic: slow start after "  \
              "idle, limited by loss. bbr: neither.")                                              \
    X(plan, up_s, LIST, .fallback = "", .unit = "s",                                               \
      .help = "Measured times (atoll probe) of uploads of 64 KiB, 256 KiB, 1 MiB, ..., without "   \
              "the round trip. They replace up_mbit and loss_percent.")                            \
    X(plan, down_s, LIST, .fallback = "", .unit = "s",                                             \
      .help = "Measured times (atoll probe) of downloads of 64 KiB, 256 KiB, 1 MiB, ..., without " \
              "the round trip.")                                                                   \
    X(plan, aggregator_mbit, REAL, .fallback = "0", .min = 0, .max = 1e7, .unit = "Mbit/s",        \
      .help =                                                                                      \
          "Rate of the aggregator's link in each direction, shared by all sites; 0: no limit.")    \
    X(plan, rank, CHOICE(plan_rank), .fallback = "time",                                           \
      .help = "What atoll plan minimises: time (until the loss of data-parallel training is "      \
              "reached), cost (price of the bytes), loss.")                                        \
    X(plan, price_gb, REAL, .fallback = "0", .min = 0, .max = 1e6,                                 \
      .help = "Price of 1e9 bytes that leave a site or the aggregator, in any currency.")          \
    X(plan, price_hour, REAL, .fallback = "0", .min = 0, .max = 1e6,                               \
      .help = "Price of a rank's hour, in any currency.")
/* Of the ranks of a site, for atoll plan inside. */
#define KEYS_MEASURED_RANKS(X)                                                                     \
    X(plan, ranks, INT, .fallback = "0", .min = 0, .max = 65536,                                   \
      .help = "Ranks over which atoll probe --ranks measured the three times below; 0: not "       \
              "measured. This and all keys below are for atoll plan inside.")                      \
    X(plan, all_reduce_s, LIST, .fallback = "", .unit = "s",                                       \
      .help = "Measured times of all-reduces of 4 KiB, 8 KiB, ..., 64 MiB (atoll probe --ranks).") \
    X(plan, all_gather_s, LIST, .fallback = "", .unit = "s", .help = "The same of all-gathers.")   \
    X(plan, reduce_scatter_s, LIST, .recorded = "to_owners_s", .fallback = "", .unit = "s",        \
      .help = "The same of sums that go to one owner each (train.zero_stage = 1).")                \
    X(plan, algorithm, CHOICE(plan_algorithm), .fallback = "ring",                                 \
      .help = "Formula that carries the measured times to other numbers of ranks: ring, halving "  \
              "and doubling, or tree.")                                                            \
    X(plan, overlap, REAL, .fallback = "100", .min = 0, .max = 100, .unit = "%",                   \
      .help =                                                                                      \
          "Share of its speed at which a sum over the ranks proceeds during the backward pass "    \
          "(atoll probe --ranks): 100 on a GPU, less where ranks and sums share cores.")           \
    X(plan, products_tflops, LIST, .fallback = "", .unit = "TFLOP/s",                              \
      .help = "Measured rates of a rank's products: qkv, proj, mlp, logits (atoll probe "          \
              "--ranks). The highest is the peak that shares are of.")                             \
    X(plan, memory_gbs, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "GB/s",               \
      .help = "Measured rate of a rank's memory, read and written (atoll probe --ranks).")         \
    X(plan, rates, LIST, .fallback = "",                                                           \
      .help = "Measured classes of a step (atoll probe --ranks), each "                            \
              "class/width/operations/bytes/seconds of one micro-batch.")                          \
    X(plan, gpu, TEXT, .fallback = "",                                                             \
      .help = "Plan for ranks with this GPU, by its published peaks: v100, t4, a100, l40s, h100, " \
              "h200, b200. Empty: what was measured.")                                             \
    X(plan, memory_gib, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "GiB",                \
      .help = "Memory that a rank may use; 0: of plan.gpu, else what this machine has left.")      \
    X(plan, machine_ranks, INT, .fallback = "8", .min = 1, .max = 65536,                           \
      .help = "Ranks of one machine. More of them are joined by plan.net_gbs.")                    \
    X(plan, net_gbs, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "GB/s",                  \
      .help = "Rate of a rank to another machine, one direction; 0: as inside a machine.")         \
    X(plan, watts, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "W",                       \
      .help = "Power of a rank in training; 0: plan.rapl_watts, else the largest of plan.gpu.")    \
    X(plan, rapl_watts, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "W",                  \
      .help = "Measured power of a rank, from the processor's energy counters (atoll probe "       \
              "--ranks, where they are readable).")

struct measured_times {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    KEYS_MEASURED_TIMES(X)
#undef X
};
struct measured_ranks {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    KEYS_MEASURED_RANKS(X)
#undef X
};
struct measured {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    KEYS_MEASURED(X)
#undef X
    struct measured_times times;
    struct measured_ranks ranks;
};
enum { MEASURED_TABLES = 3 };
/* Tables of *m, for config.h. */
void measured_tables(struct measured *m, struct config_table tables[MEASURED_TABLES]);
enum err measured_default(struct measured *m, struct arena *a) MUST;
/* Key by key over what *m holds: a probe file (NULL: none), then the arguments --plan.* (args NULL:
 * none). Each drops the times of a rate that it changes without naming times. ERR_CONFIG. */
enum err measured_read(struct measured *m, const char *path, const struct args *args,
                       struct arena *a) MUST;
/* The text of a probe file: what differs from the defaults. */
enum err measured_text(struct measured *m, struct arena *a, char **text) MUST;
/* Arguments of plan.*, or the others. */
enum err measured_arguments(const struct args *args, bool of_plan, struct args *out,
                            struct arena *a) MUST;

#endif
