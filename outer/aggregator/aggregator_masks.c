/* SPDX-License-Identifier: Apache-2.0 */
/* Secure aggregation at the aggregator (docs/privacy-methods.md, "Secure aggregation"): it passes
 * on the sites' public keys (aggregator_masks_setup.c), fixes and signs the seal of a round, passes
 * on the signatures, and takes the revealed masks off the sum of the masked contributions. It
 * learns that sum and no site's part of it.
 *
 * A seal is a file of its round's spool, and then a SEAL record of the journal with its digest;
 * only then a site sees it. After a restart the same seal holds, and the core is told its set
 * (round_pin). What sites sign and reveal is kept in memory alone: they answer again. All of it
 * under the lock of the service, but for aggregator_masks_sum. */
#include "outer/aggregator/aggregator_masks_own.h"
#include "outer/aggregator/aggregator_signs.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/masks/masked.h"
#include "outer/protocol/mutant.h"

enum err aggregator_masks_open(void **kept, struct arena *perm)
{
    TRY_ALLOC(*kept = arena_alloc(perm, sizeof(struct aggregator_masks)));
    return ERR_OK;
}

enum err aggregator_masks_read(struct aggregator *a, struct arena *perm)
{
    struct aggregator_masks *m = masks_of(a);
    unsigned room = a->core.room, fragments = a->core.fragments;
    ASSERT(a->o->signer);
    TRY_ALLOC(m->site = arena_array(perm, room, sizeof *m->site));
    TRY_ALLOC(m->identity = arena_array(perm, room, sizeof *m->identity));
    TRY_ALLOC(m->seal = arena_array(perm, fragments, sizeof *m->seal));
    TRY_ALLOC(m->lost = arena_array(perm, fragments, sizeof *m->lost));
    TRY_ALLOC(m->setup.paired = arena_array(perm, room, sizeof *m->setup.paired));
    TRY_ALLOC(m->setup.stated = arena_array(perm, room, sizeof *m->setup.stated));
    TRY_ALLOC(m->setup.key = arena_array(perm, room, sizeof *m->setup.key));
    return aggregator_masks_setup_read(a);
}

void aggregator_masks_close(struct aggregator *a)
{
    for (unsigned i = 0; i < a->core.fragments; i++)
        seal_aggregator_close(&masks_of(a)->seal[i]);
}

/* ---- what the aggregator knows of a round ---- */

struct seal_context aggregator_masks_context(const struct aggregator *a, unsigned fragment)
{
    struct seal_context c = {.run = a->o->run,
                             .config = a->start.config,
                             .roster_version = aggregator_roster(a, fragment)->version,
                             .sites = aggregator_roster(a, fragment)->count,
                             .members = a->core.f[fragment].members,
                             .colluding = a->o->masks.colluding,
                             .two_sites = a->o->masks.two_sites,
                             .identity = masks_of(a)->identity};
    for (unsigned i = 0; i < c.sites; i++)
        a->signs->key(a, i, &masks_of(a)->identity[i]);
    a->o->signer->ops->key(a->o->signer, &c.aggregator);
    return c;
}

/* Of the round in flight. */
static enum err round_layout(const struct aggregator *a, unsigned fragment, struct mask_layout *l)
{
    const struct codec *c = codec_get(outer_state_codec(a->replica, fragment));
    struct set u = aggregator_masks_announced(a, fragment);
    return masked_layout(l, c, a->replica->fragments->f[fragment].elements, set_count(&u));
}

uint64_t aggregator_masks_payload_bytes(const struct aggregator *a, unsigned fragment)
{
    struct mask_layout l;
    return round_layout(a, fragment, &l) == ERR_OK ? l.size_bytes : 0;
}

