/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEVEL_H
#define LEVEL_H
/* Instruction set levels of x86-64. Some files are compiled once for each level (CMake: add_level)
 * and once for all processors. In such a file LEVEL_NAME(f) is f, f_v3 or f_v4; the program selects
 * the function at run time. The exact set gives the same bits at every level: vector lanes round as
 * scalars do, and -ffp-contract=off applies everywhere.
 */

enum level {
    LEVEL_PLAIN,
    LEVEL_V3,
    LEVEL_V4,
    LEVEL_COUNT
}; /* v3: AVX2, FMA, BMI2; v4: AVX-512 F BW DQ VL */

enum level level_best(void); /* the highest level of this processor */

#ifdef ISA
#define LEVEL_JOIN(name, isa)  name##_##isa
#define LEVEL_JOIN2(name, isa) LEVEL_JOIN(name, isa)
#define LEVEL_NAME(name)       LEVEL_JOIN2(name, ISA)
#else
#define LEVEL_NAME(name) name
#endif

#endif
