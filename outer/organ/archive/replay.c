/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/organ/archive/replay_own.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "outer/protocol/mutant.h"
#include "outer/store/aggregate.h"

/* ---- contributions ---- */

static void inputs_close(struct replay_inputs *in)
{
    for (unsigned i = 0; i < in->count; i++)
        file_unmap(&in->map[i]);
    in->count = 0;
}

bool replay_payloads_differ(struct replay *p, enum codec_kind kind, const struct codec_payload *x,
                            const struct codec_payload *y, struct replay_place *place)
{
    struct arena scratch = arena_make(0);
    const struct codec *c = codec_get(kind);
    size_t n = p->m->fragments->f[p->fragment].elements, i = 0;
    const uint8_t *grid = p->m->state[p->fragment].codes;
    float *a = arena_array(&scratch, n, sizeof *a), *b = arena_array(&scratch, n, sizeof *b);
    struct codec_call call = outer_state_call(p->m, p->fragment, grid);
    double squares;
    call.work = NULL;
    bool good = c && a && b && c->check(c, &call, &squares, x->data, x->size_bytes) == ERR_OK &&
                c->check(c, &call, &squares, y->data, y->size_bytes) == ERR_OK &&
                outer_state_decode(p->m, p->fragment, kind, a, x, grid) == ERR_OK &&
                outer_state_decode(p->m, p->fragment, kind, b, y, grid) == ERR_OK;
    while (good && i < n && memcmp(&a[i], &b[i], sizeof *a) == 0)
        i++;
    good = good && i < n;
    if (good)
        *place = replay_place_of(p, LEAVES_THETA, i, 1);
    arena_free(&scratch);
    err_clear();
    return good;
}

/* The contribution of a site, intact in any directory; else damaged, which is kept for a look. */
static void input_take(struct replay *p, const struct manifest_entry *e, const char *site,
                       struct replay_inputs *in)
{
    struct file_map *best = &in->map[in->count], bad = {0};
    char bad_file[ARCHIVE_PATH_MAX] = "", name[ARCHIVE_NAME_MAX + 16];
    struct replay_file f = {0};
    bool intact = false;
    archive_payload_name(name, site);
    while (!intact && replay_file_next(p, &f, name, p->now->round, REPLAY_ARCHIVED)) {
        intact = replay_file_is(&f, &e->payload, e->payload_bytes);
        p->r->bytes += f.map.size_bytes;
        if (!intact && *bad_file)
            continue;
        if (!intact)
            snprintf(bad_file, sizeof bad_file, "%s", f.path);
        *(intact ? best : &bad) = f.map;
        f.map = (struct file_map){0};
    }
    replay_file_close(&f);
    err_clear();
    if (intact && *bad_file) {
        struct replay_place place = {.known = false};
        replay_payloads_differ(p, (enum codec_kind)p->now->codec,
                               &(struct codec_payload){best->data, best->size_bytes},
                               &(struct codec_payload){bad.data, bad.size_bytes}, &place);
        replay_found_at(p,
                        &(struct replay_where){.kind = REPLAY_DAMAGED,
                                               .what = "contribution",
                                               .site = site,
                                               .file = bad_file,
                                               .round = p->now->round,
                                               .place = &place},
                        "not the bytes that the manifest names; another directory has these");
        file_unmap(&bad);
    } else if (*bad_file) {
        *best = bad;
        snprintf(in->site, sizeof in->site, "%.63s", site);
        snprintf(in->file, sizeof in->file, "%s", bad_file);
        in->damaged++;
    } else if (!intact) {
        size_t used = strlen(in->absent);
        snprintf(in->absent + used, sizeof in->absent - used, "%s%s", in->missing ? ", " : "",
                 site);
        in->missing++;
        return;
    }
    in->payload[in->count] = (struct codec_payload){best->data, best->size_bytes};
    in->count++;
}

static void inputs_open(struct replay *p, struct replay_inputs *in)
{
    in->count = in->missing = in->damaged = 0;
    *in->absent = 0;
    for (uint32_t i = 0; i < p->now->site_count; i++)
        if (p->now->sites[i].included)
            input_take(p, &p->now->sites[i],
                       manifest_name(p->now, p->o->sites, p->now->sites[i].site), in);
}

