/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a model learns from text that it was shown unmasked, special ids
 * become targets, ranks and restarts train on other examples than one rank alone, text is left out
 * or seen twice, a pair's label says the opposite, a rank waits for another with more tokens. */
#include "tests/inner/scratch.h"
#include <math.h>
#include "inner/data/deal.h"
#include "inner/data/labels.h"
#include "inner/data/loader_text.h"
#include "inner/data/objective.h"
#include "kernels/base/rng.h"

enum {
    PAD,
    UNK,
    CLS,
    SEP,
    MASK,
    FIRST, /* id of the first token of the text; the next one has the next id */
    VOCAB = 60000,
    S = 64,
    DOCUMENTS = 120,
    SENTENCES_MAX = 20,
    EXAMPLES_MAX = 4000
};
static struct arena arena;
static struct settings settings;
/* The text, by id: its document, its sentence within the set, whether it continues a word. */
static int32_t document_of[VOCAB], sentence_of[VOCAB], sentence_begin[VOCAB];
static bool continues[VOCAB];
static int32_t text_end; /* after the last id */
static int32_t last_of[DOCUMENTS];

/* ---- the text ---- */

static int32_t write_document(struct indexed_writer *w, int d, int32_t id)
{
    static int sentence = 0;
    uint64_t sentences = 2 + rng_below(1, RNG_TEST, (uint64_t)d, SENTENCES_MAX - 1);
    sentence = d ? sentence : 0;
    for (uint64_t i = 0; i < sentences; i++, sentence++) {
        int32_t ids[300];
        uint64_t key = (uint64_t)d << 8 | i;
        size_t n = 1 + (size_t)rng_below(2, RNG_TEST, key, i == 3 && d % 10 == 0 ? 250 : 30);
        for (size_t j = 0; j < n; j++, id++) {
            ids[j] = id;
            document_of[id] = d;
            sentence_of[id] = sentence;
            sentence_begin[id] = id - (int32_t)j;
            continues[id] = rng_below(3, RNG_TEST, (uint64_t)id, 5) < 2;
        }
        assert_int_equal(indexed_sentence(w, ids, n), ERR_OK);
    }
    assert_int_equal(indexed_document_end(w), ERR_OK);
    last_of[d] = id - 1;
    return id;
}

/* One piece a line; a piece that continues a word begins with ##. */
static void write_pieces(void)
{
    char *text = malloc(VOCAB * 12u), *at = text;
    assert_non_null(text);
    for (int i = 0; i < VOCAB; i++)
        at += sprintf(at, "%sw%d\n", continues[i] ? "##" : "", i);
    scratch_write("vocab.txt", text, (size_t)(at - text));
    free(text);
}

static void write_sidecar(void)
{
    struct sidecar s = sidecar_none();
    s.tokenizer = "vocab.txt";
    s.word_start = "##";
    s.vocab = VOCAB;
    s.special[SIDECAR_CLS] = CLS;
    s.special[SIDECAR_SEP] = SEP;
    s.special[SIDECAR_MASK] = MASK;
    s.special[SIDECAR_PAD] = PAD;
    s.special[SIDECAR_UNK] = UNK;
    assert_int_equal(sidecar_write(&s, scratch_root), ERR_OK);
}

static int open_text(void **state)
{
    if (scratch_open(state))
        return -1;
    int32_t id = FIRST;
    for (int part = 0; part < 2; part++) { /* two shards */
        struct indexed_writer w = {0};
        assert_int_equal(indexed_open(&w, scratch(part ? "m-1" : "m-0"), VOCAB), ERR_OK);
        for (int d = part * DOCUMENTS / 2; d < (part + 1) * DOCUMENTS / 2; d++)
            id = write_document(&w, d, id);
        assert_int_equal(indexed_close(&w), ERR_OK);
    }
    text_end = id;
    write_pieces();
    write_sidecar();
    return 0;
}

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    settings = (struct settings){.data_objective = DATA_OBJECTIVE_MLM,
                                 .data_mlm_probability = 0.15,
                                 .data_short_seq_prob = 0.1,
                                 .data_tokenizer_sha256 = ""};
    return 0;
}

static struct loader_options options(uint32_t rank, uint32_t ranks)
{
    return (struct loader_options){.seed = 7,
                                   .site = 1,
                                   .rank = rank,
                                   .ranks = ranks,
                                   .sequence = S,
                                   .batch_tokens = 48 * S,
                                   .vocab = VOCAB,
                                   .objective = &objective_mlm,
                                   .settings = &settings};
}

static void open_ranks(struct loader *l, uint32_t rank, uint32_t ranks)
{
    struct loader_options o = options(rank, ranks);
    struct config_list list = {(const char *[]){scratch("m-*.bin")}, 1};
    if (loader_open(l, &arena, &list, &o))
        fail_msg("%s", err_message());
}

static void make_batch(struct batch *b, size_t sequences)
{
    assert_int_equal(objective_batch_open(&objective_mlm, b, &arena, sequences, S), ERR_OK);
}

