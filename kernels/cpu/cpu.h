/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CPU_H
#define CPU_H
/* Shared by the files of kernels/cpu: the device, its scratch memory, its first failure, and the
 * division of work among threads. No other folder includes it. */
#include "kernels/cpu/rows.h"
#include "kernels/dev.h"

struct matmul;

struct cpu {
    struct dev dev;          /* first */
    struct dev_ops ops;      /* the table of dev, with the exact set for this processor */
    const struct rows *rows; /* inner loops for this processor */
    struct matmul *matmul;   /* the library's state */
    struct dev_emulation emulation;
    void *scratch[2]; /* 0: ops; 1: operands that matmul converted to f32, used while slot 0 is in
                         use */
    size_t scratch_bytes[2];
    double event_s[DEV_EVENTS_MAX]; /* time of the event, seconds of the monotonic clock */
    char message[512];              /* sentence of the first failure */
};

static inline struct cpu *cpu_of(struct dev *d)
{
    return (struct cpu *)d;
}

/* Records the first failure of this device, with the message of err_set. */
void cpu_fail(struct dev *d, enum err e);

/* Uninitialised, 64-byte aligned memory of this device, valid until the next call with the same
 * slot. The slot grows to the largest request and keeps that size. NULL: no memory; the device has
 * recorded the failure, and the op returns. */
void *cpu_scratch(struct cpu *c, int slot, size_t bytes);

/* First item of part i when count items are divided into n parts, in multiples of unit; part i ends
 * where part i + 1 begins. */
static inline size_t cpu_part(size_t count, int i, int n, size_t unit)
{
    size_t units = (count + unit - 1) / unit;
    size_t begin = units * (size_t)i / (size_t)n * unit;
    return begin < count ? begin : count;
}

#endif