/* The aggregate that a directory has kept: mapped, intact. */
static bool aggregate_find(struct replay *p, struct replay_file *f)
{
    uint64_t round = p->now->round;
    while (replay_file_next(p, f, "aggregate", round, round + 1)) {
        if (replay_file_is(f, &p->now->aggregate, p->now->aggregate_bytes)) {
            p->r->bytes += f->map.size_bytes;
            return true;
        }
        replay_found(p, REPLAY_DAMAGED, "aggregate", round, f->path,
                     "not the bytes that the manifest names");
    }
    err_clear();
    return false;
}

/* ---- where a made state differs ---- */

/* Compares `next` of the replica with the leaves of this file. False: it cannot be read. */
static bool leaves_look(struct replay *p, struct replay_file *f, struct replay_place *place,
                        size_t *count)
{
    size_t n = leaves_count(p->m, p->fragment);
    struct leaf *list = arena_array(&f->arena, n, sizeof *list);
    struct digest *ours = arena_array(&f->arena, n, sizeof *ours),
                  *theirs = arena_array(&f->arena, n, sizeof *theirs);
    bool read = list && ours && theirs && f->e == ERR_OK &&
                archive_leaves_read(theirs, n, f->path, f->map.data, f->map.size_bytes,
                                    &f->arena) == ERR_OK &&
                leaves_digests(p->m, p->fragment, &p->m->next, ours, &f->arena) == ERR_OK;
    err_clear();
    *count = 0;
    if (!read)
        return false;
    leaves_list(p->m, p->fragment, list);
    for (size_t i = 0; i < n; i++)
        if (!digest_equal(&ours[i], &theirs[i]) && !(*count)++)
            *place = replay_place_of(p, list[i].array, list[i].first, list[i].count);
    return true;
}

/* Compares `next` of the replica with the leaves that an archive has of that state, until some
 * differ. False: none do. */
static bool leaves_compare(struct replay *p, struct replay_place *place, size_t *count)
{
    struct replay_file f = {0};
    bool found = false;
    while (!found && replay_file_next(p, &f, "leaves", p->now->round, REPLAY_ARCHIVED))
        found = leaves_look(p, &f, place, count) && *count;
    replay_file_close(&f);
    return found;
}

/* ---- a round ---- */

/* The state that a damaged contribution gives differs from the recorded one in some leaves: these
 * are where its wrong values are. */
static void damage_tell(struct replay *p, const struct replay_inputs *in)
{
    struct arena scratch = arena_make(0);
    struct aggregate_bytes made;
    struct replay_place place = {.known = false};
    size_t leaves = 0;
    struct outer_state *m = p->m;
    const struct codec *c = codec_get(p->now->codec);
    memcpy(p->other, p->now, sizeof *p->other);
    enum err e = c && !in->missing ? ERR_OK : ERR_INPUT;
    for (unsigned i = 0; e == ERR_OK && i < in->count; i++) {
        struct codec_call call = outer_state_call(m, p->fragment, m->state[p->fragment].codes);
        double squares;
        call.work = NULL;
        e = c->check(c, &call, &squares, in->payload[i].data, in->payload[i].size_bytes);
    }
    if (e == ERR_OK)
        e = aggregate_make(m, p->fragment, &(struct downlink_input){in->payload, in->count}, &made,
                           &scratch);
    if (e == ERR_OK)
        e = outer_state_apply(m, p->other, made.data, made.size_bytes);
    bool placed = e == ERR_OK && leaves_compare(p, &place, &leaves);
    const struct replay_where w = {.kind = REPLAY_DAMAGED,
                                   .what = "contribution",
                                   .site = in->site,
                                   .file = in->file,
                                   .round = p->now->round,
                                   .place = &place};
    if (placed)
        replay_found_at(
            p, &w, "not the bytes that the manifest names; %zu lea%s of the state would differ",
            leaves, leaves == 1 ? "f" : "ves");
    else
        replay_found_at(p, &w, "not the bytes that the manifest names%s",
                        e == ERR_OK ? "" : ", and nothing that decodes");
    err_clear();
    arena_free(&scratch);
}

static void state_differs(struct replay *p, const char *what)
{
    struct replay_place place = {.known = false};
    size_t leaves = 0;
    bool placed = leaves_compare(p, &place, &leaves);
    replay_found_at(
        p,
        &(struct replay_where){
            .kind = REPLAY_DIFFERS, .what = "state", .round = p->now->round, .place = &place},
        placed ? "%s; %zu leaves differ" : "%s; no archive has its leaves", what, leaves);
}