const char *aggregator_masks_header(const struct aggregator *a, const struct wire_contribution *m)
{
    if (m->round != a->replica->state[m->fragment].round)
        return NULL; /* answered by its round */
    int site = aggregator_site(a, m->head.site);
    struct set u = aggregator_masks_announced(a, m->fragment);
    if (site >= 0 && !set_has(&u, (unsigned)site) &&
        set_has(&a->core.f[m->fragment].members, (unsigned)site))
        return "this round is announced without the site, with which not all sites have pair keys";
    if (m->weight != 1)
        return "with privacy.secure every contribution has weight 1: it would tell how much data a "
               "site has";
    if (m->residual_ratio)
        return "with privacy.secure a header says nothing of the residual";
    if (m->payload_bytes != aggregator_masks_payload_bytes(a, m->fragment))
        return "not the size of a masked contribution to this round";
    return NULL;
}

/* ---- the seal ---- */

static void seal_path(const struct aggregator *a, unsigned fragment, char out[AGGREGATOR_PATH_MAX])
{
    snprintf(out, AGGREGATOR_PATH_MAX, "spool/%u/%" PRIu64 "/seal", fragment,
             a->core.f[fragment].round);
}

static const struct record_form seal_form = {.kind = "seal"};

static enum err seal_error(const char *what, enum seal_answer answer)
{
    return answer == SEAL_no_memory
               ? err_set(ERR_MEMORY, "no memory for %s", what)
               : err_set(ERR_INTERNAL, "%s: %s", what, seal_answer_text(answer));
}

/* Of the contributions of the sealed set. */
static enum err seal_make(struct aggregator *a, unsigned fragment)
{
    const struct round_fragment *f = &a->core.f[fragment];
    struct seal_aggregator *s = &masks_of(a)->seal[fragment];
    struct seal_context c = aggregator_masks_context(a, fragment);
    struct seal_announce of = {.fragment = fragment, .round = f->round};
    of.u = aggregator_masks_announced(a, fragment);
    seal_aggregator_close(s);
    enum seal_answer answer = seal_aggregator_announce(s, &c, &of);
    for (unsigned i = 0; answer == SEAL_ok && i < a->members.count; i++)
        if (set_has(&a->fragment[fragment].seal_set, i))
            answer = seal_aggregator_accept(s, i, &f->entries[i].payload);
    if (answer == SEAL_ok)
        answer = seal_aggregator_seal(s, &c, a->o->signer, a->start.term);
    if (answer == SEAL_ok)
        return ERR_OK;
    seal_aggregator_close(s);
    return seal_error("the seal of a round", answer);
}

static struct journal_record seal_record(const struct aggregator *a, unsigned fragment)
{
    return (struct journal_record){.kind = JOURNAL_SEAL,
                                   .fragment = fragment,
                                   .round = a->core.f[fragment].round,
                                   .digest = masks_of(a)->seal[fragment].digest};
}

/* Durable before a site sees it. */
static enum err seal_store(struct aggregator *a, unsigned fragment)
{
    const struct seal_aggregator *s = &masks_of(a)->seal[fragment];
    char path[AGGREGATOR_PATH_MAX];
    struct file_part parts[] = {{s->bytes, s->size_bytes}, {s->signature, SIGNER_BYTES}};
    struct record_section sections[] = {{.parts = &parts[0], .part_count = 1},
                                        {.parts = &parts[1], .part_count = 1}};
    seal_path(a, fragment, path);
    TRY(store_write(a->env, path, &seal_form, sections, 2));
    if (MUTANT(SEAL_UNRECORDED))
        return ERR_OK;
    struct journal_record r = seal_record(a, fragment);
    return journal_append(&a->journal, &r);
}

bool aggregator_masks_sealed(const struct aggregator *a, unsigned fragment)
{
    const struct seal_aggregator *s = &masks_of(a)->seal[fragment];
    return s->stage == SEAL_SEALED && s->of.round == a->core.f[fragment].round;
}

size_t aggregator_masks_records(const struct aggregator *a, unsigned fragment,
                                struct journal_record *keep)
{
    if (!aggregator_masks_sealed(a, fragment))
        return 0;
    *keep = seal_record(a, fragment);
    return 1;
}

