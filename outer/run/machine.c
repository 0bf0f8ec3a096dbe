/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/machine.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static size_t files_like(const char *pattern)
{
    glob_t g = {0};
    size_t count = glob(pattern, 0, NULL, &g) == 0 ? g.gl_pathc : 0;
    globfree(&g);
    return count;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 ..." -> "580.95.05" */
static void driver_version(char version[32])
{
    char line[256] = "";
    *version = 0;
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    bool read = f && fgets(line, sizeof line, f);
    if (f)
        fclose(f);
    for (char *word = strtok(line, " \t\n"); word && read; word = strtok(NULL, " \t\n"))
        if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
            snprintf(version, 32, "%.31s", word);
            return;
        }
}

void machine_driver(struct machine_driver *d)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    driver_version(d->version);
    d->library = library != NULL;
    d->gpus = files_like("/dev/nvidia[0-9]*");
    d->wsl = files_like("/dev/dxg") == 1;
    if (library)
        dlclose(library);
}

void machine_memory(struct machine_memory *m)
{
    struct statvfs v;
    double page = (double)sysconf(_SC_PAGESIZE) / (1 << 30);
    bool there = statvfs("/dev/shm", &v) == 0;
    m->all = (double)sysconf(_SC_PHYS_PAGES) * page;
    m->free = (double)sysconf(_SC_AVPHYS_PAGES) * page;
    m->shared_mib = there ? (double)v.f_blocks * (double)v.f_frsize / (1 << 20) : 0;
}
