/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/operate.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "kernels/base/clock.h"
#include "kernels/base/number.h"
#include "outer/config/setting.h"
#include "outer/identity/tls.h"
#include "outer/record/json_write.h"

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

/* ---- what it answers ---- */

/* key=value: a member of the line's object, a number where it is one. */
static void word_json(struct json_write *w, char *word)
{
    char *value = strchr(word, '=');
    double number;
    *value++ = 0;
    if (number_good(value, &number))
        json_real(w, word, number);
    else
        json_text(w, word, value);
}

/* Words that are no key=value are the line's text. */
static void line_json(struct json_write *w, char *line)
{
    char text[WIRE_TEXT_MAX] = "", *rest;
    size_t n = 0;
    json_object(w, NULL);
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (strchr(word, '='))
            word_json(w, word);
        else
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? " " : "", word);
    if (n)
        json_text(w, "text", text);
    json_end(w);
}

static void answer_say(struct json_write *w, struct wire_answer *answer)
{
    char *rest;
    size_t n = strlen(answer->text);
    if (!w) {
        printf("%s%s", answer->text, n && answer->text[n - 1] == '\n' ? "" : "\n");
        return;
    }
    for (char *line = strtok_r(answer->text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        line_json(w, line);
}

/* As many calls as the lines need: METRICS, SET_LIST. */
static enum err lines_run(const struct operate *o, const struct link_dial *d, enum wire_act act,
                          struct json_write *w)
{
    struct wire_operate m = {.act = act};
    struct wire_answer answer;
    snprintf(m.site, sizeof m.site, "%s", o->site ? o->site : "");
    do {
        TRY(link_operate(d, &m, &answer, TIMEOUT_MS));
        TRY(answered(&answer));
        if (*answer.text)
            answer_say(w, &answer);
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

static enum err act_run(const struct operate *o, const struct link_dial *d, struct json_write *w)
{
    struct wire_answer answer;
    uint64_t begun = clock_mono_ms(), waited = 0, round = UINT64_MAX;
    const struct timespec again = {.tv_nsec = AGAIN_MS * 1000000};
    if (o->act == WIRE_METRICS || o->list)
        return lines_run(o, d, o->list ? WIRE_SET_LIST : WIRE_METRICS, w);
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
    answer_say(w, &answer);
    return ERR_OK;
}

/* One aggregator: what it answers is a line of the text, or an object of answers. */
static enum err one_run(const struct operate *o, const struct link_dial *d, bool several,
                        struct json_write *w)
{
    if (!w) {
        if (several)
            printf("%s: ", d->target);
        fflush(stdout);
        enum err e = act_run(o, d, NULL);
        if (e != ERR_OK && several)
            printf("%s\n", err_message());
        return e;
    }
    json_object(w, NULL);
    json_text(w, "aggregator", d->target);
    json_array(w, "lines");
    enum err e = act_run(o, d, w);
    json_end(w);
    if (e != ERR_OK)
        json_text(w, "error", err_message());
    json_end(w);
    return e;
}

static void answers_begin(struct json_write *w)
{
    *w = (struct json_write){.out = stdout};
    json_object(w, NULL);
    json_array(w, "answers");
}

static void answers_end(struct json_write *w)
{
    json_close(w);
}

/* Each aggregator of the run has its own journal: the act goes to all that are named, and what each
 * of them says is printed. The last error, when all were asked. */
enum err operate_all(const struct operate *o, bool json, struct arena *a)
{
    enum err e = ERR_OK;
    char *rest, *text = arena_printf(a, "%s", o->targets);
    TRY_ALLOC(text);
    bool several = strchr(o->targets, ',') != NULL;
    if (several && !operate_roster(o->act))
        return err_set(ERR_CONFIG, "operator %s: --aggregator takes one address", o->name);
    unsigned asked = 0, refused = 0;
    struct json_write w;
    if (json)
        answers_begin(&w);
    for (char *at = strtok_r(text, ",", &rest); at; at = strtok_r(NULL, ",", &rest), asked++) {
        struct link_dial d;
        TRY(dial_make(&d, o, at, a));
        enum err one = one_run(o, &d, several, json ? &w : NULL);
        e = one == ERR_OK ? e : one;
        refused += one != ERR_OK;
    }
    if (json)
        answers_end(&w);
    return e != ERR_OK && several ? err_set(e, "operator %s: %u of %u aggregators did not do it",
                                            o->name, refused, asked)
                                  : e;
}
