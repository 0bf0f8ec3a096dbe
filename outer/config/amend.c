/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/config/amend.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "inner/config/keys.h"
#include "outer/config/setting.h"
#include "outer/config/sync_config.h"
#include "outer/config/tuning.h"
#include "outer/protocol/mutant.h"

/* ---- the table ---- */

struct amend_key {
    const char *section, *name;
    enum amend_effect effect;
};
static const struct amend_key amend_keys[] = {
#define X(section, name, effect) {#section, #name, effect},
    AMEND_KEYS(X)
#undef X
};
enum { AMEND_KEY_COUNT = sizeof amend_keys / sizeof *amend_keys };

bool amend_allowed(const struct config_key *k)
{
    for (unsigned i = 0; i < AMEND_KEY_COUNT; i++)
        if (strcmp(k->section, amend_keys[i].section) == 0 &&
            strcmp(k->name, amend_keys[i].name) == 0)
            return true;
    return false;
}

/* Why not the others: the first row whose key, or section ("model."), fits. */
static const struct {
    const char *key, *why;
} amend_reasons[] = {
    {"outer.sites", "sites join and leave by atoll operator roster add | remove"},
    {"outer.fragments", "it cuts the outer state, and states and contributions lie on disk so cut"},
    {"outer.partition", "it cuts the outer state, and states and contributions lie on disk so cut"},
    {"outer.slices", "it cuts the outer state, and states and contributions lie on disk so cut"},
    {"outer.aggregators", "it says which aggregator has which fragment's journal and state"},
    {"outer.optimizer", "it says which arrays the outer state has"},
    {"outer.nesterov_period",
     "it says which arrays the outer state has, and how its rounds are counted"},
    {"outer.moment1_every", "it says which moments the outer state has"},
    {"outer.moment2_every", "it says which moments the outer state has"},
    {"outer.downlink_compression_from", "it says whether the aggregator keeps a residual"},
    {"outer.mode", "each restart and each aggregator reads it as that of the whole history: a "
                   "quorum that steps back gives up rounds that a strict run counts as final, and "
                   "a strict site repeats steps that a quorum site has skipped"},
    {"privacy.", "what was promised about a site's data holds for the whole run"},
    {"model.", "it changes the shape or the function of the model"},
    {"data.",
     "is not amendable in this version: the text, and its form, are read at a site's start"},
    {"run.", "it says what the run is, and where it lies"},
    {"train.", "is not amendable in this version: a site reads it at its start only"},
    {"outer.", "is not amendable in this version: a replica reads it at its start only"},
};
static const char own_reason[] =
    "it is each process's own, not the run's: change its configuration "
    "and start that process again";

const char *amend_refusal(const char *key, bool *known)
{
    const struct config_key *k = setting_key(CONFIG_TYPED, key);
    *known = k != NULL;
    if (!k || amend_allowed(k))
        return NULL;
    if (!k->pinned && strcmp(k->section, "privacy") != 0)
        return own_reason;
    for (size_t i = 0; i < sizeof amend_reasons / sizeof *amend_reasons; i++) {
        size_t n = strlen(amend_reasons[i].key);
        bool section = amend_reasons[i].key[n - 1] == '.';
        if (strncmp(key, amend_reasons[i].key, n) == 0 && (section || !key[n]))
            return amend_reasons[i].why;
    }
    return "is not amendable in this version";
}

/* ---- settings of a round ---- */

/* "outer.lr=0.5" into the tables. */
static enum err text_set(const struct config_table *tables, const char *text, struct arena *a)
{
    const struct config_key *k = setting_key_of(text);
    size_t n = strcspn(text, "=");
    char key[SETTING_KEY_MAX];
    if (n >= sizeof key || !text[n])
        return err_set(ERR_PROTO, "\"%.100s\" is no amendment", text);
    if (!k || !amend_allowed(k))
        return err_set(ERR_PROTO, "%s cannot be amended by this program",
                       setting_key_text(text, key));
    return config_set(tables, 2, CONFIG_RECORDED, setting_key_text(text, key), text + n + 1, a);
}

