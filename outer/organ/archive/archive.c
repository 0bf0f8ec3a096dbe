/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/organ/archive/archive.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"

static const char head_file[] = "HEAD", settings_file[] = "config.yaml", gaps_file[] = "gaps";
enum { WHY_MAX = 256, GAPS_BYTES_MAX = 1 << 20, TEXT_MAX = 256 };

struct archive_gap { /* not on record yet; to < from: none */
    bool open;
    uint64_t from, to;
    char why[WHY_MAX];
};
struct archive {
    struct env *env, *owner;
    struct outer_state *m;
    char dir[ARCHIVE_PATH_MAX];
    struct archive_options o;
    uint64_t next[ROUND_FRAGMENTS_MAX]; /* the round that comes next */
    bool wants_state[ROUND_FRAGMENTS_MAX];
    struct archive_gap gap[ROUND_FRAGMENTS_MAX];
    uint64_t bytes;
};

/* ---- names and records ---- */

static void path_to(char out[ARCHIVE_PATH_MAX], const struct archive *a, const char *file)
{
    snprintf(out, ARCHIVE_PATH_MAX, "%.400s%s%.100s", a->dir, *a->dir ? "/" : "", file);
}

void archive_path(char out[ARCHIVE_PATH_MAX], const char *dir, unsigned fragment, uint64_t round,
                  const char *file)
{
    snprintf(out, ARCHIVE_PATH_MAX, "%.380s%s%u/%" PRIu64 "/%.90s", dir, *dir ? "/" : "", fragment,
             round, file);
}

void archive_payload_name(char out[ARCHIVE_NAME_MAX + 16], const char *site)
{
    snprintf(out, ARCHIVE_NAME_MAX + 16, "%.64s.payload", site);
}

static void head_fields(struct record_cursor *c, void *self)
{
    struct archive_head *h = self;
    record_text(c, &h->run, TEXT_MAX);
    record_text(c, &h->replica, TEXT_MAX);
    record_bool(c, &h->aggregator);
    record_u32(c, &h->index);
    record_u32(c, &h->aggregators);
    record_bool(c, &h->masked);
    record_digest(c, &h->config);
    record_u32(c, &h->end_count);
    for (uint32_t i = 0; i < h->end_count && i < SCHEDULE_ENDS_MAX; i++)
        record_u64(c, &h->ends[i]);
}

struct leaves_head {
    uint32_t fragment;
    uint64_t round;
};

static void leaves_fields(struct record_cursor *c, void *self)
{
    struct leaves_head *h = self;
    record_u32(c, &h->fragment);
    record_u64(c, &h->round);
}

static const struct record_form manifest_form = {.kind = "manifest"};

/* ---- writing ---- */

static enum err file_put(struct archive *a, const char *path, const struct record_form *f,
                         struct record_section *section)
{
    for (size_t i = 0; i < section->part_count; i++)
        a->bytes += section->parts[i].size_bytes;
    return store_write(a->env, path, f, section, 1);
}

static enum err manifest_put(struct archive *a, const struct manifest *m)
{
    char path[ARCHIVE_PATH_MAX];
    uint8_t bytes[MANIFEST_BYTES_MAX];
    struct file_part part = {bytes, manifest_encode(m, bytes)};
    struct record_section section = {.parts = &part, .part_count = 1};
    archive_path(path, a->dir, m->fragment, m->round, "MANIFEST");
    return file_put(a, path, &manifest_form, &section);
}

/* Of state t + 1, which is the current one. */
static enum err leaves_put(struct archive *a, unsigned fragment, uint64_t round)
{
    char path[ARCHIVE_PATH_MAX];
    struct arena scratch = arena_make(0);
    size_t n = leaves_count(a->m, fragment);
    struct digest *digests = arena_array(&scratch, n, sizeof *digests);
    struct leaves_head head = {fragment, round};
    struct record_form form = {"leaves", leaves_fields, &head};
    struct file_part part = {digests, n * sizeof *digests};
    struct record_section section = {.parts = &part, .part_count = 1};
    enum err e = digests ? leaves_digests(a->m, fragment, &a->m->state[fragment], digests, &scratch)
                         : ERR_MEMORY;
    archive_path(path, a->dir, fragment, round, "leaves");
    if (e == ERR_OK)
        e = file_put(a, path, &form, &section);
    arena_free(&scratch);
    return e;
}

