/* SPDX-License-Identifier: Apache-2.0 */
/* Events between the ops of a step, and the sums of their intervals by class. */
#include "inner/model/profile.h"
#include <string.h>

const char *profile_name(enum profile_class c)
{
    static const char *const names[] = {
#define X(NAME, name) name,
        PROFILE_CLASSES(X)
#undef X
    };
    return names[c];
}

void profile_open(struct profile *p, struct dev *d)
{
    *p = (struct profile){.dev = d, .first = dev_events(d, PROFILE_EVENTS)};
}

void profile_begin(struct profile *p, bool on)
{
    p->on = on;
    p->used = 0;
    if (on)
        p->dev->ops->event_record(p->dev, p->first + p->used++);
}

void profile_record(struct profile *p, enum profile_class c)
{
    if (!profile_on(p))
        return;
    if (p->used == PROFILE_EVENTS) {
        p->full = true;
        return;
    }
    p->interval[p->used] = (uint8_t)c;
    p->dev->ops->event_record(p->dev, p->first + p->used++);
}

enum err profile_collect(struct profile *p)
{
    if (!profile_on(p))
        return ERR_OK;
    TRY(p->dev->ops->event_wait(p->dev, p->first + p->used - 1));
    for (unsigned i = 1; i < p->used; i++) {
        p->seconds[p->interval[i]] +=
            p->dev->ops->event_seconds(p->dev, p->first + i - 1, p->first + i);
        p->calls[p->interval[i]]++;
    }
    p->steps++;
    return ERR_OK;
}