enum err amend_settings(struct settings *s, struct outer_settings *o, const struct keys_base *base,
                        const struct amendments *list, uint64_t round, struct arena *a)
{
    *s = *base->s;
    *o = *base->o;
    const struct config_table tables[] = {keys_inner(s), keys_outer(o)};
    uint32_t count = amendments_in_force(list, round);
    for (uint32_t i = 0; i < count; i++) {
        TRY(text_set(tables, list->list[i].text, a));
        if (MUTANT(AMENDED_SWAPPED) && i && list->list[i - 1].round == list->list[i].round)
            TRY(text_set(tables, list->list[i - 1].text, a));
    }
    return ERR_OK;
}

enum err amend_border(const struct schedule *s, uint64_t round, int64_t *step)
{
    *step = 0;
    if (round >= schedule_rounds(s, 0))
        return err_set(ERR_PROTO,
                       "an amendment from round %" PRIu64 " on: the run has %" PRIu64 " rounds",
                       round, schedule_rounds(s, 0));
    if (round)
        *step = schedule_step(s, 0, round - 1);
    return ERR_OK;
}

/* What a list makes of the schedule after one border. every: of the steps before. */
static enum err change_of(struct schedule_change *c, const struct settings *s,
                          const struct outer_settings *o, int64_t every)
{
    struct outer_opt opt;
    TRY(sync_config_optimizer(&opt, o));
    c->every = o->outer_sync_every == every ? 0 : o->outer_sync_every;
    c->steps = s->train_steps;
    c->lr = opt.lr;
    c->codec = o->outer_codec;
    c->overlap = o->outer_overlap_steps;
    return ERR_OK;
}

/* train.steps of the configuration has grown since it was amended: two totals. */
static enum err ends_check(const struct schedule *x, const struct schedule_change *c)
{
    if (x->ends.count && x->ends.steps[x->ends.count - 1] > c->after)
        return err_set(ERR_CONFIG, "train.steps has grown in the configuration of a run whose "
                                   "settings were amended before: set it back, and use atoll "
                                   "operator set train.steps");
    return c->steps > c->after ? ERR_OK
                               : err_set(ERR_PROTO,
                                         "an amendment ends the run at step %" PRId64
                                         ", and it is for the steps after %" PRId64,
                                         c->steps, c->after);
}

static enum err schedule_make(const struct keys_base *base, struct schedule *x,
                              const struct amendments *list, struct arena *a)
{
    struct settings s;
    struct outer_settings o;
    int64_t every = base->o->outer_sync_every;
    for (uint32_t i = 0; i < list->count; i++) {
        struct schedule_change c;
        uint64_t round = list->list[i].round;
        if (i + 1 < list->count && list->list[i + 1].round == round)
            continue; /* all of one border together */
        TRY(amend_settings(&s, &o, base, list, round, a));
        TRY(amend_border(x, round, &c.after));
        TRY(change_of(&c, &s, &o, every));
        TRY(ends_check(x, &c));
        every = o.outer_sync_every;
        schedule_amend(x, &c);
    }
    return ERR_OK;
}

enum err amend_schedule(const void *self, struct schedule *s, const struct amendments *list)
{
    struct arena scratch = arena_make(0);
    enum err e = schedule_make(self, s, list, &scratch);
    arena_free(&scratch);
    return e;
}

enum err amend_reschedule(const struct keys_base *base, const struct schedule *configured,
                          const struct amendments *list, struct schedule *s)
{
    struct schedule made = *configured;
    schedule_ends_set(&made, &s->ends);
    TRY(amend_schedule(base, &made, list));
    *s = made;
    return ERR_OK;
}

enum err amend_train(struct settings *s, const struct keys_base *base, const struct schedule *x,
                     const struct amendments *list, int64_t step, struct arena *a)
{
    struct settings now;
    struct outer_settings o;
    uint64_t round = schedule_sent(x, 0, step); /* of which the next step is a part */
    TRY(amend_settings(&now, &o, base, list, round, a));
#define X(section, name, effect) AMEND_COPY_##effect(section##_##name)
#define AMEND_COPY_AMEND_SCHEDULE(field)
#define AMEND_COPY_AMEND_ROUND(field)
#define AMEND_COPY_AMEND_DATA(field)
#define AMEND_COPY_AMEND_TRAIN(field) s->field = now.field;
    AMEND_KEYS(X)
#undef X
    s->train_steps = now.train_steps;
    return ERR_OK;
}

