/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/demo.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "outer/link/forward.h"
#include "outer/link/loopback.h"
#include "outer/view/live.h"
#include "outer/view/page.h"
#include "outer/view/page_report.h"
#include "outer/view/progress.h"
#include "outer/wan/child.h"
#include "outer/wan/wan.h"

enum { SITES = DEMO_SITES, ARGUMENTS_MAX = DEMO_SETTINGS_MAX + 16, POLL_MS = 200 };
enum { CHILDREN_MAX = 8, ADDRESS_MAX = 32 };
const char *const demo_site_name[SITES] = {"a", "b"};

struct demo {
    const struct demo_options *o;
    struct arena arena;
    struct child children[CHILDREN_MAX];
    unsigned child_count;
    struct progress progress;
    struct report_follow follow; /* of the runs that are shown */
    const char *shown[SITES];
    struct topology topology;
    struct wan wan;
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

struct demo *demo_make(const struct demo_options *o)
{
    struct demo *d = calloc(1, sizeof *d);
    if (d) {
        d->o = o;
        d->arena = arena_make(0);
    }
    return d;
}

/* ---- processes ---- */
static const char *path_of(struct demo *d, const char *name)
{
    const char *path = arena_printf(&d->arena, "%s/%s", d->o->dir, name);
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
    if (d->o->topology)
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
    TRY_ALLOC(command.log = arena_printf(&d->arena, "%s/%s.log", d->o->dir, name));
    if (place && d->o->topology)
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
    for (int i = 0; i < d->o->settings && n < ARGUMENTS_MAX; i++)
        argv[n++] = d->o->setting[i];
}

/* Only a directory that an earlier demo made is replaced. */
static enum err make_directory(struct demo *d)
{
    const char *config = path_of(d, "demo.yaml");
    char **names;
    size_t count = 0;
    if (file_exists(d->o->dir)) {
        TRY(file_list(d->o->dir, &d->arena, &names, &count));
        if (count && !file_exists(config))
            return err_set(ERR_CONFIG,
                           "%s exists and is not from a demo: give another --dir, or remove it",
                           d->o->dir);
        TRY(file_remove_tree(d->o->dir));
    }
    return file_mkdirs(d->o->dir);
}

/* A port that is free now. Another process may take it before the aggregator does; then that one
 * says so.
 */
static enum err choose_port(struct demo *d)
{
    int fd;
    TRY(forward_listen(&fd, "127.0.0.1:0", &d->port));
    close(fd);
    return ERR_OK;
}

/* With --wan the sites and the aggregator are places of an emulated network. */
static enum err network_open(struct demo *d)
{
    static const char *const needed[] = {"a", "b", "aggregator"};
    struct config_list *ports = &d->topology.set.wan_ports; /* of the relay, should it be needed */
    if (!d->o->topology) {
        reach(d, "aggregator", d->address);
        return ERR_OK;
    }
    TRY(topology_load(&d->topology, d->o->topology, NULL, &d->arena));
    for (int i = 0; i < SITES + 1; i++)
        if (topology_place(&d->topology, needed[i]) < 0)
            return err_set(ERR_CONFIG,
                           "--wan %s: wan.sites has no \"%s\"; the demo has a, b and aggregator",
                           d->o->topology, needed[i]);
    TRY_ALLOC(ports->items = arena_array(&d->arena, 1, sizeof *ports->items));
    TRY_ALLOC(ports->items[0] = arena_printf(&d->arena, "%d", d->port));
    ports->count = 1;
    TRY(wan_open(&d->wan, &d->topology, WAN_AUTO, &d->arena));
    reach(d, "aggregator", d->address);
    fprintf(stderr, "network   %s\n", d->o->topology);
    return ERR_OK;
}

static const char config_text[] =
    "# Written by `atoll demo`. The same file serves the aggregator and all sites; what differs "
    "between them is on\n"
    "# their command lines (see the report, \"Reproduce with\").\n"
    "run:\n  name: demo\n  seed: 1\n"
    "model:\n  layers: 4\n  heads: 4\n  d_model: 128\n  max_seq_len: 64\n"
    "data:\n  tokenizer: bytes\n  eval: [\"%s/data/eval-*.bin\"]\n"
    "train:\n  steps: %lld\n  batch_tokens: 768\n  seq_len: 64\n  optimizer: adamw\n  lr: 0.004\n"
    "  beta2: 0.99\n  warmup_steps: %lld\n  eval_every: %lld\n  eval_tokens: 32768\n"
    "  checkpoint_every: 200\n"
    "device:\n  threads: 1\n"
    "outer:\n  sites: [a, b]\n  sync_every: 20\n  fragments: 1\n  codec: int8\n  lr: 0.7\n"
    "site:\n  aggregator: %s\n  aggregator_name: localhost\n"
    "tls:\n  dir: %s/tls\n"
    "serve:\n  listen: %s\n  dir: %s/aggregator\n";

static enum err write_config(struct demo *d)
{
    long long warmup = d->o->steps < 200 ? d->o->steps / 4 : 50;
    char *text;
    TRY_ALLOC(text = arena_printf(&d->arena, config_text, d->o->dir, (long long)d->o->steps, warmup,
                                  (long long)d->o->steps / 10, d->address, d->o->dir, d->address,
                                  d->o->dir));
    return file_write(path_of(d, "demo.yaml"), &(struct file_part){text, strlen(text)}, 1, 0644);
}

static enum err prepare(struct demo *d)
{
    TRY(make_directory(d));
    TRY(choose_port(d));
    TRY(network_open(d));
    TRY(write_config(d));
    fprintf(stderr, "text      %s -> token shards\n", d->o->text);
    TRY(finish(d, "data",
               (const char *const[]){"data", "--out", path_of(d, "data"), "--sites", "2",
                                     d->o->text, NULL}));
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
                   (const char *const[]){"cert", "issue", "--role", "site", "--name",
                                         demo_site_name[i], "--dir", tls, NULL}));
    return ERR_OK;
}

