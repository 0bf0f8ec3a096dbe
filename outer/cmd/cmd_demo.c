/* atoll demo: everything on this machine, as real processes: certificates, shards, an aggregator,
 * two sites over mutual TLS on loopback, then one site alone on the same tokens per site; live
 * lines while it runs, a summary and a report at the end. It only starts this program's own
 * commands and reads the sites' metrics.jsonl; nothing here trains.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "kernels/base/args.h"
#include "outer/wan/child.h"
#include "outer/cmd/cmd.h"
#include "outer/run/process.h"
#include "outer/view/page.h"
#include "outer/config/run.h"
#include "outer/link/loopback.h"
#include "outer/view/page_report.h"
#include "outer/view/progress.h"
#include "outer/wan/wan.h"

enum { SITES = 2, SETTINGS_MAX = 48, ARGUMENTS_MAX = SETTINGS_MAX + 16, POLL_MS = 200 };
enum { CHILDREN_MAX = 8, ADDRESS_MAX = 32 };
static const char *const site_name[SITES] = {"a", "b"};

struct watched { /* a run whose metrics we follow */
    struct jsonl_reader reader;
    char path[512];
    struct progress_line line;
    struct progress_pace pace;
    double every;                 /* steps between rounds */
    double first_loss, last_loss; /* held out */
    double up, up_predicted, down, down_predicted, wire_up, wire_down;
};
struct demo {
    const char *dir, *text;
    const char *topology_source; /* NULL: loopback */
    int64_t steps;
    int settings; /* count of --section.key arguments, passed on to every process */
    char **setting;
    struct arena arena;
    struct child children[CHILDREN_MAX];
    unsigned child_count;
    struct progress progress;
    struct watched sites[SITES], alone;
    struct topology topology;
    struct wan wan;
    const char *http; /* where the live page is served; "": nowhere */
    struct page page;
    const char *followed[SITES + 1];
    int port;
    char address[ADDRESS_MAX]; /* of the aggregator, as it binds it */
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    stopped = number;
}

/* ---- processes ---- */
static const char *path_of(struct demo *d, const char *name)
{
    const char *path = arena_printf(&d->arena, "%s/%s", d->dir, name);
    ASSERT(path);
    return path;
}

static unsigned place_of(const struct demo *d, const char *name)
{
    int place = topology_place(&d->topology, name);
    ASSERT(place >= 0); /* network_open has looked */
    return (unsigned)place;
}

/* Where a place finds the aggregator. */
static void reach(const struct demo *d, const char *from, char out[ADDRESS_MAX])
{
    char host[WAN_ADDRESS_MAX] = "127.0.0.1";
    if (d->topology_source)
        wan_address(&d->wan, place_of(d, from), place_of(d, "aggregator"), host);
    snprintf(out, ADDRESS_MAX, "%s:%d", host, d->port);
}

/* argv is NULL-terminated, without the program. Output goes to DIR/name.log. place: of the emulated
 * network; NULL: not in it. */
static enum err start(struct demo *d, const char *name, const char *const *argv, const char *place,
                      struct child **child)
{
    char *full[ARGUMENTS_MAX + 2] = {"atoll"};
    struct child_command command = {.name = name, .argv = full};
    ASSERT(d->child_count < CHILDREN_MAX);
    *child = &d->children[d->child_count++];
    for (int i = 0; argv[i]; i++) {
        ASSERT(i < ARGUMENTS_MAX);
        full[i + 1] = (char *)(uintptr_t)argv[i];
    }
    TRY_ALLOC(command.log = arena_printf(&d->arena, "%s/%s.log", d->dir, name));
    if (place && d->topology_source)
        command.where = wan_place(&d->wan, place_of(d, place));
    return child_start(*child, &command);
}

