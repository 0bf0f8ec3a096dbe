/* SPDX-License-Identifier: Apache-2.0 */
/* Archive and replay of a toy run. If these break, a run that has been archived cannot be made
 * again, a difference is not found or gets a wrong place, or an archive that cannot be written
 * stops a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/log.h"
#include "outer/store/aggregate.h"
#include "outer/organ/archive/replay.h"
#include "tests/outer/toy_replica.h"
#include "tests/sim/mutants.h"
#include "tests/scratch_place.h"

enum { SITES = 3, FRAGMENTS = 2, ROUNDS = 6, FOUND_MAX = 64 };
static const char *const roster[SITES] = {"a", "b", "c"};

static struct dev *cpu;
static struct codec_work *work;
static struct tensor tensors[TOY_TENSORS_MAX];
static struct table table;
static struct fragments fragments;
static struct arena arena;
static float *slab;
static char root[64];

struct found { /* of a replay */
    struct replay_finding f;
    char what[32], site[64], file[512], text[512];
};
struct toy {        /* an aggregator with an archive */
    struct env env; /* `real` with a write that can fail */
    struct env *real;
    struct env_ops ops;
    struct outer_state m;
    struct outer_state_options o;
    struct archive *archive;
    struct arena arena;
    char path[128];
    struct found found[FOUND_MAX];
    size_t found_count;
    struct replay_result r;
};
static enum err failing; /* of writes and moves into the archive */

/* ---- the run ---- */

/* Without fsync, which takes most of the time of such a test. */
static enum err plain_write(struct env *w, const char *path, const struct file_part *parts,
                            size_t n)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", w->root, path);
    for (char *slash = full + strlen(w->root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        (void)mkdir(full, 0755);
    }
    FILE *f = fopen(full, "wb");
    if (!f)
        return err_set(ERR_IO, "%s", full);
    for (size_t i = 0; i < n; i++)
        if (parts[i].size_bytes)
            fwrite(parts[i].data, 1, parts[i].size_bytes, f);
    return fclose(f) == 0 ? ERR_OK : err_set(ERR_IO, "%s", full);
}

static enum err write_failing(struct env *w, const char *path, const struct file_part *parts,
                              size_t n)
{
    if (failing && strncmp(path, "archive", 7) == 0)
        return err_set(failing, "%s: injected", path);
    return plain_write(w, path, parts, n);
}

static enum err owned(struct env *w)
{
    struct toy *t = (struct toy *)w;
    return t->real->ops->owned(t->real);
}

static enum err open_failing(struct env *w, const char *path, uint64_t total, int *handle,
                             uint64_t *have)
{
    struct toy *t = (struct toy *)w;
    if (failing)
        return err_set(failing, "%s: injected", path);
    return t->real->ops->part_open(t->real, path, total, handle, have);
}

static void archive_start(struct toy *t, uint64_t states_every, const struct archive_again *again)
{
    const struct archive_options o = {
        .head = {.run = "toy", .replica = "aggregator 0", .aggregator = true, .aggregators = 1},
        .settings = "run:\n  name: toy\n",
        .states_every = states_every};
    assert_int_equal(archive_open(&t->archive, &t->env, "archive", &o, &t->arena), ERR_OK);
    archive_begin(t->archive, &t->env, &t->m, again);
}

static void toy_open(struct toy *t, const char *name, enum codec_kind codec, uint64_t states_every)
{
    failing = ERR_OK;
    *t = (struct toy){.arena = arena_make(0)};
    snprintf(t->path, sizeof t->path, "%s/%s", root, name);
    assert_int_equal(env_posix_open(&t->real, t->path), ERR_OK);
    t->env = *t->real;
    t->ops = *t->real->ops;
    t->ops.write = write_failing;
    t->ops.owned = owned;
    t->ops.part_open = open_failing;
    t->env.ops = &t->ops;
    t->o = (struct outer_state_options){
        .fragments = &fragments,
        .schedule = schedule_streaming(10 * ROUNDS, 10, FRAGMENTS, 1, codec),
        .keep = 3};
    t->o.schedule.downlink_compression_from = 3; /* of two it is forwarded */
    outer_state_aggregates(&t->o, SITES);
    assert_int_equal(toy_replica(&t->m, &t->env, cpu, t->o, slab, &t->arena), ERR_OK);
    archive_start(t, states_every, NULL);
}

