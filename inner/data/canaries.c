/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/canaries.h"
#include <string.h>
#include "inner/data/labels.h"
#include "inner/data/objective.h"
#include "inner/data/owners.h"
#include "kernels/base/bytes.h"
#include "kernels/base/chacha.h"
#include "kernels/base/digest.h"

static const char *const set_name[2] = {"out", "in"};

struct draw_work { /* of one call */
    const struct settings *s;
    const char *dir;
    struct arena *a;
    struct chacha random;
    int32_t *allowed; /* (allowed_count) ids that are no special ones */
    size_t allowed_count;
    struct sidecar of;        /* of the training text */
    size_t classes;           /* of its labels; 0: none */
    bool plain;               /* windows of ids without an index */
    size_t sentences, length; /* of a canary; tokens of one sentence */
    struct chacha coins;
};

/* ---- what they are made of ---- */
static enum err training_open(struct loader *l, const struct settings *s, struct arena *a)
{
    const struct loader_options o = {.seed = (uint64_t)s->run_seed,
                                     .ranks = 1,
                                     .sequence = (size_t)s->train_seq_len,
                                     .batch_tokens = (size_t)s->train_seq_len,
                                     .vocab = s->model_vocab_size,
                                     .objective = objective_trained(s),
                                     .settings = s};
    if (!s->data_train.count)
        return err_set(ERR_CONFIG, "data.train is empty: canaries are made like the training text; "
                                   "name it");
    return loader_open(l, a, &s->data_train, &o);
}

static enum err ids_allow(struct draw_work *w)
{
    int64_t vocab = w->of.vocab > 0 ? w->of.vocab : w->s->model_vocab_size;
    TRY_ALLOC(w->allowed = arena_array(w->a, (size_t)vocab, sizeof *w->allowed));
    for (int32_t id = 0; id < vocab; id++)
        if (!sidecar_is_special(&w->of, id))
            w->allowed[w->allowed_count++] = id;
    return ERR_OK;
}

static enum err work_open(struct draw_work *w)
{
    struct loader l = {.windows = 0};
    uint8_t key[CHACHA_KEY_BYTES];
    const struct settings *s = w->s;
    size_t S = (size_t)s->train_seq_len;
    bool found = false, causal = s->data_objective == DATA_OBJECTIVE_CAUSAL;
    w->of = sidecar_none();
    enum err e = training_open(&l, s, w->a);
    if (e == ERR_OK && l.directory)
        e = sidecar_read(&w->of, l.directory, w->a, &found);
    loader_close(&l);
    TRY(e);
    digest_random(key, sizeof key);
    w->random = chacha_stream(key, 0);
    w->coins = chacha_stream(key, 1);
    explicit_bzero(key, sizeof key);
    w->classes = s->data_objective == DATA_OBJECTIVE_LABELS ? w->of.classes_count : 0;
    w->plain = causal && s->privacy_unit < PRIVACY_UNIT_DOCUMENT;
    bool pair = s->data_objective == DATA_OBJECTIVE_MLM && s->data_pairs != DATA_PAIRS_NONE;
    w->sentences = pair ? 2 : 1;
    w->length = causal ? S + 1 : pair ? (S - 3) / 2 : S - 2; /* [CLS] .. [SEP], or with two [SEP] */
    return ids_allow(w);
}

/* ---- shards ---- */
struct set_writer {
    struct file_stream plain;
    uint64_t count;
    struct indexed_writer index;
    int32_t *classes;
    struct owner *owners; /* each canary has its own */
    char *stem;
};

static int32_t id_draw(struct draw_work *w)
{
    return w->allowed[chacha_below(&w->random, w->allowed_count)];
}

static enum err plain_id(struct set_writer *x, int32_t id)
{
    uint8_t bytes[4];
    struct bytes_writer b = bytes_writer(bytes, sizeof bytes);
    bytes_put_u32(&b, (uint32_t)id);
    return file_stream_append(&x->plain, bytes, sizeof bytes);
}

/* llm.c's header, 4-byte ids. Windows share one id, so all canaries begin with the same one. */
static enum err plain_begin(struct set_writer *x, const struct draw_work *w, uint64_t canaries)
{
    uint8_t header[SHARD_HEADER_BYTES] = {0};
    char *path;
    struct bytes_writer b = bytes_writer(header, sizeof header);
    bytes_put_u32(&b, SHARD_MAGIC_U32);
    bytes_put_u32(&b, SHARD_VERSION_U32);
    bytes_put_u32(&b, (uint32_t)(canaries * (uint64_t)w->s->train_seq_len + 1));
    TRY_ALLOC(path = arena_printf(w->a, "%s.bin", x->stem));
    TRY(file_stream_open(&x->plain, path, w->a));
    TRY(file_stream_append(&x->plain, header, sizeof header));
    return plain_id(x, w->allowed[0]);
}

static enum err canary_plain(struct set_writer *x, struct draw_work *w)
{
    for (int64_t i = 1; i < w->s->train_seq_len; i++)
        TRY(plain_id(x, id_draw(w)));
    return plain_id(x, w->allowed[0]);
}

