/* `atoll operator`: a person's calls to an aggregator, with an operator's certificate. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/args.h"
#include "kernels/base/log.h"
#include "outer/cmd/cmd.h"
#include "outer/link/link.h"

enum { TIMEOUT_MS = 30000 };

struct operator_call {
    const char *target, *tls, *name, *server_name, *site;
    int64_t fragment, to;
    struct link_dial dial;
};

static const struct act {
    const char *name, *summary;
    enum wire_act act;
    bool site;
} acts[] = {
    {"status", "where the rounds stand, and the sites", WIRE_STATUS, false},
    {"abort", "close the round in flight with nobody in it; the work stays in the residuals",
     WIRE_ABORT, false},
    {"quarantine", "keep a site out of the run until it is readmitted", WIRE_QUARANTINE, true},
    {"rollback", "close the round in flight, and go on from an earlier state: --to", WIRE_ROLLBACK,
     false},
    {"readmit", "end a site's quarantine", WIRE_READMIT, true},
};
enum { ACT_COUNT = sizeof acts / sizeof *acts };

static enum err dial_make(struct operator_call *o, struct arena *a)
{
    o->dial = (struct link_dial){.target = o->target, .server_name = o->server_name};
    TRY_ALLOC(o->dial.tls.ca = arena_printf(a, "%s/ca.pem", o->tls));
    TRY_ALLOC(o->dial.tls.certificate = arena_printf(a, "%s/%s.pem", o->tls, o->name));
    TRY_ALLOC(o->dial.tls.key = arena_printf(a, "%s/%s.key", o->tls, o->name));
    return ERR_OK;
}

static enum err answered(const struct wire_answer *answer)
{
    if (answer->outcome == ROUND_CURRENT)
        return ERR_OK;
    enum err e = answer->outcome == ROUND_DENIED || answer->outcome == ROUND_EXCLUDED ? ERR_DENIED
                 : answer->outcome == ROUND_FULL                                      ? ERR_FULL
                                                                                      : ERR_CONFIG;
    return err_set(e, "the aggregator answers %s: %s", round_outcome_name(answer->outcome),
                   answer->text);
}

/* What is asked for is about the round that is in flight now: a repetition does not meet the next
 * one. */
static enum err act_run(const struct operator_call *o, const struct act *act)
{
    struct wire_operate m = {.act = WIRE_STATUS, .fragment = (uint32_t)o->fragment};
    struct wire_answer answer;
    TRY(link_operate(&o->dial, &m, &answer, TIMEOUT_MS));
    TRY(answered(&answer));
    if (act->act != WIRE_STATUS) {
        m.act = act->act;
        m.round = answer.round;
        m.to = (uint64_t)o->to;
        snprintf(m.site, sizeof m.site, "%s", o->site ? o->site : "");
        TRY(link_operate(&o->dial, &m, &answer, TIMEOUT_MS));
        TRY(answered(&answer));
    }
    size_t n = strlen(answer.text);
    printf("%s%s", answer.text, n && answer.text[n - 1] == '\n' ? "" : "\n");
    return ERR_OK;
}

static enum err act_parse(const struct act *act, int argc, char **argv, struct arena *arena)
{
    struct operator_call o = {.tls = "tls", .name = "operator", .to = -1};
    char command[64];
    const struct args_option options[] = {
        {"aggregator", ARGS_TEXT, &o.target, .value = "HOST:PORT", .required = true,
         .help = "Where the aggregator listens."},
        {"tls", ARGS_TEXT, &o.tls, .value = "DIR", .help = "Directory of the certificates."},
        {"name", ARGS_TEXT, &o.name, .value = "NAME",
         .help = "The certificate to show, NAME.pem (atoll cert issue --role operator)."},
        {"aggregator-name", ARGS_TEXT, &o.server_name, .value = "NAME",
         .help = "DNS name in the aggregator's certificate, when it is not HOST."},
        {"fragment", ARGS_INT, &o.fragment, .max = ROUND_FRAGMENTS_MAX - 1, .value = "N",
         .help = "status, abort, rollback: the fragment."},
        {"to", ARGS_INT, &o.to, .value = "N",
         .help = "rollback: the state that the run had after N rounds of the fragment."},
    };
    snprintf(command, sizeof command, "operator %s", act->name);
    struct args args = {.command = command,
                        .summary = act->summary,
                        .example = "atoll operator quarantine c --aggregator localhost:7443",
                        .options = options,
                        .count = sizeof options / sizeof *options};
    if (act->site && argc > 1 && argv[1][0] != '-') {
        o.site = argv[1];
        argc--;
        argv++;
    }
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    if (act->act == WIRE_ROLLBACK && o.to < 0)
        return err_set(ERR_CONFIG, "operator rollback: --to is missing: the number of the state");
    if (act->site && !o.site)
        return err_set(ERR_CONFIG, "operator %s: the site is missing: operator %s SITE", act->name,
                       act->name);
    TRY(dial_make(&o, arena));
    log_min(LOG_ERROR); /* the sentence says it */
    signal(SIGPIPE, SIG_IGN);
    return act_run(&o, act);
}

enum err cmd_operator(int argc, char **argv)
{
    struct arena arena = arena_make(0);
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    for (int i = 0; i < ACT_COUNT && argc > 1; i++)
        if (strcmp(argv[1], acts[i].name) == 0) {
            enum err e = act_parse(&acts[i], argc - 1, argv + 1, &arena);
            arena_free(&arena);
            return e;
        }
    if (!help)
        return err_set(ERR_CONFIG,
                       "operator: status, abort, rollback, quarantine or readmit; `atoll operator "
                       "--help` says more");
    puts("atoll operator ACT: a person's calls to the aggregator of a run, with an operator's "
         "certificate.\n");
    for (int i = 0; i < ACT_COUNT; i++)
        printf("  %-10s %s\n", acts[i].name, acts[i].summary);
    puts("\nexample:\n  atoll cert issue --role operator --dir tls\n  atoll operator status "
         "--aggregator localhost:7443 --tls tls");
    return ERR_OK;
}
