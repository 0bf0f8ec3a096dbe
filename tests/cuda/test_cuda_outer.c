/* SPDX-License-Identifier: Apache-2.0 */
/* A site's outer arithmetic on the GPU against the CPU's: the same rounds of the real site and
 * member on either device, for every codec; payloads, states, residuals and parameters are the same
 * bytes. If one differs, a run whose sites have different machines falls apart in its first rounds.
 * Emulated, the device's memory is closed to the host and the host's to the kernels, so this also
 * shows that each op gets what was staged and the host what came back. And what crosses the bus is
 * counted: the outer state, staged, and compressed bytes.
 */
#include <stdlib.h>
#include <unistd.h>
#include "kernels/base/log.h"
#include "outer/site/site.h"
#include "tests/cuda/cuda_test.h"
#include "tests/kernels/check.h"
#include "tests/outer/site/exchange.h"
#include "tests/outer/toy.h"

enum { SITES = 3, FRAGMENTS = 2, ROUNDS = 3, LEFT_OUT = 1, ELEMENTS_MAX = 1 << 17, LARGE = 60000 };
static const char canonical[] = "run.name=t\n";

static struct tensor tensors[TOY_TENSORS_MAX], large_tensors[TOY_TENSORS_MAX];
static struct fragments fragments, small, large, whole;
static float initial[ELEMENTS_MAX], local[ELEMENTS_MAX];
static struct dev *gpu, *cpu;
static bool stale;  /* rounds() ends in check_stale */
static bool radial; /* merge by direction where the codec lets it */

/* Bytes that were copied between the host and the device under test, while counting. */
struct bus {
    size_t in, out;
};
static struct bus bus;
static struct {
    const char *p;
    size_t bytes;
} held[64]; /* on the device */
static size_t held_count;
static struct outer_memory taken; /* of the device, of pinned memory */
static const struct dev_ops *real;

static bool on_device(const void *p)
{
    for (size_t i = 0; i < held_count; i++)
        if ((const char *)p >= held[i].p && (const char *)p < held[i].p + held[i].bytes)
            return true;
    return false;
}

static enum err counted_alloc(struct dev *d, void **p, size_t bytes)
{
    TRY(real->alloc(d, p, bytes));
    assert_true(held_count < sizeof held / sizeof *held);
    held[held_count].p = *p;
    held[held_count++].bytes = bytes;
    taken.device += bytes;
    return ERR_OK;
}

static void counted_free(struct dev *d, void *p)
{
    for (size_t i = 0; i < held_count; i++)
        if (held[i].p == p)
            held[i] = held[--held_count];
    real->free(d, p);
}

static enum err counted_host_alloc(struct dev *d, void **p, size_t bytes)
{
    taken.host += bytes;
    return real->host_alloc(d, p, bytes);
}

static void counted_copy(struct dev *d, void *to, const void *from, size_t bytes)
{
    bool to_device = on_device(to), from_device = on_device(from);
    bus.in += to_device && !from_device ? bytes : 0;
    bus.out += from_device && !to_device ? bytes : 0;
    real->copy(d, to, from, bytes);
}

static void count_open(void)
{
    static struct dev_ops counted;
    if (!real) /* else a test that failed has left the counting ones */
        real = gpu->ops;
    counted = *real;
    held_count = 0;
    counted.alloc = counted_alloc;
    counted.free = counted_free;
    counted.host_alloc = counted_host_alloc;
    counted.copy = counted_copy;
    gpu->ops = &counted;
}

static void count_close(void)
{
    gpu->ops = real;
    assert_int_equal(held_count, 0);
}

/* What a round has left. */
struct trace {
    struct digest payload, state, local;
    enum codec_kind codec; /* full-precision rounds have another */
    struct bus crossed;
};
/* An aggregator in a link: a contribution is summed with two others', and committed at once. Its
 * arithmetic is the CPU's, so each round also compares the GPU's outer step with it (state_after).
 */
struct round_link {
    struct link link; /* first */
    struct env *env;
    struct outer_state replica;
    struct arena arena;
    struct trace *trace;
};

static enum err said_hello(struct link *link, const struct wire_hello *m,
                           struct wire_hello_answer *a)
{
    struct round_link *l = (struct round_link *)link;
    (void)m;
    *a = (struct wire_hello_answer){
        .outcome = ROUND_CURRENT, .term = 1, .instance = 2, .fragment_count = fragments.count};
    for (unsigned f = 0; f < fragments.count; f++)
        a->fragments[f] = (struct wire_fragment_state){.round = l->replica.state[f].round,
                                                       .state = l->replica.state[f].digest};
    return ERR_OK;
}

