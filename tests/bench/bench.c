/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char HEADER[] = "date,machine,commit,bench,case,value,unit,baseline,ratio,flags\n";

static double clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_now(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

double bench_cpu(void)
{
    return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

void bench_add(struct bench_times *t, double seconds)
{
    if (t->count < BENCH_REPEATS_MAX)
        t->seconds[t->count++] = seconds;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(const struct bench_times *t)
{
    struct bench_times sorted = *t;
    qsort(sorted.seconds, sorted.count, sizeof *sorted.seconds, by_size);
    return sorted.count ? sorted.seconds[sorted.count / 2] : 0;
}

double bench_worst(const struct bench_times *t)
{
    double worst = 0;
    for (size_t i = 0; i < t->count; i++)
        worst = t->seconds[i] > worst ? t->seconds[i] : worst;
    return worst;
}

const char *bench_arguments(int argc, char **argv)
{
    if (argc == 1) {
        fputs(HEADER, stdout);
        return "";
    }
    if (argc == 3 && strcmp(argv[1], "--csv") == 0)
        return argv[2];
    fprintf(stderr, "usage: %s [--csv PATH]\n", argv[0]);
    return NULL;
}

/* Processor and number of usable cores: "AMD EPYC x2". */
static void machine_name(char *out, size_t size)
{
    char line[256], model[160] = "unknown";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %159[^\n,]", model) == 1)
            break;
    if (f)
        fclose(f);
    snprintf(out, size, "%s x%ld", model, sysconf(_SC_NPROCESSORS_ONLN));
}

void bench_write(const char *csv, const struct bench_row *row)
{
    FILE *f = *csv ? fopen(csv, "a") : stdout;
    if (!f) {
        perror(csv);
        return;
    }
    if (*csv && ftell(f) == 0)
        fputs(HEADER, f);
    char machine[200], date[32];
    time_t now = time(NULL);
    machine_name(machine, sizeof machine);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    double ratio = row->baseline > 0 ? row->value / row->baseline : 0;
    fprintf(f, "%s,%s,%s,%s,%s,%.4g,%s,%.4g,%.4g,%s\n", date, machine, ATOLL_COMMIT, row->bench,
            row->what, row->value, row->unit, row->baseline, ratio, row->flags);
    if (*csv)
        fclose(f);
}

void bench_gpu(char *flags, size_t size, const char *note)
{
    char name[64] = "";
    const char *at = strstr(note, "name=\"");
    if (at)
        sscanf(at, "name=\"%63[^\"]", name);
    snprintf(flags, size, "bf16 %s", name);
}
