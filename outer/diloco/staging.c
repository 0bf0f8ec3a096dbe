/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/staging.h"

static unsigned slots_of(unsigned slabs)
{
    return STAGING_BESIDE + (slabs ? slabs : 1);
}

size_t staging_bytes(size_t elements, unsigned slabs)
{
    return slots_of(slabs) * elements * sizeof(float);
}

enum err staging_open(struct staging *s, struct dev *d, size_t elements, unsigned slabs)
{
    s->d = d;
    for (unsigned i = 0; !d->host_memory && i < slots_of(slabs); i++)
        TRY(dev_alloc(d, (void **)&s->slot[i], elements * sizeof **s->slot));
    return ERR_OK;
}

void staging_close(struct staging *s)
{
    for (unsigned i = 0; i < STAGING_SLOTS; i++)
        dev_free(s->d, s->slot[i]);
    *s = (struct staging){0};
}

float *staging_at(struct staging *s, enum staging_slot slot, float *host)
{
    if (s->d->host_memory || !host)
        return host;
    ASSERT(s->slot[slot]);
    s->holds[slot] = NULL;
    return s->slot[slot];
}

const float *staging_in(struct staging *s, enum staging_slot slot, const float *host, size_t count)
{
    if (s->d->host_memory || s->holds[slot] == host)
        return s->d->host_memory ? host : s->slot[slot];
    s->holds[slot] = NULL;
    s->d->ops->copy(s->d, s->slot[slot], host, count * sizeof *host);
    return s->slot[slot];
}

float *staging_take(struct staging *s, enum staging_slot slot, float *to, const float *host,
                    size_t count)
{
    if (!to)
        return NULL;
    if (s->d->host_memory) {
        if (to != host)
            s->d->ops->copy(s->d, to, host, count * sizeof *host);
        return to;
    }
    (void)staging_in(s, slot, host, count);
    s->holds[slot] = NULL;
    return s->slot[slot];
}

void staging_out(struct staging *s, float *host, const float *from, size_t count)
{
    if (host && from != host)
        s->d->ops->copy(s->d, host, from, count * sizeof *host);
}

void staging_keep(struct staging *s, enum staging_slot slot, const float *host)
{
    s->holds[slot] = s->d->host_memory ? NULL : host;
}

const float *staging_kept(const struct staging *s, enum staging_slot slot, const float *host)
{
    return s->holds[slot] == host ? s->slot[slot] : NULL;
}

void staging_forget(struct staging *s, const float *host)
{
    for (unsigned i = 0; i < STAGING_SLOTS; i++)
        if (s->holds[i] == host)
            s->holds[i] = NULL;
}
