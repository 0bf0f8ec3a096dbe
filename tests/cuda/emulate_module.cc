/* SPDX-License-Identifier: Apache-2.0 */
/* libatoll_cuda.so of the emulator: the whole program on an emulated GPU, in tests/e2e. The kernels
 * run unchecked (the tests of the ops check them); a process may use several devices from several
 * threads, one call at a time. At a device's end it says on stderr what crossed between host and
 * device.
 */
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <vector>
#include "kernels/cuda/tile.cuh"
#include "tests/cuda/emulate_memory.h"
extern "C" {
#include "kernels/cuda/module.h"
}

enum { SHARED_MAX = 227 << 10, ALIGN = 256 };
static std::recursive_mutex one; /* call */
typedef std::lock_guard<std::recursive_mutex> hold;

/* ---- memory that everybody may touch ---- */
struct region {
    char *p;
    size_t bytes;
    bool device;
};
static std::vector<region> regions;
struct emulate_now emulate_now;

void emulate_die(const char *what)
{
    fprintf(stderr, "emulated GPU: %s\n", what);
    abort();
}

void *fake_take(size_t bytes, bool device)
{
    size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    char *p = (char *)aligned_alloc(ALIGN, rounded);
    memset(p, 0xff, rounded);
    regions.push_back({p, rounded, device});
    return p;
}

void fake_give(void *p)
{
    for (size_t i = 0; p && i < regions.size(); i++)
        if (regions[i].p == p) {
            free(p);
            regions.erase(regions.begin() + (long)i);
            return;
        }
}

enum fake_place fake_where(const void *p)
{
    for (const region &r : regions)
        if ((const char *)p >= r.p && (const char *)p < r.p + r.bytes)
            return r.device ? FAKE_DEVICE : FAKE_PINNED;
    return FAKE_PAGEABLE;
}

unsigned char *emulate_shared_begin(size_t)
{
    alignas(1024) static unsigned char shared[SHARED_MAX];
    return shared;
}

void fake_open(bool)
{
}
void emulate_access(const void *, size_t, enum emulate_access)
{
}
void emulate_private(const void *, size_t, const void *, size_t)
{
}
void emulate_own(const void *, size_t)
{
}
void emulate_in_flight(const void *, bool)
{
}
void emulate_limit(void *, size_t)
{
}
void *fake_at(const void *p, size_t)
{
    return (void *)p;
}
void fake_copying(const void *, const void *, int)
{
}

/* ---- the device, a call at a time ---- */
static const struct dev_ops *real;
static size_t in_bytes, out_bytes, devices;

/* Any op of the list. */
template <auto F> struct locked;
template <typename... A, void (*F)(struct dev *, A...)> struct locked<F> {
    static void call(struct dev *d, A... a)
    {
        hold now(one);
        F(d, a...);
    }
};
/* Any other function of the device. */
template <auto M> struct member;
template <typename R, typename... A, R (*dev_ops::*M)(struct dev *, A...)> struct member<M> {
    static R call(struct dev *d, A... a)
    {
        hold now(one);
        return (real->*M)(d, a...);
    }
};

static void count(const void *to, const void *from, size_t bytes)
{
    bool to_device = fake_where(to) == FAKE_DEVICE;
    bool from_device = fake_where(from) == FAKE_DEVICE;
    in_bytes += to_device && !from_device ? bytes : 0;
    out_bytes += from_device && !to_device ? bytes : 0;
}

static void copy(struct dev *d, void *to, const void *from, size_t bytes)
{
    hold now(one);
    count(to, from, bytes);
    real->copy(d, to, from, bytes);
}

static void copy_async(struct dev *d, void *to, const void *from, size_t bytes)
{
    hold now(one);
    count(to, from, bytes);
    real->copy_async(d, to, from, bytes);
}

static void close_device(struct dev *d)
{
    hold now(one);
    if (!--devices)
        fprintf(stderr, "emulated GPU: %zu bytes in, %zu bytes out\n", in_bytes, out_bytes);
    real->close(d);
}

static struct dev_ops ops_make(void)
{
    struct dev_ops o = *real;
#define X(name, arguments) o.name = locked<cuda_##name>::call;
    DEV_OPS(X)
#undef X
#define X(name) o.name = member<&dev_ops::name>::call;
    X(alloc)
    X(free)
    X(host_alloc)
    X(host_free)
    X(zero)
    X(sync)
    X(event_record)
    X(event_wait)
    X(event_seconds)
    X(graph_run)
#undef X
    o.copy = copy, o.copy_async = copy_async, o.close = close_device;
    return o;
}

/* open.c's, under another name. */
extern "C" const struct cuda_module *cuda_module_real(const struct cuda_host *host);
static const struct cuda_module *below;

static enum err open_device(struct dev **d, int index, const struct dev_options *o)
{
    hold now(one);
    struct dev_options own = *o;
    own.attention = "own"; /* test_attention_choice.c has the others */
    enum err e = below->open(d, index, &own);
    if (e)
        return e;
    real = (*d)->ops;
    static const struct dev_ops ops = ops_make();
    (*d)->ops = &ops;
    devices++;
    return ERR_OK;
}

extern "C" __attribute__((visibility("default"))) const struct cuda_module *
atoll_cuda_module(const struct cuda_host *host)
{
    static struct cuda_module module;
    below = cuda_module_real(host);
    module = *below;
    module.open = open_device;
    return &module;
}
