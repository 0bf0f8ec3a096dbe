/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a crash, a full disk or a flipped bit costs the run, or goes
 * unnoticed into it. */
#include "tests/inner/scratch.h"
#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "inner/io/checkpoint.h"
#include "kernels/base/log.h"

enum { PARAMS = 300, COUNTERS = 5 };
static float params[PARAMS];
static uint8_t counters[COUNTERS];
static const struct checkpoint_part parts[] = {{"params", params, sizeof params, false},
                                               {"empty", NULL, 0, false},
                                               {"counters", counters, sizeof counters, false}};
enum { PART_COUNT = 3 };

static char dir[256];
static unsigned dirs, warnings;
static char first_warning[2048], last_warning[2048];

/* Reads of a path that ends so fail, as where the disk cannot read a sector. */
static char unreadable[64];
ssize_t __real_pread64(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t n, off_t at);
ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);

static bool cannot_read(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = *unreadable ? readlink(link, path, sizeof path - 1) : -1;
    if (n < (ssize_t)strlen(unreadable))
        return false;
    path[n] = 0;
    errno = EIO;
    return !strcmp(path + n - strlen(unreadable), unreadable);
}

ssize_t __wrap_pread64(int fd, void *to, size_t n, off_t at)
{
    return cannot_read(fd) ? -1 : __real_pread64(fd, to, n, at);
}

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    return cannot_read(fd) ? -1 : __real_pread(fd, to, n, at);
}

static void count_warnings(void *self, enum log_level level, const char *line)
{
    (void)self;
    if (level == LOG_WARN) {
        if (!warnings++)
            snprintf(first_warning, sizeof first_warning, "%s", line);
        snprintf(last_warning, sizeof last_warning, "%s", line);
    }
}

static int reset(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "%s/run-%u/inner", scratch_root, dirs++);
    log_to(count_warnings, NULL);
    warnings = 0;
    err_clear();
    return 0;
}

static void fill(uint64_t step)
{
    for (int i = 0; i < PARAMS; i++)
        params[i] = (float)(step * 1000 + (uint64_t)i);
    memset(counters, (int)step, sizeof counters);
}

static struct checkpoint_meta meta_of(uint64_t step)
{
    struct checkpoint_meta m = {.step = step,
                                .seed = 7,
                                .settings = "model.layers=4\nmodel.width=128\n",
                                .device = "cpu test",
                                .threads = 2,
                                .ranks = 1};
    m.model = digest_of("table", 5);
    return m;
}

static enum err save(uint64_t step, unsigned keep)
{
    struct checkpoint_meta m = meta_of(step);
    fill(step);
    return checkpoint_save(dir, &m, parts, PART_COUNT, keep);
}

static enum err load(struct checkpoint_meta *got, bool *found)
{
    struct checkpoint_meta want = meta_of(0);
    memset(params, 0xff, sizeof params);
    memset(counters, 0xff, sizeof counters);
    return checkpoint_load(dir, &want, parts, PART_COUNT, got, found);
}

/* The stored state of that step, whole and nothing else, is in memory. */
static void assert_loads(uint64_t step)
{
    struct checkpoint_meta got;
    bool found;
    assert_int_equal(load(&got, &found), ERR_OK);
    assert_true(found);
    assert_int_equal(got.step, step);
    for (int i = 0; i < PARAMS; i++)
        assert_true(params[i] == (float)(step * 1000 + (uint64_t)i));
    assert_int_equal(counters[COUNTERS - 1], step);
}

static const char *in_dir(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(c ^ 1, f);
    assert_int_equal(fclose(f), 0);
}

static void nothing_there_is_a_fresh_start(void **state)
{
    (void)state;
    struct checkpoint_meta got;
    bool found = true;
    assert_int_equal(load(&got, &found), ERR_OK);
    assert_false(found);
    assert_int_equal(file_mkdirs(dir), ERR_OK);
    assert_int_equal(load(&got, &found), ERR_OK);
    assert_false(found);
    /* a first save that was killed */
    assert_int_equal(file_mkdirs(in_dir("00000005")), ERR_OK);
    assert_int_equal(load(&got, &found), ERR_OK);
    assert_false(found);
}

static void what_was_saved_comes_back(void **state)
{
    (void)state;
    struct checkpoint_meta got;
    bool found;
    assert_int_equal(save(12, 2), ERR_OK);
    assert_loads(12);
    assert_int_equal(load(&got, &found), ERR_OK);
    assert_int_equal(got.seed, 7);
    assert_string_equal(got.device, "cpu test");
    assert_int_equal(got.threads, 2);
    assert_int_equal(save(12, 2), ERR_OK); /* again over itself */
    assert_loads(12);
    assert_int_equal(warnings, 0);
}