/* The state is the one that the manifest names: leaves that say otherwise are damaged, and would
 * mislead a search for a difference. A round without leaves was archived after a gap.
 */
static void leaves_check(struct replay *p)
{
    struct replay_file f = {0};
    while (replay_file_next(p, &f, "leaves", p->now->round, REPLAY_ARCHIVED)) {
        struct replay_place place = {.known = false};
        size_t count = 0;
        bool read = leaves_look(p, &f, &place, &count);
        if (!read || count)
            replay_found_at(p,
                            &(struct replay_where){.kind = REPLAY_DAMAGED,
                                                   .what = "leaves",
                                                   .round = p->now->round,
                                                   .file = f.path,
                                                   .place = count ? &place : NULL},
                            read ? "digests of another state than the manifest names"
                                 : "damaged: no record of this fragment's leaves");
    }
}

/* The state after the round, from the bytes that the manifest names. */
static enum err state_make(struct replay *p, const uint8_t *bytes, size_t size_bytes)
{
    enum err e = outer_state_replay(p->m, p->now, bytes, size_bytes);
    if (e == ERR_OK)
        leaves_check(p);
    if (e == ERR_DISAGREE && (manifest_empty(p->now) || p->m->next.round == p->now->round + 1))
        state_differs(p, err_message());
    else if (e == ERR_DISAGREE || e == ERR_PROTO || e == ERR_DIVERGED)
        replay_found(p, REPLAY_DIFFERS, "state", p->now->round, NULL, "%s", err_message());
    return e;
}

/* From the kept aggregate. ERR_INPUT: there is none. */
static enum err round_by_aggregate(struct replay *p)
{
    struct replay_file f = {0};
    if (!aggregate_find(p, &f))
        return ERR_INPUT;
    outer_state_own_keep(p->m, p->fragment);
    enum err e = state_make(p, f.map.data, f.map.size_bytes);
    if (schedule_compresses_downlink(&p->m->schedule, (enum codec_kind)p->now->codec,
                                     manifest_included(p->now)))
        p->residual_unknown = p->m->o.compresses_downlink;
    replay_file_close(&f);
    p->r->by_aggregate += e == ERR_OK;
    return e;
}

static enum err round_by_inputs(struct replay *p, const struct replay_inputs *in)
{
    struct arena scratch = arena_make(0);
    struct aggregate_bytes made;
    enum err e = aggregate_make(p->m, p->fragment, &(struct downlink_input){in->payload, in->count},
                                &made, &scratch);
    struct digest d = e == ERR_OK ? digest_of(made.data, made.size_bytes) : (struct digest){0};
    bool same = e == ERR_OK && digest_equal(&d, &p->now->aggregate);
    if (same)
        e = state_make(p, made.data, made.size_bytes);
    p->r->made += same && e == ERR_OK;
    arena_free(&scratch);
    if (same || e != ERR_OK)
        return e;
    replay_found(p, REPLAY_DIFFERS, "aggregate", p->now->round, NULL,
                 "the contributions add up to other bytes than the manifest names");
    return round_by_aggregate(p);
}

/* The bytes of the state that an operator has gone back to: a kept state. */
static enum err round_rolled_back(struct replay *p)
{
    struct replay_file f = {0};
    enum err e = ERR_INPUT;
    while (e != ERR_OK && replay_file_state(p, &f, p->now->round + 1))
        e = outer_state_replay(p->m, p->now, f.state.shared, f.state.shared_bytes);
    replay_file_close(&f);
    err_clear();
    if (e == ERR_OK) {
        outer_state_give_up(p->m, p->fragment);
        p->r->made++;
        return e;
    }
    replay_found(p, REPLAY_MISSING, "state", p->now->round, NULL,
                 "an operator went back to state %" PRIu64 ", and no directory has state %" PRIu64
                 ", whose bytes it has",
                 p->now->rolled_to, p->now->round + 1);
    return ERR_INPUT;
}

static enum err round_aborted(struct replay *p)
{
    outer_state_own_keep(p->m, p->fragment);
    enum err e = state_make(p, NULL, 0);
    p->r->made += e == ERR_OK;
    return e;
}

