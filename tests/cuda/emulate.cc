/* SPDX-License-Identifier: Apache-2.0 */
/* The fibers behind emulate.h: a kernel's threads, where they meet, and its launch. The runtime
 * around them is fake_cuda.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <vector>
#include "kernels/cuda/tile.cuh"
#include "tests/cuda/emulate_memory.h"

/* Saves what the ABI of x86-64 lets a call keep, leaves the stack pointer in *from, goes on at
 * `to`. The library's swapcontext makes a system call each time: ten times slower. */
extern "C" void emulate_switch(void **from, void *to);
asm(".text\n"
    ".globl emulate_switch\n"
    "emulate_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
    "    ret\n");

enum { THREADS_MAX = 1024, STACK_BYTES = 64 << 10, SHARED_DEFAULT = 48 << 10, LANES = 32 };
enum waiting { WAIT_NOTHING, WAIT_WARP, WAIT_BLOCK };

struct copy {
    void *to;
    const void *from;
    bool real;
};
struct fiber {
    void *stack; /* where it was left */
    struct uint3 index;
    bool done;
    enum waiting waiting;
    unsigned until; /* the generation that lets it go on */
    std::vector<std::vector<copy>> groups;
    std::vector<copy> open;
};
struct warp {
    unsigned arrived, live, generation;
    int op;
    unsigned char slots[2]
                       [LANES * EMULATE_SLOT]; /* by turns: a lane is at most one meeting ahead */
};

struct uint3 *emulate_thread;
struct uint3 emulate_block;
struct dim3 emulate_block_size, emulate_grid_size;
unsigned char *emulate_shared;

static struct fiber fibers[THREADS_MAX];
static struct warp warps[THREADS_MAX / LANES];
static struct {
    unsigned arrived, live, generation;
    int any, result;
} block;
static void *scheduler;
static unsigned char *stacks;
static const struct emulate_call *launched;
static struct fiber *running;

static void wait_for(enum waiting what, unsigned generation)
{
    running->waiting = what;
    running->until = generation;
    emulate_switch(&running->stack, scheduler);
}

static void warp_release(struct warp *w)
{
    if (w->arrived && w->arrived == w->live) {
        w->arrived = 0;
        w->generation++;
        if (w->op == EMULATE_SYNCWARP) /* the others order no memory */
            emulate_now.warp_time[w - warps]++;
    }
}

static void block_release(void)
{
    if (block.arrived && block.arrived == block.live) {
        block.arrived = 0;
        block.result = block.any;
        block.any = 0;
        block.generation++;
        emulate_now.block_time++;
    }
}

const unsigned char *emulate_meet(enum emulate_op op, const void *mine, size_t bytes)
{
    struct warp *w = &warps[running->index.x / LANES];
    unsigned generation = w->generation;
    unsigned char *slots = w->slots[generation % 2];
    if (w->live != LANES)
        emulate_die("a lane of the warp is not there to meet the others");
    if (w->arrived && w->op != (int)op)
        emulate_die("lanes of a warp meet in different operations");
    w->op = (int)op;
    if (bytes)
        memcpy(slots + running->index.x % LANES * EMULATE_SLOT, mine, bytes);
    w->arrived++;
    warp_release(w);
    if (w->generation == generation)
        wait_for(WAIT_WARP, generation + 1);
    return slots;
}

int emulate_barrier_or(int mine)
{
    unsigned generation = block.generation;
    block.any |= mine;
    block.arrived++;
    block_release();
    if (block.generation == generation)
        wait_for(WAIT_BLOCK, generation + 1);
    return block.result;
}

void emulate_copy(void *to, const void *from, bool real)
{
    if ((uintptr_t)to % 16 || (real && (uintptr_t)from % 16))
        emulate_die("cp.async is not aligned");
    if (real)
        emulate_access(from, 16, EMULATE_READ);
    emulate_in_flight(to, true);
    running->open.push_back({to, from, real});
}

void emulate_commit(void)
{
    running->groups.push_back(running->open);
    running->open.clear();
}

