/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_H
#define CMD_H
/* The subcommands: one cmd_NAME.c each, argv[0] is the subcommand's name. Commands return an error,
 * whose text is err_message(); only main.c exits. A build without the network leaves out the
 * commands that need it.
 */
#include "kernels/base/args.h"

/* The groups of `atoll --help`, in order. */
#define CMD_GROUPS(X)                                                                              \
    X(FIRST, "first")                                                                              \
    X(RUN, "a run of several sites")                                                               \
    X(BEFORE, "before a run")                                                                      \
    X(AFTER, "while it runs, and after it")                                                        \
    X(MODEL, "a trained model")
/* X(name, needs: NET or ANY build, group, summary) */
#define CMD_LIST(X)                                                                                \
    X(demo, NET, FIRST,                                                                            \
      "two sites and an aggregator on this machine, on real text, with a report")                  \
    X(data, ANY, FIRST,                                                                            \
      "text (plain, JSON lines, CSV, compressed), labelled texts or token ids into shards: held "  \
      "out, and one part a site")                                                                  \
    X(doctor, ANY, FIRST,                                                                          \
      "what this machine and this build can do; with --config whether a run would start here")     \
    X(train, ANY, FIRST, "train: alone, or as one site of a run")                                  \
    X(cert, NET, RUN,                                                                              \
      "the certificate authority of a run, and the certificates of its sites and aggregator")      \
    X(serve, NET, RUN,                                                                             \
      "the aggregator of a run: collects contributions, commits rounds, keeps the outer state")    \
    X(operator, NET, RUN,                                                                          \
      "an operator's calls: status, abort, roll back, quarantine, set, roster")                    \
    X(relay, ANY, RUN, "a hub for sites that cannot reach the aggregator: forwards TLS, unopened") \
    X(plan, ANY, BEFORE,                                                                           \
      "what a run's exchange will cost on a given link, and the settings that cost least")         \
    X(probe, NET, BEFORE,                                                                          \
      "measures the link to another machine, and the step time of this one, for atoll plan")       \
    X(sim, ANY, BEFORE, "a whole run in virtual time: 2 to 1,000 sites, a year in seconds")        \
    X(wan, ANY, BEFORE,                                                                            \
      "commands at the places of an emulated network: rate, delay, loss, outages")                 \
    X(privacy, ANY, BEFORE,                                                                        \
      "differential privacy in numbers: epsilon, noise, what a site has spent, an audit")          \
    X(status, ANY, AFTER, "where a run stands: its sites, what they wait for, its rounds")         \
    X(watch, ANY, AFTER, "the live page of a run, at this machine's loopback")                     \
    X(report, ANY, AFTER, "one HTML page with plots about one or more run directories")            \
    X(ledger, ANY, AFTER,                                                                          \
      "bytes on the link by layer, site, round: predicted, counted, the kernel's")                 \
    X(replay, ANY, AFTER,                                                                          \
      "every committed round computed again from archives: is it what is on record?")              \
    X(eval, ANY, MODEL,                                                                            \
      "held-out loss and perplexity of a trained model, scores of an encoder, tasks")              \
    X(sample, ANY, MODEL, "text that a trained model writes")                                      \
    X(export, ANY, MODEL,                                                                          \
      "a trained model as transformers reads it: GPT-2, Llama, BERT, ALBERT, ModernBERT")          \
    X(import, ANY, MODEL, "a model of transformers, of these families, as the start of a run")

#define X(name, needs, group, summary)                                                             \
    enum err cmd_##name(int argc, char **argv, struct arena *arena) MUST;
CMD_LIST(X)
#undef X

#endif
