/* SPDX-License-Identifier: Apache-2.0 */
/* atoll serve: the aggregator of a run. Opens everything, lets the link's threads work, shows what
 * happens, ends when every site has what the run ends with, or when it is asked to. It begins at
 * round 0 by itself: the initial parameters are a function of run.seed, so the sites' must have the
 * same digest.
 */
#include "outer/run/serve.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/base/args.h"
#include "outer/aggregator/aggregator_scrub.h"
#include "outer/run/aggregator_parts.h"
#include "outer/run/process.h"
#include "outer/record/directory.h"
#include "outer/run/notify.h"
#include "outer/library/organs.h"
#include "outer/view/page.h"
#include "outer/record/feed.h"
#include "outer/config/run.h"
#include "outer/view/secure.h"
#include "outer/record/ledger_book.h"
#include "outer/identity/tls.h"
#include "outer/run/serve_rebuild.h"
#include "outer/run/serve_tell.h"
#include "outer/run/stop_signals.h"
#include "outer/record/version.h"

enum {
    LOOK_MS = 500,
    LEAVE_MS = 10000, /* after the last report: sites say good-bye */
    SELF_CALL_MS = 30000,
    OBSERVER_MS = 6000, /* at the end, for one who has called within this time */
    GRACE_MS = 3000     /* for answers under way at the end */
};

struct serve {
    struct serve_options o;
    struct run run;
    struct dev *cpu;
    struct env *env;
    struct outer_state replica;
    struct aggregator *aggregator;
    struct organs organs;
    struct link_server *server;
    struct serve_tell tell;
    struct ledger_book ledger;
    struct feed feed;                  /* of the records; the link calls it under its lock */
    const char *records;               /* their path */
    atomic_bool uncertified;           /* its own certificate has expired, or is not valid */
    atomic_uint_least64_t observed_ms; /* the last call of an observer; 0: none */
    atomic_bool observed_all;          /* it had all records then */
    struct page page;                  /* with serve.http */
    atomic_bool answers;               /* as the main thread saw it last */
    struct link_tls tls;
    struct signer *signer;
    sigset_t signals;
};

/* ---- opening ---- */

/* In the thread that works for the link. */
static void committed(void *self, const struct manifest *m, uint64_t waited_ms)
{
    struct serve *v = self;
    serve_tell_commit(&v->tell, m, waited_ms);
    ledger_book_predict(&v->ledger, "", m->fragment, m->round, 0, m->aggregate_bytes);
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].included)
            ledger_book_predict(
                &v->ledger,
                manifest_name(m, (const char *const *)v->run.o.outer_sites.items, m->sites[i].site),
                m->fragment, m->round, m->sites[i].payload_bytes, 0);
}

static void adopted(void *self, unsigned site, const struct wire_report *m)
{
    struct serve *v = self;
    serve_tell_adopt(&v->tell, site, m);
}

static void replanned(void *self, const struct aggregator_replanned *r)
{
    struct serve *v = self;
    serve_tell_replan(&v->tell, r);
}

static enum err revoked_paths(struct serve *v, const char **list, const char **copy)
{
    TRY_ALLOC(*list = arena_printf(&v->run.perm, "%s/revoked.txt", v->run.o.tls_dir));
    TRY_ALLOC(*copy = arena_printf(&v->run.perm, "%s/revoked", v->run.o.serve_dir));
    return ERR_OK;
}

static enum err records_piece(void *self, uint64_t at, char *text, size_t size, uint64_t *next)
{
    struct serve *v = self;
    enum err e = feed_piece(&v->feed, v->records, at, text, size, next);
    atomic_store(&v->observed_ms, clock_mono_ms());
    atomic_store(&v->observed_all, *next == at);
    return e;
}

