/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKE_LT_H
#define FAKE_LT_H
/* What the emulated device's cuBLASLt counts. */
struct fake_lt {
    int asked; /* heuristics, since the program began */
    int held;  /* descriptors and layouts that were made and not destroyed */
};
#ifdef __cplusplus
extern "C" {
#endif
extern struct fake_lt fake_lt;
#ifdef __cplusplus
}
#endif

#endif