static enum err data_change(struct loader_change *c, const struct keys_base *base, const char *text,
                            struct arena *a)
{
    struct settings s = *base->s;
    struct outer_settings o = *base->o;
    const struct config_table tables[] = {keys_inner(&s), keys_outer(&o)};
    TRY(text_set(tables, text, a));
    if (s.data_weights.count > MIXTURE_SOURCES_MAX)
        return err_set(ERR_PROTO, "an amendment of data.weights has %zu items",
                       s.data_weights.count);
    c->count = s.data_weights.count;
    for (size_t i = 0; i < c->count; i++)
        c->weights[i] = keys_weight(&s.data_weights, i);
    return ERR_OK;
}

enum err amend_data(struct loader_changes *c, const struct keys_base *base,
                    const struct schedule *x, const struct amendments *list)
{
    struct arena scratch = arena_make(0);
    enum err e = ERR_OK;
    _Static_assert((int)AMENDMENTS_MAX <= (int)MIXTURE_CHANGES_MAX, "each of them may be one");
    c->count = 0;
    for (uint32_t i = 0; e == ERR_OK && i < list->count; i++) {
        const struct amendment *one = &list->list[i];
        struct loader_change *next = &c->list[c->count];
        if (strncmp(one->text, "data.weights=", 13) != 0)
            continue;
        e = amend_border(x, one->round, &next->step);
        if (e == ERR_OK)
            e = data_change(next, base, one->text, &scratch);
        c->count++;
    }
    arena_free(&scratch);
    return e;
}

/* ---- may it be? ---- */

struct amend_case { /* the settings before and after the border */
    const struct schedule *x;
    int64_t border;
    struct settings s, s_before;
    struct outer_settings o, o_before;
};

/* Would more rounds be in flight than with the sites' settings at their start, which have as many
 * slots? A site that is offline applies a round later. */
static bool slots_lacking(const struct amend_case *c)
{
    const struct outer_settings *o = &c->o;
    struct schedule start = *c->x, fresh = start;
    if (o->outer_sync_every != start.period[0].p.every) /* none of what every_refused names */
        fresh = schedule_streaming(c->s.train_steps, o->outer_sync_every, start.fragments,
                                   start.full_precision_rounds, o->outer_codec);
    start.overlap += start.overlap ? o->outer_max_local_steps_offline : 0;
    fresh.overlap = o->outer_overlap_steps;
    fresh.overlap += fresh.overlap ? o->outer_max_local_steps_offline : 0;
    return schedule_slots(&fresh) > schedule_slots(&start);
}

static const char *every_refused(const struct amend_case *c)
{
    const struct outer_settings *o = &c->o;
    if (o->outer_interval_schedule.count)
        return "with outer.interval_schedule the intervals follow from the round's number";
    if (o->outer_partition == FRAGMENT_SLICES)
        return "outer.slices names steps of the period";
    if (o->outer_moment1_every || o->outer_moment2_every)
        return "moments have periods of their own (outer.moment1_every, outer.moment2_every)";
    if (o->outer_sync_interval_s > 0)
        return "rounds end by time here: outer.sync_interval_s";
    if (c->s.train_stages.count)
        return "train.stages ends at rounds of the configured period";
    if (o->outer_overlap_steps >= c->o_before.outer_sync_every ||
        o->outer_overlap_steps >= o->outer_sync_every)
        return "outer.overlap_steps has to stay below it: the one-round delay is fixed at the "
               "start";
    if (slots_lacking(c))
        return "more rounds would be in flight than the sites have slots for";
    return NULL;
}

static const char *overlap_refused(const struct amend_case *c)
{
    const struct outer_settings *o = &c->o;
    int64_t before = c->o_before.outer_overlap_steps, now = o->outer_overlap_steps;
    if (!before != !now)
        return "0 is the blocking exchange, which has no threads and no device next to the "
               "training: a site is the one or the other from its start on";
    if (before >= o->outer_sync_every || now >= o->outer_sync_every)
        return "at outer.sync_every begins the one-round delay, whose deltas are taken against "
               "another "
               "state: it is fixed at the start";
    if (slots_lacking(c))
        return "more rounds would be in flight than the sites have slots for, which follow from "
               "the configuration";
    return NULL;
}