/* The id that was there before the masks. */
static int32_t original(const struct batch *b, size_t i)
{
    return b->targets[i] >= 0 ? b->targets[i] : b->tokens[i];
}

/* ---- structure ---- */

/* [CLS] A [SEP] (B [SEP]); each of A and B consecutive ids of one document. Returns where B begins,
 * or 0. */
static size_t check_sequence(const struct batch *b, size_t from, size_t end, bool pair)
{
    size_t second = 0, segments = 0;
    assert_true(end - from >= 3 && end - from <= S);
    assert_int_equal(b->tokens[from], CLS);
    assert_int_equal(b->tokens[end - 1], SEP);
    for (size_t i = from + 1; i < end; i++) {
        int32_t id = original(b, i);
        assert_int_equal(b->types[i], segments && i >= second);
        assert_int_equal(b->positions[i], i - from);
        if (id == SEP) {
            assert_int_equal(b->targets[i], -1);
            second = ++segments == 1 ? i + 1 : second;
            continue;
        }
        assert_true(id >= FIRST && id < text_end);
        if (i > from + 1 && i != second) {
            assert_int_equal(id, original(b, i - 1) + 1);
            assert_int_equal(document_of[id], document_of[id - 1]);
        }
    }
    assert_int_equal(segments, pair ? 2 : 1);
    return pair ? second : 0;
}

static void an_epoch_shows_each_token_once(void **state)
{
    (void)state;
    struct loader l;
    struct batch b;
    static uint8_t seen[VOCAB];
    settings.data_short_seq_prob = 0;
    open_ranks(&l, 0, 1);
    make_batch(&b, 1);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        memset(seen, 0, sizeof seen);
        for (uint64_t e = 0; e < l.windows; e++) {
            batch_clear(&b);
            uint64_t place = epoch * l.windows + e;
            objective_mlm.append(&l, loader_order(&l, place), place, &b);
            assert_int_equal(objective_mlm.length(&l, loader_order(&l, place), place),
                             b.tokens_count);
            check_sequence(&b, 0, b.tokens_count, false);
            for (size_t i = 1; i + 1 < b.tokens_count; i++)
                assert_int_equal(seen[original(&b, i)]++, 0);
        }
        for (int32_t id = FIRST; id < text_end; id++)
            assert_int_equal(seen[id], 1);
    }
    loader_close(&l);
}

/* Without an index there are no documents: runs of ids. */
static void shards_without_documents_are_cut_into_runs(void **state)
{
    (void)state;
    uint16_t ids[1000];
    uint8_t data[SHARD_HEADER_BYTES + sizeof ids] = {0};
    const uint32_t head[] = {SHARD_MAGIC_U16, SHARD_VERSION_U16, 1000};
    struct loader l;
    struct batch b;
    settings.data_short_seq_prob = 0;
    for (int i = 0; i < 1000; i++)
        ids[i] = (uint16_t)(FIRST + i);
    memcpy(data, head, sizeof head);
    memcpy(data + SHARD_HEADER_BYTES, ids, sizeof ids);
    struct config_list list = {(const char *[]){scratch_write("plain.bin", data, sizeof data)}, 1};
    struct loader_options o = options(0, 1);
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_OK);
    assert_int_equal(l.windows, (1000 + S - 3) / (S - 2));
    make_batch(&b, 1);
    objective_windows(&l, 1, 1, &b);
    assert_int_equal(b.tokens_count, S);
    assert_int_equal(original(&b, 1), FIRST + S - 2);
    loader_close(&l);
    settings.data_pairs = DATA_PAIRS_SOP;
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_INPUT);
    assert_says("plain.bin: data.pairs = sop needs documents and their sentences");
}

static void short_examples_are_a_share(void **state)
{
    (void)state;
    struct loader l;
    settings.data_short_seq_prob = 0.5;
    open_ranks(&l, 0, 1);
    size_t room = S - 2, full = 0, cut = 0;
    double sum = 0;
    for (uint64_t e = 0; e < l.windows; e++) {
        size_t whole = 0;
        for (uint64_t epoch = 0; epoch < 20; epoch++) {
            size_t n = objective_mlm.length(&l, e, epoch * l.windows + e) - 2;
            whole = n > whole ? n : whole;
        }
        for (uint64_t epoch = 0; whole == room && epoch < 20; epoch++) {
            size_t n = objective_mlm.length(&l, e, epoch * l.windows + e) - 2;
            full += n == room;
            cut += n < room;
            sum += n < room ? (double)n : 0;
        }
    }
    /* Of the short half one in room - 1 lengths is all the room; the others are uniform, 2 and
     * more. */
    double n = (double)(full + cut), p = 0.5 * (1 - 1.0 / (double)(room - 1));
    assert_true(n > 500);
    assert_true(fabs((double)cut / n - p) < 3 * sqrt(p * (1 - p) / n) + 1 / sqrt(n) / 20);
    assert_true(fabs(sum / (double)cut - (2 + (double)room - 1) / 2) <
                3 * (double)room / sqrt(12 * (double)cut));
    loader_close(&l);
}