enum err aggregator_masks_ready(struct aggregator *a, unsigned fragment, bool *ready)
{
    const struct aggregator_fragment *f = &a->fragment[fragment];
    *ready = true;
    if (f->ordered || !set_count(&f->seal_set))
        return ERR_OK;
    *ready = false;
    if (!aggregator_masks_sealed(a, fragment)) {
        TRY(seal_make(a, fragment));
        enum err e = seal_store(a, fragment);
        if (e != ERR_OK) {
            seal_aggregator_close(&masks_of(a)->seal[fragment]);
            return e;
        }
        if (!MUTANT(SEAL_OPEN))
            round_pin(&a->core, fragment, &f->seal_set);
        log_event(LOG_DETAIL, "seal", "fragment=%u round=%" PRIu64 " sites=%u/%u", fragment,
                  a->core.f[fragment].round, set_count(&f->seal_set), a->core.f[fragment].n);
    }
    *ready = seal_aggregator_revealed(&masks_of(a)->seal[fragment]);
    return ERR_OK;
}

void aggregator_masks_over(struct aggregator *a, unsigned fragment)
{
    seal_aggregator_close(&masks_of(a)->seal[fragment]);
}

static enum err aborts_check(const struct aggregator *a, const struct manifest *m)
{
    unsigned aborts = a->core.f[m->fragment].aborts;
    if (aborts < AGGREGATOR_ABORTS_MAX || !digest_zero(&m->ordered_by))
        return ERR_OK;
    return err_set(ERR_DISAGREE,
                   "%u rounds of fragment %u in a row were aborted: with secure aggregation it "
                   "cannot be known "
                   "which site masks wrongly, or has lost its pair keys. Start the "
                   "aggregator again, and remove and add one site after the other (atoll operator "
                   "roster), which gives it new keys, until a round is committed",
                   aborts, m->fragment);
}

enum err aggregator_masks_committed(struct aggregator *a, const struct manifest *m)
{
    TRY(aggregator_masks_join(a));
    return aborts_check(a, m);
}

/* ---- recovery ---- */

/* ERR_INPUT: there is none. digest: of the journal; NULL: of any. */
static enum err seal_load(struct aggregator *a, unsigned fragment, const struct digest *digest)
{
    struct arena scratch = arena_make(0);
    struct seal_context c = aggregator_masks_context(a, fragment);
    struct seal_aggregator *to = &masks_of(a)->seal[fragment];
    struct record f;
    char path[AGGREGATOR_PATH_MAX];
    enum seal_answer answer = SEAL_malformed;
    seal_path(a, fragment, path);
    enum err e = store_read(a->env, path, &seal_form, SEAL_BYTES_MAX + SIGNER_BYTES, &f, &scratch);
    bool whole = e == ERR_OK && f.section_count == 2 && record_intact(&f, 0) &&
                 record_intact(&f, 1) && f.sections[1].size_bytes == SIGNER_BYTES;
    if (whole)
        answer = seal_aggregator_restore(to, &c, f.sections[0].data, f.sections[0].size_bytes,
                                         f.sections[1].data);
    arena_free(&scratch);
    if (e != ERR_OK && e != ERR_CORRUPT)
        return e;
    bool same = answer == SEAL_ok && (!digest || digest_equal(&to->digest, digest));
    return same ? ERR_OK : err_set(ERR_CORRUPT, "%s: damaged", path);
}

/* Another seal would be refused by each site that has signed the first one: the round is aborted.
 */
