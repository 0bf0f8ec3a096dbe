/* SPDX-License-Identifier: Apache-2.0 */
/* What one round costs the aggregator at 2, 8 and 64 sites over real mutual TLS: CPU seconds per
 * GiB that went in or out, and the memory of its own (RssAnon, looked at every 10 ms; mapped files
 * are the page cache's) above what it had before the first call with all of the outer state in use;
 * for int8, which adds, and for the bf16 of a full-precision round, whose aggregate is the list of
 * the contributions, or their sum encoded again. The aggregator is a process of its own (this
 * program again, --serve), so that only its own figures count; the sites are threads of the parent,
 * each with its certificate and its link.
 *
 * bench_aggregator [--csv PATH] [--row SITES:MEBI:CODEC]   CODEC: int8, relayed, reencoded; without
 * --row: all of `table`
 *
 * Floor: a decrypted and an encrypted byte, about 0.6 s/GiB each way with AES-GCM and the kernel's
 * copies; SHA-256, the sum and the file come on top. Contributions are files, and so is an
 * aggregate that is relayed; one that adds exists once. So memory should be a share of the model +
 * some MiB for each site, never sites x model: hence two sizes of the model.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator.h"
#include "outer/identity/tls.h"
#include "tests/bench/bench.h"

enum { SITES_MAX = 64, NAME = 8 };
enum mode { MODE_INT8, MODE_RELAYED, MODE_REENCODED, MODES };
static const char *const mode_names[MODES] = {"int8", "relayed", "reencoded"};
static const char *const mode_cases[MODES] = {"int8", "bf16 relayed", "bf16 reencoded"};
struct row {
    unsigned sites, mebi; /* of parameters */
    enum mode mode;
};
static const struct row table[] =
    {
        {2, 4, MODE_INT8},       {8, 4, MODE_INT8},        {64, 4, MODE_INT8},
        {2, 4, MODE_RELAYED},    {8, 4, MODE_RELAYED},     {2, 16, MODE_INT8},
        {8, 16, MODE_INT8},      {64, 16, MODE_INT8},      {2, 16, MODE_RELAYED},
        {8, 16, MODE_RELAYED},   {64, 1, MODE_RELAYED}, /* 8 GiB go out: 64 times 64 contributions
                                                         */
        {64, 4, MODE_REENCODED}, {64, 16, MODE_REENCODED},
};
static const char canonical[] = "bench\n";

static size_t elements; /* of the model */
static char root[64];
static char names[SITES_MAX][NAME];
static const char *list[SITES_MAX];

/* ---- a replica, as both ends need one ---- */

struct held {
    struct tensor tensor;
    struct table table;
    struct fragments fragments;
    struct schedule schedule;
    struct dev *cpu;
    struct env *env;
    struct outer_state replica;
    struct arena perm;
};

static void values(float *z)
{
    for (size_t i = 0; i < elements; i++)
        z[i] = (float)((i * 2654435761u >> 13) % 97) / 64;
}

/* sites: 0 for a site's own */
static enum err held_open(struct held *h, const char *directory, enum mode mode, unsigned sites)
{
    struct dev_options device = {.kind = "cpu", .model_type = "f32", .threads = 1};
    struct outer_state_options o = {.fragments = &h->fragments, .keep = 2};
    h->perm = arena_make(0);
    h->tensor = (struct tensor){
        .name = "w", .shape = {(int64_t)elements, 1}, .count = elements, .layer = -1};
    h->table = (struct table){
        .tensors = &h->tensor, .count = 1, .elements = elements, .parameters = elements};
    TRY(fragment_make(&h->fragments, &h->table, &(struct fragment_plan){.count = 1}, &h->perm));
    o.schedule = schedule_streaming(2, 1, 1, mode != MODE_INT8, CODEC_INT8);
    o.schedule.downlink_compression_from = mode == MODE_REENCODED ? 2 : 0;
    h->schedule = o.schedule;
    if (sites)
        outer_state_aggregates(&o, sites);
    TRY(outer_opt_make(&o.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f));
    TRY(dev_open(&h->cpu, &device));
    TRY(env_posix_open(&h->env, directory));
    TRY(outer_state_open(&h->replica, h->env, h->cpu, &o, &h->perm));
    float *slab = calloc(elements, sizeof *slab);
    TRY_ALLOC(slab);
    enum err e = outer_state_begin(&h->replica, slab);
    values(slab);
    if (e ==
        ERR_OK) /* the grid that a round before would have left: without it int8 sends nothing */
        h->cpu->ops->block_code(h->cpu, h->replica.state[0].codes, slab, elements);
    free(slab);
    return e == ERR_OK ? dev_sync(h->cpu) : e;
}

