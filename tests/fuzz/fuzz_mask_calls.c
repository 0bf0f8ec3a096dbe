/* SPDX-License-Identifier: Apache-2.0 */
/* What sites say to the aggregator about masks: a run of three sites whose round is sealed, with an
 * aggregator that has just been started again. Then calls, each of them five bytes and a body:
 * step, site, flags, size of the body. The body is what an honest site says, changed by the bytes
 * (xor), so that zeros are the honest call; or the bytes alone.
 *
 * After any message the aggregator continues, and what it answers fits. The round is over only
 * after each site has answered for the seal: committed if all have said what an honest site says,
 * else aborted, since the sum is none of integers in range. */
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/config/identity.h"
#include "outer/identity/signed.h"
#include "outer/masks/masked.h"
#include "outer/masks/seal.h"
#include "tests/sim/signer_sim.h"
#include "tests/fuzz/env_memory.h"
#include "tests/fuzz/fuzz.h"
#include "tests/outer/toy_replica.h"

enum { SITES = 3, COLLUDING = 1, CALLS_MAX = 16, STEPS = WIRE_MASK_LAST + 2 };
enum { ALONE = 1, OTHER_ROUND = 2, POLLS = 4, WORKS = 8, PAIRED = 16, NAMED = 32 }; /* flags */
static const char *const names[SITES] = {"a", "b", "c"};
static const char canonical[] = "outer.every=4\nprivacy.secure=sum\n";

struct body {
    uint8_t bytes[WIRE_MASK_REQUEST_MAX];
    size_t size_bytes;
};
static struct {
    struct dev *cpu;
    struct codec_work *work;
    struct table table;
    struct fragments fragments;
    float *slab;
    struct arena forever;
    struct signer_sim aggregator, identity[SITES];
    struct env_memory base;
    uint64_t term;
    struct cipher_key own[SITES]; /* masks of the contributions */
    struct body honest[SITES][WIRE_MASK_LAST + 1];
    /* Of an input: */
    struct env_memory files;
    struct arena perm;
    struct outer_state replica;
    struct aggregator *a;
    struct link_service s;
} t;

/* ---- the aggregator ---- */

static void aggregator_start(struct env_memory *files)
{
    struct outer_state_options mo = {.fragments = &t.fragments,
                                     .schedule = schedule_streaming(40, 4, 1, 1, CODEC_INT4),
                                     .keep = OUTER_STATES_MIN};
    struct aggregator_options o = {.run = "fuzz",
                                   .sites = {.names = names, .count = SITES, .room = SITES},
                                   .canonical = canonical,
                                   .strict = true,
                                   .bounds = {.share_max = 100},
                                   .masks = {.on = true, .colluding = COLLUDING},
                                   .signer = &t.aggregator.signer};
    mo.schedule.full_precision = CODEC_FIXED;
    mo.schedule.masked_sites = SITES;
    t.perm = arena_make(0);
    t.a = NULL;
    ASSERT(aggregator_claim(&files->env, canonical, NULL) == ERR_OK);
    ASSERT(toy_replica(&t.replica, &files->env, t.cpu, mo, t.slab, &t.perm) == ERR_OK);
    ASSERT(aggregator_open(&t.a, &files->env, &t.replica, &o, &t.perm) == ERR_OK);
    t.s = aggregator_service(t.a);
}

static void aggregator_end(void)
{
    aggregator_close(t.a);
    outer_state_close(&t.replica);
    arena_free(&t.perm);
}

/* ---- what a site says ---- */

static const char *uri_of(unsigned site)
{
    static char uri[64];
    snprintf(uri, sizeof uri, "atoll://fuzz/site/%s", names[site]);
    return uri;
}

static struct wire_head head_of(unsigned site)
{
    struct wire_head h = {.run = "fuzz",
                          .roster_version = 1,
                          .term = t.term,
                          .incarnation = 1,
                          .instance = 1,
                          .config = identity_digest(canonical)};
    strcpy(h.site, names[site]);
    return h;
}

static void say_hello(unsigned site)
{
    static struct wire_hello m;
    static struct wire_hello_answer answer;
    const struct outer_state_fragment *state = &t.replica.state[0];
    struct signer *own = &t.identity[site].signer;
    t.term = 0;
    m = (struct wire_hello){.head = head_of(site),
                            .major = WIRE_MAJOR,
                            .config = canonical,
                            .has_state = true,
                            .fragment_count = 1};
    m.fragments[0] = (struct wire_fragment_state){
        .round = state->round, .state = state->digest, .manifest = state->manifest};
    ASSERT(own->ops->certificate(own, m.identity, &m.identity_bytes) == ERR_OK);
    t.s.hello(t.s.self, uri_of(site), &m, &answer);
    t.term = answer.term;
    ASSERT(t.term);
}