/* One that ends soon by itself. */
static enum err finish(struct demo *d, const char *name, const char *const *argv)
{
    struct child *c;
    TRY(start(d, name, argv, NULL, &c));
    while (child_running(c) && !stopped)
        child_pause(20);
    if (stopped)
        return err_set(ERR_STOPPED, "stopped on request");
    int status = c->status;
    if (status == 0)
        d->child_count--; /* its place is free again */
    return status == 0 ? ERR_OK : child_failed(c);
}

/* ---- preparations ---- */
/* --section.key arguments of the demo go to every process. */
static void settings_to(const struct demo *d, const char **argv, int n)
{
    for (int i = 0; i < d->settings && n < ARGUMENTS_MAX; i++)
        argv[n++] = d->setting[i];
}

/* Only a directory that an earlier demo made is replaced. */
static enum err make_directory(struct demo *d)
{
    const char *config = path_of(d, "demo.yaml");
    char **names;
    size_t count = 0;
    if (file_exists(d->dir)) {
        TRY(file_list(d->dir, &d->arena, &names, &count));
        if (count && !file_exists(config))
            return err_set(ERR_CONFIG,
                           "%s exists and is not from a demo: give another --dir, or remove it",
                           d->dir);
        TRY(file_remove_tree(d->dir));
    }
    return file_mkdirs(d->dir);
}

/* A port that is free now. Somebody may take it before the aggregator does; then that one says so.
 */
static enum err choose_port(struct demo *d)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = s >= 0 && bind(s, (struct sockaddr *)&a, size) == 0 &&
                getsockname(s, (struct sockaddr *)&a, &size) == 0;
    if (s >= 0)
        close(s);
    if (!good)
        return err_set(ERR_IO, "no free port on loopback: %s", strerror(errno));
    d->port = ntohs(a.sin_port);
    return ERR_OK;
}

/* With --wan the sites and the aggregator are places of an emulated network. */
static enum err network_open(struct demo *d)
{
    static const char *const needed[] = {"a", "b", "aggregator"};
    struct config_list *ports = &d->topology.set.wan_ports; /* of the relay, should it be needed */
    if (!d->topology_source) {
        reach(d, "aggregator", d->address);
        return ERR_OK;
    }
    TRY(topology_load(&d->topology, d->topology_source, NULL, &d->arena));
    for (int i = 0; i < SITES + 1; i++)
        if (topology_place(&d->topology, needed[i]) < 0)
            return err_set(ERR_CONFIG,
                           "--wan %s: wan.sites lacks \"%s\"; the demo has a, b and aggregator",
                           d->topology_source, needed[i]);
    TRY_ALLOC(ports->items = arena_array(&d->arena, 1, sizeof *ports->items));
    TRY_ALLOC(ports->items[0] = arena_printf(&d->arena, "%d", d->port));
    ports->count = 1;
    TRY(wan_open(&d->wan, &d->topology, WAN_AUTO, &d->arena));
    reach(d, "aggregator", d->address);
    fprintf(stderr, "network   %s\n", d->topology_source);
    return ERR_OK;
}

static const char config_text[] =
    "# Written by `atoll demo`. The same file serves the aggregator and all sites; what differs "
    "between them is on\n"
    "# their command lines (see the report, \"Reproduce with\").\n"
    "run:\n  name: demo\n  seed: 1\n"
    "model:\n  layers: 4\n  heads: 4\n  width: 128\n  context: 64\n"
    "data:\n  tokenizer: bytes\n  eval: [\"%s/data/eval-*.bin\"]\n"
    "train:\n  steps: %lld\n  batch_tokens: 768\n  sequence: 64\n  optimizer: adamw\n  lr: 0.004\n"
    "  beta2: 0.99\n  warmup: %lld\n  eval_every: %lld\n  eval_tokens: 32768\n"
    "  checkpoint_every: 200\n"
    "device:\n  threads: 1\n"
    "outer:\n  sites: [a, b]\n  every: 20\n  fragments: 1\n  codec: int8\n  lr: 0.7\n"
    "site:\n  aggregator: %s\n  aggregator_name: localhost\n"
    "tls:\n  dir: %s/tls\n"
    "serve:\n  listen: %s\n  dir: %s/aggregator\n";

