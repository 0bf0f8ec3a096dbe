/* SPDX-License-Identifier: Apache-2.0 */
/* A start from a directory with damage. First byte, even: an aggregator's, with two committed
 * rounds and a contribution to the third (journal, term, CURRENT, manifests, states, aggregates,
 * spool); odd: a site's, with a stored contribution (outbox, state, id/site). Then edits of four
 * bytes: file, offset (two bytes), what. Manifest, journal and state are changed together, and an
 * edit may make the head of a record right again, so that what is after its digest is reached.
 *
 * After any damage: an error that says what is wrong, or a start that stands where the
 * undisturbed run stood, bit for bit, or earlier only where the state's own files say so. */
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator.h"
#include "outer/organ/roster/roster_organ.h"
#include "outer/site/site_own.h"
#include "outer/store/journal.h"
#include "tests/fuzz/env_memory.h"
#include "tests/fuzz/fuzz.h"
#include "tests/outer/toy_replica.h"

enum { SITES = 2, ROUNDS = 2, EDITS_MAX = 64 };
static const char *const names[SITES] = {"a", "b"};
static const char canonical[] = "outer.every=4\n";

static struct {
    struct dev *cpu;
    struct codec_work *work;
    struct table table;
    struct fragments fragments;
    struct schedule schedule;
    float *slab;
    struct arena forever;
    struct env_memory base[2];       /* aggregator, site */
    struct digest state[ROUNDS + 1]; /* [n]: after n rounds */
    struct digest payload[2];        /* contribution to the third round; of the site's outbox */
} t;

struct replica {
    struct outer_state state;
    struct aggregator *aggregator;
    struct site *site;
    struct arena perm;
};

/* ---- opening ---- */

static enum err replica_open(struct replica *r, struct env *w, bool site)
{
    struct outer_state_options o = {.fragments = &t.fragments,
                                    .schedule = t.schedule,
                                    .residuals = site,
                                    .keep = OUTER_STATES_MIN};
    *r = (struct replica){.perm = arena_make(0)};
    return toy_replica(&r->state, w, t.cpu, o, t.slab, &r->perm);
}

static enum err start_aggregator(struct replica *r, struct env *w)
{
    struct aggregator_options o = {.run = "fuzz",
                                   .sites = {.names = names, .count = SITES},
                                   .canonical = canonical,
                                   .strict = true,
                                   .bounds = {.norm_limit = 1000, .share_max = 100}};
    TRY(aggregator_claim(w, canonical, NULL));
    TRY(replica_open(r, w, false));
    TRY(roster_at_aggregator(&o.organs.at[o.organs.count++], &r->perm));
    return aggregator_open(&r->aggregator, w, &r->state, &o, &r->perm);
}

static enum err start_site(struct replica *r, struct env *w)
{
    static struct link none;
    struct site_options o = {.run = "fuzz",
                             .name = names[0],
                             .site_count = SITES,
                             .canonical = canonical,
                             .strict = true,
                             .error_feedback_decay = 1,
                             .straggler_ms = 1000,
                             .seed = 1};
    TRY(replica_open(r, w, true));
    TRY(site_open(&r->site, w, &none, &r->state, &o, &r->perm));
    return site_outbox_load(r->site->own.main, 0, r->state.state[0].round);
}

static void replica_close(struct replica *r)
{
    if (r->aggregator)
        aggregator_close(r->aggregator);
    site_close(r->site);
    outer_state_close(&r->state);
    arena_free(&r->perm);
}

/* ---- the undisturbed run ---- */

static struct wire_head head_of(unsigned site, uint64_t term)
{
    struct wire_head h = {.run = "fuzz",
                          .roster_version = 1,
                          .term = term,
                          .incarnation = 1,
                          .instance = 1,
                          .config = digest_of(canonical, strlen(canonical))};
    strcpy(h.site, names[site]);
    return h;
}

static uint64_t say_hello(struct replica *r, unsigned site, struct wire_hello_answer *answer)
{
    struct link_service s = aggregator_service(r->aggregator);
    const struct outer_state_fragment *state = &r->state.state[0];
    static struct wire_hello m;
    char uri[64];
    m = (struct wire_hello){.head = head_of(site, 0),
                            .major = WIRE_MAJOR,
                            .config = canonical,
                            .has_state = true,
                            .fragment_count = 1};
    m.fragments[0] = (struct wire_fragment_state){
        .round = state->round, .state = state->digest, .manifest = state->manifest};
    snprintf(uri, sizeof uri, "atoll://fuzz/site/%s", names[site]);
    s.hello(s.self, uri, &m, answer);
    return answer->term;
}

