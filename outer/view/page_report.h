/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGE_REPORT_H
#define PAGE_REPORT_H
/* A report: the page of a run (page/) as one file, with its style, its script and its data inside.
 * It opens offline, from a disk; a browser without scripts shows the main figures as text.
 */
#include "outer/view/report_data.h"

/* Runs as report_data_read gives them. wan: the record of the emulated network between them
 * (wan_record), or NULL. Durable, atomic. ERR_INPUT: that is no such record. */
enum err page_report_write(const char *path, struct report_run *runs, size_t count,
                           const char *wan) MUST;

#endif
