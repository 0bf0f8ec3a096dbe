/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/serve_rebuild.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator.h"
#include "outer/config/identity.h"
#include "outer/identity/signed.h"
#include "outer/protocol/majority.h"
#include "outer/protocol/site_name.h"
#include "outer/site/site_identity.h"
#include "outer/store/store.h"

enum {
    TERMS_UNHEARD = 1000 /* starts of which one site alone may have heard, and lost the proof */
};

/* ---- one directory is left out ---- */

/* What is wrong with the memory or the disk of this machine is no word of a site. */
static bool of_this_machine(enum err e)
{
    return e == ERR_MEMORY || e == ERR_FULL || e == ERR_STOPPED;
}

/* ERR_OK: the others continue without directory i. */
static enum err left_out(struct serve_rebuild *b, unsigned i, enum err e)
{
    struct rebuild_site *s = &b->site[i];
    char quoted[1024];
    size_t used = strlen(b->why);
    if (e == ERR_OK || of_this_machine(e))
        return e;
    s->out = e;
    log_event(LOG_WARN, "left_out", "directory=%s error=%s why=%s", s->path, err_name(e),
              log_quote(quoted, sizeof quoted, err_message()));
    snprintf(b->why + used, sizeof b->why - used, "; left out: %s: %s", s->path, err_message());
    err_clear();
    return ERR_OK;
}

/* Without a majority: the error that all of the left out have, where they have one. */
static enum err left_out_error(const struct serve_rebuild *b)
{
    enum err one = ERR_OK;
    for (unsigned i = 0; i < b->count; i++)
        if (b->site[i].out != ERR_OK) {
            if (one != ERR_OK && one != b->site[i].out)
                return ERR_DENIED;
            one = b->site[i].out;
        }
    return one == ERR_OK || one == ERR_CONFIG ? ERR_CONFIG : one == ERR_DISAGREE ? one : ERR_DENIED;
}

/* ---- the directories ---- */

static enum err seen_check(const struct serve_rebuild *b, const struct run *run, unsigned i)
{
    const struct site_seen *seen = &b->site[i].seen;
    int64_t steps = identity_steps(run->identity);
    if (!site_name_good(seen->name))
        return err_set(ERR_PROTO, "its id/site names no site");
    if (b->site[i].sent_by && strcmp(b->site[i].sent_by, seen->name) != 0)
        return err_set(ERR_PROTO, "site %s has sent the file id/site of site %s",
                       b->site[i].sent_by, seen->name);
    for (unsigned k = 0; k < i; k++)
        if (b->site[k].out == ERR_OK && strcmp(b->site[k].seen.name, seen->name) == 0)
            return err_set(ERR_CONFIG, "--rebuild: %s and %s are both of site %s; give one of them",
                           b->site[k].path, b->site[i].path, seen->name);
    if (seen->steps && seen->steps != (uint64_t)steps)
        return err_set(ERR_CONFIG,
                       "--rebuild: train.steps is %" PRId64 " here and %" PRIu64
                       " at site %s: set %" PRIu64 " for the rebuild; it may grow at a later start",
                       steps, seen->steps, seen->name, seen->steps);
    return ERR_OK;
}

/* What is wrong with the option, which a person has just written, ends the command. */
static enum err option_check(struct rebuild_site *s)
{
    if (!file_exists(s->path))
        return err_set(ERR_INPUT, "--rebuild: there is no directory %s", s->path);
    enum err e = env_posix_open(&s->env, s->path);
    if (e == ERR_BUSY)
        e = err_set(ERR_BUSY, "--rebuild: a process works in %s: stop that site, or give a copy",
                    s->path);
    if (e == ERR_OK && !s->sent_by && !s->env->ops->exists(s->env, "id/site"))
        e = err_set(ERR_INPUT, "--rebuild: %s is not the run.dir of a site (it has no id/site)",
                    s->path);
    return e;
}

/* The highest term that an aggregator of this run has signed. */
static uint64_t term_signed(struct env *site, const struct run *run, struct signer *signer)
{
    struct site_seen_key seen[SITE_KEYS_MAX];
    uint64_t term = 0;
    unsigned n = site_seen_keys(site, (unsigned)run->o.serve_index, run->s.run_name, signer, seen);
    for (unsigned k = 0; k < n; k++)
        term = seen[k].last > term ? seen[k].last : term;
    return term;
}

