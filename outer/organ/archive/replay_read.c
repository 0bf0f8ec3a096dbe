/* SPDX-License-Identifier: Apache-2.0 */
/* What the archives of a run have: manifests and kept states, read and compared with each other. */
#include "outer/organ/archive/replay_own.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- findings ---- */

static void finding_tell(struct replay *p, const struct replay_where *w, const char *format,
                         va_list args)
{
    char text[REPLAY_TEXT_MAX];
    vsnprintf(text, sizeof text, format, args);
    unsigned *const counts[] = {[REPLAY_DAMAGED] = &p->r->damaged,
                                [REPLAY_DIFFERS] = &p->r->differs,
                                [REPLAY_MISSING] = &p->r->missing};
    ++*counts[w->kind];
    const struct replay_finding f = {.kind = w->kind,
                                     .what = w->what,
                                     .fragment = p->fragment,
                                     .round = w->round,
                                     .last = w->last > w->round ? w->last : w->round,
                                     .site = w->site ? w->site : "",
                                     .file = w->file ? w->file : "",
                                     .text = text,
                                     .place = w->place ? *w->place
                                                       : (struct replay_place){.known = false}};
    if (p->o->found)
        p->o->found(p->o->self, &f);
}

void replay_found_at(struct replay *p, const struct replay_where *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!p->quiet)
        finding_tell(p, w, format, args);
    va_end(args);
}

void replay_found(struct replay *p, enum replay_kind kind, const char *what, uint64_t round,
                  const char *file, const char *format, ...)
{
    const struct replay_where w = {.kind = kind, .what = what, .file = file, .round = round};
    va_list args;
    va_start(args, format);
    if (!p->quiet)
        finding_tell(p, &w, format, args);
    va_end(args);
}

/* ---- places ---- */

/* Of the value in the fragment: its place in the slab. */
static size_t slab_of(const struct fragment *f, size_t at)
{
    for (size_t i = 0; i < f->range_count; at -= f->ranges[i++].count)
        if (at < f->ranges[i].count)
            return f->ranges[i].offset + at;
    return 0;
}

struct replay_place replay_place_of(const struct replay *p, enum leaves_array array, size_t first,
                                    size_t count)
{
    const struct table *t = p->o->table;
    const struct fragment *f = &p->m->fragments->f[p->fragment];
    size_t each = array == LEAVES_CODES ? DEV_BLOCK : 1, slab = slab_of(f, first * each);
    struct replay_place place = {.known = true,
                                 .array = leaves_array_name(p->m, array),
                                 .first = first,
                                 .last = first + count};
    for (size_t i = 0; t && i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        if (slab < x->offset || slab >= x->offset + table_span(t, i))
            continue;
        size_t in = slab - x->offset, left = x->count > in ? x->count - in : 1;
        snprintf(place.tensor, sizeof place.tensor, "%s", x->name);
        place.first = in;
        place.last = in + (count * each < left ? count * each : left);
        break;
    }
    return place;
}

/* The first value in which a state's bytes differ from the replica's arrays. *values: how many do.
 */
static bool bytes_differ(const struct replay *p, const struct outer_state_fragment *s,
                         const uint8_t *bytes, struct replay_place *place, size_t *values)
{
    size_t elements = p->m->fragments->f[p->fragment].elements;
    *values = 0;
    for (unsigned a = 0; a < LEAVES_ARRAYS; a++) {
        size_t before, each;
        const uint8_t *ours = leaves_bytes(s, (enum leaves_array)a, elements, &before, &each);
        size_t n = a == LEAVES_CODES ? elements / DEV_BLOCK : elements;
        for (size_t i = 0; ours && i < n; i++) {
            if (memcmp(ours + i * each, bytes + before + i * each, each) == 0)
                continue;
            if (!(*values)++)
                *place = replay_place_of(p, (enum leaves_array)a, i, 1);
        }
    }
    return *values > 0;
}

/* ---- files ---- */

struct replay_file replay_file_of(size_t source)
{
    return (struct replay_file){.at = 2 * source, .end = 2 * source + 2};
}

void replay_file_close(struct replay_file *f)
{
    file_unmap(&f->map);
    arena_free(&f->arena);
    f->arena = arena_make(0);
}

bool replay_file_find(const struct replay *p, struct replay_file *f, const char *name,
                      uint64_t round, uint64_t kept_round)
{
    size_t end = f->end ? f->end : 2 * p->o->count;
    replay_file_close(f);
    while (f->at < end) {
        bool kept = f->at % 2;
        const struct replay_source *s = &p->o->sources[f->at++ / 2];
        const char *directory = kept ? s->frag : s->archive;
        if (!directory || (kept && kept_round == REPLAY_ARCHIVED))
            continue;
        archive_path(f->path, directory, p->fragment, kept ? kept_round : round, name);
        if (file_exists(f->path))
            return true;
    }
    return false;
}

