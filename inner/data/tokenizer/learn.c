/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/learn_own.h"

/* ---- tokens ---- */

/* The name of a pair: both names, the second without its "##". */
static enum err pair_token(struct learn *l, int32_t left, int32_t right, int32_t *id)
{
    struct buffer name = {0};
    const struct learn_token *a = &l->tokens[left], *b = &l->tokens[right];
    size_t skip = l->o->kind == TOKENIZER_WORDPIECE ? 2 : 0;
    enum err e = buffer_add(&name, l->text.data + a->at, a->bytes);
    e = e ? e : buffer_add(&name, l->text.data + b->at + skip, b->bytes - skip);
    e = e ? e : learn_token(l, name.data, name.count, id);
    buffer_free(&name);
    return e;
}

/* ---- pairs ---- */

static uint64_t pair_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static struct learn_pair *pair_slot(struct learn_pair *pairs, size_t mask, uint64_t key)
{
    size_t slot = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & mask;
    while (pairs[slot].key && pairs[slot].key != key)
        slot = (slot + 1) & mask;
    return &pairs[slot];
}

static enum err pairs_grow(struct learn *l)
{
    size_t slots = l->pairs.list ? 2 * (l->pairs.mask + 1) : 1 << 14;
    struct learn_pair *pairs = calloc(slots, sizeof *pairs);
    if (!pairs)
        return err_set(ERR_MEMORY, "no memory for %zu pairs of tokens", slots);
    for (size_t i = 0; l->pairs.list && i <= l->pairs.mask; i++)
        if (l->pairs.list[i].key)
            *pair_slot(pairs, slots - 1, l->pairs.list[i].key) = l->pairs.list[i];
    free(l->pairs.list);
    l->pairs.list = pairs;
    l->pairs.mask = slots - 1;
    return ERR_OK;
}

static enum err pair_find(struct learn *l, uint64_t key, struct learn_pair **p)
{
    if (2 * (l->pairs.count + 1) > l->pairs.mask)
        TRY(pairs_grow(l));
    *p = pair_slot(l->pairs.list, l->pairs.mask, key);
    l->pairs.count += !(*p)->key;
    (*p)->key = key;
    return ERR_OK;
}

static enum err pair_word_add(struct learn_pair *p, uint32_t word)
{
    if (p->word_count && p->words[p->word_count - 1] == word)
        return ERR_OK;
    if (p->word_count == p->word_room) {
        void *words = p->words;
        size_t room = p->word_room;
        if (p->word_count > UINT32_MAX / 2)
            return err_set(ERR_MEMORY, "a pair of tokens in more than 2^31 places");
        TRY(buffer_grow(&words, &room, p->word_count + 1, sizeof *p->words));
        p->words = words;
        p->word_room = (uint32_t)room;
    }
    p->words[p->word_count++] = word;
    return ERR_OK;
}

/* ---- candidates: most frequent first, then the lower ids ---- */

static bool is_before(struct learn_candidate a, struct learn_candidate b)
{
    return a.times != b.times ? a.times > b.times : a.key < b.key;
}

static enum err candidate_push(struct learn *l, struct learn_candidate c)
{
    if (l->heap.count == l->heap.room) {
        void *heap = l->heap.list;
        TRY(buffer_grow(&heap, &l->heap.room, l->heap.count + 1, sizeof *l->heap.list));
        l->heap.list = heap;
    }
    size_t at = l->heap.count++;
    for (; at && is_before(c, l->heap.list[(at - 1) / 2]); at = (at - 1) / 2)
        l->heap.list[at] = l->heap.list[(at - 1) / 2];
    l->heap.list[at] = c;
    return ERR_OK;
}

static struct learn_candidate candidate_pop(struct learn *l)
{
    struct learn_candidate top = l->heap.list[0], last = l->heap.list[--l->heap.count];
    size_t at = 0, child;
    for (; (child = 2 * at + 1) < l->heap.count; at = child) {
        if (child + 1 < l->heap.count && is_before(l->heap.list[child + 1], l->heap.list[child]))
            child++;
        if (!is_before(l->heap.list[child], last))
            break;
        l->heap.list[at] = l->heap.list[child];
    }
    l->heap.list[at] = last;
    return top;
}

/* ---- learning ---- */

static enum err pairs_count(struct learn *l)
{
    struct learn_pair *p;
    for (size_t i = 0; i < l->word_count; i++) {
        const struct learn_word *w = &l->words[i];
        for (size_t j = 0; j + 1 < w->count; j++) {
            const int32_t *s = l->symbols + w->first + j;
            TRY(pair_find(l, pair_key(s[0], s[1]), &p));
            p->times += (int64_t)w->times;
            TRY(pair_word_add(p, (uint32_t)i));
        }
    }
    for (size_t i = 0; i <= l->pairs.mask && l->pairs.list; i++)
        if (l->pairs.list[i].key)
            TRY(candidate_push(
                l, (struct learn_candidate){l->pairs.list[i].times, l->pairs.list[i].key}));
    return ERR_OK;
}

