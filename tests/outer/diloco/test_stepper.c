/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the stepper is wrong: a round submitted twice or never, applied at another step
 * than the other sites do, parameters of another state, a site that waits for sites that wait for
 * it. Runs with their answers lie in tests/golden/stepper; random configurations are checked
 * against the schedule.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/diloco/stepper.h"
#include "tests/sim/mutants.h"

static const char *const runs[] = {
    "blocking",     "overlapped",       "delay",           "eager",        "before_update",
    "moments",      "slices",           "quorum_blocking", "quorum_order", "quorum_overlapped",
    "quorum_moved", "skipped",          "resume",          "resume_moved", "stop",
    "timed",        "resume_postponed", "delay_moved",     "holders"};
enum { LINE_MAX_BYTES = 256, OUT_BYTES = 1 << 16 };

static struct stepper_options options;
static struct stepper stepper;
static struct stepper_update update;
static struct stepper_event event;
static uint64_t reaped[ROUND_FRAGMENTS_MAX]; /* state when a round is reaped; 0: round + 1 */
static bool skipped;
static unsigned limit; /* actions that are carried out of each list */

/* ---- a line of a trace ---- */

/* The value of key in " key=value ..."; NULL: absent. */
static const char *word(const char *line, const char *key)
{
    char pattern[32];
    snprintf(pattern, sizeof pattern, " %s=", key);
    const char *at = strstr(line, pattern);
    return at ? at + strlen(pattern) : NULL;
}

static int64_t number(const char *line, const char *key, int64_t otherwise)
{
    const char *at = word(line, key);
    return at ? strtoll(at, NULL, 10) : otherwise;
}

/* "0:2,1:3" into out[0] = 2, out[1] = 3; "0,2" into ones. */
static void list(const char *line, const char *key, uint64_t *out)
{
    const char *at = word(line, key);
    memset(out, 0, ROUND_FRAGMENTS_MAX * sizeof *out);
    while (at) {
        char *end;
        unsigned long f = strtoul(at, &end, 10);
        assert_true(f < ROUND_FRAGMENTS_MAX);
        out[f] = *end == ':' ? strtoull(end + 1, &end, 10) : 1;
        at = *end == ',' ? end + 1 : NULL;
    }
}

static void configure(const char *line)
{
    const char *mix = word(line, "mix");
    int64_t steps = number(line, "steps", 0), every = number(line, "every", 0);
    unsigned fragments = (unsigned)number(line, "fragments", 1);
    options = (struct stepper_options){
        .schedule = schedule_streaming(steps, every, fragments, 1, CODEC_INT8),
        .strict = number(line, "strict", 1),
        .timed = number(line, "timed", 0),
        .before_update = number(line, "before_update", 0),
        .max_local_steps_offline = number(line, "offline", 0),
        .holders = (unsigned)number(line, "holders", 0),
        .mix = mix ? strtof(mix, NULL) : 0};
    options.schedule.overlap = number(line, "overlap", 0);
    options.schedule.eager = number(line, "eager", 0);
    stepper_open(&stepper, &options);
}

static void change_beat(const char *line)
{
    struct schedule_period *b = &options.schedule.period[number(line, "fragment", 0)];
    b->p.every = number(line, "every", 0);
    b->p.offset = number(line, "offset", 0);
    stepper_open(&stepper, &options);
}

static size_t field(char *out, size_t size, const char *key, int64_t value)
{
    return value ? (size_t)snprintf(out, size, " %s=%" PRId64, key, value) : 0;
}

