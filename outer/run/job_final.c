/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a training process: what its record, its log and a person are told. */
#include <math.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/run/job.h"

enum part { PART_THETA, PART_MOMENTUM, PART_RESIDUAL };

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

/* SHA-256 over all fragments in order; the inner parameters where there is no outer loop. "-":
 * there is none. */
static void digest_text(const struct job *j, enum part part, char hex[65])
{
    struct digest_stream s;
    snprintf(hex, 65, "-");
    if (!j->outer && part != PART_THETA)
        return;
    if (part == PART_MOMENTUM && j->outer && !j->o->parts.replica.state[0].slab[0])
        return;
    digest_open(&s);
    for (unsigned f = 0; j->outer && f < j->run->sync.fragments.count; f++) {
        const struct outer_state_fragment *state = &j->o->parts.replica.state[f];
        const float *x = part == PART_THETA      ? state->theta
                         : part == PART_MOMENTUM ? state->slab[0]
                                                 : state->residual;
        if (x) /* a moment's fragment has none */
            digest_add(&s, x, j->run->sync.fragments.f[f].elements * sizeof *x);
    }
    struct digest d = digest_close(&s);
    digest_hex(&d, hex);
    if (!j->outer && part == PART_THETA)
        snprintf(hex, 65, "%s", j->told.inner);
}

enum { DIGESTS = 3 };
static const char *const digest_name[DIGESTS] = {"parameters", "momentum", "residual"};

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
static void farewell_make(struct job *j, char hex[DIGESTS][65])
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
    char hex[DIGESTS][65], outer[65] = "-";
    TRY(dev_sync(j->dev));
    for (int i = 0; i < DIGESTS; i++)
        digest_text(j, (enum part)i, hex[i]);
    if (j->outer) {
        struct digest d = outer_state_digest(&j->o->parts.replica, false);
        digest_hex(&d, outer);
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
                                                  .replica = j->outer ? &j->o->parts.replica : NULL,
                                                  .outer = outer,
                                                  .own = own,
                                                  .own_count = j->outer ? DIGESTS : 1});
}

void job_tell_farewell(const struct job *j, bool shown)
{
    if (shown && j->out->farewell[0])
        fputs(j->out->farewell, stderr);
}
