/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGE_OWN_H
#define PAGE_OWN_H
/* Inside the page's data: what its parts share. */
#include "outer/record/json_write.h"
#include "outer/view/report_data.h"

struct page_view {
    struct json_write *w;
    double now;
    bool whole; /* a report: all rounds and series; false: the live page */
};

/* page_data.c: some hundred points at most; the first and the last one are exact. The live page
 * gets every k-th point, a report the means of k points. */
void page_points(struct page_view *v, const char *key, const struct report_points *p);

/* page_whole.c: what only a report has */
/* Of a site: series, sums, times. */
void page_whole_site(struct page_view *v, const struct report_run *r);
/* Of every directory: ledger, versions, configuration, final state; whose data counted. */
void page_whole_replica(struct page_view *v, const struct report_run *r);
/* Of a record that wan_record wrote. ERR_INPUT */
enum err page_whole_wan(struct page_view *v, const char *path) MUST;

#endif
