/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGE_DATA_H
#define PAGE_DATA_H
/* The one JSON object that the page (page/page.js) draws, and that scripts read: status.json of the
 * live page, or the data of a report. A report has everything that status.json has, and more of it.
 */
#include "outer/record/json_write.h"
#include "outer/view/report_data.h"

/* status.json: bounded, the newest rounds and events. No loss of a single site in a run with
 * privacy. Errors of `out` are the caller's to find (ferror). */
void page_data_live(FILE *out, const struct report_follow *f, double now);
double page_data_now(const struct report_follow *f); /* the time of the newest record */
/* A whole run, as of its newest record. wan: the record of the emulated network between its sites
 * (wan_record), or NULL. ERR_INPUT: it is no such record. */
enum err page_data_whole(struct json_write *w, const struct report_follow *f, const char *wan) MUST;

#endif
