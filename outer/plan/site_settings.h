/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_SETTINGS_H
#define SITE_SETTINGS_H
/* From a probe file to a site_machine, and the text of its measured points. */
#include "outer/config/measured.h"
#include "outer/plan/accelerator.h"
#include "outer/plan/site_model.h"

struct site_costs {
    double watts, price_hour; /* of a rank; 0: not known */
    const char *watts_from;   /* for people */
};
/* ERR_CONFIG: neither plan.gpu nor a measurement, or a list that atoll probe did not write. With
 * plan.gpu `s` becomes settings of that device, so that the memory table is the GPU's. */
enum err site_settings_machine(struct site_machine *m, struct site_costs *c, struct settings *s,
                               const struct measured *measured) MUST;
/* An item of plan.rates. */
enum err site_settings_point(struct site_point *p, const char *text) MUST;
enum err site_settings_point_text(char **text, const struct site_point *p, struct arena *a) MUST;

#endif
