/* atoll serve: the aggregator of a run. Opens everything, lets the link's threads work, shows what
 * happens, ends when every site has what the run ends with, or when it is asked to. It begins at
 * round 0 by itself: the initial parameters are a function of run.seed, so the sites' must have the
 * same digest.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator.h"
#include "kernels/base/args.h"
#include "outer/cmd/cmd.h"
#include "outer/config/run.h"
#include "outer/report/ledger_book.h"
#include "outer/link/tls.h"
#include "outer/report/progress.h"
#include "outer/cmd/version.h"

enum {
    LOOK_MS = 500,
    LEAVE_MS = 10000, /* after the last report: sites say good-bye */
    GRACE_MS = 3000   /* for answers under way at the end */
};

struct serve {
    struct run run;
    const char *config_path;
    struct dev *cpu;
    struct env *env;
    struct outer_state replica;
    struct aggregator *aggregator;
    struct link_server *server;
    struct progress progress;
    struct ledger_book ledger;
    sigset_t signals;
};

/* ---- opening
 * ------------------------------------------------------------------------------------------ */

static enum err begin(struct serve *v)
{
    struct arena scratch = arena_make(0);
    float *slab = arena_array(&scratch, v->run.table.elements, sizeof *slab);
    enum err e = ERR_MEMORY;
    if (slab) {
        table_init(&v->run.table, (uint64_t)v->run.s.run_seed, slab);
        e = outer_state_begin(&v->replica, slab);
    }
    arena_free(&scratch);
    return e;
}

static enum err open_member(struct serve *v)
{
    struct outer_state_options o = run_outer_state(&v->run, false);
    o.remake = aggregator_remake;
    struct dev_options device = {
        .kind = "cpu", .model_type = "f32", .threads = (int)v->run.s.device_threads};
    TRY(dev_open(&v->cpu, &device));
    TRY(outer_state_open(&v->replica, v->env, v->cpu, &o, &v->run.perm));
    return outer_state_found(&v->replica) ? outer_state_load(&v->replica) : begin(v);
}

/* In the thread that works for the link. */
static void committed(void *self, const struct manifest *m)
{
    struct serve *v = self;
    ledger_book_predict(&v->ledger, "", m->fragment, m->round, 0, m->aggregate_bytes);
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].included)
            ledger_book_predict(&v->ledger, v->run.o.outer_sites.items[m->sites[i].site],
                                m->fragment, m->round, m->sites[i].payload_bytes, 0);
}

static enum err open_aggregator(struct serve *v)
{
    struct aggregator_options o = {
        .run = v->run.s.run_name,
        .sites = v->run.o.outer_sites.items,
        .site_count = (unsigned)v->run.o.outer_sites.count,
        .canonical = v->run.identity,
        .index = (unsigned)v->run.o.serve_index,
        .count = (unsigned)v->run.o.outer_aggregators,
        .strict = v->run.o.outer_mode == OUTER_MODE_STRICT,
        .norm_limit = (float)v->run.o.outer_norm_limit,
        .share_max = KEYS_SHARE_MAX,
        .max_local_steps_offline = v->run.o.outer_max_local_steps_offline,
        .committed = committed,
        .self = v,
        .straggler_ms = (uint64_t)llround(v->run.o.outer_straggler_timeout_s * 1000)};
    TRY_ALLOC(o.revoked_path = arena_printf(&v->run.perm, "%s/revoked.txt", v->run.o.tls_dir));
    if (!o.strict && o.site_count < 3)
        log_event(LOG_WARN, "quorum",
                  "sites=%u why=\"a majority of %u is all of them: quorum waits like strict\"",
                  o.site_count, o.site_count);
    return aggregator_open(&v->aggregator, v->env, &v->replica, &o, &v->run.perm);
}

static enum err open_link(struct serve *v)
{
    struct link_listen l = {.address = v->run.o.serve_listen,
                            .sites = (unsigned)v->run.o.outer_sites.count,
                            .receive_bytes = (uint64_t)v->run.o.serve_receive_mib << 20,
                            .book = ledger_book_add,
                            .book_self = &v->ledger};
    struct link_service service = aggregator_service(v->aggregator);
    int port;
    TRY(run_tls(&v->run, "aggregator", &l.tls));
    int64_t days_left;
    TRY(tls_check(&l.tls, v->run.s.run_name, TLS_AGGREGATOR, "aggregator", (int64_t)time(NULL),
                  &days_left));
    TRY(link_serve(&v->server, &l, &service, &port));
    log_event(LOG_INFO, "listening", "address=%s port=%d", l.address, port);
    return ERR_OK;
}

