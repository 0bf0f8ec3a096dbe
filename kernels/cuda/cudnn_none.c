/* SPDX-License-Identifier: Apache-2.0 */
/* Implements cudnn.h in a build without the headers of cuDNN: cudnn_open() fails and no other
 * function is called.
 */
#include "kernels/cuda/cudnn.h"

enum err cudnn_open(struct cudnn **l)
{
    *l = NULL;
    return err_set(ERR_UNSUPPORTED, "no cuDNN: this module was built without its headers");
}

void cudnn_close(struct cudnn *l)
{
    ASSERT(!l);
}

const char *cudnn_version(const struct cudnn *l)
{
    ASSERT(!l);
    return "";
}

enum err cudnn_plan_make(struct cudnn_plan **p, struct cudnn *l, const struct cudnn_shape *s,
                         const char *gpu)
{
    (void)s, (void)gpu;
    *p = NULL;
    return cudnn_open(&l);
}

void cudnn_plan_close(struct cudnn_plan *p)
{
    ASSERT(!p);
}

size_t cudnn_plan_bytes(const struct cudnn_plan *p)
{
    ASSERT(!p);
    return 0;
}

const char *cudnn_plan_name(const struct cudnn_plan *p)
{
    ASSERT(!p);
    return "";
}

enum err cudnn_run(const struct cudnn_plan *p, void *stream, const struct cudnn_memory *m)
{
    struct cudnn *l;
    (void)p, (void)stream, (void)m;
    return cudnn_open(&l);
}
