/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_KEYS_H
#define OUTER_KEYS_H
/* The settings of the outer loop: what all replicas share (pinned) and what only this process
 * needs.
 */
#include "inner/config/config.h"
#include "kernels/base/log.h"
#include "outer/codec/codec.h"
#include "outer/diloco/fragment.h"
#include "outer/diloco/outer_opt.h"
#include "outer/diloco/period.h"
#include "outer/diloco/weights.h"
#include "outer/protocol/round.h"
#include "outer/protocol/site_name.h"
#include "outer/store/state_digest.h"

enum { KEYS_SHARE_MAX = 100 }; /* site.batch_scale: at most */
enum { KEYS_EVALS_MAX = 16 };  /* entries of eval.tasks, eval.prompts: at most */

/* Choices: X(ENUMERATOR, name), the name as the configuration has it. */
#define OUTER_PARTITION(X)                                                                         \
    X(FRAGMENT_STRIDED, strided)                                                                   \
    X(FRAGMENT_SEQUENTIAL, sequential)                                                             \
    X(FRAGMENT_BALANCED, balanced)                                                                 \
    X(FRAGMENT_RANDOM, random) X(FRAGMENT_SLICES, slices)
#define OUTER_CODEC(X)          CODEC_LIST(X)
#define OUTER_MOMENTS_CODEC(X)  X(CODEC_F32, f32) X(CODEC_BF16, bf16) X(CODEC_INT8, int8)
#define OUTER_FULL_PRECISION(X) X(CODEC_BF16, bf16) X(CODEC_FIXED, fixed)
#define OUTER_MODE(X)           X(OUTER_MODE_STRICT, strict) X(OUTER_MODE_QUORUM, quorum)
#define PRIVACY_SECURE(X)       X(PRIVACY_SECURE_OFF, off) X(PRIVACY_SECURE_SUM, sum)
#define SITE_STREAMS(X)                                                                            \
    X(SITE_STREAMS_AUTO, auto)                                                                     \
    X(SITE_STREAMS_1, 1)                                                                           \
    X(SITE_STREAMS_2, 2)                                                                           \
    X(SITE_STREAMS_3, 3)                                                                           \
    X(SITE_STREAMS_4, 4)                                                                           \
    X(SITE_STREAMS_5, 5)                                                                           \
    X(SITE_STREAMS_6, 6)                                                                           \
    X(SITE_STREAMS_7, 7)                                                                           \
    X(SITE_STREAMS_8, 8)                                                                           \
    X(SITE_STREAMS_9, 9)                                                                           \
    X(SITE_STREAMS_10, 10)                                                                         \
    X(SITE_STREAMS_11, 11)                                                                         \
    X(SITE_STREAMS_12, 12)                                                                         \
    X(SITE_STREAMS_13, 13) X(SITE_STREAMS_14, 14) X(SITE_STREAMS_15, 15) X(SITE_STREAMS_16, 16)
#define SITE_CONGESTION(X)  X(SITE_CONGESTION_BBR, bbr) X(SITE_CONGESTION_KERNEL, kernel)
#define SITE_OUTER_STATE(X) X(SITE_OUTER_STATE_LEAD, lead) X(SITE_OUTER_STATE_SHARDED, sharded)
#define OUTER_DEVICE(X)     X(OUTER_DEVICE_AUTO, auto) X(OUTER_DEVICE_CPU, cpu)
/* info includes LOG_DETAIL, which a log file gets and a terminal does not. */
#define LOG_LEVEL(X) X(LOG_DEBUG, debug) X(LOG_DETAIL, info) X(LOG_WARN, warn) X(LOG_ERROR, error)
#define LOG_PROGRESS(X)                                                                            \
    X(LOG_PROGRESS_AUTO, auto)                                                                     \
    X(LOG_PROGRESS_LINE, line) X(LOG_PROGRESS_LIVE, live) X(LOG_PROGRESS_NONE, none)
/* Enums of these keys alone, and names of enums of other headers. */
#define CHOICES_OUTER(X)                                                                           \
    X(outer_mode, OUTER_MODE)                                                                      \
    X(outer_device, OUTER_DEVICE)                                                                  \
    X(privacy_secure, PRIVACY_SECURE)                                                              \
    X(log_progress, LOG_PROGRESS)                                                                  \
    X(site_streams, SITE_STREAMS)                                                                  \
    X(site_congestion, SITE_CONGESTION)                                                            \
    X(site_outer_state, SITE_OUTER_STATE)