static void contribute(struct replica *r, unsigned site)
{
    static struct wire_hello_answer hello;
    struct link_service s = aggregator_service(r->aggregator);
    const struct outer_state_fragment *state = &r->state.state[0];
    size_t n;
    uint8_t *payload = toy_payload(&r->state, t.work, 0, site, &n);
    struct wire_answer answer;
    void *upload;
    char uri[64];
    bool stop;
    snprintf(uri, sizeof uri, "atoll://fuzz/site/%s", names[site]);
    struct wire_contribution m = {.head = head_of(site, say_hello(r, site, &hello)),
                                  .round = state->round,
                                  .payload_bytes = n,
                                  .codec = (uint32_t)outer_state_codec(&r->state, 0),
                                  .parent = state->manifest,
                                  .grid = outer_state_grid(&r->state, 0),
                                  .payload = digest_of(payload, n),
                                  .weight = 1};
    s.offer(s.self, uri, &m, &answer, &upload);
    ASSERT(answer.outcome == ROUND_RESUME);
    link_service_chunk(&s, upload, 0, payload, n, &answer);
    link_service_finish(&s, upload, true, &answer);
    ASSERT(answer.outcome == ROUND_RECEIPT);
    t.payload[0] = m.payload;
    free(payload);
    link_service_work(&s, &stop);
}

static void aggregator_base(void)
{
    struct replica r;
    memory_open(&t.base[0]);
    ASSERT(start_aggregator(&r, &t.base[0].env) == ERR_OK);
    t.state[0] = r.state.state[0].digest;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < SITES; i++)
            contribute(&r, i);
        ASSERT(r.state.state[0].round == round + 1);
        t.state[round + 1] = r.state.state[0].digest;
    }
    contribute(&r, 0); /* on its way into the third */
    replica_close(&r);
}

static void site_base(void)
{
    struct replica r;
    memory_open(&t.base[1]);
    ASSERT(start_site(&r, &t.base[1].env) == ERR_OK);
    float *local = arena_array(&r.perm, t.fragments.f[0].elements, sizeof *local);
    ASSERT(local);
    for (size_t k = 0; k < t.fragments.f[0].elements; k++)
        local[k] = r.state.state[0].theta[k] + (float)(k % 31) / 1024;
    struct site_submission w = {.weight = 1, .data_cursor = 512};
    ASSERT(site_outbox_make(r.site->own.main, &w, NULL, local) == ERR_OK);
    t.payload[1] = r.site->own.main->box.made.payload;
    ASSERT(store_begin(&t.base[1].env) == ERR_OK);
    replica_close(&r);
}

static void base_make(void)
{
    toy_quiet();
    t.forever = arena_make(0);
    toy_whole(&t.table, &t.fragments, &t.slab, &t.cpu, &t.work, &t.forever);
    t.schedule = schedule_streaming(40, 4, 1, 1, CODEC_INT4);
    aggregator_base();
    site_base();
}

/* ---- damage ---- */

struct damage {
    bool forged; /* a digest was made right after a change: the bytes may say anything */
    bool begun;  /* the file that says that the directory has begun is gone */
};

static void head_right(struct memory_file *f)
{
    uint64_t head;
    if (f->size_bytes < 64)
        return;
    memcpy(&head, f->data + 16, sizeof head);
    if (head < 64 || head > f->size_bytes)
        return;
    struct digest d = digest_of(f->data, head - sizeof d);
    memcpy(f->data + head - sizeof d, d.bytes, sizeof d);
}

static struct memory_file *file_number(struct env_memory *m, unsigned number)
{
    unsigned count = 0;
    for (unsigned i = 0; i < MEMORY_FILES_MAX; i++)
        count += *m->files[i].path != 0;
    number = count ? number % count : 0;
    for (unsigned i = 0; i < MEMORY_FILES_MAX; i++)
        if (*m->files[i].path && number-- == 0)
            return &m->files[i];
    return NULL;
}

/* what: below 0x80: these bits of the byte flip; then the file is cut there, goes, gets its own
 * beginning after its end; from 0xe0 on a bit flips and the head is right again. */
