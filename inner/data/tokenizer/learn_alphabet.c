/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/learn_own.h"
#include "inner/data/tokenizer/tokenizer_own.h"

enum { POINTS = 0x110000 };

static const char *const wordpiece_specials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
static const char *const bpe_specials[] = {"<|endoftext|>"};

static enum err specials_learn(struct learn *l)
{
    bool pieces = l->o->kind == TOKENIZER_WORDPIECE;
    const char *const *specials = pieces ? wordpiece_specials : bpe_specials;
    int32_t id;
    l->special_count = pieces ? sizeof wordpiece_specials / sizeof *wordpiece_specials
                              : sizeof bpe_specials / sizeof *bpe_specials;
    for (size_t i = 0; i < l->special_count; i++)
        TRY(learn_token(l, (const uint8_t *)specials[i], strlen(specials[i]), &id));
    return ERR_OK;
}

/* ---- characters, for WordPiece ---- */

struct points {
    uint64_t *times;       /* [POINTS] how often a character occurs */
    bool *inside;          /* [POINTS] it occurs past the first place of a word */
    int32_t *first, *next; /* [POINTS] ids, -1: none */
    uint32_t *order;       /* of those that occur */
    size_t count;
};

static void points_count(struct points *p, const struct tally *w)
{
    uint32_t point;
    for (size_t i = 0; i < w->count; i++) {
        const struct tally_entry *e = &w->entries[i];
        for (size_t at = 0; at < e->bytes;) {
            size_t bytes = unicode_read(w->text.data + e->at + at, e->bytes - at, &point);
            p->times[point] += e->count;
            p->inside[point] = p->inside[point] || at > 0;
            at += bytes;
        }
    }
    for (uint32_t c = 0; c < POINTS; c++)
        if (p->times[c])
            p->order[p->count++] = c;
}

static int by_times(const void *a, const void *b, void *self)
{
    const struct points *p = self;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (p->times[x] != p->times[y])
        return p->times[x] > p->times[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static int by_point(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* "c" for each character of the alphabet, then "##c" for each that occurs inside of a word. */
static enum err points_learn(struct learn *l, struct points *p)
{
    uint8_t name[2 + UNICODE_BYTES_MAX] = "##";
    if (l->o->alphabet_max && p->count > l->o->alphabet_max) {
        qsort_r(p->order, p->count, sizeof *p->order, by_times, p);
        p->count = l->o->alphabet_max;
        qsort(p->order, p->count, sizeof *p->order, by_point);
    }
    for (size_t i = 0; i < POINTS; i++)
        p->first[i] = p->next[i] = -1;
    for (int inside = 0; inside < 2; inside++)
        for (size_t i = 0; i < p->count; i++) {
            uint32_t c = p->order[i];
            size_t bytes = unicode_write(c, name + 2);
            if (!inside)
                TRY(learn_token(l, name + 2, bytes, &p->first[c]));
            else if (p->inside[c])
                TRY(learn_token(l, name, bytes + 2, &p->next[c]));
        }
    return ERR_OK;
}

/* Characters beyond the alphabet are left out. */
static size_t word_points(struct learn *l, const struct points *p, const uint8_t *s, size_t n,
                          size_t first)
{
    size_t count = 0;
    uint32_t point;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        bytes = unicode_read(s + at, n - at, &point);
        int32_t id = at ? p->next[point] : p->first[point];
        if (id >= 0)
            l->symbols[first + count++] = id;
    }
    return count;
}

static size_t word_bytes(struct learn *l, const int32_t *ids, const uint8_t *s, size_t n,
                         size_t first)
{
    for (size_t i = 0; i < n; i++)
        l->symbols[first + i] = ids[s[i]];
    return n;
}

static enum err words_symbols(struct learn *l, const struct tally *w, const struct points *p,
                              const int32_t *byte_ids)
{
    size_t used = 0;
    l->symbols = malloc((w->text.count + 1) * sizeof *l->symbols);
    l->words = malloc((w->count + 1) * sizeof *l->words);
    if (!l->symbols || !l->words || w->count > UINT32_MAX)
        return err_set(ERR_MEMORY, "no memory for %zu words", w->count);
    for (size_t i = 0; i < w->count; i++) {
        const struct tally_entry *e = &w->entries[i];
        const uint8_t *s = w->text.data + e->at;
        size_t count =
            p ? word_points(l, p, s, e->bytes, used) : word_bytes(l, byte_ids, s, e->bytes, used);
        l->words[l->word_count++] = (struct learn_word){used, (uint32_t)count, e->count};
        used += count;
    }
    return ERR_OK;
}

static enum err pieces_learn(struct learn *l, const struct tally *w, struct points *p)
{
    p->times = calloc(POINTS, sizeof *p->times);
    p->inside = calloc(POINTS, sizeof *p->inside);
    p->first = malloc(POINTS * sizeof *p->first);
    p->next = malloc(POINTS * sizeof *p->next);
    p->order = malloc(POINTS * sizeof *p->order);
    if (!p->times || !p->inside || !p->first || !p->next || !p->order)
        return err_set(ERR_MEMORY, "no memory for an alphabet");
    points_count(p, w);
    TRY(points_learn(l, p));
    return words_symbols(l, w, p, NULL);
}

/* ---- bytes, for BPE: in the order of the characters that stand for them ---- */

static enum err bytes_learn(struct learn *l, const struct tally *w)
{
    int32_t ids[256];
    for (uint32_t point = 0; point < 512; point++) {
        int byte = tokenizer_byte(point);
        uint8_t name = (uint8_t)byte;
        if (byte >= 0)
            TRY(learn_token(l, &name, 1, &ids[byte]));
    }
    return words_symbols(l, w, NULL, ids);
}

enum err learn_alphabet(struct learn *l, const struct tally *w)
{
    struct points p = {0};
    TRY(specials_learn(l));
    enum err e = l->o->kind == TOKENIZER_BPE ? bytes_learn(l, w) : pieces_learn(l, w, &p);
    free(p.times);
    free(p.inside);
    free(p.first);
    free(p.next);
    free(p.order);
    return e;
}

enum err learn_token(struct learn *l, const uint8_t *name, size_t bytes, int32_t *id)
{
    *id = trie_find(&l->names, name, bytes);
    if (*id >= 0)
        return ERR_OK;
    if (l->token_count == l->token_room) {
        void *tokens = l->tokens;
        TRY(buffer_grow(&tokens, &l->token_room, l->token_count + 1, sizeof *l->tokens));
        l->tokens = tokens;
    }
    *id = (int32_t)l->token_count;
    l->tokens[l->token_count++] = (struct learn_token){l->text.count, (uint32_t)bytes};
    TRY(trie_add(&l->names, name, bytes, *id));
    return buffer_add(&l->text, name, bytes);
}