/* Does the aggregator pass payloads on, in any round? */
static bool gathers(const struct outer_settings *o)
{
    enum codec_kind full = codec_full_precision(o->outer_codec, o->outer_full_precision);
    return !codec_get(o->outer_codec)->summable || !codec_get(full)->summable;
}

/* What the residual of such a codec holds is sent over many rounds, and has become out of date
 * meanwhile: applied in one round it costs loss (EMPTIED_MAX, schedule.c). And the aggregator's own
 * residual, which it has from the start or not, is added to the next aggregate that it compresses.
 */
static const char *codec_refused(const struct amend_case *c)
{
    const struct codec *before = codec_get(c->o_before.outer_codec),
                       *now = codec_get(c->o.outer_codec);
    if (before->momentum_in_residual && !now->momentum_in_residual)
        return "the residual of the present codec acts as momentum, and the first round of this "
               "one would apply all of it at once, which costs loss; topk, csc and sign can be "
               "exchanged for each other alone";
    if (c->o.outer_downlink_compression_from && gathers(&c->o_before) != gathers(&c->o))
        return "outer.downlink_compression_from says from the start on whether the aggregator has "
               "a residual: a run all of whose rounds add as integers stays one, and no other "
               "becomes one";
    return NULL;
}

static const char *steps_refused(const struct amend_case *c)
{
    const struct settings *s = &c->s;
    if (s->train_steps <= c->border)
        return "that step is before the border; the first step under the setting comes after it";
    if (s->train_stages.count)
        return "train.stages divides it";
    if (s->train_compress != TRAIN_COMPRESS_NONE)
        return "train.compress_start is a share of it";
    return NULL;
}

static const char *lr_refused(const struct amend_case *c)
{
    return outer_opt_row(c->o.outer_optimizer)->fixed ? "outer.optimizer = average has the rate 1"
                                                      : NULL;
}

static const char *warmup_refused(const struct amend_case *c)
{
    if (c->s.train_stages.count)
        return "each stage of train.stages has a warm-up of its own";
    if (c->s.train_compress != TRAIN_COMPRESS_NONE || c->s.train_modules > 1 ||
        c->s.train_pipeline == TRAIN_PIPELINE_STALE)
        return "train.compress and train.modules have fixed what begins after it";
    return NULL;
}

static enum err case_check(const struct amend_case *c, const char *key)
{
    static const struct {
        const char *key;
        const char *(*refused)(const struct amend_case *c);
    } rows[] = {{"outer.lr", lr_refused},       {"outer.sync_every", every_refused},
                {"outer.codec", codec_refused}, {"outer.overlap_steps", overlap_refused},
                {"train.steps", steps_refused}, {"train.warmup_steps", warmup_refused}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why = strcmp(rows[i].key, key) == 0 ? rows[i].refused(c) : NULL;
        if (why)
            return err_set(ERR_CONFIG, "%s: %s", key, why);
    }
    return ERR_OK;
}

/* data.train is each site's own: a configuration without a mixture says nothing of the number of
 * sources. */
static enum err rules_check(const struct amend_case *c, const struct keys_base *base)
{
    static const char *any[MIXTURE_SOURCES_MAX + 1];
    struct config_rules rules = {0};
    struct settings s = c->s;
    if (s.data_weights.count && s.data_weights.count <= MIXTURE_SOURCES_MAX &&
        !base->s->data_weights.count) {
        for (size_t i = 0; i < s.data_weights.count; i++)
            any[i] = "any.bin";
        s.data_train = (struct config_list){any, s.data_weights.count};
    }
    keys_check(&rules, &s);
    keys_outer_check(&rules, &c->o, &c->s);
    return config_rules_report(&rules);
}

static enum err key_check(const char *key)
{
    bool known;
    const char *why = amend_refusal(key, &known);
    return why ? err_set(ERR_CONFIG, "%s: %s", key, why) : ERR_OK;
}

