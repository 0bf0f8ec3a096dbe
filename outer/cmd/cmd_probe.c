/* atoll probe: measures the link and this machine and prints a probe file. It uses the
 * real link: the TLS, calls, chunks and connections of contributions. One end listens with the
 * aggregator's certificate, the other dials as a site.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "inner/train/train.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/cmd/cmd.h"
#include "outer/cmd/probe_ranks.h"
#include "outer/config/identity.h"
#include "outer/link/tcp.h"
#include "outer/identity/tls.h"
#include "outer/config/run.h"
#include "outer/plan/plan_settings.h"
#include "outer/sim/round_bench.h"

enum { PINGS = 20, REPEATS = 3, STEPS = 5, WARM_BYTES = 4 << 20 };
static const double PAUSE_S =
    0.3; /* and two round trips: longer than the time after which TCP calls a connection idle */

struct probe {
    struct run p;
    struct measured found;
    const char *config, *write, *widths;
    bool listening, step, ranks, force;
    int64_t most_mib;
    double seconds;
    struct link *link;
    uint8_t *bytes; /* [largest payload]; content does not matter */
    uint64_t sent;  /* payloads so far; used as round numbers, so that data follows each offer at
                       once, as in a run */
    double rtt_s;
};

/* ---- the listening end: accepts every payload, answers every fetch, stores nothing ---- */

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
    printf("%s has measured\n", peer ? peer : "somebody");
    fflush(stdout);
    listener_report(self, peer, NULL, answer);
}

static uint64_t listener_work(void *self, bool *stop)
{
    (void)self;
    *stop = false;
    return UINT64_MAX;
}

static enum err listen_until_stopped(struct probe *c)
{
    struct link_listen l = {.address = c->p.o.serve_listen, .sites = 1};
    struct listener t = {c->bytes, (size_t)c->most_mib << 20, 0};
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
    TRY(run_tls(&c->p, "aggregator", &l.tls));
    TRY(tls_check(&l.tls, c->p.s.run_name, TLS_AGGREGATOR, "aggregator", clock_wall_s(), &days));
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

/* ---- the measuring end ---- */

static struct wire_head head_of(const struct probe *c)
{
    struct wire_head h = {.incarnation = 1, .instance = 1};
    snprintf(h.run, sizeof h.run, "%s", c->p.s.run_name);
    snprintf(h.site, sizeof h.site, "%s", c->p.o.site_name);
    return h;
}

static enum err ping(struct probe *c, double *seconds)
{
    struct wire_report m = {.head = head_of(c)};
    struct wire_answer a;
    double begin = clock_mono_s();
    TRY(c->link->ops->report(c->link, &m, &a));
    *seconds = clock_mono_s() - begin;
    if (a.outcome == ROUND_CURRENT)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "%s is a running aggregator; measure against atoll probe --listen "
                   "on the same machine, on "
                   "another port",
                   c->p.o.site_aggregator);
}

static enum err send(struct probe *c, size_t size, double *seconds)
{
    struct wire_contribution m = {
        .head = head_of(c), .round = c->sent++, .payload_bytes = size, .weight = 1};
    struct wire_answer a;
    double begin = clock_mono_s();
    TRY(c->link->ops->contribute(c->link, &m, c->bytes, &a));
    *seconds = clock_mono_s() - begin;
    return a.outcome == ROUND_RECEIPT
               ? ERR_OK
               : err_set(ERR_PROTO, "the other end answers %s", round_outcome_name(a.outcome));
}

static enum err get(struct probe *c, size_t size, double *seconds)
{
    struct wire_fetch m = {.head = head_of(c), .what = WIRE_AGGREGATE, .round = size};
    struct wire_answer a = {0}; /* no byte received yet */
    double begin = clock_mono_s();
    TRY(c->link->ops->fetch(c->link, &m, c->bytes, size, &a));
    *seconds = clock_mono_s() - begin;
    return a.outcome == ROUND_NONE
               ? ERR_OK
               : err_set(ERR_PROTO, "the other end answers %s", round_outcome_name(a.outcome));
}

struct fit { /* seconds = alpha + beta * bytes, least squares (Shi et al. 2021, 2005.13247) */
    double n, x, y, xx, xy;
    double variation; /* standard deviation over mean, of the largest size */
    double bps;
};