static size_t action_text(char *out, size_t size, int64_t step, const struct stepper_action *a,
                          float alpha)
{
    static const char *const names[] = {
        [STEPPER_CHECK] = "check",   [STEPPER_WAIT] = "wait",   [STEPPER_COPY] = "copy",
        [STEPPER_APPLY] = "apply",   [STEPPER_DROP] = "drop",   [STEPPER_TAKE] = "take",
        [STEPPER_SUBMIT] = "submit", [STEPPER_EAGER] = "eager", [STEPPER_POSTPONE] = "postpone",
        [STEPPER_MOVE] = "move",     [STEPPER_STORE] = "store", [STEPPER_MARK] = "mark",
        [STEPPER_SKIP] = "skip",     [STEPPER_SAVE] = "save"};
    bool whole = a->verb == STEPPER_CHECK || a->verb >= STEPPER_MOVE;
    size_t n = (size_t)snprintf(out, size, "< %" PRId64 " %s", step, names[a->verb]);
    if (!whole)
        n += (size_t)snprintf(out + n, size - n, " %u round=%" PRId64, a->fragment,
                              (int64_t)a->round); /* -1: the newest state */
    if (a->verb == STEPPER_SUBMIT)
        n += (size_t)snprintf(out + n, size - n, " base=%" PRIu64, a->base);
    n += field(out + n, size - n, "to", a->step);
    n += field(out + n, size - n, "steps", a->steps);
    n += field(out + n, size - n, "left", a->left);
    n += field(out + n, size - n, "late", a->late);
    n += field(out + n, size - n, "copied", a->copied);
    n += field(out + n, size - n, "from_start", a->from_start);
    n += field(out + n, size - n, "resend", a->resend);
    if (a->verb == STEPPER_APPLY || a->verb == STEPPER_TAKE)
        n += (size_t)snprintf(out + n, size - n, " alpha=%g", (double)alpha);
    return n + (size_t)snprintf(out + n, size - n, "\n");
}

/* Carries out one event; returns the step that is done then. */
static int64_t carry_out(enum stepper_phase phase, int64_t step, char **out, char *end)
{
    event.phase = phase;
    event.step = step;
    stepper_step(&stepper, &event, &update);
    for (unsigned i = 0; i < update.count && i < limit; i++) {
        const struct stepper_action *a = &update.action[i];
        float alpha = a->alpha;
        if (a->verb == STEPPER_APPLY || a->verb == STEPPER_DROP) {
            uint64_t state = reaped[a->fragment] ? reaped[a->fragment] : a->round + 1;
            alpha = stepper_reaped(&stepper, a, state, skipped);
        }
        if (a->verb == STEPPER_MOVE || a->verb == STEPPER_SKIP)
            step = a->step;
        *out += action_text(*out, (size_t)(end - *out), event.step, a, alpha);
    }
    return step;
}

static void told(const char *line, char *out)
{
    char *end = out + OUT_BYTES;
    uint64_t unreachable[ROUND_FRAGMENTS_MAX];
    event = (struct stepper_event){.now_ms = (uint64_t)number(line, "now", 0),
                                   .before = number(line, "before", 0),
                                   .lost = number(line, "lost", 0),
                                   .over = number(line, "over", 0),
                                   .trained = number(line, "trained", 0)};
    list(line, "state", event.state);
    list(line, "postponed", event.postponed);
    list(line, "reaped", reaped);
    list(line, "unreachable", unreachable);
    skipped = number(line, "skipped", 0);
    limit = (unsigned)number(line, "actions", STEPPER_ACTIONS_MAX);
    for (unsigned f = 0; f < ROUND_FRAGMENTS_MAX; f++)
        event.unreachable[f] = unreachable[f];
    *out = 0;
    if (!strncmp(line, "> resume", 8)) {
        carry_out(STEPPER_RESUME, number(line, "step", 0), &out, end);
    } else if (!strncmp(line, "> stop", 6)) {
        carry_out(STEPPER_STOP, number(line, "step", 0), &out, end);
    } else {
        int64_t from, to;
        int n = sscanf(line, "> step %" SCNd64 "..%" SCNd64, &from, &to);
        assert_true(n >= 1);
        for (to = n == 2 ? to : from; from <= to; from++) {
            carry_out(STEPPER_BEFORE_UPDATE, from, &out, end);
            from = carry_out(STEPPER_AFTER_STEP, from, &out, end);
            if (update.count > limit)
                break;
            from = carry_out(STEPPER_MOVED, from, &out, end);
        }
    }
}

