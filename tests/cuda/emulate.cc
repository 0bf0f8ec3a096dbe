/* The fibers behind emulate.h, and a device that runs the CUDA ops on them: products by plain
 * loops, and memory that is kept apart as a GPU's is. A host that touches device memory between the
 * device's calls, a kernel that touches the host's pinned memory, and a host that changes what an
 * asynchronous copy still reads, or reads what one still writes, end in a segmentation fault.
 * cuda_test_open() of this file opens it; test_device.c has the one for a real GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <vector>
#include "kernels/cuda/tile.cuh"
#include "tests/cuda/emulate_memory.h"
extern "C" {
#include "tests/cuda/cuda_test.h"
}

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
static uint64_t given; /* launches, products, copies so far */

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
    given++;
    emulate_allow(true, false);
    size_t count = (size_t)call->grid.x * call->grid.y;
    size_t stride = stride_of(count, emulate_now.launch), at = emulate_now.launch % count;
    emulate_now.kernel = true;
    for (size_t i = 0; i < count; i++, at = (at + stride) % count) {
        emulate_block = {(unsigned)(at % call->grid.x), (unsigned)(at / call->grid.x), 0};
        emulate_now.block = (uint32_t)at;
        block_run(call->block.x);
    }
    emulate_now.kernel = false;
    emulate_allow(false, true);
}

unsigned atomicAdd(unsigned *p, unsigned x)
{
    unsigned old = *p;
    emulate_access(p, sizeof *p, EMULATE_ATOMIC);
    *p += x;
    return old;
}

unsigned atomicOr(unsigned *p, unsigned x)
{
    unsigned old = *p;
    emulate_access(p, sizeof *p, EMULATE_ATOMIC);
    *p |= x;
    return old;
}

/* ---- the device
 * ------------------------------------------------------------------------------------ */