static void fit_add(struct fit *f, double bytes, double seconds)
{
    f->n++;
    f->x += bytes;
    f->y += seconds;
    f->xx += bytes * bytes;
    f->xy += bytes * seconds;
}

static void pause_s(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&t, NULL);
}

static double median_of_three(const double t[REPEATS])
{
    return fmax(fmin(t[0], t[1]), fmin(fmax(t[0], t[1]), t[2]));
}

/* Measures one direction with sizes that grow by a factor of 4 while a transfer takes less than 2
 * s, each after a pause, as in rounds. times: seconds beyond the round trip. */
static enum err rate(struct probe *c, const char *what,
                     enum err (*move)(struct probe *, size_t, double *), struct fit *f,
                     struct config_list *times)
{
    size_t most = (size_t)c->most_mib << 20, size = LINE_TIMES_FIRST;
    double took[REPEATS] = {0}, least = 1e-6;
    TRY_ALLOC(times->items = arena_array(&c->p.perm, LINE_TIMES_MAX, sizeof *times->items));
    TRY(move(c, size, took)); /* warm-up: connections and handshakes are not measured */
    TRY(move(c, most < WARM_BYTES ? most : WARM_BYTES, took));
    *f = (struct fit){0};
    for (took[0] = 0; size <= most && median_of_three(took) < 2; size *= 4) {
        double sum = 0, squares = 0;
        for (int i = 0; i < REPEATS; i++) {
            pause_s(PAUSE_S + 2 * c->rtt_s);
            TRY(move(c, size, &took[i]));
            fit_add(f, (double)size, took[i]);
            sum += took[i];
            squares += took[i] * took[i];
        }
        f->variation =
            sqrt(fmax(0, squares / REPEATS - sum * sum / REPEATS / REPEATS)) * REPEATS / sum;
        least = fmax(least, median_of_three(took) - c->rtt_s);
        TRY_ALLOC(times->items[times->count++] = arena_printf(&c->p.perm, "%.4g", least));
    }
    size_t largest = size / 4;
    double beta = (f->n * f->xy - f->x * f->y) / (f->n * f->xx - f->x * f->x);
    if (!(beta > 0))
        return err_set(ERR_LINK,
                       "%s: time does not grow with size; --most-mib %" PRId64
                       " is too little for this link",
                       what, c->most_mib);
    f->bps = 8 / beta * line_wire_bytes((double)largest) / (double)largest;
    fprintf(stderr, "%-4s %.4g Mbit/s on the line, fitted up to %zu KiB, varies by %.1f %%\n", what,
            f->bps / 1e6, largest >> 10, 100 * f->variation);
    return ERR_OK;
}

/* The choice of the link, and what of the host's settings it lacks. */
static void show_settings(struct probe *c, double bps)
{
    struct tcp_settings t;
    struct path up;
    unsigned down;
    char text[192];
    link_choice(c->link, &up, &down);
    path_text(&up, text, sizeof text);
    fprintf(stderr, "streams up: %s\n", text);
    if (down)
        fprintf(stderr, "streams down: %u connection%s: the other end's choice\n", down,
                down == 1 ? "" : "s");
    tcp_read(&t, "/proc/sys/net/ipv4");
    if (*up.facts.congestion)
        snprintf(t.congestion, sizeof t.congestion, "%s", up.facts.congestion);
    tcp_print(&t, stderr);
    tcp_advise(&t, bps, c->rtt_s, up.now.streams, stderr);
}