/* What a person should know before waiting for hours: where it stands, and what it will take. */
static void say_what(const struct serve *v)
{
    char quoted[256];
    size_t elements[ROUND_FRAGMENTS_MAX];
    unsigned sites = (unsigned)v->run.o.outer_sites.count;
    struct outer_state_options o = v->replica.o;
    for (unsigned i = 0; i < v->run.sync.fragments.count; i++)
        elements[i] = v->run.sync.fragments.f[i].elements;
    log_event(LOG_INFO, "atoll", "version=%s commit=%s run=%s device=%s", version_number(),
              version_commit(), v->run.s.run_name, log_quote(quoted, sizeof quoted, v->cpu->note));
    log_event(LOG_INFO, "plan",
              "parameters=%zu memory_mib=%.1f up_per_site=%llu down_per_site=%llu",
              v->run.table.parameters, (double)outer_state_memory(&o, true).host / (1 << 20),
              (unsigned long long)schedule_upload_bytes(&v->run.sync.schedule, elements),
              (unsigned long long)schedule_download_bytes(&v->run.sync.schedule, elements, sites));
    tuning_log(&v->run.tuning);
}

static enum err open_all(struct serve *v)
{
    const char *log;
    TRY(env_posix_open(&v->env, v->run.o.serve_dir));
    TRY_ALLOC(log = arena_printf(&v->run.perm, "%s/log.txt", v->run.o.serve_dir));
    TRY(progress_open(&v->progress, config_choice_name(log_progress_choices, v->run.o.log_progress),
                      (unsigned)v->run.o.outer_sites.count, log));
    if (!v->progress.live && v->run.o.log_progress == LOG_PROGRESS_AUTO)
        v->progress.quiet = true; /* one line for each commit says as much */
    TRY(aggregator_claim(v->env, v->run.identity));
    TRY(ledger_book_open(&v->ledger, v->run.o.serve_dir, v->run.s.run_name, "aggregator",
                         (unsigned)v->run.o.serve_index, (unsigned)v->run.o.outer_aggregators,
                         &v->run.perm));
    TRY(open_member(v));
    say_what(v);
    TRY(open_aggregator(v));
    return open_link(v);
}

static void close_all(struct serve *v)
{
    if (v->server)
        link_shutdown(v->server, GRACE_MS);
    ledger_book_close(&v->ledger);
    aggregator_close(v->aggregator);
    outer_state_close(&v->replica);
    dev_close(v->cpu);
    progress_close(&v->progress);
    env_posix_close(v->env);
}

/* ---- what it looks like
 * ------------------------------------------------------------------------------- */

static void site_state(const struct aggregator_site_status *s, bool done, uint64_t now_ms,
                       char *out, size_t size)
{
    *out = 0;
    if (s->left)
        snprintf(out, size, done ? "done" : "left");
    else if (!s->heard_ms)
        snprintf(out, size, "not heard from yet");
    else if (s->missing_ms && now_ms - s->missing_ms > 2000)
        snprintf(out, size, "the others wait for it (%llu s)",
                 (unsigned long long)(now_ms - s->missing_ms) / 1000);
    else if (!s->bound)
        snprintf(out, size, "away");
}

static void show(struct serve *v, const struct aggregator_status *now)
{
    uint64_t rounds = 0, of = 0, now_ms = v->env->ops->now_ms(v->env);
    for (unsigned i = 0; i < now->fragments; i++) {
        rounds += now->round[i];
        of += now->rounds[i];
    }
    for (unsigned i = 0; i < now->sites; i++) {
        const struct aggregator_site_status *s = &now->site[i];
        struct progress_line line = {.step = s->step,
                                     .steps = v->run.sync.schedule.steps,
                                     .loss = s->loss,
                                     .tokens_per_second = s->tokens_per_second,
                                     .round = rounds,
                                     .rounds = of,
                                     .bytes_up = s->bytes_up,
                                     .bytes_down = s->bytes_down,
                                     .sync_seconds = -1,
                                     .eta_seconds = -1};
        snprintf(line.site, sizeof line.site, "%s", v->run.o.outer_sites.items[i]);
        site_state(s, now->done, now_ms, line.state, sizeof line.state);
        progress_update(&v->progress, i, &line);
    }
}