/* Without masks of pairs, which cancel each other in the sum. */
static void contribute(unsigned site)
{
    const struct outer_state_fragment *state = &t.replica.state[0];
    const struct codec *c = codec_get(outer_state_codec(&t.replica, 0));
    struct mask_layout l;
    const struct mask_term term = {.seed = &t.own[site], .minus = false};
    struct wire_answer answer;
    size_t n;
    void *upload;
    bool stop;
    uint8_t *plain = toy_payload(&t.replica, t.work, 0, site, &n);
    ASSERT(masked_layout(&l, c, t.fragments.f[0].elements, SITES) == ERR_OK);
    uint8_t *words = calloc(1, l.size_bytes);
    ASSERT(words);
    memset(&t.own[site], (int)(7 + site), sizeof t.own[site]);
    masked_pack(words, &l, c, plain, 1);
    ASSERT(mask_apply(words, &l, &term, 1, 1) == ERR_OK);
    struct wire_contribution m = {.head = head_of(site),
                                  .round = state->round,
                                  .payload_bytes = l.size_bytes,
                                  .codec = (uint32_t)c->kind,
                                  .parent = state->manifest,
                                  .grid = outer_state_grid(&t.replica, 0),
                                  .payload = digest_of(words, l.size_bytes),
                                  .weight = 1};
    ASSERT(signed_header_sign(&t.identity[site].signer, &m) == ERR_OK);
    t.s.offer(t.s.self, uri_of(site), &m, &answer, &upload);
    ASSERT(answer.outcome == ROUND_RESUME);
    for (size_t at = 0; at < l.size_bytes; at += WIRE_CHUNK_BYTES) {
        size_t piece = l.size_bytes - at < WIRE_CHUNK_BYTES ? l.size_bytes - at : WIRE_CHUNK_BYTES;
        link_service_chunk(&t.s, upload, at, words + at, piece, &answer);
    }
    link_service_finish(&t.s, upload, true, &answer);
    ASSERT(answer.outcome == ROUND_RECEIPT);
    free(words);
    free(plain);
    link_service_work(&t.s, &stop);
}

static void statement_tell(unsigned site)
{
    struct keys *k = NULL;
    struct keys_statement s;
    struct cipher_key own;
    struct set others = {0};
    struct body *to = &t.honest[site][WIRE_MASK_SETUP];
    set_put(&others, (site + 1) % SITES, true);
    memset(&own, (int)(16 + site), sizeof own);
    ASSERT(keys_open(&k, &(struct keys_options){"fuzz", site, SITES, 1, {{0}}}) == ERR_OK);
    ASSERT(keys_setup(k, 1, &others, &own, &(uint64_t){0}) == ERR_OK);
    ASSERT(keys_statement_own(k, &t.identity[site].signer, &s) == ERR_OK);
    keys_statement_write(&s, to->bytes);
    to->size_bytes = KEYS_STATEMENT_BYTES;
    keys_close(k);
}

static void mask_call(const struct wire_mask *m, unsigned site, struct wire_mask_answer *answer)
{
    memset(&answer->answer, 0, sizeof answer->answer);
    t.s.mask(t.s.self, uri_of(site), m, answer);
    ASSERT(answer->body_bytes <= sizeof answer->body);
}

static void seal_tell(void)
{
    static struct wire_mask_answer answer;
    struct wire_mask ask = {.head = head_of(0), .step = WIRE_MASK_SIGN};
    mask_call(&ask, 0, &answer);
    ASSERT(answer.answer.outcome == ROUND_NONE && answer.body_bytes > SIGNER_BYTES);
    struct digest d = digest_of(answer.body, answer.body_bytes - SIGNER_BYTES);
    for (unsigned i = 0; i < SITES; i++) {
        struct seal_signature x;
        struct seal_seed none;
        struct seal_reveal v = {.site = i, .seal = d, .b = t.own[i], .seeds = &none};
        struct body *sign = &t.honest[i][WIRE_MASK_SIGN], *reveal = &t.honest[i][WIRE_MASK_REVEAL];
        ASSERT(seal_signature_make(&x, &t.identity[i].signer, i, &d) == ERR_OK);
        seal_signature_write(&x, sign->bytes);
        sign->size_bytes = SEAL_SIGNATURE_BYTES;
        seal_reveal_write(&v, reveal->bytes);
        reveal->size_bytes = seal_reveal_bytes(0);
        statement_tell(i);
    }
}

