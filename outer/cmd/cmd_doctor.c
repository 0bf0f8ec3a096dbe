/* atoll doctor: what this machine and this build can do, one fact a line; what is missing is said,
 * and is no error. */
#include <dlfcn.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/cuda/module.h"
#include "kernels/base/args.h"
#include "outer/cmd/cmd.h"
#include "outer/link/tcp.h"
#ifdef ATOLL_NET
#include "kernels/base/log.h"
#include "outer/identity/tls.h"
#endif
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
    double page = (double)sysconf(_SC_PAGESIZE) / (1 << 30);
    printf("memory %.1f GiB, %.1f GiB of it free\n", (double)sysconf(_SC_PHYS_PAGES) * page,
           (double)sysconf(_SC_AVPHYS_PAGES) * page);
}

/* Ranks of one machine meet in it, over MPI and over NCCL; a container's default of 64 MiB is too
 * little. */
static void show_shared_memory(void)
{
    struct statvfs v;
    bool there = statvfs("/dev/shm", &v) == 0;
    double mib = there ? (double)v.f_blocks * (double)v.f_frsize / (1 << 20) : 0;
    printf("shared memory %.0f MiB%s\n", mib,
           mib >= 1024
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

static size_t files_like(const char *pattern)
{
    glob_t g = {0};
    size_t count = glob(pattern, 0, NULL, &g) == 0 ? g.gl_pathc : 0;
    globfree(&g);
    return count;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 ..." -> "580.95.05" */
static bool driver_version(char version[32])
{
    char line[256] = "";
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    bool read = f && fgets(line, sizeof line, f);
    if (f)
        fclose(f);
    for (char *word = strtok(line, " \t\n"); word && read; word = strtok(NULL, " \t\n"))
        if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
            snprintf(version, 32, "%.31s", word);
            return true;
        }
    return false;
}

/* The driver is the machine's, its library and devices may be kept from a container. */
static void show_driver(void)
{
    char version[32];
    size_t gpus = files_like("/dev/nvidia[0-9]*");
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    bool wsl = files_like("/dev/dxg") == 1; /* Windows' subsystem: GPUs without these devices */
    if (!driver_version(version) && !library)
        puts("driver no: no NVIDIA driver runs here; GPUs need one");
    else if (!library)
        printf("driver no: %s runs here, but libcuda.so.1 is not found: install the driver's "
               "libraries; a container is "
               "given them by NVIDIA's container toolkit (--gpus all)\n",
               version);
    else if (gpus == 0 && !wsl)
        puts("driver no: libcuda.so.1 is here, but no /dev/nvidia0: give the container the GPUs "
             "(--gpus all), or load the "
             "driver (nvidia-smi)");
    else
        printf("driver yes: %s, %zu GPUs\n", driver_version(version) ? version : "of Windows",
               gpus);
    if (library)
        dlclose(library);
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
struct probe {
    const char *target, *tls, *name, *server_name, *proxy_url, *credentials;
};

/* The aggregator's own certificate says which names it answers to: beside the aggregator, where a
 * probe dials the loopback, none of them is the address. */
static enum err probe_name(const struct probe *p, const struct link_tls *files, char name[256])
{
    struct tls_facts f;
    TRY(tls_facts(&f, files->certificate));
    snprintf(name, 256, "%s", p->server_name ? p->server_name : "");
    if (!*name && f.server)
        snprintf(name, 256, "%.*s", (int)strcspn(f.hosts, " "), f.hosts);
    return ERR_OK;
}

static enum err probe(const struct probe *p, struct arena *arena)
{
    struct dial_proxy proxy;
    struct link_tls files;
    struct tls_facts f;
    char name[256], until[32];
    TRY_ALLOC(files.ca = arena_printf(arena, "%s/ca.pem", p->tls));
    TRY_ALLOC(files.certificate = arena_printf(arena, "%s/%s.pem", p->tls, p->name));
    TRY_ALLOC(files.key = arena_printf(arena, "%s/%s.key", p->tls, p->name));
    TRY(probe_name(p, &files, name));
    TRY(tls_usable(&files, clock_wall_s()));
    log_min(LOG_ERROR); /* the sentence says it */
    signal(SIGPIPE, SIG_IGN);
    TRY(dial_proxy_parse(&proxy, p->proxy_url));
    TRY(dial_proxy_credentials(&proxy, p->credentials));
    uint32_t timeout_ms = *proxy.shown ? 5000 + DIAL_TIMEOUT_MS : 5000;
    struct link_dial d = {.target = p->target, .server_name = name, .proxy = &proxy, .tls = files};
    struct tls_question q = {.files = &files,
                             .target = p->target,
                             .server_name = name,
                             .proxy = &proxy,
                             .timeout_ms = timeout_ms};
    TRY(tls_force13());
    TRY(tls_peer(&q, &f));
    double begin_s = clock_mono_s();
    TRY(link_probe(&d, timeout_ms));
    dial_proxy_forget(&proxy);
    double took_s = clock_mono_s() - begin_s;
    time_t until_s = (time_t)f.until_unix;
    struct tm tm;
    if (!gmtime_r(&until_s, &tm) || !strftime(until, sizeof until, "%Y-%m-%d", &tm))
        *until = 0;
    printf("aggregator yes: %s is %s, certificate until %s; connection and call took %.0f ms\n",
           p->target, f.uri, until, took_s * 1e3);
    return ERR_OK;
}
#endif

static void machine(void)
{
    printf("%s\n", version_line());
    show_cpu();
    show_memory();
    show_shared_memory();
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
    struct probe p = {.tls = "tls", .name = "aggregator"};
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
