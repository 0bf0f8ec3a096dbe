#ifndef PLAN_INSIDE_H
#define PLAN_INSIDE_H
/* atoll plan --inside: what the ranks of one site will take for a step, with their memory, energy,
 * price, and the number beyond which more of them stop paying.
 */
#include "outer/config/run.h"

struct plan_inside_options {
    const char *ranks; /* "1,2,4"; NULL: powers of two */
    const char *times; /* "8:5.47,64:0.898", GPUs and minutes of the same work; NULL: predicted */
    bool search;       /* settings, too, for each number of ranks */
    bool json;         /* one object for each number of ranks */
};
enum err plan_inside(struct run *p, const struct plan_inside_options *o) MUST;
/* The table of measured times alone: no configuration is needed. */
enum err plan_inside_times(const char *times, bool json) MUST;

#endif
