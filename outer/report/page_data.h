#ifndef PAGE_DATA_H
#define PAGE_DATA_H
/* The one JSON object that the page (page/page.js) draws, and that scripts read. Errors of `out`
 * are the caller's to find (ferror).
 */
#include "outer/report/report_data.h"

/* status.json: a run while it goes on, bounded. No loss of a single site in a run with privacy. */
void page_data_live(FILE *out, const struct report_follow *f, double now);

#endif
