/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SINKS_H
#define SINKS_H
/* Log sinks of the simulator's programs: nothing, or every line on standard output. */
#include <stdio.h>
#include "kernels/base/log.h"

static inline void quiet(void *self, enum log_level level, const char *line)
{
    (void)self;
    (void)level;
    (void)line;
}

static inline void loud(void *self, enum log_level level, const char *line)
{
    (void)self;
    (void)level;
    printf("%s\n", line);
}

#endif
