/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMULATE_MEMORY_H
#define EMULATE_MEMORY_H
/* What emulated kernels may touch, and in which order: bounds, alignment and data races, for every
 * load and store. The .cu files are compiled with -fsanitize=thread but linked without its runtime:
 * emulate_memory.cc defines the functions that the compiler calls before each access. So the
 * tests find what compute-sanitizer's memcheck and racecheck would, and races in global memory too.
 *
 * Two accesses are in order when the same thread makes both, when a __syncthreads lies between
 * them, or, within a warp, a __syncwarp; a shuffle or an mma orders no memory. Threads of different
 * blocks are in no order within a launch. A cp.async writes from its issue until its wait.
 */
#include <stddef.h>
#include <stdint.h>
#include "tests/cuda/fake_cuda.h"

enum emulate_access { EMULATE_READ, EMULATE_WRITE, EMULATE_ATOMIC };

/* The thread that runs; the times are those barriers that it has passed. */
struct emulate_now {
    bool kernel; /* false: the host runs, nothing is checked */
    uint32_t launch, block, thread;
    uint32_t block_time, warp_time[32];
};
extern struct emulate_now emulate_now;

[[noreturn]] void emulate_die(const char *what);
void emulate_access(const void *p, size_t bytes, enum emulate_access kind);
/* What else a kernel may read and write unseen: its own stack, its arguments, the emulator. */
void emulate_private(const void *stack, size_t stack_bytes, const void *arguments,
                     size_t argument_bytes);
void emulate_own(const void *p, size_t bytes); /* for good */

/* Dynamic shared memory of the block that starts; poisoned, as are the static arrays. */
unsigned char *emulate_shared_begin(size_t bytes);
void emulate_in_flight(const void *to, bool yes); /* 16 bytes of a cp.async: not to be touched */

/* Bounds of device memory and what the host may touch: fake_take .. fake_copying of fake_cuda.h. A
 * region ends at the byte that was asked for. */
void emulate_limit(void *p, size_t bytes); /* only so much of it may be touched from now on */

#endif