static enum err see(struct serve_rebuild *b, const struct run *run, unsigned i)
{
    TRY(option_check(&b->site[i]));
    enum err e = site_seen(b->site[i].env, (unsigned)run->o.serve_index, &b->site[i].seen);
    if (e == ERR_OK)
        e = seen_check(b, run, i);
    return left_out(b, i, e);
}

static enum err directories_read(struct serve_rebuild *b, struct run *run, const char *directories)
{
    char *rest, *text = arena_printf(&run->perm, "%s", directories);
    TRY_ALLOC(text);
    for (char *at = strtok_r(text, ",", &rest); at; at = strtok_r(NULL, ",", &rest)) {
        if (b->count == ROUND_SITES_MAX)
            return err_set(ERR_CONFIG, "--rebuild: more than %d directories", ROUND_SITES_MAX);
        for (unsigned k = 0; k < b->count; k++)
            if (strcmp(b->site[k].path, at) == 0)
                return err_set(ERR_CONFIG, "--rebuild: %s is given twice", at);
        b->site[b->count++].path = at;
    }
    return ERR_OK;
}

enum err serve_rebuild_empty(struct env *env)
{
    return store_begun(env)
               ? err_set(ERR_CONFIG,
                         "--rebuild: %s has begun; a rebuild needs an empty serve.dir. To continue "
                         "with this one leave --rebuild out",
                         env->root)
               : ERR_OK;
}

static bool ends_equal(const struct site_seen *a, const struct site_seen *b)
{
    return a->ends.count == b->ends.count &&
           memcmp(a->ends.steps, b->ends.steps, a->ends.count * sizeof *a->ends.steps) == 0;
}

static unsigned ends_votes(const struct serve_rebuild *b, unsigned i)
{
    unsigned votes = 0;
    for (unsigned k = 0; k < b->count; k++)
        votes += b->site[k].out == ERR_OK && b->site[k].seen.steps &&
                 ends_equal(&b->site[k].seen, &b->site[i].seen);
    return votes;
}

/* The former values of train.steps that most of the sites have heard of; no aggregator has signed
 * them. Sites that have heard of other ones are left out: they would be refused. */
static enum err ends_choose(struct serve_rebuild *b, struct schedule *s)
{
    const struct site_seen *chosen = NULL;
    unsigned most = 0;
    for (unsigned i = 0; i < b->count; i++) {
        const struct site_seen *seen = &b->site[i].seen;
        unsigned votes = b->site[i].out == ERR_OK && seen->steps ? ends_votes(b, i) : 0;
        if (votes > most ||
            (votes && votes == most && chosen && seen->ends.count > chosen->ends.count)) {
            chosen = seen;
            most = votes;
        }
    }
    schedule_ends_set(s, chosen ? &chosen->ends : NULL);
    for (unsigned i = 0; i < b->count; i++)
        if (b->site[i].out == ERR_OK && b->site[i].seen.steps &&
            !ends_equal(&b->site[i].seen, chosen))
            TRY(left_out(b, i,
                         err_set(ERR_PROTO,
                                 "site %s knows other former values of train.steps than "
                                 "most of the sites",
                                 b->site[i].seen.name)));
    return ERR_OK;
}

/* The settings, with the former values of train.steps that the sites have heard of. */
static enum err settings_write(struct serve_rebuild *b, struct env *env, struct run *run)
{
    for (unsigned i = 0; i < b->count; i++)
        TRY(see(b, run, i));
    TRY(ends_choose(b, &run->sync.schedule));
    return aggregator_claim_write(env, run->identity, &run->sync.schedule);
}

enum err serve_rebuild_claim(struct serve_rebuild *b, struct env *env, struct run *run,
                             const char *directories)
{
    *b = (struct serve_rebuild){.count = 0};
    TRY(serve_rebuild_empty(env));
    TRY(directories_read(b, run, directories));
    return settings_write(b, env, run);
}

enum err serve_rebuild_supplied(struct serve_rebuild *b, struct env *env, struct run *run,
                                const struct supply *supply)
{
    const char *name;
    *b = (struct serve_rebuild){.count = 0};
    while ((name = supply_site(supply, b->count))) {
        char *path = arena_printf(&run->perm, "%s/%s/%s/run", env->root, SUPPLY_DIRECTORY, name);
        TRY_ALLOC(path);
        b->site[b->count].sent_by = name;
        b->site[b->count++].path = path;
    }
    return settings_write(b, env, run);
}