static enum err state_put(struct archive *a, unsigned fragment)
{
    char path[ARCHIVE_PATH_MAX];
    archive_path(path, a->dir, fragment, a->m->state[fragment].round, "state");
    a->bytes += outer_state_snapshot_bytes(a->m, fragment);
    return outer_state_keep(a->m, fragment, a->env, path);
}

static enum err content_put(struct archive *a, const char *path, const struct file_part *part)
{
    a->bytes += part->size_bytes;
    return a->env->ops->write(a->env, path, part, 1);
}

/* The same file under another name: its bytes were durable before the site had a receipt. */
static enum err payload_move(struct archive *a, const struct archive_payload *p, const char *to)
{
    int handle;
    uint64_t have;
    TRY(a->env->ops->part_open(a->env, p->path, p->size_bytes, &handle, &have));
    if (have != p->size_bytes) {
        enum err e = a->env->ops->part_close(a->env, handle, p->path, NULL);
        return e == ERR_OK ? err_set(ERR_CORRUPT, "%s: another size", p->path) : e;
    }
    a->bytes += p->size_bytes;
    return a->env->ops->part_close(a->env, handle, p->path, to);
}

static enum err payload_put(struct archive *a, const struct manifest *m,
                            const struct archive_payload *p)
{
    char path[ARCHIVE_PATH_MAX], name[ARCHIVE_NAME_MAX + 16];
    struct file_map map = {0};
    archive_payload_name(name, p->site);
    archive_path(path, a->dir, m->fragment, m->round, name);
    if (p->data)
        return content_put(a, path, &(struct file_part){p->data, p->size_bytes});
    if (!a->owner->ops->exists(a->owner, p->path)) /* a kill in between may have left it here */
        return a->env->ops->exists(a->env, path)
                   ? ERR_OK
                   : err_set(ERR_INPUT, "%s: not stored any more", p->path);
    if (p->moves && a->owner == a->env)
        return payload_move(a, p, path);
    TRY(a->owner->ops->map(a->owner, p->path, &map));
    enum err e = content_put(a, path, &(struct file_part){map.data, map.size_bytes});
    a->owner->ops->unmap(a->owner, &map);
    return e;
}

/* Room for the run itself comes first: what it needs for two commits. */
static enum err room_check(const struct archive *a, unsigned fragment, const struct manifest *m)
{
    uint64_t free_bytes, needed = 4 * (uint64_t)outer_state_state_bytes(a->m, fragment);
    if (!a->o.free_bytes || a->o.free_bytes(a->env->root, &free_bytes) != ERR_OK)
        return ERR_OK;
    for (uint32_t i = 0; i < m->site_count; i++)
        needed += 2 * m->sites[i].payload_bytes;
    return free_bytes >= needed
               ? ERR_OK
               : err_set(ERR_FULL,
                         "%" PRIu64 " bytes are free on the disk of the archive, %" PRIu64
                         " are left to the run",
                         free_bytes, needed);
}

/* ---- gaps ---- */

static void gap_note(struct archive *a, unsigned fragment, uint64_t from, uint64_t to,
                     const char *why)
{
    struct archive_gap *g = &a->gap[fragment];
    char quoted[2 * WHY_MAX];
    if (!g->open) {
        *g = (struct archive_gap){.open = true, .from = from};
        snprintf(g->why, sizeof g->why, "%s", why);
    }
    g->to = to;
    a->wants_state[fragment] = true;
    log_event(LOG_WARN, "archive_gap", "fragment=%u from=%" PRIu64 " to=%" PRIu64 " why=%s",
              fragment, from, to, log_quote(quoted, sizeof quoted, why));
}

