/* Opens a device by name and forwards memory and sync; every op goes straight through dev->ops. */
#include "kernels/dev.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda/module.h"

/* "cuda" or "cuda:N"; the module comes from libatoll_cuda.so. */
static enum err open_cuda(struct dev **d, const struct dev_options *o)
{
    const struct cuda_module *m;
    char *end = NULL;
    long index = o->kind[4] ? strtol(o->kind + 5, &end, 10) : 0;
    if (end && (*end || end == o->kind + 5 || index < 0 || index > 1023))
        return err_set(ERR_CONFIG, "device '%s': the GPU's number is 0 to 1023", o->kind);
    TRY(module_cuda(&m));
    return m->open(d, (int)index, o);
}

enum err dev_open(struct dev **d, const struct dev_options *o)
{
    *d = NULL;
    if (!o->kind || strcmp(o->kind, "cpu") == 0)
        return cpu_open(d, o);
    if (strcmp(o->kind, "cuda") == 0 || strncmp(o->kind, "cuda:", 5) == 0)
        return open_cuda(d, o);
    return err_set(ERR_CONFIG, "device '%s' is none of cpu, cuda", o->kind);
}

void dev_close(struct dev *d)
{
    if (d)
        d->ops->close(d);
}

enum err dev_alloc(struct dev *d, void **p, size_t bytes)
{
    *p = NULL;
    return bytes ? d->ops->alloc(d, p, bytes) : ERR_OK;
}

void dev_free(struct dev *d, void *p)
{
    if (p)
        d->ops->free(d, p);
}

static void *host_take(void *self, size_t bytes)
{
    struct dev *d = self;
    void *p;
    return d->ops->host_alloc(d, &p, bytes) == ERR_OK ? p : NULL;
}

static void host_give(void *self, void *block)
{
    struct dev *d = self;
    d->ops->host_free(d, block);
}

struct arena dev_arena(struct dev *d)
{
    return arena_make_from((struct arena_source){host_take, host_give, d});
}

int dev_threads(void)
{
    cpu_set_t mask;
    int n = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
    return n < 1 ? 1 : n;
}

unsigned dev_marks(struct dev *d, unsigned count)
{
    unsigned first = d->marks;
    ASSERT(count <= DEV_MARKS_MAX - first);
    d->marks += count;
    return first;
}

enum err dev_sync(struct dev *d)
{
    return d->ops->sync(d);
}
