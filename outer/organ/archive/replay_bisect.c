/* SPDX-License-Identifier: Apache-2.0 */
/* The first round in which two directories, or a directory and its manifests, differ. */
#include "outer/organ/archive/replay_own.h"
#include <stdio.h>

/* The manifest of a round in one directory, intact. */
static bool manifest_of(struct replay *p, size_t source, uint64_t round, struct manifest *out)
{
    struct replay_file f = replay_file_of(source);
    p->r->looks++;
    bool found = replay_file_manifest(p, &f, round, out);
    replay_file_close(&f);
    return found;
}

/* Do the two directories have different states after the round? *known false: a manifest is
 * missing. */
static bool apart(struct replay *p, uint64_t round, bool *known)
{
    *known = manifest_of(p, 0, round, p->now) && manifest_of(p, 1, round, p->other);
    return *known && !digest_equal(&p->now->state_after, &p->other->state_after);
}

/* The first round that is apart, of [0, end); end: none. A state follows from the one before, so
 * all rounds after it are apart, too. */
static uint64_t first_apart(struct replay *p, uint64_t end)
{
    uint64_t low = 0, high = end, first = end;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2, at = mid;
        bool known = false, is = false;
        while (at < high && !known) /* a gap: the next one that both have */
            is = apart(p, at++, &known);
        first = known && is ? at - 1 : first;
        if (known && !is)
            low = at;
        else
            high = mid;
    }
    return first;
}

/* The replica at the state before the round, from the nearest kept one. Nothing is told of the
 * rounds in between. */
static bool state_reach(struct replay *p, uint64_t round, struct replay_inputs *in)
{
    p->quiet = true;
    bool good = replay_start(p, round);
    while (good && p->m->state[p->fragment].round < round)
        good = replay_round(p, p->m->state[p->fragment].round, in) == ERR_OK;
    p->quiet = false;
    return good;
}

/* The archive's file of a round, in one directory. */
static bool archived_open(struct replay *p, size_t source, uint64_t round, const char *name,
                          struct replay_file *f)
{
    *f = replay_file_of(source);
    return replay_file_next(p, f, name, round, REPLAY_ARCHIVED) && f->e == ERR_OK;
}

/* Two contributions of one site: the first value that they do not share. */
static void contribution_apart(struct replay *p, uint64_t round, const char *site,
                               struct replay_inputs *in, struct replay_place *place)
{
    struct replay_file x = {0}, y = {0};
    enum codec_kind codec = (enum codec_kind)p->now->codec;
    char name[ARCHIVE_NAME_MAX + 16];
    archive_payload_name(name, site);
    if (state_reach(p, round, in) && archived_open(p, 0, round, name, &x) &&
        archived_open(p, 1, round, name, &y))
        replay_payloads_differ(p, codec, &(struct codec_payload){x.map.data, x.map.size_bytes},
                               &(struct codec_payload){y.map.data, y.map.size_bytes}, place);
    replay_file_close(&x);
    replay_file_close(&y);
    err_clear();
}

static bool leaves_of(struct replay *p, size_t source, uint64_t round, struct digest *out, size_t n)
{
    struct replay_file f;
    bool good =
        archived_open(p, source, round, "leaves", &f) &&
        archive_leaves_read(out, n, f.path, f.map.data, f.map.size_bytes, &f.arena) == ERR_OK;
    replay_file_close(&f);
    return good;
}

/* Equal contributions, different states: the arithmetic differs. */
static void state_apart(struct replay *p, uint64_t round, struct replay_place *place)
{
    struct arena scratch = arena_make(0);
    size_t n = leaves_count(p->m, p->fragment), i = 0;
    struct leaf *list = arena_array(&scratch, n, sizeof *list);
    struct digest *x = arena_array(&scratch, n, sizeof *x),
                  *y = arena_array(&scratch, n, sizeof *y);
    if (list && x && y && leaves_of(p, 0, round, x, n) && leaves_of(p, 1, round, y, n)) {
        leaves_list(p->m, p->fragment, list);
        while (i < n && digest_equal(&x[i], &y[i]))
            i++;
        if (i < n)
            *place = replay_place_of(p, list[i].array, list[i].first, list[i].count);
    }
    arena_free(&scratch);
    err_clear();
}