#define CHOICES_OUTER_NAMES(X)                                                                     \
    X(outer_partition, OUTER_PARTITION)                                                            \
    X(outer_codec, OUTER_CODEC)                                                                    \
    X(outer_moments_codec, OUTER_MOMENTS_CODEC)                                                    \
    X(outer_full_precision, OUTER_FULL_PRECISION)                                                  \
    X(outer_opt_kind, OUTER_OPT_LIST)                                                              \
    X(anneal_kind, ANNEAL_LIST)                                                                    \
    X(merge_kind, MERGE_LIST)                                                                      \
    X(weights_kind, WEIGHTS_LIST) X(state_digest, STATE_DIGEST_LIST) X(log_level, LOG_LEVEL)
CHOICES_OUTER(CONFIG_ENUM)
CHOICES_OUTER_NAMES(CONFIG_CHOICES_DECLARE)

/* Rows: config.h */
#define KEYS_OUTER(X)                                                                              \
    X(outer, sites, LIST, .group = "Sites", .level = CONFIG_BASIC, .example = "[a, b]",            \
      .fallback = "", .pinned = true,                                                              \
      .help = "Names of the sites that the run begins with (the roster); at most 1024, letters, "  \
              "digits, - and _. "                                                                  \
              "Fixed for the run: an operator adds and removes sites (atoll operator roster).")    \
    X(outer, sync_every, INT, .group = "Rounds", .level = CONFIG_BASIC, .recorded = "every",       \
      .fallback = "50", .min = 1, .max = 1e6, .unit = "steps", .pinned = true,                     \
      .help = "H: inner steps between two rounds of a fragment.")                                  \
    X(outer, replan, BOOL, .level = CONFIG_EXPERT, .fallback = "false", .pinned = true,            \
      .later = true,                                                                               \
      .help = "The aggregator amends outer.sync_every when training has less than 95 % of the "    \
              "time, as "                                                                          \
              "after a link became slower, and again when half of it would be enough, down to "    \
              "the configured value. Recorded as an operator's amendment is.")                     \
    X(outer, sync_interval_s, REAL, .level = CONFIG_EXPERT, .recorded = "every_s",                 \
      .fallback = "0", .min = 0, .max = 1e6, .unit = "s", .pinned = true,                          \
      .help = "Rounds by time (A-EDiT): a site's round also ends after the first step at which "   \
              "this many seconds have passed since the round before; outer.sync_every is then "    \
              "the most "                                                                          \
              "steps of a round, and the steps that are left count as done. 0: by steps alone.")   \
    X(outer, interval_schedule, LIST, .level = CONFIG_EXPERT,                                      \
      .example = "{rounds: 10, factor: 2, most: 40}", .members = "rounds factor most",             \
      .recorded = "grow", .fallback = "", .pinned = true,                                          \
      .help = "{rounds, factor, most}: whenever a fragment has made `rounds` rounds, its "         \
              "interval becomes "                                                                  \
              "`factor` times as long, up to `most` steps (0/1 Adam's local steps). Empty: "       \
              "outer.sync_every in the whole run.")                                                \
    X(outer, fragments, INT, .level = CONFIG_BASIC, .fallback = "1", .min = 1, .max = 64,          \
      .pinned = true,                                                                              \
      .help = "P: fragments of the model, synchronised in turn; 1 is classic DiLoCo. Must divide " \
              "outer.sync_every.")                                                                 \
    X(outer, aggregators, INT, .level = CONFIG_EXPERT, .fallback = "1", .min = 1, .max = 16,       \
      .pinned = true,                                                                              \
      .help = "Aggregators that share the fragments: fragment f belongs to aggregator f modulo "   \
              "this number. For runs that are limited by one network card.")                       \
    X(outer, overlap_steps, INT, .level = CONFIG_BASIC, .fallback = "0", .min = 0, .max = 1e6,     \
      .unit = "steps", .pinned = true,                                                             \
      .help = "tau: steps that training continues while a round is exchanged; 0: training waits. " \
              "outer.sync_every: the one-round delay (DiLoCoX).")                                  \
    X(outer, eager, BOOL, .level = CONFIG_EXPERT, .fallback = "false", .pinned = true,             \
      .help = "With the one-round delay: a site continues from a local outer step, with its own "  \
              "fresh delta and the other sites' deltas of the round before (eager updates).")      \
    X(outer, before_update, BOOL, .level = CONFIG_EXPERT, .fallback = "false", .pinned = true,     \
      .help = "Applies a committed round after the backward pass and before the optimizer step, "  \
              "so that the update of that step is not overwritten (DreamDDP).")                    \
    X(outer, update_alpha, REAL, .level = CONFIG_EXPERT, .recorded = "mix", .fallback = "-1",      \
      .min = -1, .max = 1, .pinned = true,                                                         \
      .help =                                                                                      \
          "alpha: share of the local parameters when an overlapped round is applied; the rest is " \
          "the outer parameters. -1: 0.5, and 0 with the one-round delay or outer.before_update.") \
    X(outer, partition, CHOICE_OF(fragment_kind, outer_partition),                                 \
      .group = "Which values a round has", .fallback = "strided", .pinned = true,                  \
      .help = "How the model is cut into fragments. strided: block i to fragment i mod P. "        \
              "sequential: consecutive blocks. balanced: tensors by size. random: every 256 "      \
              "values at random (SPARTA). slices: as outer.slices lists (DreamDDP).")              \
    X(outer, sync_fraction, REAL, .level = CONFIG_EXPERT, .recorded = "draw", .fallback = "1",     \
      .min = 1e-6, .max = 1, .pinned = true,                                                       \
      .help = "Share of the parameters that a round exchanges, in blocks of 256 values, drawn "    \
              "again for each round from run.seed (SPARTA). The last round exchanges all. 1: all " \
              "in every round.")                                                                   \
    X(outer, slices, LIST, .level = CONFIG_EXPERT, .example = "[embed-0@2, 1-2@5, 3-final@10]",    \
      .fallback = "", .pinned = true,                                                              \
      .help =                                                                                      \
          "partition slices: FIRST-LAST@STEP for each fragment: layers FIRST to LAST (embed, "     \
          "0, 1, ..., final), sent STEP steps into each period of outer.sync_every; STEP+STEP: "   \
          "several times in a period.")                                                            \
    X(outer, codec, CHOICE_OF(codec_kind, outer_codec), .group = "Encoding",                       \
      .level = CONFIG_BASIC, .fallback = "int8", .pinned = true,                                   \
      .help =                                                                                      \
          "How contributions are encoded; bits: docs/methods.md 2; loss: docs/results.md 5. f32, " \
          "bf16: as they are. int8, int4, int2: integers on shared scales. e3m0, fp8: small "      \
          "floats. topk: 1/64 of the values. sign: one bit. csc: a tenth of the chunks. "          \
          "fixed: integers of 28 bits.")                                                           \
    X(outer, moment1_every, INT, .group = "Moments of the inner optimizer",                        \
      .level = CONFIG_EXPERT, .recorded = "first_every", .fallback = "0", .min = 0, .max = 1e6,    \
      .unit = "steps", .pinned = true,                                                             \
      .help = "Period of the rounds that average the optimizer's first moment (DES-LOC: 3 x "      \
              "outer.sync_every); 0: the moment stays local.")                                     \
    X(outer, moment2_every, INT, .level = CONFIG_EXPERT, .recorded = "second_every",               \
      .fallback = "0", .min = 0, .max = 1e6, .unit = "steps", .pinned = true,                      \
      .help =                                                                                      \
          "Period of the rounds that average the second moment (DES-LOC: 6 x outer.sync_every); "  \
          "0: the moment stays local.")                                                            \
    X(outer, moments_codec, CHOICE_OF(codec_kind, outer_moments_codec), .level = CONFIG_EXPERT,    \
      .fallback = "bf16", .pinned = true,                                                          \
      .help = "How moments are encoded. Finer than parameters, because the update divides by the " \
              "second moment.")                                                                    \
    X(outer, full_precision_rounds, INT, .group = "Full precision and residuals",                  \
      .formerly = "whole_rounds", .fallback = "1", .min = 1, .max = 1e6, .unit = "rounds",         \
      .pinned = true,                                                                              \
      .help = "The first N rounds are sent in full precision (outer.full_precision) to set the "   \
              "shared scales and to flush error feedback. So is the last round, unless a "         \
              "residual is more than about twice its delta.")                                      \
    X(outer, full_precision, CHOICE_OF(codec_kind, outer_full_precision), .fallback = "bf16",      \
      .pinned = true, .later = true,                                                               \
      .help = "Form of full-precision rounds, unless outer.codec is f32, bf16 or fixed, which "    \
              "stay as they are. bf16: 16 bits of floating point; every contribution is "          \
              "forwarded. fixed: whole numbers of 2^-24 up to 8 in 28 bits; contributions are "    \
              "summed, exactly.")                                                                  \
    X(outer, error_feedback_decay, REAL, .formerly = "feedback", .fallback = "1", .min = 0,        \
      .max = 1, .pinned = true,                                                                    \
      .help = "Share of the residual that is carried to the next round. 1: classic error "         \
              "feedback; 0: none.")                                                                \
    X(outer, norm_limit, REAL, .group = "Bounds", .level = CONFIG_EXPERT, .fallback = "1000",      \
      .min = 0, .max = 1e9, .pinned = true,                                                        \
      .help =                                                                                      \
          "The aggregator refuses a contribution whose norm (RMS of its values over its weight) "  \
          "is "                                                                                    \
          "more than this many times the median of the last rounds and more than the RMS of the "  \
          "outer parameters; in the first round more than this many times that RMS. 0: no bound.") \
    X(outer, clip, REAL, .level = CONFIG_EXPERT, .fallback = "0", .min = 0, .max = 1e9,            \
      .pinned = true, .later = true,                                                               \
      .help = "A contribution whose norm is more than this many times the median (the larger of "  \
              "this round's and the running one) is scaled down to it by a power of two. The "     \
              "manifest has the factor; what is cut off is discarded and booked. Needs a codec "   \
              "whose contributions are forwarded, and 8 more bytes per parameter at the lead "     \
              "rank. 0: off.")                                                                     \
    X(outer, residual_reset, REAL, .level = CONFIG_EXPERT, .formerly = "back_off",                 \
      .fallback = "0", .min = 0, .max = 1e6, .pinned = true,                                       \
      .help =                                                                                      \
          "After a round in which a site's residual exceeds this many times its delta, the next "  \
          "round is sent in full precision and the residuals are discarded, because they are too " \
          "old to apply at once. 0: never. Needs 8 more bytes per parameter at the lead rank.")    \
    X(outer, downlink_compression_from, INT, .level = CONFIG_EXPERT, .formerly = "reencode_from",  \
      .fallback = "9", .min = 0, .max = 1024, .unit = "sites", .pinned = true,                     \
      .help = "With at least this many sites in a round, the aggregator sums the contributions "   \
              "of a codec that cannot be summed in compressed form (and full-precision rounds) "   \
              "and compresses the sum, with a residual of its own, instead of forwarding every "   \
              "contribution. 0: never. With fewer than 9 sites the download is at most 8 "         \
              "uploads. Costs loss with topk: docs/results.md 3.2.")                               \
    X(outer, optimizer, CHOICE(outer_opt_kind), .group = "Outer optimizer",                        \
      .fallback = "nesterov", .pinned = true, .help = "Outer optimizer.")                          \
    X(outer, nesterov_period, INT, .level = CONFIG_EXPERT, .recorded = "delay", .fallback = "1",   \
      .min = 1, .max = 1e4, .unit = "rounds", .pinned = true,                                      \
      .help = "N of delayed_nesterov: every round steps by 1/N of the mean, every N-th also "      \
              "applies the momentum; 1 is nesterov.")                                              \
    X(outer, lr, REAL, .fallback = "0", .min = 0, .max = OUTER_LR_MAX, .pinned = true,             \
      .help =                                                                                      \
          "Outer learning rate; 0: the published one for this many sites and steps "               \
          "(--dry-run prints it). primal: that over 1 - momentum. adam: 0.01. average uses 1.")    \
    X(outer, momentum, REAL, .fallback = "0.9", .min = 0, .max = 0.9999, .pinned = true,           \
      .help = "Outer momentum of nesterov, beta1 of adam, decay of the average of primal.")        \
    X(outer, beta2, REAL, .level = CONFIG_EXPERT, .fallback = "0.99", .min = 0, .max = 0.9999,     \
      .pinned = true, .later = true,                                                               \
      .help = "Decay of the mean of squares of outer.optimizer = adam.")                           \
    X(outer, eps, REAL, .level = CONFIG_EXPERT, .fallback = "0.001", .min = 1e-12, .max = 1,       \
      .pinned = true, .later = true,                                                               \
      .help = "tau of FedAdam: added to the root of the mean of squares of outer.optimizer = "     \
              "adam; its square is the first value of that mean.")                                 \
    X(outer, interpolation, REAL, .level = CONFIG_EXPERT, .fallback = "0.9", .min = 0, .max = 1,   \
      .pinned = true, .later = true,                                                               \
      .help = "Share of the average in the parameters that a round of outer.optimizer = primal "   \
              "begins with; the rest is the iterate. The last round ends at the average.")         \
    X(outer, momentum_warmup, INT, .level = CONFIG_EXPERT, .fallback = "0", .min = 0, .max = 1e9,  \
      .unit = "rounds", .pinned = true, .later = true,                                             \
      .help = "The outer momentum goes from outer.momentum_start in the first round of a "         \
              "fragment to outer.momentum in this many rounds, in a line. 0: outer.momentum from " \
              "the first round on.")                                                               \
    X(outer, momentum_start, REAL, .level = CONFIG_EXPERT, .fallback = "0", .min = 0,              \
      .max = 0.9999, .pinned = true, .later = true,                                                \
      .help = "Outer momentum of the first round, with outer.momentum_warmup.")                    \
    X(outer, momentum_cooldown, INT, .level = CONFIG_EXPERT, .fallback = "0", .min = 0,            \
      .max = 1e9, .unit = "rounds", .pinned = true, .later = true,                                 \
      .help = "The outer momentum goes to outer.momentum_end in the last this many rounds, in a "  \
              "line: steps to train.steps over the steps of this number of rounds. 0: "            \
              "outer.momentum to "                                                                 \
              "the end.")                                                                          \
    X(outer, momentum_end, REAL, .level = CONFIG_EXPERT, .fallback = "0", .min = 0, .max = 0.9999, \
      .pinned = true, .later = true,                                                               \
      .help = "Outer momentum of the last round, with outer.momentum_cooldown.")                   \
    X(outer, lr_schedule, CHOICE(anneal_kind), .fallback = "constant", .pinned = true,             \
      .help = "Shape of the outer learning rate's way from outer.lr to its share "                 \
              "outer.min_lr_ratio at "                                                             \
              "train.steps.")                                                                      \
    X(outer, min_lr_ratio, REAL, .recorded = "lr_end", .fallback = "0.4", .min = 0, .max = 1,      \
      .pinned = true,                                                                              \
      .help = "Share of outer.lr in the last round, with outer.lr_schedule linear or cosine.")     \
    X(outer, momentum_restart, INT, .level = CONFIG_EXPERT, .fallback = "0", .min = 0, .max = 1e9, \
      .unit = "rounds", .pinned = true,                                                            \
      .help = "Every N-th round of a fragment begins with an empty outer momentum; 0: none does. " \
              "With an outer.lr_schedule also the first round after train.steps has grown.")       \
    X(outer, merge, CHOICE(merge_kind), .group = "Merge", .level = CONFIG_EXPERT,                  \
      .fallback = "mean", .pinned = true,                                                          \
      .help = "How the deltas of a round become one. mean: weighted mean. radial: of each tensor " \
              "the lengths and the directions are averaged apart (Decoupled DiLoCo); needs a "     \
              "codec whose contributions are forwarded, as clipped and edit do. Its deltas are "   \
              "longer: with a momentum the default of outer.lr is 0.3 of the one for the mean. "   \
              "clipped: norms are at most their median (Covenant). edit: anomalous sites left "    \
              "out, weights softmax(-norm), bounded mean (EDiT).")                                 \
    X(outer, edit_norm, REAL, .level = CONFIG_EXPERT, .fallback = "10", .min = 0, .max = 1e9,      \
      .pinned = true, .later = true,                                                               \
      .help = "outer.merge edit: L2 norm of a fragment's mean delta, at most. 0: no bound.")       \
    X(outer, edit_warmup, INT, .level = CONFIG_EXPERT, .fallback = "120", .min = 1, .max = 1e9,    \
      .unit = "rounds", .pinned = true, .later = true,                                             \
      .help = "outer.merge edit: rounds of a site before a norm of it can be anomalous.")          \
    X(outer, weights, CHOICE(weights_kind), .fallback = "tokens", .pinned = true,                  \
      .help = "Weight of a site in a round. tokens: its tokens. equal: 1. tokens2_per_step: "      \
              "tokens^2 / steps (Decoupled DiLoCo).")                                              \
    X(outer, mode, CHOICE(outer_mode), .group = "Who is waited for", .level = CONFIG_BASIC,        \
      .fallback = "strict", .pinned = true,                                                        \
      .help = "strict: every configured site in every round. quorum: a majority is enough after "  \
              "outer.straggler_timeout_s.")                                                        \
    X(privacy, secure, CHOICE(privacy_secure), .group = "Secure aggregation",                      \
      .level = CONFIG_BASIC, .fallback = "off", .pinned = true, .later = true,                     \
      .help = "Secure aggregation (docs/privacy.md). sum: sites mask what they send, and the "     \
              "aggregator learns the sum over the sites alone; full-precision rounds are then "    \
              "fixed point. off: it sees each contribution.")                                      \
    X(privacy, threshold, INT, .fallback = "0", .min = 0, .max = 512, .unit = "sites",             \
      .pinned = true, .later = true,                                                               \
      .help = "With privacy.secure: sites that every sum has at least. N sites and a threshold T " \
              "withstand a lying aggregator that works together with min(T - 2, 2 T - N - 1) "     \
              "sites. No site is removed (operator roster remove) that this number needs. 0: all " \
              "sites of outer.sites in strict mode; two thirds of them, rounded down, and one "    \
              "more in quorum mode.")                                                              \
    X(privacy, two_sites, BOOL, .level = CONFIG_EXPERT, .fallback = "false", .pinned = true,       \
      .later = true,                                                                               \
      .help = "true: privacy.secure with two sites, or with sums of two of three, which hide "     \
              "nothing from the other site.")                                                      \
    X(privacy, ledger, TEXT, .group = "Ledger", .example = "/var/lib/atoll/ledger",                \
      .fallback = "",                                                                              \
      .help =                                                                                      \
          "With privacy.unit: directory of a site's ledger of runs, outside of every run.dir. "    \
          "Runs that share an owner with this one (without lists of owners: runs of this site) "   \
          "count in privacy.epsilon and privacy.epsilon_max. Empty: none, and each run counts "    \
          "alone.")                                                                                \
    X(outer, straggler_timeout_s, REAL, .formerly = "straggler_s", .fallback = "60", .min = 0.05,  \
      .max = 1e6, .unit = "s", .pinned = true,                                                     \
      .help = "quorum: how long a round waits after its first contribution, at most. The only "    \
              "timeout "                                                                           \
              "setting.")                                                                          \
    X(outer, grace_fraction, REAL, .level = CONFIG_EXPERT, .recorded = "grace", .fallback = "0",   \
      .min = 0, .max = 0.95, .pinned = true,                                                       \
      .help = "quorum with overlap: share of the measured slack (outer.overlap_steps less the "    \
              "time until a majority is in and the exchange) that a round then waits for the "     \
              "other sites, instead of outer.straggler_timeout_s (Decoupled DiLoCo). 0: the "      \
              "timeout alone.")                                                                    \
    X(outer, max_local_steps_offline, INT, .formerly = "extra_steps", .fallback = "0", .min = 0,   \
      .max = 1e9, .unit = "steps", .pinned = true,                                                 \
      .help = "quorum: steps that a site trains on while the aggregator is unreachable; 0: the "   \
              "site pauses.")                                                                      \
    X(outer, device, CHOICE(outer_device), .group = "Place and history", .level = CONFIG_EXPERT,   \
      .fallback = "auto",                                                                          \
      .help = "Where a site on a GPU encodes, decodes and takes the outer step; the bits are the " \
              "same. auto: on the GPU, which takes 16 to 28 bytes per parameter of the largest "   \
              "fragment and 4 for each further fragment in flight (--dry-run prints it). cpu: on " \
              "the host.")                                                                         \
    X(outer, state_digest, CHOICE_OF(state_digest, state_digest), .level = CONFIG_EXPERT,          \
      .fallback = "whole", .pinned = true, .later = true,                                          \
      .help =                                                                                      \
          "How the outer state of a fragment is hashed. whole: on one core. leaves: in pieces "    \
          "of 65536 values, on all threads of the outer device; for models of 100 million "        \
          "parameters and more. All sites need a version that has the setting.")                   \
    X(outer, history_rounds, INT, .formerly = "catch_up", .fallback = "8", .min = 1, .max = 1e6,   \
      .unit = "rounds", .pinned = true,                                                            \
      .help = "Committed rounds that are kept for sites that were away. A site that needs more "   \
              "takes a snapshot.")                                                                 \
    X(site, name, TEXT, .group = "Who", .level = CONFIG_BASIC, .example = "a", .fallback = "",     \
      .help = "Which site this process is, of outer.sites or added by an operator; not needed "    \
              "with one site and no aggregator.")                                                  \
    X(site, batch_scale, REAL, .recorded = "share", .fallback = "1", .min = 0.01,                  \
      .max = KEYS_SHARE_MAX,                                                                       \
      .help = "This site's tokens per step as a multiple of train.batch_tokens; its weight in "    \
              "the round follows from it (outer.weights).")                                        \
    X(site, aggregator, TEXT, .group = "The aggregator", .level = CONFIG_BASIC,                    \
      .example = "hub.example.org:7443", .fallback = "",                                           \
      .help =                                                                                      \
          "host:port of the aggregator, or of each of outer.aggregators, separated by "            \
          "commas. self: this process is the aggregator of a run of one site, whose outer "        \
          "optimizer takes a step every outer.sync_every steps (SNOO, Lookahead). Empty: train "   \
          "alone, without an outer loop.")                                                         \
    X(site, aggregator_name, TEXT, .example = "hub.example.org", .fallback = "",                   \
      .help = "DNS name in the aggregator's certificate, when dialling by address.")               \
    X(site, proxy, TEXT, .example = "http://proxy:3128", .fallback = "",                           \
      .help = "Proxy to the aggregator: http://HOST:PORT (CONNECT) or socks5://HOST:PORT, which "  \
              "looks up the aggregator's name. A user comes before it, user:password@, or into "   \
              "site.proxy_credentials. TLS stays end to end. Empty: none; http_proxy in the "      \
              "environment is ignored.")                                                           \
    X(site, proxy_credentials, TEXT, .example = "proxy.txt", .fallback = "",                       \
      .help = "File with one line, user:password, of the proxy; only its owner may read it.")      \
    X(site, streams, CHOICE(site_streams), .group = "The link", .fallback = "auto",                \
      .help = "Connections that share one payload. auto: the link measures the path and takes "    \
              "one where one fills it, several where socket buffers limit each, and without BBR "  \
              "on a long path, paced at the path's rate; it asks for site.congestion. A number: "  \
              "that number, with the kernel's settings.")                                          \
    X(site, congestion, CHOICE(site_congestion), .level = CONFIG_EXPERT, .fallback = "bbr",        \
      .help = "With site.streams auto, both directions: bbr: BBR, where the kernel lets the "      \
              "process have it (net.ipv4.tcp_allowed_congestion_control); kernel: the system's.")  \
    X(site, outer_state, CHOICE(site_outer_state), .level = CONFIG_EXPERT, .fallback = "lead",     \
      .help =                                                                                      \
          "Which ranks of the site hold the outer state. lead: rank 0. sharded: fragment f of "    \
          "outer.fragments on rank f modulo ranks (16 of them at most), in its memory, with its "  \
          "own connection; run.dir is on a file system that all ranks see. The bits are the "      \
          "same, and a site "                                                                      \
          "may start again with the other value or another number of ranks.")                      \
    X(site, rate_up, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "Mbit/s",                \
      .help = "Upload rate limit of contributions; 0: none.")                                      \
    X(site, rate_down, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "Mbit/s",              \
      .help = "Download rate limit of aggregates and snapshots; 0: none.")                         \
    X(site, probe, TEXT, .group = "Probe file and page", .example = "probe.yaml", .fallback = "",  \
      .help = "Probe file of atoll probe --write: from its link and step time atoll train logs "   \
              "predicted and measured values, atoll doctor knows the length of the run, and "      \
              "atoll plan and atoll sim take it where --probe names no other.")                    \
    X(site, http, TEXT, .level = CONFIG_BASIC, .example = "127.0.0.1:8081", .fallback = "",        \
      .help = "Address and port, loopback only, where the site serves its live page, /metrics "    \
              "(Prometheus), /healthz and /readyz; port 0 picks one. Empty: off.")                 \
    X(tls, dir, TEXT, .level = CONFIG_BASIC, .fallback = "tls",                                    \
      .help = "Directory with ca.pem, NAME.pem, NAME.key, NAME.identity.pem and .key as atoll "    \
              "cert writes them.")                                                                 \
    X(serve, index, INT, .level = CONFIG_EXPERT, .fallback = "0", .min = 0, .max = 15,             \
      .help =                                                                                      \
          "Number of this process among outer.aggregators, from 0: its place in site.aggregator.") \
    X(serve, listen, TEXT, .level = CONFIG_BASIC, .fallback = "127.0.0.1:7443",                    \
      .help = "Address and port the aggregator binds.")                                            \
    X(serve, http, TEXT, .level = CONFIG_BASIC, .example = "127.0.0.1:8080", .fallback = "",       \
      .help = "Address and port, loopback only, where the aggregator serves the run's live page, " \
              "/metrics (Prometheus), /healthz and /readyz; port 0 picks one. Empty: off.")        \
    X(serve, receive_mib, INT, .level = CONFIG_EXPERT, .fallback = "0", .min = 0, .max = 65536,    \
      .unit = "MiB",                                                                               \
      .help = "Memory for received bytes that are not on disk yet, of all connections together: "  \
              "64 MiB, and 6 MiB for each stream that is received at a time; further streams "     \
              "wait. 0: 160 (16 streams); with at most 4 sites 64 + 256 for each, so that one "    \
              "connection fills a long link. At least 76.")                                        \
    X(serve, keep_states, INT, .fallback = "2", .min = 2, .max = 1e6, .unit = "states",            \
      .help = "Outer states of each fragment that the aggregator keeps on disk, the present one "  \
              "included: atoll operator rollback goes back to one of them, atoll export "          \
              "--mean takes the mean of the newest.")                                              \
    X(serve, dir, TEXT, .level = CONFIG_BASIC, .fallback = "aggregator",                           \
      .help = "Directory of the aggregator's journal, spool and state.")                           \
    X(run, archive, TEXT, .fallback = "off",                                                       \
      .help = "on: manifests and contributions of all committed rounds are kept in archive/ of "   \
              "run.dir (a site: its own contributions) and of serve.dir, for atoll replay; or a "  \
              "directory, where each replica makes one of its name. atoll plan and atoll doctor "  \
              "predict the bytes. off: none.")                                                     \
    X(run, archive_states, INT, .fallback = "0", .min = 0, .max = 1e9, .unit = "rounds",           \
      .help = "With run.archive: also the state of a fragment after every n of its "               \
              "rounds, where atoll replay can begin. 0: none.")                                    \
    X(scrub, every_h, REAL, .fallback = "12", .min = 0, .max = 8760, .unit = "h",                  \
      .help = "Time from one scrub to the next: a site and the aggregator read their stored "      \
              "files again, compare them with their digests, and repair damaged ones. "            \
              "The first scrub begins 10 minutes after the start, or after this time where it is " \
              "shorter. 0: none.")                                                                 \
    X(scrub, mib_s, REAL, .fallback = "16", .min = 0.01, .max = 65536, .unit = "MiB/s",            \
      .help = "Most that the scrub reads.")                                                        \
    X(eval, tasks, LIST, .level = CONFIG_BASIC, .example = "[arc=arc.jsonl]", .fallback = "",      \
      .help =                                                                                      \
          "Multiple-choice tasks, NAME=FILE: HellaSwag, ARC or MMLU as JSON lines, MMLU's CSV, "   \
          "or "                                                                                    \
          "llm.c's .bin (docs/data.md 4); a * is a glob. The files must be public: what is found " \
          "out with them is shown and charged to no privacy budget.")                              \
    X(eval, shots, INT, .fallback = "0", .min = 0, .max = 64, .unit = "examples",                  \
      .help = "Worked examples before each question of tasks of JSON lines or CSV: the first "     \
              "of eval.shots_from, with MMLU of the question's subject.")                          \
    X(eval, shots_from, LIST, .example = "[arc=train.jsonl]", .fallback = "",                      \
      .help = "NAME=FILE for each of eval.tasks: JSON lines or CSV with worked examples.")         \
    X(eval, questions, INT, .fallback = "0", .min = 0, .max = 1e6, .unit = "questions",            \
      .help = "The first N questions of each file of a task; 0: all.")                             \
    X(eval, every_rounds, INT, .fallback = "0", .min = 0, .max = 1e6, .unit = "rounds",            \
      .help =                                                                                      \
          "After every N rounds of the first fragment, and after the last, this site "             \
          "evaluates eval.tasks and eval.prompts on the outer parameters. The training's bits "    \
          "stay the same; the site's next step comes later. 0: never.")                            \
    X(eval, prompts, LIST, .example = "[\"Once upon\"]", .recorded = "probes", .fallback = "",     \
      .help = "Prompts that the outer parameters continue every eval.every_rounds, with the same " \
              "draws as atoll sample --seed of run.seed. Not with privacy.secure without "         \
              "privacy.unit: the text could repeat a site's data.")                                \
    X(eval, prompt_tokens, INT, .recorded = "probe_tokens", .fallback = "64", .min = 1,            \
      .max = 512, .unit = "tokens", .help = "Tokens of a continuation.")                           \
    X(log, level, CHOICE(log_level), .level = CONFIG_BASIC, .fallback = "info",                    \
      .help = "Least severe level that is written.")                                               \
    X(log, progress, CHOICE(log_progress), .fallback = "auto",                                     \
      .help = "Progress on stderr; auto: live on a terminal, sparse lines elsewhere.")