static enum err measure_link(struct probe *c)
{
    struct link_dial d = {
        .target = c->p.o.site_aggregator,
        .streams = (unsigned)c->p.o.site_streams,
        .automatic = c->p.o.site_streams == SITE_STREAMS_AUTO,
        .bbr = c->p.o.site_congestion == SITE_CONGESTION_BBR,
        .rate_up = (uint64_t)(1e6 / 8 * c->p.o.site_rate_up), /* the limit that the run will use */
        .rate_down = (uint64_t)(1e6 / 8 * c->p.o.site_rate_down)};
    struct fit up, down;
    double best = INFINITY, worst = 0, seconds;
    struct wire_leave leave = {.head = head_of(c)};
    struct wire_answer ignored;
    int64_t days;
    if (!*c->p.o.site_name)
        return err_set(ERR_CONFIG, "site.name is empty: give the name of the certificate: "
                                   "--site.name NAME, one of outer.sites");
    if (*c->p.o.site_aggregator_name)
        d.server_name = c->p.o.site_aggregator_name;
    d.proxy = &c->p.proxy;
    TRY(run_proxy(&c->p));
    TRY(run_tls(&c->p, c->p.o.site_name, &d.tls));
    TRY(tls_check(&d.tls, c->p.s.run_name, TLS_SITE, c->p.o.site_name, clock_wall_s(), &days));
    TRY(link_open(&c->link, &d));
    TRY(ping(c, &seconds));
    for (int i = 0; i < PINGS; i++) {
        TRY(ping(c, &seconds));
        best = fmin(best, seconds);
        worst = fmax(worst, seconds);
    }
    fprintf(stderr, "rtt  %.3f ms, at most %.3f ms of %d\n", 1e3 * best, 1e3 * worst, PINGS);
    c->rtt_s = best;
    c->found.plan_rtt_ms = 1e3 * best;
    TRY(rate(c, "up", send, &up, &c->found.plan_up_s));
    TRY(rate(c, "down", get, &down, &c->found.plan_down_s));
    show_settings(c, fmax(up.bps, down.bps));
    c->found.plan_up_mbit = up.bps / 1e6;
    c->found.plan_down_mbit = down.bps / 1e6;
    return c->link->ops->leave(c->link, &leave, &ignored);
}

/* ---- this machine ---- */

static enum err nothing_start(void *self, struct train *t)
{
    (void)self, (void)t;
    return ERR_OK;
}

static bool nothing_due(void *self, const struct train *t, int64_t step)
{
    (void)self, (void)t, (void)step;
    return false;
}

static enum err keep_time(void *self, struct train *t, const struct train_report *r)
{
    double *step_s = self;
    (void)t;
    *step_s = r->step == 1 || r->step_seconds < *step_s ? r->step_seconds : *step_s;
    return ERR_OK;
}

static enum err nothing_eval(void *self, struct train *t, const struct train_eval *e)
{
    (void)self, (void)t, (void)e;
    return ERR_OK;
}

static enum err nothing_saved(void *self, struct train *t)
{
    (void)self, (void)t;
    return ERR_OK;
}

/* Times at which each layer's gradients are complete, in one backward pass. */
struct layer_clock {
    const struct table *table;
    struct dev *dev;
    double last, *seconds; /* [layer + 1] */
};

static void layer_final(void *self, size_t from)
{
    struct layer_clock *k = self;
    size_t i = 0;
    if (dev_sync(k->dev) != ERR_OK) /* the step reports the error */
        return;
    double now = clock_mono_s();
    while (i + 1 < k->table->count && k->table->tensors[i + 1].offset <= from)
        i++;
    k->seconds[k->table->tensors[i].layer + 1] += now - k->last;
    k->last = now;
}

/* Backward time by layer, as plan.layers_ms. */
static enum err layer_times(struct probe *c, struct train *t)
{
    struct layer_clock k = {&t->table, t->dev, 0, NULL};
    const struct model_grad_hook ready = {&k, layer_final};
    size_t layers = (size_t)c->p.s.model_layers + 2;
    const char **items;
    struct model_loss loss;
    double forward_s;
    TRY_ALLOC(k.seconds = arena_array(&c->p.perm, layers, sizeof *k.seconds));
    TRY_ALLOC(items = arena_array(&c->p.perm, layers, sizeof *items));
    double begin = clock_mono_s();
    TRY(model_eval(t->model, t->data.batch, &loss));
    TRY(dev_sync(t->dev));
    forward_s = clock_mono_s() - begin;
    k.last = clock_mono_s() + forward_s; /* a step starts with the forward pass */
    TRY(model_step(t->model, t->data.batch, 1, &ready, &loss));
    for (size_t i = 0; i < layers; i++)
        TRY_ALLOC(items[i] = arena_printf(&c->p.perm, "%.4g", 1e3 * fmax(0, k.seconds[i])));
    c->found.times.plan_layers_ms = (struct config_list){items, layers};
    return ERR_OK;
}