static void edit(struct env_memory *m, const uint8_t *e, struct damage *d)
{
    struct memory_file *f = file_number(m, e[0]);
    size_t at = (size_t)e[1] | (size_t)e[2] << 8;
    if (!f)
        return;
    if (e[3] >= 0xa0 && e[3] < 0xc0) {
        d->begun = d->begun || strcmp(f->path, "begun") == 0;
        memory_drop(f);
        return;
    }
    at = f->size_bytes ? at % f->size_bytes : 0;
    if (!f->size_bytes)
        return;
    if (e[3] < 0x80) {
        f->data[at] ^= e[3] ? e[3] : 1;
    } else if (e[3] < 0xa0) {
        f->size_bytes = at;
    } else if (e[3] < 0xe0) {
        uint8_t *copy = malloc(at + 1);
        ASSERT(copy);
        memcpy(copy, f->data, at);
        ASSERT(memory_append(&m->env, f->path, copy, at) == ERR_OK);
        free(copy);
    } else {
        f->data[at] ^= (uint8_t)(1 << e[3] % 8);
        head_right(f);
        d->forged = true;
    }
}

/* ---- what must hold ---- */

static bool explained(enum err e)
{
    return e == ERR_CORRUPT || e == ERR_MISMATCH || e == ERR_INPUT || e == ERR_CONFIG ||
           e == ERR_MEMORY || e == ERR_DISAGREE;
}

/* What is in memory, not what a file says of itself. */
static void state_is(const struct outer_state *m, const struct digest *wanted)
{
    static uint8_t bytes[1 << 18];
    size_t n = outer_state_snapshot_bytes(m, 0);
    ASSERT(n <= sizeof bytes && outer_state_snapshot_write(m, 0, bytes) == ERR_OK);
    struct digest d = digest_of(bytes, n);
    ASSERT(digest_equal(&d, wanted) && digest_equal(&m->state[0].digest, wanted));
}

/* In the spool, where what is accepted is. */
static bool payload_there(const struct env_memory *m, const struct digest *wanted)
{
    for (unsigned i = 0; i < MEMORY_FILES_MAX; i++) {
        const struct memory_file *f = &m->files[i];
        struct digest d = digest_of(f->data, f->size_bytes);
        if (memory_below(f->path, "spool") && digest_equal(&d, wanted))
            return true;
    }
    return false;
}

static void aggregator_stands(struct replica *r, struct env_memory *m, const struct damage *d)
{
    static struct wire_hello_answer answer;
    const struct outer_state_fragment *s = &r->state.state[0];
    if (d->forged || d->begun)
        return;
    ASSERT(s->round == ROUNDS);
    state_is(&r->state, &t.state[ROUNDS]);
    say_hello(r, 0, &answer);
    ASSERT(answer.outcome == ROUND_CURRENT && answer.fragments[0].round == ROUNDS);
    const struct digest *accepted = &answer.fragments[0].accepted;
    ASSERT(digest_zero(accepted) || digest_equal(accepted, &t.payload[0]));
    ASSERT(digest_zero(accepted) || payload_there(m, accepted));
}

static void site_stands(const struct replica *r, const struct damage *d)
{
    const struct site_box *box = &r->site->own.main->box;
    if (d->forged)
        return;
    ASSERT(r->state.state[0].round == 0);
    state_is(&r->state, &t.state[0]);
    if (!box->valid)
        return;
    struct digest payload = digest_of(r->site->own.main->payload.bytes, box->made.payload_bytes);
    ASSERT(digest_equal(&box->made.payload, &t.payload[1]) &&
           digest_equal(&payload, &t.payload[1]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static struct env_memory m;
    struct replica r = {.perm = arena_make(0)};
    struct damage d = {false, false};
    if (size_bytes < 1)
        return 0;
    if (!t.cpu)
        base_make();
    bool site = data[0] & 1;
    memory_copy(&m, &t.base[site]);
    for (size_t i = 1; i + 4 <= size_bytes && i < 4 * EDITS_MAX; i += 4)
        edit(&m, data + i, &d);
    enum err e = site ? start_site(&r, &m.env) : start_aggregator(&r, &m.env);
    if (e != ERR_OK)
        ASSERT(explained(e) && *err_message());
    else if (site)
        site_stands(&r, &d);
    else
        aggregator_stands(&r, &m, &d);
    replica_close(&r);
    memory_close(&m);
    return 0;
}
