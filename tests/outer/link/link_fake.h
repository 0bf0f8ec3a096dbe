/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_FAKE_H
#define LINK_FAKE_H
/* A small aggregator for tests of the link: keeps what it is told, answers what the test sets.
 * Certificates of one run in the scratch directory, made as an operator makes them. All under the
 * link's service lock; a test reads after the call came back.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/link/link.h"
#include "outer/identity/tls.h"
#include "tests/inner/scratch.h"

enum { FAKE_BYTES_MAX = 16 << 20, FAKE_KEEPALIVE_MS = 2000 };

/* What must happen in the end, and takes milliseconds on an idle machine, gets so long. What must
 * not happen is shown by another sign than a short time: by what is counted, by what is logged, or
 * by a far longer time that it would have taken.
 */
enum { FAKE_PATIENCE_MS = 120000 };
/* Waits until the expression holds. */
#define UNTIL(holds)                                                                               \
    do {                                                                                           \
        for (uint64_t begin_ms = clock_mono_ms();                                                  \
             !(holds) && clock_mono_ms() - begin_ms < FAKE_PATIENCE_MS;)                           \
            usleep(10000);                                                                         \
        assert_true(holds);                                                                        \
    } while (0)

struct fake {
    char peer[TLS_URI_MAX], config[256], left[256];
    struct wire_hello hello;
    struct wire_report report;
    struct wire_contribution offered;
    atomic_uint hellos, offers, finishes, broken, fetches, fetched, works,
        polls; /* read at any time */
    uint8_t stored[FAKE_BYTES_MAX];
    struct blocks blocks;
    uint64_t have, resumed_at; /* bytes stored; when the last offer came */
    uint64_t fail_at;          /* chunk() at this offset answers SUPERSEDED; 0: never */
    pthread_barrier_t
        *pause; /* chunk() waits here twice when it reaches pause_at, with the lock held */
    uint64_t pause_at;
    atomic_bool committed, commit_next; /* work() makes the second into the first */
    const char *listed;                 /* the only peer that is let in; NULL: all */
    _Atomic(const char *)
        serial;       /* of the certificate that is revoked, in lower case; NULL: none */
    atomic_bool stop; /* set by the test while the server runs */
    uint64_t work_every_ms;
    unsigned offer_ms; /* offer() takes so long */
    ledger_sink *book; /* of the server's end */
    void *book_self;
};

static inline bool fake_lets(struct fake *f, const char *peer, enum round_outcome *outcome)
{
    snprintf(f->peer, sizeof f->peer, "%s", peer);
    bool in = !f->listed || strcmp(f->listed, peer) == 0;
    if (!in)
        *outcome = ROUND_EXCLUDED;
    return in;
}

static inline const char *fake_revoked(void *self, const char *peer,
                                       const struct wire_certificate *c)
{
    const struct fake *f = self;
    const char *serial = atomic_load(&f->serial);
    (void)peer;
    return serial && strcasecmp(serial, c->serial) == 0 ? "this certificate is revoked" : NULL;
}

static inline void fake_hello(void *self, const char *peer, const struct wire_hello *m,
                              struct wire_hello_answer *answer)
{
    struct fake *f = self;
    f->hellos++;
    if (!fake_lets(f, peer, &answer->outcome))
        return;
    f->hello = *m;
    snprintf(f->config, sizeof f->config, "%s", m->config);
    answer->outcome = ROUND_CURRENT;
    answer->term = 7;
    answer->instance = 0xfedcba9876543210;
    answer->fragment_count = m->fragment_count;
    memcpy(answer->fragments, m->fragments, sizeof answer->fragments);
}

static inline void fake_offer(void *self, const char *peer, const struct wire_contribution *m,
                              struct wire_answer *answer, void **upload)
{
    struct fake *f = self;
    usleep(1000 * f->offer_ms);
    f->offers++;
    if (!fake_lets(f, peer, &answer->outcome))
        return;
    f->offered = *m;
    answer->outcome = m->payload_bytes <= FAKE_BYTES_MAX ? ROUND_RESUME : ROUND_INVALID;
    if (f->blocks.total != m->payload_bytes || blocks_sum(&f->blocks) != f->have) {
        blocks_make(&f->blocks, m->payload_bytes);
        blocks_fill(&f->blocks, f->have);
    }
    f->resumed_at = f->have;
    answer->offset = blocks_first(&f->blocks);
    answer->blocks = f->blocks;
    *upload = answer->outcome == ROUND_RESUME ? f : NULL;
}