/* ---- masks ---- */

struct tally {
    double positions, masked; /* of texts of 7 tokens and more */
    double all, mask_id, random, kept, expected;
    double at[S]; /* targets by position, of sequences of the full length */
    double full;
};

static void tally_sequence(struct tally *t, const struct batch *b, size_t from, size_t end)
{
    size_t text = 0, masked = 0;
    for (size_t i = from; i < end; i++) {
        int32_t id = original(b, i), now = b->tokens[i];
        text += id >= FIRST;
        if (b->targets[i] < 0)
            continue;
        assert_true(id >= FIRST); /* special ids are no targets */
        masked++;
        t->mask_id += now == MASK;
        t->kept += now == id;
        t->random += now != MASK && now != id;
        assert_true(now == MASK || now >= FIRST); /* nor does a random id become one */
        t->at[i - from] += end - from == S;
    }
    double count = rint(settings.data_mlm_probability * (double)text);
    if (settings.data_mask == DATA_MASK_TOKEN)
        assert_int_equal(masked, count < 1 ? 1 : count);
    if (text >= 7) { /* shorter ones have one target, which may be more than the rate */
        t->positions += (double)text;
        t->masked += (double)masked;
        t->expected += count;
    }
    t->all += (double)masked;
    t->full += end - from == S;
}

static void tally_epochs(struct tally *t, const struct loader *l, struct batch *b, double positions)
{
    for (uint64_t place = 0; t->positions < positions; place++) {
        batch_clear(b);
        objective_mlm.append(l, loader_order(l, place), place, b);
        tally_sequence(t, b, 0, b->tokens_count);
    }
}

static bool within(double hits, double n, double p)
{
    return fabs(hits - n * p) < 3 * sqrt(n * p * (1 - p));
}

static void rates_are_as_published(void **state)
{
    (void)state;
    struct loader l;
    struct batch b;
    static const double rates[] = {0.15, 0.3};
    for (int r = 0; r < 2; r++) {
        struct tally t = {0};
        settings.data_mlm_probability = rates[r];
        settings.data_short_seq_prob =
            0.9; /* lengths vary, so that rounding to whole counts cancels */
        open_ranks(&l, 0, 1);
        make_batch(&b, 1);
        tally_epochs(&t, &l, &b, 1e6);
        assert_true(within(t.mask_id, t.all, 0.8));
        /* A random id is the one that was there once in VOCAB - FIRST. */
        assert_true(within(t.random, t.all, 0.1 * (1 - 1.0 / (VOCAB - FIRST))));
        assert_true(within(t.kept, t.all, 0.1 + 0.1 / (VOCAB - FIRST)));
        print_message("rate %.2f: %.5f of %.0f positions; [MASK] %.4f random %.4f kept %.4f\n",
                      rates[r], t.masked / t.positions, t.positions, t.mask_id / t.all,
                      t.random / t.all, t.kept / t.all);
        assert_true(within(t.masked, t.positions, rates[r]));
        loader_close(&l);
    }
}

static void every_position_is_masked_as_often(void **state)
{
    (void)state;
    struct loader l;
    struct batch b;
    struct tally t = {0};
    settings.data_short_seq_prob = 0;
    open_ranks(&l, 0, 1);
    make_batch(&b, 1);
    tally_epochs(&t, &l, &b, 5e5);
    double p = round(0.15 * (S - 2)) / (S - 2), chi = 0;
    assert_true(t.at[0] == 0 && t.at[S - 1] == 0 && t.full > 500);
    for (int i = 1; i < S - 1; i++)
        chi += pow(t.at[i] - t.full * p, 2) / (t.full * p * (1 - p));
    assert_true(chi < 62 + 4 * sqrt(2 * 62)); /* 61 degrees of freedom */
    loader_close(&l);
}

/* [UNK] in the text is no target; a text of it alone has none. */
static void special_ids_of_the_text_are_never_masked(void **state)
{
    (void)state;
    struct indexed_writer w = {0};
    struct loader l;
    struct batch b;
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = i < 10 ? FIRST + i : UNK;
    assert_int_equal(indexed_open(&w, scratch("unk"), VOCAB), ERR_OK);
    assert_int_equal(indexed_sentence(&w, ids, 40), ERR_OK);
    assert_int_equal(indexed_document_end(&w), ERR_OK);
    assert_int_equal(indexed_sentence(&w, ids + 10, 30), ERR_OK);
    assert_int_equal(indexed_close(&w), ERR_OK);
    struct config_list list = {(const char *[]){scratch("unk.bin")}, 1};
    struct loader_options o = options(0, 1);
    settings.data_mlm_probability = 0.5;
    settings.data_short_seq_prob = 0;
    for (int k = 0; k < 3; k++) {
        settings.data_mask = (enum data_mask)k;
        assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_OK);
        make_batch(&b, 2);
        for (uint64_t epoch = 0; epoch < 50; epoch++) {
            batch_clear(&b);
            objective_mlm.append(&l, 0, 2 * epoch, &b);
            size_t targets = batch_targets(&b);
            assert_true(k ? targets >= 1 && targets <= 10 : targets == 5);
            for (size_t i = 0; i < b.tokens_count; i++)
                assert_true(b.targets[i] < 0 || b.targets[i] >= FIRST);
            objective_mlm.append(&l, 1, 2 * epoch + 1, &b);
            assert_int_equal(batch_targets(&b), targets);
        }
        loader_close(&l);
    }
}

