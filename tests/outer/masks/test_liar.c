/* SPDX-License-Identifier: Apache-2.0 */
/* An aggregator that lies, together with c of the sites: it announces different sets to different
 * sites, repeats, shrinks S, seals twice, replays signatures and makes those of its sites, asks for
 * b of a site and for its pair seeds, aborts and continues, in several attempts and two rounds at a
 * time, while honest sites restart. All that it gets is kept: every y, b and s_ij. At the end
 * linear algebra says which combinations of the honest sites' integers follow: at most one for each
 * round, the sum over two honest sites or more.
 *
 * A mask is an unknown that is in each word of its y; knowing its seed removes it. The rows are y =
 * q + b +- s..., eliminated modulo a prime; what is left without unknown masks is learned. A value
 * known times 2 counts as known.
 *
 *     build/tests/test_liar --seeds 100000 [--from SEED]     the campaign; without: 2,000 seeds
 */
#include <inttypes.h>
#include "tests/outer/masks/cast.h"

enum { N_MAX = 6, ROUNDS = 2, ATTEMPTS = 3, SEALS_MAX = 12, STEPS = 60, SETS = 2 };
enum {
    B_VARIABLES = N_MAX * ROUNDS * ATTEMPTS,
    S_VARIABLES = ROUNDS * ATTEMPTS * N_MAX * N_MAX,
    Q_FIRST = B_VARIABLES + S_VARIABLES,
    VARIABLES = Q_FIRST + ROUNDS * N_MAX
};
static const int64_t PRIME = 2147483647;

struct liar_seal {
    struct seal seal;
    uint8_t bytes[1024], signature[SIGNER_BYTES];
    size_t size_bytes;
    struct seal_signature by[N_MAX];
    struct set have; /* signatures */
};
struct liar {
    struct cast *cast;
    uint64_t seed, draws;
    struct set honest;
    struct set u[ROUNDS][ATTEMPTS][SETS]; /* sets that a site is told */
    struct digest payload[ROUNDS][ATTEMPTS][N_MAX];
    struct cipher_key b[ROUNDS][ATTEMPTS][N_MAX];
    struct liar_seal seals[SEALS_MAX];
    unsigned seal_count;
    bool known[VARIABLES];
    int64_t row[B_VARIABLES][VARIABLES];
    unsigned rows;
};

static uint64_t below(struct liar *l, uint64_t n)
{
    return rng_below(l->seed, RNG_TEST, l->draws++, n);
}

static bool chance(struct liar *l, unsigned percent)
{
    return below(l, 100) < percent;
}

static unsigned b_of(unsigned t, unsigned a, unsigned i)
{
    return (t * ATTEMPTS + a) * N_MAX + i;
}

static unsigned s_of(unsigned t, unsigned a, unsigned i, unsigned j)
{
    unsigned low = i < j ? i : j, high = i < j ? j : i;
    return B_VARIABLES + ((t * ATTEMPTS + a) * N_MAX + low) * N_MAX + high;
}

static struct set some_of(struct liar *l, const struct set *of, unsigned percent)
{
    struct set s = {0};
    for (unsigned i = 0; i < l->cast->n; i++)
        set_put(&s, i, set_has(of, i) && chance(l, percent));
    return s;
}

/* ---- what it does to a site ---- */

/* q_i + PRG(b) +- PRG(s_ij): those of pairs with a site of its own are known. */
static void row_add(struct liar *l, unsigned i, unsigned t, unsigned a, const struct set *u)
{
    int64_t *row = l->row[l->rows++];
    row[Q_FIRST + t * N_MAX + i] = 1;
    row[b_of(t, a, i)] = 1;
    for (unsigned j = 0; j < l->cast->n; j++)
        if (j != i && set_has(u, j) && set_has(&l->honest, j))
            row[s_of(t, a, i, j)] = j > i ? 1 : PRIME - 1;
}

static void ask_contribution(struct liar *l, unsigned i, unsigned t, unsigned a, unsigned which)
{
    struct seal_announce of = {.round = t, .attempt = a, .u = l->u[t][a][which]};
    struct cipher_key b = cast_secret(l->seed, "b", b_of(t, a, i));
    struct digest d = digest_of(b.bytes, sizeof b.bytes);
    bool persist;
    d.bytes[0] ^= (uint8_t)which;
    if (seal_site_contribute(l->cast->site[i], &l->cast->context, &of, &b, &d, &persist) != SEAL_ok)
        return;
    ASSERT(persist);
    l->payload[t][a][i] = d;
    l->b[t][a][i] = b;
    row_add(l, i, t, a, &of.u);
}

