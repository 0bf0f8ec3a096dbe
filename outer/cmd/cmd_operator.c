/* SPDX-License-Identifier: Apache-2.0 */
/* `atoll operator`: a person's calls to an aggregator, with an operator's certificate; the metrics
 * also with an observer's or a site's. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/run/operate.h"

struct operator_call {
    struct operate o;
    const char *proxy_url, *credentials, *format;
};

static const struct act {
    const char *name, *summary;
    enum wire_act act;
    enum { NO_SITE, ONE_SITE, SITE_OR_ALL, SETTING } site;
} acts[] = {
    {"status", "where the rounds stand, and the sites", WIRE_STATUS, NO_SITE},
    {"metrics",
     "counters of each site since the aggregator's start, or of one site; --certificate: an "
     "operator's or "
     "an observer's certificate, or that site's",
     WIRE_METRICS, SITE_OR_ALL},
    {"abort", "close the round in flight without any site; the work stays in the residuals",
     WIRE_ABORT, NO_SITE},
    {"quarantine", "keep a site out of the run until it is readmitted", WIRE_QUARANTINE, ONE_SITE},
    {"rollback", "close the round in flight, and continue from an earlier state: --to",
     WIRE_ROLLBACK, NO_SITE},
    {"readmit", "end a site's quarantine", WIRE_READMIT, ONE_SITE},
    {"set",
     "amend a setting of the run from a round on: operator set KEY VALUE [--at-round N], or set "
     "--list",
     WIRE_SET, SETTING},
    {"roster list", "the sites of the run, and whether the last change is final", WIRE_ROSTER_LIST,
     NO_SITE},
    {"roster add", "a site joins the run that did not begin with it, or comes back",
     WIRE_ROSTER_ADD, ONE_SITE},
    {"roster remove", "a site leaves the run for good; strict rounds no longer wait for it",
     WIRE_ROSTER_REMOVE, ONE_SITE},
};
enum { ACT_COUNT = sizeof acts / sizeof *acts };

enum { OPTIONS_MAX = 12 };
#define ACT(name) (1u << WIRE_##name)

/* The options of one act; fills `options`, and returns how many there are. */
static size_t act_options(const struct act *act, struct operator_call *c,
                          struct args_option options[OPTIONS_MAX])
{
    struct operate *o = &c->o;
    const struct {
        unsigned acts; /* 0: of every act */
        struct args_option option;
    } rows[] = {
        {0,
         {"aggregator", ARGS_TEXT, &o->targets, .value = "HOST:PORT", .required = true,
          .help = operate_roster(act->act)
                      ? "Where the aggregator listens; of a run with several, all "
                        "of them, separated by commas."
                      : "Where the aggregator listens."}},
        {0, {"tls", ARGS_TEXT, &o->tls, .value = "DIR", .help = "Directory of the certificates."}},
        {0,
         {"certificate", ARGS_TEXT, &o->certificate, .value = "NAME",
          .help = "The certificate to show, NAME.pem (atoll cert issue --role operator).",
          .former = "name"}},
        {0,
         {"aggregator-name", ARGS_TEXT, &o->server_name, .value = "NAME",
          .help = "DNS name in the aggregator's certificate, when it is not HOST."}},
        {0,
         {"proxy", ARGS_TEXT, &c->proxy_url, .value = "URL",
          .help = "Proxy to the aggregator, as site.proxy."}},
        {0,
         {"proxy-credentials", ARGS_TEXT, &c->credentials, .value = "FILE",
          .help = "Its user and password, as site.proxy_credentials."}},
        {0, FORMAT_ROW(&c->format, ": answers, each with its aggregator and lines")},
        {ACT(STATUS) | ACT(ABORT) | ACT(ROLLBACK),
         {"fragment", ARGS_INT, &o->fragment, .max = ROUND_FRAGMENTS_MAX - 1, .value = "N",
          .help = "The fragment."}},
        {ACT(ABORT) | ACT(ROLLBACK),
         {"wait", ARGS_INT, &o->wait_s, .max = 1e6, .value = "S",
          .help = "Call again for S seconds until a contribution of a round is here whose commit "
                  "has not begun; an abort is of the round that is in flight now."}},
        {ACT(ROLLBACK),
         {"to", ARGS_INT, &o->to, .max = 1e15, .value = "N",
          .help = "The state that the run had after N rounds of the fragment."}},
        {ACT(SET),
         {"at-round", ARGS_INT, &o->at_round, .max = 1e15, .value = "N",
          .help = "In force from round N of fragment 0 on; without it, from the first possible "
                  "round on."}},
        {ACT(SET),
         {"list", ARGS_FLAG, &o->list, .help = "What was amended, in force and pending."}},
    };
    size_t count = 0;
    _Static_assert(sizeof rows / sizeof *rows <= OPTIONS_MAX, "room for every option");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].acts || rows[i].acts & 1u << act->act)
            options[count++] = rows[i].option;
    return count;
}

