/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ACCELERATOR_H
#define ACCELERATOR_H
#include <stdbool.h>
/* GPUs by their published peaks, for plans without a measurement. */
struct accelerator {
    const char *name;    /* plan.gpu */
    double flop, bytes;  /* per second: dense bf16 (fp16 where there is none), device memory */
    double memory_bytes; /* of the device */
    double watts;        /* largest power of the board */
    double link_bytes;   /* per second to the other GPUs of a machine, one direction */
    bool shares;         /* what our H200 reached counts for it (site_settings.c) */
    const char *source;
};

const struct accelerator *accelerator_find(const char *name); /* NULL: not in the table */
const char *accelerator_names(void);                          /* "v100, t4, ..." */

#endif