static enum err write_config(struct demo *d)
{
    long long warmup = d->steps < 200 ? d->steps / 4 : 50;
    char *text;
    TRY_ALLOC(text =
                  arena_printf(&d->arena, config_text, d->dir, (long long)d->steps, warmup,
                               (long long)d->steps / 10, d->address, d->dir, d->address, d->dir));
    return file_write(path_of(d, "demo.yaml"), &(struct file_part){text, strlen(text)}, 1, 0644);
}

static enum err prepare(struct demo *d)
{
    TRY(make_directory(d));
    TRY(choose_port(d));
    TRY(network_open(d));
    TRY(write_config(d));
    fprintf(stderr, "text      %s -> token shards\n", d->text);
    TRY(finish(
        d, "data",
        (const char *const[]){"data", "--out", path_of(d, "data"), "--sites", "2", d->text, NULL}));
    fprintf(stderr,
            "identity  certificate authority, aggregator, sites a and b (mutual TLS 1.3)\n");
    const char *tls = path_of(d, "tls");
    TRY(finish(d, "cert",
               (const char *const[]){"cert", "authority", "--run", "demo", "--dir", tls, NULL}));
    TRY(finish(d, "cert",
               (const char *const[]){"cert", "issue", "--role", "aggregator", "--host",
                                     "localhost,127.0.0.1", "--dir", tls, NULL}));
    for (int i = 0; i < SITES; i++)
        TRY(finish(d, "cert",
                   (const char *const[]){"cert", "issue", "--role", "site", "--name", site_name[i],
                                         "--dir", tls, NULL}));
    return ERR_OK;
}

/* ---- watching ---- */
static void row_take(struct watched *w, const struct jsonl_row *row)
{
    struct progress_line *l = &w->line;
    double step = jsonl_number(row, "step");
    if (jsonl_is(row, "start")) {
        l->steps = jsonl_whole(jsonl_number(row, "steps"));
        double rounds = jsonl_number(row, "rounds");
        l->rounds = (uint64_t)jsonl_whole(fmax(0, rounds));
        w->every = l->rounds ? (double)l->steps / (double)l->rounds : 0;
    } else if (jsonl_is(row, "step")) {
        double step_s = jsonl_number(row, "step_ms") / 1e3, t = jsonl_number(row, "t");
        int64_t every = w->every >= 1 ? (int64_t)w->every : 20;
        if (w->pace.last == 0) /* evaluation and start-up are no pace */
            progress_pace_step(&w->pace, (int64_t)step - 1, every, t - step_s);
        progress_pace_step(&w->pace, (int64_t)step, every, t);
        l->step = (int64_t)step;
        l->loss = jsonl_number(row, "loss");
        l->tokens_per_second =
            progress_smooth(l->tokens_per_second, jsonl_number(row, "tokens_per_second"));
        l->eta_seconds = progress_pace_eta(&w->pace, l->steps);
        l->sync_seconds = w->every > 0 ? (ceil(step / w->every) * w->every - step) * step_s : -1;
    } else if (jsonl_is(row, "round")) {
        w->up += jsonl_number(row, "up");
        w->up_predicted += jsonl_number(row, "up_predicted");
        w->down += jsonl_number(row, "down");
        w->down_predicted += jsonl_number(row, "down_predicted");
        w->wire_up += jsonl_number(row, "wire_up");
        w->wire_down += jsonl_number(row, "wire_down");
        l->round++;
        l->bytes_up = (uint64_t)w->up;
        l->bytes_down = (uint64_t)w->down;
        l->predicted_up = (uint64_t)w->up_predicted;
        l->predicted_down = (uint64_t)w->down_predicted;
    } else if (jsonl_is(row, "eval")) {
        w->last_loss = jsonl_number(row, "loss");
        if (step == 0)
            w->first_loss = w->last_loss;
    }
}