/* ---- the roster ---- */

/* The newest manifest that a directory holds, where it is of a later roster than `newest`. */
static enum err roster_look(struct outer_state *from, const struct run *run,
                            struct manifest *newest)
{
    unsigned count = (unsigned)run->o.outer_aggregators, index = (unsigned)run->o.serve_index;
    struct manifest m;
    for (unsigned p = 0; p < from->fragments->count; p++) {
        if (count > 1 && p % count != index)
            continue;
        enum err e = outer_state_manifest_newest(from, p, &m);
        if (e == ERR_INPUT)
            continue;
        TRY(e);
        if (m.roster_version > newest->roster_version)
            *newest = m;
    }
    return ERR_OK;
}

static bool roster_member(const struct manifest *m, const struct run *run, const char *name)
{
    for (uint32_t i = 0; i < m->site_count; i++)
        if (strcmp(
                manifest_name(m, (const char *const *)run->o.outer_sites.items, m->sites[i].site),
                name) == 0)
            return true;
    return false;
}

static bool roster_former(const struct manifest *m, const struct run *run, const char *name)
{
    bool known = identity_site(&run->o, name) >= 0;
    for (uint32_t i = 0; i < m->added; i++)
        known = known || strcmp(m->names[i], name) == 0;
    return known;
}

/* Who of the roster is here; those that were never in it are left out. */
static enum err members_count(struct serve_rebuild *b, const struct run *run,
                              const struct manifest *m, unsigned *given)
{
    *given = 0;
    for (unsigned k = 0; k < b->count; k++) {
        const char *name = b->site[k].seen.name;
        if (b->site[k].out != ERR_OK)
            continue;
        if (roster_member(m, run, name))
            ++*given;
        else if (roster_former(m, run, name))
            log_event(LOG_WARN, "rebuild_removed",
                      "site=%s text=\"it is not in the roster any more\"", name);
        else
            TRY(left_out(b, k,
                         err_set(ERR_CONFIG,
                                 "--rebuild: %s is the directory of site %s, which is not in "
                                 "outer.sites, and no manifest says that it was added",
                                 b->site[k].path, name)));
    }
    return ERR_OK;
}

static void absent_log(const struct serve_rebuild *b, const struct run *run,
                       const struct manifest *m)
{
    for (uint32_t i = 0; i < m->site_count; i++) {
        const char *name =
            manifest_name(m, (const char *const *)run->o.outer_sites.items, m->sites[i].site);
        bool there = false;
        for (unsigned k = 0; k < b->count; k++)
            there = there || (b->site[k].out == ERR_OK && strcmp(b->site[k].seen.name, name) == 0);
        if (!there)
            log_event(LOG_WARN, "rebuild_without",
                      "site=%s text=\"if it is ahead of the others it is answered conflict: then "
                      "start it with an empty run.dir\"",
                      name);
    }
}

/* Two majorities share a site, so the newest state of one is never before a state that more than
 * half of the sites have. m: of the newest roster. */
static enum err majority_check(struct serve_rebuild *b, const struct run *run,
                               const struct manifest *m)
{
    unsigned given;
    TRY(members_count(b, run, m, &given));
    if (!majority_has(given, m->site_count))
        return err_set(left_out_error(b),
                       "--rebuild: %u directories of %u sites; more than half of the sites are "
                       "needed, or a committed round could be lost%s",
                       given, m->site_count, b->why);
    absent_log(b, run, m);
    return ERR_OK;
}

/* A directory that is made of parts has no residual. */
static struct outer_state_options options_of(const struct serve_rebuild *b, const struct run *run,
                                             unsigned i)
{
    return run_outer_state(run, !b->site[i].sent_by);
}

static enum err roster_check(struct serve_rebuild *b, struct outer_state *to, const struct run *run)
{
    struct manifest newest;
    manifest_clear(&newest);
    newest.roster_version = 1;
    newest.site_count = (uint32_t)run->o.outer_sites.count;
    for (uint32_t i = 0; i < newest.site_count; i++)
        newest.sites[i].site = i;
    for (unsigned i = 0; i < b->count; i++) {
        struct arena scratch = arena_make(0);
        struct outer_state from = {0};
        struct outer_state_options o = options_of(b, run, i);
        if (b->site[i].out != ERR_OK || !b->site[i].history)
            continue;
        enum err e = outer_state_open(&from, b->site[i].env, to->dev, &o, &scratch);
        if (e == ERR_OK && outer_state_begun(&from))
            e = roster_look(&from, run, &newest);
        outer_state_close(&from);
        arena_free(&scratch);
        TRY(e);
    }
    return majority_check(b, run, &newest);
}