/* ---- watching ---- */
static enum err rows_open(struct demo *d, const char *const *names, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        d->shown[i] = path_of(d, names[i]);
    report_follow_open(&d->follow, d->shown, count, &d->arena);
    return progress_open(&d->progress, "auto", count, NULL);
}

static enum err rows_show(struct demo *d)
{
    TRY(report_follow_read(&d->follow));
    for (size_t i = 0; i < d->follow.count; i++) {
        struct progress_line line;
        live_line(&line, &d->follow.runs[i], 1e-3 * (double)clock_wall_ms());
        progress_update(&d->progress, (unsigned)i, &line);
    }
    return ERR_OK;
}

static void rows_close(struct demo *d)
{
    progress_close(&d->progress);
    report_follow_close(&d->follow);
}

/* The live page of both sites and the aggregator, as long as the demo runs. A build without
 * civetweb has none. */
static enum err page_start(struct demo *d)
{
    if (!*d->o->http || !http_there())
        return ERR_OK;
    if (!loopback_address(d->o->http))
        return err_set(ERR_CONFIG, "demo: --http %.40s is no loopback address with a port",
                       d->o->http);
    for (int i = 0; i < SITES; i++)
        d->followed[i] = path_of(d, demo_site_name[i]);
    d->followed[SITES] = path_of(d, "aggregator");
    TRY(page_open(&d->page, &(struct page_options){.address = d->o->http,
                                                   .dirs = d->followed,
                                                   .dir_count = SITES + 1}));
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
    enum err e = ERR_OK;
    bool any = true;
    TRY(start_serve(d, &serve));
    for (int i = 0; i < SITES; i++)
        TRY(start_train(d, demo_site_name[i], i ? "data/train-1-*.bin" : "data/train-0-*.bin",
                        false, &site[i]));
    TRY(rows_open(d, demo_site_name, SITES));
    while (any && !stopped && e == ERR_OK) {
        any = false;
        e = d->o->topology ? wan_check(&d->wan) : ERR_OK;
        for (int i = 0; i < SITES; i++) {
            any = child_running(site[i]) || any;
            if (site[i]->pid == 0 && site[i]->status)
                stopped = SIGTERM;
        }
        if (!child_running(serve) && serve->status)
            stopped = SIGTERM;
        e = e == ERR_OK ? rows_show(d) : e;
        child_pause(POLL_MS);
    }
    rows_close(d);
    TRY(e);
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
    enum err e = ERR_OK;
    bool more = true;
    TRY(start_train(d, "alone", "data/train-0-*.bin", true, &c));
    TRY(rows_open(d, (const char *const[]){"alone"}, 1));
    while (more && !stopped && e == ERR_OK) {
        more = child_running(c);
        e = rows_show(d);
        child_pause(POLL_MS);
    }
    rows_close(d);
    TRY(e);
    if (stopped)
        return err_set(ERR_STOPPED, "stopped on request");
    return c->status == 0 ? ERR_OK : child_failed(c);
}

