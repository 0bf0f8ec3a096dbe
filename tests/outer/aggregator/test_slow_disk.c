/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that hangs, under the real link and the real aggregator: what breaks here is the small
 * calls of all other sites, which must be answered while one site's bytes are on their way to the
 * disk, or are verified and made durable, or while a round is committed. The last test measures how
 * long they take next to a commit on a disk of that many bytes a second; with a large state:
 *   STATE_MIB=2048 DISK_MB_S=100 build/tests/test_slow_disk    LOCKED=1: with the service's lock
 * held The disk hangs until the test lets it continue, so a lock that is held meanwhile shows as a
 * call without an answer.
 */
#include <stdatomic.h>
#include "outer/aggregator/aggregator.h"
#include "tests/outer/link/link_fake.h"

enum { N = 3, COUNT = 700 };
static const char *const names[N] = {"a", "b", "c"};
static const char canonical[] = "outer.every=4\n";

enum op { OP_WRITE, OP_VERIFY, OP_SYNC, OP_STATE, OP_CURRENT };
static struct { /* the disk */
    const struct env_ops *real;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum op hang; /* the next `left` such operations hang */
    unsigned left, hanging;
    double bytes_per_s; /* of whole files; 0: as fast as it is */
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct {
    struct dev *cpu;
    struct tensor tensor;
    struct table table;
    struct fragments fragments;
    struct schedule schedule;
    struct env *env;
    struct env_ops ops;
    struct outer_state replica;
    struct aggregator *a;
    struct link_server *server;
    int port;
    struct arena perm;
    uint8_t *payload;
    size_t payload_bytes;
    struct link_service service;
} t;
static size_t parameters = COUNT; /* of the model */
static bool locked;               /* a commit holds the lock, as if work() did all of it */

/* ---- the disk ---- */

static void disk_meet(enum op op)
{
    pthread_mutex_lock(&disk.mutex);
    if (disk.hang == op && disk.left) {
        disk.left--;
        disk.hanging++;
        pthread_cond_broadcast(&disk.changed);
        while (disk.hanging)
            pthread_cond_wait(&disk.changed, &disk.mutex);
    }
    pthread_mutex_unlock(&disk.mutex);
}

static void disk_hang(enum op op, unsigned count)
{
    pthread_mutex_lock(&disk.mutex);
    disk.hang = op;
    disk.left = count;
    pthread_mutex_unlock(&disk.mutex);
}

static void disk_wait(unsigned count)
{
    pthread_mutex_lock(&disk.mutex);
    while (disk.hanging < count)
        pthread_cond_wait(&disk.changed, &disk.mutex);
    pthread_mutex_unlock(&disk.mutex);
}

static void disk_go_on(void)
{
    pthread_mutex_lock(&disk.mutex);
    disk.hanging = disk.left = 0;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.mutex);
}

static enum err slow_write(struct env *w, int handle, uint64_t offset, const void *data, size_t n)
{
    disk_meet(OP_WRITE);
    return disk.real->part_write(w, handle, offset, data, n);
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n >= k && strcmp(path + n - k, end) == 0;
}

static enum err slow_file(struct env *w, const char *path, const struct file_part *parts, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += parts[i].size_bytes;
    if (disk.bytes_per_s > 0)
        usleep((useconds_t)((double)bytes / disk.bytes_per_s * 1e6));
    if (ends_with(path, "/state"))
        disk_meet(OP_STATE);
    if (ends_with(path, "/CURRENT"))
        disk_meet(OP_CURRENT);
    return disk.real->write(w, path, parts, n);
}

static enum err slow_map(struct env *w, const char *path, struct file_map *m)
{
    if (strncmp(path, "spool/", 6) == 0)
        disk_meet(OP_VERIFY);
    return disk.real->map(w, path, m);
}

static enum err slow_close(struct env *w, int handle, const char *path, const char *final)
{
    if (final)
        disk_meet(OP_SYNC);
    return disk.real->part_close(w, handle, path, final);
}

/* ---- the run ---- */