/* Another site's, of values that need no agreement with other sites'. */
static void other(struct round_link *l, const struct codec *c, unsigned f, unsigned site,
                  struct codec_payload *out)
{
    size_t n = fragments.f[f].elements;
    float *z = arena_array(&l->arena, n, sizeof *z);
    uint8_t *payload = arena_alloc(&l->arena, c->payload_max(c, n));
    for (size_t i = 0; i < n; i++)
        z[i] = (float)((int)rng_below(site, RNG_TEST, i, 2001) - 1000) / (1 << 16);
    codec_seed(l->replica.work, 1, site, f, l->replica.state[f].round);
    assert_int_equal(c->encode(c,
                               &(struct codec_call){.work = l->replica.work,
                                                    .grid = l->replica.state[f].codes,
                                                    .count = n},
                               payload, &out->size_bytes, z, z),
                     ERR_OK);
    out->data = payload;
}

static enum err contribute(struct link *link, const struct wire_contribution *m,
                           const uint8_t *payload, struct wire_answer *a)
{
    struct round_link *l = (struct round_link *)link;
    unsigned f = m->fragment, first = m->round == LEFT_OUT;
    const struct codec *c = codec_get((enum codec_kind)m->codec);
    size_t n = fragments.f[f].elements, bytes;
    struct codec_payload p[SITES] = {{payload, m->payload_bytes}};
    struct manifest *made = arena_alloc(&l->arena, sizeof *made);
    uint8_t *aggregate = arena_alloc(&l->arena, c->aggregate_max(c, n, SITES));
    assert_int_equal(c->check(c, &(struct codec_call){.count = n}, NULL, payload, m->payload_bytes),
                     ERR_OK);
    other(l, c, f, 1, &p[1]);
    other(l, c, f, 2, &p[2]);
    assert_int_equal(c->aggregate(c, &(struct codec_call){.work = l->replica.work, .count = n},
                                  aggregate, &bytes, p + first, SITES - first),
                     ERR_OK);
    *made = (struct manifest){.run = "t",
                              .config = digest_of(canonical, strlen(canonical)),
                              .fragment = f,
                              .round = m->round,
                              .parent = m->parent,
                              .codec = m->codec,
                              .site_count = SITES};
    for (unsigned i = 0; i < SITES; i++)
        made->sites[i] = (struct manifest_entry){.site = i,
                                                 .included = i >= first,
                                                 .weight = i ? 1 : m->weight,
                                                 .residual_ratio = i ? 0 : m->residual_ratio,
                                                 .payload = digest_of(p[i].data, p[i].size_bytes),
                                                 .payload_bytes = p[i].size_bytes};
    assert_int_equal(outer_state_apply(&l->replica, made, aggregate, bytes), ERR_OK);
    assert_int_equal(outer_state_commit(&l->replica, f, made, aggregate, bytes), ERR_OK);
    l->trace->payload = m->payload;
    l->trace->codec = c->kind;
    a->outcome = ROUND_RECEIPT;
    return ERR_OK;
}

static enum err poll(struct link *link, const struct wire_poll *m, uint32_t hold_ms,
                     struct wire_poll_answer *a)
{
    struct round_link *l = (struct round_link *)link;
    (void)hold_ms;
    a->answer.outcome = ROUND_COMMIT;
    return outer_state_manifest(&l->replica, m->fragment, m->round, &a->manifest);
}

static enum err fetch(struct link *link, const struct wire_fetch *m, uint8_t *out,
                      size_t size_bytes, struct wire_answer *a)
{
    struct round_link *l = (struct round_link *)link;
    struct file_map map;
    TRY(outer_state_aggregate(&l->replica, m->fragment, m->round, &map));
    assert_int_equal(map.size_bytes, size_bytes);
    memcpy(out, map.data, map.size_bytes);
    l->env->ops->unmap(l->env, &map);
    a->outcome = ROUND_NONE;
    return ERR_OK;
}

static enum err report(struct link *link, const struct wire_report *m, struct wire_answer *answer)
{
    (void)link;
    (void)m;
    *answer = (struct wire_answer){.outcome = ROUND_CURRENT};
    return ERR_OK;
}

static void counters(struct link *link, struct link_counters *out)
{
    (void)link;
    *out = (struct link_counters){0};
}

static const struct link_ops link_ops = {.hello = said_hello,
                                         .contribute = contribute,
                                         .poll = poll,
                                         .fetch = fetch,
                                         .report = report,
                                         .counters = counters};

/* Odd codecs leak and step with delayed Nesterov, so that all that a member may keep is kept.
 */
