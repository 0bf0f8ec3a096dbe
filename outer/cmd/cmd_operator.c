/* `atoll operator`: a person's calls to an aggregator, with an operator's certificate; the metrics
 * also with an observer's or a site's. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "kernels/base/args.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/cmd/cmd.h"
#include "outer/link/link.h"
#include "outer/identity/tls.h"

enum { TIMEOUT_MS = 30000, AGAIN_MS = 20 };

struct operator_call {
    const char *targets, *target, *tls, *name, *server_name, *site, *proxy_url, *credentials;
    const char *key, *value; /* set */
    bool list;
    int64_t fragment, to, at_round, wait_s;
    struct dial_proxy proxy;
    struct link_dial dial;
};

static const struct act {
    const char *name, *summary;
    enum wire_act act;
    enum { NO_SITE, ONE_SITE, SITE_OR_ALL, SETTING } site;
} acts[] = {
    {"status", "where the rounds stand, and the sites", WIRE_STATUS, NO_SITE},
    {"metrics",
     "counters of each site since the aggregator's start, or of one site; --name: an operator's or "
     "an observer's certificate, or that site's",
     WIRE_METRICS, SITE_OR_ALL},
    {"abort", "close the round in flight with nobody in it; the work stays in the residuals",
     WIRE_ABORT, NO_SITE},
    {"quarantine", "keep a site out of the run until it is readmitted", WIRE_QUARANTINE, ONE_SITE},
    {"rollback", "close the round in flight, and go on from an earlier state: --to", WIRE_ROLLBACK,
     NO_SITE},
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

static bool of_roster(enum wire_act act)
{
    return act == WIRE_ROSTER_LIST || act == WIRE_ROSTER_ADD || act == WIRE_ROSTER_REMOVE;
}

static enum err dial_make(struct operator_call *o, struct arena *a)
{
    o->dial =
        (struct link_dial){.target = o->target, .server_name = o->server_name, .proxy = &o->proxy};
    TRY_ALLOC(o->dial.tls.ca = arena_printf(a, "%s/ca.pem", o->tls));
    TRY_ALLOC(o->dial.tls.certificate = arena_printf(a, "%s/%s.pem", o->tls, o->name));
    TRY_ALLOC(o->dial.tls.key = arena_printf(a, "%s/%s.key", o->tls, o->name));
    return tls_usable(&o->dial.tls, clock_wall_s());
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

/* An abort and a rollback are for a round of which a contribution is here, and whose commit has not
 * begun: often a short time of a round. The next round is as good for a rollback, which names a
 * state. */
static bool act_waits(const struct act *act, const struct wire_answer *answer)
{
    bool closes = act->act == WIRE_ABORT || act->act == WIRE_ROLLBACK;
    return (closes && answer->outcome == ROUND_FULL) ||
           (act->act == WIRE_ROLLBACK && answer->outcome == ROUND_BEHIND);
}

/* As many calls as the lines need: METRICS, SET_LIST. */
static enum err lines_run(const struct operator_call *o, enum wire_act act)
{
    struct wire_operate m = {.act = act};
    struct wire_answer answer;
    snprintf(m.site, sizeof m.site, "%s", o->site ? o->site : "");
    do {
        TRY(link_operate(&o->dial, &m, &answer, TIMEOUT_MS));
        TRY(answered(&answer));
        fputs(answer.text, stdout);
        if (answer.offset && answer.offset <= m.to)
            return err_set(ERR_PROTO,
                           "the aggregator goes on at line %" PRIu64 " after line %" PRIu64,
                           answer.offset, m.to);
        m.to = answer.offset;
    } while (m.to);
    return ERR_OK;
}

/* What is asked for is about the round that is in flight now, or makes the next version of the
 * roster: a repetition does not meet the one after. */
static enum err act_call(const struct operator_call *o, const struct act *act, uint64_t *round,
                         struct wire_answer *out)
{
    enum wire_act look = of_roster(act->act)    ? WIRE_ROSTER_LIST
                         : act->act == WIRE_SET ? WIRE_SET_LIST
                                                : WIRE_STATUS;
    struct wire_operate m = {.act = look, .fragment = (uint32_t)o->fragment};
    TRY(link_operate(&o->dial, &m, out, TIMEOUT_MS));
    if (act->act == look || out->outcome != ROUND_CURRENT)
        return ERR_OK;
    m.act = act->act;
    *round = act->act == WIRE_ABORT && *round != UINT64_MAX ? *round : out->round;
    m.round = act->act != WIRE_SET ? *round : o->at_round < 0 ? UINT64_MAX : (uint64_t)o->at_round;
    if (act->act == WIRE_SET)
        snprintf(m.setting, sizeof m.setting, "%s=%s", o->key, o->value);
    m.version = out->round + 1;
    m.to = (uint64_t)o->to;
    snprintf(m.site, sizeof m.site, "%s", o->site ? o->site : "");
    return link_operate(&o->dial, &m, out, TIMEOUT_MS);
}

static enum err act_run(const struct operator_call *o, const struct act *act)
{
    struct wire_answer answer;
    uint64_t begun = clock_mono_ms(), waited = 0, round = UINT64_MAX;
    const struct timespec again = {.tv_nsec = AGAIN_MS * 1000000};
    if (act->act == WIRE_METRICS || o->list)
        return lines_run(o, o->list ? WIRE_SET_LIST : WIRE_METRICS);
    for (;;) {
        TRY(act_call(o, act, &round, &answer));
        waited = (clock_mono_ms() - begun) / 1000;
        if (!act_waits(act, &answer) || waited >= (uint64_t)o->wait_s)
            break;
        nanosleep(&again, NULL);
    }
    if (act_waits(act, &answer))
        return err_set(ERR_DEADLINE,
                       "after %" PRIu64 " s the aggregator answers: %s; --wait S calls again for S "
                       "seconds",
                       waited, answer.text);
    TRY(answered(&answer));
    size_t n = strlen(answer.text);
    printf("%s%s", answer.text, n && answer.text[n - 1] == '\n' ? "" : "\n");
    return ERR_OK;
}

/* Each aggregator of the run has its own journal: the act goes to all that are named, and what each
 * of them says is printed. The last error, when all were asked. */
static enum err act_run_each(struct operator_call *o, const struct act *act, struct arena *a)
{
    enum err e = ERR_OK;
    char *rest, *text = arena_printf(a, "%s", o->targets);
    TRY_ALLOC(text);
    bool several = strchr(o->targets, ',') != NULL;
    if (several && !of_roster(act->act))
        return err_set(ERR_CONFIG, "operator %s: --aggregator takes one address", act->name);
    unsigned asked = 0, refused = 0;
    for (char *at = strtok_r(text, ",", &rest); at; at = strtok_r(NULL, ",", &rest), asked++) {
        o->target = at;
        TRY(dial_make(o, a));
        if (several)
            printf("%s: ", at);
        fflush(stdout);
        enum err one = act_run(o, act);
        e = one == ERR_OK ? e : one;
        refused += one != ERR_OK;
        if (one != ERR_OK && several)
            printf("%s\n", err_message());
    }
    return e != ERR_OK && several ? err_set(e, "operator %s: %u of %u aggregators did not do it",
                                            act->name, refused, asked)
                                  : e;
}

enum { OPTIONS_MAX = 11 };
#define ACT(name) (1u << WIRE_##name)

/* The options of one act; fills `options`, and returns how many there are. */
static size_t act_options(const struct act *act, struct operator_call *o,
                          struct args_option options[OPTIONS_MAX])
{
    const struct {
        unsigned acts; /* 0: of every act */
        struct args_option option;
    } rows[] = {
        {0,
         {"aggregator", ARGS_TEXT, &o->targets, .value = "HOST:PORT", .required = true,
          .help = of_roster(act->act) ? "Where the aggregator listens; of a run with several, all "
                                        "of them, separated by commas."
                                      : "Where the aggregator listens."}},
        {0, {"tls", ARGS_TEXT, &o->tls, .value = "DIR", .help = "Directory of the certificates."}},
        {0,
         {"name", ARGS_TEXT, &o->name, .value = "NAME",
          .help = "The certificate to show, NAME.pem (atoll cert issue --role operator)."}},
        {0,
         {"aggregator-name", ARGS_TEXT, &o->server_name, .value = "NAME",
          .help = "DNS name in the aggregator's certificate, when it is not HOST."}},
        {0,
         {"proxy", ARGS_TEXT, &o->proxy_url, .value = "URL",
          .help = "Proxy to the aggregator, as site.proxy."}},
        {0,
         {"proxy-credentials", ARGS_TEXT, &o->credentials, .value = "FILE",
          .help = "Its user and password, as site.proxy_credentials."}},
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
    struct operator_call o = {.tls = "tls", .name = "operator", .to = -1, .at_round = -1};
    static const char *const operands[] = {
        [NO_SITE] = NULL, [ONE_SITE] = "SITE", [SITE_OR_ALL] = "[SITE]", [SETTING] = "KEY VALUE"};
    char command[64], example[96];
    struct args_option options[OPTIONS_MAX];
    snprintf(command, sizeof command, "operator %s", act->name);
    snprintf(example, sizeof example, "atoll operator %s%s --aggregator localhost:7443", act->name,
             act->site == SETTING        ? " outer.every 200"
             : act->act == WIRE_ROLLBACK ? " --to 12"
             : act->site                 ? " c"
                                         : "");
    struct args args = {.command = command,
                        .summary = act->summary,
                        .example = example,
                        .options = options,
                        .count = act_options(act, &o, options),
                        .operands = operands[act->site]};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    int most = act->site == SETTING ? 2 : 1; /* where there are operands */
    bool dash = args.operand_count && args.operand[0][0] == '-';
    if (dash || args.operand_count > most)
        return err_set(ERR_CONFIG, "operator %s: unexpected argument \"%.100s\"", act->name,
                       args.operand[dash ? 0 : most]);
    if (act->site == SETTING && args.operand_count == 2) {
        o.key = args.operand[0];
        o.value = args.operand[1];
    } else if (act->site && act->site != SETTING && args.operand_count) {
        o.site = args.operand[0];
    }
    if (act->act == WIRE_ROLLBACK && o.to < 0)
        return err_set(ERR_CONFIG, "operator rollback: --to is missing: the number of the state");
    if (act->site == ONE_SITE && !o.site)
        return err_set(ERR_CONFIG, "operator %s: the site is missing: operator %s SITE", act->name,
                       act->name);
    if (act->site == SETTING && (o.list ? args.operand_count != 0 : !o.key))
        return err_set(ERR_CONFIG, "operator set: either KEY VALUE, as outer.every 200, or --list");
    if (o.key && strlen(o.key) + strlen(o.value) + 2 > WIRE_SETTING_MAX)
        return err_set(ERR_CONFIG, "operator set: the key and its value have %d bytes at most",
                       WIRE_SETTING_MAX - 2);
    TRY(dial_proxy_parse(&o.proxy, o.proxy_url));
    TRY(dial_proxy_credentials(&o.proxy, o.credentials));
    log_min(LOG_ERROR); /* the sentence says it */
    signal(SIGPIPE, SIG_IGN);
    enum err e = act_run_each(&o, act, arena);
    dial_proxy_forget(&o.proxy);
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

enum err cmd_operator(int argc, char **argv)
{
    struct arena arena = arena_make(0);
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    for (int i = 0; i < ACT_COUNT; i++) {
        int words = act_words(&acts[i], argc, argv);
        if (words) {
            enum err e = act_parse(&acts[i], argc - words, argv + words, &arena);
            arena_free(&arena);
            return e;
        }
    }
    if (!help)
        return err_set(
            ERR_CONFIG,
            "operator: status, metrics, abort, rollback, quarantine, readmit, set, roster "
            "list, roster add or roster remove; `atoll operator --help` says more");
    puts("atoll operator ACT: a person's calls to the aggregator of a run, with an operator's "
         "certificate.\n");
    for (int i = 0; i < ACT_COUNT; i++)
        printf("  %-13s %s\n", acts[i].name, acts[i].summary);
    puts("\nexample:\n  atoll cert issue --role operator --dir tls\n  atoll operator status "
         "--aggregator localhost:7443 --tls tls");
    return ERR_OK;
}
