/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKE_CUDNN_H
#define FAKE_CUDNN_H
/* A cuDNN of the emulated device: attention in float64 out of loops, from the same shapes, layouts
 * and tables as the real one, so that all around it is tested; and levers for what may go wrong.
 */
#include <stdbool.h>
#include <stddef.h>

struct fake_cudnn {
    bool missing;  /* no library */
    bool refuses;  /* no plan for any shape */
    bool wrong;    /* one result is off by a tenth of the largest */
    bool restless; /* the backward gives other bits each time */
    bool naught;   /* one result is NaN */
    double us;     /* what a run takes next to its own microsecond; may be negative */
    size_t bytes;  /* of workspace */
    int plans, runs;
};
extern struct fake_cudnn fake_cudnn;

const char *emulate_log(void); /* the last line of cuda_log, "" since the call before */

#endif
