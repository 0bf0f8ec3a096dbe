/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/deal.h"
#include <string.h>

void deal_begin(struct deal *d, const double *rates, unsigned count, double late_s)
{
    memset(d, 0, sizeof *d);
    d->late_s = late_s;
    d->count = rates && count <= PATH_STREAMS_MAX ? count : 0;
    for (unsigned i = 0; i < d->count; i++)
        d->line[i].rate = rates[i];
}

void deal_join(struct deal *d, unsigned i)
{
    if (i < d->count)
        d->line[i].takes++;
}

void deal_leave(struct deal *d, unsigned i)
{
    if (i < d->count)
        d->line[i].takes--;
}

/* What it has not finished it has carried at most, and so much less than at its earlier rate. */
static double rate_now(const struct deal_line *l, double now_s)
{
    double most =
        l->busy > 0 && now_s > l->begun_s ? (l->bytes + l->busy) / (now_s - l->begun_s) : l->rate;
    return most < l->rate ? most : l->rate;
}

/* The mean of the known rates; without any all are the same. */
static void rates_now(const struct deal *d, double now_s, double rates[PATH_STREAMS_MAX])
{
    double sum = 0;
    unsigned known = 0;
    for (unsigned i = 0; i < d->count; i++) {
        rates[i] = rate_now(&d->line[i], now_s);
        sum += rates[i];
        known += rates[i] > 0;
    }
    for (unsigned i = 0; i < d->count; i++)
        if (rates[i] <= 0)
            rates[i] = known ? sum / known : 1;
}

bool deal_takes(const struct deal *d, unsigned i, unsigned blocks, double bytes, double now_s)
{
    double ends[PATH_STREAMS_MAX], each[PATH_STREAMS_MAX], rates[PATH_STREAMS_MAX];
    if (i >= d->count)
        return true;
    rates_now(d, now_s, rates);
    for (unsigned k = 0; k < d->count; k++) {
        each[k] = bytes / rates[k];
        ends[k] = d->line[k].busy / rates[k] + each[k] + (k ? d->late_s : 0);
    }
    for (unsigned b = 0; b < blocks; b++) {
        unsigned first = i;
        for (unsigned k = 0; k < d->count; k++)
            if (d->line[k].takes && ends[k] < ends[first])
                first = k;
        if (first == i)
            return true;
        ends[first] += each[first];
    }
    return false;
}

void deal_took(struct deal *d, unsigned i, double bytes, double now_s)
{
    if (i >= d->count)
        return;
    d->line[i].busy += bytes;
    if (d->line[i].begun_s <= 0)
        d->line[i].begun_s = now_s;
}

static double rate_of(const struct deal_line *l)
{
    return l->bytes > 0 && l->ended_s > l->begun_s ? l->bytes / (l->ended_s - l->begun_s) : l->rate;
}

void deal_done(struct deal *d, unsigned i, double bytes, double carried, double now_s)
{
    if (i >= d->count)
        return;
    struct deal_line *l = &d->line[i];
    l->busy -= bytes;
    l->bytes += carried;
    l->ended_s = now_s;
    l->rate = rate_of(l);
}

void deal_end(const struct deal *d, double *rates)
{
    for (unsigned i = 0; i < d->count; i++)
        rates[i] = rate_of(&d->line[i]);
}