bool replay_file_next(const struct replay *p, struct replay_file *f, const char *name,
                      uint64_t round, uint64_t kept_round)
{
    if (!replay_file_find(p, f, name, round, kept_round))
        return false;
    f->e = file_map_checked(&f->map, f->path);
    return true;
}

bool replay_file_is(const struct replay_file *f, const struct digest *d, uint64_t size_bytes)
{
    struct digest got = digest_of(f->map.data, f->map.size_bytes);
    return f->e == ERR_OK && f->map.size_bytes == size_bytes && digest_equal(&got, d);
}

/* Rounds on record in DIR/F: one after the newest with a manifest. */
static uint64_t rounds_in(const char *dir, unsigned fragment, bool archive)
{
    struct arena scratch = arena_make(0);
    char path[ARCHIVE_PATH_MAX], **names = NULL;
    size_t count = 0;
    uint64_t rounds = 0;
    snprintf(path, sizeof path, "%.400s/%u", dir, fragment);
    if (!file_exists(path) || file_list(path, &scratch, &names, &count) != ERR_OK)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t at;
        char rest;
        if (sscanf(names[i], "%20" SCNu64 "%c", &at, &rest) != 1)
            continue;
        archive_path(path, dir, fragment, at, "MANIFEST");
        uint64_t there = archive ? at + 1 : at;
        if (file_exists(path) && there > rounds)
            rounds = there;
    }
    arena_free(&scratch);
    err_clear();
    return rounds;
}

bool replay_rounds_of(const struct replay *p, size_t source, uint64_t *archived, uint64_t *kept)
{
    const struct replay_source *s = &p->o->sources[source];
    *archived = s->archive ? rounds_in(s->archive, p->fragment, true) : 0;
    *kept = s->frag ? rounds_in(s->frag, p->fragment, false) : 0;
    return s->archive && s->frag;
}

uint64_t replay_rounds(const struct replay *p)
{
    uint64_t rounds = 0;
    for (size_t i = 0; i < p->o->count; i++) {
        uint64_t archived, kept;
        (void)replay_rounds_of(p, i, &archived, &kept);
        rounds = archived > rounds ? archived : rounds;
        rounds = kept > rounds ? kept : rounds;
    }
    return rounds;
}

/* ---- manifests ---- */

bool replay_file_manifest(struct replay *p, struct replay_file *f, uint64_t round,
                          struct manifest *out)
{
    while (replay_file_next(p, f, "MANIFEST", round, round + 1)) {
        enum err e = f->e;
        if (e == ERR_OK)
            e = archive_manifest_read(out, f->path, f->map.data, f->map.size_bytes, &f->arena);
        if (e == ERR_OK && (out->fragment != p->fragment || out->round != round))
            e = err_set(ERR_CORRUPT, "it is of fragment %u, round %" PRIu64, out->fragment,
                        out->round);
        if (e == ERR_OK)
            return true;
        replay_found(p, REPLAY_DAMAGED, "manifest", round, f->path, "%s", err_message());
        err_clear();
    }
    return false;
}

void replay_manifests_compare(const struct replay *p, const struct manifest *x,
                              const struct manifest *y, char out[REPLAY_TEXT_MAX],
                              const char **site)
{
    *site = "";
    for (uint32_t i = 0; i < x->site_count && i < y->site_count; i++) {
        const struct manifest_entry *a = &x->sites[i], *b = &y->sites[i];
        if (a->site == b->site && a->included == b->included &&
            digest_equal(&a->payload, &b->payload))
            continue;
        *site = manifest_name(x, p->o->sites, a->site);
        snprintf(out, REPLAY_TEXT_MAX,
                 a->included != b->included ? "site %s is included in one of them"
                                            : "they name another contribution of site %s",
                 *site);
        return;
    }
    bool same_state = digest_equal(&x->state_after, &y->state_after);
    snprintf(out, REPLAY_TEXT_MAX, "%s",
             !digest_equal(&x->parent, &y->parent)   ? "they name other parents"
             : !digest_equal(&x->config, &y->config) ? "other settings"
             : !same_state                           ? "another state after the same contributions"
                                                     : "another weight, norm, cursor or act");
}