static void say_status(const struct serve *v, const struct aggregator_status *now)
{
    for (unsigned i = 0; i < now->fragments; i++)
        log_event(
            LOG_INFO, "status", "fragment=%u round=%llu of=%llu bound=%u/%u up=%llu down=%llu", i,
            (unsigned long long)now->round[i], (unsigned long long)now->rounds[i], now->bound,
            now->sites, (unsigned long long)now->payload_up, (unsigned long long)now->payload_down);
    uint64_t now_ms = v->env->ops->now_ms(v->env);
    for (unsigned i = 0; i < now->sites; i++) {
        char state[96], quoted[128];
        site_state(&now->site[i], now->done, now_ms, state, sizeof state);
        log_event(LOG_INFO, "status", "site=%s bound=%d step=%lld state=%s",
                  v->run.o.outer_sites.items[i], now->site[i].bound, (long long)now->site[i].step,
                  log_quote(quoted, sizeof quoted, state));
    }
}

/* ---- running
 * ------------------------------------------------------------------------------------------ */

static enum err stopped(const struct aggregator_status *now)
{
    return now->failed == ERR_OK
               ? err_set(ERR_STOPPED,
                         "stopped on request; accepted contributions and all rounds are stored")
               : err_set(now->failed, "%s", now->why);
}

static void say_final(const struct serve *v)
{
    char hex[65];
    int64_t count = v->run.o.outer_aggregators;
    for (unsigned f = (unsigned)v->run.o.serve_index; count > 1 && f < v->replica.fragments->count;
         f += (unsigned)count) {
        digest_hex(&v->replica.state[f].digest, hex);
        log_event(LOG_INFO, "final", "fragment=%u state=%s", f, hex);
    }
    if (count > 1)
        return;
    struct digest d = outer_state_digest(&v->replica, false);
    digest_hex(&d, hex);
    log_event(LOG_INFO, "final", "outer_state=%s", hex);
}

/* Everything happens in the link's threads; here a person or a service manager is served. */
static enum err run(struct serve *v)
{
    struct timespec look = {LOOK_MS / 1000, (LOOK_MS % 1000) * 1000000L};
    struct aggregator_status now;
    uint64_t done_ms = 0;
    for (;;) {
        int signal = sigtimedwait(&v->signals, NULL, &look);
        aggregator_status(v->aggregator, &now);
        uint64_t now_ms = v->env->ops->now_ms(v->env);
        show(v, &now);
        if (signal == SIGUSR1)
            say_status(v, &now);
        else if (signal > 0 || now.failed != ERR_OK || link_stopped(v->server))
            return stopped(&now);
        if (now.done && !done_ms)
            done_ms = now_ms;
        if (now.done && (!now.bound || now_ms - done_ms > LEAVE_MS))
            return ERR_OK;
    }
}

/* SIGTERM, SIGINT and SIGUSR1 are taken here alone, so they are blocked before the link makes its
 * threads. */
static void block_signals(struct serve *v)
{
    sigemptyset(&v->signals);
    sigaddset(&v->signals, SIGTERM);
    sigaddset(&v->signals, SIGINT);
    sigaddset(&v->signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &v->signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static enum err serve(struct serve *v, const struct args *args)
{
    char said[1024];
    TRY(run_open(&v->run,
                 &(struct run_source){RUN_AGGREGATOR, .config = v->config_path, .args = args}));
    log_min(v->run.o.log_level);
    link_tune();
    block_signals(v);
    log_prefix("site=aggregator ");
    enum err e = open_all(v);
    if (e == ERR_OK)
        e = run(v);
    if (e == ERR_OK)
        say_final(v);
    snprintf(said, sizeof said, "%s", err_message());
    close_all(v);
    return e == ERR_OK ? ERR_OK : err_set(e, "%s", said);
}

enum err cmd_serve(int argc, char **argv)
{
    struct serve v = {0};
    const struct args_option options[] = {
        {.name = "config",
         .kind = ARGS_TEXT,
         .target = &v.config_path,
         .value = "FILE",
         .help = "Configuration (YAML), the same file as the sites'."},
    };
    struct args args = {
        .command = "serve",
        .summary = "The aggregator of a run: collects the sites' contributions, commits rounds, "
                   "keeps the outer "
                   "state. Ends by itself when every site has the last round. Ctrl-C stops it with "
                   "exit code 75; the "
                   "same command goes on from there, and so it does after a crash. SIGUSR1 logs "
                   "its status.",
        .example =
            "atoll serve --config run.yaml --serve.listen 0.0.0.0:7443 --serve.dir /var/lib/atoll",
        .settings = true,
        .options = options,
        .count = sizeof options / sizeof *options};
    enum err e = args_parse(&args, argc, argv, &v.run.perm);
    if (e == ERR_OK && !args.help)
        e = serve(&v, &args);
    run_close(&v.run);
    return e;
}