static void make_seal(struct liar *l, unsigned t, unsigned a)
{
    if (l->seal_count == SEALS_MAX)
        return;
    struct liar_seal *k = &l->seals[l->seal_count++];
    struct cast *c = l->cast;
    *k = (struct liar_seal){.seal = {.of = {.round = t, .attempt = a}, .term = below(l, 2)}};
    k->seal.of.u = l->u[t][a][below(l, SETS)];
    k->seal.s = chance(l, 40) ? k->seal.of.u : some_of(l, &k->seal.of.u, 75);
    if (chance(l, 5))
        set_put(&k->seal.s, (unsigned)below(l, c->n), true);
    for (unsigned i = 0; i < c->n; i++) {
        bool other = chance(l, 3);
        if (set_has(&k->seal.s, i))
            k->seal.payload[i] = l->payload[t][other ? below(l, ATTEMPTS) : a][i];
    }
    uint8_t bytes[SEAL_BYTES_MAX];
    k->size_bytes = seal_write(&c->context, &k->seal, bytes);
    ASSERT(k->size_bytes <= sizeof k->bytes);
    memcpy(k->bytes, bytes, k->size_bytes);
    struct signer *by = chance(l, 3) ? &c->signer[0].signer : &c->aggregator.signer;
    ASSERT(by->ops->sign(by, k->bytes, k->size_bytes, k->signature) == ERR_OK);
}

static void ask_signature(struct liar *l, struct liar_seal *k, unsigned i)
{
    struct cast *c = l->cast;
    struct seal_signature x;
    bool persist;
    enum seal_answer answer =
        seal_site_sign(c->site[i], &c->context, &c->signer[i].signer,
                       &(struct seal_signed){k->bytes, k->size_bytes, k->signature}, &x, &persist);
    if (answer != SEAL_ok && answer != SEAL_again)
        return;
    k->by[i] = x;
    set_put(&k->have, i, true);
}

/* What it has; its own sites sign anything. What is missing it makes up. */
static size_t signatures_of(struct liar *l, const struct liar_seal *k, struct seal_signature *out)
{
    struct digest d = digest_of(k->bytes, k->size_bytes);
    size_t n = 0;
    for (unsigned i = 0; i < l->cast->n; i++) {
        if (!set_has(&k->seal.s, i))
            continue;
        const struct liar_seal *from = &l->seals[below(l, l->seal_count)];
        if (!set_has(&l->honest, i))
            ASSERT(seal_signature_make(&out[n], &l->cast->signer[i].signer, i, &d) == ERR_OK);
        else if (set_has(&k->have, i))
            out[n] = k->by[i];
        else if (set_has(&from->have, i) && chance(l, 50)) {
            out[n] = from->by[i]; /* of another seal */
            out[n].seal = chance(l, 50) ? d : out[n].seal;
        } else if (n && chance(l, 50))
            out[n] = out[n - 1];
        else { /* in its name, by a site of its own, or the aggregator */
            struct signer *by = &l->cast->aggregator.signer;
            for (unsigned j = 0; j < l->cast->n; j++)
                by = set_has(&l->honest, j) ? by : &l->cast->signer[j].signer;
            ASSERT(seal_signature_make(&out[n], by, i, &d) == ERR_OK);
        }
        n++;
    }
    return n;
}

static void ask_reveal(struct liar *l, const struct liar_seal *k, unsigned i)
{
    struct cast *c = l->cast;
    struct seal_signature by[N_MAX];
    struct seal_seed seeds[N_MAX];
    struct seal_reveal v = {.seeds = seeds};
    size_t n = signatures_of(l, k, by);
    unsigned t = (unsigned)k->seal.of.round, a = k->seal.of.attempt;
    bool persist;
    enum seal_answer answer = seal_site_reveal(
        c->site[i], &c->context, &c->signer[i].signer, c->keys[i],
        &(struct seal_signed){k->bytes, k->size_bytes, k->signature}, by, n, &v, &persist);
    if (answer != SEAL_ok && answer != SEAL_again)
        return;
    ASSERT(persist == (answer == SEAL_ok));
    ASSERT(memcmp(v.b.bytes, l->b[t][a][i].bytes, sizeof v.b.bytes) == 0);
    l->known[b_of(t, a, i)] = true;
    for (uint32_t m = 0; m < v.count; m++) {
        struct cipher_key theirs;
        unsigned j = v.seeds[m].site;
        ASSERT(keys_seed(c->keys[j], &theirs, 0, i, t, a) == KEYS_ok);
        ASSERT(memcmp(theirs.bytes, v.seeds[m].seed.bytes, sizeof theirs.bytes) == 0);
        l->known[s_of(t, a, i, j)] = true;
    }
}

