/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MACHINE_H
#define MACHINE_H
/* What this machine has, without opening a device: any process, any thread, no errors. */
#include <stdbool.h>
#include <stddef.h>

struct machine_driver { /* of NVIDIA's GPUs: it is the machine's; its library and devices may be
                           kept from a container */
    char version[32];   /* "": none runs, or Windows' own */
    bool library;       /* libcuda.so.1 can be opened */
    size_t gpus;        /* devices */
    bool wsl;           /* Windows' subsystem: GPUs without these devices */
};
void machine_driver(struct machine_driver *d);

struct machine_memory { /* GiB */
    double all, free;
    double shared_mib; /* /dev/shm, where ranks of one machine meet, over MPI and over NCCL */
};
void machine_memory(struct machine_memory *m);

#endif