/* ---- the states ---- */

struct trust { /* which keys have signed the manifests of one directory */
    struct signer *signer;
    struct signer_key keys[SITE_KEYS_MAX + 1];
    unsigned count;
    const char *path;
};

/* The keys that the site has accepted from its aggregators, and this aggregator's own. */
static struct trust trust_of(struct signer *signer, struct env *site, const struct run *run,
                             const char *path)
{
    struct trust t = {.signer = signer, .path = path};
    struct site_seen_key seen[SITE_KEYS_MAX];
    t.count = site_seen_keys(site, (unsigned)run->o.serve_index, run->s.run_name, signer, seen);
    for (unsigned k = 0; k < t.count; k++)
        t.keys[k] = seen[k].key;
    signer->ops->key(signer, &t.keys[t.count++]);
    return t;
}

static enum err signature_check(const struct trust *t, const struct manifest *m)
{
    for (unsigned k = 0; k < t->count; k++)
        if (signed_manifest_holds(t->signer, &t->keys[k], m))
            return ERR_OK;
    return err_set(ERR_DENIED,
                   "--rebuild: %s/frag/%" PRIu32 ": the manifest of round %" PRIu64
                   " is not signed by an aggregator of this run",
                   t->path, m->fragment, m->round);
}

/* Is it the manifest that the next one, or the state, names? The newest one is signed, and so are
 * all that it names. */
static enum err chain_check(const struct trust *t, const struct manifest *m, struct digest *child)
{
    struct digest d = manifest_digest(m);
    if (!digest_equal(&d, child))
        return err_set(ERR_DISAGREE,
                       "--rebuild: %s/frag/%" PRIu32 ": the manifest of round %" PRIu64
                       " is not the parent of the next one",
                       t->path, m->fragment, m->round);
    *child = m->parent;
    return ERR_OK;
}

/* What a directory keeps of a fragment, newest first, along the chain: at most `most` rounds, each
 * with its aggregate. Ends at the first round that the site has not kept: rounds before a gap are
 * of no use. */
static enum err
history_walk(struct outer_state *from, unsigned fragment, uint64_t most, const struct trust *trust,
             enum err (*visit)(void *self, const struct manifest *m, const uint8_t *aggregate),
             void *self)
{
    uint64_t round = from->state[fragment].round;
    struct digest child = from->state[fragment].manifest;
    for (uint64_t t = round; t-- > (round > most ? round - most : 0);) {
        struct manifest m;
        struct file_map map = {0};
        enum err e = outer_state_manifest(from, fragment, t, &m);
        if (e == ERR_OK)
            e = chain_check(trust, &m, &child);
        if (e == ERR_OK && m.aggregate_bytes)
            e = outer_state_aggregate(from, fragment, t, &map);
        if (e == ERR_OK)
            e = visit(self, &m, map.data);
        from->env->ops->unmap(from->env, &map);
        if (e == ERR_INPUT)
            break;
        TRY(e);
    }
    return ERR_OK;
}

static enum err history_put(void *to, const struct manifest *m, const uint8_t *aggregate)
{
    if (aggregate)
        TRY(outer_state_aggregate_again(to, m, aggregate));
    return outer_state_manifest_put(to, m);
}

static enum err state_take(struct outer_state *to, struct outer_state *from, unsigned fragment,
                           const struct trust *trust)
{
    struct arena scratch = arena_make(0);
    size_t size = outer_state_snapshot_bytes(from, fragment);
    uint8_t *bytes = arena_alloc(&scratch, size);
    struct manifest m;
    enum err e = bytes ? outer_state_manifest(from, fragment, from->state[fragment].round - 1, &m)
                       : ERR_MEMORY;
    if (e == ERR_OK)
        e = signature_check(trust, &m);
    if (e == ERR_OK)
        e = outer_state_snapshot_write(from, fragment, bytes);
    if (e == ERR_OK)
        e = outer_state_snapshot_adopt(to, &m, bytes, size, false);
    arena_free(&scratch);
    return e == ERR_OK ? history_walk(from, fragment, to->o.keep, trust, history_put, to) : e;
}

