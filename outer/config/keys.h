#ifndef OUTER_KEYS_H
#define OUTER_KEYS_H
/* The settings of the outer loop: what all replicas share (pinned) and what only this process
 * needs.
 */
#include "inner/config/config.h"

/* X(section, name, type, default, min, max, choices, unit, pinned, help) */
#define KEYS_OUTER(X)                                                                              \
    X(outer, sites, LIST, "", 0, 0, NULL, "", true,                                                \
      "Names of the configured sites (the roster); at most 1024, letters, digits, - and _.")       \
    X(outer, every, INT, "50", 1, 1e6, NULL, "steps", true,                                        \
      "H: inner steps between two rounds of a fragment.")                                          \
    X(outer, fragments, INT, "1", 1, 64, NULL, "", true,                                           \
      "P: parts of the model synchronised in turn; 1 is classic DiLoCo; divides outer.every.")     \
    X(outer, aggregators, INT, "1", 1, 16, NULL, "", true,                                         \
      "Aggregators that share the fragments: fragment f is of the one at f modulo this number, "   \
      "so no single network card is the limit.")                                                   \
    X(outer, overlap_steps, INT, "0", 0, 1e6, NULL, "steps", true,                                 \
      "tau: steps that training goes on while a round is exchanged; 0: it waits. outer.every: "    \
      "the one-round delay (DiLoCoX).")                                                            \
    X(outer, eager, BOOL, "false", 0, 0, NULL, "", true,                                           \
      "With the one-round delay: a site goes on from an outer step of its own, with its fresh "    \
      "delta and the others' of the round before (Eager updates).")                                \
    X(outer, before_update, BOOL, "false", 0, 0, NULL, "", true,                                   \
      "A commit is put in between the backward pass and the optimizer's update of its step, not "  \
      "behind it: that step's update is kept (DreamDDP).")                                         \
    X(outer, mix, REAL, "-1", -1, 1, NULL, "", true,                                               \
      "alpha: share of the local parameters when an overlapped commit is applied (the rest: the "  \
      "outer ones); -1: 0.5, and 0 with the one-round delay or outer.before_update.")              \
    X(outer, partition, CHOICE, "strided", 0, 0, "strided|sequential|balanced|random|slices", "",  \
      true,                                                                                        \
      "How the model is cut into fragments: block i to fragment i mod P; consecutive blocks; "     \
      "tensors by size; every 256 values drawn for one (SPARTA); as outer.slices lists "           \
      "(DreamDDP).")                                                                               \
    X(outer, slices, LIST, "", 0, 0, NULL, "", true,                                               \
      "partition slices: FIRST-LAST@STEP each: layers (embed, 0, 1, ..., final) sent STEP steps "  \
      "into every period of outer.every.")                                                         \
    X(outer, codec, CHOICE, "int8", 0, 0,                                                          \
      "f32|bf16|int8|int4|int2|e3m0|fp8_e4m3|fp8_e5m2|topk|sign|csc|fp8_sr", "", true,             \
      "How contributions are encoded.")                                                            \
    X(outer, first_every, INT, "0", 0, 1e6, NULL, "steps", true,                                   \
      "Period of the rounds that average the optimizer's first moment (DES-LOC: 3 x "              \
      "outer.every); 0: it stays a site's own.")                                                   \
    X(outer, second_every, INT, "0", 0, 1e6, NULL, "steps", true,                                  \
      "The same for the second moment (DES-LOC: 6 x outer.every).")                                \
    X(outer, moments_codec, CHOICE, "bf16", 0, 0, "f32|bf16|int8", "", true,                       \
      "How moments are encoded; finer than parameters: the second is divided by.")                 \
    X(outer, full_precision_rounds, INT, "1", 1, 1e6, NULL, "rounds", true,                        \
      "First rounds sent whole, in bf16 (f32 stays f32): they set the grid and empty the "         \
      "residual; so is the last, unless a residual is more than about twice its delta.")           \
    X(outer, error_feedback_decay, REAL, "1", 0, 1, NULL, "", true,                                \
      "Share of the residual carried to the next round (1: classic error feedback).")              \
    X(outer, residual_reset, REAL, "0", 0, 1e6, NULL, "", true,                                    \
      "Back-off: after a round in which some site's residual was more than about this many times " \
      "its delta the next is sent whole, in bf16, and what the residuals hold is forgotten (it "   \
      "is too old to apply at once); 0: never. Keeps 8 bytes a parameter more at the lead.")       \
    X(outer, downlink_compression_from, INT, "9", 0, 1024, NULL, "sites", true,                    \
      "Sites in a round from which on the aggregator adds contributions of a codec that does not " \
      "add (whole rounds too) and encodes the sum again, with a residual of its own, instead of "  \
      "passing all of them on; 0: never. Below 9 the download is at most 8 uploads, which a line " \
      "of 1:8 takes in the same time. top-k pays for it in loss: docs/results.md.")                \
    X(outer, optimizer, CHOICE, "nesterov", 0, 0, "nesterov|delayed_nesterov|sgd|average", "",     \
      true, "Outer optimizer.")                                                                    \
    X(outer, delay, INT, "1", 1, 1e4, NULL, "rounds", true,                                        \
      "N of delayed_nesterov: every round steps by 1/N of the mean, every N-th applies the "       \
      "momentum too; 1 is nesterov.")                                                              \
    X(outer, lr, REAL, "0", 0, 10, NULL, "", true,                                                 \
      "Outer learning rate; 0: the published one for this many sites and steps (--dry-run says "   \
      "which). average uses 1.")                                                                   \
    X(outer, momentum, REAL, "0.9", 0, 0.9999, NULL, "", true, "Outer momentum of nesterov.")      \
    X(outer, mode, CHOICE, "strict", 0, 0, "strict|quorum", "", true,                              \
      "strict: every configured site in every round; quorum: a majority may go on at the "         \
      "deadline.")                                                                                 \
    X(outer, straggler_timeout_s, REAL, "60", 0.05, 1e6, NULL, "s", true,                          \
      "quorum: how long after the first contribution a round waits. The one timeout setting.")     \
    X(outer, max_local_steps_offline, INT, "0", 0, 1e9, NULL, "steps", true,                       \
      "quorum: steps a site may train on while the aggregator is unreachable; 0: it pauses.")      \
    X(outer, device, CHOICE, "auto", 0, 0, "auto|cpu", "", false,                                  \
      "Where a site on a GPU encodes, decodes and takes the outer step: auto: on that GPU, which " \
      "costs 16 to 28 bytes for each value of the largest fragment, and 4 for each further one "   \
      "under way (--dry-run says); cpu: on the host's cores. The same bits.")                      \
    X(outer, history_rounds, INT, "8", 1, 1e6, NULL, "rounds", true,                               \
      "Committed rounds kept for sites that were away; older ones come as a snapshot.")            \
    X(site, name, TEXT, "", 0, 0, NULL, "", false,                                                 \
      "Which of outer.sites this process is; may be left out with one site and no aggregator.")    \
    X(site, share, REAL, "1", 0.01, 100, NULL, "", false,                                          \
      "This site's tokens per step as a multiple of train.batch_tokens; its weight in the mean.")  \
    X(site, aggregator, TEXT, "", 0, 0, NULL, "", false,                                           \
      "host:port of the aggregator, or of each of outer.aggregators with commas between; empty: "  \
      "train alone, without an outer loop.")                                                       \
    X(site, aggregator_name, TEXT, "", 0, 0, NULL, "", false,                                      \
      "DNS name in the aggregator's certificate, when dialling by address.")                       \
    X(site, streams, INT, "4", 1, 16, NULL, "", false,                                             \
      "Connections that share one payload, at most; several fill a long or lossy link where one "  \
      "TCP stream does not.")                                                                      \
    X(site, rate_up, REAL, "0", 0, 1e6, NULL, "Mbit/s", false,                                     \
      "Most that contributions may take of the uplink; 0: all of it.")                             \
    X(site, rate_down, REAL, "0", 0, 1e6, NULL, "Mbit/s", false,                                   \
      "Most that aggregates and snapshots may take of the downlink; 0: all of it.")                \
    X(tls, dir, TEXT, "tls", 0, 0, NULL, "", false,                                                \
      "Directory with ca.pem, NAME.pem, NAME.key as atoll cert writes them.")                      \
    X(serve, index, INT, "0", 0, 15, NULL, "", false,                                              \
      "Which of outer.aggregators this process is, from 0; its place in site.aggregator.")         \
    X(serve, listen, TEXT, "127.0.0.1:7443", 0, 0, NULL, "", false,                                \
      "Address and port the aggregator binds.")                                                    \
    X(serve, receive_mib, INT, "0", 0, 65536, NULL, "MiB", false,                                  \
      "Memory for what sites send and is not yet on disk, of all connections together: 64, and 6 " \
      "for each stream that is received at a time; the others wait for their turn. 0: 160 (16 "    \
      "streams); with at most 4 sites 64 + 256 for each, so that one connection fills a long "     \
      "line. At least 76.")                                                                        \
    X(serve, dir, TEXT, "aggregator", 0, 0, NULL, "", false,                                       \
      "Directory of the aggregator's journal, spool and state.")                                   \
    X(log, level, CHOICE, "info", 0, 0, "debug|info|warn|error", "", false,                        \
      "Least level written.")                                                                      \
    X(log, progress, CHOICE, "auto", 0, 0, "auto|line|live|none", "", false,                       \
      "Progress on stderr; auto: live on a terminal, sparse lines elsewhere.")                     \
    X(plan, step_s, REAL, "0", 0, 1e6, NULL, "s", false,                                           \
      "Time of one inner step as measured (atoll probe --step); 0: not known. With the rates "     \
      "below, atoll train says each round what was predicted.")                                    \
    X(plan, up_mbit, REAL, "0", 0, 1e7, NULL, "Mbit/s", false,                                     \
      "Rate of this site's line to the aggregator, IP packets; 0: not known.")                     \
    X(plan, down_mbit, REAL, "0", 0, 1e7, NULL, "Mbit/s", false,                                   \
      "Rate from the aggregator to this site.")                                                    \
    X(plan, rtt_ms, REAL, "0", 0, 3600000, NULL, "ms", false,                                      \
      "Round trip between this site and the aggregator.")                                          \
    X(plan, loss_percent, REAL, "0", 0, 10, NULL, "%", false,                                      \
      "Packets lost on the way; 0 with measured rates, which hold it already. Above 10 % TCP "     \
      "hardly works, and no formula for its rate holds.")                                          \
    X(plan, congestion, CHOICE, "cubic", 0, 0, "cubic|bbr", "", false,                             \
      "TCP's congestion control where nothing was measured: cubic begins slowly after each pause " \
      "and loss keeps it down, bbr neither.")                                                      \
    X(plan, up_s, LIST, "", 0, 0, NULL, "s", false,                                                \
      "Measured times (atoll probe) for 64 KiB, 256 KiB, 1 MiB, ... of payload up the line, "      \
      "without the round trip; they stand in place of up_mbit and loss_percent.")                  \
    X(plan, down_s, LIST, "", 0, 0, NULL, "s", false, "The same down the line.")                   \
    X(plan, encode_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                       \
      "Time of a site for a value until its contribution is encoded and stored (atoll probe "      \
      "--step).")                                                                                  \
    X(plan, apply_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                        \
      "Time of a site for a value from the aggregate until the outer step is taken and stored.")   \
    X(plan, accept_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                       \
      "Time of the aggregator for a value of each contribution: verified and stored.")             \
    X(plan, commit_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                       \
      "Time of the aggregator for a value of a round: the outer step taken and stored.")           \
    X(plan, sum_ns, REAL, "0", 0, 1e6, NULL, "ns", false,                                          \
      "And for a value of each contribution in it: verified once more and added.")                 \
    X(plan, layers_ms, LIST, "", 0, 0, NULL, "ms", false,                                          \
      "Backward time of the embeddings, every layer and the final norm (atoll probe --step), for " \
      "atoll plan --layers.")                                                                      \
    X(plan, aggregator_mbit, REAL, "0", 0, 1e7, NULL, "Mbit/s", false,                             \
      "Rate of the aggregator's line, each direction, shared by all sites; 0: no limit.")          \
    X(plan, price_gb, REAL, "0", 0, 1e6, NULL, "", false,                                          \
      "Price of 1e9 bytes that leave a site or the aggregator, in any currency.")

struct outer_settings {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    KEYS_OUTER(X)
#undef X
};
struct settings;
struct config_table keys_outer(struct outer_settings *o);
/* Rules over several keys of both tables; ERR_CONFIG lists every violated one. */
enum err keys_outer_check(const struct outer_settings *o, const struct settings *s) MUST;
/* Beside it, for `atoll train`: the same file also serves the aggregator, which has no site.name.
 */
/* The item of site.aggregator at this index; false: there are not so many, or it is too long. */
bool keys_aggregator(const char *list, unsigned index, char *out, size_t size);
enum err keys_outer_check_site(const struct outer_settings *o) MUST;
/* outer.mix, or what -1 stands for (Streaming DiLoCo's plain average; DiLoCoX and DreamDDP take the
 * outer ones). */
double keys_mix(const struct outer_settings *o);

#endif
