/* The program's side of the modules: finds them, hands them its error functions. Built always:
 * whether a module is there is a question of the machine, not of the build. */
#include "kernels/cuda/module.h"
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

const struct cuda_host *module_host(void)
{
    static const struct cuda_host host = {fail, bug};
    return &host;
}

/* The file at `way` from the program's own folder; NULL: not there, or it needs what is not there.
 */
static void *open_beside(const char *way, const char *file)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return NULL;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) : 0, room = sizeof path - folder;
    int length = snprintf(path + folder, room, "/%s%s", way, file);
    if (length < 0 || (size_t)length >= room || access(path, R_OK) != 0)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

enum err module_find(const char *file, const char *name, void **symbol)
{
    static const char *const ways[] = {"", "../bin/", "../lib/",
                                       "../lib/atoll/"}; /* tests lie beside bin */
    void *module = NULL;
    const char *why = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !module && !why; i++) {
        dlerror();
        module = open_beside(ways[i], file);
        why = dlerror();
    }
    if (!module && !why && !(module = dlopen(file, RTLD_NOW | RTLD_LOCAL)))
        why = dlerror();
    if (!module)
        return err_set(
            ERR_UNSUPPORTED,
            "no GPU module: %s (build with -DCUDA=ON, install CUDA's libraries, or use "
            "--device.kind cpu)",
            why ? why : file);
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