/* The state is the member's, known before a run starts: what comes on top of it is measured. */
static void held_touch(struct held *h)
{
    memset(h->replica.buffers.theta, 0, elements * sizeof(float));
    memset(h->replica.buffers.slab[0], 0, elements * sizeof(float));
    memset(h->replica.mean, 0, elements * sizeof(float));
    if (h->replica.buffers.residual)
        memset(h->replica.buffers.residual, 0, elements * sizeof(float));
    if (h->replica.state[0].residual)
        memset(h->replica.state[0].residual, 0, elements * sizeof(float));
}

static void held_close(struct held *h)
{
    outer_state_close(&h->replica);
    dev_close(h->cpu);
    env_posix_close(h->env);
    arena_free(&h->perm);
}

/* ---- the aggregator's process ---- */

static double status_kib(const char *key)
{
    char line[128];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtod(line + strlen(key) + 1, NULL);
    if (f)
        fclose(f);
    return kib;
}

static double cpu_now(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static struct link_tls files(const char *name, char paths[3][128])
{
    snprintf(paths[0], sizeof paths[0], "%s/ca.pem", root);
    snprintf(paths[1], sizeof paths[1], "%s/%s.pem", root, name);
    snprintf(paths[2], sizeof paths[2], "%s/%s.key", root, name);
    return (struct link_tls){paths[0], paths[1], paths[2]};
}

static volatile double peak_kib;

static void *watch_main(void *unused)
{
    for (;; usleep(10000)) {
        double now = status_kib("RssAnon");
        peak_kib = now > peak_kib ? now : peak_kib;
    }
    return unused;
}

/* Says its port, serves until its standard input ends, says what that took. */
static enum err serve(unsigned sites, enum mode mode)
{
    static struct held h;
    struct aggregator *a;
    struct link_server *s;
    char directory[96], paths[3][128], byte;
    struct aggregator_options o = {.run = "bench",
                                   .sites = {.names = list, .count = sites},
                                   .canonical = canonical,
                                   .strict = true};
    struct link_listen l = {
        .address = "127.0.0.1:0", .sites = sites, .tls = files("aggregator", paths)};
    pthread_t watch;
    int port;
    link_tune();
    snprintf(directory, sizeof directory, "%s/aggregator-%u-%s-%zu", root, sites, mode_names[mode],
             elements >> 20);
    TRY(held_open(&h, directory, mode, sites));
    TRY(aggregator_open(&a, h.env, &h.replica, &o, &h.perm));
    struct link_service service = aggregator_service(a);
    TRY(link_serve(&s, &l, &service, &port));
    held_touch(&h);
    double before_kib = status_kib("RssAnon"), before_cpu = cpu_now();
    ASSERT(pthread_create(&watch, NULL, watch_main, NULL) == 0);
    printf("%d\n", port);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    printf("%.0f %.3f\n", peak_kib - before_kib, cpu_now() - before_cpu);
    fflush(stdout);
    link_shutdown(s, 1000);
    aggregator_close(a);
    held_close(&h);
    return ERR_OK;
}

/* ---- the sites ---- */

struct client {
    unsigned index;
    int port, memory;
    const struct wire_contribution *m;
    const uint8_t *payload;
    pthread_t thread;
    uint64_t bytes;
    enum err e;
    char why[256];
};

static enum err exchange(struct client *c, struct link *l)
{
    struct wire_contribution m = *c->m;
    struct wire_hello hello = {.head = m.head, .major = WIRE_MAJOR, .config = canonical};
    struct wire_hello_answer *welcome = malloc(sizeof *welcome);
    struct wire_poll_answer *polled = malloc(sizeof *polled);
    struct wire_answer answer = {0};
    TRY_ALLOC(welcome);
    TRY_ALLOC(polled);
    snprintf(hello.head.site, sizeof hello.head.site, "%s", names[c->index]);
    TRY(l->ops->hello(l, &hello, welcome));
    m.head = hello.head;
    m.head.term = welcome->term;
    TRY(l->ops->contribute(l, &m, c->payload, &answer));
    if (answer.outcome != ROUND_RECEIPT)
        return err_set(ERR_PROTO, "contribution: %s", answer.text);
    struct wire_poll poll = {.head = m.head};
    do
        TRY(l->ops->poll(l, &poll, 30000, polled));
    while (polled->answer.outcome == ROUND_PENDING);
    if (polled->answer.outcome != ROUND_COMMIT)
        return err_set(ERR_PROTO, "poll: %s", polled->answer.text);
    size_t size = polled->manifest.aggregate_bytes;
    if (ftruncate(c->memory, (off_t)size) != 0)
        return err_set(ERR_IO, "no memory for the aggregate");
    uint8_t *aggregate = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, c->memory, 0);
    TRY_ALLOC(aggregate == MAP_FAILED ? NULL : aggregate);
    struct wire_fetch fetch = {.head = m.head, .what = WIRE_AGGREGATE};
    answer = (struct wire_answer){0};
    enum err e = l->ops->fetch(l, &fetch, aggregate, size, &answer);
    c->bytes = m.payload_bytes + size;
    munmap(aggregate, size);
    free(welcome);
    free(polled);
    return e;
}