static bool masked(const struct replay *p)
{
    for (size_t i = 0; i < p->o->count; i++)
        if (p->o->sources[i].archive && p->o->sources[i].head.masked)
            return true;
    return false;
}

static void absent_tell(struct replay *p, const struct replay_inputs *in, bool aggregate)
{
    replay_found_at(p,
                    &(struct replay_where){.kind = REPLAY_MISSING,
                                           .what = "contribution",
                                           .round = p->now->round,
                                           .site = in->absent},
                    "in none of the directories%s",
                    aggregate ? "; the round was made from the kept sum"
                              : ", and neither is the sum");
}

static enum err round_included(struct replay *p, struct replay_inputs *in)
{
    uint64_t round = p->now->round;
    bool compressed = schedule_compresses_downlink(&p->m->schedule, (enum codec_kind)p->now->codec,
                                                   manifest_included(p->now));
    if (masked(p)) {
        enum err e = round_by_aggregate(p);
        if (e == ERR_INPUT)
            replay_found(p, REPLAY_MISSING, "aggregate", round, NULL,
                         "masked contributions cannot be added again without their sum");
        return e;
    }
    inputs_open(p, in);
    bool whole = !in->missing && !in->damaged;
    if (in->damaged)
        damage_tell(p, in);
    if (whole && !(compressed && p->residual_unknown))
        return round_by_inputs(p, in);
    enum err e = round_by_aggregate(p);
    if (in->missing)
        absent_tell(p, in, e != ERR_INPUT);
    else if (e == ERR_INPUT && whole)
        replay_found(p, REPLAY_MISSING, "state", round, NULL,
                     "the aggregator compressed the sum with a residual, which no kept state "
                     "before this round has");
    return e;
}

/* What the manifest says of its inputs, before anything is made. */
static void manifest_look(struct replay *p)
{
    struct outer_state_fragment *s = &p->m->state[p->fragment];
    uint64_t round = p->now->round;
    for (size_t i = 0; i < p->o->count; i++) {
        const struct replay_source *from = &p->o->sources[i];
        if (!from->archive || digest_equal(&from->head.config, &p->now->config))
            continue;
        replay_found(p, REPLAY_DIFFERS, "manifest", round, from->archive,
                     "the manifest names other settings than this archive's");
        break;
    }
    if (!MUTANT(AMENDED_REPLAY) && outer_state_amend(p->m, &p->now->amendments) != ERR_OK) {
        replay_found(p, REPLAY_DIFFERS, "manifest", round, NULL, "its amendments: %s",
                     err_message());
        err_clear();
    }
    if (digest_equal(&p->now->parent, &s->manifest))
        return;
    replay_found(p, REPLAY_DIFFERS, "manifest", round ? round - 1 : 0, NULL,
                 "it is not the one that round %" PRIu64 " names as its parent", round);
    s->manifest = p->now->parent;
}

enum err replay_round(struct replay *p, uint64_t round, struct replay_inputs *in)
{
    if (!replay_manifest_take(p, round))
        return ERR_INPUT;
    manifest_look(p);
    p->m->next.round = 0;
    enum err e = p->now->rolled_back        ? round_rolled_back(p)
                 : manifest_aborted(p->now) ? round_aborted(p)
                                            : round_included(p, in);
    inputs_close(in);
    if (e == ERR_OK)
        outer_state_follow(p->m, p->fragment, p->now);
    return e;
}

/* ---- a fragment ---- */

static bool final_error(enum err e)
{
    return e == ERR_MEMORY || e == ERR_INTERNAL || e == ERR_UNSUPPORTED;
}

static void unmade_tell(struct replay *p, uint64_t from, uint64_t to)
{
    if (to > from)
        replay_found_at(
            p,
            &(struct replay_where){
                .kind = REPLAY_MISSING, .what = "rounds", .round = from, .last = to - 1},
            "not recomputed: the state before them is missing");
}

/* Is the fragment one of any of these replicas? An aggregator of several has its share alone. */
static bool fragment_served(const struct replay *p)
{
    for (size_t i = 0; i < p->o->count; i++) {
        const struct archive_head *h = &p->o->sources[i].head;
        if (p->o->sources[i].archive &&
            (!h->aggregator || h->aggregators <= 1 || p->fragment % h->aggregators == h->index))
            return true;
    }
    return false;
}