static void payload_make(void)
{
    const struct codec *c = codec_get(CODEC_BF16);
    size_t n = t.fragments.f[0].elements;
    float *z = calloc(n, sizeof *z), *residual = calloc(n, sizeof *residual);
    assert_true(z && residual);
    for (size_t i = 0; i < n; i++)
        z[i] = i < COUNT ? (float)((int)(i % 97) - 48) / 64 : 0;
    t.payload = arena_alloc(&t.perm, c->payload_max(c, n));
    assert_int_equal(c->encode(c,
                               &(struct codec_call){.work = t.replica.work,
                                                    .grid = t.replica.state[0].codes,
                                                    .count = n},
                               t.payload, &t.payload_bytes, residual, z),
                     ERR_OK);
    free(z);
    free(residual);
}

static uint64_t work_locked(void *self, bool *stop)
{
    (void)self;
    return link_service_work(&t.service, stop);
}

static int open_run_with(unsigned sites, uint64_t receive_bytes)
{
    size_t elements = (parameters + DEV_BLOCK - 1) / DEV_BLOCK * DEV_BLOCK;
    float *slab = calloc(elements, sizeof *slab);
    struct dev_options device = {.kind = "cpu", .model_type = "f32", .threads = 1};
    struct outer_state_options mo = {.fragments = &t.fragments, .keep = 2};
    memset(&t, 0, sizeof t);
    t.perm = arena_make(0);
    t.tensor = (struct tensor){
        .name = "w", .shape = {(int64_t)parameters, 1}, .count = parameters, .layer = -1};
    t.table = (struct table){
        .tensors = &t.tensor, .count = 1, .elements = elements, .parameters = parameters};
    mo.schedule = t.schedule = schedule_streaming(2, 1, 1, 1, CODEC_INT8);
    assert_int_equal(
        fragment_make(&t.fragments, &t.table, &(struct fragment_plan){.count = 1}, &t.perm),
        ERR_OK);
    assert_int_equal(outer_opt_make(&mo.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    assert_int_equal(dev_open(&t.cpu, &device), ERR_OK);
    assert_int_equal(file_remove_tree(scratch("run")), ERR_OK);
    assert_int_equal(env_posix_open(&t.env, scratch("run")), ERR_OK);
    disk.real = t.env->ops;
    t.ops = *t.env->ops;
    t.ops.write = slow_file;
    t.ops.part_write = slow_write;
    t.ops.part_close = slow_close;
    t.ops.map = slow_map;
    t.env->ops = &t.ops;
    assert_int_equal(outer_state_open(&t.replica, t.env, t.cpu, &mo, &t.perm), ERR_OK);
    assert_int_equal(outer_state_begin(&t.replica, slab), ERR_OK);
    free(slab);
    payload_make();
    struct aggregator_options o = {.run = "test",
                                   .sites = {.names = names, .count = sites},
                                   .canonical = canonical,
                                   .strict = true};
    assert_int_equal(aggregator_open(&t.a, t.env, &t.replica, &o, &t.perm), ERR_OK);
    struct link_service service = t.service = aggregator_service(t.a);
    if (locked) {
        service.work = work_locked;
        service.commit = link_service_no_commit;
    }
    struct link_listen l = {.address = "127.0.0.1:0",
                            .tls = fake_tls("ca.pem", "aggregator"),
                            .keepalive_ms = FAKE_KEEPALIVE_MS,
                            .receive_bytes = receive_bytes};
    assert_int_equal(link_serve(&t.server, &l, &service, &t.port), ERR_OK);
    return 0;
}

static int open_run(void **state)
{
    (void)state;
    return open_run_with(2, 0);
}

static int open_run_small(void **state) /* memory for two streams */
{
    (void)state;
    return open_run_with(3, (uint64_t)LINK_RECEIVE_MIB_MIN << 20);
}

static int close_run(void **state)
{
    (void)state;
    disk_go_on(); /* where a test failed */
    link_shutdown(t.server, 1000);
    aggregator_close(t.a);
    outer_state_close(&t.replica);
    env_posix_close(t.env);
    dev_close(t.cpu);
    arena_free(&t.perm);
    return 0;
}

static struct wire_head head_of(const char *site)
{
    struct wire_head h = {.run = "test",
                          .term = AGGREGATOR_TERM_FIRST,
                          .incarnation = 1,
                          .instance = 1,
                          .roster_version = 1};
    snprintf(h.site, sizeof h.site, "%s", site);
    h.config = digest_of(canonical, strlen(canonical));
    return h;
}

static void hello(struct link *l, const char *site)
{
    static struct wire_hello m;
    static struct wire_hello_answer answer;
    m = (struct wire_hello){.head = head_of(site), .major = WIRE_MAJOR, .config = canonical};
    if (l->ops->hello(l, &m, &answer) != ERR_OK)
        fail_msg("no answer to a hello: %s", err_message());
    assert_int_equal(answer.outcome, ROUND_JOIN);
}

static enum round_outcome poll_once(struct link *l, const char *site,
                                    struct wire_poll_answer *answer)
{
    struct wire_poll m = {.head = head_of(site)};
    if (l->ops->poll(l, &m, 0, answer) != ERR_OK)
        fail_msg("no answer to a poll: %s", err_message());
    return answer->answer.outcome;
}

struct giver {
    struct link *l;
    const char *site;
    pthread_t thread;
    enum err e;
    atomic_bool ended;
    struct wire_answer answer;
};

static void *give(void *self)
{
    struct giver *g = self;
    struct wire_contribution m = {.head = head_of(g->site),
                                  .codec = CODEC_BF16,
                                  .payload_bytes = t.payload_bytes,
                                  .weight = 1,
                                  .grid = outer_state_grid(&t.replica, 0)};
    m.payload = digest_of(t.payload, t.payload_bytes);
    g->e = g->l->ops->contribute(g->l, &m, t.payload, &g->answer);
    atomic_store(&g->ended, true);
    return NULL;
}

static enum round_outcome given(struct giver *g)
{
    assert_int_equal(g->e, ERR_OK);
    return g->answer.outcome;
}

/* a's contribution hangs in that operation; b says hello, polls, contributes; a's process comes
 * again. */
static void others_are_answered(enum op op)
{
    static struct wire_poll_answer polled;
    struct link *a = fake_dial(t.port, "ca.pem", "a"), *again = fake_dial(t.port, "ca.pem", "a"),
                *b = fake_dial(t.port, "ca.pem", "b");
    struct giver first = {.l = a, .site = "a"}, second = {.l = again, .site = "a"},
                 other = {.l = b, .site = "b"};
    hello(a, "a");
    disk_hang(op, 1);
    assert_int_equal(pthread_create(&first.thread, NULL, give, &first), 0);
    disk_wait(1);
    hello(b, "b");
    assert_int_equal(poll_once(b, "b", &polled), ROUND_PENDING);
    give(&other);
    assert_int_equal(given(&other), ROUND_RECEIPT);
    assert_string_equal(polled.answer.text, "a,b");
    assert_int_equal(poll_once(b, "b", &polled), ROUND_PENDING);
    assert_string_equal(polled.answer.text, "a"); /* no receipt before it is durable */
    give(&second);
    assert_int_equal(given(&second), ROUND_FULL);
    assert_true(second.answer.retry_ms > 0);
    disk_go_on();
    pthread_join(first.thread, NULL);
    assert_int_equal(given(&first), ROUND_RECEIPT);
    give(&second);
    assert_true(given(&second) == ROUND_RECEIPT || given(&second) == ROUND_BEHIND);
    while (poll_once(b, "b", &polled) == ROUND_PENDING)
        usleep(10000);
    assert_int_equal(manifest_included(&polled.manifest), 2);
    a->ops->close(a);
    again->ops->close(again);
    b->ops->close(b);
}

static void while_bytes_are_written(void **state)
{
    (void)state;
    others_are_answered(OP_WRITE);
}

static void while_a_payload_is_verified(void **state)
{
    (void)state;
    others_are_answered(OP_VERIFY);
}

static void while_a_payload_is_made_durable(void **state)
{
    (void)state;
    others_are_answered(OP_SYNC);
}

/* Both have contributed, and the disk hangs in the commit: its length has no bound, and still all
 * calls are answered, from the state before. */
static void others_are_answered_in_a_commit(enum op op)
{
    static struct wire_poll_answer polled;
    static uint8_t snapshot[8 * 1024 + 16];
    struct link *a = fake_dial(t.port, "ca.pem", "a"), *b = fake_dial(t.port, "ca.pem", "b");
    struct giver one = {.l = a, .site = "a"}, two = {.l = b, .site = "b"};
    struct wire_report report = {.head = head_of("b"), .state = t.replica.state[0].digest};
    struct wire_fetch fetch = {.head = head_of("b"), .what = WIRE_SNAPSHOT};
    struct wire_answer answer = {0};
    struct digest before = t.replica.state[0].digest;
    size_t bytes = outer_state_snapshot_bytes(&t.replica, 0);
    assert_true(bytes <= sizeof snapshot);
    hello(a, "a");
    hello(b, "b");
    disk_hang(op, 1);
    give(&one);
    give(&two);
    assert_int_equal(given(&one), ROUND_RECEIPT);
    assert_int_equal(given(&two), ROUND_RECEIPT);
    disk_wait(1);
    hello(b, "b");
    assert_int_equal(poll_once(b, "b", &polled), ROUND_PENDING);
    assert_int_equal(b->ops->report(b, &report, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_CURRENT);
    give(&two); /* the same bytes once more */
    assert_int_equal(given(&two), ROUND_RECEIPT);
    answer = (struct wire_answer){0};
    assert_int_equal(b->ops->fetch(b, &fetch, snapshot, bytes, &answer), ERR_OK);
    assert_int_equal(answer.outcome, op == OP_STATE ? ROUND_NONE : ROUND_FULL);
    if (op == OP_STATE) {
        struct digest d = digest_of(snapshot, bytes);
        assert_true(digest_equal(&d, &before));
    }
    disk_go_on();
    while (poll_once(b, "b", &polled) == ROUND_PENDING)
        usleep(10000);
    assert_int_equal(manifest_included(&polled.manifest), 2);
    a->ops->close(a);
    b->ops->close(b);
}

static void while_a_state_is_written(void **state)
{
    (void)state;
    others_are_answered_in_a_commit(OP_STATE);
}

static void while_a_round_passes_its_commit_point(void **state)
{
    (void)state;
    others_are_answered_in_a_commit(OP_CURRENT);
}

/* ---- how long the small calls take ---- */

enum call { CALL_HELLO, CALL_POLL, CALL_REPORT, CALLS };
struct caller {
    enum call call;
    struct link *l;
    pthread_t thread;
    atomic_bool *over;
    uint64_t longest_ms;
    atomic_uint answered;
};

static void *call_again(void *self)
{
    struct caller *c = self;
    struct wire_report report = {.head = head_of("b"), .state = t.replica.state[0].digest};
    struct wire_hello hello_b = {.head = head_of("b"), .major = WIRE_MAJOR, .config = canonical};
    struct wire_poll poll = {.head = head_of("b")};
    struct wire_hello_answer *said = calloc(1, sizeof *said);
    struct wire_poll_answer *polled = calloc(1, sizeof *polled);
    for (uint64_t begin = 0; !atomic_load(c->over); usleep(5000)) {
        struct wire_answer answer = {0};
        begin = begin ? begin : clock_mono_ms(); /* of the first one that is not answered yet */
        enum err e = c->call == CALL_HELLO  ? c->l->ops->hello(c->l, &hello_b, said)
                     : c->call == CALL_POLL ? c->l->ops->poll(c->l, &poll, 0, polled)
                                            : c->l->ops->report(c->l, &report, &answer);
        uint64_t ms = c->answered ? clock_mono_ms() - begin : 0; /* the first one connects */
        c->longest_ms = ms > c->longest_ms ? ms : c->longest_ms;
        c->answered += e == ERR_OK;
        begin = e == ERR_OK ? 0 : begin;
    }
    free(said);
    free(polled);
    return NULL;
}

/* Compared with the commit of the same run: a machine that is busy with other things is slower at
 * both. */
static void small_calls_do_not_wait_for_a_commit(void **state)
{
    (void)state;
    struct aggregator_status *status = calloc(1, sizeof *status);
    const char *rate = getenv("DISK_MB_S");
    atomic_bool over = false;
    struct caller c[CALLS];
    struct link *a = fake_dial(t.port, "ca.pem", "a"), *b = fake_dial(t.port, "ca.pem", "b");
    struct giver one = {.l = a, .site = "a"}, two = {.l = b, .site = "b"};
    size_t bytes = outer_state_snapshot_bytes(&t.replica, 0);
    uint64_t longest = 0;
    hello(a, "a");
    hello(b, "b");
    disk.bytes_per_s = rate ? atof(rate) * 1e6 : (double)bytes / 3;
    for (unsigned i = 0; i < CALLS; i++) {
        c[i] = (struct caller){.call = i, .l = fake_dial(t.port, "ca.pem", "b"), .over = &over};
        assert_int_equal(pthread_create(&c[i].thread, NULL, call_again, &c[i]), 0);
    }
    give(&one);
    for (unsigned i = 0; i < CALLS; i++)
        while (!atomic_load(&c[i].answered))
            usleep(1000);
    uint64_t begin = clock_mono_ms();
    give(&two); /* and the round is sealed */
    while (!status->round[0]) {
        usleep(10000);
        aggregator_status(t.a, status);
    }
    uint64_t commit_ms = clock_mono_ms() - begin;
    atomic_store(&over, true);
    for (unsigned i = 0; i < CALLS; i++) {
        static const char *const names_of[CALLS] = {"hello", "poll", "report"};
        pthread_join(c[i].thread, NULL);
        c[i].l->ops->close(c[i].l);
        printf("state of %zu MiB, commit %llu ms: longest %s %llu ms of %u\n", bytes >> 20,
               (unsigned long long)commit_ms, names_of[i], (unsigned long long)c[i].longest_ms,
               c[i].answered);
        longest = c[i].longest_ms > longest ? c[i].longest_ms : longest;
    }
    disk.bytes_per_s = 0;
    free(status);
    a->ops->close(a);
    b->ops->close(b);
    assert_int_equal(given(&one), ROUND_RECEIPT);
    assert_int_equal(given(&two), ROUND_RECEIPT);
    assert_true(commit_ms > 2500);
    assert_true(longest < commit_ms / 3);
}

static int open_run_large(void **state)
{
    const char *mebi = getenv("STATE_MIB");
    (void)state;
    parameters = mebi ? (size_t)strtoull(mebi, NULL, 10) << 17 : 1 << 18; /* theta and momentum */
    locked = getenv("LOCKED") != NULL;
    return open_run_with(2, 0);
}

static int close_run_large(void **state)
{
    parameters = COUNT;
    locked = false;
    return close_run(state);
}

/* Memory for what comes in is one total: a stream more than it is for waits, and holds up no small
 * calls. One that takes the place of another of its site, whose connection broke unseen, does not
 * wait. */
static void a_stream_waits_for_its_turn(void **state)
{
    (void)state;
    static struct wire_poll_answer polled;
    struct giver g[] = {{.site = "a"}, {.site = "b"}, {.site = "c"}, {.site = "a"}};
    for (int i = 0; i < 4; i++)
        g[i].l = fake_dial(t.port, "ca.pem", g[i].site);
    for (int i = 0; i < 3; i++)
        hello(g[i].l, g[i].site);
    disk_hang(OP_WRITE, 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&g[i].thread, NULL, give, &g[i]), 0);
        disk_wait(i < 2 ? (unsigned)i + 1 : 2);
    }
    assert_int_equal(poll_once(g[2].l, "c", &polled),
                     ROUND_PENDING); /* on its control connection */
    usleep(100000);
    assert_false(atomic_load(&g[2].ended));
    give(&g[3]); /* its predecessor frees its place, which c may take */
    assert_int_equal(given(&g[3]), ROUND_FULL);
    disk_go_on();
    for (int i = 0; i < 3; i++) {
        pthread_join(g[i].thread, NULL);
        assert_int_equal(given(&g[i]), ROUND_RECEIPT);
    }
    for (int i = 0; i < 4; i++)
        g[i].l->ops->close(g[i].l);
}

static int open_all(void **state)
{
    link_tune();
    log_min(LOG_ERROR);
    if (scratch_open(state) != 0)
        return -1;
    fake_files();
    fake_issue(TLS_SITE, "c");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(while_bytes_are_written, open_run, close_run),
        cmocka_unit_test_setup_teardown(while_a_payload_is_verified, open_run, close_run),
        cmocka_unit_test_setup_teardown(while_a_payload_is_made_durable, open_run, close_run),
        cmocka_unit_test_setup_teardown(while_a_state_is_written, open_run, close_run),
        cmocka_unit_test_setup_teardown(while_a_round_passes_its_commit_point, open_run, close_run),
        cmocka_unit_test_setup_teardown(a_stream_waits_for_its_turn, open_run_small, close_run),
        cmocka_unit_test_setup_teardown(small_calls_do_not_wait_for_a_commit, open_run_large,
                                        close_run_large),
    };
    return cmocka_run_group_tests(tests, open_all, scratch_close);
}