struct outer_settings {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    KEYS_OUTER(X)
#undef X
};
struct settings;
struct keys_base { /* a configuration: settings that pass all rules */
    const struct settings *s;
    const struct outer_settings *o;
};
struct config_table keys_outer(struct outer_settings *o);
/* config_difference of texts with the keys of both tables. */
enum err keys_difference(const char *ours, const char *theirs, struct arena *a, char **text) MUST;
/* The rules over several keys of both tables. */
void keys_outer_check(struct config_rules *r, const struct outer_settings *o,
                      const struct settings *s);
/* site.aggregator = self: the site is its own aggregator. */
bool keys_self(const struct outer_settings *o);
/* The item of site.aggregator at this index; false: the list is shorter, or the item is too long.
 */
bool keys_aggregator(const char *list, unsigned index, char *out, size_t size);
/* Secure aggregation, of settings that pass all rules. */
struct round_masks keys_masks(const struct outer_settings *o);
/* An item of eval.tasks or eval.shots_from, NAME=FILE. False: it is not of this form. */
bool keys_named_file(const char *item, char name[SITE_NAME_MAX + 1], const char **file);
/* outer.interval_schedule; false: it is given and not of its form. Not given: zeroed. */
bool keys_grow(const struct outer_settings *o, struct period_growth *g);
/* alpha of the merge: outer.update_alpha, or the published share where it is -1 (0.5 of Streaming
 * DiLoCo; 0 of DiLoCoX and DreamDDP). */
double keys_mix(const struct outer_settings *o);

#endif
