/* SPDX-License-Identifier: Apache-2.0 */
/* The order of examples is a format-preserving permutation: a Feistel network over the smallest
 * even number of bits that holds every window, walked until it lands inside (Black & Rogaway 2002,
 * "Ciphers with arbitrary finite domains"). Its round function is the counter-based generator,
 * keyed by seed, site and epoch.
 */
#include "inner/data/loader.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "kernels/base/rng.h"

enum {
    FEISTEL_ROUNDS = 6
}; /* 4 suffice for a pseudo-random permutation of large domains; small ones get two more */

/* ---- order ---- */

static uint64_t feistel(uint64_t key, unsigned half_bits, uint64_t x)
{
    uint32_t mask = half_bits < 32 ? (UINT32_C(1) << half_bits) - 1 : UINT32_MAX;
    uint32_t left = (uint32_t)(x >> half_bits), right = (uint32_t)x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint32_t next = left ^ (rng_u32(key, RNG_SHUFFLE, round << 32 | right) & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << half_bits | right;
}

/* A permutation of 0 .. n-1. The domain is less than 4n, so the walk takes fewer than 4 steps on
 * average. */
static uint64_t permute(uint64_t key, uint64_t n, uint64_t x)
{
    unsigned half_bits = 1;
    while (half_bits < 32 && n > UINT64_C(1) << 2 * half_bits)
        half_bits++;
    do
        x = feistel(key, half_bits, x);
    while (x >= n);
    return x;
}

uint64_t loader_place(const struct loader *l, uint64_t step)
{
    return step * l->options.ranks * l->rank_sequences;
}

uint64_t loader_epoch(const struct loader *l, uint64_t place)
{
    if (!l->mixture)
        return place / l->windows;
    struct mixture_draw d = mixture_draw(l->mixture, place);
    return d.example / l->mixture->sources[d.source].windows;
}

uint64_t loader_order_of(const struct loader *l, uint64_t count, uint64_t place)
{
    uint64_t epoch = place / count;
    ASSERT(epoch < UINT64_C(1) << 40); /* else two sites' keys could meet */
    uint64_t key = rng_u64(l->options.seed, RNG_SHUFFLE, (uint64_t)l->options.site << 40 | epoch);
    return permute(key, count, place % count);
}

static uint64_t mixed_order(const struct loader *l, uint64_t place)
{
    struct mixture_draw d = mixture_draw(l->mixture, place);
    const struct mixture_source *s = &l->mixture->sources[d.source];
    uint64_t epoch = d.example / s->windows;
    ASSERT(epoch < UINT64_C(1) << 40);
    uint64_t key = rng_u64(l->options.seed, RNG_MIXTURE + ((uint64_t)d.source << 8),
                           (uint64_t)l->options.site << 40 | epoch);
    return s->first + permute(key, s->windows, d.example % s->windows);
}

uint64_t loader_order(const struct loader *l, uint64_t place)
{
    return l->mixture ? mixed_order(l, place) : loader_order_of(l, l->windows, place);
}

/* The last shard whose first window is not after it. */
size_t loader_shard(const struct loader *l, uint64_t window)
{
    size_t low = 0, high = l->set.count;
    ASSERT(window < l->windows);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (l->window_first[middle] <= window)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int32_t loader_filler(const struct loader *l)
{
    int32_t pad = l->sidecar.special[SIDECAR_PAD];
    return pad < 0 ? 0 : pad;
}

void loader_fit(uint32_t *a, uint32_t *b, size_t room)
{
    uint64_t over = (uint64_t)*a + *b > room ? (uint64_t)*a + *b - room : 0;
    uint32_t *longer = *a > *b ? a : b;
    uint64_t apart = *a > *b ? *a - *b : *b - *a, cut = over < apart ? over : apart;
    *longer -= (uint32_t)cut;
    over -= cut;
    *b -= (uint32_t)((over + 1) / 2);
    *a -= (uint32_t)(over / 2);
}

/* ---- open ---- */

static enum err check_options(const struct loader_options *o)
{
    ASSERT(o->sequence > 0 && o->ranks > 0 && o->rank < o->ranks);
    size_t unit = o->sequence * o->ranks;
    if (o->batch_tokens == 0 || o->batch_tokens % unit)
        return err_set(ERR_CONFIG,
                       "train.batch_tokens = %zu is not a multiple of %zu: train.seq_len = %zu "
                       "times %u ranks",
                       o->batch_tokens, unit, o->sequence, o->ranks);
    return ERR_OK;
}

static const char *expected_sha256(const struct loader *l)
{
    return l->options.settings ? l->options.settings->data_tokenizer_sha256 : "";
}

static enum err check_sidecar(const struct loader *l, const char *directory)
{
    const struct sidecar *s = &l->sidecar;
    const char *expected = expected_sha256(l);
    if (*expected && strcmp(expected, s->sha256) != 0)
        return err_set(ERR_MISMATCH,
                       "%s: the shards there were made with %s%s; data.tokenizer_sha256 is %s",
                       directory, *s->sha256 ? "the tokenizer " : "a tokenizer of no known digest",
                       s->sha256, expected);
    if (s->vocab > l->options.vocab)
        return err_set(ERR_INPUT,
                       "%s/data.json: a vocabulary of %lld, more than model.vocab_size = %lld",
                       directory, (long long)s->vocab, (long long)l->options.vocab);
    return ERR_OK;
}

enum err loader_directory(const char *path, struct arena *perm, const char **directory)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    TRY_ALLOC(*directory = slash ? arena_string(perm, n ? path : "/", n ? n : 1)
                                 : arena_string(perm, ".", 1));
    return ERR_OK;
}

/* All directories of the set have been made with one tokenizer. */
static enum err open_sidecars(struct loader *l, struct arena *perm)
{
    const char *before = "", *directory;
    l->sidecar = sidecar_none();
    for (size_t i = 0; i < l->set.count; i++) {
        struct sidecar s;
        bool found;
        TRY(loader_directory(l->set.shards[i].path, perm, &directory));
        if (!strcmp(directory, before))
            continue;
        before = directory;
        TRY(sidecar_read(&s, directory, perm, &found));
        if (found && l->directory && !sidecar_same_tokenizer(&s, &l->sidecar))
            return err_set(ERR_INPUT,
                           "%s and %s hold shards of different tokenizers; make one of them again: "
                           "atoll data --tokenizer %s",
                           directory, l->directory, l->directory);
        if (!found)
            l->unknown = directory;
        if (!found || l->directory)
            continue;
        l->sidecar = s;
        l->directory = directory;
        TRY(check_sidecar(l, directory));
    }
    return ERR_OK;
}

enum err loader_same_tokenizer(const struct loader *a, const struct loader *b)
{
    bool same = !a->directory || !b->directory || sidecar_same_tokenizer(&a->sidecar, &b->sidecar);
    return same ? ERR_OK
                : err_set(ERR_INPUT,
                          "%s and %s hold shards of different tokenizers; make one of them again: "
                          "atoll data --tokenizer %s",
                          a->directory, b->directory, a->directory);
}

void loader_seed(struct loader *l, uint64_t seed)
{
    l->options.seed = seed;
    if (l->deal)
        l->deal->next = 0; /* the examples of the step that was dealt last are others now */
}

/* ---- mixture ---- */
enum { LENGTHS_SAMPLED = 4096 };

/* The first window of this shard or of one after it; windows follow their shards. */
static uint64_t window_of_shard(const struct loader *l, size_t shard)
{
    uint64_t low = 0, high = l->windows;
    while (low < high) {
        uint64_t middle = (low + high) / 2, token;
        size_t at;
        l->options.objective->origin(l, middle, &at, &token);
        if (at < shard)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Of the examples of the first epoch, evenly spread. */
static double mean_length(const struct loader *l, const struct mixture_source *s)
{
    const struct objective *o = l->options.objective;
    uint64_t n = s->windows < LENGTHS_SAMPLED ? s->windows : LENGTHS_SAMPLED, sum = 0;
    for (uint64_t i = 0; i < n && o->varies; i++) {
        uint64_t window = s->first + i * (s->windows / n);
        sum += o->length(l, window, 0);
    }
    return o->varies ? (double)sum / (double)n : (double)l->options.sequence;
}

static enum err open_source(struct loader *l, struct arena *perm, struct mixture *m,
                            const char *item, size_t *shard)
{
    struct mixture_source *s = &m->sources[m->count];
    const struct config_list one = {.items = &item, .count = 1};
    struct config_list files;
    TRY(shard_files(&one, perm, &files));
    s->name = item;
    s->first = window_of_shard(l, *shard);
    *shard += files.count;
    s->windows = window_of_shard(l, *shard) - s->first;
    if (!s->windows)
        return err_set(ERR_INPUT,
                       "data.train: %s is too small: no example of train.seq_len = %zu tokens "
                       "fits into it; take more text, or leave this source out",
                       item, l->options.sequence);
    m->count++;
    return ERR_OK;
}

static enum err read_weights(const struct config_list *list, struct arena *perm, double **weights)
{
    if (list->count)
        TRY_ALLOC(*weights = arena_array(perm, list->count, sizeof **weights));
    for (size_t i = 0; i < list->count; i++)
        (*weights)[i] = keys_weight(list, i);
    return ERR_OK;
}

static enum err weights_of(const struct loader *l, struct arena *a, struct mixture_weights *w)
{
    const struct settings *s = l->options.settings;
    double *weights = NULL, *anneal = NULL;
    TRY(read_weights(&s->data_weights, a, &weights));
    TRY(read_weights(&s->data_anneal_weights, a, &anneal));
    *w = (struct mixture_weights){.count = 0};
    mixture_weights_add(w, 0, weights);
    if (anneal)
        mixture_weights_add(w, loader_place(l, (uint64_t)s->data_anneal_from), anneal);
    for (size_t i = 0; l->changes && i < l->changes->count; i++) {
        const struct loader_change *c = &l->changes->list[i];
        if (c->count == s->data_weights.count)
            mixture_weights_add(w, loader_place(l, (uint64_t)c->step), c->weights);
    }
    return ERR_OK;
}

static enum err open_mixture(struct loader *l, struct arena *perm)
{
    const struct config_list *items = &l->options.settings->data_train;
    struct mixture_weights w;
    struct mixture *m;
    size_t shard = 0;
    TRY_ALLOC(m = arena_alloc(perm, sizeof *m));
    TRY_ALLOC(m->sources = arena_array(perm, items->count, sizeof *m->sources));
    for (size_t i = 0; i < items->count; i++)
        TRY(open_source(l, perm, m, items->items[i], &shard));
    if (shard != l->set.count)
        return err_set(ERR_INPUT, "data.train: files came or went while they were opened");
    for (size_t i = 0; i < items->count; i++)
        m->sources[i].tokens = mean_length(l, &m->sources[i]);
    TRY(weights_of(l, perm, &w));
    mixture_begin(m, &w);
    l->mixture = m;
    return ERR_OK;
}

const struct mixture_phase *loader_phase(const struct loader *l, uint64_t step)
{
    return l->mixture ? mixture_phase(l->mixture, loader_place(l, step)) : NULL;
}

enum err loader_resume(struct loader *l, uint64_t step, const struct mixture_phase *stored,
                       bool *changed)
{
    struct arena scratch = arena_make(0);
    struct mixture_weights w;
    *changed = false;
    enum err e = l->mixture ? weights_of(l, &scratch, &w) : ERR_OK;
    if (e == ERR_OK && l->mixture)
        e = mixture_resume(l->mixture, &w, loader_place(l, step), stored, changed);
    arena_free(&scratch);
    return e;
}

/* As a restart after this step does. */
enum err loader_change(struct loader *l, uint64_t step, const struct loader_changes *c)
{
    struct mixture_phase now;
    bool changed;
    l->changes = c;
    if (!l->mixture)
        return ERR_OK;
    now = *loader_phase(l, step);
    return loader_resume(l, step, &now, &changed);
}

static enum err open_text(struct loader *l, struct arena *perm)
{
    TRY(open_sidecars(l, perm));
    if (l->options.objective->varies && l->options.ranks > 1)
        TRY(deal_open(&l->deal, l->options.ranks, l->rank_sequences, perm));
    TRY(l->options.objective->open(l, perm));
    return l->options.mixed ? open_mixture(l, perm) : ERR_OK;
}

enum { DEALT_MAX = 65536 }; /* characters, that a record may hold it */

/* "0: a.bin c.bin; 1: b.bin" */
static enum err write_dealt(struct loader *l, struct arena *perm, const struct config_list *files,
                            uint32_t ranks)
{
    char *text;
    size_t used = 0;
    TRY_ALLOC(text = arena_alloc(perm, DEALT_MAX));
    for (uint32_t r = 0; r < ranks && used < DEALT_MAX; r++) {
        used += (size_t)snprintf(text + used, DEALT_MAX - used, "%s%u:", r ? "; " : "", r);
        for (size_t i = r; i < files->count && used < DEALT_MAX; i += ranks)
            used += (size_t)snprintf(text + used, DEALT_MAX - used, " %s", files->items[i]);
    }
    if (used >= DEALT_MAX)
        memcpy(text + DEALT_MAX - 4, "...", 4);
    l->dealt.files = text;
    return ERR_OK;
}

/* The files of a list, each once. A mixture keeps the items as they are: a file may be in two of
 * its sources. */
static enum err list_files(const struct loader *l, struct arena *perm,
                           const struct config_list *paths, struct config_list *files)
{
    const char *twice;
    size_t left_out;
    char quoted[400];
    *files = *paths;
    if (!paths->count || l->options.mixed)
        return ERR_OK;
    TRY(shard_files(paths, perm, files));
    TRY(shard_files_once(files, perm, &twice, &left_out));
    if (left_out && l->options.rank == 0)
        log_event(LOG_WARN, "data",
                  "file=%s others=%zu text=\"listed twice (do two patterns overlap?); counts "
                  "once\"",
                  log_quote(quoted, sizeof quoted, twice), left_out - 1);
    return ERR_OK;
}

/* This rank's files; from here on it is a site of one rank, with a seed of its own. */
static enum err take_own_files(struct loader *l, struct arena *perm, struct config_list *own)
{
    struct loader_options *o = &l->options;
    const struct config_list files = *own;
    const char **items;
    uint32_t rank = o->rank, ranks = o->ranks;
    if (files.count < ranks)
        return err_set(
            ERR_CONFIG,
            "data.shards = own: data.train has %zu file%s for %u ranks; cut the text into "
            "more shards (atoll data --shard-tokens), start %zu rank%s, or use "
            "data.shards = shared",
            files.count, files.count == 1 ? "" : "s", ranks, files.count,
            files.count == 1 ? "" : "s");
    TRY_ALLOC(items = arena_array(perm, files.count, sizeof *items));
    *own = shard_dealt(&files, rank, ranks, items);
    TRY(write_dealt(l, perm, &files, ranks));
    l->dealt.first = rank * (uint32_t)l->rank_sequences;
    o->batch_tokens /= ranks;
    o->rank = 0;
    o->ranks = 1;
    o->seed = rng_u64(o->seed, RNG_SHUFFLE, UINT64_MAX - rank);
    return ERR_OK;
}

enum err loader_open(struct loader *l, struct arena *perm, const struct config_list *paths,
                     const struct loader_options *o)
{
    *l = (struct loader){.options = *o};
    TRY(check_options(o));
    struct config_list own;
    l->rank_sequences = o->batch_tokens / o->sequence / o->ranks;
    TRY(list_files(l, perm, paths, &own));
    if (o->own_shards && o->ranks > 1 && paths->count)
        TRY(take_own_files(l, perm, &own));
    TRY(shard_set_open(&l->set, perm, &own, o->vocab));
    enum err e = open_text(l, perm);
    if (e)
        loader_close(l);
    return e;
}

void loader_close(struct loader *l)
{
    shard_set_close(&l->set);
    *l = (struct loader){0};
}
