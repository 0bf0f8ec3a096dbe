/* Marks between the ops of a step, and their sums by class. */
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
    *p = (struct profile){.dev = d, .first = dev_marks(d, PROFILE_MARKS)};
}

void profile_begin(struct profile *p, bool on)
{
    p->on = on;
    p->used = 0;
    if (on)
        p->dev->ops->mark(p->dev, p->first + p->used++);
}

void profile_mark(struct profile *p, enum profile_class c)
{
    if (!profile_on(p))
        return;
    if (p->used == PROFILE_MARKS) {
        p->full = true;
        return;
    }
    p->interval[p->used] = (uint8_t)c;
    p->dev->ops->mark(p->dev, p->first + p->used++);
}

enum err profile_take(struct profile *p)
{
    if (!profile_on(p))
        return ERR_OK;
    TRY(p->dev->ops->wait(p->dev, p->first + p->used - 1));
    for (unsigned i = 1; i < p->used; i++) {
        p->seconds[p->interval[i]] += p->dev->ops->seconds(p->dev, p->first + i - 1, p->first + i);
        p->calls[p->interval[i]]++;
    }
    p->steps++;
    return ERR_OK;
}