/* A key of its own in the place of site j's. */
static void substitute(struct liar *l, unsigned i, unsigned j)
{
    struct cast *c = l->cast;
    struct keys_statement s = {.setup = 1, .site = j};
    struct cipher_key own = cast_secret(l->seed, "in the middle", j);
    ASSERT(cipher_x25519_public(&s.key, &own) == ERR_OK);
    ASSERT(c->aggregator.signer.ops->sign(&c->aggregator.signer, &s, sizeof s - SIGNER_BYTES,
                                          s.signature) == ERR_OK);
    ASSERT(keys_pair(c->keys[i], &c->signer[i].signer, &c->identity[j], &s) ==
           (i == j ? KEYS_pair_unknown_site : KEYS_pair_key_substituted));
}

static void restart(struct liar *l, unsigned i)
{
    struct arena a = arena_make(0);
    struct file_part *parts;
    size_t count, n = 0;
    uint8_t data[16 << 10];
    struct seal_site *back = NULL;
    ASSERT(seal_site_parts(l->cast->site[i], &parts, &count, &a) == ERR_OK);
    for (size_t k = 0; k < count; n += parts[k++].size_bytes) {
        ASSERT(n + parts[k].size_bytes <= sizeof data);
        memcpy(data + n, parts[k].data, parts[k].size_bytes);
    }
    ASSERT(seal_site_open(&back, i, 1) == ERR_OK);
    ASSERT(seal_site_read(back, "stored", data, n) == ERR_OK);
    seal_site_close(l->cast->site[i]);
    l->cast->site[i] = back;
    arena_free(&a);
}

/* ---- one seed ---- */

static void step(struct liar *l, unsigned i, unsigned kind, unsigned t, unsigned a,
                 struct liar_seal *k, unsigned which)
{
    if (!set_has(&l->honest, i))
        return;
    if (kind < 30)
        ask_contribution(l, i, t, a, which);
    else if (kind < 60 && k)
        ask_signature(l, k, i);
    else if (kind < 90 && k)
        ask_reveal(l, k, i);
    else if (kind < 92)
        (void)!seal_site_abort(l->cast->site[i], 0, t);
    else if (kind < 93)
        seal_site_final(l->cast->site[i], 0, t);
    else if (kind < 98)
        restart(l, i);
    else
        substitute(l, i, (unsigned)below(l, l->cast->n));
}

/* A round nearly as it should be: most steps, in order, for one set or another. */
static void go_through(struct liar *l, unsigned t, unsigned a)
{
    unsigned n = l->cast->n, which = (unsigned)below(l, SETS);
    for (unsigned i = 0; i < n; i++)
        step(l, i, chance(l, 97) ? 0 : 99, t, a, NULL, which);
    make_seal(l, t, a);
    struct liar_seal *k = &l->seals[l->seal_count - 1];
    for (unsigned kind = 30; kind < 90; kind += 30)
        for (unsigned i = 0; i < n; i++)
            step(l, i, chance(l, 97) ? kind : 99, t, a, k, which);
}

static void lie(struct liar *l)
{
    unsigned n = l->cast->n;
    for (unsigned at = 0; at < STEPS; at++) {
        if (chance(l, 10))
            go_through(l, (unsigned)below(l, ROUNDS), (unsigned)below(l, ATTEMPTS));
        unsigned t = (unsigned)below(l, ROUNDS);
        unsigned a = chance(l, 70) ? 0 : (unsigned)below(l, ATTEMPTS);
        unsigned kind = (unsigned)below(l, 100), which = chance(l, 85) ? 0 : 1;
        if (chance(l, 20))
            make_seal(l, t, a);
        unsigned newest = l->seal_count ? (unsigned)below(l, l->seal_count) : 0;
        struct liar_seal *k = l->seal_count ? &l->seals[newest] : NULL;
        if (kind < 90 && chance(l, 60)) /* all sites, or most of them */
            for (unsigned i = 0; i < n; i++)
                step(l, i, chance(l, 95) ? kind : (unsigned)below(l, 90), t, a, k,
                     chance(l, 95) ? which : 1 - which);
        else
            step(l, (unsigned)below(l, n), kind, t, a, k, which);
    }
}

