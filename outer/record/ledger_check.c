/* SPDX-License-Identifier: Apache-2.0 */
/* Is every payload what was predicted, and the same at both ends? */
#include "outer/record/ledger_table.h"
#include <inttypes.h>
#include <stdio.h>

static enum err differs(const struct ledger_member *m, const struct ledger_row *row,
                        const char *than)
{
    bool up = row->what == LEDGER_CONTRIBUTION;
    return err_set(ERR_DIFFERS,
                   "%s: %s of site %s, fragment %" PRIu32 " round %" PRIu64 ": predicted %" PRIu64
                   ", agreed %" PRIu64 ", counted %" PRIu64 " bytes of payload%s",
                   m->directory, ledger_name(row->what), row->site, row->fragment, row->round,
                   row->predicted, row->total, up ? row->up.payload : row->down.payload, than);
}

static enum err older_differs(const struct ledger_member *m, const struct ledger_sum *s)
{
    uint64_t round = s->of.differ ? s->differ_round : s->cut_round;
    return err_set(ERR_DIFFERS,
                   "%s: of older rounds %" PRIu64 " transfers (%s of site %s, fragment %" PRIu32
                   ") are not as predicted; the first is of round %" PRIu64,
                   m->directory, ledger_wrong(m, s), ledger_name(s->row.what), s->row.site,
                   s->row.fragment, round);
}

static enum err check_member(const struct ledger_member *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (!ledger_good(m, &m->rows[i]))
            return differs(m, &m->rows[i], "");
    for (size_t i = 0; i < m->folded.sum_count; i++)
        if (ledger_wrong(m, &m->folded.sums[i]))
            return older_differs(m, &m->folded.sums[i]);
    return ERR_OK;
}

static enum err check_ends(const struct ledger_member *site, const struct ledger_member *aggregator)
{
    size_t unknown = 0;
    for (size_t i = 0; i < site->count; i++)
        unknown += ledger_ends_unknown(aggregator, &site->rows[i]);
    if (unknown)
        fprintf(stderr,
                "cannot check  %zu transfers of %s with %s, which has no row of them: a process "
                "was killed, a disk was full, or the rows were taken out or folded\n",
                unknown, site->name, aggregator->directory);
    for (size_t i = 0; i < site->count; i++)
        if (!ledger_ends_agree(aggregator, &site->rows[i]))
            return differs(site, &site->rows[i],
                           ledger_row_of(aggregator, &site->rows[i])
                               ? "; the aggregator has another size"
                               : "; the aggregator has none on record");
    return ERR_OK;
}

enum err ledger_check(const struct ledger_member *members, size_t count)
{
    for (size_t i = 0; i < count; i++)
        TRY(check_member(&members[i]));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++)
            if (members[k].aggregator && !members[i].aggregator)
                TRY(check_ends(&members[i], &members[k]));
    return ERR_OK;
}
