/* SPDX-License-Identifier: Apache-2.0 */
/* atoll doctor: what this machine and this build can do, one fact a line; what is missing is said,
 * and is no error. */
#include <stdio.h>
#include <time.h>
#include "kernels/cuda/module.h"
#include "kernels/base/args.h"
#include "outer/cmd/cmd.h"
#include "outer/link/tcp.h"
#ifdef ATOLL_NET
#include "outer/run/ask.h"
#endif
#include "outer/run/machine.h"
#include "outer/run/preflight.h"
#include "outer/record/version.h"
#include "outer/wan/namespace.h"
#include "outer/view/http.h"

static void show_cpu(void)
{
    struct dev *d;
    if (dev_open(&d, &(struct dev_options){.kind = "cpu"}) == ERR_OK)
        puts(d->note); /* "cpu isa=..." */
    else
        printf("cpu unusable: %s\n", err_message());
    dev_close(d);
}

static void show_memory(void)
{
    struct machine_memory m;
    machine_memory(&m);
    printf("memory %.1f GiB, %.1f GiB of it free\n", m.all, m.free);
    printf("shared memory %.0f MiB%s\n", m.shared_mib,
           m.shared_mib >= 1024
               ? ""
               : ": too little for several ranks on this machine; give a container --shm-size=1g");
}

static void show_build(void)
{
#ifdef ATOLL_NET
    puts("network yes: gRPC over mutual TLS");
#else
    puts("network no: this build is without gRPC (-DNET=OFF)");
#endif
    puts(http_there() ? "page yes: serve.http, site.http, atoll watch"
                      : "page no: no live page and no /metrics (no civetweb)");
#ifdef HAVE_MPI
    puts("mpi yes: several CPU ranks per site");
#else
    puts("mpi no: one CPU rank per site (-DMPI=OFF, or MPI was not found)");
#endif
}

static void show_tcp(void)
{
    struct tcp_settings t;
    tcp_read(&t, "/proc/sys/net/ipv4");
    tcp_print(&t, stdout);
}

/* By making a place of an emulated network and dropping it. */
static void show_wan(void)
{
    struct namespace n;
    struct namespace_setup setup = {
        .address = 10u << 24 | 1, .mtu = 1500, .congestion = "", .slow_start_after_idle = true};
    if (namespace_open(&n, &setup) == ERR_OK)
        puts("emulated networks yes: packets, as in `atoll wan`");
    else
        printf("emulated networks no: a relay with rate, delay, outages only: %s\n", err_message());
    namespace_close(&n);
}

static void show_driver(void)
{
    struct machine_driver d;
    machine_driver(&d);
    if (!*d.version && !d.library)
        puts("driver no: no NVIDIA driver runs here; GPUs need one");
    else if (!d.library)
        printf("driver no: %s runs here, but libcuda.so.1 is not found: install the driver's "
               "libraries; a container is "
               "given them by NVIDIA's container toolkit (--gpus all)\n",
               d.version);
    else if (d.gpus == 0 && !d.wsl)
        puts("driver no: libcuda.so.1 is here, but no /dev/nvidia0: give the container the GPUs "
             "(--gpus all), or load the "
             "driver (nvidia-smi)");
    else
        printf("driver yes: %s, %zu GPUs\n", *d.version ? d.version : "of Windows", d.gpus);
}

static void show_gpu(void)
{
    const struct cuda_module *m;
    struct dev *d;
    void *nccl;
    char text[4096] = "";
    if (module_cuda(&m) != ERR_OK) {
        printf("cuda no: %s\n", err_message());
        return;
    }
    m->describe(text, sizeof text);
    fputs(text, stdout);
    if (dev_open(&d, &(struct dev_options){.kind = "cuda"}) == ERR_OK)
        puts(d->note);
    else
        printf("cuda no: %s\n", err_message());
    dev_close(d);
    bool several = module_find("libatoll_nccl.so", "atoll_nccl_module", &nccl) == ERR_OK;
    printf("nccl %s%s\n",
           several ? "yes: several GPUs per site" : "no: ", several ? "" : err_message());
}

