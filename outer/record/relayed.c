/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/relayed.h"
#include <string.h>

void relayed_open(struct relayed_rows *r)
{
    *r = (struct relayed_rows){.open = true};
    pthread_mutex_init(&r->mutex, NULL);
}

void relayed_close(struct relayed_rows *r)
{
    if (r->open)
        pthread_mutex_destroy(&r->mutex);
    r->open = false;
}

static struct ledger_row *row_like(struct relayed_rows *r, const struct ledger_row *row)
{
    for (unsigned i = 0; i < r->count; i++)
        if (ledger_same(&r->rows[i], row))
            return &r->rows[i];
    return NULL;
}

void relayed_add(void *relay, const struct ledger_row *row)
{
    struct relayed_rows *r = relay;
    struct ledger_row named = *row;
    pthread_mutex_lock(&r->mutex);
    struct ledger_row *to = row_like(r, &named);
    /* the last LEDGER_WHATS places are for rows without a round, one of each kind */
    if (!to && r->count + LEDGER_WHATS >= RELAYED_MAX) {
        ledger_no_round(&named);
        to = row_like(r, &named);
    }
    if (!to) {
        to = &r->rows[r->count++];
        *to = ledger_row_about(&named);
    }
    ledger_add(to, &named);
    pthread_mutex_unlock(&r->mutex);
}

unsigned relayed_take(struct relayed_rows *r, struct ledger_row out[RELAYED_MAX])
{
    pthread_mutex_lock(&r->mutex);
    unsigned count = r->count;
    memcpy(out, r->rows, count * sizeof *out);
    r->count = 0;
    pthread_mutex_unlock(&r->mutex);
    return count;
}
