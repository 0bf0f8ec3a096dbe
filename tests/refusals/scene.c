/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/refusals/scene.h"
#include <signal.h>
#include "outer/config/identity.h"
#include "tests/outer/toy_replica.h"

#ifdef SANITIZED
enum { PATIENCE = 4 }; /* as the test's own time limit (tests/CMakeLists.txt) */
#else
enum { PATIENCE = 1 };
#endif
enum { STEPS = 40, EVERY = 4, CALL_MS = PATIENCE * 60000, WELL_MS = PATIENCE * 60000 };
static const char *const names[SCENE_SITES] = {"a", "b", "c"};
static const char canonical[] = "outer.every=4\n";

struct scene scene;
static struct {
    struct dev *cpu;
    struct codec_work *work;
    struct table table;
    struct fragments fragments;
    struct schedule schedule;
    float *slab;
    struct arena forever, perm;
    struct env *env;
    struct aggregator *a;
    struct link_server *server;
    char revoked[80], directory[80];
    enum codec_kind codec;
    uint32_t calls_per_s;
    unsigned opened, strikes;
    struct signer *signers[SCENE_SITES];
} t;

/* ---- the aggregator ---- */

static void log_drop(void *self, enum log_level level, const char *line)
{
    (void)self, (void)level;
    if (getenv("VERBOSE"))
        fprintf(stderr, "%s\n", line);
}

static struct signer *signer_of(const char *role, const char *name)
{
    char uri[TLS_URI_MAX];
    struct signer *s = NULL;
    struct link_tls files = fake_tls("ca.pem", name);
    snprintf(uri, sizeof uri, "atoll://test/%s/%s", role, name);
    if (tls_signer_open(&s, &files, uri) != ERR_OK)
        fail_msg("%s", err_message());
    return s;
}

static void signers_open(void)
{
    scene.signer = signer_of("aggregator", "aggregator");
    for (unsigned i = 0; i < SCENE_SITES; i++)
        t.signers[i] = signer_of("site", names[i]);
}

int scene_prepare(void **state)
{
    static struct tensor tensors[TOY_TENSORS_MAX];
    signal(SIGPIPE, SIG_IGN); /* our own clients write to a server that hangs up */
    if (fake_prepare(state) != 0)
        return -1;
    log_to(log_drop, NULL);
    memcpy(scene.root, scratch_root, sizeof scene.root);
    snprintf(t.revoked, sizeof t.revoked, "%s/revoked.txt", scene.root);
    fake_issue(TLS_SITE, "c");
    fake_issue(TLS_SITE, "z"); /* not in the roster */
    fake_issue(TLS_OPERATOR, "operator");
    signers_open();
    t.forever = arena_make(0);
    t.table = toy_table(tensors, 4);
    t.slab = toy_slab(&t.table, &t.forever);
    bool made = t.slab && toy_device(&t.cpu, &t.work) == ERR_OK &&
                fragment_make(&t.fragments, &t.table, &(struct fragment_plan){.count = 1},
                              &t.forever) == ERR_OK;
    return made ? 0 : -1;
}

static void scene_end_as(enum err failed)
{
    if (!t.server)
        return;
    while (failed != ERR_OK && aggregator_failed(t.a) != failed) /* its next look shows it */
        usleep(1000);
    link_shutdown(t.server, 1000);
    t.server = NULL;
    assert_int_equal(aggregator_failed(t.a), failed);
    aggregator_close(t.a);
    outer_state_close(&scene.replica);
    env_posix_close(t.env);
    arena_free(&t.perm);
}

static void scene_close(void)
{
    scene_end_as(ERR_OK);
}

int scene_finish(void **state)
{
    scene_close();
    scene.signer->ops->close(scene.signer);
    for (unsigned i = 0; i < SCENE_SITES; i++)
        t.signers[i]->ops->close(t.signers[i]);
    codec_close(t.work);
    dev_close(t.cpu);
    arena_free(&t.forever);
    return scratch_close(state);
}