static void the_last_few_are_kept(void **state)
{
    (void)state;
    for (uint64_t step = 10; step <= 50; step += 10)
        assert_int_equal(save(step, 2), ERR_OK);
    assert_false(file_exists(in_dir("00000030")));
    assert_true(file_exists(in_dir("00000040/state")));
    assert_true(file_exists(in_dir("00000050/state")));
    assert_loads(50);
}

/* A folder whose save was killed, and a state whose bytes are damaged, are no checkpoints to go
 * back to: they take the place of none that is. */
static void only_verified_ones_count(void **state)
{
    (void)state;
    for (uint64_t step = 10; step <= 30; step += 10)
        assert_int_equal(save(step, 3), ERR_OK);
    assert_int_equal(file_mkdirs(in_dir("00000035")), ERR_OK);
    assert_int_equal(save(40, 2), ERR_OK);
    assert_false(file_exists(in_dir("00000035")));
    assert_true(file_exists(in_dir("00000030/state")));
    assert_false(file_exists(in_dir("00000020")));
    assert_int_equal(save(50, 3), ERR_OK);
    flip(in_dir("00000040/state"), 700);
    assert_int_equal(save(60, 3), ERR_OK);
    assert_false(file_exists(in_dir("00000040")));
    assert_true(file_exists(in_dir("00000030/state")));
    assert_true(file_exists(in_dir("00000050/state")));
    assert_loads(60);
}

/* A page that the disk cannot give back: named, and the checkpoint before it is taken. */
static void an_unreadable_part_falls_back(void **state)
{
    (void)state;
    assert_int_equal(save(1, 3), ERR_OK);
    assert_int_equal(save(2, 3), ERR_OK);
    snprintf(unreadable, sizeof unreadable, "00000002/state");
    assert_loads(1);
    assert_non_null(strstr(first_warning, "00000002/state: cannot read from byte 0 on: "));
    *unreadable = 0;
    assert_loads(2);
}

static void any_flipped_byte_is_found(void **state)
{
    (void)state;
    assert_int_equal(save(1, 1), ERR_OK);
    char path[512];
    strcpy(path, in_dir("00000001/state"));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    struct checkpoint_meta got;
    bool found;
    for (long at = 0; at < st.st_size; at++) {
        flip(path, at);
        assert_int_equal(load(&got, &found), ERR_CORRUPT);
        assert_says("00000001/state: damaged");
        assert_true(counters[0] == 0xff); /* untouched */
        flip(path, at);
    }
    assert_loads(1);
    for (long size = st.st_size - 1; size >= 0; size -= 37) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(load(&got, &found), ERR_CORRUPT);
    }
}

static void a_damaged_one_falls_back_with_a_warning(void **state)
{
    (void)state;
    assert_int_equal(save(1, 3), ERR_OK);
    assert_int_equal(save(2, 3), ERR_OK);
    assert_int_equal(save(3, 3), ERR_OK);
    flip(in_dir("00000003/state"), 500);
    assert_loads(2);
    assert_int_equal(warnings, 2); /* which file, and which step is taken instead */
    flip(in_dir("00000002/state"), 0);
    assert_loads(1);
    flip(in_dir("00000001/state"), 100);
    struct checkpoint_meta got;
    bool found;
    assert_int_equal(load(&got, &found), ERR_CORRUPT);
    assert_says("00000003/state: damaged");
    assert_says("no intact checkpoint is left");
    flip(in_dir("00000001/state"), 100);
    assert_int_equal(save(2, 3),
                     ERR_OK); /* trained again from 1: the damaged 3 is of an abandoned future */
    assert_false(file_exists(in_dir("00000003")));
    assert_loads(2);
}

static void assert_looks(uint64_t before, uint64_t step)
{
    struct checkpoint_reader *r;
    struct checkpoint_meta got;
    float first;
    assert_int_equal(checkpoint_look(&r, dir, before, &got), ERR_OK);
    assert_int_equal(got.step, step);
    assert_int_equal(checkpoint_get(r, "params", 0, &first, sizeof first), ERR_OK);
    assert_true(first == (float)(step * 1000));
    checkpoint_close(r);
}

