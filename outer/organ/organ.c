/* SPDX-License-Identifier: Apache-2.0 */
/* What an organ does at the places where it has nothing to do. */
#include "outer/organ/organ.h"

void organ_site_begin_nothing(void *self, struct site_slot *l)
{
    (void)self, (void)l;
}

enum err organ_site_heard_nothing(void *self, struct site *s, unsigned peer,
                                  const struct wire_hello_answer *a)
{
    (void)self, (void)s, (void)peer, (void)a;
    return ERR_OK;
}

enum err organ_site_check_nothing(void *self, struct site_slot *l, const struct manifest *m)
{
    (void)self, (void)l, (void)m;
    return ERR_OK;
}

enum err organ_open_nothing(void *self, struct aggregator *a)
{
    (void)self, (void)a;
    return ERR_OK;
}

enum err organ_restore_nothing(void *self, const struct journal_record *r)
{
    (void)self, (void)r;
    return ERR_OK;
}

enum err organ_recovered_nothing(void *self)
{
    (void)self;
    return ERR_OK;
}

void organ_begin_nothing(void *self, struct aggregator *a)
{
    (void)self, (void)a;
}

size_t organ_records_nothing(void *self, struct journal_record *keep)
{
    (void)self, (void)keep;
    return 0;
}

void organ_bound_nothing(void *self, unsigned site, struct wire_hello_answer *answer)
{
    (void)self, (void)site, (void)answer;
}

enum err organ_work_nothing(void *self)
{
    (void)self;
    return ERR_OK;
}

enum err organ_sealed_nothing(void *self, unsigned fragment)
{
    (void)self, (void)fragment;
    return ERR_OK;
}

void organ_manifest_nothing(void *self, struct manifest *m)
{
    (void)self, (void)m;
}

enum err organ_operate_nothing(void *self, const char *peer, const struct wire_operate *m,
                               struct wire_answer *answer)
{
    (void)self, (void)peer, (void)m, (void)answer;
    return ERR_OK;
}

void organ_committed_nothing(void *self, struct aggregator *a, const struct manifest *m, bool moves)
{
    (void)self, (void)a, (void)m, (void)moves;
}
