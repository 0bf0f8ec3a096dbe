/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/units.h"
#include <stdlib.h>
#include "inner/data/owners.h"

uint64_t units_windows(const struct units *u, uint64_t unit)
{
    ASSERT(unit < u->count);
    return u->first ? u->first[unit + 1] - u->first[unit] : 1;
}

uint64_t units_window(const struct units *u, uint64_t unit, uint64_t i)
{
    ASSERT(i < units_windows(u, unit));
    uint64_t place = u->first ? u->first[unit] + i : unit;
    return u->windows ? u->windows[place] : place;
}

/* ---- documents ---- */

struct document {
    size_t shard;
    uint64_t number; /* within the shard */
};

/* The first token of a document; of documents_count: that after the last. */
static uint64_t document_token(const struct indexed *x, uint64_t document)
{
    uint64_t sentence = indexed_document(x, document);
    return sentence < x->sentences ? indexed_first(x, sentence) : x->tokens;
}

/* The last document that does not begin after the token. */
static struct document document_of(const struct loader *l, uint64_t window)
{
    struct document d;
    uint64_t token;
    l->options.objective->origin(l, window, &d.shard, &token);
    const struct indexed *x = &l->set.shards[d.shard].index;
    uint64_t low = 0, high = x->documents_count;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        if (document_token(x, middle) <= token)
            low = middle;
        else
            high = middle;
    }
    d.number = low;
    return d;
}

static enum err check_documents(const struct loader *l, enum privacy_unit unit)
{
    for (size_t i = 0; i < l->set.count; i++)
        if (!l->set.shards[i].indexed)
            return err_set(ERR_INPUT,
                           "%s: privacy.unit = %s, and no index next to this shard (.idx) says "
                           "where its documents are: atoll data --documents makes such shards",
                           l->set.shards[i].path, config_choice_name(privacy_unit_choices, unit));
    return ERR_OK;
}

static enum err check_owners(const struct loader *l)
{
    for (size_t i = 0; i < l->set.count; i++)
        if (!l->set.shards[i].owners)
            return err_set(
                ERR_INPUT,
                "%s: privacy.unit = owner, and no list next to this shard (.owners) says "
                "whose its documents are: atoll data --owner-field or --owners makes "
                "one; or use privacy.unit = document, whose claim is weaker",
                l->set.shards[i].path);
    return ERR_OK;
}

/* The windows of a document follow each other. */
static enum err open_documents(struct units *u, const struct loader *l, struct arena *perm)
{
    struct document before = {SIZE_MAX, 0};
    TRY_ALLOC(u->first = arena_array(perm, l->windows + 1, sizeof *u->first));
    for (uint64_t w = 0; w < l->windows; w++) {
        struct document d = document_of(l, w);
        if (d.shard != before.shard || d.number != before.number)
            u->first[u->count++] = w;
        before = d;
    }
    u->first[u->count] = l->windows;
    return ERR_OK;
}

/* ---- owners ---- */
struct owned { /* a window */
    struct owner owner;
    uint64_t window;
};

static int compare_owned(const void *a, const void *b)
{
    const struct owned *x = a, *y = b;
    int order = owners_compare(&x->owner, &y->owner);
    return order ? order : (x->window > y->window) - (x->window < y->window);
}

static void sort_owned(struct units *u, const struct loader *l, struct owned *all)
{
    for (uint64_t w = 0; w < l->windows; w++) {
        struct document d = document_of(l, w);
        all[w] = (struct owned){owners_at(l->set.shards[d.shard].owners, d.number), w};
    }
    qsort(all, l->windows, sizeof *all, compare_owned);
    for (uint64_t i = 0; i < l->windows; i++) {
        if (!i || owners_compare(&all[i].owner, &all[i - 1].owner))
            u->first[u->count++] = i;
        u->windows[i] = all[i].window;
    }
    u->first[u->count] = l->windows;
}

static enum err open_owners(struct units *u, const struct loader *l, struct arena *perm)
{
    TRY_ALLOC(u->first = arena_array(perm, l->windows + 1, sizeof *u->first));
    TRY_ALLOC(u->windows = arena_array(perm, l->windows, sizeof *u->windows));
    struct owned *all = malloc(l->windows * sizeof *all);
    TRY_ALLOC(all);
    sort_owned(u, l, all);
    free(all);
    return ERR_OK;
}

enum err units_open(struct units *u, const struct loader *l, enum privacy_unit unit,
                    struct arena *perm)
{
    *u = (struct units){.count = l->windows};
    if (unit == PRIVACY_UNIT_SEQUENCE)
        return ERR_OK;
    TRY(check_documents(l, unit));
    u->count = 0;
    if (unit == PRIVACY_UNIT_DOCUMENT)
        return open_documents(u, l, perm);
    TRY(check_owners(l));
    return open_owners(u, l, perm);
}