static void older_ones_can_be_looked_at(void **state)
{
    (void)state;
    struct checkpoint_reader *r;
    struct checkpoint_meta got;
    for (uint64_t step = 10; step <= 40; step += 10)
        assert_int_equal(save(step, 3), ERR_OK);
    assert_looks(UINT64_MAX, 40);
    assert_looks(40, 30);
    assert_looks(31, 30);
    assert_looks(30, 20);
    assert_int_equal(checkpoint_look(&r, dir, 20, &got), ERR_INPUT);
    assert_says("holds no checkpoint before step 20");
    assert_int_equal(warnings, 0);
    flip(in_dir("00000030/state"), 500); /* 20 is not what was asked for */
    assert_int_equal(checkpoint_look(&r, dir, 40, &got), ERR_CORRUPT);
    assert_says("00000030/state: damaged");
    assert_looks(30, 20);
    assert_looks(UINT64_MAX, 40);
}

static void damage_to_current_costs_nothing(void **state)
{
    (void)state;
    assert_int_equal(save(1, 3), ERR_OK);
    assert_int_equal(save(11, 3), ERR_OK);
    struct stat st;
    assert_int_equal(stat(in_dir("CURRENT"), &st), 0);
    for (long at = 0; at < st.st_size; at++) {
        warnings = 0;
        flip(in_dir("CURRENT"), at);
        assert_loads(11);
        assert_int_equal(warnings, 1);
        flip(in_dir("CURRENT"), at);
    }
    assert_int_equal(file_remove(in_dir("CURRENT")), ERR_OK);
    assert_loads(11);
    assert_int_equal(save(12, 3), ERR_OK);
    assert_int_equal(file_remove_tree(in_dir("00000012")), ERR_OK); /* by hand */
    warnings = 0;
    assert_loads(11);
    assert_int_equal(warnings, 1);
    assert_int_equal(file_remove_tree(in_dir("00000011")), ERR_OK);
    assert_int_equal(file_remove_tree(in_dir("00000001")), ERR_OK);
    struct checkpoint_meta got;
    bool found;
    assert_int_equal(load(&got, &found), ERR_CORRUPT);
    assert_says("CURRENT names step 12");
}

/* A kill between the state file and CURRENT leaves a state that was never committed. */
static void an_uncommitted_state_is_not_taken(void **state)
{
    (void)state;
    char kept[512];
    assert_int_equal(save(1, 3), ERR_OK);
    strcpy(kept, in_dir("kept"));
    assert_int_equal(rename(in_dir("CURRENT"), kept), 0);
    assert_int_equal(save(2, 3), ERR_OK);
    assert_int_equal(rename(kept, in_dir("CURRENT")), 0);
    assert_loads(1);
    assert_int_equal(warnings, 0);
}

static void another_run_is_refused_by_name(void **state)
{
    (void)state;
    assert_int_equal(save(5, 1), ERR_OK);
    struct checkpoint_meta want = meta_of(0), got;
    bool found;
    want.settings = "model.layers=6\nmodel.width=128\n";
    memset(counters, 0xff, sizeof counters);
    assert_int_equal(checkpoint_load(dir, &want, parts, PART_COUNT, &got, &found), ERR_MISMATCH);
    assert_says("model.layers: 6 here, 4 there");
    want.settings = "model.layers=5\ntrain.steps=400\n";
    assert_int_equal(checkpoint_load(dir, &want, parts, PART_COUNT, &got, &found), ERR_MISMATCH);
    assert_null(strstr(err_message(), "train.steps")); /* it may grow: the caller's to judge */
    want = meta_of(0);
    want.seed = 8;
    assert_int_equal(checkpoint_load(dir, &want, parts, PART_COUNT, &got, &found), ERR_MISMATCH);
    assert_says("run.seed: 8 here, 7 there");
    want = meta_of(0);
    want.model.bytes[0] ^= 1;
    assert_int_equal(checkpoint_load(dir, &want, parts, PART_COUNT, &got, &found), ERR_MISMATCH);
    assert_says("another table of tensors");
    want = meta_of(0);
    struct checkpoint_part other[] = {
        {"params", params, sizeof params - 4, false}, parts[1], parts[2]};
    assert_int_equal(checkpoint_load(dir, &want, other, 3, &got, &found), ERR_MISMATCH);
    assert_says("\"params\": 1196 bytes here, 1200 there");
    other[0] = (struct checkpoint_part){"moments", params, sizeof params, false};
    assert_int_equal(checkpoint_load(dir, &want, other, 3, &got, &found), ERR_MISMATCH);
    assert_says("\"moments\" is missing");
    assert_int_equal(checkpoint_load(dir, &want, parts, 2, &got, &found), ERR_MISMATCH);
    assert_says("it also holds \"counters\"");
    assert_int_equal(counters[0], 0xff);
    counters[0] = 0x77; /* of another size: stays as it is, and the others are read */
    other[0] = parts[0];
    other[2] = (struct checkpoint_part){"counters", counters, sizeof counters - 1, true};
    assert_int_equal(checkpoint_load(dir, &want, other, 3, &got, &found), ERR_OK);
    assert_int_equal(counters[0], 0x77);
    other[2].size_bytes++;
    assert_int_equal(checkpoint_load(dir, &want, other, 3, &got, &found), ERR_OK);
    assert_int_not_equal(counters[0], 0x77);
    assert_int_equal(warnings, 0); /* not damage: no falling back */
}

