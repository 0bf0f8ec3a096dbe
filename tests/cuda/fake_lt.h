/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKE_LT_H
#define FAKE_LT_H
/* What the emulated device's cuBLASLt counts, and how it is told to behave. */
enum { FAKE_LT_ALGORITHMS = 8 };
struct fake_lt {
    int asked;                       /* heuristics, since the program began */
    int held;                        /* descriptors and layouts that were made and not destroyed */
    int offered;                     /* algorithms that the heuristic proposes; 0: one */
    double us[FAKE_LT_ALGORITHMS];   /* microseconds that a product takes by each */
    double fused_us;                 /* and with the slope of GELU, more */
    bool broken[FAKE_LT_ALGORITHMS]; /* fails when it is called */
    int runs[FAKE_LT_ALGORITHMS];    /* of each */
    int fused;                       /* runs with the slope of GELU */
};
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif
extern struct fake_lt fake_lt;
#ifdef __cplusplus
}
#endif

#endif