static enum err seal_take(struct aggregator *a, unsigned fragment, enum err e)
{
    struct aggregator_masks *m = masks_of(a);
    char quoted[512];
    if (e == ERR_OK && MUTANT(SEAL_ANEW)) {
        seal_aggregator_close(&m->seal[fragment]);
    } else if (e == ERR_OK && !MUTANT(SEAL_OPEN)) {
        round_pin(&a->core, fragment, &m->seal[fragment].seal.s);
    }
    if (e == ERR_OK)
        return ERR_OK;
    if (e != ERR_CORRUPT && e != ERR_INPUT)
        return e;
    log_event(LOG_ERROR, "seal_lost", "fragment=%u round=%" PRIu64 " action=abort why=%s", fragment,
              a->core.f[fragment].round, log_quote(quoted, sizeof quoted, err_message()));
    seal_aggregator_close(&m->seal[fragment]);
    m->lost[fragment] = true;
    return ERR_OK;
}

enum err aggregator_masks_restore(struct aggregator *a, const struct journal_record *r)
{
    return seal_take(a, r->fragment, seal_load(a, r->fragment, &r->digest));
}

/* A seal that has no record was not shown, and may be shown as well as another one. */
enum err aggregator_masks_again(struct aggregator *a)
{
    for (unsigned i = 0; i < a->core.fragments && !MUTANT(SEAL_FORGOTTEN); i++) {
        enum err e = aggregator_serves(a, i) ? seal_load(a, i, NULL) : ERR_INPUT;
        if (e != ERR_INPUT)
            TRY(seal_take(a, i, e));
    }
    err_clear();
    return ERR_OK;
}

enum err aggregator_masks_recovered(struct aggregator *a)
{
    TRY(aggregator_masks_added(a));
    for (unsigned i = 0; i < a->core.fragments; i++) {
        if (!masks_of(a)->lost[i])
            continue;
        struct round_event e = {.kind = ROUND_CLOSE, .fragment = i, .round = a->core.f[i].round};
        struct round_update u;
        aggregator_step(a, &e, &u);
        masks_of(a)->lost[i] = false;
    }
    return ERR_OK;
}

/* ---- the sum ---- */

/* Without the lock: seal and seeds do not change once all have revealed. */
static enum err sum_make(struct aggregator *a, unsigned fragment,
                         const struct codec_payload *payloads, unsigned count, uint8_t *out,
                         size_t *out_bytes, struct arena *scratch)
{
    const struct codec *c = codec_get(outer_state_codec(a->replica, fragment));
    const struct seal_aggregator *s = &masks_of(a)->seal[fragment];
    int threads = a->replica->dev->threads;
    struct mask_layout l;
    ASSERT(seal_aggregator_revealed(s) && count == set_count(&s->seal.s));
    TRY(round_layout(a, fragment, &l));
    uint8_t *words = arena_alloc(scratch, l.size_bytes);
    size_t terms_count = seal_aggregator_term_count(s);
    struct mask_term *terms = arena_array(scratch, terms_count, sizeof *terms);
    TRY_ALLOC(words && terms ? words : NULL);
    for (unsigned i = 0; i < count; i++) {
        ASSERT(payloads[i].size_bytes == l.size_bytes);
        mask_sum(words, payloads[i].data, &l, threads);
    }
    seal_aggregator_terms(s, terms);
    TRY(mask_apply(words, &l, terms, terms_count, threads));
    enum err e = masked_aggregate(out, out_bytes, c, &l, words, count, threads);
    return e == ERR_PROTO ? err_set(ERR_DIVERGED, "the sum of the masked contributions is none of "
                                                  "integers in range: a site masks wrongly, and "
                                                  "it cannot be known which")
                          : e;
}

enum err aggregator_masks_sum(struct aggregator *a, unsigned fragment,
                              const struct codec_payload *payloads, unsigned count,
                              struct aggregate *g)
{
    const struct codec *c = codec_get(outer_state_codec(a->replica, fragment));
    size_t elements = a->replica->fragments->f[fragment].elements;
    TRY_ALLOC(g->made = arena_alloc(&g->arena, c->aggregate_max(c, elements, count)));
    TRY(sum_make(a, fragment, payloads, count, g->made, &g->size_bytes, &g->arena));
    g->data = g->made;
    return ERR_OK;
}
