#include "outer/site_train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/log.h"

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool lead(const struct site_train *s)
{
    return s->o.coll->rank == 0;
}

/* Every rank learns how the lead fared before anybody waits for data. */
static enum err agree(const struct site_train *s, enum err mine)
{
    int32_t status = (int32_t)mine;
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &status, sizeof status));
    if (lead(s) || status == ERR_OK)
        return mine;
    return err_set((enum err)status, "the lead of this site stopped: %s", err_text((enum err)status));
}

enum err site_train_open(struct site_train *s, const struct site_train_options *o, size_t local_elements)
{
    size_t largest = 0;
    *s = (struct site_train){.o = *o, .arena = arena_make(0)};
    for (unsigned f = 0; f < o->fragments->count; f++)
        if (o->fragments->f[f].elements > largest)
            largest = o->fragments->f[f].elements;
    TRY_ALLOC(s->fragment = arena_array(&s->arena, largest, sizeof *s->fragment));
    if (o->evaluate)
        TRY_ALLOC(s->local = arena_array(&s->arena, local_elements, sizeof *s->local));
    return ERR_OK;
}

void site_train_close(struct site_train *s)
{
    arena_free(&s->arena);
}

uint64_t site_train_rounds(const struct schedule *s, int64_t step)
{
    uint64_t ended = 0;
    for (unsigned f = 0; f < s->fragments; f++)
        for (uint64_t r = 0; r < schedule_rounds(s, f) && schedule_step(s, f, r) <= step; r++)
            ended++;
    return ended;
}

/* s->fragment of the lead -> the model's parameters of every rank. */
static enum err spread(struct site_train *s, struct train *t, unsigned f)
{
    const struct fragment *part = &s->o.fragments->f[f];
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, s->fragment, part->elements * sizeof(float)));
    fragment_scatter(t->dev, model_params(t->model), s->fragment, part);
    return dev_sync(t->dev);
}

static struct link_counters since(const struct link_counters *now, const struct link_counters *then)
{
    return (struct link_counters){
        .payload_up = now->payload_up - then->payload_up, .payload_down = now->payload_down - then->payload_down,
        .messages_up = now->messages_up - then->messages_up,
        .messages_down = now->messages_down - then->messages_down,
        .wire_up = now->wire_up > then->wire_up ? now->wire_up - then->wire_up : 0,
        .wire_down = now->wire_down > then->wire_down ? now->wire_down - then->wire_down : 0};
}

/* Weight of a contribution: this site's tokens of the round over the nominal ones of a full round. */
static double round_weight(const struct site_train *s, unsigned f, uint64_t round)
{
    const struct schedule *c = &s->o.schedule;
    int64_t begin = round ? schedule_step(c, f, round - 1) : 0;
    return s->o.share * (double)(schedule_step(c, f, round) - begin) / (double)c->every;
}

static void tell(struct site_train *s, struct site_train_round *r, const struct link_counters *before)
{
    const struct codec *codec = codec_get(schedule_codec(&s->o.schedule, r->fragment, r->round));
    size_t elements = s->o.fragments->f[r->fragment].elements;
    struct link_counters after;
    struct manifest manifest;
    s->o.link->ops->counters(s->o.link, &after);
    r->counted = since(&after, before);
    r->times = site_last(s->o.site);
    r->up_predicted = codec->payload_bytes(codec, elements);
    r->down_predicted = codec->aggregate_bytes(codec, elements, s->o.site_count);
    r->sites = s->o.site_count;
    if (member_manifest(s->o.member, r->fragment, r->round, &manifest) == ERR_OK)
        r->included = manifest_included(&manifest);
    s->o.rounded(s->o.self, r);
}

/* The lead's part of a round: gather, exchange, tell. s->fragment then holds the new outer parameters. */
static enum err exchange(struct site_train *s, struct train *t, const struct train_report *report, unsigned f,
                         uint64_t round)
{
    struct site_train_round r = {.step = t->step, .fragment = f, .round = round, .weight = round_weight(s, f, round),
                                 .replayed = s->o.member->state[f].round > round};
    struct link_counters before;
    double begin = seconds_now();
    s->o.link->ops->counters(s->o.link, &before);
    fragment_gather(t->dev, s->fragment, model_params(t->model), &s->o.fragments->f[f]);
    TRY(dev_sync(t->dev));
    TRY(site_round(s->o.site, f, round, s->fragment, (float)r.weight, t->tokens));
    r.seconds = seconds_now() - begin;
    tell(s, &r, &before);
    return site_report(s->o.site, f, t->step, report->loss, report->tokens_per_second, t->tokens);
}

/* All rounds that end at this step, on every rank. */
static enum err rounds_due(struct site_train *s, struct train *t, const struct train_report *report)
{
    bool changed = false;
    uint64_t round;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        if (t->step == 0 || !schedule_due(&s->o.schedule, t->step, f, &round))
            continue;
        TRY(agree(s, lead(s) ? exchange(s, t, report, f, round) : ERR_OK));
        TRY(spread(s, t, f));
        changed = true;
    }
    if (changed)
        model_params_changed(t->model);
    return ERR_OK;
}

