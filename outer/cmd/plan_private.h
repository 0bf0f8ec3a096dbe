#ifndef CMD_PLAN_PRIVATE_H
#define CMD_PLAN_PRIVATE_H
/* atoll plan --private: what a claim costs before a run: noise, epsilon with and without
 * amplification, and how much of a step is signal. For the site that the configuration describes.
 */
#include "outer/config/run.h"

struct plan_private_options {
    int64_t records; /* of the site; 0: counted in data.train */
    bool site_level; /* instead: a site's whole participation */
    int64_t sites;   /* of that; 0: those of outer.sites */
    bool force;      /* prints it where the noise is more than the signal */
};
/* ERR_CONFIG: no privacy.unit; a claim that the settings cannot keep; the privacy of whole sites
 * where noise exceeds the signal. */
enum err plan_private(struct run *p, const struct plan_private_options *o) MUST;

#endif
