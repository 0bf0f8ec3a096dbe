/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the round benchmark is wrong: atoll probe measures another round than the one that
 * is run, or fails on settings that are allowed. Every codec goes through it, with moments and
 * several fragments; what it says is no more than it took. A disk that is full ends it: nothing
 * makes room for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "outer/sim/round_bench.h"
#include "tests/outer/toy.h"
#include "tests/sim/sinks.h"

static bool disk_full;

/* In place of the C library's: what reserves the space of a contribution. */
int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    (void)fd, (void)mode, (void)offset, (void)bytes;
    errno = disk_full ? ENOSPC : EOPNOTSUPP;
    return -1;
}

static enum err benchmark(enum codec_kind codec, unsigned sites, const struct fragment_plan *cut)
{
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table table = toy_table(tensors, 3);
    struct arena arena = arena_make(0);
    struct sync_config x = {.schedule = schedule_streaming(100, 4, cut->count, 1, codec)};
    struct exchange_cost t = {0};
    char directory[64]; /* without a disk it takes no time */
    snprintf(directory, sizeof directory, "%s/test-round-bench-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    struct round_bench r = {.exchange = &x,
                            .table = &table,
                            .directory = mkdtemp(directory),
                            .sites = sites,
                            .error_feedback_decay = 1,
                            .seed = 1};
    assert_non_null(r.directory);
    assert_int_equal(fragment_make(&x.fragments, &table, cut, &arena), ERR_OK);
    for (unsigned f = x.schedule.fragments; f < x.fragments.count; f++)
        x.schedule.period[x.schedule.fragments++] =
            (struct schedule_period){.p = {.every = 8, .offset = 0}, .codec = CODEC_BF16};
    assert_int_equal(outer_opt_make(&x.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    assert_int_equal(
        dev_open(&r.dev, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}),
        ERR_OK);
    double begin = clock_mono_s();
    enum err e = round_bench_measure(&r, &t);
    double took = clock_mono_s() - begin, elements = 0;
    for (unsigned f = 0; f < x.fragments.parts; f++)
        elements = (double)x.fragments.f[f].elements > elements ? (double)x.fragments.f[f].elements
                                                                : elements;
    assert_true(e != ERR_OK || (t.encode_s > 0 && t.apply_s > 0 && t.accept_s > 0 &&
                                t.commit_s > 0 && t.sum_s > 0));
    assert_true((t.encode_s + t.apply_s + t.accept_s + t.commit_s + t.sum_s) * elements <
                took / 2); /* three of five at least */
    dev_close(r.dev);
    arena_free(&arena);
    assert_int_equal(file_remove_tree(directory), ERR_OK);
    return e;
}

static void good(enum codec_kind codec, unsigned sites, const struct fragment_plan *cut)
{
    if (benchmark(codec, sites, cut) != ERR_OK)
        fail_msg("%s, %u sites: %s", codec_get(codec)->name, sites, err_message());
}

static void every_codec(void **state)
{
    const struct fragment_plan cut = {.kind = FRAGMENT_STRIDED, .count = 1, .synchronised = {true}};
    (void)state;
    for (int c = 0; c < CODEC_COUNT; c++)
        good((enum codec_kind)c, 2, &cut);
}

static void fragments_and_moments(void **state)
{
    const struct fragment_plan cut = {
        .kind = FRAGMENT_STRIDED, .count = 2, .synchronised = {true, true, true}};
    (void)state;
    good(CODEC_INT4, 1, &cut);
    good(CODEC_INT8, 100, &cut); /* played by four */
}

static void full_disk(void **state)
{
    const struct fragment_plan cut = {.kind = FRAGMENT_STRIDED, .count = 1, .synchronised = {true}};
    (void)state;
    disk_full = true;
    assert_int_equal(benchmark(CODEC_INT8, 2, &cut), ERR_FULL);
    disk_full = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_codec),
                                       cmocka_unit_test(fragments_and_moments),
                                       cmocka_unit_test(full_disk)};
    log_to(quiet, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