static bool starts_word(const struct batch *b, size_t i)
{
    return original(b, i) >= FIRST && (original(b, i - 1) < FIRST || !continues[original(b, i)]);
}

/* A word is masked as a whole or not at all; with n-grams runs of up to three words are masked
 * together more often than by chance. */
static void whole_words_are_masked(void **state)
{
    (void)state;
    struct loader l;
    struct batch b;
    double neighbours[3] = {0}, words[3] = {0};
    for (int k = 1; k < 3; k++) {
        struct tally t = {0};
        settings.data_mask = (enum data_mask)k;
        settings.data_short_seq_prob = 0;
        open_ranks(&l, 0, 1);
        make_batch(&b, 1);
        for (uint64_t place = 0; place < 3000; place++) {
            batch_clear(&b);
            objective_mlm.append(&l, loader_order(&l, place), place, &b);
            tally_sequence(&t, &b, 0, b.tokens_count);
            bool before = false;
            for (size_t i = 1; i + 1 < b.tokens_count; i++) {
                bool masked = b.targets[i] >= 0;
                if (!starts_word(&b, i)) {
                    assert_int_equal(masked, b.targets[i - 1] >= 0);
                    continue;
                }
                words[k] += masked;
                neighbours[k] += masked && before;
                before = masked;
            }
        }
        /* Never more than the count, unless one word alone is longer; nearly all of it. */
        assert_true(t.masked <= t.expected * 1.01 && t.masked > t.expected * 0.97);
        loader_close(&l);
    }
    /* In runs of n words n - 1 have a masked word before them: with 6/11, 3/11 and 2/11 of the
     * runs 7 of 18 words, less for runs that are cut short; single words 0.15 by chance. */
    double alone = neighbours[1] / words[1], run = neighbours[2] / words[2];
    print_message("masked word before a masked word: word %.3f, ngram %.3f\n", alone, run);
    assert_true(alone > 0.09 && alone < 0.18);
    assert_true(run > 0.28 && run < 0.45);
}

/* ---- pairs ---- */

static void pairs_are_labelled_as_they_are(void **state)
{
    (void)state;
    struct loader l;
    struct batch b;
    for (int k = DATA_PAIRS_NSP; k <= DATA_PAIRS_SOP; k++) {
        double changed = 0, all = 0, filled = 0;
        settings.data_pairs = (enum data_pairs)k;
        open_ranks(&l, 0, 1);
        make_batch(&b, 1);
        for (uint64_t place = 0; place < 8 * l.windows; place++, all++) {
            batch_clear(&b);
            objective_mlm.append(&l, loader_order(&l, place), place, &b);
            size_t end = b.tokens_count, second = check_sequence(&b, 0, end, true);
            int32_t a_end = original(&b, second - 2), b_begin = original(&b, second),
                    a_begin = original(&b, 1), label = b.labels[0];
            bool same = document_of[a_begin] == document_of[b_begin];
            bool before = b_begin > a_end;
            changed += label;
            filled += end == S;
            assert_true(label == 0 || label == 1);
            if (label == 0 || k == DATA_PAIRS_SOP) {
                assert_true(same && before == !label);
                /* A is all sentences before B's: the cut between them is a sentence's begin. */
                int32_t later = before ? b_begin : a_begin, earlier = before ? a_end : b_begin;
                assert_true(sentence_of[later] > sentence_of[earlier]);
            } else {
                assert_false(same);
            }
        }
        assert_true(within(changed, all, 0.5));
        print_message("%s: %.4f of %.0f pairs changed, %.2f full\n",
                      k == DATA_PAIRS_NSP ? "nsp" : "sop", changed / all, all, filled / all);
        assert_true(filled / all > 0.5);
        loader_close(&l);
    }
}