/* In t.directory, which may have begun. */
static enum err aggregator_start(void)
{
    struct outer_state_options mo = {
        .fragments = &t.fragments, .schedule = t.schedule, .keep = OUTER_STATES_MIN};
    struct aggregator_options o = {
        .run = "test",
        .sites = {.names = names, .count = SCENE_SITES},
        .canonical = canonical,
        .strict = true,
        .bounds = {.norm_limit = 1000, .share_max = 100, .strikes_max = t.strikes},
        .files = {.revoked_path = t.revoked},
        .signer = scene.signer};
    t.perm = arena_make(0);
    assert_int_equal(env_posix_open(&t.env, t.directory), ERR_OK);
    assert_int_equal(toy_replica(&scene.replica, t.env, t.cpu, mo, t.slab, &t.perm), ERR_OK);
    return aggregator_open(&t.a, t.env, &scene.replica, &o, &t.perm);
}

static void aggregator_make(void)
{
    snprintf(t.directory, sizeof t.directory, "%s/run.%u", scene.root, t.opened++);
    assert_int_equal(aggregator_start(), ERR_OK);
}

void scene_halted(void)
{
    scene_end_as(ERR_STALE);
    assert_int_equal(aggregator_start(), ERR_STALE);
    outer_state_close(&scene.replica);
    env_posix_close(t.env);
    arena_free(&t.perm);
}

static void commit_first(void)
{
    for (unsigned i = 0; i < SCENE_SITES; i++) {
        size_t n;
        struct scene_site *s = scene_fresh(i);
        uint8_t *payload = scene_payload(i, &n);
        struct wire_contribution m = scene_offer(s, payload, n);
        assert_string_equal(scene_contribute(s->name, &m, payload, n), "answer receipt");
        free(payload);
    }
    struct aggregator_status status = {0};
    for (int i = 0; i < 12000 && status.round[0] == 0; i++) {
        usleep(10000);
        aggregator_status(t.a, &status);
    }
    assert_int_equal(status.round[0], 1);
}

void scene_open(enum codec_kind codec)
{
    if (t.server && t.codec == codec)
        return;
    scene_close();
    t.codec = codec;
    t.schedule = schedule_streaming(STEPS, EVERY, 1, 1, codec);
    aggregator_make();
    struct link_service service = aggregator_service(t.a);
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = SCENE_SITES,
                                 .calls_per_s = t.calls_per_s,
                                 .tls = fake_tls("ca.pem", "aggregator"),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS};
    assert_int_equal(link_serve(&t.server, &listen, &service, &scene.port), ERR_OK);
    for (unsigned i = 0; i < SCENE_SITES; i++)
        scene.site[i] = (struct scene_site){
            .name = names[i], .signer = t.signers[i], .index = i, .incarnation = 10, .instance = i};
    commit_first();
    scene.digest = scene.replica.state[0].digest;
}

void scene_open_strikes(unsigned strikes)
{
    scene_close();
    t.strikes = strikes;
    scene_open(CODEC_INT4);
    t.strikes = 0;
    t.codec = CODEC_COUNT; /* fits no row */
}

void scene_open_rate(uint32_t calls_per_s)
{
    scene_close();
    t.calls_per_s = calls_per_s;
    scene_open(CODEC_INT4);
    t.calls_per_s = 0;
    t.codec = CODEC_COUNT; /* fits no row */
}

void scene_revoke(const char *text)
{
    struct file_part part = {text, strlen(text)};
    assert_int_equal(file_write(t.revoked, &part, 1, 0644), ERR_OK);
}

void scene_well(void)
{
    if (!t.server)
        return;
    struct aggregator_status status;
    uint64_t start = clock_mono_ms();
    struct wire_hello m = scene_hello(&scene.site[1]);
    assert_string_equal(scene_call("b", LINK_HELLO, &m), "answer current");
    assert_in_range(clock_mono_ms() - start, 0, WELL_MS);
    aggregator_status(t.a, &status);
    assert_int_equal(status.failed, ERR_OK);
    assert_int_equal(status.round[0], 1);
    assert_memory_equal(&scene.replica.state[0].digest, &scene.digest, sizeof scene.digest);
}

/* ---- what a site says ---- */

struct wire_head scene_head(const struct scene_site *s)
{
    struct wire_head h = {.run = "test",
                          .roster_version = 1,
                          .term = s->term,
                          .incarnation = s->incarnation,
                          .instance = s->instance,
                          .config = identity_digest(canonical)};
    snprintf(h.site, sizeof h.site, "%s", s->name);
    return h;
}