/* Opens the device on which atoll train runs the outer arithmetic. */
static enum err open_beside(const struct probe *c, const struct dev *d, struct dev **beside)
{
    struct dev_options o = {
        .kind = "cpu", .model_type = "f32", .threads = d->host_memory ? d->threads : 0};
    if (d->host_memory && c->p.o.outer_overlap_steps)
        o.threads = (d->threads + 3) / 4;
    else if (!d->host_memory && c->p.o.outer_device != OUTER_DEVICE_CPU)
        o = (struct dev_options){.kind =
                                     config_choice_name(device_kind_choices, c->p.s.device_kind),
                                 .model_type = "f32",
                                 .threads = dev_threads(),
                                 .low_priority = true};
    return dev_open(beside, &o);
}

/* Processing time of a round on this machine, without the link. */
static enum err measure_round(struct probe *c, const struct dev *d, const char *directory)
{
    struct exchange_cost t;
    struct round_bench r = {.exchange = &c->p.sync,
                            .table = &c->p.table,
                            .directory = directory,
                            .sites = (unsigned)c->p.o.outer_sites.count,
                            .error_feedback_decay = (float)c->p.o.outer_error_feedback_decay,
                            .seed = (uint64_t)c->p.s.run_seed};
    TRY(open_beside(c, d, &r.dev));
    enum err e = round_bench_measure(&r, &t);
    dev_close(r.dev);
    TRY(e);
    c->found.times.plan_encode_ns = 1e9 * t.encode_s;
    c->found.times.plan_apply_ns = 1e9 * t.apply_s;
    c->found.times.plan_accept_ns = 1e9 * t.accept_s;
    c->found.times.plan_commit_ns = 1e9 * t.commit_s;
    c->found.times.plan_sum_ns = 1e9 * t.sum_s;
    fprintf(stderr,
            "one round with %s, per value, storage included: encode %.3g ns, apply %.3g ns; at the "
            "aggregator accept %.3g ns and "
            "sum %.3g ns for each site, commit %.3g ns\n",
            config_choice_name(outer_codec_choices, c->p.o.outer_codec), 1e9 * t.encode_s,
            1e9 * t.apply_s, 1e9 * t.accept_s, 1e9 * t.sum_s, 1e9 * t.commit_s);
    return ERR_OK;
}

/* The fastest of a few real steps, in a temporary directory. */
static enum err measure_step(struct probe *c)
{
    struct coll *coll = NULL;
    struct dev *d = NULL;
    char *dir;
    double step_s = 0;
    const struct train_hook hook = {&step_s,   nothing_start, nothing_start, nothing_due,
                                    keep_time, nothing_eval,  nothing_start, nothing_saved};
    static struct train train;
    c->p.s.train_steps = STEPS;
    c->p.s.train_eval_every = c->p.s.train_checkpoint_every = 0;
    TRY(probe_directory(&c->p, &dir));
    enum err e = coll_open(&coll, config_choice_name(device_kind_choices, c->p.s.device_kind));
    if (e == ERR_OK)
        e = dev_open(
            &d, &(struct dev_options){
                    .kind = config_choice_name(device_kind_choices, c->p.s.device_kind),
                    .model_type = config_choice_name(device_dtype_choices, c->p.s.device_dtype),
                    .threads = (int)c->p.s.device_threads,
                    .emulation = model_emulation(&c->p.s)});
    if (e == ERR_OK)
        e = train_open(&train, &(struct train_options){&c->p.s, d, coll, 0, dir}, &c->p.perm);
    if (e == ERR_OK)
        e = train_run(&train, &hook);
    if (e == ERR_OK)
        e = layer_times(c, &train);
    train_close(&train);
    if (e == ERR_OK)
        e = measure_round(c, d, dir);
    dev_close(d);
    coll_close(coll);
    c->found.times.plan_step_s = step_s;
    if (e == ERR_OK)
        fprintf(stderr, "step %.4g s, the fastest of %d\n", step_s, STEPS);
    if (e == ERR_OK)
        return file_remove_tree(dir);
    char why[512];
    snprintf(why, sizeof why, "%s", err_message());
    enum err tidied = file_remove_tree(dir);
    return err_set(e, "%s%s", why,
                   tidied == ERR_OK ? "" : "; the temporary directory could not be removed");
}

