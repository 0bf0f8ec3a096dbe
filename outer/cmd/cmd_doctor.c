/* SPDX-License-Identifier: Apache-2.0 */
/* atoll doctor: what this machine and this build can do, one fact a line; what is missing is said,
 * and is no error. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "kernels/cuda/module.h"
#include "kernels/base/args.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/link/tcp.h"
#ifdef ATOLL_NET
#include "outer/run/ask.h"
#endif
#include "outer/run/machine.h"
#include "outer/run/preflight.h"
#include "outer/record/json_write.h"
#include "outer/record/version.h"
#include "outer/wan/namespace.h"
#include "outer/view/http.h"

/* Writes each fact once: as an object of an array, or as a line "name [yes:|no:] text". */
struct facts {
    struct json_write *w; /* NULL: text */
};
enum there { THERE_SAYS, THERE_YES, THERE_NO }; /* SAYS: neither there nor missing */

__attribute__((format(printf, 4, 5))) static void fact(const struct facts *f, const char *name,
                                                       enum there there, const char *format, ...)
{
    static const char *const mark[] = {"", "yes: ", "no: "};
    char text[4600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!f->w) {
        printf("%s %s%s\n", name, mark[there], text);
        return;
    }
    json_object(f->w, NULL);
    json_text(f->w, "name", name);
    if (there != THERE_SAYS)
        json_bool(f->w, "available", there == THERE_YES);
    json_text(f->w, "text", text);
    json_end(f->w);
}

/* A device's note begins with its kind: "cpu isa=..". */
static void show_device(const struct facts *f, const char *kind)
{
    struct dev *d;
    if (dev_open(&d, &(struct dev_options){.kind = kind}) == ERR_OK)
        fact(f, kind, THERE_SAYS, "%s", d->note + strlen(kind) + 1);
    else
        fact(f, kind, THERE_NO, "%s", err_message());
    dev_close(d);
}

static void show_memory(const struct facts *f)
{
    struct machine_memory m;
    machine_memory(&m);
    fact(f, "memory", THERE_SAYS, "%.1f GiB, %.1f GiB of it free", m.all, m.free);
    fact(f, "shared memory", THERE_SAYS, "%.0f MiB%s", m.shared_mib,
         m.shared_mib >= 1024
             ? ""
             : ": too little for several ranks on this machine; give a container --shm-size=1g");
}

static void show_build(const struct facts *f)
{
#ifdef ATOLL_NET
    fact(f, "network", THERE_YES, "gRPC over mutual TLS");
#else
    fact(f, "network", THERE_NO, "this build is without gRPC (-DNET=OFF)");
#endif
    fact(f, "page", http_there() ? THERE_YES : THERE_NO, "%s",
         http_there() ? "serve.http, site.http, atoll watch"
                      : "no live page and no /metrics (no civetweb)");
#ifdef HAVE_MPI
    fact(f, "mpi", THERE_YES, "several CPU ranks per site");
#else
    fact(f, "mpi", THERE_NO, "one CPU rank per site (-DMPI=OFF, or MPI was not found)");
#endif
}

static void show_tcp(const struct facts *f)
{
    struct tcp_settings t;
    char text[160];
    tcp_read(&t, "/proc/sys/net/ipv4");
    tcp_text(&t, text, sizeof text);
    if (*text)
        fact(f, "tcp", THERE_SAYS, "%s", text);
}

/* By making a place of an emulated network and dropping it. */
static void show_wan(const struct facts *f)
{
    struct namespace n;
    struct namespace_setup setup = {
        .address = 10u << 24 | 1, .mtu = 1500, .congestion = "", .slow_start_after_idle = true};
    if (namespace_open(&n, &setup) == ERR_OK)
        fact(f, "emulated networks", THERE_YES, "packets, as in `atoll wan`");
    else
        fact(f, "emulated networks", THERE_NO, "a relay with rate, delay, outages only: %s",
             err_message());
    namespace_close(&n);
}

static void show_driver(const struct facts *f)
{
    struct machine_driver d;
    machine_driver(&d);
    if (!*d.version && !d.library)
        fact(f, "driver", THERE_NO, "no NVIDIA driver runs here; GPUs need one");
    else if (!d.library)
        fact(f, "driver", THERE_NO,
             "%s runs here, but libcuda.so.1 is not found: install the driver's libraries; a "
             "container is given them by NVIDIA's container toolkit (--gpus all)",
             d.version);
    else if (d.gpus == 0 && !d.wsl)
        fact(f, "driver", THERE_NO,
             "libcuda.so.1 is here, but no /dev/nvidia0: give the container the GPUs (--gpus all), "
             "or load the driver (nvidia-smi)");
    else
        fact(f, "driver", THERE_YES, "%s, %zu GPUs", *d.version ? d.version : "of Windows", d.gpus);
}