/* ---- the end ---- */
static enum err report_make(struct demo *d, struct demo_result *r)
{
    struct report_run *runs;
    size_t count;
    const char *wan = d->o->topology ? path_of(d, "wan.jsonl") : NULL;
    const char *const dirs[] = {path_of(d, "a"), path_of(d, "b"), path_of(d, "alone"),
                                path_of(d, "aggregator")};
    r->report = path_of(d, "report.html");
    TRY(report_data_read(&runs, &count, dirs, sizeof dirs / sizeof *dirs, &d->arena));
    if (wan)
        TRY(wan_record(&d->wan, wan, &d->arena));
    TRY(page_report_write(r->report, runs, count, wan));
    r->site = runs;
    r->alone = &runs[SITES];
    return ERR_OK;
}

enum err demo_run(struct demo *d, struct demo_result *r)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    setenv("OMP_WAIT_POLICY", "passive",
           0); /* three processes share few cores: waiting threads must not spin */
    TRY(prepare(d));
    fprintf(stderr, "train     two sites and an aggregator at %s, %lld steps each\n", d->address,
            (long long)d->o->steps);
    TRY(page_start(d));
    TRY(sites_together(d));
    fprintf(stderr, "compare   site a alone, same text, same seed, same number of steps\n");
    TRY(one_alone(d));
    return report_make(d, r);
}

void demo_network_print(const struct demo *d, struct json_write *w)
{
    if (d->o->topology && w)
        wan_json(&d->wan, w);
    else if (d->o->topology)
        wan_print(&d->wan, stdout);
}

enum err demo_sample(struct demo *d, const char *prompt, const char **log)
{
    const char *argv[ARGUMENTS_MAX + 1] = {"sample",    "--config",      path_of(d, "demo.yaml"),
                                           "--run.dir", path_of(d, "a"), "--tokens",
                                           "300",       "--prompt",      prompt};
    settings_to(d, argv, 9);
    *log = path_of(d, "sample.log");
    return finish(d, "sample", argv);
}

enum err demo_close(struct demo *d, enum err e)
{
    char said[1024];
    snprintf(said, sizeof said, "%s", err_message());
    page_close(&d->page);
    child_end(d->children, d->child_count);
    wan_close(&d->wan);
    arena_free(&d->arena);
    free(d);
    return err_set(e, "%s", said);
}

/* ---- the program and its text ---- */
const char *demo_program(struct arena *a)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    const char *text = n > 0 ? arena_string(a, path, (size_t)n) : NULL;
    return text ? text : "atoll";
}

enum err demo_text(const char **text, struct arena *a)
{
    static const char *const names[] = {"own.txt", "gcide.txt"};
    const char *own = demo_program(a), *slash = strrchr(own, '/');
    for (size_t i = 0; !*text && slash && i < sizeof names / sizeof *names; i++) {
        char *path = arena_printf(a, "%.*s/../text/%s", (int)(slash - own), own, names[i]);
        TRY_ALLOC(path);
        *text = file_exists(path) ? path : NULL;
    }
    return *text ? ERR_OK
                 : err_set(ERR_CONFIG,
                           "--text FILE is missing: plain text of a megabyte or more, such as\n"
                           "  cat docs/*.md >text.txt && %s demo --text text.txt\n"
                           "deploy/run-demo.sh prepares a dictionary and runs the demo with it",
                           own);
}