static enum err open_aggregator(struct serve *v)
{
    struct aggregator_options o = aggregator_parts_options(&v->run);
    o.place.index = (unsigned)v->run.o.serve_index;
    o.place.count = (unsigned)v->run.o.outer_aggregators;
    o.strict = v->run.o.outer_mode == OUTER_MODE_STRICT;
    o.bounds.max_local_steps_offline = v->run.o.outer_max_local_steps_offline;
    o.tell = (struct aggregator_tell){committed, adopted, replanned, records_piece, v};
    TRY_ALLOC(v->records = arena_printf(&v->run.perm, "%s/%s", v->run.o.serve_dir, RECORD_FILE));
    o.signer = v->signer;
    TRY(organs_open_aggregator(&v->organs, &v->run, v->env));
    o.organs = v->organs.aggregator;
    TRY(revoked_paths(v, &o.files.revoked_path, &o.files.revoked_copy));
    if (!o.strict && o.sites.count < 3)
        log_event(LOG_WARN, "quorum",
                  "sites=%u why=\"a majority of %u is all of them: quorum waits like strict\"",
                  o.sites.count, o.sites.count);
    return aggregator_open(&v->aggregator, v->env, &v->replica, &o, &v->run.perm);
}

/* How long is the certificate valid? The file may be another one than at the start. */
static enum err certificate_check(struct serve *v)
{
    int64_t days_left = 0;
    enum err e = tls_check(&v->tls, v->run.s.run_name, TLS_AGGREGATOR, "aggregator", clock_wall_s(),
                           &days_left);
    serve_tell_certificate(&v->tell, days_left);
    return e;
}

/* Before anything is opened: what is wrong here needs a person. */
static enum err open_certificates(struct serve *v)
{
    char uri[TLS_URI_MAX];
    TRY(run_tls(&v->run, "aggregator", &v->tls));
    TRY(certificate_check(v));
    snprintf(uri, sizeof uri, "atoll://%.63s/aggregator/aggregator", v->run.s.run_name);
    return tls_signer_open(&v->signer, &v->tls, uri);
}

static enum err listen_with(struct serve *v, const struct link_service *service, bool books)
{
    struct link_listen l = {.address = v->run.o.serve_listen,
                            .self_call_ms = SELF_CALL_MS,
                            .sites = (unsigned)v->run.o.outer_sites.count,
                            .receive_bytes = (uint64_t)v->run.o.serve_receive_mib << 20,
                            .book = books ? ledger_book_add : NULL,
                            .book_self = &v->ledger};
    int port;
    l.tls = v->tls;
    TRY(link_serve(&v->server, &l, service, &port));
    log_event(LOG_INFO, books ? "listening" : "rebuilding", "address=%s port=%d", l.address, port);
    return ERR_OK;
}

static enum err open_link(struct serve *v)
{
    struct link_service service = aggregator_service(v->aggregator);
    return listen_with(v, &service, true);
}

/* ---- a rebuild from what the sites send ---- */

static enum err supply_wait(struct serve *v)
{
    struct timespec look = {LOOK_MS / 1000, (LOOK_MS % 1000) * 1000000L};
    while (!link_stopped(v->server)) {
        int signal = sigtimedwait(&v->signals, NULL, &look);
        if (signal > 0 && signal != SIGUSR2)
            return err_set(ERR_STOPPED,
                           "stopped on request, while it waited for the sites' states; "
                           "the same command begins again");
    }
    return ERR_OK;
}

