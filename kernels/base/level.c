/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/level.h"

enum level level_best(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2"))
        return LEVEL_PLAIN;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return LEVEL_V4;
    return LEVEL_V3;
#else
    return LEVEL_PLAIN;
#endif
}