#ifdef ATOLL_NET
static enum err probe(const struct ask *q, struct arena *arena)
{
    struct tls_facts f;
    char until[32];
    double took_s;
    TRY(ask_aggregator(q, &f, &took_s, arena));
    time_t until_s = (time_t)f.until_unix;
    struct tm tm;
    if (!gmtime_r(&until_s, &tm) || !strftime(until, sizeof until, "%Y-%m-%d", &tm))
        *until = 0;
    printf("aggregator yes: %s is %s, certificate until %s; connection and call took %.0f ms\n",
           q->target, f.uri, until, took_s * 1e3);
    return ERR_OK;
}
#endif

static void machine(void)
{
    printf("%s\n", version_line());
    show_cpu();
    show_memory();
    show_build();
    show_tcp();
    show_wan();
    show_driver();
    show_gpu();
}

/* --site is --site.name, so that it is checked as that is. */
static enum err preflight_start(struct preflight_options *o, struct args *args, struct arena *a)
{
    if (o->site && o->serve)
        return err_set(ERR_CONFIG, "doctor: --site and --serve are of two machines");
    if (!o->site)
        return preflight_run(o, args);
    char **setting = arena_array(a, (size_t)args->setting_count + 2, sizeof *setting);
    TRY_ALLOC(setting);
    for (int i = 0; i < args->setting_count; i++)
        setting[i] = args->setting[i];
    setting[args->setting_count] = arena_printf(a, "--site.name");
    setting[args->setting_count + 1] = arena_printf(a, "%s", o->site);
    args->setting = setting;
    args->setting_count += 2;
    return preflight_run(o, args);
}

enum err cmd_doctor(int argc, char **argv)
{
    struct preflight_options before = {.ranks = 1};
#ifdef ATOLL_NET
    struct ask p = {.tls = "tls", .name = "aggregator"};
#endif
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &before.config, .value = "FILE",
         .help = "Only this: is all ready for the run of this configuration? Lines OK, WARN, FAIL "
                 "with what to do; exit code 0, 8 with warnings, 4 when a check failed."},
        {"site", ARGS_TEXT, &before.site, .value = "NAME",
         .help = "With --config: the site whose machine this is; site.name without it."},
        {"serve", ARGS_FLAG, &before.serve,
         .help = "With --config: this machine is the aggregator's."},
        {"ranks", ARGS_INT, &before.ranks, .min = 1, .max = 4096, .value = "N",
         .help = "With --config: ranks of the site on this machine."},
#ifdef ATOLL_NET
        {"aggregator", ARGS_TEXT, &p.target, .value = "HOST:PORT",
         .help = "Only this: does an aggregator answer there, over TLS, with a certificate of the "
                 "run? A probe for service managers."},
        {"tls", ARGS_TEXT, &p.tls, .value = "DIR",
         .help = "For it: directory of the certificates."},
        {"name", ARGS_TEXT, &p.name, .value = "NAME",
         .help = "For it: the certificate to show, NAME.pem; any of the run will do."},
        {"aggregator-name", ARGS_TEXT, &p.server_name, .value = "NAME",
         .help = "For it: DNS name in the aggregator's certificate, when it is not HOST."},
        {"proxy", ARGS_TEXT, &p.proxy_url, .value = "URL",
         .help = "For it: proxy to the aggregator, as site.proxy."},
        {"proxy-credentials", ARGS_TEXT, &p.credentials, .value = "FILE",
         .help = "For it: the proxy's user and password, as site.proxy_credentials."},
#endif
    };
    struct args args = {
        .command = "doctor",
        .summary = "Says what this machine and this build can do, and what is missing for the "
                   "rest; or whether all is ready for a run; or whether an aggregator answers.",
        .example = "atoll doctor --config run.yaml --site a",
        .settings = run_nearest_setting,
        .options = options,
        .count = sizeof options / sizeof *options,
    };
    struct arena arena = arena_make(0);
    enum err e = args_parse(&args, argc, argv, &arena);
    if (e == ERR_OK && !args.help) {
        if (before.config)
            e = preflight_start(&before, &args, &arena);
        else
#ifdef ATOLL_NET
            if (p.target)
            e = probe(&p, &arena);
        else
#endif
            machine();
    }
    arena_free(&arena);
    return e;
}
