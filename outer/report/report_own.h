#ifndef REPORT_OWN_H
#define REPORT_OWN_H
/* Inside the report: its sections, and what they share. A site has one colour on the whole page,
 * the parts of a round have theirs.
 */
#include "outer/report/plot.h"
#include "outer/report/report.h"
#include "outer/report/report_table.h"

struct report_runs { /* of one page */
    const struct report_run *run;
    size_t count;
    struct arena *a;
};

/* report.c */
/* Head and style of a page; its first section is open. */
void report_page_begin(FILE *out, const char *title);
unsigned report_color(const struct report_runs *r, size_t i);
void report_color_css(char out[24], const struct report_runs *r, size_t i); /* "var(--s0)" */
bool report_exchanges(const struct report_run *r);                          /* a site with rounds */
bool report_fragments(const struct report_run *r); /* has rounds of several fragments */
/* Where round i stands on an axis of rounds: its number, with several fragments its place. */
double report_round_x(const struct report_run *r, size_t i);
const char *report_round_label(const struct report_run *r);
double report_byte_unit(double most, const char **name);
/* The names of all runs that `shows` holds for, with their colours. */
void report_legend(FILE *out, const struct report_runs *r,
                   bool (*shows)(const struct report_run *run));

/* report_plots.c: loss, eval loss; gradient norm, learning rate, tokens/s, bytes so far */
void report_plots(FILE *out, const struct report_runs *r);
void report_series(FILE *out, const struct report_runs *r);
/* report_rounds.c: bytes and times of each round; the aggregator's rounds */
void report_rounds(FILE *out, const struct report_runs *r);
void report_aggregator(FILE *out, const struct report_runs *r);
/* report_outer.c: the numbers of the outer step */
void report_outer(FILE *out, const struct report_runs *r);
/* report_eval.c: tasks and probes of eval.every_rounds */
void report_eval(FILE *out, const struct report_runs *r);
/* report_counted.c */
void report_counted(FILE *out, const struct report_runs *r);
/* report_ledger.c */
void report_ledger(FILE *out, const struct report_runs *r);
/* report_wan.c: of a record that wan_record wrote. ERR_INPUT */
enum err report_wan(FILE *out, const char *path) MUST;

#endif