static void *client_main(void *arg)
{
    struct client *c = arg;
    char target[32], paths[3][128];
    struct link *l;
    snprintf(target, sizeof target, "127.0.0.1:%d", c->port);
    struct link_dial d = {.target = target, .tls = files(names[c->index], paths)};
    c->e = link_open(&l, &d);
    if (c->e == ERR_OK) {
        c->e = exchange(c, l);
        snprintf(c->why, sizeof c->why, "%s", err_message());
        l->ops->close(l);
    }
    return NULL;
}

/* One contribution for all of them: what it holds does not matter, that it decodes does. All put
 * the aggregate into the same memory: a list of 64 contributions 64 times would not fit. */
static enum err all_exchange(struct held *h, unsigned sites, int port, uint64_t *bytes)
{
    const struct codec *k = codec_get(h->schedule.full_precision_rounds ? CODEC_BF16 : CODEC_INT8);
    int memory = memfd_create("aggregate", MFD_CLOEXEC);
    static struct client c[SITES_MAX];
    size_t n = k->payload_max(k, elements);
    uint8_t *payload = malloc(n);
    float *z = calloc(elements, sizeof *z), *residual = malloc(elements * sizeof *residual);
    TRY_ALLOC(payload && z && residual ? payload : NULL);
    values(z);
    TRY(k->encode(k,
                  &(struct codec_call){.work = h->replica.work,
                                       .grid = h->replica.state[0].codes,
                                       .count = elements},
                  payload, &n, residual, z));
    struct wire_contribution m = {.head = {.run = "bench",
                                           .incarnation = 1,
                                           .instance = 1,
                                           .roster_version = 1,
                                           .config = digest_of(canonical, strlen(canonical))},
                                  .codec = (uint32_t)k->kind,
                                  .payload_bytes = n,
                                  .weight = 1,
                                  .grid = outer_state_grid(&h->replica, 0),
                                  .payload = digest_of(payload, n)};
    enum err e = ERR_OK;
    *bytes = 0;
    for (unsigned i = 0; i < sites; i++) {
        c[i] = (struct client){
            .index = i, .port = port, .memory = memory, .m = &m, .payload = payload};
        ASSERT(pthread_create(&c[i].thread, NULL, client_main, &c[i]) == 0);
    }
    for (unsigned i = 0; i < sites; i++) {
        pthread_join(c[i].thread, NULL);
        *bytes += c[i].bytes;
        if (c[i].e != ERR_OK)
            e = err_set(c[i].e, "site %u: %s", i, c[i].why);
    }
    close(memory);
    free(payload);
    free(z);
    free(residual);
    return e;
}

/* ---- measuring ---- */

struct child {
    pid_t pid;
    FILE *in, *out; /* to it, from it */
};

