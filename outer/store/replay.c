#include "outer/store/replay.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "outer/store/aggregate.h"

enum { TEXT_MAX = 512, STATE_BYTES_EACH = 4 * sizeof(float) + sizeof(double) + 1 };

struct replay {
    struct outer_state *m;
    const struct replay_options *o;
    struct replay_result *r;
    unsigned fragment;
    bool residual_unknown; /* the aggregator's, of a compressed downlink */
    bool quiet;            /* nothing is told */
    struct manifest *now, *other;
};

/* ---- findings ---- */

struct where { /* of a finding */
    enum replay_kind kind;
    const char *what, *site, *file;
    uint64_t round, last;
    const struct replay_place *place;
};

static void found(struct replay *p, const struct where *w, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void found(struct replay *p, const struct where *w, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;
    if (p->quiet)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
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

/* ---- places ---- */

/* Of the value in the fragment: its place in the slab. */
static size_t slab_of(const struct fragment *f, size_t at)
{
    for (size_t i = 0; i < f->range_count; at -= f->ranges[i++].count)
        if (at < f->ranges[i].count)
            return f->ranges[i].offset + at;
    return 0;
}

static struct replay_place place_of(const struct replay *p, enum leaves_array array, size_t first,
                                    size_t count)
{
    const struct table *t = p->o->table;
    const struct fragment *f = &p->m->fragments->f[p->fragment];
    size_t each = array == LEAVES_CODES ? DEV_BLOCK : 1, slab = slab_of(f, first * each);
    struct replay_place place = {
        .known = true, .array = array, .first = first, .last = first + count};
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
                *place = place_of(p, (enum leaves_array)a, i, 1);
        }
    }
    return *values > 0;
}

/* ---- files ---- */

static void frag_path(char out[ARCHIVE_PATH_MAX], const char *frag, unsigned fragment,
                      uint64_t round, const char *file)
{
    archive_path(out, frag, fragment, round, file);
}

/* False: it is not there. ERR_CORRUPT and the like: it is, and cannot be read. */
static bool file_open(const char *path, struct file_map *map, enum err *e)
{
    *e = ERR_OK;
    *map = (struct file_map){0};
    if (!file_exists(path))
        return false;
    *e = file_map_checked(map, path);
    return true;
}

/* Where the file of a round may lie in a directory: the archive, and what the replica keeps. kind
 * 0, 1; false: there is no such place. */
static bool place_path(const struct replay *p, size_t source, unsigned kind, uint64_t round,
                       uint64_t kept_round, const char *file, char out[ARCHIVE_PATH_MAX])
{
    const struct replay_source *s = &p->o->sources[source];
    if (kind == 0 && s->archive)
        archive_path(out, s->archive, p->fragment, round, file);
    else if (kind == 1 && s->frag)
        frag_path(out, s->frag, p->fragment, kept_round, file);
    else
        return false;
    return true;
}

/* Rounds on record in DIR/F: one behind the newest with a manifest. */
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

static uint64_t rounds_of(const struct replay *p)
{
    uint64_t rounds = 0;
    for (size_t i = 0; i < p->o->count; i++) {
        const struct replay_source *s = &p->o->sources[i];
        uint64_t archived = s->archive ? rounds_in(s->archive, p->fragment, true) : 0;
        uint64_t kept = s->frag ? rounds_in(s->frag, p->fragment, false) : 0;
        rounds = archived > rounds ? archived : rounds;
        rounds = kept > rounds ? kept : rounds;
    }
    return rounds;
}

/* ---- manifests ---- */

/* *there false: no such file. An error: damaged, and found. */
static enum err manifest_at(struct replay *p, const char *path, uint64_t round,
                            struct manifest *out, bool *there)
{
    struct arena scratch = arena_make(0);
    struct file_map map;
    enum err e;
    *there = file_open(path, &map, &e);
    if (*there && e == ERR_OK)
        e = archive_manifest_read(out, path, map.data, map.size_bytes, &scratch);
    if (*there && e == ERR_OK && (out->fragment != p->fragment || out->round != round))
        e = err_set(ERR_CORRUPT, "it is of fragment %u, round %" PRIu64, out->fragment, out->round);
    file_unmap(&map);
    arena_free(&scratch);
    if (e != ERR_OK)
        found(p,
              &(struct where){
                  .kind = REPLAY_DAMAGED, .what = "manifest", .round = round, .file = path},
              "%s", err_message());
    err_clear();
    return e;
}

