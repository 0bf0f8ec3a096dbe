/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/peak.h"
#include "tests/bench/bench.h"

#if defined(__x86_64__)
/* Enough accumulators to hide a latency of 5 cycles at two a cycle, few enough for the registers.
 */
enum { ACCUMULATORS = 12, ROUNDS = 200000, PASSES = 7 };

/* The loop for vectors of `bytes` bytes at the instruction set `arch`. The sum is returned so that
 * the compiler keeps the loop. */
#define FMA_LOOP(name, arch, bytes)                                                                \
    __attribute__((target("arch=" arch))) static float name(void)                                  \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(bytes)));                                     \
        vec sum[ACCUMULATORS], factor = (vec){0} + 0.5f, term = (vec){0} + 1.0f;                   \
        for (int i = 0; i < ACCUMULATORS; i++)                                                     \
            sum[i] = (vec){0} + (float)i;                                                          \
        for (int n = 0; n < ROUNDS; n++) {                                                         \
            _Pragma("GCC unroll 12") for (int i = 0; i < ACCUMULATORS; i++) sum[i] =               \
                sum[i] * factor + term;                                                            \
        }                                                                                          \
        for (int i = 1; i < ACCUMULATORS; i++)                                                     \
            sum[0] += sum[i];                                                                      \
        return sum[0][0];                                                                          \
    }

FMA_LOOP(loop_v3, "x86-64-v3", 32)
FMA_LOOP(loop_v4, "x86-64-v4", 64)

double peak_fma(int threads)
{
    int wide = __builtin_cpu_supports("avx512f") != 0;
    double best = 0, total = 0, (*now)(void) = threads == 1 ? bench_cpu : bench_now;
    if (!__builtin_cpu_supports("fma"))
        return 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double start = now();
#pragma omp parallel for num_threads(threads) reduction(+ : total) schedule(static)
        for (int i = 0; i < threads; i++)
            total += (double)(wide ? loop_v4() : loop_v3());
        double flop = 2.0 * (wide ? 16 : 8) * ACCUMULATORS * (double)ROUNDS * threads;
        double rate = flop / (now() - start) / 1e9;
        best = rate > best ? rate : best;
    }
    return total > 0 ? best : 0;
}
#else
double peak_fma(int threads)
{
    (void)threads;
    return 0;
}
#endif
