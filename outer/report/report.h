#ifndef REPORT_H
#define REPORT_H
/* One self-contained HTML page about a run: charts as inline SVG, tables, configuration, versions,
 * how to repeat it. It opens offline, needs no script and no font, is light or dark as the reader's
 * system is.
 */
#include "outer/report/report_data.h"

/* Runs as report_data_read gives them. wan: the record of the emulated network between them
 * (wan_record), or NULL. Durable, atomic. ERR_INPUT: that is no such record. */
enum err report_write(const char *path, const struct report_run *runs, size_t count,
                      const char *wan, struct arena *a) MUST;

#endif
