/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/train/memory_left.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 8 << 20, PATH_SIZE = 4096 };

/* ---- texts ---- */

/* Files of /proc and of control groups have no size. */
static char *machine_read(void *self, const char *path)
{
    (void)self;
    size_t room = 4096, used = 0;
    FILE *f = fopen(path, "r");
    char *text = f ? malloc(room) : NULL;
    while (text) {
        used += fread(text + used, 1, room - used - 1, f);
        if (used < room - 1 || room >= TEXT_MAX)
            break;
        char *more = realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    if (text)
        text[used] = 0;
    if (f)
        fclose(f);
    return text;
}

static char *text_of(const struct memory_files *f, const char *directory, const char *name)
{
    char path[2 * PATH_SIZE];
    snprintf(path, sizeof path, "%s%s", directory, name);
    return f->read(f->self, path);
}

/* The number after `name` at the beginning of a line; SIZE_MAX: there is none, or "max". */
static size_t number_in(const char *text, const char *name, size_t unit)
{
    size_t n = strlen(name);
    unsigned long long number;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0)
            return sscanf(line + n, "%llu", &number) == 1 && number <= SIZE_MAX / unit
                       ? (size_t)number * unit
                       : SIZE_MAX;
    }
    return SIZE_MAX;
}

static size_t number_of(const struct memory_files *f, const char *directory, const char *file,
                        const char *name, size_t unit)
{
    char *text = text_of(f, directory, file);
    size_t number = text ? number_in(text, name, unit) : SIZE_MAX;
    free(text);
    return number;
}

static size_t known(size_t number)
{
    return number == SIZE_MAX ? 0 : number;
}

/* ---- one limit ---- */

static void bound(struct memory_left *m, size_t limit, size_t used, const char *directory,
                  const char *file)
{
    size_t left = limit > used ? limit - used : 0;
    if (limit == SIZE_MAX || used == SIZE_MAX || left >= m->bytes)
        return;
    m->bytes = left;
    m->limit = limit;
    snprintf(m->path, sizeof m->path, "%s%s", directory, file);
}

/* The names of one version's files. v1 counts the groups below in total_*, and says the least limit
 * above it, which a container may not see as a directory. */
struct version {
    const char *limit, *used, *inactive, *active, *slab;
};
static const struct version v1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                  "total_inactive_file ", "total_active_file ", NULL},
                            v2 = {"/memory.max", "/memory.current", "inactive_file ",
                                  "active_file ", "slab_reclaimable "};

static void group_bound(struct memory_left *m, const struct memory_files *f,
                        const struct version *v, const char *directory)
{
    size_t limit = number_of(f, directory, v->limit, "", 1),
           used = number_of(f, directory, v->used, "", 1);
    char *stat = text_of(f, directory, "/memory.stat");
    const char *file = v->limit;
    size_t cache = 0;
    if (stat) {
        cache = known(number_in(stat, v->inactive, 1)) + known(number_in(stat, v->active, 1)) +
                (v->slab ? known(number_in(stat, v->slab, 1)) : 0);
        size_t above = v == &v1 ? number_in(stat, "hierarchical_memory_limit ", 1) : SIZE_MAX;
        if (above < limit) {
            limit = above;
            file = "/memory.stat";
        }
    }
    free(stat);
    bound(m, limit, used == SIZE_MAX ? used : used > cache ? used - cache : 0, directory, file);
}

/* ---- where the groups are ---- */

/* The path of this process in the hierarchy: the line "N:..,memory,..:PATH", of v2 "0::PATH". */
static bool group_path(const char *text, bool memory, char path[PATH_SIZE])
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *controllers = strchr(line, ':'), *end = strchr(line, '\n');
        const char *at = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!at || (end && at > end))
            continue;
        char list[256];
        snprintf(list, sizeof list, ",%.*s,", (int)(at - controllers - 1), controllers + 1);
        if (memory ? !strstr(list, ",memory,") : strcmp(list, ",,") != 0)
            continue;
        snprintf(path, PATH_SIZE, "%.*s", (int)(end ? end - at - 1 : (long)strlen(at) - 1), at + 1);
        return true;
    }
    return false;
}

