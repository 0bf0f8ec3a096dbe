/* SPDX-License-Identifier: Apache-2.0 */
/* The places at which the aggregator calls its organs (outer/organ/organ.h). */
#include "outer/aggregator/aggregator_state.h"

enum err aggregator_organs_open(struct aggregator *a)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        TRY(o->at[i].organ->open(o->at[i].self, a));
    return ERR_OK;
}

enum err aggregator_organs_restore(struct aggregator *a, const struct journal_record *r)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        if (o->at[i].organ->kinds & 1u << r->kind)
            return o->at[i].organ->restore(o->at[i].self, r);
    return err_set(ERR_UNSUPPORTED,
                   "journal: a record of kind %d, which this process does not know", (int)r->kind);
}

enum err aggregator_organs_recovered(struct aggregator *a)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        TRY(o->at[i].organ->recovered(o->at[i].self));
    return ERR_OK;
}

void aggregator_organs_begin(struct aggregator *a)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        o->at[i].organ->begin(o->at[i].self, a);
}

size_t aggregator_organs_records(const struct aggregator *a, struct journal_record *keep)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    size_t n = 0;
    for (unsigned i = 0; i < o->count; i++)
        n += o->at[i].organ->records(o->at[i].self, keep ? keep + n : NULL);
    return n;
}

void aggregator_organs_bound(const struct aggregator *a, unsigned site,
                             struct wire_hello_answer *answer)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        o->at[i].organ->bound(o->at[i].self, site, answer);
}

enum err aggregator_organs_work(struct aggregator *a)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        TRY(o->at[i].organ->work(o->at[i].self));
    return ERR_OK;
}

enum err aggregator_organs_sealed(struct aggregator *a, unsigned fragment)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        TRY(o->at[i].organ->sealed(o->at[i].self, fragment));
    return ERR_OK;
}

void aggregator_organs_manifest(const struct aggregator *a, struct manifest *m)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        o->at[i].organ->manifest(o->at[i].self, m);
}

const struct organ_at_aggregator *aggregator_organ_of(const struct aggregator *a, enum wire_act act)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        if (o->at[i].organ->acts & 1u << act)
            return &o->at[i];
    return NULL;
}

void aggregator_organs_committed(struct aggregator *a, const struct manifest *m, bool moves)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        o->at[i].organ->committed(o->at[i].self, a, m, moves);
}

bool aggregator_organs_read_spool(const struct aggregator *a)
{
    const struct organs_at_aggregator *o = &a->o->organs;
    bool reads = false;
    for (unsigned i = 0; i < o->count; i++)
        reads = reads || o->at[i].organ->reads_spool;
    return reads;
}