/* What two manifests of one round do not share, in words. */
static void manifests_compare(const struct replay *p, const struct manifest *x,
                              const struct manifest *y, char out[TEXT_MAX], const char **site)
{
    *site = "";
    for (uint32_t i = 0; i < x->site_count && i < y->site_count; i++) {
        const struct manifest_entry *a = &x->sites[i], *b = &y->sites[i];
        if (a->site == b->site && a->included == b->included &&
            digest_equal(&a->payload, &b->payload))
            continue;
        *site = manifest_name(x, p->o->sites, a->site);
        snprintf(out, TEXT_MAX,
                 a->included != b->included ? "site %s is included in one of them"
                                            : "they name another contribution of site %s",
                 *site);
        return;
    }
    bool same_state = digest_equal(&x->state_after, &y->state_after);
    snprintf(out, TEXT_MAX, "%s",
             !digest_equal(&x->parent, &y->parent)   ? "they name other parents"
             : !digest_equal(&x->config, &y->config) ? "other settings"
             : !same_state                           ? "another state after the same contributions"
                                                     : "another weight, norm, cursor or act");
}

/* The manifest of a round, of the directories that have it: one that follows the chain first. */
static bool manifest_take(struct replay *p, uint64_t round)
{
    const struct digest chain = p->m->state[p->fragment].manifest;
    bool any = false;
    char first[ARCHIVE_PATH_MAX] = "";
    for (size_t i = 0; i < p->o->count; i++)
        for (unsigned kind = 0; kind < 2; kind++) {
            char path[ARCHIVE_PATH_MAX], text[TEXT_MAX];
            const char *site;
            bool there;
            if (!place_path(p, i, kind, round, round + 1, "MANIFEST", path) ||
                manifest_at(p, path, round, p->other, &there) != ERR_OK || !there)
                continue;
            struct digest x = manifest_digest(p->now), y = manifest_digest(p->other);
            if (any && digest_equal(&x, &y))
                continue;
            if (any) {
                manifests_compare(p, p->now, p->other, text, &site);
                found(p,
                      &(struct where){.kind = REPLAY_DIFFERS,
                                      .what = "manifest",
                                      .round = round,
                                      .site = site,
                                      .file = path},
                      "not the manifest of %s: %s", first, text);
            }
            if (!any || (!digest_equal(&p->now->parent, &chain) &&
                         digest_equal(&p->other->parent, &chain))) {
                memcpy(p->now, p->other, sizeof *p->now);
                snprintf(first, sizeof first, "%s", path);
            }
            any = true;
        }
    if (!any)
        found(p, &(struct where){.kind = REPLAY_MISSING, .what = "manifest", .round = round}, "%s",
              "in none of the directories");
    return any;
}

/* ---- kept states ---- */

/* The state of a file. False: not there, or damaged, which is found; `map` is the caller's to
 * unmap. */
static bool state_open(struct replay *p, const char *path, uint64_t round, struct file_map *map,
                       struct outer_state_file *f, struct arena *a)
{
    enum err e;
    if (!file_open(path, map, &e))
        return false;
    if (e == ERR_OK)
        e = outer_state_file_open(f, p->m, p->fragment, path, map->data, map->size_bytes, a);
    if (e == ERR_OK && f->round != round)
        e = err_set(ERR_CORRUPT, "it is state %" PRIu64, f->round);
    if (e != ERR_OK)
        found(
            p,
            &(struct where){.kind = REPLAY_DAMAGED, .what = "state", .round = round, .file = path},
            "%s", err_message());
    err_clear();
    return e == ERR_OK;
}

