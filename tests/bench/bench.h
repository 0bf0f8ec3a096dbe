/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_H
#define BENCH_H
/* Measuring, for the programs in this folder: what is compared runs interleaved in one process, the
 * median of the repetitions counts, and every figure becomes one row of a CSV file. Nothing here is
 * asserted by tests. Columns:
 * - date,machine,commit,bench,case,value,unit,baseline,ratio,flags
 * baseline is the value of what is compared with, in the same unit; ratio is value / baseline.
 * Without one both are 0.
 */
#include <stddef.h>

#ifdef __clang__
#define BENCH_COMPILER "clang " __clang_version__
#else
#define BENCH_COMPILER "gcc " __VERSION__
#endif

enum { BENCH_REPEATS_MAX = 101 };

struct bench_times {
    double seconds[BENCH_REPEATS_MAX];
    size_t count;
};
struct bench_row {
    const char *bench, *what, *unit, *flags; /* flags: compiler, threads, sizes; no commas */
    double value, baseline;
};

double bench_now(void); /* seconds, monotonic */
double bench_cpu(void); /* seconds of processor time of all threads of the process */
void bench_add(struct bench_times *t, double seconds);
double bench_median(const struct bench_times *t);
double bench_worst(const struct bench_times *t); /* the longest */
/* --csv PATH appends rows there, otherwise they go to stdout with the header. NULL: wrong
 * arguments, usage printed. */
const char *bench_arguments(int argc, char **argv);
/* "bf16" and the GPU's name, out of dev->note, for the flags of a row. */
void bench_gpu(char *flags, size_t size, const char *note);
void bench_write(const char *csv, const struct bench_row *row); /* csv "": stdout */

#endif
