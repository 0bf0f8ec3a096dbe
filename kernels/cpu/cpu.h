#ifndef CPU_H
#define CPU_H
/* What the files of kernels/cpu share: the device itself, its scratch memory, its first failure,
 * and how work is cut among threads. Nothing outside kernels/cpu includes it.
 */
#include "kernels/cpu/rows.h"
#include "kernels/dev.h"

struct matmul;

struct cpu {
    struct dev dev;          /* first */
    struct dev_ops ops;      /* dev's, with the exact set for this processor */
    const struct rows *rows; /* inner loops for this processor */
    struct matmul *matmul;   /* the library's state */
    void *scratch[2];        /* 0: ops; 1: matmul's widened operands, live beside 0 */
    size_t scratch_bytes[2];
    double event_s[DEV_EVENTS_MAX]; /* time of the event, seconds of the monotonic clock */
    char message[512];              /* sentence of the first failure */
};

static inline struct cpu *cpu_of(struct dev *d)
{
    return (struct cpu *)d;
}

/* Keeps the first failure of this device, with the sentence that err_set left. */
void cpu_fail(struct dev *d, enum err e);

/* Uninitialised, 64-byte aligned memory of this device, valid until the next call with the same
 * slot; grows to the largest request and stays. NULL: the failure is kept, the op returns. */
void *cpu_scratch(struct cpu *c, int slot, size_t bytes);

/* Part i of n of count items, in multiples of unit: first item; part i ends where i + 1 begins. */
static inline size_t cpu_part(size_t count, int i, int n, size_t unit)
{
    size_t units = (count + unit - 1) / unit;
    size_t begin = units * (size_t)i / (size_t)n * unit;
    return begin < count ? begin : count;
}

#endif
