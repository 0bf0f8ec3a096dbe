/* SPDX-License-Identifier: Apache-2.0 */
/* What a network did, as rows that a report shows (page_whole_wan). */
#include "outer/record/jsonl.h"
#include "outer/wan/wan.h"

static void put_flow(struct jsonl *r, const struct flow_counters *c, const char *from,
                     const char *to)
{
    if (!c->packets)
        return;
    jsonl_begin(r, "direction");
    jsonl_text(r, "from", from);
    jsonl_text(r, "to", to);
    jsonl_int(r, "packets", (int64_t)c->packets);
    jsonl_int(r, "bytes", (int64_t)c->bytes);
    jsonl_int(r, "arrived", (int64_t)c->arrived);
    jsonl_int(r, "queue", (int64_t)(c->dropped[FLOW_QUEUE] + c->dropped[FLOW_MEMORY]));
    jsonl_int(r, "lost", (int64_t)c->dropped[FLOW_LOSS]);
    jsonl_int(r, "outage", (int64_t)c->dropped[FLOW_OUTAGE]);
    jsonl_int(r, "twice", (int64_t)c->duplicated);
    jsonl_int(r, "late", (int64_t)c->reordered);
    jsonl_int(r, "queue_peak", (int64_t)c->queue_peak_bytes);
    jsonl_end(r);
}

static void put_missed(struct jsonl *r, const char *place, uint64_t packets)
{
    if (!packets)
        return;
    jsonl_begin(r, "missed");
    jsonl_text(r, "place", place);
    jsonl_int(r, "packets", (int64_t)packets);
    jsonl_end(r);
}

enum err wan_record(const struct wan *w, const char *path, struct arena *a)
{
    const struct topology *t = w->topology;
    struct jsonl r;
    TRY(jsonl_open(&r, path, a));
    jsonl_begin(&r, "network");
    jsonl_text(&r, "source", t->source);
    jsonl_int(&r, "seed", t->set.wan_seed);
    jsonl_int(&r, "relay", w->relay);
    jsonl_end(&r);
    for (unsigned from = 0; from < t->places; from++)
        for (unsigned to = 0; to < t->places; to++)
            put_flow(&r, &w->counters[from * t->places + to], t->place[from], t->place[to]);
    for (unsigned i = 0; i < t->places && !w->relay; i++)
        put_missed(&r, t->place[i], namespace_missed(&w->place[i]));
    jsonl_close(&r);
    return ERR_OK;
}