static inline void fake_chunk(void *self, void *upload, uint64_t offset, const uint8_t *data,
                              size_t n, struct wire_answer *answer)
{
    struct fake *f = self;
    assert_ptr_equal(upload, f);
    enum blocks_fit fit = blocks_fits(&f->blocks, offset, n);
    if (f->pause && f->have >= f->pause_at) {
        pthread_barrier_t *pause = f->pause;
        f->pause = NULL;
        pthread_barrier_wait(pause);
        pthread_barrier_wait(pause);
    }
    if (f->fail_at && offset >= f->fail_at) {
        answer->outcome = ROUND_SUPERSEDED;
        return;
    }
    answer->outcome = fit == BLOCKS_GAP ? ROUND_RESUME : ROUND_NONE;
    if (fit != BLOCKS_NEW)
        return;
    memcpy(f->stored + offset, data, n);
    blocks_add(&f->blocks, offset, n);
    f->have = blocks_sum(&f->blocks);
}

static inline void fake_finish(void *self, void *upload, bool complete, struct wire_answer *answer)
{
    struct fake *f = self;
    assert_ptr_equal(upload, f);
    f->finishes++;
    f->broken += !complete;
    if (complete)
        answer->outcome = f->have == f->blocks.total ? ROUND_RECEIPT : ROUND_RESUME;
}

static inline void fake_poll(void *self, const char *peer, const struct wire_poll *m,
                             struct wire_poll_answer *answer)
{
    struct fake *f = self;
    (void)m;
    f->polls++; /* a held one comes again */
    if (!fake_lets(f, peer, &answer->answer.outcome))
        return;
    answer->answer.outcome = f->committed ? ROUND_COMMIT : ROUND_PENDING;
    snprintf(answer->answer.text, sizeof answer->answer.text, "waiting for b");
    snprintf(answer->manifest.run, sizeof answer->manifest.run, "test");
    answer->manifest.round = m->round;
    answer->manifest.parent = digest_of("parent", 6);
    answer->manifest.site_count = 1;
}

static inline void fake_fetch(void *self, const char *peer, const struct wire_fetch *m,
                              struct link_content *out, struct wire_answer *answer)
{
    struct fake *f = self;
    if (!fake_lets(f, peer, &answer->outcome))
        return;
    if (m->round == 99) {
        answer->outcome = ROUND_GONE;
        return;
    }
    if (m->offset > f->have || m->size_bytes > f->have - m->offset) {
        answer->outcome = ROUND_INVALID;
        return;
    }
    f->fetches++;
    out->data = f->stored;
    out->size_bytes = f->have;
    out->source = f;
}

static inline void fake_fetched(void *self, void *source)
{
    assert_ptr_equal(self, source);
    ((struct fake *)self)->fetched++;
}

static inline void fake_report(void *self, const char *peer, const struct wire_report *m,
                               struct wire_answer *answer)
{
    struct fake *f = self;
    if (!fake_lets(f, peer, &answer->outcome))
        return;
    f->report = *m;
    f->commit_next = true;
    answer->outcome = ROUND_CURRENT;
}

static inline void fake_leave(void *self, const char *peer, const struct wire_leave *m,
                              struct wire_answer *answer)
{
    struct fake *f = self;
    if (!fake_lets(f, peer, &answer->outcome))
        return;
    snprintf(f->left, sizeof f->left, "%s", m->text);
    answer->outcome = ROUND_CURRENT;
}

static inline void fake_operate(void *self, const char *peer, const struct wire_operate *m,
                                struct wire_answer *answer)
{
    (void)self, (void)peer, (void)m;
    answer->outcome = ROUND_DENIED;
}

static inline uint64_t fake_work(void *self, bool *stop)
{
    struct fake *f = self;
    f->works++;
    f->committed = f->committed || f->commit_next;
    f->commit_next = false;
    *stop = f->stop;
    return f->work_every_ms ? clock_mono_ms() + f->work_every_ms : UINT64_MAX;
}

static inline struct link_service fake_service(struct fake *f)
{
    return (struct link_service){.self = f,
                                 .revoked = fake_revoked,
                                 .hello = fake_hello,
                                 .offer = fake_offer,
                                 .chunk = fake_chunk,
                                 .store = link_service_no_store,
                                 .stored = link_service_no_stored,
                                 .finish = fake_finish,
                                 .verify = link_service_no_verify,
                                 .verified = link_service_no_verified,
                                 .poll = fake_poll,
                                 .fetch = fake_fetch,
                                 .fetched = fake_fetched,
                                 .report = fake_report,
                                 .leave = fake_leave,
                                 .operate = fake_operate,
                                 .work = fake_work,
                                 .commit = link_service_no_commit};
}