struct wire_hello scene_hello(const struct scene_site *s)
{
    const struct outer_state_fragment *state = &scene.replica.state[0];
    struct wire_hello m = {.head = scene_head(s),
                           .major = WIRE_MAJOR,
                           .config = canonical,
                           .has_state = true,
                           .fragment_count = 1};
    m.fragments[0] = (struct wire_fragment_state){
        .round = state->round, .state = state->digest, .manifest = state->manifest};
    struct manifest made;
    if (state->round && outer_state_manifest(&scene.replica, 0, state->round - 1, &made) == ERR_OK)
        m.fragments[0].proof = signed_manifest_proof(&made);
    assert_int_equal(s->signer->ops->certificate(s->signer, m.identity, &m.identity_bytes), ERR_OK);
    return m;
}

struct scene_site *scene_fresh(unsigned index)
{
    struct scene_site *s = &scene.site[index];
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    static struct wire_hello_answer answer;
    struct hand h;
    uint8_t *data;
    size_t n;
    s->incarnation++;
    s->instance += SCENE_SITES;
    struct wire_hello m = scene_hello(s);
    hand_open(&h, scene.port, s->name);
    struct link_call *c = hand_call(&h, link_paths[LINK_HELLO], CALL_MS);
    assert_int_equal(wire_encode(WIRE_HELLO, &m, &a, &data, &n), ERR_OK);
    assert_true(link_call_send(c, link_buffer(data, n)));
    grpc_byte_buffer *bb = link_call_recv(c);
    assert_non_null(bb);
    assert_int_equal(link_decode(bb, WIRE_HELLO_ANSWER, &answer, &a), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_CURRENT);
    hand_end(c, NULL);
    hand_close(&h);
    arena_free(&a);
    s->term = scene.term = answer.term;
    scene.instance = answer.instance;
    return s;
}

uint8_t *scene_payload(unsigned index, size_t *n)
{
    return toy_payload(&scene.replica, t.work, 0, index, n);
}

struct wire_contribution scene_offer(const struct scene_site *s, const uint8_t *payload, size_t n)
{
    const struct outer_state_fragment *state = &scene.replica.state[0];
    return (struct wire_contribution){.head = scene_head(s),
                                      .round = state->round,
                                      .payload_bytes = n,
                                      .codec = (uint32_t)outer_state_codec(&scene.replica, 0),
                                      .data_cursor = 1000 * state->round,
                                      .parent = state->manifest,
                                      .grid = outer_state_grid(&scene.replica, 0),
                                      .payload = digest_of(payload, n),
                                      .weight = 1};
}

/* ---- what came back ---- */

static char said[128];

const char *scene_status(grpc_status_code code)
{
    static const char *const text[] = {"OK",
                                       "CANCELLED",
                                       "UNKNOWN",
                                       "INVALID_ARGUMENT",
                                       "DEADLINE",
                                       "NOT_FOUND",
                                       "ALREADY_EXISTS",
                                       "PERMISSION_DENIED",
                                       "RESOURCE_EXHAUSTED",
                                       "FAILED_PRECONDITION",
                                       "ABORTED",
                                       "OUT_OF_RANGE",
                                       "UNIMPLEMENTED",
                                       "INTERNAL",
                                       "UNAVAILABLE"};
    if (code == GRPC_STATUS_UNAVAILABLE)
        return "connection";
    snprintf(said, sizeof said, "status %s",
             (size_t)code < sizeof text / sizeof *text ? text[code] : "?");
    return said;
}

const char *scene_outcome(enum round_outcome o)
{
    snprintf(said, sizeof said, "answer %s", round_outcome_name(o));
    return said;
}

const char *scene_err(enum err e)
{
    snprintf(said, sizeof said, "site %s", err_name(e));
    return said;
}

/* Consumes bb. */
static const char *answer_read(enum wire_kind kind, grpc_byte_buffer *bb, struct arena *a,
                               enum round_outcome *out)
{
    static union {
        struct wire_hello_answer hello;
        struct wire_poll_answer poll;
        struct wire_mask_answer mask;
        struct wire_answer plain;
    } answer;
    if (link_decode(bb, kind, &answer, a) != ERR_OK)
        fail_msg("%s", err_message());
    *out = kind == WIRE_HELLO_ANSWER  ? answer.hello.outcome
           : kind == WIRE_POLL_ANSWER ? answer.poll.answer.outcome
           : kind == WIRE_MASK_ANSWER ? answer.mask.answer.outcome
                                      : answer.plain.outcome;
    return scene_outcome(*out);
}