static int64_t inverse(int64_t v)
{
    int64_t out = 1;
    for (int64_t e = PRIME - 2; e; e >>= 1, v = v * v % PRIME)
        out = e & 1 ? out * v % PRIME : out;
    return out;
}

/* Row echelon form, reduced; masks first, so that rows with their pivot among the q have no mask.
 */
static unsigned eliminate(struct liar *l, unsigned *pivot)
{
    unsigned rank = 0;
    for (unsigned v = 0; v < VARIABLES && rank < l->rows; v++) {
        unsigned r = rank;
        while (r < l->rows && (l->known[v] || l->row[r][v] == 0))
            r++;
        if (r == l->rows)
            continue;
        int64_t swap[VARIABLES];
        memcpy(swap, l->row[r], sizeof swap);
        memcpy(l->row[r], l->row[rank], sizeof swap);
        int64_t by = inverse(swap[v]);
        for (unsigned k = 0; k < VARIABLES; k++)
            l->row[rank][k] = swap[k] * by % PRIME;
        for (unsigned o = 0; o < l->rows; o++) {
            int64_t f = l->row[o][v];
            for (unsigned k = 0; o != rank && f && k < VARIABLES; k++)
                l->row[o][k] = (l->row[o][k] + (PRIME - f) * l->row[rank][k]) % PRIME;
        }
        pivot[rank++] = v;
    }
    return rank;
}

/* Returns how many sums were learned; UINT_MAX: something else. */
static unsigned learned(struct liar *l)
{
    unsigned pivot[B_VARIABLES], rank = eliminate(l, pivot), sums = 0, of_round[ROUNDS] = {0};
    for (unsigned r = 0; r < rank; r++) {
        unsigned t = (pivot[r] - Q_FIRST) / N_MAX, terms = 0;
        if (pivot[r] < Q_FIRST)
            continue;
        for (unsigned v = Q_FIRST; v < VARIABLES; v++) {
            if (l->row[r][v] == 0)
                continue;
            if (l->row[r][v] != 1 || (v - Q_FIRST) / N_MAX != t)
                return UINT32_MAX;
            terms++;
        }
        if (terms < 2 || of_round[t]++)
            return UINT32_MAX;
        sums++;
    }
    return sums;
}

static unsigned seed_run(struct cast *casts, struct liar *l, uint64_t seed)
{
    memset(l, 0, sizeof *l);
    l->seed = seed;
    unsigned n = 3 + (unsigned)below(l, N_MAX - 2), c = (unsigned)below(l, n - 1);
    l->cast = &casts[n];
    l->cast->context.colluding = c;
    l->honest = cast_all(n);
    while (set_count(&l->honest) > n - c)
        set_put(&l->honest, (unsigned)below(l, n), false);
    for (unsigned t = 0; t < ROUNDS; t++)
        for (unsigned a = 0; a < ATTEMPTS; a++)
            for (unsigned k = 0; k < SETS; k++) {
                struct set all = cast_all(n);
                l->u[t][a][k] = chance(l, 50) ? all : some_of(l, &all, 85);
            }
    cast_sites_close(l->cast);
    cast_sites_open(l->cast);
    lie(l);
    return learned(l);
}

int main(int argc, char **argv)
{
    static struct cast casts[N_MAX + 1];
    static struct liar l;
    uint64_t seeds = 2000, from = 1, sums = 0, with = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seeds"))
            seeds = strtoull(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--from"))
            from = strtoull(argv[i + 1], NULL, 10);
    }
    for (unsigned n = 3; n <= N_MAX; n++)
        cast_open(&casts[n], n, 0, 1, 500 + n);
    for (uint64_t s = from; s < from + seeds; s++) {
        unsigned got = seed_run(casts, &l, s);
        if (got == UINT32_MAX) {
            printf("seed %" PRIu64 ": more than a sum is learned: test_liar --from %" PRIu64
                   " --seeds 1\n",
                   s, s);
            return 1;
        }
        sums += got;
        with += got > 0;
    }
    printf("%" PRIu64 " seeds: %" PRIu64 " sums learned, in %" PRIu64 " seeds, and nothing else\n",
           seeds, sums, with);
    for (unsigned n = 3; n <= N_MAX; n++)
        cast_close(&casts[n]);
    return seeds >= 1000 && with * 5 < seeds; /* an aggregator that gets nothing tests little */
}
