/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a container's page cache counts as used and a run is refused for
 * good, or a limit is not seen and the kernel kills the process without a word.
 *
 * Trees as systems show them: /proc/self/cgroup, /proc/self/mountinfo (the lines that matter), the
 * files of the groups. What is left follows from Documentation/admin-guide/cgroup-v2.rst and
 * cgroup-v1/memory.rst of the kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "inner/train/memory_left.h"

enum { FILES_MAX = 16 };
struct tree {
    const char *name;
    struct {
        const char *path, *text;
    } file[FILES_MAX];
    size_t bytes, limit;
    const char *path; /* of the file with the limit */
};

#define CGROUP "/proc/self/cgroup"
#define MOUNTS "/proc/self/mountinfo"
#define MACHINE                                                                                    \
    {                                                                                              \
        "/proc/meminfo", "MemTotal:       16000000 kB\nMemFree:          100000 kB\n"              \
                         "MemAvailable:    8000000 kB\n"                                           \
    }
#define V2_MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNTS                                                                                  \
    "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"                                   \
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
static const size_t available = (size_t)8000000 * 1024;

static const struct tree trees[] = {
    {.name = "no control groups", .file = {MACHINE}, .bytes = (size_t)8000000 * 1024},
    {.name = "v2, own limit, full of page cache that can be taken back",
     .file = {MACHINE,
              {CGROUP, "0::/system.slice/atoll.service\n"},
              {MOUNTS, V2_MOUNT},
              {"/sys/fs/cgroup/system.slice/atoll.service/memory.max", "4000000000\n"},
              {"/sys/fs/cgroup/system.slice/atoll.service/memory.current", "3995000000\n"},
              {"/sys/fs/cgroup/system.slice/atoll.service/memory.stat",
               "anon 20000000\nfile 3900000000\nshmem 0\ninactive_file 3800000000\n"
               "active_file 100000000\nslab_reclaimable 5000000\nslab 9000000\n"}},
     .bytes = 4000000000 - 90000000,
     .limit = 4000000000,
     .path = "/sys/fs/cgroup/system.slice/atoll.service/memory.max"},
    {.name = "v2, files in memory (shmem) cannot be taken back",
     .file = {MACHINE,
              {CGROUP, "0::/a\n"},
              {MOUNTS, V2_MOUNT},
              {"/sys/fs/cgroup/a/memory.max", "1000000000\n"},
              {"/sys/fs/cgroup/a/memory.current", "900000000\n"},
              {"/sys/fs/cgroup/a/memory.stat",
               "file 800000000\nshmem 800000000\ninactive_file 0\nactive_file 0\n"}},
     .bytes = 100000000,
     .limit = 1000000000,
     .path = "/sys/fs/cgroup/a/memory.max"},
    {.name = "v2, the limit of a pod above the container's group",
     .file = {MACHINE,
              {CGROUP, "0::/kubepods.slice/pod7.slice/cri-1.scope\n"},
              {MOUNTS, V2_MOUNT},
              {"/sys/fs/cgroup/kubepods.slice/pod7.slice/cri-1.scope/memory.max", "max\n"},
              {"/sys/fs/cgroup/kubepods.slice/pod7.slice/cri-1.scope/memory.current", "1000\n"},
              {"/sys/fs/cgroup/kubepods.slice/pod7.slice/memory.max", "2000000000\n"},
              {"/sys/fs/cgroup/kubepods.slice/pod7.slice/memory.current", "500000000\n"},
              {"/sys/fs/cgroup/kubepods.slice/memory.max", "64000000000\n"},
              {"/sys/fs/cgroup/kubepods.slice/memory.current", "60000000000\n"}},
     .bytes = 1500000000,
     .limit = 2000000000,
     .path = "/sys/fs/cgroup/kubepods.slice/pod7.slice/memory.max"},
    {.name = "v2, the least of two limits is the upper one's",
     .file = {MACHINE,
              {CGROUP, "0::/a/b\n"},
              {MOUNTS, V2_MOUNT},
              {"/sys/fs/cgroup/a/b/memory.max", "3000000000\n"},
              {"/sys/fs/cgroup/a/b/memory.current", "100000000\n"},
              {"/sys/fs/cgroup/a/memory.max", "4000000000\n"},
              {"/sys/fs/cgroup/a/memory.current", "3900000000\n"}},
     .bytes = 100000000,
     .limit = 4000000000,
     .path = "/sys/fs/cgroup/a/memory.max"},
    {.name = "v2 in a cgroup namespace",
     .file = {MACHINE,
              {CGROUP, "0::/\n"},
              {MOUNTS, "900 880 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"},
              {"/sys/fs/cgroup/memory.max", "1073741824\n"},
              {"/sys/fs/cgroup/memory.current", "73741824\n"}},
     .bytes = 1000000000,
     .limit = 1073741824,
     .path = "/sys/fs/cgroup/memory.max"},
    {.name = "v2, a process that was moved out of its namespace's root",
     .file = {MACHINE,
              {CGROUP, "0::/../other\n"},
              {MOUNTS, V2_MOUNT},
              {"/sys/fs/cgroup/memory.max", "1000000000\n"},
              {"/sys/fs/cgroup/memory.current", "1\n"}},
     .bytes = 999999999,
     .limit = 1000000000,
     .path = "/sys/fs/cgroup/memory.max"},
    {.name = "v2, a host's group mounted into a container without a namespace",
     .file = {MACHINE,
              {CGROUP, "0::/docker/abc/inner\n"},
              {MOUNTS, "900 880 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
              {"/sys/fs/cgroup/inner/memory.max", "max\n"},
              {"/sys/fs/cgroup/inner/memory.current", "5\n"},
              {"/sys/fs/cgroup/memory.max", "700000000\n"},
              {"/sys/fs/cgroup/memory.current", "100000000\n"}},
     .bytes = 600000000,
     .limit = 700000000,
     .path = "/sys/fs/cgroup/memory.max"},
    {.name = "v1 in a container",
     .file = {MACHINE,
              {CGROUP, "11:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/\n"},
              {MOUNTS, V1_MOUNTS "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro master:12 - "
                                 "cgroup cgroup rw,memory\n"},
              {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n"},
              {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "2147000000\n"},
              {"/sys/fs/cgroup/memory/memory.stat",
               "cache 1\ninactive_file 5\nhierarchical_memory_limit 2147483648\n"
               "total_cache 2000000000\ntotal_inactive_file 1900000000\n"
               "total_active_file 100000000\n"}},
     .bytes = 2147483648 - 147000000,
     .limit = 2147483648,
     .path = "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
    {.name = "v1, the limit of a parent that is not mounted",
     .file = {MACHINE,
              {CGROUP, "4:memory:/\n"},
              {MOUNTS, "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"},
              {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
              {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000000\n"},
              {"/sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 300000000\n"}},
     .bytes = 200000000,
     .limit = 300000000,
     .path = "/sys/fs/cgroup/memory/memory.stat"},
    {.name = "v1, a parent's limit",
     .file = {MACHINE,
              {CGROUP, "4:memory:/batch/job1\n"},
              {MOUNTS, "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"},
              {"/sys/fs/cgroup/memory/batch/job1/memory.limit_in_bytes", "9223372036854771712\n"},
              {"/sys/fs/cgroup/memory/batch/job1/memory.usage_in_bytes", "4096\n"},
              {"/sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "300000000\n"},
              {"/sys/fs/cgroup/memory/batch/memory.use_hierarchy", "1\n"},
              {"/sys/fs/cgroup/memory/batch/memory.usage_in_bytes", "100000000\n"}},
     .bytes = 200000000,
     .limit = 300000000,
     .path = "/sys/fs/cgroup/memory/batch/memory.limit_in_bytes"},
    {.name = "v1, a parent that does not count its children",
     .file = {MACHINE,
              {CGROUP, "4:memory:/batch/job1\n"},
              {MOUNTS, "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"},
              {"/sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "300000000\n"},
              {"/sys/fs/cgroup/memory/batch/memory.use_hierarchy", "0\n"},
              {"/sys/fs/cgroup/memory/batch/memory.usage_in_bytes", "100000000\n"}},
     .bytes = (size_t)8000000 * 1024},
    {.name = "hybrid: memory in v1, v2 for systemd alone",
     .file = {MACHINE,
              {CGROUP, "4:memory,hugetlb:/user.slice\n0::/user.slice/session-2.scope\n"},
              {MOUNTS, V1_MOUNTS
               "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
               "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,hugetlb,memory\n"},
              {"/sys/fs/cgroup/unified/user.slice/session-2.scope/cgroup.procs", "1\n"},
              {"/sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes", "500000000\n"},
              {"/sys/fs/cgroup/memory/user.slice/memory.usage_in_bytes", "400000000\n"}},
     .bytes = 100000000,
     .limit = 500000000,
     .path = "/sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes"},
    {.name = "more in use than the limit, which was lowered",
     .file = {MACHINE,
              {CGROUP, "0::/a\n"},
              {MOUNTS, V2_MOUNT},
              {"/sys/fs/cgroup/a/memory.max", "1000\n"},
              {"/sys/fs/cgroup/a/memory.current", "2000\n"}},
     .bytes = 0,
     .limit = 1000,
     .path = "/sys/fs/cgroup/a/memory.max"},
    {.name = "a mount point with a blank",
     .file = {MACHINE,
              {CGROUP, "0::/a\n"},
              {MOUNTS, "30 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n"},
              {"/my groups/a/memory.max", "1000\n"},
              {"/my groups/a/memory.current", "0\n"}},
     .bytes = 1000,
     .limit = 1000,
     .path = "/my groups/a/memory.max"},
    {.name = "the address space",
     .file = {MACHINE,
              {"/proc/self/limits",
               "Limit                     Soft Limit           Hard Limit           Units\n"
               "Max stack size            8388608              unlimited            bytes\n"
               "Max address space         2097152000           unlimited            bytes\n"},
              {"/proc/self/status", "Name:\tatoll\nVmPeak:\t  200000 kB\nVmSize:\t  100000 kB\n"}},
     .bytes = 2097152000 - 102400000,
     .limit = 2097152000,
     .path = "ulimit -v"},
    {.name = "texts that are cut, empty, or no numbers",
     .file = {MACHINE,
              {CGROUP, "4:memory\n0:\n::\n4:memory:/x"},
              {MOUNTS,
               "30\n31 23 0:26 /\n - cgroup2\n35 31 0:32 / /m rw - cgroup cgroup rw,memory"},
              {"/m/x/memory.limit_in_bytes", "many\n"},
              {"/m/x/memory.usage_in_bytes", ""},
              {"/m/memory.limit_in_bytes", "99999999999999999999999999\n"},
              {"/m/memory.usage_in_bytes", "0"}},
     .bytes = (size_t)8000000 * 1024},
};

static char *tree_read(void *self, const char *path)
{
    const struct tree *t = self;
    for (size_t i = 0; i < FILES_MAX && t->file[i].path; i++)
        if (strcmp(t->file[i].path, path) == 0)
            return strdup(t->file[i].text);
    return NULL;
}

static void trees_of_systems(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        struct tree t = trees[i];
        struct memory_files files = {tree_read, &t};
        struct memory_left m;
        memory_left(&m, &files);
        if (m.bytes != t.bytes || m.limit != t.limit || (t.path && strcmp(m.path, t.path) != 0))
            fail_msg("%s: %zu left of %zu in %s, wanted %zu of %zu", t.name, m.bytes, m.limit,
                     m.path, t.bytes, t.limit);
    }
}

static void the_text_names_the_file(void **state)
{
    char text[5000];
    struct memory_left m = {.bytes = 900u << 20, .limit = 2000u << 20, .path = "/g/memory.max"};
    (void)state;
    memory_left_text(&m, text, sizeof text);
    assert_string_equal(text, "limit of 2000 MiB in /g/memory.max leaves 900 MiB");
    m = (struct memory_left){.bytes = available};
    memory_left_text(&m, text, sizeof text);
    assert_string_equal(text, "machine has 7812 MiB left");
}

static void this_machine(void **state)
{
    struct memory_left m;
    (void)state;
    memory_left(&m, NULL);
    assert_true(m.bytes > 0 && m.bytes < SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trees_of_systems),
                                       cmocka_unit_test(the_text_names_the_file),
                                       cmocka_unit_test(this_machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
