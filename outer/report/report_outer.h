#ifndef REPORT_OUTER_H
#define REPORT_OUTER_H
/* The report's section on the outer step: how successive deltas and the sites agree, what the
 * momentum makes of it, what the codec leaves behind (outer/diloco/metrics.h). */
#include "outer/report/report_data.h"

/* Nothing for runs whose records have none of it. */
enum err report_outer(FILE *out, const struct report_run *runs, size_t count, struct arena *a) MUST;

#endif