/* ---- the run's files: ca, aggregator, sites a and b ---- */

static inline void fake_issue(enum tls_role role, const char *name)
{
    const char *hosts[] = {"localhost", "127.0.0.1"};
    int64_t now = clock_wall_s();
    struct tls_request r = {.directory = scratch_root,
                            .out = scratch_root,
                            .role = role,
                            .name = name,
                            .hosts = hosts,
                            .host_count = role == TLS_AGGREGATOR ? 2 : 0,
                            .validity = {now - 60, now + 40 * 86400}};
    assert_int_equal(tls_issue(&r), ERR_OK);
}

static inline void fake_files(void)
{
    int64_t now = clock_wall_s();
    assert_int_equal(tls_authority(scratch_root, "test", false,
                                   (struct tls_validity){now - 60, now + 90 * 86400}),
                     ERR_OK);
    fake_issue(TLS_AGGREGATOR, "aggregator");
    fake_issue(TLS_SITE, "a");
    fake_issue(TLS_SITE, "b");
}

/* Before all tests of a program: scratch directory, certificates, silence. */
static inline int fake_prepare(void **state)
{
    link_tune();
    log_to(NULL, NULL);
    if (tls_force13() != ERR_OK || scratch_open(state) != 0)
        return -1;
    fake_files();
    return 0;
}

/* Paths of a process's files; names live until the eighth call of scratch(). */
static inline struct link_tls fake_tls(const char *ca, const char *name)
{
    char file[96];
    struct link_tls t = {.ca = scratch(ca)};
    snprintf(file, sizeof file, "%s.pem", name);
    t.certificate = scratch(file);
    snprintf(file, sizeof file, "%s.key", name);
    t.key = scratch(file);
    return t;
}

static inline struct link_server *fake_serve(struct fake *f, int *port)
{
    char address[32];
    struct link_service service = fake_service(f);
    snprintf(address, sizeof address, "127.0.0.1:%d", *port);
    struct link_listen l = {.address = address,
                            .sites = 2,
                            .tls = fake_tls("ca.pem", "aggregator"),
                            .keepalive_ms = FAKE_KEEPALIVE_MS,
                            .book = f->book,
                            .book_self = f->book_self};
    struct link_server *s = NULL;
    if (link_serve(&s, &l, &service, port) != ERR_OK)
        fail_msg("%s", err_message());
    return s;
}

/* With these settings; where, how long it keeps alive and, unless given, site a's certificate are
 * added. */
static inline struct link *fake_dial_as(int port, struct link_dial d)
{
    char target[32];
    struct link *l = NULL;
    snprintf(target, sizeof target, "127.0.0.1:%d", port);
    d.target = target;
    d.keepalive_ms = FAKE_KEEPALIVE_MS;
    if (!d.tls.ca)
        d.tls = fake_tls("ca.pem", "a");
    if (link_open(&l, &d) != ERR_OK)
        fail_msg("%s", err_message());
    return l;
}

static inline struct link *fake_dial(int port, const char *ca, const char *name)
{
    return fake_dial_as(port, (struct link_dial){.tls = fake_tls(ca, name)});
}

/* A server with a zeroed service, and the link of site a to it. */
static inline struct link_server *fake_pair(struct fake *f, struct link **l)
{
    int port = 0;
    memset(f, 0, sizeof *f);
    struct link_server *s = fake_serve(f, &port);
    *l = fake_dial(port, "ca.pem", "a");
    return s;
}

/* n bytes that do not repeat soon; the caller's to free. */
static inline uint8_t *fake_payload(size_t n)
{
    uint8_t *p = malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 2654435761u >> 13);
    return p;
}

static inline struct wire_head fake_head(const char *site)
{
    struct wire_head h = {
        .run = "test", .term = 3, .incarnation = 5, .instance = 11, .roster_version = 1};
    snprintf(h.site, sizeof h.site, "%s", site);
    h.config = digest_of("config", 6);
    return h;
}

static inline enum err fake_say_hello(struct link *l, const char *site,
                                      struct wire_hello_answer *answer)
{
    static struct wire_hello m;
    m = (struct wire_hello){.head = fake_head(site),
                            .major = WIRE_MAJOR,
                            .config = "outer.every=50\n",
                            .has_state = true,
                            .fragment_count = 2};
    m.fragments[1] =
        (struct wire_fragment_state){.round = 41, .state = digest_of("s", 1), .sealed = true};
    return l->ops->hello(l, &m, answer);
}

#endif
