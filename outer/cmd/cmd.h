#ifndef CMD_H
#define CMD_H
/* The subcommands: one cmd_NAME.c each, argv[0] is the subcommand's name. Commands return an error,
 * whose text is err_message(); only main.c exits. A build without the network lacks the commands
 * that need it.
 */
#include "kernels/base/args.h"
#include "outer/protocol/round.h"

/* X(name, needs: NET or ANY build, summary) */
#define CMD_LIST(X)                                                                                \
    X(demo, NET, "two sites and an aggregator on this machine, on real text, with a report")       \
    X(train, ANY, "train: alone, or as one site of a run")                                         \
    X(cert, NET,                                                                                   \
      "the certificate authority of a run, and the certificates of its sites and aggregator")      \
    X(serve, NET,                                                                                  \
      "the aggregator of a run: collects contributions, commits rounds, keeps the outer state")    \
    X(relay, ANY, "a hub for sites that cannot reach the aggregator: forwards TLS, unopened")      \
    X(operator, NET, "an operator's calls: status, abort, roll back, quarantine, set, roster")     \
    X(data, ANY, "plain text into token shards: a held-out part, and one part for each site")      \
    X(eval, ANY, "held-out loss and perplexity of a trained model")                                \
    X(sample, ANY, "text that a trained model writes")                                             \
    X(export, ANY, "a trained model as transformers reads it (safetensors, GPT-2 names)")          \
    X(import, ANY, "a model with GPT-2 names as the start of a run")                               \
    X(report, ANY, "one HTML page with plots about one or more run directories")                   \
    X(status, ANY, "where a run stands: its sites, what they wait for, its rounds")                \
    X(watch, ANY, "the live page of a run, at this machine's loopback")                            \
    X(wan, ANY, "commands at the places of an emulated network: rate, delay, loss, outages")       \
    X(ledger, ANY, "bytes on the link by layer, site, round: predicted, counted, the kernel's")    \
    X(replay, ANY, "every committed round made again from archives: is it what is on record?")     \
    X(plan, ANY,                                                                                   \
      "what a run's exchange will cost on a given link, and the settings that cost least")         \
    X(probe, NET,                                                                                  \
      "measures the link to another machine, and the step time of this one, for atoll plan")       \
    X(sim, ANY, "a whole run in virtual time: 2 to 1,000 sites, a year in seconds")                \
    X(privacy, ANY,                                                                                \
      "differential privacy in numbers: epsilon, noise, what a site has spent, an audit")          \
    X(doctor, ANY, "what this machine and this build can do: processor, memory, MPI, gRPC, GPUs")

/* The closing message of this process is left out: the lead rank of the job prints it. */
void cmd_silence(void);
/* The closing message now, and not again at the end of the program. */
void cmd_close(const char *command, enum err e);

/* From now on new files and directories are readable by this user alone: state, payloads, shards.
 */
void cmd_files_private(void);
/* ev=directory_open when other users can read the directory: it was made by an older version. */
void cmd_directory_look(const char *dir);
/* No other process of this user may attach to this one, and it writes no core dump: it holds a key.
 */
void cmd_memory_private(void);

#define X(name, needs, summary) enum err cmd_##name(int argc, char **argv) MUST;
CMD_LIST(X)
#undef X

/* Rows of the option table of commands that take a configuration with plan.*; o: has config, probe,
 * sites. */
#define PLAN_ROWS(o)                                                                               \
    {"config", ARGS_TEXT, &(o)->config, .value = "FILE",                                           \
     .help = "Configuration (YAML), the one of atoll train: the model, the steps, the sites; "     \
             "plan.* is the link and the step time."},                                             \
        {"probe", ARGS_TEXT, &(o)->probe, .value = "FILE",                                         \
         .help = "What atoll probe measured: its plan.* in place of the configuration's."},        \
    {                                                                                              \
        "sites", ARGS_INT, &(o)->sites,                                                            \
            .max = ROUND_SITES_MAX, .value = "N",                                                  \
            .help = "N sites s0, s1, ... instead of outer.sites; 0: outer.sites."                  \
    }

#endif
