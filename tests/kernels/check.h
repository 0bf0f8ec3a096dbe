/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHECK_H
#define CHECK_H
/* For tests of device ops: the same check on every device this machine can open, random inputs that
 * the device's type holds exactly, and comparison with float64 references. All through the dev
 * seam, so the checks serve any backend. Inputs come from RNG_TEST with a fixed seed: a failure
 * repeats.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "kernels/dev.h"
#include "kernels/base/bf16.h"

static struct arena check_host; /* float64 references; freed after each device */
static void *check_held[256];   /* device memory, likewise */
static size_t check_held_count;
static uint64_t check_index;  /* next random number */
static char check_place[128]; /* device and case, for messages */

static inline double *doubles(size_t n)
{
    double *x = arena_array(&check_host, n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static inline double held_by(enum dtype type, double x)
{
    float f = (float)x;
    return type == DTYPE_F32 ? (double)f : (double)bf16_float(bf16_round(f));
}

/* n normal numbers times scale, as the type holds them. */
static inline double *numbers(size_t n, double scale, enum dtype type)
{
    double *x = doubles(n);
    for (size_t i = 0; i < n; i++)
        x[i] = held_by(type, scale * (double)rng_normal(1, RNG_TEST, check_index++));
    return x;
}

static inline void *room(struct dev *d, size_t bytes)
{
    void *p;
    assert_int_equal(dev_alloc(d, &p, bytes), ERR_OK);
    assert_true(check_held_count < sizeof check_held / sizeof *check_held);
    check_held[check_held_count++] = p;
    return p;
}

static inline void *upload(struct dev *d, const double *x, size_t n, enum dtype type)
{
    void *p = room(d, n * dtype_size(type)),
         *host = arena_alloc(&check_host, n * dtype_size(type) + 1);
    for (size_t i = 0; i < n; i++) {
        if (type == DTYPE_F32)
            ((float *)host)[i] = (float)x[i];
        else
            ((uint16_t *)host)[i] = bf16_round((float)x[i]);
    }
    if (n)
        d->ops->copy(d, p, host, n * dtype_size(type));
    return p;
}

static inline int32_t *upload_ints(struct dev *d, const int32_t *x, size_t n)
{
    int32_t *p = room(d, n * sizeof *p);
    d->ops->copy(d, p, x, n * sizeof *p);
    return p;
}

static inline double *download(struct dev *d, const void *p, size_t n, enum dtype type)
{
    void *host = arena_alloc(&check_host, n * dtype_size(type) + 1);
    double *x = doubles(n);
    assert_int_equal(dev_sync(d), ERR_OK);
    d->ops->copy(d, host, p, n * dtype_size(type));
    for (size_t i = 0; i < n; i++)
        x[i] = type == DTYPE_F32 ? (double)((float *)host)[i]
                                 : (double)bf16_float(((uint16_t *)host)[i]);
    return x;
}

static inline void same_bytes(struct dev *d, const void *got, const void *want, size_t bytes)
{
    void *host[2] = {arena_alloc(&check_host, bytes + 1), arena_alloc(&check_host, bytes + 1)};
    assert_int_equal(dev_sync(d), ERR_OK);
    d->ops->copy(d, host[0], got, bytes);
    d->ops->copy(d, host[1], want, bytes);
    assert_memory_equal(host[0], host[1], bytes);
}

/* |got - want| <= bound * max(floor, largest |want|) for all n. */
static inline void near_doubles(const char *what, const double *got, const double *want, size_t n,
                                double bound, double floor)
{
    double largest = floor;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= bound * largest))
            fail_msg("%s, %s[%zu]: %.9g, expected %.9g, off by %.3g of the largest, bound %.3g",
                     check_place, what, i, got[i], want[i], fabs(got[i] - want[i]) / largest,
                     bound);
}

static inline void near(const char *what, struct dev *d, const void *got, enum dtype type,
                        const double *want, size_t n, double bound)
{
    near_doubles(what, download(d, got, n, type), want, n, bound, 1e-30);
}

/* Central difference of loss(ctx) in *x. */
static inline double slope(double (*loss)(const void *ctx), const void *ctx, double *x)
{
    double old = *x, h = 1e-5 * fmax(1.0, fabs(old));
    *x = old + h;
    double up = loss(ctx);
    *x = old - h;
    double down = loss(ctx);
    *x = old;
    return (up - down) / (2 * h);
}

/* got (n) = before + d loss / d x at up to 40 places spread over x. */
static inline void near_slope(const char *what, struct dev *d, const void *got, enum dtype type,
                              double before, double (*loss)(const void *ctx), const void *ctx,
                              double *x, size_t n, double bound)
{
    double *all = download(d, got, n, type), some[41], want[41];
    size_t step = n / 40 + 1, count = 0;
    for (size_t i = 0; i < n; i += step, count++) {
        some[count] = all[i] - before;
        want[count] = slope(loss, ctx, &x[i]);
    }
    near_doubles(what, some, want, count, bound, 1e-3);
}

/* What dev_dropout multiplies an element by. */
static inline double dropout_reference(const struct dev_dropout *a, uint64_t key, size_t column,
                                       float scale)
{
    uint32_t words[4], below = (uint32_t)lround((double)a->rate * 65536);
    rng_block(a->seed, RNG_DROPOUT | (key >> 32) << 32,
              (key & 0xffffffffu) << 32 | (uint64_t)a->place << 16 | column / 8, words);
    uint32_t half = words[column % 8 / 2] >> (column % 2 ? 16 : 0) & 0xffff;
    return half < below ? 0 : 65536.0 / (65536.0 - below) * (double)scale;
}

static inline void check_done(struct dev *d)
{
    while (check_held_count)
        dev_free(d, check_held[--check_held_count]);
    arena_reset(&check_host);
}

static inline double bound(const struct dev *d, double f32, double bf16)
{
    return d->model_type == DTYPE_F32 ? f32 : bf16;
}

enum { CHECK_THREADS = 3 };

/* The check on one device, unless this processor does not have the instruction set. */
static inline void check_on(const struct dev_options *o, void (*check)(struct dev *d))
{
    struct dev *d;
    enum err e = dev_open(&d, o);
    if (e == ERR_UNSUPPORTED && o->isa)
        return;
    if (e != ERR_OK)
        fail_msg("%s", err_message());
    snprintf(check_place, sizeof check_place, "%s %s %s threads=%d", o->kind,
             o->isa ? o->isa : "best", o->model_type, o->threads);
    check_index = 0;
    check_held_count = 0; /* a check that failed has left its own */
    check(d);
    if (dev_sync(d) != ERR_OK)
        fail_msg("%s: %s", check_place, err_message());
    check_done(d);
    dev_close(d);
}

/* Runs the check on the CPU with every instruction set of this processor, both types, 1 to 3
 * threads; or on the device that ATOLL_TEST_DEVICE names, both types (tests/gpu.sh). */
static inline void on_every_device(void (*check)(struct dev *d))
{
    static const char *isas[] = {"v2", "v3", "v4", NULL}, *types[] = {"f32", "bf16"};
    const char *other = getenv("ATOLL_TEST_DEVICE");
    for (int k = 0; other && k < 2; k++)
        check_on(&(struct dev_options){.kind = other, .model_type = types[k]}, check);
    for (int k = 0; !other && k < 4 * 2 * CHECK_THREADS; k++)
        check_on(&(struct dev_options){.kind = "cpu",
                                       .model_type = types[k / CHECK_THREADS % 2],
                                       .threads = k % CHECK_THREADS + 1,
                                       .isa = isas[k / CHECK_THREADS / 2]},
                 check);
}

#endif