static struct outer_state_options options(enum codec_kind k, bool site)
{
    struct outer_state_options o = {.fragments = &fragments, .residuals = site, .keep = 3};
    o.schedule = schedule_streaming(1000, 10, fragments.count, 1, k);
    o.discards = site && k % 2;
    assert_int_equal(
        outer_opt_make(&o.outer, k % 2 ? OUTER_OPT_DELAYED : OUTER_OPT_MOMENTUM, 0.7f, 0.9f),
        ERR_OK);
    if (k % 2)
        o.outer.delay = 2;
    else if (radial && !codec_get(k)->summable)
        o.outer.merge = MERGE_RADIAL;
    return o;
}

static struct env *env_of(const char *root, const char *name)
{
    struct env *w;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(env_posix_open(&w, path), ERR_OK);
    return w;
}

/* at: memory of the member's device. */
static struct digest trained(struct site *s, const struct outer_state *m, unsigned f,
                             uint64_t round, float *at, struct bus *crossed)
{
    size_t n = fragments.f[f].elements;
    for (size_t i = 0; i < n; i++) /* rows that move at other rates, and some that do not */
        local[i] = m->state[f].theta[i] -
                   (float)((int)rng_below(9 + round, RNG_TEST, i, 2001) - 1000) *
                       ldexpf(1, -14 - (int)(i / DEV_BLOCK % 5)) * (float)(i / DEV_BLOCK % 7 != 3);
    m->dev->ops->copy(m->dev, at, local, n * sizeof *local);
    struct bus before = bus;
    struct site_submission w = {
        .fragment = f, .round = round, .base = round, .weight = 0.75f, .data_cursor = 100};
    assert_int_equal(exchange(s, m, &w, at), ERR_OK);
    *crossed = (struct bus){.in = bus.in - before.in, .out = bus.out - before.out};
    m->dev->ops->copy(m->dev, local, at, n * sizeof *local);
    assert_memory_equal(local, m->state[f].theta, n * sizeof *local);
    return digest_of(local, n * sizeof *local);
}

/* Theta of this round, wherever it is taken from, is the theta that the site continued with. */
static void check_theta(struct outer_state *m, unsigned f, uint64_t round, float *at,
                        const struct trace *t)
{
    size_t bytes = fragments.f[f].elements * sizeof *at;
    assert_int_equal(outer_state_load_theta(m, f, round, at), ERR_OK);
    m->dev->ops->copy(m->dev, local, at, bytes);
    struct digest d = digest_of(local, bytes);
    if (!digest_equal(&d, &t[(round - 1) * fragments.count + f].local))
        fail_msg("theta of state %u of fragment %u is another's", (unsigned)round, f);
}

/* What a slot holds is given up when the host's array becomes another state: an older one read
 * back, one tried ahead, a damaged one made good, a snapshot. */
static void check_stale(struct round_link *l, struct outer_state *m, float *at,
                        const struct trace *t)
{
    unsigned f = fragments.count - 1; /* whose theta lies in the slot */
    size_t n = fragments.f[f].elements, bytes = outer_state_snapshot_bytes(m, f);
    struct manifest manifest;
    uint8_t *snapshot = arena_alloc(&l->arena, bytes);
    char path[64];
    assert_ptr_equal(staging_kept(&m->staging, STAGING_THETA, m->state[f].theta),
                     m->staging.slot[STAGING_THETA]);
    check_theta(m, f, ROUNDS, at, t);
    assert_int_equal(outer_state_ahead(m, f, local), ERR_OK);
    check_theta(m, f, ROUNDS - 1, at, t);
    check_theta(m, f, ROUNDS, at, t);
    for (unsigned i = 0; i < 3; i++) {
        staging_in(&m->staging, STAGING_THETA, m->state[f].theta, n);
        staging_keep(&m->staging, STAGING_THETA, m->state[f].theta);
        if (i == 2)
            assert_int_equal(outer_state_ahead(m, f, local), ERR_OK);
        if (i == 0) { /* to the state before */
            snprintf(path, sizeof path, "frag/%u/%u/state", f, ROUNDS);
            assert_int_equal(m->env->ops->write(m->env, path, &(struct file_part){"x", 1}, 1),
                             ERR_OK);
            assert_int_equal(outer_state_load_fragment(m, f), ERR_OK);
        } else {
            assert_int_equal(outer_state_manifest(&l->replica, f, ROUNDS - 1, &manifest), ERR_OK);
            assert_int_equal(outer_state_snapshot_write(&l->replica, f, snapshot), ERR_OK);
            assert_int_equal(outer_state_snapshot_adopt(m, &manifest, snapshot, bytes, false),
                             ERR_OK);
        }
        assert_int_equal(m->state[f].round, ROUNDS - (i == 0));
        check_theta(m, f, m->state[f].round, at, t);
    }
}