static enum err supply_collect(struct serve *v, struct supply **supply)
{
    const struct outer_settings *k = &v->run.o;
    const struct outer_state_options state = run_outer_state(&v->run, false);
    struct supply_options o = {.run = v->run.s.run_name,
                               .sites = k->outer_sites.items,
                               .site_count = (unsigned)k->outer_sites.count,
                               .canonical = v->run.identity,
                               .strict = k->outer_mode == OUTER_MODE_STRICT,
                               .straggler_ms =
                                   (uint64_t)llround(1e3 * k->outer_straggler_timeout_s),
                               .index = (unsigned)k->serve_index,
                               .count = (unsigned)k->outer_aggregators,
                               .state = &state,
                               .signer = v->signer};
    TRY(serve_rebuild_empty(v->env));
    TRY(revoked_paths(v, &o.revoked_path, &o.revoked_copy));
    TRY(supply_open(supply, v->env, &o, &v->run.perm));
    struct link_service service = supply_service(*supply);
    enum err e = listen_with(v, &service, false);
    if (e == ERR_OK)
        e = supply_wait(v);
    if (v->server)
        link_shutdown(v->server, GRACE_MS);
    v->server = NULL;
    return e;
}

/* It listens and answers at its own port. */
static bool serve_ready(void *self, char *why, size_t size)
{
    struct serve *v = self;
    bool answers = atomic_load(&v->answers), uncertified = atomic_load(&v->uncertified);
    if (!answers || uncertified)
        snprintf(why, size, "%s",
                 answers ? "the aggregator's certificate has expired, or is not valid"
                         : "the aggregator does not answer calls (yet, or any more)");
    return answers && !uncertified;
}

static enum err open_page(struct serve *v)
{
    const char **dir;
    if (!*v->run.o.serve_http)
        return ERR_OK;
    TRY_ALLOC(dir = arena_array(&v->run.perm, 1, sizeof *dir));
    dir[0] = v->run.o.serve_dir;
    return page_try(&v->page, &(struct page_options){.address = v->run.o.serve_http,
                                                     .dirs = dir,
                                                     .dir_count = 1,
                                                     .ready = serve_ready,
                                                     .self = v});
}

/* What a person should know before waiting for hours: where it stands, and what it will take. */
static void say_what(const struct serve *v)
{
    char quoted[256];
    size_t elements[ROUND_FRAGMENTS_MAX];
    unsigned sites = (unsigned)v->run.o.outer_sites.count;
    struct outer_state_options o = v->replica.o;
    fragment_sizes(elements, &v->run.sync.fragments);
    log_event(LOG_INFO, "atoll", "version=%s commit=%s run=%s device=%s", version_number(),
              version_commit(), v->run.s.run_name, log_quote(quoted, sizeof quoted, v->cpu->note));
    log_event(LOG_INFO, "plan",
              "parameters=%zu memory_mib=%.1f up_per_site=%llu down_per_site=%llu",
              v->run.table.parameters, (double)outer_state_memory(&o, true).host / (1 << 20),
              (unsigned long long)schedule_upload_bytes(&v->run.sync.schedule, elements),
              (unsigned long long)schedule_download_bytes(&v->run.sync.schedule, elements, sites));
    tuning_log(&v->run.tuning, &v->run.s, &v->run.o,
               (int64_t)schedule_rounds(&v->run.sync.schedule, 0));
    struct round_masks m = keys_masks(&v->run.o);
    char text[SECURE_SENTENCE_MAX], quoted_text[SECURE_SENTENCE_MAX + 64];
    if (!m.on)
        return;
    secure_sentence(text, &m, sites, v->run.o.outer_mode == OUTER_MODE_STRICT);
    log_event(LOG_INFO, "secure", "text=%s", log_quote(quoted_text, sizeof quoted_text, text));
}

/* The directory is this run's; the replica has what it holds, or what the sites' directories hold.
 */
static enum err open_state(struct serve *v, struct serve_rebuild *b, struct supply **supply)
{
    if (v->o.from_sites) {
        TRY(supply_collect(v, supply));
        TRY(serve_rebuild_supplied(b, v->env, &v->run, *supply));
    }
    if (v->o.rebuild)
        TRY(serve_rebuild_claim(b, v->env, &v->run, v->o.rebuild));
    TRY(aggregator_claim(v->env, v->run.identity, &v->run.sync.schedule));
    TRY(aggregator_parts_state(&v->replica, &v->cpu, v->env, &v->run));
    bool rebuilds = v->o.rebuild || v->o.from_sites;
    return rebuilds ? serve_rebuild_states(b, &v->replica, &v->run, v->signer) : ERR_OK;
}