static enum err gap_write(struct archive *a, unsigned fragment, struct arena *scratch)
{
    const struct archive_gap *g = &a->gap[fragment];
    char path[ARCHIVE_PATH_MAX], line[WHY_MAX + 80];
    uint8_t *before = NULL;
    size_t n = 0;
    path_to(path, a, gaps_file);
    if (a->env->ops->exists(a->env, path))
        TRY(a->env->ops->read(a->env, path, GAPS_BYTES_MAX, scratch, &before, &n));
    int used = snprintf(line, sizeof line, "%u %" PRIu64 " %" PRIu64 " %s\n", fragment, g->from,
                        g->to, g->why);
    struct file_part parts[] = {{before, n}, {line, (size_t)used}};
    return a->env->ops->write(a->env, path, parts, 2);
}

/* As soon as there is room again. */
static enum err gap_close(struct archive *a, unsigned fragment)
{
    struct arena scratch = arena_make(0);
    enum err e = a->gap[fragment].open ? gap_write(a, fragment, &scratch) : ERR_OK;
    a->gap[fragment].open = a->gap[fragment].open && e != ERR_OK;
    arena_free(&scratch);
    return e;
}

/* ---- a round ---- */

static bool state_due(const struct archive *a, const struct manifest *m)
{
    return a->wants_state[m->fragment] || m->rolled_back ||
           (a->o.states_every && (m->round + 1) % a->o.states_every == 0);
}

static enum err round_put(struct archive *a, const struct manifest *m,
                          const struct archive_payload *payloads, size_t count,
                          const struct file_part *aggregate)
{
    char path[ARCHIVE_PATH_MAX];
    unsigned f = m->fragment;
    bool newest = a->m->state[f].round == m->round + 1;
    TRY(room_check(a, f, m));
    for (size_t i = 0; i < count; i++)
        TRY(payload_put(a, m, &payloads[i]));
    archive_path(path, a->dir, f, m->round, "aggregate");
    if (aggregate)
        TRY(content_put(a, path, aggregate));
    if (newest && state_due(a, m)) {
        TRY(state_put(a, f));
        a->wants_state[f] = false;
    }
    if (newest)
        TRY(leaves_put(a, f, m->round));
    return manifest_put(a, m);
}

void archive_round(struct archive *a, const struct manifest *m,
                   const struct archive_payload *payloads, size_t count,
                   const struct file_part *aggregate)
{
    unsigned f = m->fragment;
    if (m->round > a->next[f])
        gap_note(a, f, a->next[f], m->round - 1, "not committed one by one here: a snapshot");
    a->next[f] = m->round + 1;
    enum err e = round_put(a, m, payloads, count, aggregate);
    if (e == ERR_OK)
        e = gap_close(a, f);
    else
        gap_note(a, f, m->round, m->round, err_message());
    err_clear();
}

void archive_masked(struct archive *a, const struct manifest *m)
{
    struct file_map map = {0};
    bool there =
        !manifest_aborted(m) && outer_state_aggregate(a->m, m->fragment, m->round, &map) == ERR_OK;
    const struct file_part sum = {map.data, map.size_bytes};
    archive_round(a, m, NULL, 0, there ? &sum : NULL);
    a->owner->ops->unmap(a->owner, &map);
}

uint64_t archive_bytes(const struct archive *a)
{
    return a->bytes;
}

/* ---- open ---- */

enum err archive_open(struct archive **out, struct env *w, const char *dir,
                      const struct archive_options *o, struct arena *perm)
{
    struct archive *a = arena_alloc(perm, sizeof *a);
    *out = NULL;
    TRY_ALLOC(a);
    *a = (struct archive){.env = w, .o = *o};
    snprintf(a->dir, sizeof a->dir, "%s", dir);
    *out = a;
    return ERR_OK;
}

