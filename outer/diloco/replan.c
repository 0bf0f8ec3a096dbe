#include "outer/diloco/replan.h"
#include <math.h>

double replan_share(const struct replan_round *r)
{
    double share = (double)r->steps * r->step_s / r->round_s;
    return share < 1 ? share : 1;
}

int64_t replan_every(const struct replan_round *r)
{
    double waits_s = r->round_s - (double)r->steps * r->step_s;
    double steps = waits_s > 0 ? ceil(waits_s / r->step_s * REPLAN_AIM / (1 - REPLAN_AIM)) : 1;
    int64_t parts = r->fragments, most = REPLAN_EVERY_MAX / parts * parts;
    int64_t wanted = steps < (double)most ? ((int64_t)steps + parts - 1) / parts * parts : most;
    if (replan_share(r) < REPLAN_SHARE)
        return wanted > r->every ? wanted : r->every;
    if (r->every <= r->least || 2 * wanted > r->every)
        return r->every;
    return wanted > r->least ? wanted : r->least;
}
