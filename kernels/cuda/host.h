/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_H
#define HOST_H
/* Inside a module: the program's error functions. host_set() first. */
#include "kernels/cuda/module.h"

void host_set(const struct cuda_host *host);

#endif
