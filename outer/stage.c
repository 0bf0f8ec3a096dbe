#include "outer/stage.h"

static unsigned slots_of(bool gathers)
{
    return STAGE_SLOTS - !gathers;
}

size_t stage_bytes(size_t elements, bool gathers)
{
    return slots_of(gathers) * elements * sizeof(float);
}

enum err stage_open(struct stage *s, struct dev *d, size_t elements, bool gathers)
{
    s->d = d;
    for (unsigned i = 0; !d->host_memory && i < slots_of(gathers); i++)
        TRY(dev_alloc(d, (void **)&s->slot[i], elements * sizeof **s->slot));
    return ERR_OK;
}

void stage_close(struct stage *s)
{
    for (unsigned i = 0; i < STAGE_SLOTS; i++)
        dev_free(s->d, s->slot[i]);
    *s = (struct stage){0};
}

float *stage_at(const struct stage *s, enum stage_slot slot, float *host)
{
    ASSERT(s->d->host_memory || !host || s->slot[slot]);
    return s->d->host_memory || !host ? host : s->slot[slot];
}

const float *stage_in(struct stage *s, enum stage_slot slot, const float *host, size_t count)
{
    if (s->d->host_memory)
        return host;
    s->d->ops->copy(s->d, s->slot[slot], host, count * sizeof *host);
    return s->slot[slot];
}

void stage_out(struct stage *s, float *host, const float *from, size_t count)
{
    if (host && from != host)
        s->d->ops->copy(s->d, host, from, count * sizeof *host);
}