/* Not damage: nothing falls back to an older one. */
static void another_version_is_refused_by_name(void **state)
{
    (void)state;
    struct checkpoint_meta got;
    bool found;
    assert_int_equal(save(4, 2), ERR_OK);
    assert_int_equal(save(5, 2), ERR_OK);
    struct file_part part = {"ATOLLCKP\1\0\0", 12};
    assert_int_equal(file_write(in_dir("00000005/state"), &part, 1, 0644), ERR_OK);
    assert_int_equal(load(&got, &found), ERR_MISMATCH);
    assert_says("00000005/state: state of version 1; this program reads version 2");
}

static void tools_can_open_without_knowing_the_model(void **state)
{
    (void)state;
    struct arena a = arena_make(0);
    struct checkpoint_meta got;
    struct checkpoint_part *all;
    size_t count;
    assert_int_equal(checkpoint_open(dir, &a, &got, &all, &count), ERR_INPUT);
    assert_says("holds no checkpoint");
    assert_int_equal(save(3, 1), ERR_OK);
    assert_int_equal(checkpoint_open(dir, &a, &got, &all, &count), ERR_OK);
    assert_int_equal(count, 3);
    assert_string_equal(all[2].name, "counters");
    assert_int_equal(all[2].size_bytes, COUNTERS);
    assert_memory_equal(all[0].data, params, sizeof params);
    assert_string_equal(got.settings, meta_of(0).settings);
    arena_free(&a);
}

/* Every shorter limit on the size of a file stops the save at another byte; the former checkpoint
 * stays. */
static void a_failed_write_leaves_the_old_one(void **state)
{
    (void)state;
    struct rlimit before, small;
    assert_int_equal(save(1, 1), ERR_OK);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t limit = 0; limit < 1300; limit += 100) {
        small = before;
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        enum err e = save(2, 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(e, ERR_FULL);
        assert_says("checkpoint of step 2: ");
        assert_false(file_exists(in_dir("00000002")));
        assert_loads(1);
    }
    assert_int_equal(save(2, 1), ERR_OK);
    assert_loads(2);
    assert_int_equal(warnings, 0);
}

static void a_full_disk_is_named_and_leaves_the_old_one(void **state)
{
    (void)state;
    char disk[128];
    snprintf(disk, sizeof disk, "%s/disk", scratch_root);
    assert_int_equal(file_mkdirs(disk), ERR_OK);
    if (mount("tmpfs", disk, "tmpfs", 0, "size=16k") != 0) {
        print_message(
            "SKIPPED: mounting a small tmpfs needs root; the failed write above stays the proof\n");
        skip();
    }
    snprintf(dir, sizeof dir, "%s/inner", disk);
    enum err first = save(1, 2), second = ERR_OK;
    for (uint64_t step = 2; step < 20 && !second; step++)
        second = save(step, 100);
    bool old_intact = file_exists(in_dir("00000001/state"));
    struct checkpoint_meta got;
    bool found;
    enum err loaded = load(&got, &found);
    assert_int_equal(umount(disk), 0);
    assert_int_equal(first, ERR_OK);
    assert_int_equal(second, ERR_FULL);
    assert_true(old_intact);
    assert_int_equal(loaded, ERR_OK);
    assert_true(found);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(nothing_there_is_a_fresh_start),
        T(what_was_saved_comes_back),
        T(the_last_few_are_kept),
        T(only_verified_ones_count),
        T(an_unreadable_part_falls_back),
        T(any_flipped_byte_is_found),
        T(a_damaged_one_falls_back_with_a_warning),
        T(older_ones_can_be_looked_at),
        T(damage_to_current_costs_nothing),
        T(an_uncommitted_state_is_not_taken),
        T(another_run_is_refused_by_name),
        T(another_version_is_refused_by_name),
        T(tools_can_open_without_knowing_the_model),
        T(a_failed_write_leaves_the_old_one),
        T(a_full_disk_is_named_and_leaves_the_old_one),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