static void rounds(struct trace trace[ROUNDS * FRAGMENTS], enum codec_kind k, struct dev *d)
{
    char root[64];
    struct round_link l = {.link = {&link_ops}, .arena = arena_make(0)};
    struct outer_state_options ao = options(k, false), so = options(k, true);
    struct site_options o = {.run = "t",
                             .name = "s0",
                             .site_count = SITES,
                             .canonical = canonical,
                             .error_feedback_decay = so.discards ? 0.5f : 1,
                             .straggler_ms = 1000,
                             .seed = 1};
    struct arena host = dev_arena(d);
    struct outer_state m;
    struct site *s;
    float *at;
    bool shm = !access("/dev/shm", W_OK); /* what is durable a thousand times need not be so */
    snprintf(root, sizeof root, "%s/test_cuda_outer.XXXXXX", shm ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(root));
    l.env = env_of(root, "aggregator");
    assert_int_equal(outer_state_open(&l.replica, l.env, cpu, &ao, &l.arena), ERR_OK);
    assert_int_equal(outer_state_begin(&l.replica, initial), ERR_OK);
    struct env *w = env_of(root, "site");
    assert_int_equal(outer_state_open(&m, w, d, &so, &host), ERR_OK);
    assert_int_equal(site_open(&s, w, &l.link, &m, &o, &host), ERR_OK);
    assert_int_equal(site_start(s, initial), ERR_OK);
    assert_int_equal(dev_alloc(d, (void **)&at, sizeof local), ERR_OK);
    for (unsigned i = 0; i < ROUNDS * fragments.count; i++) {
        l.trace = &trace[i];
        trace[i].local =
            trained(s, &m, i % fragments.count, i / fragments.count, at, &trace[i].crossed);
        trace[i].state = outer_state_digest(&m, true);
    }
    if (stale)
        check_stale(&l, &m, at, trace);
    dev_free(d, at);
    site_close(s);
    outer_state_close(&m);
    env_posix_close(w);
    outer_state_close(&l.replica);
    env_posix_close(l.env);
    arena_free(&host);
    arena_free(&l.arena);
    assert_int_equal(file_remove_tree(root), ERR_OK);
}

static void test_every_codec(void **state)
{
    (void)state;
    radial = true;
    for (unsigned k = 0; k < CODEC_COUNT; k++) {
        struct trace on_cpu[ROUNDS * FRAGMENTS], on_gpu[ROUNDS * FRAGMENTS];
        rounds(on_cpu, (enum codec_kind)k, cpu);
        rounds(on_gpu, (enum codec_kind)k, gpu);
        for (unsigned i = 0; i < ROUNDS * FRAGMENTS; i++) {
            const struct trace *a = &on_cpu[i], *b = &on_gpu[i];
            if (!digest_equal(&a->payload, &b->payload) || !digest_equal(&a->state, &b->state) ||
                !digest_equal(&a->local, &b->local))
                fail_msg("%s, fragment %u, round %u: %s differs",
                         codec_get((enum codec_kind)k)->name, i % FRAGMENTS, i / FRAGMENTS,
                         digest_equal(&a->payload, &b->payload) ? "state" : "payload");
        }
    }
    radial = false;
}

/* The byte budget of staging.h, to what is compressed: theta, residual and momentum (and what is
 * gathered) go in once each, and come back; a contribution that was left out is given back to the
 * residual. The rest is payloads (of top-k 132 bytes for up to 82 of a chunk's), what says which
 * blocks they have, and the outer metrics' two samples: no local parameters, delta, mean or decoded
 * payload, nor the theta that training continues from. fixed is made on the host: z goes out,
 * residual and mean, and what a payload decodes to, come in. */