static void texts_that_make_no_pairs_are_refused(void **state)
{
    (void)state;
    struct loader l;
    struct loader_options o = options(0, 1);
    struct config_list list = {(const char *[]){scratch("one.bin")}, 1};
    const int32_t ids[] = {FIRST, FIRST + 1};
    for (int documents = 1; documents <= 2; documents++) {
        struct indexed_writer w = {0};
        assert_int_equal(indexed_open(&w, scratch("one"), VOCAB), ERR_OK);
        for (int i = 0; i < 2; i++)
            assert_int_equal(indexed_sentence(&w, ids, 2), ERR_OK);
        assert_int_equal(indexed_document_end(&w), ERR_OK);
        if (documents == 2)
            assert_int_equal(indexed_sentence(&w, ids, 2), ERR_OK);
        assert_int_equal(indexed_close(&w), ERR_OK);
        settings.data_pairs = DATA_PAIRS_NSP;
        assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_INPUT);
        assert_says(documents == 1 ? "one.bin: one document; data.pairs = nsp takes text of another"
                                   : "one.bin: document 1 has 1 sentence; data.pairs = nsp needs");
        settings.data_pairs = DATA_PAIRS_SOP;
        assert_int_equal(loader_open(&l, &arena, &list, &o), documents == 1 ? ERR_OK : ERR_INPUT);
        if (documents == 1)
            loader_close(&l);
    }
}

static void tokenizers_without_special_ids_are_refused(void **state)
{
    (void)state;
    struct loader l;
    struct loader_options o = options(0, 1);
    struct config_list list = {(const char *[]){scratch("m-*.bin")}, 1};
    struct sidecar s = sidecar_none();
    s.vocab = VOCAB;
    s.special[SIDECAR_CLS] = CLS;
    s.special[SIDECAR_SEP] = SEP;
    assert_int_equal(sidecar_write(&s, scratch_root), ERR_OK);
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_INPUT);
    assert_says("no special id \"mask\"");
    s.special[SIDECAR_MASK] = MASK;
    assert_int_equal(sidecar_write(&s, scratch_root), ERR_OK);
    settings.data_mask = DATA_MASK_NGRAM;
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_INPUT);
    assert_says("no \"word_start\" says which ids begin a word; data.mask = ngram needs it");
    assert_int_equal(file_remove(scratch("data.json")), ERR_OK);
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_INPUT);
    assert_says("m-0.bin: no data.json next to it; data.objective = mlm needs the ids");
    write_sidecar();
}

/* ---- ranks, epochs, evaluation ---- */

/* Digest of each sequence's bytes. */
static size_t digest_sequences(const struct batch *b, uint64_t *digests)
{
    size_t n = 0;
    for (size_t i = 0; i < b->sequences; i++) {
        size_t from = (size_t)b->cu_seqlens[i], count = (size_t)b->cu_seqlens[i + 1] - from;
        if (b->tokens[from] != CLS) { /* the filler */
            assert_int_equal(i, b->sequences - 1);
            assert_int_equal(b->tokens[from], PAD);
            continue;
        }
        uint32_t crc = digest_crc32c(0, b->tokens + from, count * sizeof *b->tokens);
        crc = digest_crc32c(crc, b->targets + from, count * sizeof *b->targets);
        crc = digest_crc32c(crc, b->types + from, count * sizeof *b->types);
        digests[n++] = (uint64_t)crc << 32 | (uint32_t)b->labels[i];
    }
    assert_int_equal(b->tokens_count % BATCH_UNIT, 0);
    return n;
}

static int compare_digests(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* All sequences of a step, sorted, by `ranks` ranks in micro-batches of `micro`. */
static size_t digest_step(uint32_t ranks, size_t micro, uint64_t step, uint64_t *digests,
                          struct target_counts *found)
{
    size_t n = 0;
    *found = (struct target_counts){0};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct loader l;
        struct batch b;
        open_ranks(&l, rank, ranks);
        make_batch(&b, micro);
        for (size_t at = 0; at < l.rank_sequences; at += micro) {
            size_t left = l.rank_sequences - at;
            objective_step(&l, step, at, left < micro ? left : micro, &b);
            n += digest_sequences(&b, digests + n);
            found->token += batch_targets(&b);
            found->sequence += batch_labels(&b);
        }
        struct target_counts said;
        objective_counts(&l, step, &said);
        if (rank + 1 == ranks) {
            assert_int_equal(said.token, found->token);
            assert_int_equal(said.sequence, found->sequence);
            double weight = objective_sequence_weight(&l, step);
            double expected = settings.data_pairs ? (double)said.token / (double)said.sequence : 1;
            assert_true(weight == expected);
        }
        loader_close(&l);
    }
    qsort(digests, n, sizeof *digests, compare_digests);
    return n;
}

static void a_step_is_the_same_for_any_ranks_and_micro_batches(void **state)
{
    (void)state;
    uint64_t one[48], other[48];
    struct target_counts counts, again;
    for (int pairs = 0; pairs <= DATA_PAIRS_SOP; pairs++)
        for (int mask = 0; mask <= DATA_MASK_NGRAM; mask++)
            for (uint64_t step = 3; step-- > 0;) {
                settings.data_pairs = (enum data_pairs)pairs;
                settings.data_mask = (enum data_mask)mask;
                assert_int_equal(digest_step(1, 48, 40 * step, one, &counts), 48);
                static const struct {
                    uint32_t ranks;
                    size_t micro;
                } cuts[] = {{1, 48}, {1, 5}, {2, 24}, {2, 7}, {4, 12}, {4, 1}, {3, 4}};
                for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
                    assert_int_equal(
                        digest_step(cuts[i].ranks, cuts[i].micro, 40 * step, other, &again), 48);
                    assert_memory_equal(one, other, sizeof one);
                    assert_memory_equal(&counts, &again, sizeof counts);
                }
            }
}

