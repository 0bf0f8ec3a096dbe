/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a training process: what its record, its log and a person are told. */
#include <math.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/run/job.h"

enum part { PART_THETA, PART_MOMENTUM, PART_RESIDUAL };
enum { DIGESTS = 3 };
static const char *const digest_name[DIGESTS] = {"parameters", "momentum", "residual"};

/* The inner parameters, piece by piece through host memory: a GPU's are out of reach, and other
 * ranks may hold them. */
enum err job_digest_inner(struct job *j)
{
    static float piece[1 << 16];
    struct dev *d = j->dev;
    size_t elements = j->train.table.elements, most = sizeof piece / sizeof *piece;
    struct digest_stream s;
    digest_open(&s);
    for (size_t at = 0; !j->outer && at < elements; at += most) {
        size_t count = elements - at < most ? elements - at : most;
        const struct dev_range r = {at, count};
        d->ops->copy(d, piece, model_gather(j->train.model, r), count * sizeof *piece);
        model_scatter(j->train.model, r, false);
        TRY(dev_sync(d));
        digest_add(&s, piece, count * sizeof *piece);
    }
    struct digest digest = digest_close(&s);
    digest_hex(&digest, j->told.inner);
    return ERR_OK;
}

/* The digests at the end, in the order of job_told.final. */
enum { SUM_STATE = DIGESTS, SUMS, FRAGMENT_PARTS_MAX = OUTER_STATE_SHARED_MAX + DIGESTS };
struct final_parts { /* of one fragment, at the rank that holds it */
    unsigned count;
    struct final_part {
        const uint8_t *data; /* of that rank */
        uint64_t size_bytes;
        unsigned sums; /* bit i: it is part of sum i */
    } part[FRAGMENT_PARTS_MAX];
    struct digest sum; /* what `data` of the state may be */
};

static void final_part_add(struct final_parts *p, enum part part, const float *x, size_t elements)
{
    unsigned i = 0;
    if (!x)
        return;
    while (i < p->count && p->part[i].data != (const uint8_t *)x)
        i++;
    if (i == p->count)
        p->part[p->count++] =
            (struct final_part){.data = (const uint8_t *)x, .size_bytes = elements * sizeof *x};
    p->part[i].sums |= 1u << part;
}

/* Arrays that the state's digest reads, too, come once. */
static void final_parts(struct job *j, unsigned f, struct final_parts *p)
{
    struct file_part shared[OUTER_STATE_SHARED_MAX];
    const struct outer_state_fragment *s = &j->o->parts.replica.state[f];
    size_t elements = j->run->sync.fragments.f[f].elements;
    p->count = (unsigned)outer_state_digested(&j->o->parts.replica, f, &p->sum, shared);
    for (unsigned i = 0; i < p->count; i++)
        p->part[i] = (struct final_part){shared[i].data, shared[i].size_bytes, 1u << SUM_STATE};
    final_part_add(p, PART_THETA, s->theta, elements);
    final_part_add(p, PART_MOMENTUM, s->slab[0], elements);
    final_part_add(p, PART_RESIDUAL, s->residual, elements);
}

static void sums_add(struct job *j, struct digest_stream sums[SUMS], const struct final_part *part,
                     const uint8_t *data, size_t n)
{
    for (unsigned i = 0; job_lead(j) && i < SUMS; i++)
        if (part->sums >> i & 1)
            digest_add(&sums[i], data, n);
}

/* A part that rank `from` has into the lead's sums, piece by piece. */
static enum err part_share(struct job *j, struct digest_stream sums[SUMS],
                           const struct final_part *part, int from)
{
    static uint8_t piece[1 << 18];
    for (size_t at = 0; at < part->size_bytes; at += sizeof piece) {
        size_t n = part->size_bytes - at < sizeof piece ? part->size_bytes - at : sizeof piece;
        if (j->coll->rank == from)
            memcpy(piece, part->data + at, n);
        TRY(j->coll->ops->broadcast_host(j->coll, piece, n, from));
        sums_add(j, sums, part, piece, n);
    }
    return ERR_OK;
}

static enum err fragment_sums(struct job *j, struct digest_stream sums[SUMS], unsigned f)
{
    const struct shards shards = job_shards(j, j->run);
    int from = (int)shards_holder(&shards, f);
    struct final_parts p = {0};
    if (shards_hold(&shards, f))
        final_parts(j, f, &p);
    if (from != 0)
        TRY(j->coll->ops->broadcast_host(j->coll, &p, sizeof p, from));
    for (unsigned i = 0; i < p.count; i++)
        if (from == 0)
            sums_add(j, sums, &p.part[i], p.part[i].data, p.part[i].size_bytes);
        else
            TRY(part_share(j, sums, &p.part[i], from));
    return ERR_OK;
}

/* SHA-256 over all fragments in order, wherever they are held; the state's is outer_state_digest.
 * "-": there is none. */