static void records_follow(struct demo *d, struct watched *w, unsigned index)
{
    struct jsonl_row row;
    if (!w->reader.file && !jsonl_reader_open(&w->reader, w->path))
        return;
    while (jsonl_next(&w->reader, &row))
        row_take(w, &row);
    progress_update(&d->progress, index, &w->line);
}

static void watch(struct demo *d, struct watched *w, const char *name, const char *label)
{
    *w = (struct watched){
        .line = {.loss = NAN, .tokens_per_second = NAN, .sync_seconds = -1, .eta_seconds = -1},
        .first_loss = NAN,
        .last_loss = NAN};
    snprintf(w->line.site, sizeof w->line.site, "%s", label);
    snprintf(w->path, sizeof w->path, "%s/%s/%s", d->dir, name, RECORD_FILE);
}

/* The live page of both sites and the aggregator, as long as the demo runs. A build without
 * civetweb has none. */
static enum err page_start(struct demo *d)
{
    if (!*d->http || !http_there())
        return ERR_OK;
    if (!loopback_address(d->http))
        return err_set(ERR_CONFIG, "demo: --http %.40s is no loopback address with a port",
                       d->http);
    for (int i = 0; i < SITES; i++)
        d->followed[i] = path_of(d, site_name[i]);
    d->followed[SITES] = path_of(d, "aggregator");
    TRY(page_open(&d->page, &(struct page_options){
                                .address = d->http, .dirs = d->followed, .dir_count = SITES + 1}));
    fprintf(stderr, "watch     %s (as long as the demo runs)\n", d->page.url);
    return ERR_OK;
}

/* ---- the two parts ---- */
static enum err start_train(struct demo *d, const char *name, const char *data, bool alone,
                            struct child **child)
{
    char address[ADDRESS_MAX];
    const char *argv[ARGUMENTS_MAX + 1] = {"train",
                                           "--config",
                                           path_of(d, "demo.yaml"),
                                           "--site.name",
                                           alone ? "a" : name,
                                           "--run.dir",
                                           path_of(d, name),
                                           "--data.train",
                                           path_of(d, data),
                                           "--log.progress",
                                           "none",
                                           "--site.aggregator",
                                           alone ? "" : address};
    int n = 13;
    if (!alone)
        reach(d, name, address);
    else {
        argv[n++] = "--device.threads"; /* it has the machine to itself */
        argv[n++] = "2";
    }
    settings_to(d, argv, n);
    return start(d, name, argv, alone ? NULL : name, child);
}

static enum err start_serve(struct demo *d, struct child **child)
{
    const char *argv[ARGUMENTS_MAX + 1] = {"serve", "--config", path_of(d, "demo.yaml")};
    settings_to(d, argv, 3);
    return start(d, "aggregator", argv, "aggregator", child);
}

static enum err sites_together(struct demo *d)
{
    struct child *serve, *site[SITES];
    enum err network = ERR_OK;
    bool any = true;
    TRY(start_serve(d, &serve));
    for (int i = 0; i < SITES; i++) {
        watch(d, &d->sites[i], site_name[i], i ? "site b" : "site a");
        TRY(start_train(d, site_name[i], i ? "data/train-1-*.bin" : "data/train-0-*.bin", false,
                        &site[i]));
    }
    TRY(progress_open(&d->progress, "auto", SITES, NULL));
    while (any && !stopped && network == ERR_OK) {
        any = false;
        network = d->topology_source ? wan_check(&d->wan) : ERR_OK;
        for (int i = 0; i < SITES; i++) {
            any = child_running(site[i]) || any;
            records_follow(d, &d->sites[i], (unsigned)i);
            if (site[i]->pid == 0 && site[i]->status)
                stopped = SIGTERM;
        }
        if (!child_running(serve) && serve->status)
            stopped = SIGTERM;
        child_pause(POLL_MS);
    }
    progress_close(&d->progress);
    TRY(network);
    for (int i = 0; i < SITES; i++)
        if (site[i]->pid == 0 && site[i]->status)
            return child_failed(site[i]);
    if (serve->pid == 0 && serve->status)
        return child_failed(serve);
    for (int wait = 0; wait < 50 && child_running(serve) && !stopped;
         wait++) /* it ends by itself once all have reported */
        child_pause(POLL_MS);
    return stopped ? err_set(ERR_STOPPED, "stopped on request") : ERR_OK;
}