static bool fragment_own(const struct run *run, unsigned p)
{
    unsigned count = (unsigned)run->o.outer_aggregators;
    return count <= 1 || p % count == (unsigned)run->o.serve_index;
}

static enum err site_take(struct outer_state *to, struct outer_state *from, const struct run *run,
                          const struct trust *trust)
{
    TRY(outer_state_load(from));
    for (unsigned p = 0; p < from->fragments->count; p++) {
        uint64_t there = from->state[p].round, here = to->state[p].round;
        if (!fragment_own(run, p) || there <= here)
            continue;
        TRY(state_take(to, from, p, trust));
        log_event(LOG_INFO, "rebuilt", "fragment=%u round=%" PRIu64 " from=%s", p, there,
                  trust->path);
    }
    return ERR_OK;
}

/* ---- each directory by itself ---- */

static enum err history_note(void *self, const struct manifest *m, const uint8_t *aggregate)
{
    struct rebuild_history *h = self;
    (void)aggregate;
    h->kept[m->round % h->room] = manifest_digest(m);
    h->first = m->round;
    return ERR_OK;
}

/* Signature, chain and bytes of what the directory keeps of one fragment. */
static enum err history_read(struct rebuild_history *h, struct outer_state *from, unsigned fragment,
                             const struct trust *trust)
{
    struct manifest m;
    h->round = h->first = from->state[fragment].round;
    h->newest = from->state[fragment].manifest;
    if (h->round == 0)
        return ERR_OK;
    TRY(outer_state_manifest(from, fragment, h->round - 1, &m));
    TRY(signature_check(trust, &m));
    return history_walk(from, fragment, h->room, trust, history_note, h);
}

static enum err histories_make(struct rebuild_site *s, struct run *run, unsigned fragments,
                               uint64_t keep)
{
    TRY_ALLOC(s->history = arena_array(&run->perm, fragments, sizeof *s->history));
    for (unsigned p = 0; p < fragments; p++) {
        s->history[p] = (struct rebuild_history){.room = keep ? keep : 1};
        TRY_ALLOC(s->history[p].kept =
                      arena_array(&run->perm, s->history[p].room, sizeof *s->history[p].kept));
    }
    return ERR_OK;
}

static enum err directory_check(struct serve_rebuild *b, unsigned i, const struct outer_state *to,
                                struct run *run, struct signer *signer)
{
    struct arena scratch = arena_make(0);
    struct outer_state from = {0};
    struct rebuild_site *s = &b->site[i];
    const struct outer_state_options o = options_of(b, run, i);
    const struct trust trust = trust_of(signer, s->env, run, s->path);
    s->term = term_signed(s->env, run, signer);
    enum err e = outer_state_open(&from, s->env, to->dev, &o, &scratch);
    if (e == ERR_OK && outer_state_begun(&from)) {
        e = outer_state_load(&from);
        if (e == ERR_OK)
            e = histories_make(s, run, from.fragments->count, o.keep);
        for (unsigned p = 0; e == ERR_OK && p < from.fragments->count; p++)
            if (fragment_own(run, p))
                e = history_read(&s->history[p], &from, p, &trust);
    }
    outer_state_close(&from);
    arena_free(&scratch);
    return e;
}

/* ---- and with the others ---- */

/* Whether two histories agree where they meet: at the older one's state. */
static bool histories_agree(const struct rebuild_history *a, const struct rebuild_history *b)
{
    const struct rebuild_history *older = a->round < b->round ? a : b, *newer = older == a ? b : a;
    if (older->round == 0)
        return true;
    if (older->round == newer->round)
        return digest_equal(&a->newest, &b->newest);
    uint64_t at = older->round - 1;
    return at < newer->first || digest_equal(&newer->kept[at % newer->room], &older->newest);
}

static bool directories_agree(const struct rebuild_site *a, const struct rebuild_site *b,
                              const struct run *run, unsigned fragments)
{
    for (unsigned p = 0; a->history && b->history && p < fragments; p++)
        if (fragment_own(run, p) && !histories_agree(&a->history[p], &b->history[p]))
            return false;
    return true;
}

static uint64_t rounds_of(const struct rebuild_site *s, unsigned fragments)
{
    uint64_t sum = 0;
    for (unsigned p = 0; s->history && p < fragments; p++)
        sum += s->history[p].round;
    return sum;
}