static enum err open_states(struct serve *v)
{
    struct serve_rebuild *b = arena_alloc(&v->run.perm, sizeof *b);
    struct supply *supply = NULL;
    TRY_ALLOC(b);
    enum err e = open_state(v, b, &supply);
    serve_rebuild_close(b);
    supply_close(supply);
    return e == ERR_OK && v->o.from_sites ? v->env->ops->remove(v->env, SUPPLY_DIRECTORY) : e;
}

static enum err open_all(struct serve *v)
{
    TRY(env_posix_open(&v->env, v->run.o.serve_dir));
    TRY(directory_check(v->run.o.serve_dir, DIRECTORY_SERVE));
    TRY(serve_tell_open(&v->tell, &v->run, v->env, v->o.command, &v->run.perm));
    const struct ledger_book_options ledger = {.directory = v->run.o.serve_dir,
                                               .run = v->run.s.run_name,
                                               .replica = "aggregator",
                                               .index = (unsigned)v->run.o.serve_index,
                                               .aggregators = (unsigned)v->run.o.outer_aggregators,
                                               .rounds = (uint64_t)v->run.o.outer_history_rounds};
    TRY(open_certificates(v));
    TRY(open_states(v));
    TRY(directory_claim(v->run.o.serve_dir, DIRECTORY_SERVE));
    TRY(ledger_book_open(&v->ledger, &ledger, &v->run.perm));
    TRY(serve_tell_start(&v->tell, &v->replica, v->cpu->note, &v->run.perm));
    say_what(v);
    process_directory_look(v->run.o.serve_dir);
    TRY(open_aggregator(v));
    TRY(open_page(v));
    return open_link(v);
}

static void close_all(struct serve *v)
{
    notify_stopping();
    page_close(&v->page);
    if (v->server)
        link_shutdown(v->server, GRACE_MS);
    ledger_book_close(&v->ledger);
    aggregator_close(v->aggregator);
    organs_close(&v->organs);
    feed_close(&v->feed);
    if (v->signer)
        v->signer->ops->close(v->signer);
    serve_tell_close(&v->tell);
    outer_state_close(&v->replica);
    dev_close(v->cpu);
    env_posix_close(v->env);
}

/* ---- running ---- */

static enum err stopped(const struct aggregator_status *now)
{
    return now->failed == ERR_OK
               ? err_set(ERR_STOPPED,
                         "stopped on request; accepted contributions and all rounds are stored")
               : err_set(now->failed, "%s", now->why);
}

static void certificate_look(struct serve *v)
{
    int64_t days_left =
        tls_days(&v->tls, v->run.s.run_name, TLS_AGGREGATOR, "aggregator", clock_wall_s());
    serve_tell_certificate(&v->tell, days_left);
    atomic_store(&v->uncertified, days_left < 0);
}

static void scrub_say(struct serve *v)
{
    struct scrub_counts scrub;
    char text[400], quoted[400];
    (void)aggregator_scrub_counts(v->aggregator, &scrub);
    if (!scrub.passes && !scrub.files)
        return;
    scrub_text(text, sizeof text, &scrub, v->env->ops->now_ms(v->env));
    serve_tell_say(&v->tell, text);
    log_event(LOG_INFO, "status", "text=%s", log_quote(quoted, sizeof quoted, text + 2));
}

static void status_say(struct serve *v, const struct aggregator_status *now)
{
    certificate_look(v);
    serve_tell_status(&v->tell, now);
    scrub_say(v);
}

static void health_look(struct serve *v, const struct aggregator_status *now)
{
    if (!serve_tell_health_due(&v->tell))
        return;
    certificate_look(v);
    serve_tell_health(&v->tell, now);
}