enum err replay_fragment(struct replay *p, struct replay_inputs *in, bool *whole)
{
    const struct outer_state_fragment *s = &p->m->state[p->fragment];
    uint64_t rounds = replay_rounds(p), end = rounds < p->o->to ? rounds : p->o->to;
    p->residual_unknown = false;
    *whole = end == rounds && fragment_served(p);
    if (p->o->from >= end && p->o->from)
        return ERR_OK;
    p->r->rounds += end - p->o->from;
    if (!replay_start(p, p->o->from)) {
        replay_found(p, REPLAY_MISSING, "state", 0, NULL,
                     "the run did not start from run.seed, and no directory has state 0");
        *whole = false;
        if (!replay_state_next(p, 1, end)) {
            unmade_tell(p, 0, end);
            return ERR_OK;
        }
        unmade_tell(p, 0, s->round);
    }
    const struct replay_result counted = *p->r;
    uint64_t begun = s->round;
    replay_states_compare(p);
    while (s->round < end) {
        uint64_t round = s->round;
        enum err e = replay_round(p, round, in);
        if (final_error(e))
            return e;
        if (e == ERR_OK && s->round == p->o->from && begun < p->o->from) {
            p->r->made = counted.made; /* only to get there */
            p->r->by_aggregate = counted.by_aggregate;
            p->r->signatures = counted.signatures;
            p->r->keys_unknown = counted.keys_unknown;
        }
        if (e == ERR_OK) {
            replay_states_compare(p);
            continue;
        }
        *whole = false;
        if (!replay_state_next(p, round + 1, end)) {
            unmade_tell(p, round + 1, end);
            return ERR_OK;
        }
        unmade_tell(p, round + 1, s->round);
    }
    return ERR_OK;
}

/* Rounds after the newest one that is on record. Where a replica's own state says that there were
 * some, its archive has lost them; archives alone cannot say it. */
static void end_tell(struct replay *p)
{
    uint64_t rounds = replay_rounds(p), due = schedule_rounds(&p->m->schedule, p->fragment);
    bool known = false;
    for (size_t i = 0; i < p->o->count; i++) {
        const struct replay_source *s = &p->o->sources[i];
        uint64_t archived, kept;
        known |= s->frag != NULL;
        if (!replay_rounds_of(p, i, &archived, &kept) || archived >= kept)
            continue;
        replay_found_at(p,
                        &(struct replay_where){.kind = REPLAY_MISSING,
                                               .what = "rounds",
                                               .round = archived,
                                               .last = kept - 1,
                                               .file = s->archive},
                        "not in this archive, though its replica has state %" PRIu64
                        "; a replica that was killed archives its newest round at its next start",
                        kept);
    }
    if (!known && rounds < due && fragment_served(p))
        replay_found_at(
            p,
            &(struct replay_where){
                .kind = REPLAY_MISSING, .what = "rounds", .round = rounds, .last = due - 1},
            "not on record, and archives alone do not say whether the run had them: give the "
            "serve.dir or the run.dir, too");
}

static enum err replay_all(struct replay *p, struct replay_inputs *in)
{
    p->r->whole = true;
    for (p->fragment = 0; p->fragment < p->m->fragments->count; p->fragment++) {
        bool whole;
        TRY(replay_fragment(p, in, &whole));
        p->r->whole &= whole;
        if (p->o->to > replay_rounds(p))
            end_tell(p);
    }
    if (p->r->whole)
        p->r->outer = outer_state_digest(p->m, false);
    return ERR_OK;
}

enum err replay_with(struct outer_state *m, const struct replay_options *o, struct replay_result *r,
                     enum err (*work)(struct replay *p, struct replay_inputs *in))
{
    struct arena scratch = arena_make(0);
    struct replay p = {.m = m, .o = o, .r = r};
    struct replay_inputs *in = arena_alloc(&scratch, sizeof *in);
    *r = (struct replay_result){0};
    p.now = arena_alloc(&scratch, sizeof *p.now);
    p.other = arena_alloc(&scratch, sizeof *p.other);
    enum err e = in && p.now && p.other ? work(&p, in) : ERR_MEMORY;
    arena_free(&scratch);
    return e;
}

enum err replay_run(struct outer_state *m, const struct replay_options *o, struct replay_result *r)
{
    return replay_with(m, o, r, replay_all);
}
