/* SPDX-License-Identifier: Apache-2.0 */
/* Masks of one sequence. Of the chosen ids 80 % become [MASK], 10 % a random id, 10 % stay (Devlin
 * et al. 2019); the rest of the sequence has no target.
 */
#include <math.h>
#include "inner/data/mlm.h"

enum { NGRAM_MAX = 3 };

/* ---- the choice: a chosen id is stored as its complement, which is negative ---- */

static int32_t id_of(int32_t stored)
{
    return stored < 0 ? ~stored : stored;
}

static bool maskable(const struct mlm *m, int32_t stored)
{
    return !(m->flags[id_of(stored)] & MLM_SPECIAL);
}

/* Each subset of that size is as likely (Knuth, The Art of Computer Programming 2, 3.4.2,
 * algorithm S). */
static void choose_tokens(const struct mlm *m, struct mlm_draws *d, int32_t *ids, size_t n,
                          size_t count, size_t among)
{
    for (size_t i = 0; i < n && count; i++) {
        if (!maskable(m, ids[i]))
            continue;
        if (mlm_draw_below(d, among--) >= count)
            continue;
        ids[i] = ~ids[i];
        count--;
    }
}

/* First ids of words: the one after a special id starts one in any case. */
static size_t find_words(const struct mlm *m, const int32_t *ids, size_t n, int32_t *words)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        bool inside = i && maskable(m, ids[i - 1]) && m->flags[ids[i]] & MLM_CONTINUES;
        if (maskable(m, ids[i]) && !inside)
            words[count++] = (int32_t)i;
    }
    return count;
}

/* The end of the word at `at`. */
static size_t word_end(const struct mlm *m, const int32_t *ids, size_t n, size_t at)
{
    for (at++; at < n && maskable(m, ids[at]); at++)
        if (!(m->flags[id_of(ids[at])] & MLM_CONTINUES))
            break;
    return at;
}

/* Words in one go: 1, or with p(n) proportional to 1 / n up to 3 (Lan et al. 2020): 6/11, 3/11,
 * 2/11. */
static unsigned draw_words(const struct mlm *m, struct mlm_draws *d)
{
    if (m->mask != DATA_MASK_NGRAM)
        return 1;
    uint64_t x = mlm_draw_below(d, 11);
    return x < 6 ? 1 : x < 9 ? 2 : NGRAM_MAX;
}

/* The end of as many of `words` words as keep within `most` tokens and touch nothing chosen; `at`
 * itself: not even one does. */
static size_t run_end(const struct mlm *m, const int32_t *ids, size_t n, size_t at, unsigned words,
                      size_t most)
{
    size_t end = at;
    for (unsigned w = 0; w < words && end < n && maskable(m, ids[end]); w++) {
        size_t next = word_end(m, ids, n, end);
        if (ids[end] < 0 || next - at > most)
            break;
        end = next;
    }
    return end;
}

static void choose_run(int32_t *ids, size_t at, size_t end)
{
    for (; at < end; at++)
        ids[at] = ~ids[at];
}

/* Words in random order; one that would choose too many is left out. `words` is scratch. */
static void choose_words(const struct mlm *m, struct mlm_draws *d, int32_t *ids, size_t n,
                         size_t count, int32_t *words)
{
    size_t found = find_words(m, ids, n, words), chosen = 0;
    for (size_t i = 0; i < found && chosen < count; i++) {
        size_t other = i + (size_t)mlm_draw_below(d, found - i);
        int32_t at = words[other];
        words[other] = words[i];
        words[i] = at;
        size_t end = run_end(m, ids, n, (size_t)at, draw_words(m, d), count - chosen);
        choose_run(ids, (size_t)at, end);
        chosen += end - (size_t)at;
    }
    if (!chosen) /* all are longer than that: one of them, so that there is a target */
        choose_run(ids, (size_t)words[0], word_end(m, ids, n, (size_t)words[0]));
}

/* ---- what becomes of them ---- */

/* Uniform among the ids that are not special. */
static int32_t random_id(const struct mlm *m, struct mlm_draws *d)
{
    int64_t vocab = m->l->sidecar.vocab - (int64_t)m->specials_count;
    int32_t id = (int32_t)mlm_draw_below(d, (uint64_t)vocab);
    for (size_t i = 0; i < m->specials_count; i++)
        id += id >= m->specials[i];
    return id;
}

static int32_t replacement(const struct mlm *m, struct mlm_draws *d, int32_t id)
{
    uint32_t tenth = (uint32_t)mlm_draw_below(d, 10);
    return tenth < 8 ? m->l->sidecar.special[SIDECAR_MASK] : tenth < 9 ? random_id(m, d) : id;
}

size_t mlm_mask(const struct mlm *m, struct mlm_draws *d, int32_t *ids, int32_t *targets, size_t n)
{
    size_t among = 0, masked = 0;
    for (size_t i = 0; i < n; i++)
        among += maskable(m, ids[i]);
    size_t count = (size_t)lrint(m->rate * (double)among); /* ties to even: no bias */
    count = count < 1 ? 1 : count;
    if (!among)
        count = 0;
    else if (m->mask == DATA_MASK_TOKEN)
        choose_tokens(m, d, ids, n, count, among);
    else
        choose_words(m, d, ids, n, count, targets);
    for (size_t i = 0; i < n; i++) {
        targets[i] = ids[i] < 0 ? ~ids[i] : -1;
        if (ids[i] >= 0)
            continue;
        ids[i] = replacement(m, d, targets[i]);
        masked++;
    }
    return masked;
}