/* Takes the pairs of a word away, or adds them; a pair with the new token becomes a candidate. */
static enum err word_pairs(struct learn *l, uint32_t word, int sign, int32_t made, uint32_t round,
                           struct buffer *fresh)
{
    const struct learn_word *w = &l->words[word];
    struct learn_pair *p;
    for (size_t j = 0; j + 1 < w->count; j++) {
        const int32_t *s = l->symbols + w->first + j;
        TRY(pair_find(l, pair_key(s[0], s[1]), &p));
        p->times += sign * (int64_t)w->times;
        if (sign < 0 || (s[0] != made && s[1] != made))
            continue;
        TRY(pair_word_add(p, word));
        if (p->round != round + 1)
            TRY(buffer_add(fresh, &p->key, sizeof p->key));
        p->round = round + 1;
    }
    return ERR_OK;
}

static bool word_has(const struct learn *l, uint32_t word, int32_t left, int32_t right)
{
    const struct learn_word *w = &l->words[word];
    const int32_t *s = l->symbols + w->first;
    for (size_t j = 0; j + 1 < w->count; j++)
        if (s[j] == left && s[j + 1] == right)
            return true;
    return false;
}

static void word_merge(struct learn *l, uint32_t word, int32_t left, int32_t right, int32_t made)
{
    struct learn_word *w = &l->words[word];
    int32_t *s = l->symbols + w->first;
    uint32_t kept = 0;
    for (uint32_t j = 0; j < w->count; j++) {
        bool merged = j + 1 < w->count && s[j] == left && s[j + 1] == right;
        s[kept++] = merged ? made : s[j];
        j += merged;
    }
    w->count = kept;
}

static enum err pair_merge(struct learn *l, uint64_t key, uint32_t round, struct buffer *fresh)
{
    int32_t left = (int32_t)((key - 1) >> 32), right = (int32_t)(uint32_t)(key - 1), made;
    TRY(pair_token(l, left, right, &made));
    TRY(buffer_ids_add(&l->merges, left));
    TRY(buffer_ids_add(&l->merges, right));
    struct learn_pair *p = pair_slot(l->pairs.list, l->pairs.mask, key);
    uint32_t *words = p->words, count = p->word_count;
    p->words = NULL; /* a word that has the pair again joins a new list */
    p->word_count = p->word_room = 0;
    enum err e = ERR_OK;
    for (uint32_t i = 0; !e && i < count; i++) {
        if (!word_has(l, words[i], left, right))
            continue;
        e = word_pairs(l, words[i], -1, made, round, fresh);
        word_merge(l, words[i], left, right, made);
        e = e ? e : word_pairs(l, words[i], 1, made, round, fresh);
    }
    free(words);
    return e;
}

static enum err fresh_push(struct learn *l, const struct buffer *fresh)
{
    for (size_t at = 0; at < fresh->count; at += sizeof(uint64_t)) {
        uint64_t key;
        memcpy(&key, fresh->data + at, sizeof key);
        int64_t times = pair_slot(l->pairs.list, l->pairs.mask, key)->times;
        if (times > 0)
            TRY(candidate_push(l, (struct learn_candidate){times, key}));
    }
    return ERR_OK;
}

static enum err pairs_learn(struct learn *l, struct buffer *fresh)
{
    for (uint32_t round = 0; l->token_count < l->o->size && l->heap.count;) {
        struct learn_candidate c = candidate_pop(l);
        int64_t times = pair_slot(l->pairs.list, l->pairs.mask, c.key)->times;
        if (times != c.times) { /* out of date: merges since then took some away */
            if (times > 0)
                TRY(candidate_push(l, (struct learn_candidate){times, c.key}));
            continue;
        }
        fresh->count = 0;
        TRY(pair_merge(l, c.key, round++, fresh));
        TRY(fresh_push(l, fresh));
    }
    return ERR_OK;
}

static void learn_close(struct learn *l)
{
    for (size_t i = 0; l->pairs.list && i <= l->pairs.mask; i++)
        free(l->pairs.list[i].words);
    free(l->pairs.list);
    free(l->heap.list);
    free(l->symbols);
    free(l->words);
    free(l->tokens);
    trie_close(&l->names);
    buffer_free(&l->text);
    buffer_ids_free(&l->merges);
}

static enum err learn_all(struct learn *l, const struct tally *w, const char *directory)
{
    struct buffer fresh = {0};
    TRY(trie_open(&l->names));
    TRY(learn_alphabet(l, w));
    if (l->token_count >= l->o->size)
        return err_set(
            ERR_CONFIG,
            "a vocabulary of %zu tokens has no room: %zu are special tokens and characters",
            l->o->size, l->token_count);
    TRY(pairs_count(l));
    enum err e = pairs_learn(l, &fresh);
    buffer_free(&fresh);
    return e ? e : learn_files_write(l, directory);
}

enum err learn_write(const struct tally *w, const struct learn_options *o, const char *directory)
{
    struct learn l = {.o = o};
    enum err e = learn_all(&l, w, directory);
    learn_close(&l);
    return e;
}