/* The directory that agrees with most of the others; of several the one with most rounds. */
static unsigned agreed_most(const struct serve_rebuild *b, const struct run *run,
                            unsigned fragments)
{
    unsigned best = b->count, most = 0;
    for (unsigned i = 0; i < b->count; i++) {
        unsigned agree = 0;
        if (b->site[i].out != ERR_OK)
            continue;
        for (unsigned k = 0; k < b->count; k++)
            agree += b->site[k].out == ERR_OK &&
                     directories_agree(&b->site[i], &b->site[k], run, fragments);
        if (agree > most || (agree == most && rounds_of(&b->site[i], fragments) >
                                                  rounds_of(&b->site[best], fragments))) {
            best = i;
            most = agree;
        }
    }
    return best;
}

static enum err histories_check(struct serve_rebuild *b, const struct run *run, unsigned fragments)
{
    unsigned best = agreed_most(b, run, fragments);
    for (unsigned i = 0; i < b->count; i++)
        if (b->site[i].out == ERR_OK &&
            !directories_agree(&b->site[i], &b->site[best], run, fragments))
            TRY(left_out(b, i,
                         err_set(ERR_DISAGREE,
                                 "--rebuild: %s holds other rounds than %s: two aggregators have "
                                 "served this run. Its site then starts with an empty run.dir",
                                 b->site[i].path, b->site[best].path)));
    return ERR_OK;
}

/* A term without a signature is a site's word: it counts a little. */
static uint64_t term_newest(const struct serve_rebuild *b)
{
    uint64_t proved = 0, term;
    for (unsigned i = 0; i < b->count; i++)
        if (b->site[i].out == ERR_OK && b->site[i].term > proved)
            proved = b->site[i].term;
    term = proved;
    for (unsigned i = 0; i < b->count; i++)
        if (b->site[i].out == ERR_OK && b->site[i].seen.term > term &&
            b->site[i].seen.term - proved <= TERMS_UNHEARD)
            term = b->site[i].seen.term;
    return term;
}

static enum err directory_take(struct outer_state *to, const struct run *run, struct env *env,
                               const struct outer_state_options *o, const struct trust *trust)
{
    struct arena scratch = arena_make(0);
    struct outer_state from = {0};
    enum err e = outer_state_open(&from, env, to->dev, o, &scratch);
    if (e == ERR_OK && outer_state_begun(&from))
        e = site_take(to, &from, run, trust);
    outer_state_close(&from);
    arena_free(&scratch);
    return e;
}

/* ---- what the sites have sent ---- */

struct parts {       /* of one site */
    struct env *env; /* the aggregator's */
    const char *site;
    struct outer_state *to; /* a replica in the directory that is made of them */
};

static enum err part_map(const struct parts *p, enum wire_supply kind, unsigned fragment,
                         uint64_t round, struct file_map *map)
{
    char path[SUPPLY_PATH_MAX];
    supply_path(path, p->site, kind, fragment, round);
    return p->env->ops->exists(p->env, path) ? p->env->ops->map(p->env, path, map)
                                             : err_set(ERR_INPUT, "%s: not sent", path);
}

static enum err part_manifest(const struct parts *p, unsigned fragment, uint64_t round,
                              struct manifest *m)
{
    struct file_map map = {0};
    TRY(part_map(p, WIRE_SUPPLY_MANIFEST, fragment, round, &map));
    bool good = manifest_decode(m, map.data, map.size_bytes) && m->fragment == fragment &&
                m->round == round;
    p->env->ops->unmap(p->env, &map);
    return good ? ERR_OK
                : err_set(ERR_PROTO,
                          "site %s has sent something else as the manifest of fragment %u round "
                          "%" PRIu64,
                          p->site, fragment, round);
}

/* The newest state that was sent: a site that has trained on has sent two. 0: none. */
static enum err part_newest(const struct parts *p, unsigned fragment, uint64_t *round)
{
    struct arena scratch = arena_make(0);
    char path[SUPPLY_PATH_MAX], **names = NULL;
    size_t count = 0;
    *round = 0;
    snprintf(path, sizeof path, "%s/%s/parts", SUPPLY_DIRECTORY, p->site);
    enum err e = p->env->ops->exists(p->env, path)
                     ? p->env->ops->list(p->env, path, &scratch, &names, &count)
                     : ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        unsigned f;
        uint64_t at;
        int end = 0;
        if (sscanf(names[i], "%u.%20" SCNu64 ".state%n", &f, &at, &end) == 2 && end &&
            !names[i][end] && f == fragment && at > *round)
            *round = at;
    }
    arena_free(&scratch);
    return e;
}