static enum err child_start(struct child *c, const struct row *r)
{
    int to[2], from[2];
    char count[16], mi[16], mode[16], self[] = "/proc/self/exe";
    snprintf(count, sizeof count, "%u", r->sites);
    snprintf(mi, sizeof mi, "%u", r->mebi);
    snprintf(mode, sizeof mode, "%d", r->mode);
    if (pipe(to) != 0 || pipe(from) != 0)
        return err_set(ERR_IO, "no pipe");
    c->pid = fork(); /* before gRPC: nothing of it is started yet in this process but between two
                        children */
    if (c->pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        close(from[0]);
        execl(self, self, "--serve", root, count, mode, mi, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    c->in = fdopen(to[1], "w");
    c->out = fdopen(from[0], "r");
    return c->in && c->out ? ERR_OK : err_set(ERR_IO, "no aggregator");
}

static void row_write(const char *csv, const struct row *r, double cpu, double kib, double seconds,
                      uint64_t bytes)
{
    char what[64], flags[128];
    double gib = (double)bytes / (1 << 30);
    snprintf(flags, sizeof flags, "one round; %u Mi parameters; aggregator's process only; %s",
             r->mebi, BENCH_COMPILER);
    snprintf(what, sizeof what, "aggregator at %u sites %s", r->sites, mode_cases[r->mode]);
    bench_write(csv, &(struct bench_row){"link", what, "CPU s/GiB", flags, cpu / gib, 0});
    bench_write(csv,
                &(struct bench_row){"link", what, "MiB above the state", flags, kib / 1024, 0});
    bench_write(csv, &(struct bench_row){"link", what, "MB/s in and out", flags,
                                         (double)bytes / 1e6 / seconds, 0});
}

static enum err measure(struct held *h, const char *csv, const struct row *r)
{
    struct child c = {0};
    int port = 0, status;
    double kib = 0, cpu = 0;
    uint64_t bytes;
    TRY(child_start(&c, r));
    if (fscanf(c.out, "%d", &port) != 1)
        return err_set(ERR_IO, "the aggregator did not start");
    double start = bench_now();
    enum err e = all_exchange(h, r->sites, port, &bytes);
    double seconds = bench_now() - start;
    fclose(c.in);
    if (e == ERR_OK && fscanf(c.out, "%lf %lf", &kib, &cpu) != 2)
        e = err_set(ERR_IO, "the aggregator ended early");
    fclose(c.out);
    waitpid(c.pid, &status, 0);
    if (e == ERR_OK)
        row_write(csv, r, cpu, kib, seconds, bytes);
    return e;
}

static enum err certificates(void)
{
    static const char *const hosts[] = {"127.0.0.1"};
    int64_t now = (int64_t)time(NULL);
    struct tls_request r = {.directory = root,
                            .out = root,
                            .role = TLS_AGGREGATOR,
                            .name = "aggregator",
                            .hosts = hosts,
                            .host_count = 1,
                            .validity = {now - 60, now + 3600}};
    TRY(tls_authority(root, "bench", false, r.validity));
    TRY(tls_issue(&r));
    for (unsigned i = 0; i < SITES_MAX; i++) {
        r = (struct tls_request){
            .directory = root, .out = root, .name = names[i], .validity = r.validity};
        TRY(tls_issue(&r));
    }
    return ERR_OK;
}

static enum err run_row(const char *csv, const struct row *r)
{
    char directory[96];
    struct held h = {0};
    elements = (size_t)r->mebi << 20;
    snprintf(directory, sizeof directory, "%s/site-%s-%u", root, mode_names[r->mode], r->sites);
    TRY(held_open(&h, directory, r->mode, 0));
    enum err e = measure(&h, csv, r);
    held_close(&h);
    TRY(e);
    return file_remove_tree(directory);
}

static bool row_parse(struct row *r, const char *text)
{
    char mode[16];
    if (sscanf(text, "%u:%u:%15s", &r->sites, &r->mebi, mode) != 3 || r->sites < 1 ||
        r->sites > SITES_MAX || !r->mebi)
        return false;
    for (int i = 0; i < MODES; i++)
        if (strcmp(mode, mode_names[i]) == 0) {
            r->mode = (enum mode)i;
            return true;
        }
    return false;
}

static enum err run(const char *csv, const struct row *one)
{
    TRY(certificates());
    if (one)
        return run_row(csv, one);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        TRY(run_row(csv, &table[i]));
    return ERR_OK;
}

static enum err serve_main(char **argv)
{
    snprintf(root, sizeof root, "%s", argv[2]);
    elements = (size_t)atoi(argv[5]) << 20;
    return serve((unsigned)atoi(argv[3]), (enum mode)atoi(argv[4]));
}

static enum err bench_main(const char *csv, const struct row *one)
{
    link_tune();
    signal(SIGPIPE, SIG_IGN);
    strcpy(root, "/tmp/atoll-bench-XXXXXX");
    enum err e = mkdtemp(root) ? run(csv, one) : ERR_IO;
    if (file_remove_tree(root) != ERR_OK)
        fprintf(stderr, "%s stays\n", root);
    return e;
}

int main(int argc, char **argv)
{
    struct row row;
    bool child = argc == 6 && strcmp(argv[1], "--serve") == 0;
    bool one = !child && argc >= 3 && strcmp(argv[argc - 2], "--row") == 0;
    if (one && !row_parse(&row, argv[argc - 1])) {
        fprintf(stderr,
                "--row SITES:MEBI:CODEC, for example 64:4:int8 (int8, relayed, reencoded)\n");
        return 1;
    }
    const char *csv = child ? "" : bench_arguments(one ? argc - 2 : argc, argv);
    for (unsigned i = 0; i < SITES_MAX; i++) {
        snprintf(names[i], sizeof names[i], "s%u", i);
        list[i] = names[i];
    }
    if (!csv)
        return 1;
    log_min(LOG_ERROR);
    enum err e = child ? serve_main(argv) : bench_main(csv, one ? &row : NULL);
    if (e != ERR_OK)
        fprintf(stderr, "%s\n", err_message());
    return e == ERR_OK ? 0 : 1;
}