static void masks_are_drawn_anew_each_epoch_and_not_in_evaluation(void **state)
{
    (void)state;
    struct loader l;
    struct batch b[3];
    settings.data_short_seq_prob = 0;
    open_ranks(&l, 0, 1);
    size_t same = 0, targets = 0;
    for (int i = 0; i < 3; i++)
        make_batch(&b[i], 1);
    for (uint64_t e = 0; e < 200; e++) {
        objective_windows(&l, e, 1, &b[0]);
        objective_windows(&l, e, 1, &b[1]);
        assert_memory_equal(b[0].tokens, b[1].tokens, b[0].tokens_count * sizeof *b[0].tokens);
        assert_memory_equal(b[0].targets, b[1].targets, b[0].tokens_count * sizeof *b[0].targets);
        batch_clear(&b[2]);
        objective_mlm.append(&l, e, l.windows + e, &b[2]); /* the next epoch */
        for (size_t i = 0; i < b[2].tokens_count; i++) {
            assert_int_equal(original(&b[2], i), original(&b[0], i));
            targets += b[0].targets[i] >= 0;
            same += b[0].targets[i] >= 0 && b[2].targets[i] >= 0;
        }
    }
    assert_true(fabs((double)same / (double)targets - 0.15) < 0.03);
    loader_close(&l);
}

/* ---- the deal ---- */

static void read_numbers(FILE *f, size_t n, uint32_t *numbers)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fscanf(f, "%u", &numbers[i]), 1);
}

static void the_deal_is_numpys(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/deal/values.txt", "r");
    unsigned ranks, each, cases = 0;
    assert_non_null(f);
    for (; fscanf(f, "%u %u", &ranks, &each) == 2; cases++) {
        uint32_t lengths[256], expected[256], order[256];
        uint64_t keys[256];
        size_t n = (size_t)ranks * each;
        assert_true(n <= 256);
        read_numbers(f, n, lengths);
        read_numbers(f, n, expected);
        deal_snake(order, lengths, ranks, each, keys);
        assert_memory_equal(order, expected, n * sizeof *order);
    }
    assert_int_equal(cases, 7);
    fclose(f);
}

/* (max - min) / mean of the ranks' tokens. */
static double spread(const struct loader *l, uint64_t step, const uint32_t *order,
                     const uint32_t *lengths)
{
    double least = 1e30, most = 0, sum = 0;
    (void)step;
    for (size_t r = 0; r < 8; r++) {
        double tokens = 0;
        for (size_t i = 0; i < l->rank_sequences; i++)
            tokens += lengths[order ? order[r * l->rank_sequences + i] : r * l->rank_sequences + i];
        least = tokens < least ? tokens : least;
        most = tokens > most ? tokens : most;
        sum += tokens;
    }
    return (most - least) / (sum / 8);
}

/* Of each quarter of the lengths (Kim et al.'s strata) the ranks have as many, but for the rows at
 * its two ends. */
static void check_strata(const uint32_t *order, const uint32_t *lengths, size_t each)
{
    for (uint32_t stratum = 0; stratum < 4; stratum++) {
        size_t least = SIZE_MAX, most = 0;
        for (size_t r = 0; r < 8; r++) {
            size_t count = 0;
            for (size_t i = 0; i < each; i++)
                count += (lengths[order[r * each + i]] - 1) / (S / 4) == stratum;
            least = count < least ? count : least;
            most = count > most ? count : most;
        }
        assert_true(most - least <= 2);
    }
}

static int compare_doubles(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static void the_deal_evens_out_the_ranks(void **state)
{
    (void)state;
    enum { STEPS = 1000, EACH = 16 };
    static double dealt[STEPS], undealt[STEPS];
    struct loader l;
    struct loader_options o = options(0, 8);
    struct config_list list = {(const char *[]){scratch("m-*.bin")}, 1};
    uint32_t order[8 * EACH], lengths[8 * EACH];
    uint64_t keys[8 * EACH];
    settings.data_short_seq_prob = 0.3;
    o.batch_tokens = (size_t)8 * EACH * S;
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_OK);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint64_t i = 0; i < 8 * EACH; i++) {
            uint64_t place = step * 8 * EACH + i;
            lengths[i] = (uint32_t)objective_mlm.length(&l, loader_order(&l, place), place);
        }
        deal_snake(order, lengths, 8, EACH, keys);
        check_strata(order, lengths, EACH);
        dealt[step] = spread(&l, step, order, lengths);
        undealt[step] = spread(&l, step, NULL, lengths);
    }
    qsort(dealt, STEPS, sizeof *dealt, compare_doubles);
    qsort(undealt, STEPS, sizeof *undealt, compare_doubles);
    print_message("8 ranks, median (max - min) / mean tokens: dealt %.3f, undealt %.3f\n",
                  dealt[STEPS / 2], undealt[STEPS / 2]);
    assert_true(dealt[STEPS / 2] <= 0.03);
    assert_true(undealt[STEPS / 2] >= 0.15);
    loader_close(&l);
}

