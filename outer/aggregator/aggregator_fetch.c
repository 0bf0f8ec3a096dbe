/* SPDX-License-Identifier: Apache-2.0 */
/* Aggregates and snapshots that sites fetch: one copy of each, however many sites read it. */
#include <stdlib.h>
#include "outer/aggregator/aggregator_state.h"

enum { COMMITTING_RETRY_MS = 1000 };
enum { SNAPSHOTS_HELD = 2 /* of the largest fragment's size, all together */ };

struct source { /* bytes that at least one site is fetching */
    struct source *next;
    unsigned readers;
    enum wire_what what;
    uint32_t fragment;
    uint64_t round;
    struct arena arena; /* a snapshot's; an aggregate is mapped */
    struct file_map map;
    const uint8_t *data;
    size_t size_bytes;
};
struct aggregator_fetches {
    struct source *sources;
    uint64_t payload_bytes; /* asked for, since the start */
};

enum err aggregator_fetch_open(struct aggregator_fetches **out, struct arena *perm)
{
    TRY_ALLOC(*out = arena_alloc(perm, sizeof **out));
    return ERR_OK;
}

uint64_t aggregator_fetch_bytes(const struct aggregator *a)
{
    return a->part.fetches->payload_bytes;
}

static struct source *source_find(struct aggregator *a, enum wire_what what, uint32_t fragment,
                                  uint64_t round)
{
    for (struct source *s = a->part.fetches->sources; s; s = s->next)
        if (s->what == what && s->fragment == fragment && s->round == round)
            return s;
    return NULL;
}

static enum err source_fill(struct aggregator *a, struct source *s)
{
    if (s->what == WIRE_AGGREGATE) {
        enum err e = outer_state_aggregate(a->replica, s->fragment, s->round, &s->map);
        if (e == ERR_CORRUPT)
            e = outer_state_aggregate(a->replica, s->fragment, s->round, &s->map);
        TRY(e);
        s->data = s->map.data;
        s->size_bytes = s->map.size_bytes;
        return ERR_OK;
    }
    s->size_bytes = outer_state_snapshot_bytes(a->replica, s->fragment);
    uint8_t *snapshot = arena_alloc(&s->arena, s->size_bytes);
    TRY_ALLOC(snapshot);
    s->data = snapshot;
    return outer_state_snapshot_write(a->replica, s->fragment, snapshot);
}

/* Slow readers hold snapshots of earlier rounds, each of another round. */
static enum err snapshots_limit(const struct aggregator *a, uint32_t fragment)
{
    size_t held = 0, largest = 0;
    for (unsigned f = 0; f < a->core.fragments; f++) {
        size_t bytes = outer_state_snapshot_bytes(a->replica, f);
        largest = bytes > largest ? bytes : largest;
    }
    for (const struct source *s = a->part.fetches->sources; s; s = s->next)
        held += s->what == WIRE_SNAPSHOT ? s->size_bytes : 0;
    return held + outer_state_snapshot_bytes(a->replica, fragment) <= SNAPSHOTS_HELD * largest
               ? ERR_OK
               : err_set(ERR_MEMORY, "%zu bytes of snapshots are held for other sites", held);
}

/* The state's arrays are being copied over. A copy that was made before serves. */
static bool snapshot_changes(struct aggregator *a, const struct wire_fetch *m)
{
    return m->what == WIRE_SNAPSHOT && aggregator_commit_passes(a, m->fragment) &&
           !source_find(a, m->what, m->fragment, m->round);
}

static enum err fetch_source_open(struct aggregator *a, const struct wire_fetch *m,
                                  struct source **out)
{
    struct source *s = source_find(a, m->what, m->fragment, m->round);
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s)
            return err_set(ERR_MEMORY, "no memory for a fetch");
        *s = (struct source){.what = m->what, .fragment = m->fragment, .round = m->round};
        enum err e = m->what == WIRE_SNAPSHOT ? snapshots_limit(a, m->fragment) : ERR_OK;
        if (e == ERR_OK)
            e = source_fill(a, s);
        if (e != ERR_OK) {
            arena_free(&s->arena);
            free(s);
            return e;
        }
        s->next = a->part.fetches->sources;
        a->part.fetches->sources = s;
    }
    s->readers++;
    *out = s;
    return ERR_OK;
}

void aggregator_fetch(void *self, const char *peer, const struct wire_fetch *m,
                      struct link_content *out, struct wire_answer *answer)
{
    struct aggregator *a = self;
    struct round_event e = {.kind = ROUND_FETCH, .fragment = m->fragment, .round = m->round};
    struct source *s = NULL;
    *out = (struct link_content){0};
    int site = aggregator_call_step(a, peer, &m->head, ROLES_FETCH, &e, answer);
    if (site < 0 || answer->outcome != ROUND_NONE)
        return;
    bool there = m->what == WIRE_AGGREGATE
                     ? m->round < answer->round
                     : m->round == answer->round || source_find(a, m->what, m->fragment, m->round);
    bool changing = there && snapshot_changes(a, m);
    enum err err = changing ? ERR_BUSY : there ? fetch_source_open(a, m, &s) : ERR_INPUT;
    if (err == ERR_BUSY) {
        answer->outcome = ROUND_FULL;
        answer->retry_ms = COMMITTING_RETRY_MS;
        aggregator_put_text(answer->text, "the state is being replaced by the next one");
    } else if (err == ERR_MEMORY) {
        aggregator_say_no_memory(answer);
    } else if (err != ERR_OK) { /* a damaged one is as good as gone: a snapshot serves as well */
        answer->outcome = ROUND_GONE;
        aggregator_put_text(answer->text,
                            there ? err_message() : "not what is kept: poll for the present round");
    } else if (m->offset > s->size_bytes || m->size_bytes > s->size_bytes - m->offset) {
        aggregator_fetched(a, s);
        answer->outcome = ROUND_INVALID;
        aggregator_put_text(answer->text, "a part past the end");
    } else {
        out->data = s->data;
        out->size_bytes = s->size_bytes;
        out->source = s;
        uint64_t bytes = m->size_bytes ? m->size_bytes : s->size_bytes - m->offset;
        a->part.fetches->payload_bytes += bytes;
        aggregator_metrics_down(a, (unsigned)site, bytes);
    }
}

void aggregator_fetched(void *self, void *source)
{
    struct aggregator *a = self;
    struct source *s = source;
    ASSERT(s->readers > 0);
    if (--s->readers)
        return;
    for (struct source **at = &a->part.fetches->sources; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    if (s->what == WIRE_AGGREGATE)
        a->env->ops->unmap(a->env, &s->map);
    arena_free(&s->arena);
    free(s);
}

void aggregator_fetch_close(struct aggregator *a)
{
    while (a->part.fetches->sources) {
        a->part.fetches->sources->readers = 1;
        aggregator_fetched(a, a->part.fetches->sources);
    }
}
