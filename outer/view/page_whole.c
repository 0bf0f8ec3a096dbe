/* SPDX-License-Identifier: Apache-2.0 */
/* What only a report has: all series, what was counted and predicted, every byte on the link, whose
 * data counted, and how to repeat the run. */
#include <math.h>
#include <string.h>
#include "outer/view/page_own.h"

/* ---- a site ---- */
static void totals_json(struct json_write *w, const struct report_run *r)
{
    const struct report_round t = report_totals(r);
    json_object(w, "totals");
    json_real(w, "up", t.up);
    json_real(w, "up_predicted", t.up_predicted);
    json_real(w, "down", t.down);
    json_real(w, "down_predicted", t.down_predicted);
    json_real(w, "wire_up", t.wire_up);
    json_real(w, "wire_down", t.wire_down);
    json_real(w, "hidden_s", t.hidden_ms / 1e3);
    json_real(w, "exposed_s", t.exposed_ms / 1e3);
    json_end(w);
}

void page_whole_site(struct page_view *v, const struct report_run *r)
{
    json_real(v->w, "parameters", r->training.parameters);
    json_real(v->w, "wall_s", r->lives.last_t - r->lives.first_t);
    json_real(v->w, "tokens_per_second_mean", r->training.tokens_per_second);
    totals_json(v->w, r);
    page_points(v, "gradient_norms", &r->series[REPORT_NORM]);
    page_points(v, "learning_rates", &r->series[REPORT_LR]);
    page_points(v, "speeds", &r->series[REPORT_RATE]);
    page_points(v, "bytes_up", &r->series[REPORT_BYTES_UP]);
    page_points(v, "bytes_down", &r->series[REPORT_BYTES_DOWN]);
}

/* ---- every byte on the link ---- */
static void side_json(struct json_write *w, const char *key, const struct ledger_transfers *t)
{
    const struct ledger_side *s = &t->layers;
    json_object(w, key);
    json_real(w, "predicted", (double)t->predicted);
    json_real(w, "payload", (double)s->payload);
    json_real(w, "grpc", (double)s->grpc);
    json_real(w, "http2", (double)s->http2);
    json_real(w, "tls", (double)s->tls);
    json_real(w, "all", (double)ledger_sum(s));
    json_real(w, "socket", (double)s->socket);
    json_real(w, "wrong", (double)t->wrong);
    json_real(w, "resent", (double)t->resent);
    json_real(w, "lost", (double)t->lost);
    json_end(w);
}

static void ledger_json(struct json_write *w, const struct report_run *r)
{
    if (r->ledger.member.lives.count) {
        json_object(w, "ledger");
        side_json(w, "up", &r->ledger.member.up);
        side_json(w, "down", &r->ledger.member.down);
        json_end(w);
    } else if (r->role == REPORT_SITE || r->role == REPORT_AGGREGATOR) {
        json_text(w, "ledger_missing", r->ledger.why);
    }
}

/* ---- whose data counted ---- */
/* The next name of "a,b,c"; the site's number where names end, as with very many sites. */
static const char *name_next(const char *names, unsigned site, char out[64])
{
    size_t n = strcspn(names, ",");
    if (n)
        snprintf(out, 64, "%.*s", (int)(n < 50 ? n : 50), names);
    else
        snprintf(out, 64, "number %u", site);
    return names + n + (names[n] == ',');
}

static void counted_json(struct json_write *w, const struct report_run *r)
{
    const char *names = r->sites.names;
    char name[64];
    if (!r->counted || !r->counted->rounds)
        return;
    json_object(w, "counted");
    json_real(w, "rounds", (double)r->counted->rounds);
    json_real(w, "tokens", (double)counted_tokens(r->counted));
    json_array(w, "sites");
    for (unsigned i = 0; i < r->sites.count; i++) {
        struct counted_site s = counted_of(r->counted, i);
        names = name_next(names, i, name);
        json_object(w, NULL);
        json_text(w, "name", name);
        json_real(w, "rounds", (double)s.rounds);
        json_real(w, "tokens", (double)s.tokens);
        json_bool(w, "ends", s.ends);
        json_end(w);
    }
    json_end(w);
    json_end(w);
}

/* ---- what ran, and how it ended ---- */
static void digests_json(struct json_write *w, const struct report_run *r)
{
    static const char *const name[] = {"parameters", "momentum", "residual", "outer state"};
    json_object(w, "digests");
    for (int k = 0; k < 4; k++)
        if (r->end.digest[k][0] && strcmp(r->end.digest[k], "-") != 0)
            json_text(w, name[k], r->end.digest[k]);
    json_end(w);
}