/* The service manager: alive as long as its own port answers. */
static void service_tell(struct serve *v, const struct aggregator_status *now)
{
    char text[128];
    uint64_t committed = 0, rounds = 0;
    for (unsigned f = 0; f < now->fragments; f++) {
        committed += now->round[f];
        rounds += now->rounds[f];
    }
    snprintf(text, sizeof text, "%llu of %llu rounds committed, %u of %u sites connected",
             (unsigned long long)committed, (unsigned long long)rounds, now->bound, now->sites);
    notify_status(text);
    if (atomic_load(&v->answers))
        notify_alive();
}

/* Everything happens in the link's threads; here a person or a service manager is served. */
static enum err run(struct serve *v)
{
    struct timespec look = {LOOK_MS / 1000, (LOOK_MS % 1000) * 1000000L};
    struct aggregator_status now;
    struct scrub_counts scrub;
    uint64_t done_ms = 0;
    aggregator_status(v->aggregator, &now);
    serve_tell_standing(&v->tell, &now);
    atomic_store(&v->answers, true);
    notify_ready();
    for (;;) {
        int signal = sigtimedwait(&v->signals, NULL, &look);
        aggregator_status(v->aggregator, &now);
        uint64_t now_ms = v->env->ops->now_ms(v->env);
        serve_tell_show(&v->tell, &now);
        health_look(v, &now);
        atomic_store(&v->answers, !link_silent(v->server) && now.failed == ERR_OK);
        service_tell(v, &now);
        if (aggregator_scrub_counts(v->aggregator, &scrub))
            link_work_soon(v->server);
        if (signal == SIGUSR2)
            status_say(v, &now);
        else if (link_silent(v->server))
            return err_set(ERR_LINK,
                           "this aggregator does not answer at its own port any more: it ends, to "
                           "be started again; everything accepted is stored");
        else if (signal > 0 || now.failed != ERR_OK || link_stopped(v->server))
            return stopped(&now);
        if (now.done && !done_ms)
            done_ms = now_ms;
        if (now.done && (!now.bound || now_ms - done_ms > LEAVE_MS))
            return ERR_OK;
    }
}

/* These signals are taken here alone, so they are blocked before the link makes its
 * threads. */
static void block_signals(struct serve *v)
{
    stop_signals(&v->signals); /* as at a site */
    sigaddset(&v->signals, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &v->signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* An observer elsewhere should see how it ends. */
static void observer_wait(struct serve *v)
{
    const struct timespec look = {0, 100 * 1000000L};
    uint64_t now = clock_mono_ms(), seen = atomic_load(&v->observed_ms), until = now + OBSERVER_MS;
    if (!seen || now - seen > OBSERVER_MS)
        return;
    atomic_store(&v->observed_all, false);
    while (!atomic_load(&v->observed_all) && clock_mono_ms() < until)
        nanosleep(&look, NULL);
}

static enum err serve(struct serve *v, const struct args *args)
{
    char said[1024];
    TRY(run_open(&v->run,
                 &(struct run_source){RUN_AGGREGATOR, .config = v->o.config, .args = args}));
    log_min(v->run.o.log_level);
    process_files_private();
    process_memory_private();
    link_tune();
    block_signals(v);
    log_prefix("site=aggregator ");
    enum err e = open_all(v);
    if (e == ERR_OK)
        e = run(v);
    bool ended = e == ERR_OK;
    if (ended)
        e = serve_tell_final(&v->tell);
    if (ended)
        observer_wait(v);
    snprintf(said, sizeof said, "%s", err_message());
    if (!ended && v->tell.replica)
        serve_tell_stop(&v->tell, said);
    close_all(v);
    return e == ERR_OK ? ERR_OK : err_set(e, "%s", said);
}

enum err serve_run(const struct serve_options *o, const struct args *args)
{
    struct serve v = {.o = *o};
    enum err e = serve(&v, args);
    run_close(&v.run);
    return e;
}