static enum err head_put(struct archive *a)
{
    char path[ARCHIVE_PATH_MAX];
    const struct schedule *s = &a->m->schedule;
    struct archive_head head = a->o.head;
    struct record_form form = {"archive", head_fields, &head};
    head.end_count = s->ends.count;
    for (unsigned i = 0; i < s->ends.count; i++)
        head.ends[i] = (uint64_t)s->ends.steps[i];
    path_to(path, a, settings_file);
    TRY(a->env->ops->write(a->env, path, &(struct file_part){a->o.settings, strlen(a->o.settings)},
                           1));
    path_to(path, a, head_file);
    return store_write(a->env, path, &form, NULL, 0);
}

/* One round after the newest that is archived; 0: none is. */
static enum err archived(struct archive *a, unsigned fragment, uint64_t *rounds)
{
    struct arena scratch = arena_make(0);
    char path[ARCHIVE_PATH_MAX], file[24], **names = NULL;
    size_t count = 0;
    enum err e = ERR_OK;
    *rounds = 0;
    snprintf(file, sizeof file, "%u", fragment);
    path_to(path, a, file);
    if (a->env->ops->exists(a->env, path))
        e = a->env->ops->list(a->env, path, &scratch, &names, &count);
    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        uint64_t round;
        char rest;
        if (sscanf(names[i], "%20" SCNu64 "%c", &round, &rest) != 1 || round < *rounds)
            continue;
        archive_path(path, a->dir, fragment, round, "MANIFEST");
        if (a->env->ops->exists(a->env, path))
            *rounds = round + 1;
    }
    arena_free(&scratch);
    return e;
}

/* The rounds that were committed and not archived: a kill in between, or another directory. */
static void catch_up(struct archive *a, unsigned fragment, const struct archive_again *again)
{
    uint64_t committed = a->m->state[fragment].round, from = a->next[fragment];
    uint64_t oldest = committed > a->m->o.keep ? committed - a->m->o.keep : 0;
    struct manifest m;
    if (from == 0 && committed > 1) {
        a->wants_state[fragment] = true; /* it begins in the middle of the run */
        return;
    }
    for (uint64_t t = from > oldest ? from : oldest; t < committed; t++)
        if (outer_state_manifest(a->m, fragment, t, &m) == ERR_OK)
            again->round(again->self, &m);
    err_clear();
    if (a->next[fragment] < committed)
        gap_note(a, fragment, a->next[fragment], committed - 1,
                 "committed before this start, and not kept");
}

static enum err fragment_begin(struct archive *a, unsigned fragment,
                               const struct archive_again *again)
{
    uint64_t committed = a->m->state[fragment].round;
    TRY(archived(a, fragment, &a->next[fragment]));
    if (a->next[fragment] < committed)
        catch_up(a, fragment, again);
    a->next[fragment] = committed; /* fewer: a round was given up, and comes again */
    if (!committed && a->o.imported)
        TRY(state_put(a, fragment));
    if (!a->wants_state[fragment])
        return ERR_OK;
    TRY(state_put(a, fragment));
    a->wants_state[fragment] = false;
    return gap_close(a, fragment);
}

void archive_begin(struct archive *a, struct env *owner, struct outer_state *m,
                   const struct archive_again *again)
{
    char quoted[2 * WHY_MAX];
    a->owner = owner;
    a->m = m;
    enum err e = head_put(a);
    for (unsigned f = 0; f < m->fragments->count; f++) {
        bool ours = !a->o.head.aggregator || a->o.head.aggregators <= 1 ||
                    f % a->o.head.aggregators == a->o.head.index;
        if (!ours)
            continue;
        enum err begun = e == ERR_OK ? fragment_begin(a, f, again) : ERR_OK;
        a->next[f] = m->state[f].round;
        a->wants_state[f] |= begun != ERR_OK;
        e = e == ERR_OK ? begun : e;
    }
    if (e != ERR_OK)
        log_event(LOG_WARN, "archive", "ok=0 why=%s",
                  log_quote(quoted, sizeof quoted, err_message()));
    err_clear();
}