static enum err canary_indexed(struct set_writer *x, struct draw_work *w)
{
    int32_t *ids;
    struct arena scratch = arena_make(0);
    enum err e = ERR_OK;
    for (size_t k = 0; k < w->sentences && e == ERR_OK; k++) {
        ids = arena_array(&scratch, w->length, sizeof *ids);
        for (size_t i = 0; ids && i < w->length; i++)
            ids[i] = id_draw(w);
        e = ids ? indexed_sentence(&x->index, ids, w->length) : ERR_MEMORY;
    }
    arena_free(&scratch);
    if (w->classes)
        x->classes[x->count] = (int32_t)chacha_below(&w->random, w->classes);
    digest_random(x->owners[x->count].id, sizeof x->owners->id);
    return e ? e : indexed_document_end(&x->index);
}

static enum err set_begin(struct set_writer *x, struct draw_work *w, bool in, uint64_t canaries)
{
    TRY_ALLOC(x->stem = arena_printf(w->a, "%s/%s-0000", w->dir, set_name[in]));
    TRY_ALLOC(x->classes = arena_array(w->a, canaries, sizeof *x->classes));
    TRY_ALLOC(x->owners = arena_array(w->a, canaries, sizeof *x->owners));
    return w->plain ? plain_begin(x, w, canaries)
                    : indexed_open(&x->index, x->stem,
                                   w->of.vocab > 0 ? w->of.vocab : w->s->model_vocab_size);
}

static enum err set_end(struct set_writer *x, struct draw_work *w)
{
    if (w->plain)
        return file_stream_commit(&x->plain);
    TRY(indexed_close(&x->index));
    if (w->classes)
        TRY(labels_write(x->stem, x->classes, x->count));
    return w->s->privacy_unit == PRIVACY_UNIT_OWNER ? owners_write(x->stem, x->owners, x->count)
                                                    : ERR_OK;
}

static enum err sets_write(struct draw_work *w, struct set_writer x[2], uint64_t count,
                           const bool *in)
{
    uint64_t included = 0;
    for (uint64_t i = 0; i < count; i++)
        included += in[i];
    if (included == 0 || included == count)
        return err_set(ERR_INPUT, "all coins fell on one side; draw again");
    TRY(set_begin(&x[1], w, true, included));
    TRY(set_begin(&x[0], w, false, count - included));
    for (uint64_t i = 0; i < count; i++) {
        struct set_writer *to = &x[in[i]];
        TRY(w->plain ? canary_plain(to, w) : canary_indexed(to, w));
        to->count++;
    }
    TRY(set_end(&x[1], w));
    return set_end(&x[0], w);
}

/* The objective must see each as one example, or it is no record of its own. */
static enum err sets_check(const struct draw_work *w, uint64_t count)
{
    struct canaries c;
    enum err e = canaries_open(&c, w->s, w->dir, w->a);
    if (e == ERR_OK && c.in.windows + c.out.windows != count)
        e = err_set(ERR_INPUT,
                    "%s: data.objective = %s makes %llu examples of %llu canaries; audit a run "
                    "without data.pairs, or with a longer train.seq_len",
                    w->dir, c.in.options.objective->name,
                    (unsigned long long)(c.in.windows + c.out.windows), (unsigned long long)count);
    canaries_close(&c);
    return e;
}

static enum err place_check(const struct draw_work *w)
{
    char **names;
    size_t count;
    TRY(file_mkdirs(w->dir));
    TRY(file_list(w->dir, w->a, &names, &count));
    if (!count)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s is not empty: canaries of another audit would be mixed with these; name a "
                   "new directory",
                   w->dir);
}

enum err canaries_write(const struct settings *s, const char *dir, uint64_t count, struct arena *a)
{
    struct draw_work w = {.s = s, .dir = dir, .a = a};
    struct set_writer x[2] = {{.count = 0}, {.count = 0}};
    bool *in;
    TRY(place_check(&w));
    TRY(work_open(&w));
    TRY_ALLOC(in = arena_array(a, count, sizeof *in));
    for (uint64_t i = 0; i < count; i++)
        in[i] = chacha_bits(&w.coins, 1);
    enum err e = sets_write(&w, x, count, in);
    for (int i = 0; i < 2; i++) {
        file_stream_abandon(&x[i].plain);
        indexed_abandon(&x[i].index);
    }
    if (e == ERR_OK && w.of.vocab > 0)
        e = sidecar_write(&w.of, dir);
    explicit_bzero(&w.random, sizeof w.random);
    explicit_bzero(&w.coins, sizeof w.coins);
    return e ? e : sets_check(&w, count);
}

/* ---- reading ---- */
static enum err set_open(struct loader *l, const struct settings *s, const char *dir, bool in,
                         struct arena *a)
{
    const char *path;
    const struct loader_options o = {.seed = (uint64_t)s->run_seed,
                                     .ranks = 1,
                                     .sequence = (size_t)s->train_seq_len,
                                     .batch_tokens = (size_t)s->train_seq_len,
                                     .vocab = s->model_vocab_size,
                                     .objective = objective_trained(s),
                                     .settings = s};
    TRY_ALLOC(path = arena_printf(a, "%s/%s-0000.bin", dir, set_name[in]));
    const struct config_list list = {&path, 1};
    return loader_open(l, a, &list, &o);
}

enum err canaries_open(struct canaries *c, const struct settings *s, const char *dir,
                       struct arena *a)
{
    *c = (struct canaries){.in = {.windows = 0}};
    TRY(set_open(&c->in, s, dir, true, a));
    return set_open(&c->out, s, dir, false, a);
}

void canaries_close(struct canaries *c)
{
    loader_close(&c->in);
    loader_close(&c->out);
}
