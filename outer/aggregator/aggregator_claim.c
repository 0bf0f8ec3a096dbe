/* SPDX-License-Identifier: Apache-2.0 */
/* run.cfg: the pinned settings of the run, in their canonical text, followed by the former values
 * of train.steps, which alone may change, and only grow.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/config/identity.h"

static const char RUN_CFG[] = "run.cfg", FORMER[] = "train.steps.former=";

/* Cuts the line of former values off the text. False: malformed. */
static bool former_read(char *text, struct schedule *s)
{
    char *line = strstr(text, FORMER);
    schedule_ends_set(s, NULL);
    if (!line)
        return true;
    const char *at = line + sizeof FORMER - 1;
    for (char *end; *at && *at != '\n'; at = *end == ',' ? end + 1 : end) {
        int64_t value = strtoll(at, &end, 10);
        if (end == at || !schedule_end_add(s, value))
            return false;
    }
    *line = 0;
    return true;
}

enum err aggregator_claim_write(struct env *w, const char *canonical, const struct schedule *s)
{
    char line[sizeof FORMER + 24 * SCHEDULE_ENDS_MAX] = "";
    size_t used = 0;
    for (unsigned i = 0; i < s->ends.count; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%" PRId64, i ? "," : FORMER,
                                 s->ends.steps[i]);
    if (used)
        used += (size_t)snprintf(line + used, sizeof line - used, "\n");
    struct file_part parts[] = {{canonical, strlen(canonical)}, {line, used}};
    return w->ops->write(w, RUN_CFG, parts, 2);
}

/* `finished` names the sites that had the former last round. It is removed first, so that a crash
 * leaves no name of a site that has not finished. */
static enum err claim_grow(struct env *w, const char *canonical, int64_t before, struct schedule *s)
{
    int64_t now = identity_steps(canonical);
    if (now < before)
        return err_set(ERR_MISMATCH,
                       "train.steps: %" PRId64 " here, %" PRId64
                       " in %s; it may grow between two starts and not shrink: set %" PRId64
                       " or more, here and at every site",
                       now, before, w->root, before);
    if (s->ends.count == SCHEDULE_ENDS_MAX)
        return err_set(
            ERR_CONFIG,
            "%s: train.steps has grown %d times, no more are possible; continue as a new "
            "run with run.init_from",
            w->root, SCHEDULE_ENDS_MAX);
    if (!schedule_end_add(s, before))
        return err_set(ERR_CORRUPT, "%s/%s: damaged; restore it", w->root, RUN_CFG);
    TRY(w->ops->remove(w, AGGREGATOR_FINISHED));
    TRY(aggregator_claim_write(w, canonical, s));
    log_event(LOG_INFO, "extended", "steps_before=%" PRId64 " steps=%" PRId64, before, now);
    return ERR_OK;
}

static enum err claim_compare(struct env *w, const char *canonical, char *theirs,
                              struct schedule *s, struct arena *scratch)
{
    char *difference;
    if (!former_read(theirs, s))
        return err_set(ERR_CORRUPT, "%s/%s: damaged; restore it", w->root, RUN_CFG);
    if (strcmp(theirs, canonical) == 0)
        return ERR_OK;
    struct digest here = identity_digest(canonical), there = identity_digest(theirs);
    if (digest_equal(&here, &there))
        return claim_grow(w, canonical, identity_steps(theirs), s);
    TRY(keys_difference(canonical, theirs, scratch, &difference));
    return err_set(ERR_MISMATCH,
                   "the aggregator's directory was begun with other settings (there): %s",
                   difference);
}

enum err aggregator_claim(struct env *w, const char *canonical, struct schedule *s)
{
    struct arena scratch = arena_make(0);
    struct schedule own = {0};
    uint8_t *text;
    size_t n;
    s = s ? s : &own;
    schedule_ends_set(s, NULL);
    if (w->ops->exists(w, "id/site"))
        return err_set(ERR_CONFIG, "serve.dir is a site's run.dir; give the aggregator its own");
    if (!w->ops->exists(w, RUN_CFG)) /* a begun directory: aggregator_claim_again */
        return store_begun(w) ? ERR_OK : aggregator_claim_write(w, canonical, s);
    enum err e = w->ops->read(w, RUN_CFG, WIRE_CONFIG_MAX, &scratch, &text, &n);
    if (e == ERR_OK)
        e = claim_compare(w, canonical, (char *)text, s, &scratch);
    arena_free(&scratch);
    return e;
}

/* Every manifest has the digest of the settings of its run. Former values of train.steps are lost
 * with the file; a site that knows of some refuses to continue. */
enum err aggregator_claim_again(struct aggregator *a)
{
    struct digest here = identity_digest(a->o->canonical);
    struct manifest m;
    if (a->env->ops->exists(a->env, RUN_CFG))
        return ERR_OK;
    for (unsigned f = 0; f < a->core.fragments; f++) {
        if (a->core.f[f].round == 0)
            continue;
        TRY(outer_state_manifest(a->replica, f, a->core.f[f].round - 1, &m));
        if (!digest_equal(&m.config, &here))
            return err_set(
                ERR_MISMATCH,
                "%s/%s is missing, and the rounds there were made with other settings; "
                "restore the file, or start with the configuration that the run began with",
                a->env->root, RUN_CFG);
    }
    log_event(LOG_WARN, "run_cfg_lost",
              "text=\"written again from the configuration, which the rounds were made with\"");
    return aggregator_claim_write(a->env, a->o->canonical, &a->replica->schedule);
}