const char *scene_call_on(struct hand *h, enum link_method method, const void *message)
{
    enum wire_kind request = method == LINK_FETCH ? WIRE_FETCH : link_kinds[method].request,
                   kind = method == LINK_FETCH ? WIRE_DOWNLOAD : link_kinds[method].answer;
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    enum round_outcome outcome;
    grpc_byte_buffer *bb;
    uint8_t *data;
    size_t n;
    assert_int_equal(wire_encode(request, message, &a, &data, &n), ERR_OK);
    struct link_call *c = hand_call(h, link_paths[method], CALL_MS);
    link_call_send(c, link_buffer(data, n));
    link_call_half_close(c);
    grpc_status_code code = hand_end(c, &bb);
    const char *text = bb ? answer_read(kind, bb, &a, &outcome) : scene_status(code);
    arena_free(&a);
    return text;
}

const char *scene_call(const char *certificate, enum link_method method, const void *message)
{
    struct hand h;
    hand_open(&h, scene.port, certificate);
    const char *text = scene_call_on(&h, method, message);
    hand_close(&h);
    return text;
}

/* ---- contributions ---- */

static void stream_close(struct scene_stream *s)
{
    grpc_call_cancel(s->c->call, NULL);
    link_call_close(s->c);
    hand_close(&s->h);
    arena_free(&s->arena);
}

/* The next answer; the status where none comes. */
static const char *stream_answer(struct scene_stream *s, enum round_outcome *outcome)
{
    grpc_byte_buffer *bb = link_call_recv(s->c);
    *outcome = ROUND_INVALID;
    if (bb)
        return answer_read(WIRE_ANSWER, bb, &s->arena, outcome);
    link_call_wait(s->c, &s->c->status);
    return scene_status(s->c->end.code);
}

const char *scene_begin(struct scene_stream *s, const char *certificate,
                        const struct wire_contribution *m)
{
    enum round_outcome outcome;
    uint8_t *data;
    size_t n;
    s->arena = arena_make(WIRE_DECODE_BYTES_MAX);
    hand_open(&s->h, scene.port, certificate);
    s->c = hand_call(&s->h, link_paths[LINK_CONTRIBUTE], CALL_MS);
    struct wire_contribution offer = *m;
    for (unsigned i = 0; i < SCENE_SITES && !scene.bare; i++)
        if (strcmp(m->head.site, names[i]) == 0)
            assert_int_equal(signed_header_sign(t.signers[i], &offer), ERR_OK);
    assert_int_equal(wire_encode(WIRE_UPLOAD, &offer, &s->arena, &data, &n), ERR_OK);
    link_call_send(s->c, link_buffer(data, n));
    const char *text = stream_answer(s, &outcome);
    if (outcome != ROUND_RESUME)
        stream_close(s);
    return text;
}

void scene_chunk(struct scene_stream *s, const struct wire_chunk *chunk, const uint8_t *data)
{
    uint8_t *message = malloc(WIRE_CHUNK_HEADER_MAX + chunk->size_bytes);
    assert_non_null(message);
    size_t n = wire_chunk_header(message, chunk);
    memcpy(message + n, data, chunk->size_bytes);
    link_call_send(s->c, link_buffer(message, n + chunk->size_bytes));
    free(message);
}

const char *scene_end(struct scene_stream *s, bool said_all)
{
    enum round_outcome outcome;
    const char *text;
    if (said_all)
        link_call_half_close(s->c);
    do
        text = stream_answer(s, &outcome);
    while (outcome == ROUND_NONE);
    stream_close(s);
    return text;
}

const char *scene_contribute(const char *certificate, const struct wire_contribution *m,
                             const uint8_t *payload, size_t n)
{
    struct scene_stream s;
    const char *text = scene_begin(&s, certificate, m);
    if (strcmp(text, "answer resume") != 0)
        return text;
    assert_in_range(n, 1, WIRE_CHUNK_BYTES);
    struct wire_chunk chunk = {0, m->payload_bytes, digest_crc32c(0, payload, n), (uint32_t)n};
    scene_chunk(&s, &chunk, payload);
    return scene_end(&s, true);
}
