/* SPDX-License-Identifier: Apache-2.0 */
/* A site whose ranks hold fragments of the outer state each (site.outer_state = sharded): what the
 * lead gives the others when they open, and what they give the lead: rows of the byte ledger. */
#include "outer/run/job.h"

struct job_shards {
    struct site_process process; /* the lead's, on the other ranks */
    struct relayed_rows relay;   /* of the other ranks */
};

static bool lead(const struct job *j)
{
    return j->coll->rank == 0;
}

struct shards job_shards(const struct job *j, const struct run *run)
{
    unsigned fragments = run->sync.fragments.count, ranks = (unsigned)j->coll->size;
    bool all = run->o.site_outer_state == SITE_OUTER_STATE_SHARDED;
    ranks = ranks < fragments ? ranks : fragments;
    ranks = ranks < SHARDS_RANKS_MAX ? ranks : SHARDS_RANKS_MAX;
    return shards_of((unsigned)j->coll->rank, all ? ranks : 1);
}

bool job_holds(const struct job *j)
{
    const struct shards s = job_shards(j, j->run);
    return shards_largest(&s, &j->run->sync.fragments) > 0;
}

/* The lead has opened its end, and the directory is there. */
enum err job_shards_open(struct job *j)
{
    struct site_process process = {0};
    struct job_shards *x;
    if (job_shards(j, j->run).ranks <= 1)
        return ERR_OK;
    TRY_ALLOC(x = arena_alloc(&j->run->perm, sizeof *x));
    j->o->shards = x;
    if (lead(j))
        process = site_process_of(j->o->parts.site);
    TRY(j->coll->ops->broadcast_host(j->coll, &process, sizeof process, 0));
    x->process = process;
    if (lead(j) || !job_holds(j))
        return ERR_OK;
    relayed_open(&x->relay);
    return env_posix_join(&j->out->env, j->s->run_dir);
}

void job_shards_close(struct job *j)
{
    if (j->o->shards)
        relayed_close(&j->o->shards->relay);
}

const struct site_process *job_shards_process(const struct job *j)
{
    return lead(j) ? NULL : &j->o->shards->process;
}

ledger_sink *job_ledger(struct job *j, void **self)
{
    if (lead(j)) {
        *self = &j->out->ledger;
        return ledger_book_add;
    }
    *self = &j->o->shards->relay;
    return relayed_add;
}

enum err job_ledger_relay(struct job *j, int from)
{
    struct { /* one message */
        uint32_t count;
        struct ledger_row rows[RELAYED_MAX];
    } sent = {0};
    if (j->coll->rank == from)
        sent.count = relayed_take(&j->o->shards->relay, sent.rows);
    TRY(j->coll->ops->broadcast_host(j->coll, &sent, sizeof sent, from));
    for (uint32_t i = 0; lead(j) && i < sent.count; i++)
        ledger_book_add(&j->out->ledger, &sent.rows[i]);
    return ERR_OK;
}

static enum err drain(void *self)
{
    struct job *j = self;
    site_drain(j->o->parts.site);
    return ERR_OK;
}

/* The last reports of the other ranks, before the lead says good-bye. */
enum err job_shards_end(struct job *j)
{
    const struct shards s = job_shards(j, j->run);
    if (!j->outer || s.ranks <= 1)
        return ERR_OK;
    TRY(exchange_together(&j->o->exchange, &(struct exchange_call){lead(j) ? NULL : drain, j}));
    for (unsigned rank = 1; rank < s.ranks; rank++)
        TRY(job_ledger_relay(j, (int)rank));
    return ERR_OK;
}

enum err job_longest_list(struct job *j, uint32_t count, int *rank)
{
    double counts[SHARDS_RANKS_MAX];
    TRY(exchange_ranks(&j->o->exchange, count, counts));
    *rank = 0;
    for (int i = 1; i < SHARDS_RANKS_MAX; i++)
        if (counts[i] > counts[*rank])
            *rank = i;
    return ERR_OK;
}
