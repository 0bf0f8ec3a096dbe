/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/operate.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "kernels/base/clock.h"
#include "outer/config/setting.h"
#include "outer/identity/tls.h"

enum { TIMEOUT_MS = 30000, AGAIN_MS = 20 };

bool operate_roster(enum wire_act act)
{
    return act == WIRE_ROSTER_LIST || act == WIRE_ROSTER_ADD || act == WIRE_ROSTER_REMOVE;
}

static enum err dial_make(struct link_dial *d, const struct operate *o, const char *target,
                          struct arena *a)
{
    *d = (struct link_dial){.target = target, .server_name = o->server_name, .proxy = &o->proxy};
    TRY_ALLOC(d->tls.ca = arena_printf(a, "%s/ca.pem", o->tls));
    TRY_ALLOC(d->tls.certificate = arena_printf(a, "%s/%s.pem", o->tls, o->certificate));
    TRY_ALLOC(d->tls.key = arena_printf(a, "%s/%s.key", o->tls, o->certificate));
    return tls_usable(&d->tls, clock_wall_s());
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
static bool act_waits(const struct operate *o, const struct wire_answer *answer)
{
    bool closes = o->act == WIRE_ABORT || o->act == WIRE_ROLLBACK;
    return (closes && answer->outcome == ROUND_FULL) ||
           (o->act == WIRE_ROLLBACK && answer->outcome == ROUND_BEHIND);
}

/* As many calls as the lines need: METRICS, SET_LIST. */
static enum err lines_run(const struct operate *o, const struct link_dial *d, enum wire_act act)
{
    struct wire_operate m = {.act = act};
    struct wire_answer answer;
    snprintf(m.site, sizeof m.site, "%s", o->site ? o->site : "");
    do {
        TRY(link_operate(d, &m, &answer, TIMEOUT_MS));
        TRY(answered(&answer));
        fputs(answer.text, stdout);
        if (answer.offset && answer.offset <= m.to)
            return err_set(ERR_PROTO,
                           "the aggregator continues at line %" PRIu64 " after line %" PRIu64,
                           answer.offset, m.to);
        m.to = answer.offset;
    } while (m.to);
    return ERR_OK;
}

/* What is asked for is about the round that is in flight now, or makes the next version of the
 * roster: a repetition does not meet the one after. */
static enum err act_call(const struct operate *o, const struct link_dial *d, uint64_t *round,
                         struct wire_answer *out)
{
    enum wire_act look = operate_roster(o->act) ? WIRE_ROSTER_LIST
                         : o->act == WIRE_SET   ? WIRE_SET_LIST
                                                : WIRE_STATUS;
    struct wire_operate m = {.act = look, .fragment = (uint32_t)o->fragment};
    TRY(link_operate(d, &m, out, TIMEOUT_MS));
    if (o->act == look || out->outcome != ROUND_CURRENT)
        return ERR_OK;
    m.act = o->act;
    *round = o->act == WIRE_ABORT && *round != UINT64_MAX ? *round : out->round;
    m.round = o->act != WIRE_SET ? *round : o->at_round < 0 ? UINT64_MAX : (uint64_t)o->at_round;
    if (o->act == WIRE_SET)
        TRY(setting_record(m.setting, sizeof m.setting, o->key, o->value));
    m.version = out->round + 1;
    m.to = (uint64_t)o->to;
    snprintf(m.site, sizeof m.site, "%s", o->site ? o->site : "");
    return link_operate(d, &m, out, TIMEOUT_MS);
}

static enum err act_run(const struct operate *o, const struct link_dial *d)
{
    struct wire_answer answer;
    uint64_t begun = clock_mono_ms(), waited = 0, round = UINT64_MAX;
    const struct timespec again = {.tv_nsec = AGAIN_MS * 1000000};
    if (o->act == WIRE_METRICS || o->list)
        return lines_run(o, d, o->list ? WIRE_SET_LIST : WIRE_METRICS);
    for (;;) {
        TRY(act_call(o, d, &round, &answer));
        waited = (clock_mono_ms() - begun) / 1000;
        if (!act_waits(o, &answer) || waited >= (uint64_t)o->wait_s)
            break;
        nanosleep(&again, NULL);
    }
    if (act_waits(o, &answer))
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
enum err operate_all(const struct operate *o, struct arena *a)
{
    enum err e = ERR_OK;
    char *rest, *text = arena_printf(a, "%s", o->targets);
    TRY_ALLOC(text);
    bool several = strchr(o->targets, ',') != NULL;
    if (several && !operate_roster(o->act))
        return err_set(ERR_CONFIG, "operator %s: --aggregator takes one address", o->name);
    unsigned asked = 0, refused = 0;
    for (char *at = strtok_r(text, ",", &rest); at; at = strtok_r(NULL, ",", &rest), asked++) {
        struct link_dial d;
        TRY(dial_make(&d, o, at, a));
        if (several)
            printf("%s: ", at);
        fflush(stdout);
        enum err one = act_run(o, &d);
        e = one == ERR_OK ? e : one;
        refused += one != ERR_OK;
        if (one != ERR_OK && several)
            printf("%s\n", err_message());
    }
    return e != ERR_OK && several ? err_set(e, "operator %s: %u of %u aggregators did not do it",
                                            o->name, refused, asked)
                                  : e;
}
