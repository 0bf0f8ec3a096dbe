/* SPDX-License-Identifier: Apache-2.0 */
/* The aggregator's own small files, written from memory: the rewritten journal, the term, and the
 * statement about the journal of a process that ends in order. */
#include <string.h>
#include "outer/aggregator/aggregator_signs.h"
#include "outer/aggregator/aggregator_sums.h"

enum err aggregator_journal_again(struct aggregator *a)
{
    struct arena scratch = arena_make(0);
    size_t n = 0, room = ((size_t)a->core.fragments + 1) * (a->members.count + 4) +
                         aggregator_organs_records(a, NULL);
    struct journal_record *keep = arena_array(&scratch, room, sizeof *keep);
    if (keep)
        keep[n++] = (struct journal_record){.kind = JOURNAL_TERM, .round = a->start.term};
    if (keep)
        n += aggregator_organs_records(a, keep + n);
    for (unsigned s = 0; keep && s < a->members.count; s++)
        if (aggregator_quarantined(a, s))
            keep[n++] = (struct journal_record){.kind = JOURNAL_QUARANTINE, .site = s, .round = 1};
    for (unsigned i = 0; keep && i < a->core.fragments; i++) {
        const struct round_fragment *f = &a->core.f[i];
        if (f->round)
            keep[n++] = (struct journal_record){
                .kind = JOURNAL_COMMIT, .fragment = i, .round = f->round - 1, .digest = f->parent};
        for (unsigned s = 0; s < a->members.count; s++) {
            const struct round_entry *e = &f->entries[s];
            if (e->accepted)
                keep[n++] = (struct journal_record){.kind = JOURNAL_ACCEPT,
                                                    .fragment = i,
                                                    .site = s,
                                                    .round = f->round,
                                                    .digest = e->payload,
                                                    .payload_bytes = e->payload_bytes,
                                                    .incarnation = e->incarnation,
                                                    .data_cursor = e->data_cursor,
                                                    .charged = e->charged,
                                                    .weight = e->weight,
                                                    .residual_ratio = e->residual_ratio};
        }
        n += a->sums->records(a, i, keep + n);
        if (a->fragment[i].ordered)
            keep[n++] = (struct journal_record){.kind = JOURNAL_OPERATOR,
                                                .fragment = i,
                                                .round = f->round,
                                                .digest = a->fragment[i].ordered_by,
                                                .act = a->fragment[i].rolls_back ? WIRE_ROLLBACK
                                                                                 : WIRE_ABORT,
                                                .to = a->fragment[i].rolls_to};
    }
    enum err e =
        keep ? journal_rewrite(&a->journal, keep, n) : ERR_OK; /* no memory: the next time */
    arena_free(&scratch);
    return e;
}

struct term { /* the file `epoch`, whose name is from before the word changed */
    uint64_t number, instance;
};

static void term_fields(struct record_cursor *c, void *self)
{
    struct term *t = self;
    record_u64(c, &t->number);
    record_u64(c, &t->instance);
}

static enum err term_write(struct env *w, struct term t)
{
    struct record_form form = {"epoch", term_fields, &t};
    return store_write(w, AGGREGATOR_TERM, &form, NULL, 0);
}

enum err aggregator_term_write(struct env *w, uint64_t term)
{
    return term_write(w, (struct term){.number = term});
}

enum err aggregator_term_again(struct aggregator *a)
{
    return term_write(a->env, (struct term){a->start.term, a->start.instance});
}

enum err aggregator_term_read(struct aggregator *a, uint64_t *number)
{
    struct arena scratch = arena_make(0);
    struct term found = {0};
    struct record_form form = {"epoch", term_fields, &found};
    struct record r;
    enum err e = store_read(a->env, AGGREGATOR_TERM, &form, 0, &r, &scratch);
    arena_free(&scratch);
    *number = found.number;
    return e;
}

enum err aggregator_file_again(struct aggregator *a, const char *path)
{
    if (strcmp(path, AGGREGATOR_JOURNAL) == 0)
        return aggregator_journal_again(a);
    if (strcmp(path, AGGREGATOR_TERM) == 0)
        return aggregator_term_again(a);
    if (strcmp(path, AGGREGATOR_IDENTITIES) == 0)
        return a->signs->again(a);
    return store_begin_again(a->env);
}

static void ended_fields(struct record_cursor *c, void *self)
{
    struct journal_head *h = self;
    record_u64(c, &h->number);
    record_digest(c, &h->last);
}

enum err aggregator_ended_write(struct aggregator *a)
{
    struct journal_head h = {a->journal.sequence, a->journal.last};
    struct record_form form = {"ended", ended_fields, &h};
    return store_write(a->env, AGGREGATOR_ENDED, &form, NULL, 0);
}

enum err aggregator_ended_read(struct aggregator *a, struct journal_head *h)
{
    struct arena scratch = arena_make(0);
    struct record_form form = {"ended", ended_fields, h};
    struct record r;
    enum err e = store_read(a->env, AGGREGATOR_ENDED, &form, 0, &r, &scratch);
    arena_free(&scratch);
    if (e != ERR_OK)
        *h = (struct journal_head){0};
    if (e != ERR_INPUT && e != ERR_CORRUPT && e != ERR_MISMATCH)
        return e;
    err_clear();
    return ERR_OK;
}