static enum err one_alone(struct demo *d)
{
    struct child *c;
    watch(d, &d->alone, "alone", "a alone");
    TRY(start_train(d, "alone", "data/train-0-*.bin", true, &c));
    TRY(progress_open(&d->progress, "auto", 1, NULL));
    bool more = true;
    while (more && !stopped) {
        more = child_running(c);
        records_follow(d, &d->alone, 0);
        child_pause(POLL_MS);
    }
    progress_close(&d->progress);
    if (stopped)
        return err_set(ERR_STOPPED, "stopped on request");
    return c->status == 0 ? ERR_OK : child_failed(c);
}

/* ---- the end ---- */
enum { ROUNDS_ENOUGH = 60 }; /* from here on two sites end better than one, on the demo's model */

/* Two sites that end worse than one are no error: they need rounds. */
static void print_why_worse(const struct demo *d)
{
    unsigned long long rounds = d->sites[0].line.round;
    printf(
        "  Two sites end worse than one here: %llu round%s are too few. In the first rounds the\n"
        "  outer momentum builds up and each merge costs some progress; with more rounds the\n"
        "  second site's text pays off.",
        rounds, rounds == 1 ? "" : "s");
    if (rounds < ROUNDS_ENOUGH && d->sites[0].every > 0)
        printf(" Try --steps %.0f (%d rounds).", ceil(d->sites[0].every * ROUNDS_ENOUGH),
               ROUNDS_ENOUGH);
    printf("\n");
}

static void print_losses(const struct demo *d)
{
    double together = d->sites[0].last_loss, alone = d->alone.last_loss;
    printf("\nEval loss, nats per byte (perplexity)\n");
    printf("  before training            %.4f (%.1f)\n", d->sites[0].first_loss,
           exp(d->sites[0].first_loss));
    printf("  one site alone             %.4f (%.2f)\n", alone, exp(alone));
    printf(
        "  two sites together         %.4f (%.2f)   same tokens per site, same number of steps\n",
        together, exp(together));
    if (together < alone)
        printf("  gained by the second site  %.4f (%.1f %% lower perplexity)\n", alone - together,
               100 * (1 - exp(together - alone)));
    else
        print_why_worse(d);
}

static void print_bytes(const struct demo *d)
{
    printf("\nOn the link                  predicted    counted    with TLS and framing\n");
    for (int i = 0; i < SITES; i++) {
        char text[6][32];
        const struct watched *w = &d->sites[i];
        const double bytes[] = {w->up_predicted,   w->up,   w->wire_up,
                                w->down_predicted, w->down, w->wire_down};
        for (int k = 0; k < 6; k++)
            progress_bytes(text[k], sizeof text[k], bytes[k]);
        printf("  site %s up                  %10s %10s    %s\n", site_name[i], text[0], text[1],
               text[2]);
        printf("  site %s down                %10s %10s    %s\n", site_name[i], text[3], text[4],
               text[5]);
    }
    printf("  %llu rounds\n", (unsigned long long)d->sites[0].line.round);
}