/* Every kept state of this number beside the present one, which was made again. */
static void states_compare(struct replay *p)
{
    const struct outer_state_fragment *s = &p->m->state[p->fragment];
    for (size_t i = 0; i < p->o->count; i++)
        for (unsigned kind = 0; kind < 2; kind++) {
            char path[ARCHIVE_PATH_MAX];
            struct arena scratch = arena_make(0);
            struct file_map map = {0};
            struct outer_state_file f;
            struct replay_place place = {.known = false};
            size_t values = 0;
            if (place_path(p, i, kind, s->round, s->round, "state", path) &&
                state_open(p, path, s->round, &map, &f, &scratch)) {
                p->r->states++;
                if (bytes_differ(p, s, f.shared, &place, &values))
                    found(p,
                          &(struct where){.kind = f.intact ? REPLAY_DIFFERS : REPLAY_DAMAGED,
                                          .what = "state",
                                          .round = s->round,
                                          .file = path,
                                          .place = &place},
                          "%zu value%s not what the rounds give", values,
                          values == 1 ? " is" : "s are");
                else if (!f.intact)
                    found(p,
                          &(struct where){.kind = REPLAY_DAMAGED,
                                          .what = "state",
                                          .round = s->round,
                                          .file = path},
                          "%s", "its values are right, the digest in its head is not");
                if (!f.own_intact)
                    found(p,
                          &(struct where){.kind = REPLAY_DAMAGED,
                                          .what = "state",
                                          .round = s->round,
                                          .file = path},
                          "%s", "the replica's own residual is not what its digest says");
            }
            file_unmap(&map);
            arena_free(&scratch);
        }
}

/* The present state becomes state `round`, of any directory that has it whole. */
static bool state_take(struct replay *p, uint64_t round)
{
    bool taken = false;
    for (size_t i = 0; i < p->o->count && !taken; i++)
        for (unsigned kind = 0; kind < 2 && !taken; kind++) {
            char path[ARCHIVE_PATH_MAX];
            struct arena scratch = arena_make(0);
            struct file_map map = {0};
            struct outer_state_file f;
            if (place_path(p, i, kind, round, round, "state", path) &&
                state_open(p, path, round, &map, &f, &scratch) && f.intact) {
                outer_state_file_take(p->m, p->fragment, &f);
                p->residual_unknown = p->m->o.compresses_downlink && !f.own;
                taken = true;
            }
            file_unmap(&map);
            arena_free(&scratch);
        }
    return taken;
}

/* The first kept state from `round` on; false: none up to `end`. */
static bool state_next(struct replay *p, uint64_t round, uint64_t end)
{
    for (uint64_t t = round; t <= end; t++)
        if (state_take(p, t))
            return true;
    return false;
}

/* The newest kept state up to `round`, or the start of the run. False: there is none. */
static bool start_take(struct replay *p, uint64_t round)
{
    for (uint64_t t = round; t > 0; t--)
        if (state_take(p, t))
            return true;
    return p->o->placed || state_take(p, 0);
}

/* ---- contributions ---- */

struct inputs { /* of a round */
    struct file_map map[ROUND_SITES_MAX];
    struct codec_payload payload[ROUND_SITES_MAX];
    unsigned count, missing, damaged;
    char site[ARCHIVE_NAME_MAX], file[ARCHIVE_PATH_MAX]; /* the first damaged one */
    char absent[TEXT_MAX];                               /* names of those that are missing */
};

static void inputs_close(struct inputs *in)
{
    for (unsigned i = 0; i < in->count; i++)
        file_unmap(&in->map[i]);
    in->count = 0;
}

/* The first value that two contributions of a site do not share, on the present grid. */
static bool payloads_differ(struct replay *p, enum codec_kind kind, const struct codec_payload *x,
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
        *place = place_of(p, LEAVES_THETA, i, 1);
    arena_free(&scratch);
    err_clear();
    return good;
}