/* The file's, of p->other. */
static enum replay_signature signature_take(struct replay *p, uint64_t round, const char *path)
{
    if (!p->o->signature)
        return REPLAY_UNCHECKED;
    enum replay_signature is = p->o->signature(p->o->self, p->other);
    if (is == REPLAY_UNSIGNED)
        replay_found(p, REPLAY_DIFFERS, "manifest", round, path,
                     "not signed with a key that a site has accepted as the aggregator's; it is of "
                     "term %" PRIu64,
                     p->other->term);
    return is;
}

bool replay_manifest_take(struct replay *p, uint64_t round)
{
    const struct digest chain = p->m->state[p->fragment].manifest;
    bool any = false;
    enum replay_signature holds = REPLAY_UNCHECKED;
    char first[ARCHIVE_PATH_MAX] = "", text[REPLAY_TEXT_MAX];
    struct replay_file f = {0};
    while (replay_file_manifest(p, &f, round, p->other)) {
        enum replay_signature is = signature_take(p, round, f.path);
        struct digest x = manifest_digest(p->now), y = manifest_digest(p->other);
        if (any && digest_equal(&x, &y)) {
            holds = is == REPLAY_SIGNED ? is : holds; /* another file's: the same bytes */
            continue;
        }
        if (any) {
            struct replay_where w = {
                .kind = REPLAY_DIFFERS, .what = "manifest", .round = round, .file = f.path};
            replay_manifests_compare(p, p->now, p->other, text, &w.site);
            replay_found_at(p, &w, "not the manifest of %s: %s", first, text);
        }
        if (!any ||
            (!digest_equal(&p->now->parent, &chain) && digest_equal(&p->other->parent, &chain))) {
            memcpy(p->now, p->other, sizeof *p->now);
            holds = is;
            snprintf(first, sizeof first, "%s", f.path);
        }
        any = true;
    }
    if (!any)
        replay_found(p, REPLAY_MISSING, "manifest", round, NULL, "in none of the directories");
    p->r->signatures += holds == REPLAY_SIGNED;
    p->r->keys_unknown += holds == REPLAY_KEY_UNKNOWN;
    return any;
}

/* ---- kept states ---- */

bool replay_file_state(struct replay *p, struct replay_file *f, uint64_t round)
{
    while (replay_file_next(p, f, "state", round, round)) {
        enum err e = f->e;
        if (e == ERR_OK)
            e = outer_state_file_open(&f->state, p->m, p->fragment, f->path, f->map.data,
                                      f->map.size_bytes, &f->arena);
        if (e == ERR_OK && f->state.round != round)
            e = err_set(ERR_CORRUPT, "it is state %" PRIu64, f->state.round);
        if (e == ERR_OK)
            return true;
        replay_found(p, REPLAY_DAMAGED, "state", round, f->path, "%s", err_message());
        err_clear();
    }
    return false;
}

void replay_states_compare(struct replay *p)
{
    const struct outer_state_fragment *s = &p->m->state[p->fragment];
    struct replay_file f = {0};
    while (replay_file_state(p, &f, s->round)) {
        struct replay_place place = {.known = false};
        struct replay_where w = {.kind = f.state.intact ? REPLAY_DIFFERS : REPLAY_DAMAGED,
                                 .what = "state",
                                 .round = s->round,
                                 .file = f.path,
                                 .place = &place};
        size_t values = 0;
        p->r->states++;
        if (bytes_differ(p, s, f.state.shared, &place, &values))
            replay_found_at(p, &w, "%zu value%s not what the rounds give", values,
                            values == 1 ? " is" : "s are");
        else if (!f.state.intact)
            replay_found(p, REPLAY_DAMAGED, "state", s->round, f.path,
                         "its values are right, the digest in its head is not");
        if (!f.state.own_intact)
            replay_found(p, REPLAY_DAMAGED, "state", s->round, f.path,
                         "the replica's own residual is not what its digest says");
    }
}

/* The present state becomes state `round`, of any directory that has it whole. */
static bool state_take(struct replay *p, uint64_t round)
{
    struct replay_file f = {0};
    bool taken = false;
    while (!taken && replay_file_state(p, &f, round)) {
        taken = f.state.intact;
        if (taken) {
            outer_state_file_take(p->m, p->fragment, &f.state);
            p->residual_unknown = p->m->o.compresses_downlink && !f.state.own;
        }
    }
    replay_file_close(&f);
    return taken;
}

bool replay_state_next(struct replay *p, uint64_t round, uint64_t end)
{
    for (uint64_t t = round; t <= end; t++)
        if (state_take(p, t))
            return true;
    return false;
}

bool replay_start(struct replay *p, uint64_t round)
{
    for (uint64_t t = round; t > 0; t--)
        if (state_take(p, t))
            return true;
    return p->o->placed || state_take(p, 0);
}