/* A loader with another seed deals as one that was opened with it, also in the step dealt last. */
static void another_seed_deals_again(void **state)
{
    (void)state;
    enum { RANKS = 8, EACH = 4 };
    struct loader l[2];
    struct batch b[2];
    struct loader_options o = options(3, RANKS);
    struct config_list list = {(const char *[]){scratch("m-*.bin")}, 1};
    settings.data_short_seq_prob = 0.3;
    o.batch_tokens = (size_t)RANKS * EACH * S;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(loader_open(&l[i], &arena, &list, &o), ERR_OK);
        assert_int_equal(objective_batch_open(o.objective, &b[i], &arena, EACH, S), ERR_OK);
        o.seed += 10;
    }
    objective_step(&l[0], 2, 0, EACH, &b[0]);
    loader_seed(&l[0], l[1].options.seed);
    for (int i = 0; i < 2; i++)
        objective_step(&l[i], 2, 0, EACH, &b[i]);
    assert_int_equal(b[0].tokens_count, b[1].tokens_count);
    assert_memory_equal(b[0].tokens, b[1].tokens, b[0].tokens_count * sizeof *b[0].tokens);
    for (int i = 0; i < 2; i++)
        loader_close(&l[i]);
}

/* ---- labels ---- */

static enum err encode(void *self, const char *text, size_t bytes, struct arena *a, int32_t **ids,
                       size_t *count)
{
    (void)self;
    TRY_ALLOC(*ids = arena_array(a, bytes, sizeof **ids));
    for (size_t i = 0; i < bytes; i++)
        (*ids)[i] = 5 + (uint8_t)text[i];
    *count = bytes;
    return ERR_OK;
}

static void make_labelled_by(const char *out, const char *text, bool owners)
{
    struct labels_report report;
    const char *path = scratch_write("l.tsv", text, strlen(text));
    struct labels_options o = {.out = out,
                               .sites = 1,
                               .encoder = {.encode = encode},
                               .of = sidecar_none(),
                               .owners = owners};
    o.of.vocab = 300;
    o.of.special[SIDECAR_CLS] = CLS;
    o.of.special[SIDECAR_SEP] = SEP;
    if (labels_prepare(&path, 1, &o, &arena, &report))
        fail_msg("%s", err_message());
}

static void make_labelled(const char *out, const char *text)
{
    make_labelled_by(out, text, false);
}

static void labelled_texts_become_sequences(void **state)
{
    (void)state;
    struct loader l;
    struct batch b;
    struct target_counts c;
    char items[3][200];
    struct loader_options o = options(0, 1);
    o.sequence = 10;
    o.batch_tokens = 40;
    o.objective = &objective_labels;
    make_labelled(scratch("la"), "a\tone\nb\tfourteen letters\n");
    make_labelled(scratch("lp"), "b\tabcdefgh\txyz\na\tab\tcdefgh\n");
    make_labelled(scratch("lb"), "no\tx\nyes\ty\nmaybe\tz\n");
    snprintf(items[0], sizeof items[0], "first=%s/train-*.bin", scratch("la"));
    snprintf(items[1], sizeof items[1], "pairs=%s/train-*.bin", scratch("lp"));
    snprintf(items[2], sizeof items[2], "second=%s/train-*.bin", scratch("lb"));
    struct config_list list = {(const char *[]){items[0], items[1], items[2]}, 3};
    settings.data_objective = DATA_OBJECTIVE_LABELS;
    settings.data_train = list;
    if (loader_open(&l, &arena, &list, &o))
        fail_msg("%s", err_message());
    assert_int_equal(l.windows, 7);
    assert_int_equal(objective_batch_open(&objective_labels, &b, &arena, 7, 10), ERR_OK);
    objective_windows(&l, 0, 7, &b);
    assert_int_equal(b.tokens_count, 64);
    assert_int_equal(b.sequences, 8);
    static const struct {
        const char *text; /* ^ [CLS], | [SEP] */
        int32_t label, task;
    } expected[] = {{"^one|", 0, 0},      {"^fourteen|", 1, 0}, {"^abcd|xyz|", 1, 1},
                    {"^ab|cdefg|", 0, 1}, {"^x|", 1, 2},        {"^y|", 2, 2},
                    {"^z|", 0, 2}};
    for (size_t i = 0; i < 7; i++) {
        size_t from = (size_t)b.cu_seqlens[i], n = (size_t)b.cu_seqlens[i + 1] - from, type = 0;
        assert_int_equal(n, strlen(expected[i].text));
        for (size_t j = 0; j < n; j++) {
            char x = expected[i].text[j];
            assert_int_equal(b.tokens[from + j], x == '^' ? CLS : x == '|' ? SEP : 5 + x);
            assert_int_equal(b.types[from + j], type);
            assert_int_equal(b.targets[from + j], -1);
            type += x == '|';
        }
        assert_int_equal(b.labels[i], expected[i].label);
        assert_int_equal(b.tasks[i], expected[i].task);
    }
    assert_int_equal(b.labels[7], -1);
    objective_counts(&l, 0, &c);
    assert_true(c.token == 0 && c.sequence == 4);
    assert_true(objective_sequence_weight(&l, 0) == 1);
    assert_int_equal(objective_divisor(&l, &b), 7);
    loader_close(&l);

    settings.data_classes = (struct config_list){
        (const char *[]){"first=a", "first=b", "second=maybe", "second=no", "second=yes"}, 5};
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_OK);
    loader_close(&l);
    settings.data_classes.items = (const char *[]){"first=b", "first=a"};
    settings.data_classes.count = 2;
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_MISMATCH);
    assert_says("class 0 is \"a\" in its data.json and \"b\" in data.classes");
    settings.data_classes.items = (const char *[]){"second=maybe", "second=no"};
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_MISMATCH);
    assert_says("its data.json names 3 classes, data.classes 2");
    settings.data_classes.count = 0;
    snprintf(items[1], sizeof items[1], "third=%s/train-*.bin", scratch("lb"));
    settings.data_train = (struct config_list){(const char *[]){"first=x", "second=y"}, 2};
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_INPUT);
    assert_says("\"third\" is not the name of a task of data.train");
    list = (struct config_list){(const char *[]){scratch("m-0.bin")}, 1};
    write_sidecar();
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_INPUT);
    assert_says("no labels next to it (.labels)");
}