/* Shares of the time since a site's first record (report_compute_share). */
static void print_times(const struct report_cost cost[SITES])
{
    static const char *const what[REPORT_COSTS] = {"computing",
                                                   "sending",
                                                   "waiting for the other site and the commit",
                                                   "receiving",
                                                   "encode, store, apply",
                                                   "start, evaluation, checkpoints, rest"};
    printf("\nWhere the time goes                              site a    site b\n");
    for (int k = 0; k < REPORT_COSTS; k++)
        printf("  %-43s %7.1f %% %7.1f %%\n", what[k], 100 * cost[0].share[k],
               100 * cost[1].share[k]);
    if (cost[0].hidden_s > 0)
        printf("  %-43s %7.1f s %7.1f s\n", "rounds beside training (overlapped)", cost[0].hidden_s,
               cost[1].hidden_s);
}

static double standing(const struct report_cost *c)
{
    return 1 - c->share[REPORT_COMPUTING] - c->share[REPORT_BESIDES];
}

/* Where training stands still for its rounds: settings that let it go on meanwhile. */
static void print_hint(const struct demo *d, const struct report_cost cost[SITES])
{
    enum { FRAGMENTS = 4 };
    const double much = 0.10;
    double step_s = fmax(cost[0].step_s, cost[1].step_s);
    double round_s = fmax(cost[0].round_s, cost[1].round_s);
    double waits = fmax(standing(&cost[0]), standing(&cost[1]));
    if (waits < much || cost[0].hidden_s > 0 || !(step_s > 0))
        return;
    double every = d->sites[0].every, steps = fmax(5, ceil(round_s / FRAGMENTS / step_s) + 1);
    printf("  Training stands still for %.0f %% of the time. fragments %d, overlap %.0f would hide"
           "%s it:\n  --outer.fragments %d --outer.overlap_steps %.0f\n",
           100 * waits, FRAGMENTS, fmin(steps, every - 1), steps < every ? "" : " most of",
           FRAGMENTS, fmin(steps, every - 1));
}

static enum err print_sample(struct demo *d)
{
    const char *argv[ARGUMENTS_MAX + 1] = {"sample",    "--config",      path_of(d, "demo.yaml"),
                                           "--run.dir", path_of(d, "a"), "--tokens",
                                           "300",       "--prompt",      "The "};
    settings_to(d, argv, 9);
    TRY(finish(d, "sample", argv));
    printf("\nWhat the model writes after \"The \"\n");
    FILE *f = fopen(path_of(d, "sample.log"), "re");
    char line[400];
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "t=", 2) != 0)
            printf("  | %s", line);
    if (f)
        fclose(f);
    printf("\n");
    return ERR_OK;
}

/* This program, as it can be typed. */
static const char *program(struct demo *d)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    const char *text = n > 0 ? arena_string(&d->arena, path, (size_t)n) : NULL;
    return text ? text : "atoll";
}

static enum err summary(struct demo *d)
{
    struct report_run *runs;
    size_t count;
    const char *out = path_of(d, "report.html"),
               *wan = d->topology_source ? path_of(d, "wan.jsonl") : NULL;
    const char *const dirs[] = {path_of(d, "a"), path_of(d, "b"), path_of(d, "alone"),
                                path_of(d, "aggregator")};
    TRY(report_data_read(&runs, &count, dirs, sizeof dirs / sizeof *dirs, &d->arena));
    if (wan)
        TRY(wan_record(&d->wan, wan, &d->arena));
    TRY(page_report_write(out, runs, count, wan));
    print_losses(d);
    print_bytes(d);
    const struct report_cost cost[SITES] = {report_cost(&runs[0]), report_cost(&runs[1])};
    print_times(cost);
    print_hint(d, cost);
    if (d->topology_source)
        wan_print(&d->wan, stdout);
    TRY(print_sample(d));
    printf("\nReport  %s (opens offline)\nLogs    %s/*.log, %s/*/log.txt\n", out, d->dir, d->dir);
    printf("Bytes   %s ledger %s/a %s/b %s/aggregator\n", program(d), d->dir, d->dir, d->dir);
    printf("Next    %s export --config %s/demo.yaml --run.dir %s/a --out %s/gpt2\n", program(d),
           d->dir, d->dir, d->dir);
    return ERR_OK;
}

