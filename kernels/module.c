/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the GPU modules (shared objects) and passes them the error functions of the program. Always
 * built: a module may exist on one machine and not on another.
 */
#include "kernels/cuda/module.h"
#include "kernels/base/log.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum err fail(enum err e, const char *sentence)
{
    return err_set(e, "%s", sentence);
}

static void bug(const char *file, int line, const char *expression)
{
    err_bug(file, line, expression);
}

static void say(bool warning, const char *event, const char *text)
{
    log_event(warning ? LOG_WARN : LOG_INFO, event, "%s", text);
}

const struct cuda_host *module_host(void)
{
    static const struct cuda_host host = {fail, bug, say};
    return &host;
}

/* Writes the path of FILE in folder `way`, relative to the folder of the program; false: no such
 * file. */
static bool beside(char path[4096], const char *way, const char *file)
{
    ssize_t n = readlink("/proc/self/exe", path, 4095);
    if (n <= 0)
        return false;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) : 0, room = 4096 - folder;
    int length = snprintf(path + folder, room, "/%s%s", way, file);
    return length > 0 && (size_t)length < room && access(path, R_OK) == 0;
}

/* The module is missing, or a library that it needs is: each has its own remedy. */
static enum err not_opened(const char *file, const char *why)
{
    if (strncmp(why, file, strlen(file)) == 0)
        return err_set(ERR_UNSUPPORTED,
                       "no GPU module: %s is not there; build with -DCUDA=ON, and NCCL for several "
                       "GPUs (docs/gpu.md), or use "
                       "--device.kind cpu",
                       file);
    return err_set(ERR_UNSUPPORTED,
                   "%s cannot be loaded: %s; install what is missing, or put its folder into "
                   "LD_LIBRARY_PATH (docs/gpu.md), "
                   "or use --device.kind cpu",
                   file, why);
}

enum err module_find(const char *file, const char *name, void **symbol)
{
    static const char *const ways[] = {"", "../bin/", "../lib/",
                                       "../lib/atoll/"}; /* tests lie next to bin */
    char path[4096];
    size_t i = 0, count = sizeof ways / sizeof *ways;
    while (i < count && !beside(path, ways[i], file))
        i++;
    dlerror();
    void *module = dlopen(i < count ? path : file,
                          RTLD_NOW | RTLD_LOCAL); /* or where the system's loader looks */
    const char *why = module ? "" : dlerror();
    if (!module)
        return not_opened(file, why ? why : "for no reason that the loader gives");
    *symbol = dlsym(module, name);
    if (!*symbol)
        return err_set(ERR_UNSUPPORTED, "%s has no %s: it is of another version", file, name);
    return ERR_OK;
}

enum err module_cuda(const struct cuda_module **m)
{
    static const struct cuda_module *found; /* dev_open is called by one thread */
    if (!found) {
        void *symbol;
        cuda_module_get *get;
        TRY(module_find(CUDA_MODULE_FILE, CUDA_MODULE_NAME, &symbol));
        memcpy(&get, &symbol, sizeof get); /* C has no cast from object to function pointers */
        const struct cuda_module *candidate = get(module_host());
        if (strcmp(candidate->interface, CUDA_INTERFACE) != 0 ||
            candidate->dev_bytes != CUDA_DEV_BYTES)
            return err_set(ERR_UNSUPPORTED,
                           "%s is of another build of this program: install both from one build",
                           CUDA_MODULE_FILE);
        found = candidate;
    }
    *m = found;
    return ERR_OK;
}