static void toy_close(struct toy *t)
{
    outer_state_close(&t->m);
    env_posix_close(t->real);
    arena_free(&t->arena);
}

static void spool_path(char out[128], unsigned fragment, uint64_t round, unsigned site)
{
    snprintf(out, 128, "spool/%u/%" PRIu64 "/%s", fragment, round, roster[site]);
}

static bool lies; /* the first contribution is added twice, the second one not at all */

/* The next round of a fragment, committed: contributions in the spool. included: bit k: site k. */
static void toy_commit(struct toy *t, unsigned f, unsigned included, struct manifest *man)
{
    struct arena scratch = arena_make(0);
    struct codec_payload payloads[SITES];
    struct aggregate_bytes made;
    unsigned n = 0;
    manifest_clear(man);
    snprintf(man->run, sizeof man->run, "toy");
    man->fragment = f;
    man->round = t->m.state[f].round;
    man->parent = t->m.state[f].manifest;
    man->codec = outer_state_codec(&t->m, f);
    man->roster_version = 1;
    man->amendments = t->m.amendments;
    man->site_count = SITES;
    for (unsigned i = 0; i < SITES; i++) {
        char path[128];
        size_t size;
        uint8_t *payload = toy_payload(&t->m, work, f, i, &size);
        uint8_t *kept = arena_alloc(&scratch, size);
        assert_non_null(kept);
        memcpy(kept, payload, size);
        free(payload);
        spool_path(path, f, man->round, i);
        assert_int_equal(plain_write(t->real, path, &(struct file_part){kept, size}, 1), ERR_OK);
        man->sites[i] = (struct manifest_entry){.site = i,
                                                .included = included >> i & 1,
                                                .payload = digest_of(kept, size),
                                                .payload_bytes = size,
                                                .weight = 1,
                                                .factor = 1};
        if (man->sites[i].included)
            payloads[n++] = (struct codec_payload){kept, size};
    }
    if (lies && n > 1)
        payloads[1] = payloads[0];
    if (n) {
        assert_int_equal(
            aggregate_make(&t->m, f, &(struct downlink_input){payloads, n}, &made, &scratch),
            ERR_OK);
        assert_int_equal(outer_state_apply(&t->m, man, made.data, made.size_bytes), ERR_OK);
        assert_int_equal(downlink_residual_ratio(&t->m, f, man, &man->residual_ratio), ERR_OK);
        assert_int_equal(outer_state_commit(&t->m, f, man, made.data, made.size_bytes), ERR_OK);
    } else {
        assert_int_equal(outer_state_abort(&t->m, man), ERR_OK);
        outer_state_own_keep(&t->m, f);
        assert_int_equal(outer_state_commit(&t->m, f, man, NULL, 0), ERR_OK);
    }
    arena_free(&scratch);
}

static void toy_archive(struct toy *t, const struct manifest *man, bool moves)
{
    struct archive_payload p[SITES];
    char paths[SITES][128];
    size_t n = 0;
    for (unsigned i = 0; i < SITES; i++) {
        if (!man->sites[i].included)
            continue;
        spool_path(paths[n], man->fragment, man->round, i);
        p[n] = (struct archive_payload){.site = roster[i],
                                        .path = paths[n],
                                        .moves = moves,
                                        .size_bytes = man->sites[i].payload_bytes};
        n++;
    }
    archive_round(t->archive, man, p, n, NULL);
}

static struct manifest round_manifest; /* 130 kB */

/* Replicas of an amended run read the rate from the amendment's text. */
static enum err rate_amend(const void *self, struct schedule *s, const struct amendments *list)
{
    (void)self;
    for (uint32_t i = 0; i < list->count; i++)
        schedule_amend(
            s, &(struct schedule_change){.after = schedule_step(s, 0, list->list[i].round - 1),
                                         .steps = s->steps,
                                         .lr = strtof(strchr(list->list[i].text, '=') + 1, NULL)});
    return ERR_OK;
}