enum err site_train_step(struct site_train *s, struct train *t, const struct train_report *r)
{
    enum err e = rounds_due(s, t, r);
    if (e != ERR_STOPPED)
        return e;
    TRY(train_checkpoint(t)); /* the wait was given up, the step's work is not */
    return err_set(ERR_STOPPED, "stopped at step %lld while waiting for a round; it is stored", (long long)t->step);
}

/* Rounds of a fragment that end before this step: what a checkpoint of it has merged for certain. */
static uint64_t merged_before(const struct schedule *c, unsigned f, int64_t step)
{
    uint64_t n = 0;
    while (n < schedule_rounds(c, f) && schedule_step(c, f, n) < step)
        n++;
    return n;
}

/* A site keeps the outer states that a restart from its oldest checkpoint would repeat, and no more. */
enum err site_train_saved(struct site_train *s, int64_t oldest_step)
{
    if (!lead(s))
        return ERR_OK;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        TRY(member_prune(s->o.member, f, merged_before(&s->o.schedule, f, oldest_step)));
    return ERR_OK;
}

/* Can the steps from t->step be repeated with the recorded states? If not, the step at which the newest states stand. */
static int64_t place_to_go_on(struct site_train *s, const struct train *t)
{
    const struct schedule *c = &s->o.schedule;
    bool replay = true;
    int64_t newest = 0;
    uint64_t due;
    for (unsigned f = 0; f < c->fragments; f++) {
        uint64_t have = s->o.member->state[f].round, need = merged_before(c, f, t->step);
        if (have > 0 && schedule_step(c, f, have - 1) > newest)
            newest = schedule_step(c, f, have - 1);
        if (have < need)
            replay = false; /* the outer state is older than the checkpoint: an adopted snapshot, or files put back */
        uint64_t here = t->step > 0 && schedule_due(c, t->step, f, &due) ? 1 : 0;
        if (have > need + here && !s->o.strict)
            replay = false; /* the others went on: nothing we would repeat could still be sent */
        for (uint64_t r = need + 1; r <= have && replay; r++)
            replay = member_load_theta(s->o.member, f, r, s->fragment) == ERR_OK;
    }
    return replay ? t->step : newest;
}

/* The outer parameters of all fragments become the local ones. */
static enum err take_outer(struct site_train *s, struct train *t)
{
    for (unsigned f = 0; f < s->o.fragments->count; f++) {
        if (lead(s))
            memcpy(s->fragment, s->o.member->state[f].theta, s->o.fragments->f[f].elements * sizeof(float));
        TRY(spread(s, t, f));
    }
    model_params_changed(t->model);
    return ERR_OK;
}

static enum err start_lead(struct site_train *s, struct train *t, int64_t *step)
{
    struct arena scratch = arena_make(0);
    float *initial = arena_array(&scratch, t->table.elements, sizeof *initial);
    enum err e = initial ? ERR_OK : ERR_MEMORY;
    if (e == ERR_OK) {
        table_init(&t->table, (uint64_t)t->settings->run_seed, initial);
        e = site_start(s->o.site, initial);
    }
    arena_free(&scratch);
    if (e == ERR_OK)
        *step = place_to_go_on(s, t);
    return e;
}

enum err site_train_start(struct site_train *s, struct train *t, bool *moved)
{
    int64_t step = t->step;
    TRY(agree(s, lead(s) ? start_lead(s, t, &step) : ERR_OK));
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &step, sizeof step));
    *moved = step != t->step;
    if (*moved) {
        if (lead(s))
            log_event(LOG_WARN, "moved", "from_step=%lld to_step=%lld reason=\"the run went on without this site\"",
                      (long long)t->step, (long long)step);
        uint64_t per_step = (uint64_t)t->settings->train_batch_tokens;
        t->step = step;
        t->tokens = (uint64_t)step * per_step;
        return take_outer(s, t);
    }
    return rounds_due(s, t, &(struct train_report){.step = t->step, .loss = NAN});
}

/* Do the local parameters equal the outer ones? They do where every fragment has just been merged. */
static bool merged_here(const struct site_train *s, int64_t step)
{
    uint64_t round;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        if (step > 0 && !schedule_due(&s->o.schedule, step, f, &round))
            return false;
    return true;
}

enum err site_train_eval(struct site_train *s, struct train *t, double *loss, size_t *tokens, bool *same)
{
    size_t bytes = t->table.elements * sizeof(float);
    *same = merged_here(s, t->step) || !s->local;
    if (*same)
        return ERR_OK;
    t->dev->ops->copy(t->dev, s->local, model_params(t->model), bytes);
    TRY(dev_sync(t->dev));
    TRY(take_outer(s, t));
    TRY(train_evaluate(t, loss, tokens));
    t->dev->ops->copy(t->dev, model_params(t->model), s->local, bytes);
    model_params_changed(t->model);
    return dev_sync(t->dev);
}
