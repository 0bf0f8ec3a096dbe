#ifndef LEVEL_H
#define LEVEL_H
/* Files whose loops are compiled once more for each level of x86-64 (CMake: add_level), beside the
 * plain objects that run everywhere. In such a file LEVEL_NAME(f) is f, f_v3 or f_v4; which one is
 * called is decided while the program runs. What is in the exact set gives the same bits at every
 * level: lanes round as one value does, and -ffp-contract=off holds everywhere.
 */

enum level {
    LEVEL_PLAIN,
    LEVEL_V3,
    LEVEL_V4,
    LEVEL_COUNT
}; /* v3: AVX2, FMA, BMI2; v4: AVX-512 F BW DQ VL */

enum level level_best(void); /* of this processor */

#ifdef ISA
#define LEVEL_JOIN(name, isa)  name##_##isa
#define LEVEL_JOIN2(name, isa) LEVEL_JOIN(name, isa)
#define LEVEL_NAME(name)       LEVEL_JOIN2(name, ISA)
#else
#define LEVEL_NAME(name) name
#endif

#endif
