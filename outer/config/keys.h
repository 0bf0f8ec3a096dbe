#ifndef OUTER_KEYS_H
#define OUTER_KEYS_H
/* The settings of the outer loop: what all replicas share (pinned) and what only this process
 * needs.
 */
#include "inner/config/config.h"

enum { KEYS_SHARE_MAX = 100 }; /* site.share: at most */

/* X(section, name, type, default, min, max, choices, unit, pinned, help) */
#define KEYS_OUTER(X)                                                                              \
    X(outer, sites, LIST, "", 0, 0, NULL, "", true,                                                \
      "Names of the configured sites (the roster); at most 1024, letters, digits, - and _.")       \
    X(outer, every, INT, "50", 1, 1e6, NULL, "steps", true,                                        \
      "H: inner steps between two rounds of a fragment.")                                          \
    X(outer, fragments, INT, "1", 1, 64, NULL, "", true,                                           \
      "P: fragments of the model, synchronised in turn; 1 is classic DiLoCo. Must divide "         \
      "outer.every.")                                                                              \
    X(outer, aggregators, INT, "1", 1, 16, NULL, "", true,                                         \
      "Aggregators that share the fragments: fragment f belongs to aggregator f modulo this "      \
      "number. For runs that are limited by one network card.")                                    \
    X(outer, overlap_steps, INT, "0", 0, 1e6, NULL, "steps", true,                                 \
      "tau: steps that training continues while a round is exchanged; 0: training waits. "         \
      "outer.every: the one-round delay (DiLoCoX).")                                               \
    X(outer, eager, BOOL, "false", 0, 0, NULL, "", true,                                           \
      "With the one-round delay: a site continues from a local outer step, with its own fresh "    \
      "delta and the other sites' deltas of the round before (eager updates).")                    \
    X(outer, before_update, BOOL, "false", 0, 0, NULL, "", true,                                   \
      "Applies a committed round after the backward pass and before the optimizer step, so that "  \
      "the update of that step is not overwritten (DreamDDP).")                                    \
    X(outer, mix, REAL, "-1", -1, 1, NULL, "", true,                                               \
      "alpha: share of the local parameters when an overlapped round is applied; the rest is the " \
      "outer parameters. -1: 0.5, and 0 with the one-round delay or outer.before_update.")         \
    X(outer, partition, CHOICE, "strided", 0, 0, "strided|sequential|balanced|random|slices", "",  \
      true,                                                                                        \
      "How the model is cut into fragments. strided: block i to fragment i mod P. sequential: "    \
      "consecutive blocks. balanced: tensors by size. random: every 256 values at random "         \
      "(SPARTA). slices: as outer.slices lists (DreamDDP).")                                       \
    X(outer, slices, LIST, "", 0, 0, NULL, "", true,                                               \
      "partition slices: FIRST-LAST@STEP for each fragment: layers FIRST to LAST (embed, 0, 1, "   \
      "..., final), sent STEP steps into each period of outer.every.")                             \
    X(outer, codec, CHOICE, "int8", 0, 0,                                                          \
      "f32|bf16|int8|int4|int2|e3m0|fp8_e4m3|fp8_e5m2|topk|sign|csc|fp8_sr", "", true,             \
      "How contributions are encoded; bits and loss of each: docs/methods.md 2. f32, bf16: as "    \
      "they are. int8, int4, int2: integers on shared scales. e3m0, fp8: small floats. topk: "     \
      "1/64 of the values. sign: one bit. csc: a tenth of the chunks.")                            \
    X(outer, first_every, INT, "0", 0, 1e6, NULL, "steps", true,                                   \
      "Period of the rounds that average the optimizer's first moment (DES-LOC: 3 x "              \
      "outer.every); 0: the moment stays local.")                                                  \
    X(outer, second_every, INT, "0", 0, 1e6, NULL, "steps", true,                                  \
      "Period of the rounds that average the second moment (DES-LOC: 6 x outer.every); 0: the "    \
      "moment stays local.")                                                                       \
    X(outer, moments_codec, CHOICE, "bf16", 0, 0, "f32|bf16|int8", "", true,                       \
      "How moments are encoded. Finer than parameters, because the update divides by the second "  \
      "moment.")                                                                                   \
    X(outer, full_precision_rounds, INT, "1", 1, 1e6, NULL, "rounds", true,                        \
      "The first N rounds are sent in full precision (bf16; f32 stays f32) to set the shared "     \
      "scales and to flush error feedback. So is the last round, unless a residual is more than "  \
      "about twice its delta.")                                                                    \
    X(outer, error_feedback_decay, REAL, "1", 0, 1, NULL, "", true,                                \
      "Share of the residual that is carried to the next round. 1: classic error feedback; 0: "    \
      "none.")                                                                                     \
    X(outer, norm_limit, REAL, "1000", 0, 1e9, NULL, "", true,                                     \
      "The aggregator refuses a contribution whose norm (RMS of its values over its weight) is "   \
      "more than this many times the median of the last rounds and more than the RMS of the "      \
      "outer parameters; in the first round more than this many times that RMS. 0: no bound.")     \
    X(outer, residual_reset, REAL, "0", 0, 1e6, NULL, "", true,                                    \
      "After a round in which a site's residual exceeds this many times its delta, the next "      \
      "round is sent in full precision and the residuals are discarded, because they are too old " \
      "to apply at once. 0: never. Needs 8 more bytes per parameter at the lead rank.")            \
    X(outer, downlink_compression_from, INT, "9", 0, 1024, NULL, "sites", true,                    \
      "With at least this many sites in a round, the aggregator sums the contributions of a "      \
      "codec that cannot be summed in compressed form (and full-precision rounds) and compresses " \
      "the sum, with a residual of its own, instead of forwarding every contribution. 0: never. "  \
      "With fewer than 9 sites the download is at most 8 uploads. Costs loss with topk: "          \
      "docs/results.md 3.2.")                                                                      \
    X(outer, optimizer, CHOICE, "nesterov", 0, 0, "nesterov|delayed_nesterov|sgd|average", "",     \
      true, "Outer optimizer.")                                                                    \
    X(outer, delay, INT, "1", 1, 1e4, NULL, "rounds", true,                                        \
      "N of delayed_nesterov: every round steps by 1/N of the mean, every N-th also applies the "  \
      "momentum; 1 is nesterov.")                                                                  \
    X(outer, lr, REAL, "0", 0, 10, NULL, "", true,                                                 \
      "Outer learning rate; 0: the published one for this many sites and steps (--dry-run prints " \
      "it). average uses 1.")                                                                      \
    X(outer, momentum, REAL, "0.9", 0, 0.9999, NULL, "", true, "Outer momentum of nesterov.")      \
    X(outer, mode, CHOICE, "strict", 0, 0, "strict|quorum", "", true,                              \
      "strict: every configured site in every round. quorum: a majority is enough after "          \
      "outer.straggler_timeout_s.")                                                                \
    X(outer, straggler_timeout_s, REAL, "60", 0.05, 1e6, NULL, "s", true,                          \
      "quorum: how long a round waits after its first contribution. The only timeout setting.")    \
    X(outer, max_local_steps_offline, INT, "0", 0, 1e9, NULL, "steps", true,                       \
      "quorum: steps that a site trains on while the aggregator is unreachable; 0: the site "      \
      "pauses.")                                                                                   \
    X(outer, device, CHOICE, "auto", 0, 0, "auto|cpu", "", false,                                  \
      "Where a site on a GPU encodes, decodes and takes the outer step; the bits are the same. "   \
      "auto: on the GPU, which takes 16 to 28 bytes per parameter of the largest fragment and 4 "  \
      "for each further fragment in flight (--dry-run prints it). cpu: on the host.")              \
    X(outer, history_rounds, INT, "8", 1, 1e6, NULL, "rounds", true,                               \
      "Committed rounds that are kept for sites that were away. A site further behind takes a "    \
      "snapshot.")                                                                                 \
    X(site, name, TEXT, "", 0, 0, NULL, "", false,                                                 \
      "Which of outer.sites this process is; not needed with one site and no aggregator.")         \
    X(site, share, REAL, "1", 0.01, KEYS_SHARE_MAX, NULL, "", false,                               \
      "This site's tokens per step as a multiple of train.batch_tokens; its weight in the mean.")  \
    X(site, aggregator, TEXT, "", 0, 0, NULL, "", false,                                           \
      "host:port of the aggregator, or of each of outer.aggregators, separated by commas. Empty: " \
      "train alone, without an outer loop.")                                                       \
    X(site, aggregator_name, TEXT, "", 0, 0, NULL, "", false,                                      \
      "DNS name in the aggregator's certificate, when dialling by address.")                       \
    X(site, streams, INT, "4", 1, 16, NULL, "", false,                                             \
      "Most connections that share one payload. Several fill a long or lossy link that one TCP "   \
      "stream does not fill.")                                                                     \
    X(site, rate_up, REAL, "0", 0, 1e6, NULL, "Mbit/s", false,                                     \
      "Upload rate limit of contributions; 0: none.")                                              \
    X(site, rate_down, REAL, "0", 0, 1e6, NULL, "Mbit/s", false,                                   \
      "Download rate limit of aggregates and snapshots; 0: none.")                                 \
    X(tls, dir, TEXT, "tls", 0, 0, NULL, "", false,                                                \
      "Directory with ca.pem, NAME.pem, NAME.key as atoll cert writes them.")                      \
    X(serve, index, INT, "0", 0, 15, NULL, "", false,                                              \
      "Number of this process among outer.aggregators, from 0: its place in site.aggregator.")     \
    X(serve, listen, TEXT, "127.0.0.1:7443", 0, 0, NULL, "", false,                                \
      "Address and port the aggregator binds.")                                                    \
    X(serve, receive_mib, INT, "0", 0, 65536, NULL, "MiB", false,                                  \
      "Memory for received bytes that are not on disk yet, of all connections together: 64 MiB, "  \
      "and 6 MiB for each stream that is received at a time; further streams wait. 0: 160 (16 "    \
      "streams); with at most 4 sites 64 + 256 for each, so that one connection fills a long "     \
      "link. At least 76.")                                                                        \
    X(serve, dir, TEXT, "aggregator", 0, 0, NULL, "", false,                                       \
      "Directory of the aggregator's journal, spool and state.")                                   \
    X(log, level, CHOICE, "info", 0, 0, "debug|info|warn|error", "", false,                        \
      "Least severe level that is written.")                                                       \
    X(log, progress, CHOICE, "auto", 0, 0, "auto|line|live|none", "", false,                       \
      "Progress on stderr; auto: live on a terminal, sparse lines elsewhere.")                     \
    X(plan, step_s, REAL, "0", 0, 1e6, NULL, "s", false,                                           \
      "Measured time of one inner step (atoll probe --step); 0: unknown. With the rates below, "   \
      "atoll train logs predicted beside measured values.")                                        \
    X(plan, up_mbit, REAL, "0", 0, 1e7, NULL, "Mbit/s", false,                                     \
      "Upload rate from this site to the aggregator, IP packets; 0: unknown.")                     \
    X(plan, down_mbit, REAL, "0", 0, 1e7, NULL, "Mbit/s", false,                                   \
      "Download rate from the aggregator to this site, IP packets; 0: unknown.")                   \
    X(plan, rtt_ms, REAL, "0", 0, 3600000, NULL, "ms", false,                                      \
      "Round trip between this site and the aggregator.")                                          \
    X(plan, loss_percent, REAL, "0", 0, 10, NULL, "%", false,                                      \
      "Packet loss of the link. 0 with measured rates, which include it. Above 10 % TCP hardly "   \
      "works, and no model of its rate holds.")                                                    \
    X(plan, congestion, CHOICE, "cubic", 0, 0, "cubic|bbr", "", false,                             \
      "TCP congestion control of a link without measured times. cubic: slow start after idle, "    \
      "limited by loss. bbr: neither.")                                                            \
    X(plan, up_s, LIST, "", 0, 0, NULL, "s", false,                                                \
      "Measured times (atoll probe) of uploads of 64 KiB, 256 KiB, 1 MiB, ..., without the round " \
      "trip. They replace up_mbit and loss_percent.")                                              \
    X(plan, down_s, LIST, "", 0, 0, NULL, "s", false,                                              \
      "Measured times (atoll probe) of downloads of 64 KiB, 256 KiB, 1 MiB, ..., without the "     \
      "round trip.")                                                                               \
    X(plan, encode_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                       \
      "Time per value of a site to encode and store a contribution (atoll probe --step).")         \
    X(plan, apply_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                        \
      "Time per value of a site from the aggregate to the stored outer step (atoll probe "         \
      "--step).")                                                                                  \
    X(plan, accept_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                       \
      "Time per value of the aggregator for each contribution: verify and store.")                 \
    X(plan, commit_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                       \
      "Time per value of the aggregator for a round: outer step and store.")                       \
    X(plan, sum_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                          \
      "Time per value of the aggregator for each contribution in a round: verify again and add.")  \
    X(plan, layers_ms, LIST, "", 0, 0, NULL, "ms", false,                                          \
      "Backward time of the embeddings, each layer and the final norm (atoll probe --step), for "  \
      "atoll plan --layers.")                                                                      \
    X(plan, aggregator_mbit, REAL, "0", 0, 1e7, NULL, "Mbit/s", false,                             \
      "Rate of the aggregator's link in each direction, shared by all sites; 0: no limit.")        \
    X(plan, price_gb, REAL, "0", 0, 1e6, NULL, "", false,                                          \
      "Price of 1e9 bytes that leave a site or the aggregator, in any currency.")

struct outer_settings {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    KEYS_OUTER(X)
#undef X
};
struct settings;
struct config_table keys_outer(struct outer_settings *o);
/* The rules over several keys of both tables. */
void keys_outer_check(struct config_rules *r, const struct outer_settings *o,
                      const struct settings *s);
/* The item of site.aggregator at this index; false: the list is shorter, or the item is too long.
 */
bool keys_aggregator(const char *list, unsigned index, char *out, size_t size);
/* alpha of the merge: outer.mix, or the published share where it is -1 (0.5 of Streaming DiLoCo; 0
 * of DiLoCoX and DreamDDP). */
double keys_mix(const struct outer_settings *o);

#endif
