/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TYPES_H
#define TYPES_H
/* Types that the device's ops (kernels/dev.h) and the scalar formulas of the codecs share. */
#include <stdint.h>

/* The activation of a gated unit (scalar/gated.h). */
enum dev_gate { DEV_GATE_SILU, DEV_GATE_GELU_ERF, DEV_GATE_GELU_TANH };
enum { DEV_BLOCK = 256 };
/* Wire formats of blocks of 256 values (scalar/forms.h): 1024, 512, 256, 128, 64, 32, 132, 256,
 * 256, 256 bytes each. */
enum dev_form {
    DEV_F32,
    DEV_BF16,
    DEV_INT8, /* whole numbers of steps, + Q = 127, 7, 1; the step follows from the grid's code */
    DEV_INT4,
    DEV_INT2,
    DEV_SIGN, /* plus or minus a step */
    DEV_E3M0,
    DEV_E4M3, /* the scale follows from the block's own code */
    DEV_E5M2,
    DEV_E5M2_RANDOM, /* rounded stochastically */
    DEV_FORMS
};
enum { DEV_CHUNK = 4096, DEV_CHUNK_SHARE = 64, DEV_CHUNK_MOST = DEV_CHUNK / DEV_CHUNK_SHARE };
#define DEV_CHUNK_BAD UINT16_MAX
struct dev_chunk {  /* the k = n/64 largest of a chunk of n values, as topk.c sends them
                       (scalar/chunks.h) */
    uint16_t upper; /* code of the upper magnitude; 0: nothing is sent; DEV_CHUNK_BAD: a value is
                       not finite */
    uint16_t less;  /* (code of upper - code of lower) / 2; CHUNK_NO_LOWER: values of the
                       lower level are sent as 0 */
    uint16_t value[DEV_CHUNK_MOST]; /* by index: index + 4096 level (1: upper) + 8192 sign; BAD: its
                                       index */
};

#endif
