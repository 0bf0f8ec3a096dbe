/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: `atoll sim` runs the production site and aggregator on a disk that
 * answers otherwise than the machine's. Both get the same drawn operations; results, errors and
 * bytes are equal. */
#include "tests/inner/scratch.h"
#include <errno.h>
#include "kernels/base/rng.h"
#include "outer/sim/disk_memory.h"

enum {
    OPERATIONS = 20000,
    NAMES = 12,
    NAME_BYTES = 8,
    PATH_BYTES = 300,
    OPEN_MAX = 4,
    BYTES = 700
};
static uint64_t drawn;

static unsigned below(unsigned n)
{
    return rng_u32(7, 1, drawn++) % n;
}

struct side { /* one of the two disks */
    struct disk *d;
    const char *root;
    int fd[OPEN_MAX];
};

/* Of a file or a directory, up to two levels deep. */
static void name_draw(char out[NAME_BYTES])
{
    static const char *const names[NAMES] = {"a",   "b",   "c",     "a/x",   "a/y",   "b/x",
                                             "b/z", "c/x", "a/x/k", "a/x/l", "b/x/k", "c/x/k"};
    snprintf(out, NAME_BYTES, "%s", names[below(NAMES)]);
}

static const char *full(const struct side *s, char out[PATH_BYTES], const char *name)
{
    snprintf(out, PATH_BYTES, "%s/%s", s->root, name);
    return out;
}

/* A missing parent and one that is a file are one error here. */
static int said(int result)
{
    return result >= 0 ? 0 : errno == ENOTDIR ? ENOENT : errno;
}

struct seen {
    unsigned count, sum;
};

static int name_see(void *self, const char *name)
{
    struct seen *s = self;
    s->count++;
    for (; *name; name++)
        s->sum += (unsigned char)*name;
    return 0;
}

struct operation {
    unsigned kind, slot;
    char name[NAME_BYTES], other[NAME_BYTES];
    size_t n, at;
    int flags;
};

static int on_descriptor(struct side *s, const struct operation *o, uint64_t *extra)
{
    static uint8_t data[2 * BYTES];
    int fd = s->fd[o->slot];
    memset(data, (int)(o->n % 251), sizeof data);
    if (o->kind == 6)
        return (int)s->d->ops->write(s->d, fd, data, o->n, o->at);
    if (o->kind == 7)
        return s->d->ops->truncate(s->d, fd, o->at);
    if (o->kind == 8)
        return s->d->ops->length(s->d, fd, extra);
    ssize_t got = s->d->ops->read(s->d, fd, data, o->n, o->at);
    for (ssize_t i = 0; i < got; i++)
        *extra = *extra * 31 + data[i];
    return (int)got;
}

static int do_one(struct side *s, const struct operation *o, uint64_t *extra)
{
    char name[PATH_BYTES], other[PATH_BYTES];
    struct seen seen = {0};
    int result;
    full(s, name, o->name);
    switch (o->kind) {
    case 0:
        return s->d->ops->mkdir(s->d, name);
    case 1:
        return s->d->ops->rmdir(s->d, name);
    case 2:
        return s->d->ops->unlink(s->d, name);
    case 3:
        result = s->d->ops->rename(s->d, name, full(s, other, o->other));
        errno = result && errno == ENOTEMPTY ? EISDIR : errno; /* the directory that it is in */
        return result;
    case 4:
        result = s->d->ops->list(s->d, name, name_see, &seen);
        *extra = (uint64_t)seen.count << 32 | seen.sum;
        return result;
    case 5:
        *extra = (uint64_t)s->d->ops->kind(s->d, name) * 2 + s->d->ops->is_directory(s->d, name);
        return 0;
    default:
        return on_descriptor(s, o, extra);
    }
}

/* Opened at both or at neither; the slot's file is closed before. */
static void open_both(struct side sides[2], const struct operation *o)
{
    for (int i = 0; i < 2; i++) {
        struct side *s = &sides[i];
        char name[PATH_BYTES];
        if (s->fd[o->slot] >= 0)
            assert_int_equal(s->d->ops->close(s->d, s->fd[o->slot]), 0);
        s->fd[o->slot] = s->d->ops->open(s->d, full(s, name, o->name), o->flags, 0600);
    }
    assert_int_equal(sides[0].fd[o->slot] >= 0, sides[1].fd[o->slot] >= 0);
}

static void operations_equal_the_machines(void **state)
{
    struct disk_memory memory;
    struct side sides[2] = {{.d = disk_posix(), .root = scratch("disk")}, {.root = "disk"}};
    (void)state;
    disk_memory_open(&memory, "disk");
    sides[1].d = &memory.disk;
    assert_int_equal(sides[0].d->ops->mkdir(sides[0].d, sides[0].root), 0);
    for (int i = 0; i < 2 * OPEN_MAX; i++)
        sides[i % 2].fd[i / 2] = -1;
    for (int i = 0; i < OPERATIONS; i++) {
        static const int flags[] = {O_RDWR, O_RDWR | O_CREAT, O_RDWR | O_CREAT | O_EXCL};
        struct operation o = {.kind = below(11), .slot = below(OPEN_MAX)};
        name_draw(o.name);
        name_draw(o.other);
        o.n = below(BYTES);
        o.at = below(BYTES);
        o.flags = flags[below(3)];
        char name[PATH_BYTES];
        enum disk_kind kind = sides[1].d->ops->kind(sides[1].d, full(&sides[1], name, o.name));
        if (o.kind == 10 && kind != DISK_DIRECTORY)
            open_both(sides, &o);
        bool skip = o.kind == 10 || (o.kind >= 6 && sides[1].fd[o.slot] < 0) ||
                    (o.kind == 3 && kind == DISK_DIRECTORY); /* nothing renames a directory */
        if (skip)
            continue;
        uint64_t extra[2] = {0};
        int result[2];
        for (int k = 0; k < 2; k++) {
            int r = do_one(&sides[k], &o, &extra[k]);
            result[k] = r > 0 ? -r : said(r);
        }
        assert_int_equal(result[0], result[1]);
        assert_int_equal(extra[0], extra[1]);
    }
    disk_memory_close(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(operations_equal_the_machines)};
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
