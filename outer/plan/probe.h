/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROBE_H
#define PROBE_H
/* What atoll probe measures. Each says on stderr what it does, and writes what it found into
 * *found.
 */
#include "outer/config/run.h"

/* Round trip and both rates to the other end, with payloads of at most `most_mib` MiB. */
enum err probe_link(struct run *r, struct measured *found, int64_t most_mib) MUST;
/* That other end, until Ctrl-C. */
enum err probe_listen(struct run *r, int64_t most_mib) MUST;
/* The step of the configured model on this machine, and a round without the link. */
enum err probe_step(struct run *r, struct measured *found) MUST;

/* What the ranks of this site, started by a launcher, take for their collectives, their products
 * and the classes of a training step. All ranks call. */
enum err probe_ranks(struct run *p, struct measured *found, const char *widths,
                     double seconds) MUST;

/* A new directory next to run.dir, so that the same disk is measured. */
enum err probe_directory(struct run *p, char **path) MUST;

#endif