/* mountinfo writes blanks in paths as \040. */
static void unescape(char *s)
{
    char *to = s;
    for (; *s; s++) {
        unsigned code;
        if (*s == '\\' && sscanf(s + 1, "%3o", &code) == 1) {
            *to++ = (char)code;
            s += 3;
        } else
            *to++ = *s;
    }
    *to = 0;
}

struct mounted {
    char root[PATH_SIZE], point[PATH_SIZE];
};

/* "36 35 0:28 ROOT POINT options [tags] - TYPE source OPTIONS"; the last one that fits, which hides
 * an earlier one at the same place. */
static bool mount_find(const char *text, bool memory, struct mounted *m)
{
    struct mounted one;
    bool found = false;
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        char type[32], options[1024] = ",";
        line += *line == '\n';
        const char *end = strchr(line, '\n'), *tail = strstr(line, " - ");
        if (!tail || (end && tail > end) ||
            sscanf(line, "%*s %*s %*s %4095s %4095s", one.root, one.point) != 2 ||
            sscanf(tail, " - %31s %*s %1020s", type, options + 1) != 2)
            continue;
        strcat(options, ",");
        if (strcmp(type, memory ? "cgroup" : "cgroup2") != 0 ||
            (memory && !strstr(options, ",memory,")))
            continue;
        *m = one;
        found = true;
    }
    if (found) {
        unescape(m->root);
        unescape(m->point);
    }
    return found;
}

/* The group's directory under the mount. A path above the namespace's root ("/../..") or next to
 * the mounted part is not visible: the mount itself is what is known. */
static void group_directory(const struct mounted *m, const char *path, char out[2 * PATH_SIZE])
{
    size_t root = strcmp(m->root, "/") == 0 ? 0 : strlen(m->root);
    bool visible = strncmp(path, m->root, root) == 0 && (!path[root] || path[root] == '/') &&
                   !strstr(path, "/..");
    snprintf(out, 2 * PATH_SIZE, "%s%s", m->point,
             visible && strcmp(path + root, "/") != 0 ? path + root : "");
}

static void groups_bound(struct memory_left *left, const struct memory_files *f,
                         const struct version *v, const char *groups, const char *mounts)
{
    struct mounted m;
    char path[PATH_SIZE], directory[2 * PATH_SIZE];
    if (!groups || !mounts || !group_path(groups, v == &v1, path) ||
        !mount_find(mounts, v == &v1, &m))
        return;
    group_directory(&m, path, directory);
    size_t least = strlen(m.point);
    for (;;) {
        group_bound(left, f, v, directory);
        char *slash = strrchr(directory, '/');
        if (strlen(directory) <= least || !slash)
            return;
        *slash = 0;
        char *shared = v == &v1 ? text_of(f, directory, "/memory.use_hierarchy") : NULL;
        bool alone = shared && *shared == '0'; /* of an old kernel: it does not count this group */
        free(shared);
        if (alone)
            return;
    }
}

void memory_left(struct memory_left *m, const struct memory_files *files)
{
    static const struct memory_files machine = {machine_read, NULL};
    const struct memory_files *f = files ? files : &machine;
    *m = (struct memory_left){.bytes = SIZE_MAX};
    bound(m, number_of(f, "/proc/meminfo", "", "MemAvailable:", 1024), 0, "/proc/meminfo", "");
    m->limit = 0;
    bound(m, number_of(f, "/proc/self/limits", "", "Max address space", 1),
          number_of(f, "/proc/self/status", "", "VmSize:", 1024), "ulimit -v", "");
    char *groups = f->read(f->self, "/proc/self/cgroup"),
         *mounts = f->read(f->self, "/proc/self/mountinfo");
    groups_bound(m, f, &v2, groups, mounts);
    groups_bound(m, f, &v1, groups, mounts);
    group_bound(m, f, &v2, "/sys/fs/cgroup"); /* a container's own, where /proc says less */
    free(groups);
    free(mounts);
}

size_t memory_peak(void)
{
    const struct memory_files machine = {machine_read, NULL};
    return known(number_of(&machine, "/proc/self/status", "", "VmHWM:", 1024));
}

void memory_left_text(const struct memory_left *m, char *out, size_t size)
{
    if (m->limit)
        snprintf(out, size, "limit of %zu MiB in %s leaves %zu MiB", m->limit >> 20, m->path,
                 m->bytes >> 20);
    else
        snprintf(out, size, "machine has %zu MiB left", m->bytes >> 20);
}