void emulate_wait(int left)
{
    while (running->groups.size() > (size_t)left) {
        for (const copy &c : running->groups.front()) {
            emulate_in_flight(c.to, false);
            if (c.real)
                memcpy(c.to, c.from, 16);
            else
                memset(c.to, 0, 16);
        }
        running->groups.erase(running->groups.begin());
    }
}

static void fiber_main(void)
{
    launched->run(launched->arguments);
    struct warp *w = &warps[running->index.x / LANES];
    running->done = true;
    for (const std::vector<copy> &g : running->groups)
        if (!g.empty())
            emulate_die("leaves while a cp.async is under way");
    if (!running->open.empty())
        emulate_die("leaves with a cp.async that is in no group");
    running->groups.clear();
    w->live--;
    block.live--;
    warp_release(w);
    block_release();
    emulate_switch(&running->stack, scheduler);
}

static bool ready(const struct fiber *f)
{
    if (f->done)
        return false;
    if (f->waiting == WAIT_WARP)
        return warps[f->index.x / LANES].generation == f->until;
    if (f->waiting == WAIT_BLOCK)
        return block.generation == f->until;
    return true;
}

/* Runs the lanes of one warp until none can go on. */
static bool warp_run(unsigned w)
{
    bool any = false, progress = true;
    unsigned threads = emulate_block_size.x;
    while (progress) {
        progress = false;
        for (unsigned i = w * LANES; i < (w + 1) * LANES && i < threads; i++)
            if (ready(&fibers[i])) {
                running = &fibers[i];
                running->waiting = WAIT_NOTHING;
                emulate_thread = &running->index;
                emulate_now.thread = i;
                emulate_private(stacks + (size_t)i * STACK_BYTES, STACK_BYTES, launched->arguments,
                                launched->argument_bytes);
                emulate_switch(&scheduler, running->stack);
                progress = any = true;
            }
    }
    return any;
}

static void block_start(unsigned threads)
{
    block = {0, threads, 0, 0, 0};
    memset(warps, 0, sizeof warps);
    memset(emulate_now.warp_time, 0, sizeof emulate_now.warp_time);
    emulate_now.block_time = 0;
    emulate_shared = emulate_shared_begin(launched->shared);
    for (unsigned i = 0; i < threads; i++) {
        struct fiber *f = &fibers[i];
        f->index = {i, 0, 0};
        f->done = false;
        f->waiting = WAIT_NOTHING;
        warps[i / LANES].live++;
        void **top = (void **)(stacks + (size_t)(i + 1) * STACK_BYTES);
        top[-2] = (void *)fiber_main; /* entered by ret, with the stack as after a call */
        f->stack = top - 8;
    }
}

static void block_run(unsigned threads)
{
    unsigned count = (threads + LANES - 1) / LANES;
    block_start(threads);
    for (bool any = true; block.live; any = false) {
        for (unsigned i = 0; i < count; i++)
            any |= warp_run(emulate_now.launch % 2 ? i : count - 1 - i);
        if (!any)
            emulate_die("threads wait for each other");
    }
}

/* ---- launches ---- */
struct allowance {
    const void *kernel;
    size_t bytes;
};
static std::vector<allowance> allowances;

void emulate_shared_allow(const void *kernel, size_t bytes)
{
    for (allowance &a : allowances)
        if (a.kernel == kernel) {
            a.bytes = bytes;
            return;
        }
    allowances.push_back({kernel, bytes});
}

static size_t shared_allowed(const void *kernel)
{
    size_t allowed = SHARED_DEFAULT;
    for (const allowance &a : allowances)
        if (a.kernel == kernel && a.bytes > allowed)
            allowed = a.bytes;
    return allowed;
}

/* cudaErrorInvalidConfiguration and its kin. */
static void launch_check(const struct emulate_call *l)
{
    const struct dim3 &g = l->grid, &b = l->block;
    if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z)
        emulate_die("a launch of no blocks or no threads");
    if (g.x > 0x7fffffffu || g.y > 0xffffu || g.z > 0xffffu || b.x > THREADS_MAX)
        emulate_die("a launch of more blocks or threads than a GPU takes");
    if (b.y != 1 || b.z != 1 || g.z != 1)
        emulate_die("a launch of a shape that is not emulated");
    if (l->shared > shared_allowed(l->kernel))
        emulate_die("a launch with more shared memory than was asked for");
}