static void toy_rounds(struct toy *t, uint64_t rounds)
{
    for (uint64_t r = 0; r < rounds; r++)
        for (unsigned f = 0; f < FRAGMENTS; f++) {
            unsigned included = r == 2 ? 0 : r == 3 ? 3 : 7; /* aborted; without c */
            toy_commit(t, f, included, &round_manifest);
            toy_archive(t, &round_manifest, true);
        }
}

/* ---- the replay ---- */

static void note(void *self, const struct replay_finding *f)
{
    struct toy *t = self;
    struct found *x = &t->found[t->found_count++];
    assert_in_range(t->found_count, 1, FOUND_MAX);
    x->f = *f;
    snprintf(x->what, sizeof x->what, "%s", f->what);
    snprintf(x->site, sizeof x->site, "%s", f->site);
    snprintf(x->file, sizeof x->file, "%s", f->file);
    snprintf(x->text, sizeof x->text, "%s", f->text);
}

static struct digest replay_of(struct toy *t, bool kept, uint64_t from, uint64_t to)
{
    struct outer_state m;
    struct arena scratch = arena_make(0);
    struct outer_state_options o = t->o;
    char archive[256], frag[256];
    snprintf(archive, sizeof archive, "%s/archive", t->path);
    snprintf(frag, sizeof frag, "%s/frag", t->path);
    struct replay_source source = {.path = t->path, .archive = archive, .frag = kept ? frag : NULL};
    const struct replay_options ro = {.sources = &source,
                                      .count = 1,
                                      .sites = roster,
                                      .table = &table,
                                      .placed = true,
                                      .from = from,
                                      .to = to,
                                      .found = note,
                                      .self = t};
    assert_int_equal(archive_head_read(&source.head, archive, &scratch), ERR_OK);
    assert_int_equal(outer_opt_make(&o.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    assert_int_equal(outer_state_open(&m, NULL, cpu, &o, &scratch), ERR_OK);
    assert_int_equal(outer_state_place(&m, slab), ERR_OK);
    t->found_count = 0;
    assert_int_equal(replay_run(&m, &ro, &t->r), ERR_OK);
    outer_state_close(&m);
    arena_free(&scratch);
    return t->r.outer;
}

static void file_path(const struct toy *t, char out[256], unsigned f, uint64_t round,
                      const char *name)
{
    snprintf(out, 256, "%s/archive/%u/%" PRIu64 "/%s", t->path, f, round, name);
}

static void flip(const char *path, size_t at)
{
    struct arena scratch = arena_make(0);
    uint8_t *data;
    size_t n;
    assert_int_equal(file_read(path, 1 << 20, &scratch, &data, &n), ERR_OK);
    assert_true(at < n);
    data[at] ^= 1;
    assert_int_equal(file_write(path, &(struct file_part){data, n}, 1, 0644), ERR_OK);
    arena_free(&scratch);
}

static void same_state(struct toy *t, bool kept)
{
    struct digest d = replay_of(t, kept, 0, UINT64_MAX), want = outer_state_digest(&t->m, false);
    assert_int_equal(t->found_count, 0);
    assert_true(t->r.whole);
    assert_true(digest_equal(&d, &want));
}

/* ---- tests ---- */

/* Every codec's way from contributions to aggregate: summed, forwarded, summed and compressed. */
static void test_same(void **state)
{
    static const enum codec_kind codecs[] = {CODEC_INT8, CODEC_TOPK};
    (void)state;
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        struct toy *t = calloc(1, sizeof *t);
        char name[32], path[256];
        snprintf(name, sizeof name, "same-%zu", i);
        toy_open(t, name, codecs[i], 2);
        toy_rounds(t, ROUNDS);
        same_state(t, false);
        same_state(t, true);
        assert_int_equal(t->r.rounds, FRAGMENTS * ROUNDS);
        assert_int_equal(t->r.made, FRAGMENTS * ROUNDS);
        assert_true(t->r.states >= 3 * FRAGMENTS);
        snprintf(path, sizeof path, "%s/spool/0/4/a", t->path);
        assert_false(file_exists(path)); /* moved, not copied */
        replay_of(t, false, 3, 5);
        assert_int_equal(t->r.rounds, FRAGMENTS * 2);
        assert_int_equal(t->r.made, FRAGMENTS * 2);
        toy_close(t);
        free(t);
    }
}

/* An amendment is in force in a replay from its round on, as it was in the run. */
static void test_amended(void **state)
{
    const struct amendments list = {
        .count = 1, .list = {{.text = "outer.lr=0.25", .round = 4, .by = digest_of("op", 2)}}};
    struct digest end[2];
    (void)state;
    for (unsigned amended = 0; amended < 2; amended++) {
        struct toy *t = calloc(1, sizeof *t);
        toy_open(t, amended ? "amended" : "not-amended", CODEC_INT8, 0);
        t->m.o.amend = t->o.amend = rate_amend;
        toy_rounds(t, 2);
        if (amended)
            assert_int_equal(outer_state_amend(&t->m, &list), ERR_OK);
        toy_rounds(t, ROUNDS - 2);
        same_state(t, false);
        assert_int_equal(t->r.made, FRAGMENTS * ROUNDS);
        end[amended] = t->r.outer;
        toy_close(t);
        free(t);
    }
    assert_false(digest_equal(&end[0], &end[1]));
}

/* A byte of each array changes one leaf: all of them cover a state, and none overlap. */
static void test_leaves(void **state)
{
    struct toy *t = calloc(1, sizeof *t);
    struct arena scratch = arena_make(0);
    (void)state;
    toy_open(t, "leaves", CODEC_INT8, 0);
    toy_rounds(t, 2);
    struct outer_state_fragment *s = &t->m.state[1];
    size_t n = leaves_count(&t->m, 1), elements = fragments.f[1].elements, changed;
    struct digest *before = arena_array(&scratch, n, sizeof *before),
                  *after = arena_array(&scratch, n, sizeof *after);
    assert_int_equal(leaves_digests(&t->m, 1, s, before, &scratch), ERR_OK);
    uint8_t *const arrays[] = {(uint8_t *)s->theta, (uint8_t *)s->slab[0], s->codes};
    const size_t sizes[] = {4 * elements, 4 * elements, elements / DEV_BLOCK};
    for (size_t a = 0; a < 3; a++)
        for (size_t at = 0; at < sizes[a]; at += a < 2 ? 509 : 1) {
            arrays[a][at] ^= 1;
            assert_int_equal(leaves_digests(&t->m, 1, s, after, &scratch), ERR_OK);
            arrays[a][at] ^= 1;
            changed = 0;
            for (size_t i = 0; i < n; i++)
                changed += !digest_equal(&before[i], &after[i]);
            assert_int_equal(changed, 1);
        }
    arena_free(&scratch);
    toy_close(t);
    free(t);
}

/* Fragment 0 has wte first: 700 values, then others. The wrong value is in the leaf that is named.
 */
/* The digests of a state's leaves are read where everything else agrees, too. */
static void test_flipped_leaves(void **state)
{
    struct toy *t = calloc(1, sizeof *t);
    char path[256];
    (void)state;
    toy_open(t, "flipped_leaves", CODEC_INT8, 3);
    toy_rounds(t, ROUNDS);
    for (uint64_t round = 2; round <= 4; round += 2) { /* an aborted one, and one with all sites */
        struct file_map map;
        file_path(t, path, 1, round, "leaves");
        assert_int_equal(file_map(&map, path), ERR_OK);
        size_t size = map.size_bytes;
        file_unmap(&map);
        flip(path, size - 1);
        replay_of(t, false, 0, UINT64_MAX);
        assert_int_equal(t->found_count, 1);
        assert_string_equal(t->found[0].what, "leaves");
        assert_int_equal(t->found[0].f.kind, REPLAY_DAMAGED);
        assert_int_equal(t->found[0].f.round, round);
        assert_int_equal(t->found[0].f.fragment, 1);
        flip(path, size - 1);
    }
    toy_close(t);
    free(t);
}

static void test_flipped(void **state)
{
    struct toy *t = calloc(1, sizeof *t);
    char path[256];
    (void)state;
    toy_open(t, "flipped", CODEC_INT8, 3);
    toy_rounds(t, ROUNDS);
    size_t blocks = fragments.f[0].elements / DEV_BLOCK, codes = blocks + (blocks + 7) / 8;
    file_path(t, path, 0, 4, "b.payload");
    flip(path, codes + 5); /* value 5 of the first block that is sent */
    replay_of(t, false, 0, UINT64_MAX);
    assert_int_equal(t->r.damaged, 1);
    assert_string_equal(t->found[0].what, "contribution");
    assert_string_equal(t->found[0].site, "b");
    assert_int_equal(t->found[0].f.round, 4);
    assert_true(t->found[0].f.place.known);
    assert_string_equal(t->found[0].f.place.array, "theta");
    const struct tensor *x = &table.tensors[0]; /* of the slab's first tensor in fragment 0 */
    for (size_t i = 0; i < table.count; i++)
        if (table.tensors[i].offset == fragments.f[0].ranges[0].offset)
            x = &table.tensors[i];
    assert_string_equal(t->found[0].f.place.tensor, x->name);
    assert_in_range(5, t->found[0].f.place.first, t->found[0].f.place.last - 1);
    assert_false(t->r.whole); /* round 5 has no state to begin at */
    assert_string_equal(t->found[t->found_count - 1].what, "rounds");
    flip(path, codes + 5);
    file_path(t, path, 1, 1, "MANIFEST");
    flip(path, 300);
    replay_of(t, false, 0, UINT64_MAX);
    assert_string_equal(t->found[0].what, "manifest");
    assert_int_equal(t->found[0].f.kind, REPLAY_DAMAGED);
    assert_int_equal(t->found[0].f.round, 1);
    assert_int_equal(t->found[0].f.fragment, 1);
    flip(path, 300);
    snprintf(path, sizeof path, "%s/frag/1/6/state", t->path);
    struct file_map map;
    assert_int_equal(file_map(&map, path), ERR_OK);
    size_t head = map.size_bytes - outer_state_state_bytes(&t->m, 1), size = map.size_bytes;
    file_unmap(&map);
    flip(path, head + 4 * fragments.f[1].elements + 4 * 3 + 1); /* momentum, value 3 */
    replay_of(t, true, 0, UINT64_MAX);
    assert_int_equal(t->found_count, 1);
    assert_string_equal(t->found[0].what, "state");
    assert_string_equal(t->found[0].f.place.array, "momentum");
    assert_int_equal(t->found[0].f.place.first, 3);
    assert_int_equal(t->found[0].f.place.last, 4);
    flip(path, head + 4 * fragments.f[1].elements + 4 * 3 + 1);
    flip(path,
         size - 1); /* of the aggregator's residual, which is no function of this round alone */
    replay_of(t, true, 0, UINT64_MAX);
    assert_int_equal(t->found_count, 1);
    assert_int_equal(t->found[0].f.kind, REPLAY_DAMAGED);
    assert_non_null(strstr(t->found[0].text, "residual"));
    toy_close(t);
    free(t);
}

/* The archive's manifest of round 4 of fragment 0, or the same rewritten, with a digest that fits.
 */
static void manifest_file(struct toy *t, struct manifest *m, bool put)
{
    struct arena scratch = arena_make(0);
    uint8_t *data, bytes[MANIFEST_BYTES_MAX];
    size_t n;
    char path[256];
    file_path(t, path, 0, 4, "MANIFEST");
    if (put) {
        const struct record_form form = {.kind = "manifest"};
        struct file_part part = {bytes, manifest_encode(m, bytes)};
        struct record_section section = {.parts = &part, .part_count = 1};
        assert_int_equal(store_write(t->real, "archive/0/4/MANIFEST", &form, &section, 1), ERR_OK);
    } else {
        assert_int_equal(file_read(path, 1 << 20, &scratch, &data, &n), ERR_OK);
        assert_int_equal(archive_manifest_read(m, path, data, n, &scratch), ERR_OK);
    }
    arena_free(&scratch);
}

/* A forged manifest: the arithmetic says no; or, of a field that the arithmetic does not read, the
 * next round, whose parent it is not. */
static void test_forged(void **state)
{
    struct toy *t = calloc(1, sizeof *t);
    struct manifest *m = calloc(1, sizeof *m);
    (void)state;
    toy_open(t, "forged", CODEC_INT8, 2);
    toy_rounds(t, ROUNDS);
    manifest_file(t, m, false);
    m->sites[1].data_cursor++;
    manifest_file(t, m, true);
    replay_of(t, false, 0, UINT64_MAX);
    assert_int_equal(t->found_count, 1);
    assert_int_equal(t->found[0].f.kind, REPLAY_DIFFERS);
    assert_string_equal(t->found[0].what, "manifest");
    assert_int_equal(t->found[0].f.round, 4);
    m->sites[1].data_cursor--;
    m->state_after.bytes[0] ^= 1;
    manifest_file(t, m, true);
    replay_of(t, false, 0, UINT64_MAX);
    assert_int_equal(t->found[0].f.kind, REPLAY_DIFFERS);
    assert_string_equal(t->found[0].what, "state");
    assert_int_equal(t->found[0].f.round, 4);
    assert_false(t->r.whole);
    replay_of(t, true, 0, UINT64_MAX); /* the replica's own manifest is the other one */
    assert_int_equal(t->found[0].f.kind, REPLAY_DIFFERS);
    assert_string_equal(t->found[0].what, "manifest");
    toy_close(t);
    free(m);
    free(t);
}

/* An aggregator that commits a false sum: every replica has the same state, and the contributions
 * say that it is another one. */
static void test_false_sum(void **state)
{
    struct toy *t = calloc(1, sizeof *t);
    (void)state;
    toy_open(t, "lies", CODEC_INT8, 0);
    toy_rounds(t, 1);
    lies = true;
    toy_commit(t, 0, 7, &round_manifest);
    lies = false;
    toy_archive(t, &round_manifest, true);
    toy_commit(t, 0, 7, &round_manifest);
    toy_archive(t, &round_manifest, true);
    replay_of(t, true, 0, UINT64_MAX);
    assert_int_equal(t->found_count, 1);
    assert_int_equal(t->found[0].f.kind, REPLAY_DIFFERS);
    assert_string_equal(t->found[0].what, "aggregate");
    assert_int_equal(t->found[0].f.round, 1);
    assert_int_equal(t->r.by_aggregate, 1); /* and the next round from its contributions again */
    replay_of(t, false, 0, UINT64_MAX);
    assert_string_equal(t->found[0].what, "aggregate");
    assert_false(t->r.whole);
    toy_close(t);
    free(t);
}

static void again(void *self, const struct manifest *man)
{
    toy_archive(self, man, false);
}

/* Killed between the commit and the archive, also with one contribution moved already. */
static void test_killed(void **state)
{
    struct toy *t = calloc(1, sizeof *t);
    const struct archive_again missing = {again, t};
    char from[256], to[256];
    (void)state;
    toy_open(t, "killed", CODEC_INT8, 0);
    toy_rounds(t, 2);
    toy_commit(t, 0, 7, &round_manifest); /* not archived */
    toy_commit(t, 1, 7, &round_manifest);
    snprintf(from, sizeof from, "%s/spool/1/2/a", t->path);
    file_path(t, to, 1, 2, "a.payload");
    *strrchr(to, '/') = 0;
    assert_int_equal(file_mkdirs(to), ERR_OK);
    file_path(t, to, 1, 2, "a.payload");
    assert_int_equal(rename(from, to), 0);
    /* Before that start the archive ends a round too early, and the replica's own states say so;
     * archives alone name the rounds of which nothing is known. */
    replay_of(t, true, 0, UINT64_MAX);
    assert_int_equal(t->r.missing, 2 * FRAGMENTS); /* its contributions, too */
    replay_of(t, false, 0, UINT64_MAX);
    assert_int_equal(t->r.missing, FRAGMENTS);
    archive_start(t, 0, &missing);
    same_state(t, true);
    assert_int_equal(t->r.made, 3 * FRAGMENTS);
    toy_close(t);
    free(t);
}

static enum err little(const char *path, uint64_t *bytes)
{
    (void)path;
    *bytes = 1000;
    return ERR_OK;
}

/* A disk that is full, or nearly: the run continues, the archive says which rounds it has not, and
 * begins again with a state. */
static void test_full(void **state)
{
    static const enum err errors[] = {ERR_FULL, ERR_IO};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct toy *t = calloc(1, sizeof *t);
        struct arena scratch = arena_make(0);
        char name[32], path[256];
        uint8_t *text;
        size_t n;
        snprintf(name, sizeof name, "full-%zu", i);
        toy_open(t, name, CODEC_INT8, 0);
        toy_rounds(t, 2);
        failing = errors[i];
        toy_rounds(t, 2);
        failing = ERR_OK;
        toy_rounds(t, 2);
        replay_of(t, false, 0, UINT64_MAX);
        assert_int_equal(t->r.missing, 2 * FRAGMENTS); /* the manifest of round 2, rounds 3 and 4 */
        assert_int_equal(t->found[0].f.round, 2);
        assert_string_equal(t->found[1].what, "rounds");
        assert_int_equal(t->r.made, 3 * FRAGMENTS); /* 0, 1; 5 from state 5 */
        assert_int_equal(t->r.damaged + t->r.differs, 0);
        snprintf(path, sizeof path, "%s/archive/gaps", t->path);
        assert_int_equal(file_read(path, 1 << 12, &scratch, &text, &n), ERR_OK);
        assert_non_null(strstr((char *)text, "0 2 3 "));
        assert_non_null(strstr((char *)text, "1 2 3 "));
        arena_free(&scratch);
        toy_close(t);
        free(t);
    }
    struct toy *t = calloc(1, sizeof *t);
    toy_open(t, "little", CODEC_INT8, 0);
    const struct archive_options o = {
        .head = {.run = "toy", .replica = "x"}, .settings = "", .free_bytes = little};
    assert_int_equal(archive_open(&t->archive, &t->env, "archive", &o, &t->arena), ERR_OK);
    archive_begin(t->archive, &t->env, &t->m, NULL);
    toy_rounds(t, 1);
    assert_int_equal(archive_bytes(t->archive), 0);
    toy_close(t);
    free(t);
}

