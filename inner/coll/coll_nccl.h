/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLL_NCCL_H
#define COLL_NCCL_H
/* Interface between the program and libatoll_nccl.so. The module opens a communicator for one GPU
 * of one rank. coll.c does the rendezvous of the ranks and, through watch.c, notices lost ranks.
 */
#include "inner/coll/coll.h"
#include "kernels/cuda/module.h"

enum { COLL_NCCL_ID_BYTES = 128 };

struct coll_nccl_options {
    int rank, size, local_rank; /* the GPU is local_rank, or the only one that this rank sees */
    unsigned char id[COLL_NCCL_ID_BYTES]; /* rank 0's, the same in all ranks */
    int timeout_s; /* for the ranks to join; then for a step, and ten times the longest before it */
};
struct coll_nccl_module {
    size_t coll_bytes; /* sizeof(struct coll) of the module's build */
    enum err (*id)(unsigned char id[COLL_NCCL_ID_BYTES]); /* a new id, on rank 0 */
    enum err (*open)(struct coll **c, const struct coll_nccl_options *o);
};
typedef const struct coll_nccl_module *coll_nccl_get(const struct cuda_host *host);
#define COLL_NCCL_FILE "libatoll_nccl.so"
#define COLL_NCCL_NAME "atoll_nccl_module"

#endif