/* The settings of the last border, without and with the amendment. */
static enum err case_settings(struct amend_case *c, const struct keys_base *base,
                              const struct amendments *list, const struct amendment *one,
                              struct arena *a)
{
    TRY(amend_settings(&c->s_before, &c->o_before, base, list, UINT64_MAX, a));
    c->s = c->s_before;
    c->o = c->o_before;
    const struct config_table tables[] = {keys_inner(&c->s), keys_outer(&c->o)};
    return text_set(tables, one->text, a);
}

static enum err check(const struct keys_base *base, const struct schedule *s,
                      const struct amendments *list, const struct amendment *one, struct arena *a)
{
    struct amend_case c = {.x = s};
    const struct config_key *k = setting_key_of(one->text);
    char key[SETTING_KEY_MAX];
    if (!amendments_text(one->text))
        return err_set(ERR_CONFIG, "\"%.100s\" is not of the form section.key value", one->text);
    if (!k)
        return setting_unknown(CONFIG_RECORDED, setting_key_text(one->text, key), a);
    snprintf(key, sizeof key, "%s.%s", k->section, k->name);
    TRY(key_check(key));
    TRY(amend_border(s, one->round, &c.border));
    TRY(case_settings(&c, base, list, one, a));
    TRY(rules_check(&c, base));
    return case_check(&c, key);
}

enum err amend_check(const struct keys_base *base, const struct schedule *s,
                     const struct amendments *list, const struct amendment *one)
{
    struct arena scratch = arena_make(0);
    enum err e = check(base, s, list, one, &scratch);
    if (e == ERR_OK && list->count == AMENDMENTS_MAX)
        e = err_set(
            ERR_CONFIG,
            "%d amendments were made, no more are possible. End the run, write what is in "
            "force (atoll operator set --list) into the configuration, and continue as a new "
            "run with run.init_from",
            AMENDMENTS_MAX);
    arena_free(&scratch);
    return e;
}

/* ---- what a person should know ---- */

enum { WARNING_MAX = 512 };

/* Those of a start (outer/config/tuning.h, inner/config/keys.h). */
static void start_warnings(char out[2][WARNING_MAX], const struct settings *s,
                           const struct outer_settings *o)
{
    struct tuning t = tuning_of(o);
    tuning_warning(&t, out[0], WARNING_MAX);
    keys_warning(s, out[1], WARNING_MAX);
}

/* data.train is each site's own, and no site says how many sources it has. */
static void sources_warning(char out[WARNING_MAX], const struct keys_base *base,
                            const struct amendment *one, const struct settings *s)
{
    *out = 0;
    if (strncmp(one->text, "data.weights=", 13) == 0 && !base->s->data_weights.count)
        snprintf(out, WARNING_MAX,
                 "the aggregator's configuration has no data.weights, so it does not know the "
                 "sites' mixtures: a site whose mixture has not %zu sources keeps its weights, and "
                 "says so in its log (ev=mixture), its report and its page",
                 s->data_weights.count);
}

static void warning_add(char *out, size_t size_bytes, const char *text)
{
    size_t used = strlen(out);
    if (*text)
        snprintf(out + used, size_bytes - used, "%s%s", used ? "; " : "", text);
}

static enum err warning_make(char *out, size_t size_bytes, const struct keys_base *base,
                             const struct amendments *list, const struct amendment *one,
                             struct arena *a)
{
    struct amend_case c = {.border = 0};
    char before[2][WARNING_MAX], now[2][WARNING_MAX], sources[WARNING_MAX];
    TRY(case_settings(&c, base, list, one, a));
    start_warnings(before, &c.s_before, &c.o_before);
    start_warnings(now, &c.s, &c.o);
    for (size_t i = 0; i < 2; i++)
        if (strcmp(before[i], now[i]) != 0)
            warning_add(out, size_bytes, now[i]);
    sources_warning(sources, base, one, &c.s);
    warning_add(out, size_bytes, sources);
    return ERR_OK;
}

enum err amend_warning(char *out, size_t size_bytes, const struct keys_base *base,
                       const struct amendments *list, const struct amendment *one)
{
    struct arena scratch = arena_make(0);
    *out = 0;
    enum err e = warning_make(out, size_bytes, base, list, one, &scratch);
    arena_free(&scratch);
    return e;
}