/* What was predicted holds what was written, and is not more than a twentieth above it. */
static void test_size(void **state)
{
    static const enum codec_kind codecs[] = {CODEC_INT8, CODEC_BF16};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct toy *t = calloc(1, sizeof *t);
        char name[32];
        snprintf(name, sizeof name, "size-%zu", i);
        toy_open(t, name, codecs[i], 2);
        struct archive_size size = archive_size(&t->o, SITES, true, 2);
        for (uint64_t r = 0; r < ROUNDS; r++)
            for (unsigned f = 0; f < FRAGMENTS; f++) {
                toy_commit(t, f, 7, &round_manifest);
                toy_archive(t, &round_manifest, true);
            }
        assert_int_equal(size.rounds, FRAGMENTS * ROUNDS);
        assert_in_range(archive_bytes(t->archive), size.run_bytes * 80 / 100, size.run_bytes);
        toy_close(t);
        free(t);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),      cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_flipped),   cmocka_unit_test(test_flipped_leaves),
        cmocka_unit_test(test_forged),    cmocka_unit_test(test_killed),
        cmocka_unit_test(test_full),      cmocka_unit_test(test_size),
        cmocka_unit_test(test_false_sum), cmocka_unit_test(test_amended),
    };
    if (!mutant_arguments(argc, argv, cmocka_set_test_filter))
        return 2;
    const struct fragment_plan plan = {FRAGMENT_STRIDED, FRAGMENTS, .synchronised = {true}};
    log_min(LOG_ERROR);
    snprintf(root, sizeof root, "%s/test_replay.XXXXXX", scratch_place());
    if (!mkdtemp(root) || toy_device(&cpu, &work) != ERR_OK)
        return 1;
    table = toy_table(tensors, 4);
    arena = arena_make(0);
    slab = toy_slab(&table, &arena);
    if (!slab || fragment_make(&fragments, &table, &plan, &arena) != ERR_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += file_remove_tree(root) != ERR_OK;
    codec_close(work);
    dev_close(cpu);
    arena_free(&arena);
    return failed;
}