static struct loader_text text_of(const char *directory)
{
    struct loader l;
    struct loader_options o = options(0, 1);
    o.sequence = 10;
    o.batch_tokens = 40;
    o.objective = &objective_labels;
    const char *shard = arena_printf(&arena, "%s/train-0-0000.bin", directory);
    settings.data_objective = DATA_OBJECTIVE_LABELS;
    settings.data_train = (struct config_list){&shard, 1};
    if (loader_open(&l, &arena, &settings.data_train, &o))
        fail_msg("%s", err_message());
    const struct loader_text t = loader_text(&l);
    loader_close(&l);
    return t;
}

/* A restart with a labels or owners file of the same size, and other classes or people in it. */
static void other_labels_are_another_text(void **state)
{
    (void)state;
    const char *directory = scratch("lc"), *const beside[] = {"labels", "owners"};
    make_labelled_by(directory, "p\ta\tone\nq\tb\tfourteen\np\ta\ttwo\nr\tb\tletters\n", true);
    const struct loader_text is = text_of(directory);
    for (int i = 0; i < 2; i++) {
        const char *path = arena_printf(&arena, "%s/train-0-0000.%s", directory, beside[i]);
        uint8_t *data;
        size_t size;
        assert_int_equal(file_read(path, 4096, &arena, &data, &size), ERR_OK);
        const struct loader_text before = text_of(directory);
        assert_int_equal(loader_text_compare(&is, &before), LOADER_TEXT_SAME);
        data[size - (i ? 1 : 4)] ^= 1;
        assert_int_equal(file_write(path, &(struct file_part){data, size}, 1, 0644), ERR_OK);
        const struct loader_text other = text_of(directory);
        assert_int_equal(other.tokens, is.tokens);
        assert_int_equal(loader_text_compare(&is, &other), LOADER_TEXT_FILES);
        data[size - (i ? 1 : 4)] ^= 1;
        assert_int_equal(file_write(path, &(struct file_part){data, size}, 1, 0644), ERR_OK);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(an_epoch_shows_each_token_once),
        T(shards_without_documents_are_cut_into_runs),
        T(short_examples_are_a_share),
        T(rates_are_as_published),
        T(every_position_is_masked_as_often),
        T(special_ids_of_the_text_are_never_masked),
        T(whole_words_are_masked),
        T(pairs_are_labelled_as_they_are),
        T(texts_that_make_no_pairs_are_refused),
        T(tokenizers_without_special_ids_are_refused),
        T(a_step_is_the_same_for_any_ranks_and_micro_batches),
        T(masks_are_drawn_anew_each_epoch_and_not_in_evaluation),
        T(the_deal_is_numpys),
        T(the_deal_evens_out_the_ranks),
        T(another_seed_deals_again),
        T(labelled_texts_become_sequences),
        T(other_labels_are_another_text),
    };
    int failed = cmocka_run_group_tests(tests, open_text, scratch_close);
    arena_free(&arena);
    return failed;
}