/* ---- reading ---- */

enum err archive_head_read(struct archive_head *h, const char *dir, struct arena *a)
{
    char path[ARCHIVE_PATH_MAX];
    struct record_form form = {"archive", head_fields, h};
    struct record r;
    uint8_t *data;
    size_t n;
    *h = (struct archive_head){0};
    snprintf(path, sizeof path, "%.400s/%s", dir, head_file);
    TRY(file_read(path, RECORD_HEAD_MAX, a, &data, &n));
    TRY(record_open(&r, &form, path, data, n, a));
    return h->end_count <= SCHEDULE_ENDS_MAX ? ERR_OK : err_set(ERR_CORRUPT, "%s: damaged", path);
}

enum err archive_manifest_read(struct manifest *m, const char *path, const void *data,
                               size_t size_bytes, struct arena *a)
{
    struct record r;
    TRY(record_open(&r, &manifest_form, path, data, size_bytes, a));
    return record_intact(&r, 0) && manifest_decode(m, r.sections[0].data, r.sections[0].size_bytes)
               ? ERR_OK
               : err_set(ERR_CORRUPT, "%s: damaged", path);
}

enum err archive_leaves_read(struct digest *digests, size_t count, const char *path,
                             const void *data, size_t size_bytes, struct arena *a)
{
    struct leaves_head head = {0};
    struct record_form form = {"leaves", leaves_fields, &head};
    struct file_part part = {digests, count * sizeof *digests};
    struct record r;
    TRY(record_open(&r, &form, path, data, size_bytes, a));
    return record_take(&r, 0, &part, 1) ? ERR_OK : err_set(ERR_CORRUPT, "%s: damaged", path);
}

/* ---- prediction ---- */

enum { RECORD_BYTES = 160 }; /* head of a record of one section */

static uint64_t manifest_bytes(unsigned sites)
{
    enum { BODY_BYTES = 400 }; /* without names; formats 9 */
    return RECORD_BYTES + BODY_BYTES + (uint64_t)MANIFEST_ENTRY_BYTES * sites;
}

static uint64_t leaves_bytes_of(const struct outer_state_options *o, unsigned fragment)
{
    uint64_t arrays = outer_state_shared_bytes(o, fragment) /
                      (o->fragments->f[fragment].elements * sizeof(float));
    uint64_t tensors = o->fragments->f[fragment].view.count + 1;
    uint64_t pieces = o->fragments->f[fragment].elements / STATE_LEAF + tensors;
    uint64_t leaves =
        o->digest == STATE_DIGEST_LEAVES ? outer_state_leaves(o, fragment) : arrays * pieces + 1;
    return RECORD_BYTES + sizeof(struct digest) * leaves;
}

struct archive_size archive_size(const struct outer_state_options *o, unsigned sites,
                                 bool aggregator, uint64_t states_every)
{
    struct archive_size size = {0};
    const struct schedule *s = &o->schedule;
    for (unsigned f = 0; f < o->fragments->count; f++) {
        uint64_t rounds = schedule_rounds(s, f);
        size.rounds += rounds;
        size.run_bytes += rounds * (manifest_bytes(sites) + leaves_bytes_of(o, f));
        if (states_every)
            size.run_bytes += rounds / states_every * outer_state_shared_bytes(o, f);
        for (uint64_t t = 0; t < rounds; t++) {
            struct schedule_bytes b =
                schedule_round_bytes(s, f, t, o->fragments->f[f].elements, sites);
            size.run_bytes += s->masked_sites ? b.down : aggregator ? sites * b.up : b.up;
        }
    }
    size.round_bytes = size.rounds ? size.run_bytes / size.rounds : 0;
    return size;
}