static void check_bus(enum codec_kind k, const struct trace *t, unsigned i)
{
    const struct codec *c = codec_get(t->codec);
    size_t n = fragments.f[i % fragments.count].elements, round = i / fragments.count;
    size_t state = k % 2 ? 3 : 2; /* options() */
    size_t back = round == LEFT_OUT, rest = 4 * (n / DEV_BLOCK) + 4096,
           times = c->kind == CODEC_TOPK ? 2 : 1;
    size_t payload = times * c->payload_max(c, n),
           aggregate = times * c->aggregate_max(c, n, SITES);
    bool stays = fragments.count == 1 && round; /* theta, since the outer step before */
    size_t least_in = 4 * n * (1 + state + back - stays);
    size_t least_out = 4 * n * (1 + state + back) + metrics_bytes(n);
    size_t in = least_in + payload * (1 + back) + aggregate + 2 * (SITES + 1) * rest;
    size_t out = least_out + payload + rest;
    const struct bus *b = &t->crossed;
    in += c->kind == CODEC_FIXED ? 4 * n * (2 + back) : 0;
    out += c->kind == CODEC_FIXED ? 4 * n : 0;
    if (b->in < least_in || b->in > in || b->out < least_out || b->out > out)
        fail_msg(
            "%s, fragment %u of %u, round %zu: %zu bytes in (%zu to %zu) and %zu out (%zu to %zu)",
            c->name, i % fragments.count, fragments.count, round, b->in, least_in, in, b->out,
            least_out, out);
}

static void test_bus(void **state)
{
    (void)state;
    count_open();
    for (unsigned k = 0; k < CODEC_COUNT + 2;
         k++) { /* two also in one fragment, whose theta stays */
        enum codec_kind kind =
            (enum codec_kind)(k < CODEC_COUNT ? k : k - CODEC_COUNT + CODEC_INT8);
        struct trace on_gpu[ROUNDS * FRAGMENTS];
        fragments = k < CODEC_COUNT ? large : whole;
        rounds(on_gpu, kind, gpu);
        for (unsigned i = 0; i < ROUNDS * fragments.count; i++)
            check_bus(kind, &on_gpu[i], i);
    }
    fragments = small;
    count_close();
}

static void test_stale(void **state)
{
    (void)state;
    struct trace trace[ROUNDS * FRAGMENTS];
    stale = true;
    rounds(trace, CODEC_INT8, gpu);
    stale = false;
}

static void check_close(size_t got, size_t said)
{
    if (got * 100 < said * 98 || got * 100 > said * 102)
        fail_msg("%zu bytes were taken, the table says %zu", got, said);
}

/* What the memory table says is what is taken, to 2 %, and a CPU takes nothing of a device. */
static void test_memory(void **state)
{
    (void)state;
    struct staging s = {0};
    struct trace trace[ROUNDS * FRAGMENTS];
    float x;
    size_t n = fragments.f[0].elements;
    assert_int_equal(staging_open(&s, cpu, n, OUTER_SLABS), ERR_OK);
    assert_ptr_equal(staging_at(&s, STAGING_BESIDE + 1, &x), &x);
    assert_ptr_equal(staging_in(&s, STAGING_THETA, &x, 1), &x);
    for (unsigned i = 0; i < STAGING_SLOTS; i++)
        assert_null(s.slot[i]);
    staging_close(&s);
    fragments = large;
    count_open();
    for (unsigned k = 0; k < 2; k++) {
        static const enum codec_kind kinds[] = {CODEC_INT4, CODEC_INT8};
        struct outer_state_options o = options(kinds[k], true);
        struct outer_memory replica = outer_state_memory(&o, false),
                            site = site_memory(&o, SITES, 0, false);
        taken = (struct outer_memory){0};
        rounds(trace, kinds[k], gpu);
        taken.device -= sizeof local; /* the trainer's */
        check_close(taken.device, replica.device + site.device);
        check_close(taken.host, replica.host + site.host);
    }
    fragments = small;
    count_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_codec),
                                       cmocka_unit_test(test_bus), cmocka_unit_test(test_stale),
                                       cmocka_unit_test(test_memory)};
    const struct fragment_plan plan = {.count = FRAGMENTS}, one = {.count = 1};
    struct arena arena = arena_make(0);
    log_min(LOG_ERROR);
    if (cuda_test_open(&gpu, "f32") != ERR_OK) {
        printf("SKIPPED: %s\n", err_message());
        return CUDA_TEST_SKIP;
    }
    if (cpu_open(&cpu, &(struct dev_options){.model_type = "f32", .threads = 1}) != ERR_OK)
        return 1;
    struct table table = toy_table(tensors, 9), more = toy_table(large_tensors, 2);
    toy_add(&more, "wide", LARGE, 1);
    if (more.elements > ELEMENTS_MAX || fragment_make(&small, &table, &plan, &arena) != ERR_OK ||
        fragment_make(&large, &more, &plan, &arena) != ERR_OK ||
        fragment_make(&whole, &more, &one, &arena) != ERR_OK)
        return 1;
    fragments = small;
    for (size_t i = 0; i < more.elements; i++)
        initial[i] = (float)((int)rng_below(1, RNG_TEST, i, 129) - 64) / 64;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dev_close(gpu);
    dev_close(cpu);
    arena_free(&arena);
    return failed;
}