/* The contribution of a site, intact in any directory; else damaged, which is kept for a look. */
static void input_take(struct replay *p, const struct manifest_entry *e, const char *site,
                       struct inputs *in)
{
    struct file_map *best = &in->map[in->count], bad = {0};
    char bad_file[ARCHIVE_PATH_MAX] = "";
    bool intact = false;
    for (size_t i = 0; i < p->o->count && !intact; i++) {
        char path[ARCHIVE_PATH_MAX], name[ARCHIVE_NAME_MAX + 16];
        struct file_map map;
        enum err read;
        archive_payload_name(name, site);
        if (!place_path(p, i, 0, p->now->round, 0, name, path) || !file_open(path, &map, &read))
            continue;
        struct digest d = digest_of(map.data, map.size_bytes);
        intact =
            read == ERR_OK && map.size_bytes == e->payload_bytes && digest_equal(&d, &e->payload);
        p->r->bytes += map.size_bytes;
        if (intact) {
            *best = map;
        } else if (!*bad_file) {
            bad = map;
            snprintf(bad_file, sizeof bad_file, "%s", path);
        } else {
            file_unmap(&map);
        }
    }
    err_clear();
    if (intact && *bad_file) {
        struct replay_place place = {.known = false};
        payloads_differ(p, (enum codec_kind)p->now->codec,
                        &(struct codec_payload){best->data, best->size_bytes},
                        &(struct codec_payload){bad.data, bad.size_bytes}, &place);
        found(p,
              &(struct where){.kind = REPLAY_DAMAGED,
                              .what = "contribution",
                              .site = site,
                              .file = bad_file,
                              .round = p->now->round,
                              .place = &place},
              "%s", "not the bytes that the manifest names; another directory has these");
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

static void inputs_open(struct replay *p, struct inputs *in)
{
    in->count = in->missing = in->damaged = 0;
    *in->absent = 0;
    for (uint32_t i = 0; i < p->now->site_count; i++)
        if (p->now->sites[i].included)
            input_take(p, &p->now->sites[i],
                       manifest_name(p->now, p->o->sites, p->now->sites[i].site), in);
}

/* The aggregate that a directory has kept: mapped, intact. */
static bool aggregate_find(struct replay *p, struct file_map *map)
{
    for (size_t i = 0; i < p->o->count; i++)
        for (unsigned kind = 0; kind < 2; kind++) {
            char path[ARCHIVE_PATH_MAX];
            enum err e;
            if (!place_path(p, i, kind, p->now->round, p->now->round + 1, "aggregate", path) ||
                !file_open(path, map, &e))
                continue;
            struct digest d = digest_of(map->data, map->size_bytes);
            if (e == ERR_OK && map->size_bytes == p->now->aggregate_bytes &&
                digest_equal(&d, &p->now->aggregate)) {
                p->r->bytes += map->size_bytes;
                return true;
            }
            file_unmap(map);
            found(p,
                  &(struct where){.kind = REPLAY_DAMAGED,
                                  .what = "aggregate",
                                  .round = p->now->round,
                                  .file = path},
                  "%s", "not the bytes that the manifest names");
        }
    err_clear();
    return false;
}

/* ---- where a made state differs ---- */

static bool leaves_look(struct replay *p, const struct outer_state_fragment *made, const char *path,
                        struct replay_place *place, size_t *count, struct arena *scratch)
{
    size_t n = leaves_count(p->m, p->fragment);
    struct leaf *list = arena_array(scratch, n, sizeof *list);
    struct digest *ours = arena_array(scratch, n, sizeof *ours),
                  *theirs = arena_array(scratch, n, sizeof *theirs);
    struct file_map map = {0};
    enum err e = ERR_OK;
    bool read = list && ours && theirs && file_open(path, &map, &e) && e == ERR_OK &&
                archive_leaves_read(theirs, n, path, map.data, map.size_bytes, scratch) == ERR_OK &&
                leaves_digests(p->m, p->fragment, made, ours, scratch) == ERR_OK;
    file_unmap(&map);
    err_clear();
    *count = 0;
    if (!read)
        return false;
    leaves_list(p->m, p->fragment, list);
    for (size_t i = 0; i < n; i++)
        if (!digest_equal(&ours[i], &theirs[i]) && !(*count)++)
            *place = place_of(p, list[i].array, list[i].first, list[i].count);
    return true;
}

/* `next` of the replica beside the leaves that an archive has of that state. False: none has. */
static bool leaves_compare(struct replay *p, struct replay_place *place, size_t *count)
{
    for (size_t i = 0; i < p->o->count; i++) {
        char path[ARCHIVE_PATH_MAX];
        struct arena scratch = arena_make(0);
        bool read = place_path(p, i, 0, p->now->round, 0, "leaves", path) &&
                    leaves_look(p, &p->m->next, path, place, count, &scratch);
        arena_free(&scratch);
        if (read && *count)
            return true;
    }
    return false;
}

/* ---- a round ---- */

/* The state that a damaged contribution gives differs from the recorded one in some leaves: these
 * are where its wrong values are. */
static void damage_tell(struct replay *p, const struct inputs *in)
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
        e = outer_state_apply(m, p->fragment, p->other, true, made.data, made.size_bytes);
    bool placed = e == ERR_OK && leaves_compare(p, &place, &leaves);
    const struct where w = {.kind = REPLAY_DAMAGED,
                            .what = "contribution",
                            .site = in->site,
                            .file = in->file,
                            .round = p->now->round,
                            .place = &place};
    if (placed)
        found(p, &w, "not the bytes that the manifest names; %zu lea%s of the state would differ",
              leaves, leaves == 1 ? "f" : "ves");
    else
        found(p, &w, "not the bytes that the manifest names%s",
              e == ERR_OK ? "" : ", and nothing that decodes");
    err_clear();
    arena_free(&scratch);
}

static void state_differs(struct replay *p, const char *what)
{
    struct replay_place place = {.known = false};
    size_t leaves = 0;
    bool placed = leaves_compare(p, &place, &leaves);
    found(p,
          &(struct where){
              .kind = REPLAY_DIFFERS, .what = "state", .round = p->now->round, .place = &place},
          placed ? "%s; %zu leaves differ" : "%s; no archive has its leaves", what, leaves);
}

static enum err apply(struct replay *p, const uint8_t *data, size_t size)
{
    enum err e = outer_state_apply(p->m, p->fragment, p->now, false, data, size);
    if (e == ERR_DISAGREE && p->m->next.round == p->now->round + 1)
        state_differs(p, err_message());
    else if (e == ERR_DISAGREE || e == ERR_PROTO || e == ERR_DIVERGED)
        found(p, &(struct where){.kind = REPLAY_DIFFERS, .what = "state", .round = p->now->round},
              "%s", err_message());
    return e;
}

/* From the kept aggregate. ERR_INPUT: there is none. */
static enum err round_by_aggregate(struct replay *p)
{
    struct file_map map;
    if (!aggregate_find(p, &map))
        return ERR_INPUT;
    downlink_keep(p->m, p->fragment);
    enum err e = apply(p, map.data, map.size_bytes);
    if (schedule_compresses_downlink(&p->m->schedule, (enum codec_kind)p->now->codec,
                                     manifest_included(p->now)))
        p->residual_unknown = p->m->o.compresses_downlink;
    file_unmap(&map);
    p->r->by_aggregate += e == ERR_OK;
    return e;
}

static enum err round_by_inputs(struct replay *p, const struct inputs *in)
{
    struct arena scratch = arena_make(0);
    struct aggregate_bytes made;
    enum err e = aggregate_make(p->m, p->fragment, &(struct downlink_input){in->payload, in->count},
                                &made, &scratch);
    struct digest d = e == ERR_OK ? digest_of(made.data, made.size_bytes) : (struct digest){0};
    bool same = e == ERR_OK && digest_equal(&d, &p->now->aggregate);
    if (same)
        e = apply(p, made.data, made.size_bytes);
    p->r->made += same && e == ERR_OK;
    arena_free(&scratch);
    if (same || e != ERR_OK)
        return e;
    found(p, &(struct where){.kind = REPLAY_DIFFERS, .what = "aggregate", .round = p->now->round},
          "%s", "the contributions add up to other bytes than the manifest names");
    return round_by_aggregate(p);
}

/* The bytes of the state that an operator has gone back to: a kept state. */
static enum err round_rolled_back(struct replay *p)
{
    uint64_t round = p->now->round + 1;
    enum err e = ERR_INPUT;
    for (size_t i = 0; i < p->o->count && e != ERR_OK; i++)
        for (unsigned kind = 0; kind < 2 && e != ERR_OK; kind++) {
            char path[ARCHIVE_PATH_MAX];
            struct arena scratch = arena_make(0);
            struct file_map map = {0};
            struct outer_state_file f;
            if (place_path(p, i, kind, round, round, "state", path) &&
                state_open(p, path, round, &map, &f, &scratch))
                e = outer_state_rolled_back(p->m, p->fragment, p->now, f.shared, f.shared_bytes);
            file_unmap(&map);
            arena_free(&scratch);
        }
    err_clear();
    if (e == ERR_OK)
        outer_state_give_up(p->m, p->fragment);
    else
        found(p, &(struct where){.kind = REPLAY_MISSING, .what = "state", .round = p->now->round},
              "an operator went back to state %" PRIu64 ", and no directory has state %" PRIu64
              ", whose bytes it has",
              p->now->rolled_to, round);
    p->r->made += e == ERR_OK;
    return e == ERR_OK ? e : ERR_INPUT;
}

static enum err round_aborted(struct replay *p)
{
    enum err e = outer_state_abort(p->m, p->fragment, p->now, false);
    downlink_keep(p->m, p->fragment);
    if (e == ERR_DISAGREE)
        state_differs(p, err_message());
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

static void absent_tell(struct replay *p, const struct inputs *in, bool aggregate)
{
    found(p,
          &(struct where){.kind = REPLAY_MISSING,
                          .what = "contribution",
                          .round = p->now->round,
                          .site = in->absent},
          "in none of the directories%s",
          aggregate ? "; the round was made from the kept sum" : ", and neither is the sum");
}

static enum err round_included(struct replay *p, struct inputs *in)
{
    bool compressed = schedule_compresses_downlink(&p->m->schedule, (enum codec_kind)p->now->codec,
                                                   manifest_included(p->now));
    if (masked(p)) {
        enum err e = round_by_aggregate(p);
        if (e == ERR_INPUT)
            found(p,
                  &(struct where){
                      .kind = REPLAY_MISSING, .what = "aggregate", .round = p->now->round},
                  "%s", "masked contributions cannot be added again without their sum");
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
        found(p, &(struct where){.kind = REPLAY_MISSING, .what = "state", .round = p->now->round},
              "%s",
              "the aggregator compressed the sum with a residual, which no kept state before this "
              "round has");
    return e;
}

/* What the manifest says of its inputs, before anything is made. */
static void manifest_look(struct replay *p)
{
    struct outer_state_fragment *s = &p->m->state[p->fragment];
    for (size_t i = 0; i < p->o->count; i++) {
        const struct replay_source *from = &p->o->sources[i];
        if (!from->archive || digest_equal(&from->head.config, &p->now->config))
            continue;
        found(p,
              &(struct where){.kind = REPLAY_DIFFERS,
                              .what = "manifest",
                              .round = p->now->round,
                              .file = from->archive},
              "%s", "the manifest names other settings than this archive's");
        break;
    }
    if (outer_state_amend(p->m, &p->now->amendments) != ERR_OK) {
        found(p,
              &(struct where){.kind = REPLAY_DIFFERS, .what = "manifest", .round = p->now->round},
              "its amendments: %s", err_message());
        err_clear();
    }
    if (digest_equal(&p->now->parent, &s->manifest))
        return;
    found(p,
          &(struct where){.kind = REPLAY_DIFFERS,
                          .what = "manifest",
                          .round = p->now->round ? p->now->round - 1 : 0},
          "it is not the one that round %" PRIu64 " names as its parent", p->now->round);
    s->manifest = p->now->parent;
}

/* One state further. Any error: it stays, and what is wrong has been told. ERR_MEMORY and the like
 * end the replay. */
static enum err round_again(struct replay *p, uint64_t round, struct inputs *in)
{
    if (!manifest_take(p, round))
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
        found(p,
              &(struct where){
                  .kind = REPLAY_MISSING, .what = "rounds", .round = from, .last = to - 1},
              "not made again: %s", "what they begin at is missing");
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

static enum err fragment_run(struct replay *p, struct inputs *in, bool *whole)
{
    const struct outer_state_fragment *s = &p->m->state[p->fragment];
    uint64_t rounds = rounds_of(p), end = rounds < p->o->to ? rounds : p->o->to;
    p->residual_unknown = false;
    *whole = end == rounds && fragment_served(p);
    if (p->o->from >= end && p->o->from)
        return ERR_OK;
    p->r->rounds += end - p->o->from;
    if (!start_take(p, p->o->from)) {
        found(p, &(struct where){.kind = REPLAY_MISSING, .what = "state", .round = 0}, "%s",
              "the run did not start from run.seed, and no directory has state 0");
        *whole = false;
        if (!state_next(p, 1, end)) {
            unmade_tell(p, 0, end);
            return ERR_OK;
        }
        unmade_tell(p, 0, s->round);
    }
    uint64_t counted[2] = {p->r->made, p->r->by_aggregate}, begun = s->round;
    states_compare(p);
    while (s->round < end) {
        uint64_t round = s->round;
        enum err e = round_again(p, round, in);
        if (final_error(e))
            return e;
        if (e == ERR_OK && s->round == p->o->from && begun < p->o->from) {
            p->r->made = counted[0]; /* only to get there */
            p->r->by_aggregate = counted[1];
        }
        if (e == ERR_OK) {
            states_compare(p);
            continue;
        }
        *whole = false;
        if (!state_next(p, round + 1, end)) {
            unmade_tell(p, round + 1, end);
            return ERR_OK;
        }
        unmade_tell(p, round + 1, s->round);
    }
    return ERR_OK;
}

static enum err replay_all(struct replay *p, struct inputs *in)
{
    p->r->whole = true;
    for (p->fragment = 0; p->fragment < p->m->fragments->count; p->fragment++) {
        bool whole;
        TRY(fragment_run(p, in, &whole));
        p->r->whole &= whole;
    }
    if (p->r->whole)
        p->r->outer = outer_state_digest(p->m, false);
    return ERR_OK;
}

/* What replay_run and replay_bisect work with. */
static enum err replay_with(struct outer_state *m, const struct replay_options *o,
                            struct replay_result *r,
                            enum err (*work)(struct replay *p, struct inputs *in))
{
    struct arena scratch = arena_make(0);
    struct replay p = {.m = m, .o = o, .r = r};
    struct inputs *in = arena_alloc(&scratch, sizeof *in);
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

/* ---- bisect ---- */

/* The manifest of a round in one directory, intact. */
static bool manifest_of(struct replay *p, size_t source, uint64_t round, struct manifest *out)
{
    p->r->looks++;
    for (unsigned kind = 0; kind < 2; kind++) {
        char path[ARCHIVE_PATH_MAX];
        bool there;
        if (place_path(p, source, kind, round, round + 1, "MANIFEST", path) &&
            manifest_at(p, path, round, out, &there) == ERR_OK && there)
            return true;
    }
    return false;
}

/* Do the two directories have different states behind the round? *known false: a manifest is
 * missing. */
static bool apart(struct replay *p, uint64_t round, bool *known)
{
    *known = manifest_of(p, 0, round, p->now) && manifest_of(p, 1, round, p->other);
    return *known && !digest_equal(&p->now->state_after, &p->other->state_after);
}

/* The first round that is apart, of [0, end); end: none. A state follows from the one before, so
 * all rounds behind it are apart, too. */
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
static bool state_reach(struct replay *p, uint64_t round, struct inputs *in)
{
    p->quiet = true;
    bool good = start_take(p, round);
    while (good && p->m->state[p->fragment].round < round)
        good = round_again(p, p->m->state[p->fragment].round, in) == ERR_OK;
    p->quiet = false;
    return good;
}

static bool payload_of(struct replay *p, size_t source, uint64_t round, const char *site,
                       struct file_map *map)
{
    char path[ARCHIVE_PATH_MAX], name[ARCHIVE_NAME_MAX + 16];
    enum err e;
    archive_payload_name(name, site);
    return place_path(p, source, 0, round, 0, name, path) && file_open(path, map, &e) &&
           e == ERR_OK;
}

/* Two contributions of one site: the first value that they do not share. */
static void contribution_apart(struct replay *p, uint64_t round, const char *site,
                               struct inputs *in, struct replay_place *place)
{
    struct file_map x = {0}, y = {0};
    enum codec_kind codec = (enum codec_kind)p->now->codec;
    if (state_reach(p, round, in) && payload_of(p, 0, round, site, &x) &&
        payload_of(p, 1, round, site, &y))
        payloads_differ(p, codec, &(struct codec_payload){x.data, x.size_bytes},
                        &(struct codec_payload){y.data, y.size_bytes}, place);
    file_unmap(&x);
    file_unmap(&y);
    err_clear();
}

static bool leaves_of(struct replay *p, size_t source, uint64_t round, struct digest *out, size_t n,
                      struct arena *a)
{
    char path[ARCHIVE_PATH_MAX];
    struct file_map map;
    enum err e;
    bool good = place_path(p, source, 0, round, 0, "leaves", path) && file_open(path, &map, &e);
    if (!good)
        return false;
    good = e == ERR_OK && archive_leaves_read(out, n, path, map.data, map.size_bytes, a) == ERR_OK;
    file_unmap(&map);
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
    if (list && x && y && leaves_of(p, 0, round, x, n, &scratch) &&
        leaves_of(p, 1, round, y, n, &scratch)) {
        leaves_list(p->m, p->fragment, list);
        while (i < n && digest_equal(&x[i], &y[i]))
            i++;
        if (i < n)
            *place = place_of(p, list[i].array, list[i].first, list[i].count);
    }
    arena_free(&scratch);
    err_clear();
}

static void apart_tell(struct replay *p, uint64_t round, struct inputs *in)
{
    char text[TEXT_MAX], name[ARCHIVE_NAME_MAX];
    const char *site;
    struct replay_place place = {.known = false};
    bool known;
    (void)apart(p, round, &known);
    manifests_compare(p, p->now, p->other, text, &site);
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
    found(p,
          &(struct where){.kind = REPLAY_DIFFERS,
                          .what = *name && !state_before ? "contribution" : "state",
                          .round = round,
                          .site = name,
                          .place = &place},
          "%s and %s: %s", p->o->sources[0].path, p->o->sources[1].path, text);
}

static enum err bisect_two(struct replay *p, struct inputs *in)
{
    for (p->fragment = 0; p->fragment < p->m->fragments->count; p->fragment++) {
        uint64_t end = rounds_of(p);
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
    for (uint64_t t = 1; t <= end; t++)
        for (unsigned kind = 0; kind < 2; kind++) {
            char path[ARCHIVE_PATH_MAX];
            if (!place_path(p, 0, kind, t, t, "state", path) || !file_exists(path))
                continue;
            (*rounds)[(*count)++] = t;
            break;
        }
    return ERR_OK;
}

/* Is a kept state of this number the one that the manifest before it names? */
static bool kept_good(struct replay *p, uint64_t round)
{
    bool good = false;
    for (unsigned kind = 0; kind < 2 && !good; kind++) {
        char path[ARCHIVE_PATH_MAX];
        struct arena scratch = arena_make(0);
        struct file_map map = {0};
        struct outer_state_file f;
        good = place_path(p, 0, kind, round, round, "state", path) &&
               state_open(p, path, round, &map, &f, &scratch) && f.intact &&
               manifest_of(p, 0, round - 1, p->now) &&
               digest_equal(&f.digest, &p->now->state_after);
        file_unmap(&map);
        arena_free(&scratch);
    }
    return good;
}

static enum err bisect_kept(struct replay *p, struct inputs *in, struct arena *a)
{
    struct replay_options window = *p->o;
    const struct replay_options *o = p->o;
    uint64_t end = rounds_of(p), *kept;
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
    enum err e = fragment_run(p, in, &whole);
    p->o = o;
    return e;
}

static enum err bisect_one(struct replay *p, struct inputs *in)
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

static enum err bisect(struct replay *p, struct inputs *in)
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