static void cuda_told(void *self, const char *name, bool missing, const char *text)
{
    fact(self, name, missing ? THERE_NO : THERE_SAYS, "%s", text);
}

static void show_gpu(struct facts *f)
{
    const struct cuda_module *m;
    void *nccl;
    if (module_cuda(&m) != ERR_OK) {
        fact(f, "cuda", THERE_NO, "%s", err_message());
        return;
    }
    m->describe(cuda_told, f);
    show_device(f, "cuda");
    bool several = module_find("libatoll_nccl.so", "atoll_nccl_module", &nccl) == ERR_OK;
    fact(f, "nccl", several ? THERE_YES : THERE_NO, "%s",
         several ? "several GPUs per site" : err_message());
}

#ifdef ATOLL_NET
static void probe_json(const struct ask *q, const struct tls_facts *f, const char *until,
                       double took_s)
{
    struct json_write w = {.out = stdout, .digits = 6};
    json_object(&w, NULL);
    json_text(&w, "aggregator", q->target);
    json_text(&w, "identity", f->uri);
    json_text(&w, "until", until);
    json_real(&w, "took_ms", took_s * 1e3);
    json_close(&w);
}

static enum err probe(const struct ask *q, bool json, struct arena *arena)
{
    struct tls_facts f;
    char until[32];
    double took_s;
    TRY(ask_aggregator(q, &f, &took_s, arena));
    time_t until_s = (time_t)f.until_unix;
    struct tm tm;
    if (!gmtime_r(&until_s, &tm) || !strftime(until, sizeof until, "%Y-%m-%d", &tm))
        *until = 0;
    if (json) {
        probe_json(q, &f, until, took_s);
        return ERR_OK;
    }
    printf("aggregator yes: %s is %s, certificate until %s; connection and call took %.0f ms\n",
           q->target, f.uri, until, took_s * 1e3);
    return ERR_OK;
}
#endif

static void machine(struct facts *f)
{
    show_device(f, "cpu");
    show_memory(f);
    show_build(f);
    show_tcp(f);
    show_wan(f);
    show_driver(f);
    show_gpu(f);
}

static void machine_say(bool json)
{
    struct json_write w = {.out = stdout};
    if (!json) {
        printf("%s\n", version_line());
        machine(&(struct facts){NULL});
        return;
    }
    json_object(&w, NULL);
    json_text(&w, "version", version_line());
    json_array(&w, "facts");
    machine(&(struct facts){&w});
    json_close(&w);
}

/* An option that is another name of a setting, so that it is checked as that is; NULL: not given.
 */
static enum err setting_add(struct args *args, char *key, const char *value, struct arena *a)
{
    char **setting = arena_array(a, (size_t)args->setting_count + 2, sizeof *setting);
    TRY_ALLOC(setting);
    if (!value)
        return ERR_OK;
    for (int i = 0; i < args->setting_count; i++)
        setting[i] = args->setting[i];
    setting[args->setting_count++] = key;
    TRY_ALLOC(setting[args->setting_count++] = arena_printf(a, "%s", value));
    args->setting = setting;
    return ERR_OK;
}

static enum err preflight_start(struct preflight_options *o, const char *tls, struct args *args,
                                struct arena *a)
{
    static char site_name[] = "--site.name", tls_dir[] = "--tls.dir";
    if (o->site && o->serve)
        return err_set(ERR_CONFIG, "doctor: --site and --serve are of two machines");
    TRY(setting_add(args, site_name, o->site, a));
    TRY(setting_add(args, tls_dir, tls, a));
    return preflight_run(o, args);
}

enum err cmd_doctor(int argc, char **argv, struct arena *arena)
{
    struct preflight_options before = {.ranks = 1};
    const char *format = "text";
    const char *tls = NULL;
#ifdef ATOLL_NET
    struct ask p = {.name = "aggregator"};
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
        FORMAT_ROW(&format, ": facts of this machine; with --config checks; with --aggregator "
                            "identity, until, took_ms"),
#ifdef ATOLL_NET
        {"aggregator", ARGS_TEXT, &p.target, .value = "HOST:PORT",
         .help = "Only this: does an aggregator answer there, over TLS, with a certificate of the "
                 "run? A probe for service managers."},
        {"tls", ARGS_TEXT, &tls, .value = "DIR",
         .help = "For it, and for --config: directory of the certificates, instead of tls or "
                 "tls.dir."},
        {"certificate", ARGS_TEXT, &p.name, .value = "NAME",
         .help = "For it: the certificate to show, NAME.pem; any of the run will do.",
         .former = "name"},
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
        ARGS_OPTIONS(options),
    };
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    TRY(cmd_format(format, &before.json));
    if (before.config)
        return preflight_start(&before, tls, &args, arena);
#ifdef ATOLL_NET
    p.tls = tls ? tls : "tls";
    if (p.target)
        return probe(&p, before.json, arena);
#endif
    machine_say(before.json);
    return ERR_OK;
}