extern "C" {

void cuda_fail(struct cuda *c, enum err e)
{
    if (c->dev.failed)
        return;
    c->dev.failed = e;
    snprintf(c->message, sizeof c->message, "%s", err_message());
}

void *cuda_scratch(struct cuda *c, enum cuda_slot slot, size_t bytes)
{
    if (bytes > c->scratch_bytes[slot]) {
        emulate_give(c->scratch[slot]);
        c->dev.taken_bytes -= c->scratch_bytes[slot];
        c->scratch_bytes[slot] = (bytes + 0xfffff) & ~(size_t)0xfffff;
        c->dev.taken_bytes += c->scratch_bytes[slot];
        c->scratch[slot] = emulate_take(c->scratch_bytes[slot], true);
    }
    emulate_limit(c->scratch[slot], bytes);
    if (slot != CUDA_SLOT_TABLE && bytes) { /* whoever asks again has lost what was there */
        emulate_allow(true, true);
        memset(c->scratch[slot], 0xff, bytes);
        emulate_allow(false, true);
    }
    return c->scratch[slot];
}

static float read(const void *x, enum dtype type, size_t i)
{
    return type == DTYPE_F32 ? ((const float *)x)[i] : bf16_float(((const uint16_t *)x)[i]);
}

static void write(void *x, enum dtype type, size_t i, double value)
{
    if (type == DTYPE_F32)
        ((float *)x)[i] = (float)value;
    else
        ((uint16_t *)x)[i] = bf16_round((float)value);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double h = 1e-5;
    return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

static double element(const struct product *p, size_t m, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < p->K; k++)
        sum += (double)read(p->a, p->in, p->a_t ? k * p->lda + m : m * p->lda + k) *
               (double)read(p->b, p->in, p->b_t ? n * p->ldb + k : k * p->ldb + n);
    return sum;
}

/* Writes the element; returns it before rounding. */
static double finish(const struct product *p, size_t m, size_t n, double sum)
{
    size_t at = m * p->ldc + n;
    if (p->accumulate)
        sum += (double)((const float *)p->c)[at];
    if (p->fuse == FUSE_BIAS || p->fuse == FUSE_BIAS_GELU)
        sum += (double)read(p->bias, p->out, n);
    if (p->fuse == FUSE_BIAS_GELU) {
        write(p->pre, p->out, at, sum);
        sum = gelu((double)read(p->pre, p->out, at));
    }
    if (p->fuse == FUSE_DGELU || p->fuse == FUSE_DGELU_COLUMNS)
        sum *= gelu_slope((double)read(p->pre, p->out, at));
    write(p->c, p->out, at, sum);
    return sum;
}

static void columns(const struct product *p, size_t m)
{
    double sum = 0;
    for (size_t k = 0; k < p->K; k++)
        sum += (double)read(p->a, p->in, k * p->lda + m);
    ((float *)p->sums)[m] = (float)sum;
}

/* Has fused products for even N only, so that tests see both ways through products.c. */
bool cuda_matmul_run(struct cuda *c, const struct product *p)
{
    (void)c;
    if (p->fuse != FUSE_NONE && p->N % 2)
        return false;
    std::vector<double> sums(p->N);
    given++;
    emulate_allow(true, false);
    for (size_t m = 0; m < p->M; m++) {
        for (size_t n = 0; n < p->N; n++)
            sums[n] += finish(p, m, n, element(p, m, n));
        if (p->fuse == FUSE_COLUMNS)
            columns(p, m);
    }
    for (size_t n = 0; p->fuse == FUSE_DGELU_COLUMNS && n < p->N; n++)
        write(p->sums, p->out, n, sums[n]);
    emulate_allow(false, true);
    return true;
}

static void device_close(struct dev *d)
{
    for (int i = 0; i < CUDA_SLOTS; i++)
        emulate_give(cuda_of(d)->scratch[i]);
    free(cuda_of(d)->table_host);
    free(d);
}

static enum err device_alloc(struct dev *d, void **p, size_t bytes)
{
    *p = emulate_take(bytes, true);
    d->taken_bytes += bytes;
    return ERR_OK;
}

static enum err device_host_alloc(struct dev *, void **p, size_t bytes)
{
    *p = emulate_take(bytes, false);
    return ERR_OK;
}

static void device_free(struct dev *, void *p)
{
    emulate_give(p);
}

static void drain(struct dev *d)
{
    d->drains++;
    emulate_arrived(given);
}

static void copy_now(void *to, const void *from, size_t bytes)
{
    given++;
    emulate_within(to, bytes);
    emulate_within(from, bytes);
    emulate_allow_all();
    memmove(to, from, bytes);
    emulate_allow(false, true);
}

/* As dev_cuda.c: who is on the host, or comes from pinned memory, waits. */
static void device_copy(struct dev *d, void *to, const void *from, size_t bytes)
{
    if (!bytes)
        return;
    copy_now(to, from, bytes);
    if (emulate_where(to) != EMULATE_DEVICE || emulate_where(from) == EMULATE_PINNED)
        drain(d);
}

static void device_copy_async(struct dev *, void *to, const void *from, size_t bytes)
{
    if (emulate_where(to) == EMULATE_PAGEABLE || emulate_where(from) == EMULATE_PAGEABLE)
        emulate_die("an asynchronous copy of memory that is not pinned");
    copy_now(to, from, bytes);
    emulate_under_way(from, given, false);
    emulate_under_way(to, given, true);
    emulate_allow(false, true);
}

static void device_zero(struct dev *, void *p, size_t bytes)
{
    given++;
    emulate_within(p, bytes);
    emulate_allow(true, false);
    memset(p, 0, bytes);
    emulate_allow(false, true);
}

static uint64_t reached[DEV_MARKS_MAX]; /* one device at a time has marks that matter */

static void device_mark(struct dev *, unsigned mark)
{
    reached[mark] = given;
}

static enum err device_wait(struct dev *d, unsigned mark)
{
    if (reached[mark] && reached[mark] == given)
        d->drains++;
    emulate_arrived(reached[mark]);
    return d->failed ? err_set(d->failed, "%s", cuda_of(d)->message) : ERR_OK;
}

static double device_seconds(struct dev *, unsigned from, unsigned to)
{
    return 1e-6 * (double)(reached[to] - reached[from]); /* an operation is a microsecond */
}

static enum err device_sync(struct dev *d)
{
    drain(d);
    return d->failed ? err_set(d->failed, "%s", cuda_of(d)->message) : ERR_OK;
}

static size_t device_memory_left(struct dev *)
{
    return 0;
}

static void device_repeat(struct dev *, const struct dev_repeat *r)
{
    r->ops(r->self);
}

static struct dev_ops ops_make(void)
{
    struct dev_ops o;
#define X(name, arguments) o.name = cuda_##name;
    DEV_OPS(X)
#undef X
    o.close = device_close, o.alloc = device_alloc, o.free = device_free;
    o.host_alloc = device_host_alloc, o.host_free = device_free;
    o.copy_async = device_copy_async, o.mark = device_mark, o.wait = device_wait, o.seconds = device_seconds;
    o.copy = device_copy, o.zero = device_zero, o.sync = device_sync;
    o.repeat = device_repeat, o.memory_left = device_memory_left;
    return o;
}

enum err cuda_test_open(struct dev **d, const char *model_type)
{
    static const struct dev_ops ops = ops_make();
    struct cuda *c = (struct cuda *)calloc(1, sizeof *c);
    c->dev.ops = &ops;
    c->dev.kind = "emulated";
    c->dev.threads = 1;
    c->dev.model_type = strcmp(model_type, "f32") ? DTYPE_BF16 : DTYPE_F32;
    c->processors = 3; /* few, so that small tests run persistent loops more than once */
    *d = &c->dev;
    return ERR_OK;
}
}