static enum err act_parse(const struct act *act, int argc, char **argv, struct arena *arena)
{
    struct operator_call c = {.o = {.name = act->name,
                                    .act = act->act,
                                    .tls = "tls",
                                    .certificate = "operator",
                                    .to = -1,
                                    .at_round = -1},
                              .format = "text"};
    struct operate *o = &c.o;
    static const char *const operands[] = {
        [NO_SITE] = NULL, [ONE_SITE] = "SITE", [SITE_OR_ALL] = "[SITE]", [SETTING] = "KEY VALUE"};
    char command[64], example[96];
    struct args_option options[OPTIONS_MAX];
    snprintf(command, sizeof command, "operator %s", act->name);
    snprintf(example, sizeof example, "atoll operator %s%s --aggregator localhost:7443", act->name,
             act->site == SETTING        ? " outer.sync_every 200"
             : act->act == WIRE_ROLLBACK ? " --to 12"
             : act->site                 ? " c"
                                         : "");
    struct args args = {.command = command,
                        .summary = act->summary,
                        .example = example,
                        .options = options,
                        .count = act_options(act, &c, options),
                        .operands = operands[act->site]};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    bool json;
    TRY(cmd_format(c.format, &json));
    int most = act->site == SETTING ? 2 : 1; /* where there are operands */
    bool dash = args.operand_count && args.operand[0][0] == '-';
    if (dash || args.operand_count > most)
        return err_set(ERR_CONFIG, "operator %s: unexpected argument \"%.100s\"", act->name,
                       args.operand[dash ? 0 : most]);
    if (act->site == SETTING && args.operand_count == 2) {
        o->key = args.operand[0];
        o->value = args.operand[1];
    } else if (act->site && act->site != SETTING && args.operand_count) {
        o->site = args.operand[0];
    }
    if (act->act == WIRE_ROLLBACK && o->to < 0)
        return err_set(ERR_CONFIG, "operator rollback: --to is missing: the number of the state");
    if (act->site == ONE_SITE && !o->site)
        return err_set(ERR_CONFIG, "operator %s: the site is missing: operator %s SITE", act->name,
                       act->name);
    if (act->site == SETTING && (o->list ? args.operand_count != 0 : !o->key))
        return err_set(ERR_CONFIG,
                       "operator set: either KEY VALUE, as outer.sync_every 200, or --list");
    if (o->key && strlen(o->key) + strlen(o->value) + 2 > WIRE_SETTING_MAX)
        return err_set(ERR_CONFIG, "operator set: the key and its value have %d bytes at most",
                       WIRE_SETTING_MAX - 2);
    TRY(dial_proxy_parse(&o->proxy, c.proxy_url));
    TRY(dial_proxy_credentials(&o->proxy, c.credentials));
    log_min(LOG_ERROR); /* the sentence says it */
    signal(SIGPIPE, SIG_IGN);
    enum err e = operate_all(o, json, arena);
    dial_proxy_forget(&o->proxy);
    return e;
}

/* How many words of the arguments are this act; 0: another one. */
static int act_words(const struct act *act, int argc, char **argv)
{
    const char *second = strchr(act->name, ' ');
    size_t n = second ? (size_t)(second - act->name) : strlen(act->name);
    if (argc < 2 || strlen(argv[1]) != n || strncmp(argv[1], act->name, n) != 0)
        return 0;
    if (!second)
        return 1;
    return argc > 2 && strcmp(argv[2], second + 1) == 0 ? 2 : 0;
}

static void help_all(enum args_form form)
{
    struct cmd_act rows[ACT_COUNT];
    for (int i = 0; i < ACT_COUNT; i++)
        rows[i] = (struct cmd_act){.name = acts[i].name, .summary = acts[i].summary};
    cmd_acts_help(
        &(struct cmd_acts){"operator",
                           "atoll operator ACT: a person's calls to the aggregator of a "
                           "run, with an operator's certificate.",
                           "  atoll cert issue --role operator --dir tls\n  atoll operator "
                           "status --aggregator localhost:7443 --tls tls",
                           rows, ACT_COUNT},
        form);
}

enum err cmd_operator(int argc, char **argv, struct arena *arena)
{
    enum args_form form = ARGS_HELP_TEXT;
    bool help = argc > 1 && args_form_read(argv[1], &form);
    for (int i = 0; i < ACT_COUNT; i++) {
        int words = act_words(&acts[i], argc, argv);
        if (words)
            return act_parse(&acts[i], argc - words, argv + words, arena);
    }
    if (!help)
        return err_set(
            ERR_CONFIG,
            "operator: give one of status, metrics, abort, rollback, quarantine, readmit, set, "
            "roster list, roster add, roster remove; `atoll operator --help` says more");
    help_all(form);
    return ERR_OK;
}
