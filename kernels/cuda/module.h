/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDA_MODULE_H
#define CUDA_MODULE_H
/* Interface between the program and its GPU modules. The CUDA libraries are hundreds of megabytes
 * and most machines have none, so all code that needs them is in shared objects that the program
 * opens only when the configuration names a GPU: libatoll_cuda.so (the ops) and libatoll_nccl.so
 * (inner/coll). A module uses no function of the program except those of cuda_host, and exports one
 * function. */
#include "kernels/dev.h"

struct cuda_host { /* functions of the program: error messages are per thread */
    enum err (*fail)(enum err e, const char *sentence);              /* err_set */
    void (*bug)(const char *file, int line, const char *expression); /* err_bug: does not return */
    void (*log)(bool warning, const char *event, const char *text);  /* log_event */
};

/* The ops and their arguments as text: the program refuses a module of another build. */
#define CUDA_INTERFACE_OP(name, arguments) #name #arguments ";"
#define CUDA_INTERFACE                     DEV_OPS(CUDA_INTERFACE_OP) "describe by cuda_fact;"

#define CUDA_DEV_BYTES                     (sizeof(struct dev) + sizeof(struct dev_ops) + sizeof(struct dev_options))

/* A fact about toolkit, driver or a GPU, for `atoll doctor`; missing: it is not there, and the text
 * says what stands in for it. */
typedef void cuda_fact(void *self, const char *name, bool missing, const char *text);

struct cuda_module {
    const char *interface; /* CUDA_INTERFACE of the module's build */
    size_t dev_bytes;      /* CUDA_DEV_BYTES there */
    enum err (*open)(struct dev **d, int index, const struct dev_options *o);
    void (*describe)(cuda_fact *fact, void *self); /* works without a GPU */
};
typedef const struct cuda_module *cuda_module_get(const struct cuda_host *host);
#define CUDA_MODULE_FILE "libatoll_cuda.so"
#define CUDA_MODULE_NAME "atoll_cuda_module"

/* Opens FILE in the folder of the program or on the search path of the loader; it stays open.
 * *symbol: the function NAME. ERR_UNSUPPORTED names the missing part. */
enum err module_find(const char *file, const char *name, void **symbol) MUST;
const struct cuda_host *module_host(void); /* functions of this program */
enum err
module_cuda(const struct cuda_module **m) MUST; /* found, asked and compared; once per process */

#endif
