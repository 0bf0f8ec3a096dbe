/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REPORT_NOW_H
#define REPORT_NOW_H
/* Inside the report: how a run goes now, from its records one by one (struct report_now). */
#include "outer/view/report_data.h"

/* Of a record; the fallback when it is absent or null. */
double report_number(const struct jsonl_row *row, const char *key, double fallback);
void report_now_begin(struct report_run *r);
/* Of every record: its time, and what only report_now tells (health, privacy, ...). */
void report_now_record(struct report_run *r, const struct jsonl_row *row, double t);
void report_now_state(struct report_run *r, double t, const char *text);
void report_now_start(struct report_run *r, const struct jsonl_row *row, double t);
void report_now_step(struct report_run *r, const struct jsonl_row *row, double t);
void report_now_round(struct report_run *r, const struct jsonl_row *row, double t);
/* Of an amendment, or of a site's round: how many rounds the run has now. */
void report_now_length(struct report_run *r, double rounds_all);
void report_now_evaluated(struct report_run *r, double ms);
/* A site as its aggregator sees it: a round that it has adopted, a change of its state. */
void report_now_seen(struct report_run *r, const struct jsonl_row *row, double t);
void report_now_seen_state(struct report_run *r, const struct jsonl_row *row);

#endif
