/* Opens a device by name and forwards memory and sync; every op goes straight through dev->ops. */
#include "kernels/dev.h"
#include <string.h>

enum err dev_open(struct dev **d, const struct dev_options *o)
{
    *d = NULL;
    if (!o->kind || strcmp(o->kind, "cpu") == 0)
        return cpu_open(d, o);
    if (strcmp(o->kind, "cuda") == 0)
        return err_set(ERR_UNSUPPORTED, "this build has no CUDA module; set device to cpu");
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

enum err dev_sync(struct dev *d)
{
    return d->ops->sync(d);
}
