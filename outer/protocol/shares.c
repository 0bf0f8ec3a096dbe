/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/protocol/shares.h"
#include <math.h>
#include "outer/protocol/bounds.h"

/* EDiT's: weight of the newest norm in mean and variance; deviations above the mean. */
static const double EWMA_ALPHA = 0.02, ANOMALY_DEVIATIONS = 3;

static void scaled_set(struct manifest *m)
{
    m->scaled = false;
    for (uint32_t i = 0; i < m->site_count; i++)
        m->scaled |= m->sites[i].factor != 1;
}

void shares_median(struct manifest *m)
{
    float median = bounds_round_median(m);
    for (uint32_t i = 0; i < m->site_count; i++) {
        struct manifest_entry *e = &m->sites[i];
        e->factor = e->included && e->norm > median ? median / e->norm : 1;
    }
    scaled_set(m);
}

void shares_keep(struct manifest *m, const struct manifest *before)
{
    m->tracks = true;
    for (uint32_t i = 0; i < m->site_count; i++) {
        const struct manifest_entry *e =
            before && before->tracks ? manifest_site(before, m->sites[i].site) : NULL;
        m->sites[i].track = e ? e->track : (struct manifest_track){.rounds = 0};
    }
}

static double share_length(const struct manifest_entry *e, const struct shares_edit *o)
{
    return (double)e->norm * sqrt((double)o->elements);
}

static bool norm_anomalous(const struct manifest_track *t, double length,
                           const struct shares_edit *o)
{
    double deviation = sqrt((double)t->variance);
    return t->rounds >= o->warmup && deviation > 0 &&
           length - (double)t->mean > ANOMALY_DEVIATIONS * deviation;
}

static void track_add(struct manifest_track *t, double length)
{
    double mean = t->rounds ? (double)t->mean : length, off = length - mean;
    t->mean = (float)(mean + EWMA_ALPHA * off);
    t->variance = (float)((1 - EWMA_ALPHA) * ((double)t->variance + EWMA_ALPHA * off * off));
    t->rounds++;
}

/* Includes no site: all contributions are dropped. */
static void roll_back(struct manifest *m)
{
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].included) {
            m->sites[i].included = false;
            m->sites[i].reason = ROUND_ABORTED;
            m->sites[i].factor = 0;
        }
    m->scaled = true;
}

bool shares_edit(struct manifest *m, const struct manifest *before, const struct shares_edit *o)
{
    double least = INFINITY, sum = 0, weight = (double)manifest_weight(m);
    shares_keep(m, before);
    for (uint32_t i = 0; i < m->site_count; i++) {
        struct manifest_entry *e = &m->sites[i];
        double length = share_length(e, o);
        bool out = e->included && norm_anomalous(&e->track, length, o);
        e->factor = out ? 0 : 1;
        if (e->included && !out && length < least)
            least = length;
    }
    for (uint32_t i = 0; i < m->site_count; i++) {
        struct manifest_entry *e = &m->sites[i];
        double length = share_length(e, o);
        if (e->included && e->factor > 0)
            sum += exp(least - length);
        /* a norm level that all sites have left is accepted: else the run would never continue */
        if (e->included && (e->factor > 0 || isinf(least)))
            track_add(&e->track, length);
    }
    if (isinf(least)) {
        roll_back(m);
        return false;
    }
    for (uint32_t i = 0; i < m->site_count;
         i++) { /* a payload's values include the site's weight */
        struct manifest_entry *e = &m->sites[i];
        if (e->included && e->factor > 0)
            e->factor = (float)(exp(least - share_length(e, o)) / sum * weight / (double)e->weight);
    }
    scaled_set(m);
    return true;
}
