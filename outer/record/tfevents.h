/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TFEVENTS_H
#define TFEVENTS_H
/* TensorBoard's event files: scalars by step. One record: u64 length, masked CRC-32C of it, the
 * protobuf message Event, masked CRC-32C of that, little endian
 * (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto). A process writes one
 * new file, events.out.tfevents.SECONDS.atoll.PID; TensorBoard reads all of a directory. A file
 * that cannot be written stops nothing: it is logged once. One thread.
 */
#include <stdint.h>
#include <stdio.h>
#include "kernels/base/arena.h"
#include "outer/protocol/round.h"
#include "outer/record/jsonl.h"

struct tfevents { /* zeroed: closed, everything below does nothing */
    FILE *file;
    uint64_t flushed_ms;
    int64_t round_step[ROUND_FRAGMENTS_MAX]; /* of the newest round that is in the files */
};

enum err tfevents_open(struct tfevents *t, const char *directory) MUST; /* made if it is missing */
/* The numbers of a record of kind step, round, eval or task: step/loss, round/rho, eval_outer/loss,
 * task_arc/accuracy. line: of metrics.jsonl. */
void tfevents_record(struct tfevents *t, const char *line, size_t size);
/* The process begins at `step` + 1: what former files of the directory have from that step on is
 * shown no more (SessionLog.START, for which TensorBoard drops it). */
void tfevents_begin(struct tfevents *t, int64_t step);
/* A record of a former process after `step` that this one does not repeat: rounds, and the
 * evaluations of rounds. */
void tfevents_kept(struct tfevents *t, int64_t step, const struct jsonl_row *row);
/* A value that is not finite is left out. */
void tfevents_scalar(struct tfevents *t, const char *tag, int64_t step, double value);
void tfevents_flush(struct tfevents *t);
void tfevents_close(struct tfevents *t);

#endif