static enum err demo(struct demo *d)
{
    setenv("OMP_WAIT_POLICY", "passive",
           0); /* three processes share few cores: waiting threads must not spin */
    TRY(prepare(d));
    fprintf(stderr, "train     two sites and an aggregator at %s, %lld steps each\n", d->address,
            (long long)d->steps);
    TRY(page_start(d));
    TRY(sites_together(d));
    fprintf(stderr, "compare   site a alone, same text, same seed, same number of steps\n");
    TRY(one_alone(d));
    return summary(d);
}

/* Next to the program, in its build directory. */
static enum err find_text(struct demo *d)
{
    static const char *const names[] = {"own.txt", "gcide.txt"};
    const char *own = program(d), *slash = strrchr(own, '/');
    for (size_t i = 0; !d->text && slash && i < sizeof names / sizeof *names; i++) {
        char *path = arena_printf(&d->arena, "%.*s/../text/%s", (int)(slash - own), own, names[i]);
        TRY_ALLOC(path);
        d->text = file_exists(path) ? path : NULL;
    }
    return d->text ? ERR_OK
                   : err_set(ERR_CONFIG,
                             "--text FILE is missing: plain text of a megabyte or more, such as\n"
                             "  cat docs/*.md >text.txt && %s demo --text text.txt\n"
                             "deploy/run-demo.sh prepares a dictionary and runs the demo with it",
                             own);
}

enum err cmd_demo(int argc, char **argv)
{
    struct demo d = {
        .dir = "atoll-demo", .steps = 1600, .http = "127.0.0.1:0", .arena = arena_make(0)};
    const struct args_option options[] = {
        {"text", ARGS_TEXT, &d.text, .value = "FILE",
         .help = "Plain text to train on; a megabyte or more. Without it the text that "
                 "deploy/run-demo.sh has prepared, where there is one."},
        {"dir", ARGS_TEXT, &d.dir, .value = "DIR",
         .help = "Where everything goes; an earlier demo there is replaced."},
        {"wan", ARGS_TEXT, &d.topology_source, .value = "FILE",
         .help =
             "Topology of an emulated network between them, or a preset's name; `atoll wan --list` "
             "shows those. Without it: loopback."},
        {"steps", ARGS_INT, &d.steps, .value = "N", .min = 20, .max = 1e6,
         .help = "Inner steps of each site."},
        {"http", ARGS_TEXT, &d.http, .value = "ADDRESS",
         .help = "Loopback address and port of the live page while it runs; port 0 picks one, "
                 "empty: none."},
    };
    struct args args = {.command = "demo",
                        .summary = "Two sites and an aggregator on this machine, over mutual TLS, "
                                   "on real text; then one site "
                                   "alone for comparison; a summary and a report.",
                        .example = "atoll demo --text book.txt",
                        .settings = run_nearest_setting,
                        .options = options,
                        .count = sizeof options / sizeof *options};
    process_files_private();
    enum err e = args_parse(&args, argc, argv, &d.arena);
    if (e == ERR_OK && args.setting_count > SETTINGS_MAX)
        e = err_set(ERR_CONFIG, "demo: more than %d arguments for the configuration", SETTINGS_MAX);
    if (e == ERR_OK && !args.help)
        e = find_text(&d);
    if (e == ERR_OK && !args.help) {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        d.settings = args.setting_count;
        d.setting = args.setting;
        e = demo(&d);
        char said[1024];
        snprintf(said, sizeof said, "%s", err_message());
        page_close(&d.page);
        child_end(d.children, d.child_count);
        wan_close(&d.wan);
        err_set(e, "%s", said);
    }
    arena_free(&d.arena);
    return e;
}
