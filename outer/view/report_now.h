#ifndef REPORT_NOW_H
#define REPORT_NOW_H
/* Inside the report: how a run goes now, from its records one by one (struct report_now). */
#include "outer/view/report_data.h"

/* Of a record; the fallback when it is absent or null. */
double report_number(const struct jsonl_row *row, const char *key, double fallback);
void report_now_begin(struct report_now *n);
void report_now_state(struct report_now *n, double t, const char *text);
void report_now_pace(struct report_run *r, double step, double t);
void report_now_start(struct report_run *r, const struct jsonl_row *row, double t);
void report_now_step(struct report_run *r, const struct jsonl_row *row, double t);
void report_now_round(struct report_run *r, const struct jsonl_row *row, double t);
/* Of an amendment, or of a site's round: how long the run is now. */
void report_now_length(struct report_run *r, const struct jsonl_row *row);
void report_now_skipped(struct report_now *n, const struct jsonl_row *row);
void report_now_health(struct report_now *n, const struct jsonl_row *row);
void report_now_privacy(struct report_now *n, const struct jsonl_row *row);

#endif