static void base_make(void)
{
    toy_quiet();
    t.forever = arena_make(0);
    toy_whole(&t.table, &t.fragments, &t.slab, &t.cpu, &t.work, &t.forever);
    signer_sim_open(&t.aggregator, "fuzz", "aggregator", "x");
    for (unsigned i = 0; i < SITES; i++)
        signer_sim_open(&t.identity[i], "fuzz", "site", names[i]);
    memory_open(&t.base);
    aggregator_start(&t.base);
    for (unsigned i = 0; i < SITES; i++)
        say_hello(i);
    for (unsigned i = 0; i < SITES; i++)
        contribute(i);
    seal_tell();
    aggregator_end();
}

/* ---- an input ---- */

static struct set heard, answered; /* sites whose first answer is there; is it the honest one? */

static void body_make(struct body *to, const struct body *honest, unsigned flags,
                      const uint8_t *data, size_t n)
{
    to->size_bytes = flags & ALONE ? 0 : honest->size_bytes;
    memcpy(to->bytes, honest->bytes, to->size_bytes);
    if (n > to->size_bytes) {
        memset(to->bytes + to->size_bytes, 0, n - to->size_bytes);
        to->size_bytes = n;
    }
    for (size_t i = 0; i < n; i++)
        to->bytes[i] ^= data[i];
}

static void polled(unsigned site, uint64_t round)
{
    static struct wire_poll_answer answer;
    struct wire_poll m = {.head = head_of(site), .round = round};
    t.s.poll(t.s.self, uri_of(site), &m, &answer);
    ASSERT(answer.wants <= WIRE_MASK_LAST && answer.body_bytes <= sizeof answer.body);
}

static void call(unsigned step, unsigned site, unsigned flags, const uint8_t *data, size_t n)
{
    static struct wire_mask_answer answer;
    static struct body told;
    const struct body *honest = &t.honest[site][step <= WIRE_MASK_LAST ? step : 0];
    struct wire_mask m = {.head = head_of(site),
                          .step = (enum wire_mask_step)step,
                          .first = flags & PAIRED && n ? data[0] : 0};
    body_make(&told, honest, flags, data, n);
    m.round = step == WIRE_MASK_SETUP ? (flags & PAIRED) != 0 : (flags & OTHER_ROUND) != 0;
    m.body = told.bytes;
    m.body_bytes = told.size_bytes;
    bool same = told.size_bytes == honest->size_bytes &&
                memcmp(told.bytes, honest->bytes, told.size_bytes) == 0;
    mask_call(&m, flags & NAMED ? (site + 1) % SITES : site, &answer);
    bool taken = answer.answer.outcome == ROUND_NONE && m.round == 0 && m.body_bytes;
    if (step == WIRE_MASK_SIGN && taken)
        ASSERT(same);
    if (step == WIRE_MASK_REVEAL && taken && !set_has(&heard, site)) {
        set_put(&heard, site, true);
        set_put(&answered, site, same);
    }
    if (flags & POLLS)
        polled(site, m.round);
}

static void works(void)
{
    static struct manifest m;
    bool stop;
    (void)!link_service_work(&t.s, &stop);
    ASSERT(aggregator_failed(t.a) == ERR_OK);
    if (!t.replica.state[0].round)
        return;
    ASSERT(outer_state_manifest(&t.replica, 0, 0, &m) == ERR_OK);
    ASSERT(set_count(&heard) == SITES);
    ASSERT(manifest_aborted(&m) == (set_count(&answered) < SITES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static bool made;
    struct bytes_reader r = bytes_reader(data, size_bytes);
    if (!made)
        base_make();
    made = true;
    memory_copy(&t.files, &t.base);
    aggregator_start(&t.files);
    heard = answered = (struct set){0};
    for (unsigned i = 0; i < SITES; i++)
        say_hello(i);
    for (unsigned i = 0; i < CALLS_MAX && bytes_left(&r) >= 5 && aggregator_failed(t.a) == ERR_OK;
         i++) {
        unsigned step = bytes_get_u8(&r) % STEPS, site = bytes_get_u8(&r) % SITES,
                 flags = bytes_get_u8(&r);
        size_t n = bytes_get_u16(&r);
        n = n < bytes_left(&r) ? n : bytes_left(&r);
        n = n < WIRE_MASK_REQUEST_MAX ? n : WIRE_MASK_REQUEST_MAX;
        call(step, site, flags, bytes_view(&r, n), n);
        if (flags & WORKS)
            works();
    }
    works();
    aggregator_end();
    memory_close(&t.files);
    return 0;
}
