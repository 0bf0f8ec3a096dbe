/* What a network did, as rows that a report shows (report_wan.c). */
#include "outer/report/jsonl.h"
#include "outer/wan/wan.h"

static void put_flow(struct record *r, const struct flow_counters *c, const char *from,
                     const char *to)
{
    if (!c->packets)
        return;
    record_begin(r, "direction");
    record_text(r, "from", from);
    record_text(r, "to", to);
    record_int(r, "packets", (int64_t)c->packets);
    record_int(r, "bytes", (int64_t)c->bytes);
    record_int(r, "arrived", (int64_t)c->arrived);
    record_int(r, "queue", (int64_t)(c->dropped[FLOW_QUEUE] + c->dropped[FLOW_MEMORY]));
    record_int(r, "lost", (int64_t)c->dropped[FLOW_LOSS]);
    record_int(r, "outage", (int64_t)c->dropped[FLOW_OUTAGE]);
    record_int(r, "twice", (int64_t)c->duplicated);
    record_int(r, "late", (int64_t)c->reordered);
    record_int(r, "queue_peak", (int64_t)c->queue_peak_bytes);
    record_end(r);
}

static void put_missed(struct record *r, const char *place, uint64_t packets)
{
    if (!packets)
        return;
    record_begin(r, "missed");
    record_text(r, "place", place);
    record_int(r, "packets", (int64_t)packets);
    record_end(r);
}

enum err wan_record(const struct wan *w, const char *path, struct arena *a)
{
    const struct topology *t = w->topology;
    struct record r;
    TRY(record_open(&r, path, a));
    record_begin(&r, "network");
    record_text(&r, "source", t->source);
    record_int(&r, "seed", t->set.wan_seed);
    record_int(&r, "relay", w->relay);
    record_end(&r);
    for (unsigned from = 0; from < t->places; from++)
        for (unsigned to = 0; to < t->places; to++)
            put_flow(&r, &w->counters[from * t->places + to], t->place[from], t->place[to]);
    for (unsigned i = 0; i < t->places && !w->relay; i++)
        put_missed(&r, t->place[i], namespace_missed(&w->place[i]));
    record_close(&r);
    return ERR_OK;
}
