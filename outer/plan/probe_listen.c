/* SPDX-License-Identifier: Apache-2.0 */
/* The listening end of atoll probe: accepts every payload, answers every fetch, stores nothing. */
#include "outer/plan/probe.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/identity/tls.h"
#include "outer/link/link.h"

struct listener {
    uint8_t *bytes;
    size_t size_bytes;
    uint64_t have;
};

static void listener_hello(void *self, const char *peer, const struct wire_hello *m,
                           struct wire_hello_answer *answer)
{
    (void)self, (void)peer, (void)m;
    memset(answer, 0, sizeof *answer);
    answer->outcome = ROUND_MISMATCH; /* the listener serves no run */
    snprintf(answer->text, sizeof answer->text,
             "the other end is atoll probe --listen, which only measures; stop it and start "
             "atoll serve there");
}

static void listener_offer(void *self, const char *peer, const struct wire_contribution *m,
                           struct wire_answer *answer, void **upload)
{
    (void)peer, (void)m;
    memset(answer, 0, sizeof *answer);
    answer->outcome = ROUND_RESUME;
    *upload = self;
}

static void listener_chunk(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n,
                           struct wire_answer *answer)
{
    (void)self, (void)upload, (void)data;
    memset(answer, 0, sizeof *answer);
    answer->offset = offset + n;
}

static void listener_finish(void *self, void *upload, bool complete, struct wire_answer *answer)
{
    (void)self, (void)upload;
    memset(answer, 0, sizeof *answer);
    answer->outcome = complete ? ROUND_RECEIPT : ROUND_RESUME;
}

static void listener_poll(void *self, const char *peer, const struct wire_poll *m,
                          struct wire_poll_answer *answer)
{
    (void)self, (void)peer, (void)m;
    answer->answer = (struct wire_answer){.outcome = ROUND_GONE};
}

/* m->round: number of bytes requested. */
static void listener_fetch(void *self, const char *peer, const struct wire_fetch *m,
                           struct link_content *out, struct wire_answer *answer)
{
    struct listener *t = self;
    (void)peer;
    memset(answer, 0, sizeof *answer);
    out->data = t->bytes;
    out->size_bytes = m->round < t->size_bytes ? m->round : t->size_bytes;
    out->source = t;
    if (m->offset > out->size_bytes)
        answer->outcome = ROUND_INVALID;
}

static void listener_fetched(void *self, void *source)
{
    (void)self, (void)source;
}

static void listener_report(void *self, const char *peer, const struct wire_report *m,
                            struct wire_answer *answer)
{
    (void)self, (void)peer, (void)m;
    memset(answer, 0, sizeof *answer);
    answer->outcome = ROUND_CURRENT;
}

static void listener_leave(void *self, const char *peer, const struct wire_leave *m,
                           struct wire_answer *answer)
{
    (void)m;
    printf("%s has measured\n", peer ? peer : "a caller");
    fflush(stdout);
    listener_report(self, peer, NULL, answer);
}

static uint64_t listener_work(void *self, bool *stop)
{
    (void)self;
    *stop = false;
    return UINT64_MAX;
}

enum err probe_listen(struct run *r, int64_t most_mib)
{
    struct link_listen l = {.address = r->o.serve_listen, .sites = 1};
    struct listener t = {NULL, (size_t)most_mib << 20, 0};
    const struct link_service service = {.self = &t,
                                         .hello = listener_hello,
                                         .offer = listener_offer,
                                         .chunk = listener_chunk,
                                         .store = link_service_no_store,
                                         .stored = link_service_no_stored,
                                         .finish = listener_finish,
                                         .verify = link_service_no_verify,
                                         .verified = link_service_no_verified,
                                         .poll = listener_poll,
                                         .fetch = listener_fetch,
                                         .fetched = listener_fetched,
                                         .report = listener_report,
                                         .leave = listener_leave,
                                         .work = listener_work,
                                         .commit = link_service_no_commit};
    struct link_server *server;
    sigset_t signals;
    int port, got;
    int64_t days;
    TRY_ALLOC(t.bytes = arena_alloc(&r->perm, t.size_bytes));
    TRY(run_tls(r, "aggregator", &l.tls));
    TRY(tls_check(&l.tls, r->s.run_name, TLS_AGGREGATOR, "aggregator", clock_wall_s(), &days));
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before the link starts its threads */
    TRY(link_serve(&server, &l, &service, &port));
    printf("listening on %s, port %d; Ctrl-C ends it\n", l.address, port);
    fflush(stdout);
    sigwait(&signals, &got);
    link_shutdown(server, 1000);
    return ERR_OK;
}