static void apart_tell(struct replay *p, uint64_t round, struct replay_inputs *in)
{
    char text[REPLAY_TEXT_MAX], name[ARCHIVE_NAME_MAX];
    const char *site;
    struct replay_place place = {.known = false};
    bool known;
    (void)apart(p, round, &known);
    replay_manifests_compare(p, p->now, p->other, text, &site);
    snprintf(name, sizeof name, "%.63s", site);
    bool state_before = !digest_equal(&p->now->state_before, &p->other->state_before);
    if (state_before)
        snprintf(text, sizeof text, "%s",
                 round ? "the states before differ, and their round is on "
                         "record in one directory alone"
                       : "they start from other parameters");
    else if (*name)
        contribution_apart(p, round, name, in, &place);
    else
        state_apart(p, round, &place);
    replay_found_at(
        p,
        &(struct replay_where){.kind = REPLAY_DIFFERS,
                               .what = *name && !state_before ? "contribution" : "state",
                               .round = round,
                               .site = name,
                               .place = &place},
        "%s and %s: %s", p->o->sources[0].path, p->o->sources[1].path, text);
}

static enum err bisect_two(struct replay *p, struct replay_inputs *in)
{
    for (p->fragment = 0; p->fragment < p->m->fragments->count; p->fragment++) {
        uint64_t end = replay_rounds(p);
        end = end < p->o->to ? end : p->o->to;
        uint64_t first = first_apart(p, end);
        p->r->rounds += end;
        if (first < end)
            apart_tell(p, first, in);
    }
    p->r->whole = true;
    return ERR_OK;
}

/* Rounds with a kept state, ascending. */
static enum err kept_list(const struct replay *p, uint64_t end, uint64_t **rounds, size_t *count,
                          struct arena *a)
{
    *count = 0;
    TRY_ALLOC(*rounds = arena_array(a, end + 1, sizeof **rounds));
    for (uint64_t t = 1; t <= end; t++) {
        struct replay_file f = {0};
        if (replay_file_find(p, &f, "state", t, t))
            (*rounds)[(*count)++] = t;
    }
    return ERR_OK;
}

/* Is a kept state of this number the one that the manifest before it names? */
static bool kept_good(struct replay *p, uint64_t round)
{
    struct replay_file f = {0};
    bool good = false;
    while (!good && replay_file_state(p, &f, round))
        good = f.state.intact && manifest_of(p, 0, round - 1, p->now) &&
               digest_equal(&f.state.digest, &p->now->state_after);
    replay_file_close(&f);
    return good;
}

static enum err bisect_kept(struct replay *p, struct replay_inputs *in, struct arena *a)
{
    struct replay_options window = *p->o;
    const struct replay_options *o = p->o;
    uint64_t end = replay_rounds(p), *kept;
    size_t count;
    bool whole;
    TRY(kept_list(p, end, &kept, &count, a));
    size_t first = 0; /* one damaged state says nothing of the next one: all are read */
    p->quiet = true;
    while (first < count && kept_good(p, kept[first]))
        first++;
    p->quiet = false;
    if (first == count)
        return ERR_OK;
    window.from = first ? kept[first - 1] : 0;
    window.to = kept[first];
    p->o = &window;
    enum err e = replay_fragment(p, in, &whole);
    p->o = o;
    return e;
}

static enum err bisect_one(struct replay *p, struct replay_inputs *in)
{
    for (p->fragment = 0; p->fragment < p->m->fragments->count; p->fragment++) {
        struct arena scratch = arena_make(0);
        enum err e = bisect_kept(p, in, &scratch);
        arena_free(&scratch);
        TRY(e);
    }
    p->r->whole = true;
    return ERR_OK;
}

static enum err bisect(struct replay *p, struct replay_inputs *in)
{
    if (p->o->count > 1)
        return bisect_two(p, in);
    return bisect_one(p, in);
}

enum err replay_bisect(struct outer_state *m, const struct replay_options *o,
                       struct replay_result *r)
{
    return replay_with(m, o, r, bisect);
}