static enum err final_sums(struct job *j, char hex[SUMS][65])
{
    struct digest_stream sums[SUMS];
    for (unsigned i = 0; i < SUMS; i++)
        digest_open(&sums[i]);
    for (unsigned f = 0; f < j->run->sync.fragments.count; f++)
        TRY(fragment_sums(j, sums, f));
    for (unsigned i = 0; i < SUMS; i++) {
        struct digest d = digest_close(&sums[i]);
        digest_hex(&d, hex[i]);
    }
    if (!outer_opt_slabs(&j->run->sync.outer))
        snprintf(hex[PART_MOMENTUM], sizeof hex[PART_MOMENTUM], "-");
    return ERR_OK;
}

static struct counted_last counted; /* the lead's: of all fragments */

/* The last rounds of all fragments, wherever they are held. */
static enum err last_rounds(struct job *j)
{
    static struct counted_last other;
    const struct shards shards = job_shards(j, j->run);
    enum err e = j->o->parts.site ? counted_last(&counted, &j->o->parts.replica, 0, 1) : ERR_OK;
    TRY(exchange_agree(&j->o->exchange, e));
    for (unsigned rank = 1; rank < shards.ranks; rank++) {
        if (j->coll->rank == (int)rank)
            other = counted;
        TRY(j->coll->ops->broadcast_host(j->coll, &other, sizeof other, (int)rank));
        if (job_lead(j))
            counted_join(&counted, &other);
    }
    return ERR_OK;
}

enum err job_digest_outer(struct job *j)
{
    if (!j->outer)
        return ERR_OK;
    TRY(last_rounds(j));
    return final_sums(j, j->told.final);
}

static size_t farewell_totals(struct job *j, char *out, size_t size)
{
    const struct progress_line *l = &j->told.line;
    char up[32], down[32], time[32];
    progress_bytes(up, sizeof up, (double)l->bytes_up);
    progress_bytes(down, sizeof down, (double)l->bytes_down);
    progress_duration(time, sizeof time, clock_mono_s() - j->told.began);
    size_t n =
        (size_t)snprintf(out, size, "\n%s: all %lld steps done", l->site, (long long)j->train.step);
    if (l->rounds)
        n += (size_t)snprintf(out + n, size - n, ", %llu of %llu rounds, payload %s up, %s down%s",
                              (unsigned long long)l->round, (unsigned long long)l->rounds, up, down,
                              l->bytes_up == l->predicted_up && l->bytes_down == l->predicted_down
                                  ? " (as predicted)"
                                  : "");
    return n + (size_t)snprintf(out + n, size - n, "; this process ran %s\n", time);
}

/* For a person, once the rows have stopped: totals, eval loss, digests, what to do next. */
static void farewell_make(struct job *j, char (*hex)[65])
{
    char *out = j->out->farewell;
    size_t size = sizeof j->out->farewell, n = farewell_totals(j, out, size);
    if (isfinite(j->told.eval_loss))
        n += (size_t)snprintf(out + n, size - n,
                              "  eval loss            %.4f (perplexity %.2f) at step %lld%s\n",
                              j->told.eval_loss, exp(j->told.eval_loss),
                              (long long)j->told.eval_step, j->outer ? ", outer parameters" : "");
    for (int i = 0; i < DIGESTS; i++)
        if (hex[i][0] != '-')
            n += (size_t)snprintf(out + n, size - n, "  %-10s SHA-256   %s\n", digest_name[i],
                                  hex[i]);
    const char *config = j->out->config_path ? j->out->config_path : "";
    snprintf(out + n, size - n,
             "  next                 atoll eval%s%s --run.dir %s; atoll report %s --out "
             "report.html\n",
             *config ? " --config " : "", config, j->s->run_dir, j->s->run_dir);
}

enum err job_tell_final(struct job *j)
{
    char(*hex)[65] = j->told.final;
    const char *outer = j->outer ? hex[DIGESTS] : "-";
    TRY(dev_sync(j->dev));
    if (!j->outer) { /* the inner parameters */
        snprintf(hex[PART_THETA], sizeof *hex, "%s", j->told.inner);
        snprintf(hex[PART_MOMENTUM], sizeof *hex, "-");
        snprintf(hex[PART_RESIDUAL], sizeof *hex, "-");
    }
    job_line(j);
    job_tell_done(j);
    farewell_make(j, hex);
    log_event(LOG_INFO, "final", "step=%lld parameters=%s momentum=%s residual=%s outer=%s",
              (long long)j->train.step, hex[0], hex[1], hex[2], outer);
    const char *const own[DIGESTS][2] = {{digest_name[PART_THETA], hex[PART_THETA]},
                                         {digest_name[PART_MOMENTUM], hex[PART_MOMENTUM]},
                                         {digest_name[PART_RESIDUAL], hex[PART_RESIDUAL]}};
    return site_record_final(&j->out->record, j->run,
                             &(struct site_final){.step = j->train.step,
                                                  .last = j->outer ? &counted : NULL,
                                                  .outer = outer,
                                                  .own = own,
                                                  .own_count = j->outer ? DIGESTS : 1});
}

void job_tell_farewell(const struct job *j, bool shown)
{
    if (shown && j->out->farewell[0])
        fputs(j->out->farewell, stderr);
}