/* ---- files ---- */

/* All lines but the answers, each followed by the answers of the code under test. */
static char *answered(const char *name)
{
    char path[128], line[LINE_MAX_BYTES];
    static char out[OUT_BYTES], answer[OUT_BYTES];
    size_t used = 0;
    snprintf(path, sizeof path, "tests/golden/stepper/%s.txt", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        *answer = 0;
        if (*line == '<')
            continue;
        if (!strncmp(line, "run ", 4))
            configure(line);
        else if (!strncmp(line, "beat ", 5))
            change_beat(line);
        else if (*line == '>')
            told(line, answer);
        else
            assert_true(*line == '#');
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", line, answer);
        assert_true(used < sizeof out);
    }
    fclose(f);
    return out;
}

static void run_check(void **state)
{
    char path[128];
    static char recorded[OUT_BYTES];
    snprintf(path, sizeof path, "tests/golden/stepper/%s.txt", (const char *)*state);
    const char *now = answered(*state);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    recorded[fread(recorded, 1, sizeof recorded - 1, f)] = 0;
    fclose(f);
    assert_non_null(strstr(recorded, "\n< "));
    assert_string_equal(now, recorded);
}

static void run_write(const char *name)
{
    char path[128];
    const char *now = answered(name);
    snprintf(path, sizeof path, "tests/golden/stepper/%s.txt", name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(now, f);
    fclose(f);
}

/* ---- random configurations ---- */

static uint64_t seed;

static int64_t draw(unsigned what, int64_t below)
{
    return (int64_t)rng_below(seed, RNG_TEST, what, (uint64_t)below);
}

static void options_draw(void)
{
    unsigned fragments = 1u << draw(0, 3);
    int64_t every = (int64_t)fragments * (1 + draw(1, 3));
    options = (struct stepper_options){
        .schedule = schedule_streaming(1 + draw(2, 40), every, fragments, 1, CODEC_INT8),
        .strict = draw(3, 2),
        .mix = 0.5f};
    for (unsigned f = 0; f < fragments; f++) { /* offsets as slices have them; moments come last */
        options.schedule.period[f].p.offset -= draw(4, every);
        options.schedule.period[f].p.every *= f && f == fragments - 1 ? 1 + draw(5, 3) : 1;
    }
    options.schedule.overlap = draw(20, every + 1);
    options.schedule.eager = options.schedule.overlap == every && draw(21, 2);
    options.before_update =
        options.schedule.overlap && options.schedule.overlap < every && draw(22, 2);
    for (unsigned f = 0; f < fragments && options.schedule.overlap < every; f++) {
        struct period *p = &options.schedule.period[f].p;
        if (p->every == every && draw(24, 3) == 0)
            p->growth = (struct period_growth){1 + draw(25, 3), 2, every * (2 + draw(26, 3))};
        else if (p->every == every && draw(24, 3) == 1 &&
                 options.schedule.overlap < every / 2 + options.before_update)
            p->more[p->more_count++] = every / 2;
    }
    if (!options.strict)
        options.max_local_steps_offline = draw(23, 6);
    options.holders = (unsigned)draw(27, 4);
}

struct seen {
    uint64_t submitted, applied;
    bool in_flight, waited;
    int64_t since;
};

static void seen_action(struct seen *seen, const struct stepper_action *a, int64_t step,
                        bool outages)
{
    const struct schedule *s = &options.schedule;
    struct seen *f = &seen[a->fragment];
    unsigned in_flight = 0;
    switch (a->verb) {
    case STEPPER_SUBMIT:
        assert_int_equal(a->round, f->submitted++);
        assert_false(f->in_flight);
        assert_int_equal(a->late, step - schedule_step(s, a->fragment, a->round));
        assert_true(a->late == 0 || (outages && !s->overlap));
        assert_int_equal(a->steps, step - f->since);
        assert_int_equal(a->base, schedule_base(s, a->fragment, a->round));
        f->since = step;
        f->in_flight = true;
        f->waited = false;
        for (unsigned k = 0; k < s->fragments; k++) {
            in_flight += seen[k].in_flight;
            if (k != a->fragment && seen[k].in_flight && options.holders > 1 && !s->overlap)
                assert_int_not_equal(k % options.holders, a->fragment % options.holders);
        }
        assert_true(outages || in_flight <= stepper.slots);
        break;
    case STEPPER_WAIT:
        assert_true(f->in_flight);
        f->waited = true;
        break;
    case STEPPER_APPLY:
        assert_true(f->in_flight && f->waited);
        assert_int_equal(a->round, f->applied++);
        assert_int_equal(f->applied, f->submitted);
        assert_true(step == schedule_apply(s, a->fragment, a->round) || outages);
        assert_true(step >= schedule_apply(s, a->fragment, a->round));
        f->in_flight = false;
        break;
    default:
        break;
    }
}

/* A blocking round that is owed stands before every later one. */
static void in_order(const struct seen *seen, const struct stepper_action *a)
{
    const struct schedule *s = &options.schedule;
    int64_t due = schedule_step(s, a->fragment, a->round);
    for (unsigned f = 0; f < s->fragments; f++)
        if (seen[f].submitted < schedule_rounds(s, f))
            assert_true(schedule_step(s, f, seen[f].submitted) >= due);
}

static void one_event(struct seen *seen, enum stepper_phase phase, int64_t step, bool outages)
{
    const struct schedule *s = &options.schedule;
    struct stepper_event e = {.phase = phase, .step = step, .now_ms = (uint64_t)step * 400};
    for (unsigned f = 0; f < s->fragments; f++)
        if (stepper_asks(&stepper, &e, f))
            e.unreachable[f] = outages && draw((unsigned)(100 + step * 8 + f), 2);
    stepper_step(&stepper, &e, &update);
    for (unsigned i = 0; i < update.count; i++) {
        const struct stepper_action *a = &update.action[i];
        if (a->verb == STEPPER_SUBMIT && !s->overlap)
            in_order(seen, a);
        seen_action(seen, a, step, outages);
        if (a->verb == STEPPER_APPLY)
            stepper_reaped(&stepper, a, a->round + 1, false);
    }
}

/* Every round is submitted once and in order, applied once, at the step that the schedule says or,
 * after outages, at most max_local_steps_offline later; none is left at the end. */
static void every_round_once(void **state)
{
    (void)state;
    uint64_t rounds = 0, postponed = 0;
    for (seed = 1; seed <= 4000; seed++) {
        struct seen seen[ROUND_FRAGMENTS_MAX] = {0};
        options_draw();
        const struct schedule *s = &options.schedule;
        bool outages = options.max_local_steps_offline > 0;
        stepper_open(&stepper, &options);
        for (int64_t step = 1; step <= s->steps; step++) {
            one_event(seen, STEPPER_BEFORE_UPDATE, step, outages);
            one_event(seen, STEPPER_AFTER_STEP, step, outages);
            for (unsigned i = 0; i < update.count; i++)
                postponed += update.action[i].verb == STEPPER_POSTPONE;
            one_event(seen, STEPPER_MOVED, step, outages);
            assert_int_equal(update.count, 0);
        }
        for (unsigned f = 0; f < s->fragments; f++) {
            assert_int_equal(seen[f].applied, schedule_rounds(s, f));
            rounds += seen[f].applied;
        }
    }
    assert_true(rounds > 20000 && postponed > 500);
}

int main(int argc, char **argv)
{
    enum { N = sizeof runs / sizeof *runs };
    if (argc > 1 && !strcmp(argv[1], "--write")) {
        for (size_t i = 0; i < N; i++)
            run_write(runs[i]);
        return 0;
    }
    if (!mutant_arguments(argc, argv, cmocka_set_test_filter))
        return 2;
    struct CMUnitTest tests[N + 1];
    for (size_t i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){runs[i], run_check, NULL, NULL, (void *)(uintptr_t)runs[i]};
    tests[N] = (struct CMUnitTest)cmocka_unit_test(every_round_once);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