/* A round before the state. ERR_INPUT: it was not sent, nor were those before it. */
static enum err part_history(const struct parts *p, unsigned fragment, uint64_t round)
{
    struct manifest m;
    struct file_map map = {0};
    TRY(part_manifest(p, fragment, round, &m));
    if (m.aggregate_bytes)
        TRY(part_map(p, WIRE_SUPPLY_AGGREGATE, fragment, round, &map));
    struct digest d = digest_of(map.data, map.size_bytes);
    enum err e = m.aggregate_bytes &&
                         (map.size_bytes != m.aggregate_bytes || !digest_equal(&d, &m.aggregate))
                     ? err_set(ERR_PROTO,
                               "site %s has sent something else as the aggregate of fragment %u "
                               "round %" PRIu64,
                               p->site, fragment, round)
                     : history_put(p->to, &m, map.data);
    p->env->ops->unmap(p->env, &map);
    return e;
}

static enum err part_state(const struct parts *p, unsigned fragment)
{
    uint64_t round;
    struct manifest m;
    struct file_map map = {0};
    TRY(part_newest(p, fragment, &round));
    if (!round)
        return ERR_OK;
    TRY(part_manifest(p, fragment, round - 1, &m));
    TRY(part_map(p, WIRE_SUPPLY_STATE, fragment, round, &map));
    enum err e = outer_state_snapshot_adopt(p->to, &m, map.data, map.size_bytes, false);
    p->env->ops->unmap(p->env, &map);
    for (uint64_t t = round; e == ERR_OK && t-- > 0;)
        e = part_history(p, fragment, t);
    return e == ERR_INPUT ? ERR_OK : e;
}

/* The directory of one site, of what it has sent, as an aggregator's. */
static enum err parts_put(const struct serve_rebuild *b, unsigned i, const struct outer_state *like,
                          struct run *run)
{
    struct arena scratch = arena_make(0);
    struct outer_state to = {0};
    struct outer_state_options o = options_of(b, run, i);
    const struct parts p = {like->env, b->site[i].sent_by, &to};
    float *slab = arena_array(&scratch, run->table.elements, sizeof *slab);
    enum err e = slab ? run_initial(run, slab) : ERR_MEMORY;
    if (e == ERR_OK)
        e = outer_state_open(&to, b->site[i].env, like->dev, &o, &scratch);
    if (e == ERR_OK)
        e = outer_state_begin(&to, slab);
    for (unsigned f = 0; e == ERR_OK && f < to.fragments->count; f++)
        e = part_state(&p, f);
    outer_state_close(&to);
    arena_free(&scratch);
    return e;
}

enum err serve_rebuild_states(struct serve_rebuild *b, struct outer_state *replica, struct run *run,
                              struct signer *signer)
{
    unsigned fragments = replica->fragments->count;
    for (unsigned i = 0; i < b->count; i++) {
        enum err e = ERR_OK;
        if (b->site[i].out == ERR_OK && b->site[i].sent_by)
            e = parts_put(b, i, replica, run);
        if (e == ERR_OK && b->site[i].out == ERR_OK)
            e = directory_check(b, i, replica, run, signer);
        TRY(left_out(b, i, e));
    }
    TRY(histories_check(b, run, fragments));
    TRY(roster_check(b, replica, run));
    for (unsigned i = 0; i < b->count; i++) {
        const struct trust trust = trust_of(signer, b->site[i].env, run, b->site[i].path);
        const struct outer_state_options o = options_of(b, run, i);
        if (b->site[i].out == ERR_OK)
            TRY(directory_take(replica, run, b->site[i].env, &o, &trust));
    }
    if (replica->o.compresses_downlink)
        log_event(LOG_WARN, "residual_lost",
                  "text=\"what compression of the downlink had not yet sent is lost with the "
                  "aggregator's directory\"");
    return aggregator_term_write(replica->env, term_newest(b));
}

void serve_rebuild_close(struct serve_rebuild *b)
{
    for (unsigned i = 0; i < b->count; i++)
        env_posix_close(b->site[i].env);
    *b = (struct serve_rebuild){.count = 0};
}