static enum err probe(struct probe *c, const struct args *args)
{
    log_min(LOG_WARN); /* the measurements are printed, not logged */
    TRY(plan_settings_may_write(c->write, c->force));
    if (c->ranks && (c->listening || c->step))
        return err_set(ERR_CONFIG, "--ranks measures alone; leave out --step and --listen");
    TRY(run_open(&c->p, &(struct run_source){RUN_PLAN, .config = c->config,
                                             .sites = c->ranks ? 1 : 0, .args = args}));
    if (c->ranks)
        return probe_ranks(&c->p, &(struct probe_ranks_options){c->write, c->widths, c->seconds});
    TRY(measured_default(&c->found, &c->p.perm));
    TRY_ALLOC(c->bytes = arena_alloc(&c->p.perm, (size_t)c->most_mib << 20));
    link_tune();
    if (c->listening)
        return listen_until_stopped(c);
    if (!*c->p.o.site_aggregator && !c->step)
        return err_set(ERR_CONFIG,
                       "nothing to measure: give --site.aggregator HOST:PORT, --step, or both");
    if (*c->p.o.site_aggregator)
        TRY(measure_link(c));
    if (c->step)
        TRY(measure_step(c));
    char *text;
    TRY(measured_text(&c->found, &c->p.perm, &text));
    fputs(text, stdout);
    const struct file_part part = {text, strlen(text)};
    return c->write ? file_write(c->write, &part, 1, 0644) : ERR_OK;
}

enum err cmd_probe(int argc, char **argv)
{
    struct probe c = {.most_mib = 64, .seconds = 0.25, .p.perm = arena_make(0)};
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &c.config, .value = "FILE",
         .help = "Configuration (YAML) of the run: site, certificates, model."},
        {"listen", ARGS_FLAG, &c.listening,
         .help = "Run the listening end, on serve.listen with the aggregator's certificate, until "
                 "Ctrl-C."},
        {"step", ARGS_FLAG, &c.step,
         .help = "Also, on this machine, the step time of the configured model (data.train) and "
                 "what a round costs beside "
                 "the line, on the disk of run.dir."},
        {"ranks", ARGS_FLAG, &c.ranks,
         .help = "Instead, under mpirun or deploy/ranks.sh: the collectives of these ranks from 4 "
                 "KiB to 64 MiB, their products, their memory and, with data.train, the classes of "
                 "a step, for atoll plan --inside."},
        {"widths", ARGS_TEXT, &c.widths, .value = "LIST",
         .help = "With --ranks: model.width of the measured steps; half, whole and twice the "
                 "configured one."},
        {"seconds", ARGS_REAL, &c.seconds, .min = 0, .max = 60, .value = "S",
         .help = "With --ranks: each size of each collective is repeated for so long; the fastest "
                 "counts."},
        {"most-mib", ARGS_INT, &c.most_mib, .min = 1, .max = 4096, .value = "MIB",
         .help = "Largest payload."},
        {"write", ARGS_TEXT, &c.write, .value = "FILE",
         .help = "Write what was measured to this new file, a probe file: for site.probe, and for "
                 "atoll "
                 "plan --probe."},
        {"force", ARGS_FLAG, &c.force, .help = "Replace the file of --write."},
    };
    struct args args = {.command = "probe",
                        .summary =
                            "Measures round trip and both rates to atoll probe --listen over the "
                            "real link, and with --step the "
                            "time of an inner step: values that atoll plan and atoll sim take.",
                        .example = "atoll probe --config run.yaml --site.name a --site.aggregator "
                                   "hub.example.org:7443 --write link.yaml",
                        .settings = run_nearest_setting,
                        .options = options,
                        .count = sizeof options / sizeof *options};
    enum err e = args_parse(&args, argc, argv, &c.p.perm);
    if (e == ERR_OK && !args.help)
        e = probe(&c, &args);
    if (c.link)
        c.link->ops->close(c.link);
    run_close(&c.p);
    return e;
}