/* Blocks 0 .. count in an order of chance: a stride that has no factor in common with count. */
static size_t stride_of(size_t count, uint32_t seed)
{
    size_t stride = count > 1 ? seed * (size_t)2654435761u % count : 0;
    for (;; stride++) {
        size_t a = stride, b = count;
        while (b) {
            size_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return stride;
    }
}

void emulate_launch(const struct emulate_call *call)
{
    if (!stacks) {
        stacks = (unsigned char *)aligned_alloc(4096, (size_t)THREADS_MAX * STACK_BYTES);
        emulate_own(fibers, sizeof fibers);
        emulate_own(warps, sizeof warps);
        emulate_own(&emulate_thread, sizeof emulate_thread);
        emulate_own(&emulate_block, sizeof emulate_block);
        emulate_own(&emulate_block_size, sizeof emulate_block_size);
        emulate_own(&emulate_grid_size, sizeof emulate_grid_size);
        emulate_own(&emulate_shared, sizeof emulate_shared);
    }
    launch_check(call);
    launched = call;
    emulate_block_size = call->block;
    emulate_grid_size = call->grid;
    emulate_now.launch++;
    size_t count = (size_t)call->grid.x * call->grid.y;
    size_t stride = stride_of(count, emulate_now.launch), at = emulate_now.launch % count;
    emulate_now.kernel = true;
    for (size_t i = 0; i < count; i++, at = (at + stride) % count) {
        emulate_block = {(unsigned)(at % call->grid.x), (unsigned)(at / call->grid.x), 0};
        emulate_now.block = (uint32_t)at;
        block_run(call->block.x);
    }
    emulate_now.kernel = false;
}

unsigned atomicAdd(unsigned *p, unsigned x)
{
    unsigned old = *p;
    emulate_access(p, sizeof *p, EMULATE_ATOMIC);
    *p += x;
    return old;
}

unsigned atomicMax(unsigned *p, unsigned x)
{
    unsigned old = *p;
    emulate_access(p, sizeof *p, EMULATE_ATOMIC);
    *p = x > old ? x : old;
    return old;
}

unsigned atomicOr(unsigned *p, unsigned x)
{
    unsigned old = *p;
    emulate_access(p, sizeof *p, EMULATE_ATOMIC);
    *p |= x;
    return old;
}

int atomicMax(int *p, int x)
{
    int old = *p;
    emulate_access(p, sizeof *p, EMULATE_ATOMIC);
    *p = max(old, x);
    return old;
}

unsigned atomicMin(unsigned *p, unsigned x)
{
    unsigned old = *p;
    emulate_access(p, sizeof *p, EMULATE_ATOMIC);
    *p = x < old ? x : old;
    return old;
}

/* ---- scratch memory of the device under test ---- */
struct limit {
    void *p;
    size_t bytes;
    bool keeps;
};

static void limit_run(void *self)
{
    const struct limit *l = (const struct limit *)self;
    emulate_limit(l->p, l->bytes);
    if (!l->keeps)
        memset(l->p, 0xff, l->bytes);
}

/* dev_cuda.c's cuda_scratch under the name that the build gives it. */
extern "C" void *cuda_scratch_unchecked(struct cuda *c, enum cuda_slot slot, size_t bytes);

/* Each call makes the earlier contents undefined, and only so many bytes may be touched. */
extern "C" void *cuda_scratch(struct cuda *c, enum cuda_slot slot, size_t bytes)
{
    const struct limit l = {cuda_scratch_unchecked(c, slot, bytes), bytes, slot == CUDA_SLOT_TABLE};
    if (l.p)
        fake_enqueue((cudaStream_t)c->dev.stream, limit_run, &l, sizeof l, 0);
    return l.p;
}