static void program_json(struct json_write *w, const struct report_run *r)
{
    json_text(w, "version", r->start.version);
    json_text(w, "commit", r->start.commit);
    json_text(w, "compiler", r->start.compiler);
    json_text(w, "device", r->start.device);
    json_real(w, "ranks", r->training.ranks);
    json_real(w, "threads", r->training.threads);
    json_text(w, "command", r->start.command);
    json_text(w, "config", r->start.config);
}

void page_whole_replica(struct page_view *v, const struct report_run *r)
{
    static const char *const role[] = {[REPORT_SITE] = "site",
                                       [REPORT_ALONE] = "alone",
                                       [REPORT_AGGREGATOR] = "aggregator",
                                       [REPORT_SEEN] = "seen"};
    json_text(v->w, "role", role[r->role]);
    json_real(v->w, "begun", r->lives.first_t > 0 ? r->lives.first_t : r->reading.life_t);
    ledger_json(v->w, r);
    counted_json(v->w, r);
    if (r->role == REPORT_AGGREGATOR)
        json_text(v->w, "ended_short", r->end.short_of_sites);
    if (r->end.finished)
        digests_json(v->w, r);
    if (r->role != REPORT_SEEN)
        program_json(v->w, r);
}

/* ---- the emulated network ---- */
static const char *const wan_key[] = {"packets", "bytes", "arrived", "queue",     "lost",
                                      "outage",  "twice", "late",    "queue_peak"};

static void network_begin(struct json_write *w, const struct jsonl_row *row)
{
    json_object(w, NULL);
    json_text(w, "source", jsonl_string(row, "source"));
    json_real(w, "seed", jsonl_number(row, "seed"));
    json_bool(w, "relay", jsonl_number(row, "relay") > 0);
    json_array(w, "rows");
}

static void network_end(struct json_write *w)
{
    json_end(w); /* rows */
    json_end(w);
}

static void wan_row_json(struct json_write *w, const struct jsonl_row *row)
{
    static const char *const text[] = {"from", "to", "place"};
    json_object(w, NULL);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (*jsonl_string(row, text[i]))
            json_text(w, text[i], jsonl_string(row, text[i]));
    for (size_t i = 0; i < sizeof wan_key / sizeof *wan_key; i++)
        if (*jsonl_string(row, wan_key[i]))
            json_real(w, wan_key[i], jsonl_number(row, wan_key[i]));
    json_end(w);
}

enum err page_whole_wan(struct page_view *v, const char *path)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    unsigned networks = 0;
    if (!jsonl_reader_open(&reader, path))
        return err_set(
            ERR_INPUT,
            "%s: there is no such file: atoll wan --record writes it, and atoll demo --wan", path);
    json_array(v->w, "wan");
    while (jsonl_next(&reader, &row))
        if (jsonl_is(&row, "network")) {
            if (networks++)
                network_end(v->w);
            network_begin(v->w, &row);
        } else if (networks && (jsonl_is(&row, "direction") || jsonl_is(&row, "missed"))) {
            wan_row_json(v->w, &row);
        }
    jsonl_reader_close(&reader);
    if (!networks)
        return err_set(ERR_INPUT, "%s: it is no record of an emulated network", path);
    network_end(v->w);
    json_end(v->w);
    return ERR_OK;
}

enum { POINTS_SHOWN = 240, POINTS_WHOLE = 700 }; /* of the live page; of a report */

/* Mean over the values that are finite. */
static double points_mean(const struct report_points *p, size_t first, size_t n)
{
    double sum = 0, known = 0;
    for (size_t i = first; i < first + n && i < p->count; i++)
        if (isfinite(p->y[i])) {
            sum += p->y[i];
            known++;
        }
    return known > 0 ? sum / known : NAN;
}

void page_points(struct page_view *v, const char *key, const struct report_points *p)
{
    size_t stride = p->count / (v->whole ? POINTS_WHOLE : POINTS_SHOWN) + 1;
    json_array(v->w, key);
    for (size_t i = 0; i < p->count; i++) {
        bool last = i + 1 == p->count, inner = v->whole && i > 0 && !last;
        if (i % stride != 0 && !last)
            continue;
        json_array(v->w, NULL);
        json_real(v->w, NULL, p->x[i]);
        json_real(v->w, NULL, inner ? points_mean(p, i, stride) : p->y[i]);
        json_end(v->w);
    }
    json_end(v->w);
}
