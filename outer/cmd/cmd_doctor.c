/* atoll doctor: what this machine and this build can do, one fact a line; what is missing is said,
 * and is no error. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "kernels/cuda/module.h"
#include "outer/cmd/args.h"
#include "outer/cmd/cmd.h"
#include "outer/link/tcp.h"
#include "outer/version.h"
#include "outer/wan/namespace.h"

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

static void show_build(void)
{
#ifdef ATOLL_NET
    puts("network yes: gRPC over mutual TLS");
#else
    puts("network no: this build is without gRPC (-DNET=OFF)");
#endif
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

enum err cmd_doctor(int argc, char **argv)
{
    struct args args = {
        .command = "doctor",
        .summary =
            "Says what this machine and this build can do, and what is missing for the rest.",
        .example = "atoll doctor"};
    struct arena arena = arena_make(0);
    enum err e = args_parse(&args, argc, argv, &arena);
    arena_free(&arena);
    if (e != ERR_OK || args.help)
        return e;
    printf("%s\n", version_line());
    show_cpu();
    show_memory();
    show_build();
    show_tcp();
    show_wan();
    show_gpu();
    return ERR_OK;
}
