/* SPDX-License-Identifier: Apache-2.0 */
/* What a network did: rows that a report shows (page_whole_wan), and an object. */
#include <string.h>
#include "outer/record/jsonl.h"
#include "outer/wan/wan.h"

struct count {
    const char *name;
    uint64_t value;
};
enum { COUNTS = 9 };

static void counts_of(const struct flow_counters *c, struct count out[COUNTS])
{
    const struct count all[COUNTS] = {{"packets", c->packets},
                                      {"bytes", c->bytes},
                                      {"arrived", c->arrived},
                                      {"queue", c->dropped[FLOW_QUEUE] + c->dropped[FLOW_MEMORY]},
                                      {"lost", c->dropped[FLOW_LOSS]},
                                      {"outage", c->dropped[FLOW_OUTAGE]},
                                      {"twice", c->duplicated},
                                      {"late", c->reordered},
                                      {"queue_peak", c->queue_peak_bytes}};
    memcpy(out, all, sizeof all);
}

static void put_flow(struct jsonl *r, const struct flow_counters *c, const char *from,
                     const char *to)
{
    struct count counts[COUNTS];
    if (!c->packets)
        return;
    counts_of(c, counts);
    jsonl_begin(r, "direction");
    jsonl_text(r, "from", from);
    jsonl_text(r, "to", to);
    for (int i = 0; i < COUNTS; i++)
        jsonl_int(r, counts[i].name, (int64_t)counts[i].value);
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

static void flow_json(struct json_write *out, const struct flow_counters *c, const char *from,
                      const char *to)
{
    struct count counts[COUNTS];
    if (!c->packets)
        return;
    counts_of(c, counts);
    json_object(out, NULL);
    json_text(out, "from", from);
    json_text(out, "to", to);
    for (int i = 0; i < COUNTS; i++)
        json_int(out, counts[i].name, (int64_t)counts[i].value);
    json_end(out);
}

void wan_json(const struct wan *w, struct json_write *out)
{
    const struct topology *t = w->topology;
    json_object(out, "network");
    json_text(out, "source", t->source);
    json_int(out, "seed", t->set.wan_seed);
    json_bool(out, "relay", w->relay);
    json_array(out, "directions");
    for (unsigned from = 0; from < t->places; from++)
        for (unsigned to = 0; to < t->places; to++)
            flow_json(out, &w->counters[from * t->places + to], t->place[from], t->place[to]);
    json_end(out);
    json_object(out, "missed"); /* packets; then the figures are not those of the topology */
    for (unsigned i = 0; i < t->places && !w->relay; i++)
        if (namespace_missed(&w->place[i]))
            json_int(out, t->place[i], (int64_t)namespace_missed(&w->place[i]));
    json_end(out);
    json_end(out);
}
