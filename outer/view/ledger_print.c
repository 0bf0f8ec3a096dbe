/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/ledger_print.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- text ---- */

static double apart_percent(uint64_t layers, uint64_t socket)
{
    return socket ? 100 * ((double)layers - (double)socket) / (double)socket : 0;
}

static void print_head(const struct ledger_member *m)
{
    printf("%s of run %s (%s): %u process%s", m->name, m->run, m->directory, m->lives.count,
           m->lives.count == 1 ? "" : "es");
    if (m->lives.unfinished > m->lives.running)
        printf(", %u killed", m->lives.unfinished - m->lives.running);
    if (m->lives.missing)
        printf(", %" PRIu64 " rows missing", m->lives.missing);
    printf("%s\n", m->lives.running ? ", the last one still running or killed" : "");
}

static void print_layer(const char *name, uint64_t up_model, uint64_t up, uint64_t down_model,
                        uint64_t down, const char *note)
{
    printf("  %-22s %15" PRIu64 " %15" PRIu64 " %15" PRIu64 " %15" PRIu64 "%s\n", name, up_model,
           up, down_model, down, note);
}

static void print_sockets(const struct ledger_line *l)
{
    uint64_t up = ledger_sum(&l->up.counted), down = ledger_sum(&l->down.counted);
    uint64_t socket_up = l->up.counted.socket, socket_down = l->down.counted.socket;
    printf("  %-22s %15s %15" PRIu64 " %15s %15" PRIu64 "\n", "kernel's sockets", "", socket_up, "",
           socket_down);
    printf("  %-22s %15s %14.3f%% %15s %14.3f%%%s\n", "layers and kernel", "",
           apart_percent(up, socket_up), "", apart_percent(down, socket_down),
           ledger_near(up, socket_up, socket_down, l->connections) &&
                   ledger_near(down, socket_down, socket_up, l->connections)
               ? ""
               : "  ! over 1 %");
    printf("  %-22s %15s %15" PRIu64 " %15s %15" PRIu64 "  estimate\n", "with TCP and IP", "",
           ledger_ip(socket_up, socket_down), "", ledger_ip(socket_down, socket_up));
}

static void print_layers(const struct ledger_line *l)
{
    const struct ledger_side *u = &l->up.counted, *d = &l->down.counted, *um = &l->up.model,
                             *dm = &l->down.model;
    printf("  %-22s %15s %15s %15s %15s\n", "bytes", "up, predicted", "counted", "down, predicted",
           "counted");
    print_layer("payload", l->up.predicted, u->payload, l->down.predicted, d->payload,
                l->wrong ? "  ! differs" : "");
    print_layer("protobuf and gRPC", um->grpc, u->grpc, dm->grpc, d->grpc,
                "  predicted: the transfers alone");
    print_layer("HTTP/2 frames", um->http2, u->http2, dm->http2, d->http2,
                "  counted: model of the messages");
    print_layer("TLS records", um->tls, u->tls, dm->tls, d->tls,
                "  counted: model of the messages");
    print_layer("all layers", ledger_sum(um), ledger_sum(u), ledger_sum(dm), ledger_sum(d), "");
    print_sockets(l);
    printf("  %" PRIu64 " calls, %" PRIu64 " broken off; %" PRIu64 " connections; %" PRIu64
           " bytes sent again by TCP\n",
           l->calls, l->broken, l->connections, l->resent_by_tcp);
}

static void print_lines(const struct ledger_line *lines, size_t count, enum ledger_by by)
{
    bool sockets = by == LEDGER_BY_SITE;
    printf("  %-20s %13s %13s %13s %13s %11s %11s %11s %13s%s\n", ledger_by_name[by],
           "up, predicted", "payload up", "dn, predicted", "payload down", "protobuf", "HTTP/2",
           "TLS", "all layers", sockets ? "       sockets    apart" : "");
    for (size_t i = 0; i < count; i++) {
        const struct ledger_line *l = &lines[i];
        const struct ledger_side *u = &l->up.counted, *d = &l->down.counted;
        uint64_t all = ledger_sum(u) + ledger_sum(d), socket = u->socket + d->socket;
        printf("  %-20s %13" PRIu64 " %13" PRIu64 " %13" PRIu64 " %13" PRIu64 " %11" PRIu64
               " %11" PRIu64 " %11" PRIu64 " %13" PRIu64,
               l->label, l->up.predicted, u->payload, l->down.predicted, d->payload,
               u->grpc + d->grpc, u->http2 + d->http2, u->tls + d->tls, all);
        if (sockets)
            printf(" %13" PRIu64 " %7.3f%%%s", socket, apart_percent(all, socket),
                   ledger_near(all, socket, 0, l->connections) ? "" : " !");
        printf("%s\n", l->wrong ? "  ! differs" : "");
    }
}

/* What stands between counted and predicted, in words; nothing where they are equal. */
static void print_why(const struct ledger_transfers *t, const char *direction)
{
    const struct {
        uint64_t count, bytes; /* count 0: not told */
        const char *why;
    } parts[] = {
        {t->resent > 0, t->resent, "sent again"},
        {t->lost > 0, t->lost, "sent by a process that was killed before it booked them"},
        {t->absent, t->absent_bytes,
         "of rounds without a transfer on record: not sent, or by a process that was killed"},
        {t->incomplete, t->incomplete_bytes, "of transfers that did not end"},
        {t->unpredicted, t->total - t->predicted_total,
         "of transfers without a prediction: snapshots, rounds taken up after an absence or under "
         "way"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].count)
            printf("  %s: %" PRIu64 " bytes %s\n", direction, parts[i].bytes, parts[i].why);
}

static void print_csv(const struct ledger_member *m, const struct ledger_line *lines, size_t count,
                      enum ledger_by by)
{
    for (size_t i = 0; i < count; i++) {
        const struct ledger_line *l = &lines[i];
        const struct ledger_flow *flows[] = {&l->up, &l->down};
        printf("%s,%s,%s,%s,%" PRIu64 ",%" PRIu64, m->directory, m->name, ledger_by_name[by],
               l->label, l->calls, l->broken);
        for (int k = 0; k < 2; k++)
            printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                   ",%" PRIu64,
                   flows[k]->predicted, flows[k]->counted.payload, flows[k]->counted.grpc,
                   flows[k]->counted.http2, flows[k]->counted.tls, ledger_sum(&flows[k]->counted),
                   flows[k]->counted.socket);
        printf(",%" PRIu64 "\n", l->wrong);
    }
}

/* ---- JSON ---- */
static void flow_json(struct json_write *w, const char *key, const struct ledger_flow *f)
{
    json_object(w, key);
    json_int(w, "predicted", (int64_t)f->predicted);
    json_int(w, "payload", (int64_t)f->counted.payload);
    json_int(w, "grpc", (int64_t)f->counted.grpc);
    json_int(w, "http2", (int64_t)f->counted.http2);
    json_int(w, "tls", (int64_t)f->counted.tls);
    json_int(w, "layers", (int64_t)ledger_sum(&f->counted));
    json_int(w, "socket", (int64_t)f->counted.socket);
    json_end(w);
}

static void line_json(struct json_write *w, const struct ledger_line *l)
{
    json_object(w, NULL);
    json_text(w, "label", l->label);
    json_int(w, "calls", (int64_t)l->calls);
    json_int(w, "broken", (int64_t)l->broken);
    json_int(w, "connections", (int64_t)l->connections);
    json_int(w, "resent_by_tcp", (int64_t)l->resent_by_tcp);
    json_int(w, "wrong", (int64_t)l->wrong);
    flow_json(w, "up", &l->up);
    flow_json(w, "down", &l->down);
    json_end(w);
}

static void member_json(struct json_write *w, const struct ledger_member *m,
                        const struct ledger_line *lines, size_t count)
{
    json_object(w, NULL);
    json_text(w, "directory", m->directory);
    json_text(w, "replica", m->name);
    json_text(w, "run", m->run);
    json_int(w, "processes", m->lives.count);
    json_int(w, "unfinished", m->lives.unfinished);
    json_bool(w, "running", m->lives.running);
    json_int(w, "rows_missing", (int64_t)m->lives.missing);
    json_array(w, "lines");
    for (size_t i = 0; i < count; i++)
        line_json(w, &lines[i]);
    json_end(w);
    json_end(w);
}

static void inside_json(struct json_write *w, const char *directory, const struct inner_bytes *in)
{
    json_object(w, NULL);
    json_text(w, "directory", directory);
    json_int(w, "ranks", in->ranks);
    json_int(w, "steps", (int64_t)in->steps);
    json_real(w, "bytes", in->bytes);
    json_int(w, "repeated_steps", (int64_t)in->again);
    json_real(w, "repeated_bytes", in->bytes_again);
    json_array(w, "lines");
    for (size_t i = 0; i < in->count; i++) {
        const struct inner_bytes_size *s = &in->sizes[i];
        json_object(w, NULL);
        json_real(w, "bytes_of_a_step", i < INNER_BYTES_SIZES_MAX ? s->each : NAN);
        json_int(w, "steps", (int64_t)s->steps);
        json_int(w, "first", s->first);
        json_int(w, "last", s->last);
        json_int(w, "sums", (int64_t)s->sums);
        json_real(w, "bytes", s->bytes);
        json_end(w);
    }
    json_end(w);
    json_end(w);
}

enum err ledger_print_member(const struct ledger_print *p, const struct ledger_member *m,
                             enum ledger_by by, struct arena *a)
{
    struct ledger_line *lines;
    size_t count;
    TRY(ledger_lines_make(m, by, a, &lines, &count));
    if (p->w) {
        member_json(p->w, m, lines, count);
        return ERR_OK;
    }
    if (p->csv) {
        print_csv(m, lines, count, by);
        return ERR_OK;
    }
    print_head(m);
    if (by == LEDGER_BY_LAYER && count)
        print_layers(lines);
    else
        print_lines(lines, count, by);
    print_why(&m->up, "up");
    print_why(&m->down, "down");
    puts("");
    return ERR_OK;
}

/* ---- inside a site ---- */
static void print_inside(const char *directory, const struct inner_bytes *in)
{
    printf("%s: %" PRId64 " ranks, %" PRIu64 " steps; the lead rank sent %.0f bytes\n", directory,
           in->ranks, in->steps, in->bytes);
    printf("  %15s %10s %10s %10s %10s %18s\n", "bytes of a step", "steps", "first", "last", "sums",
           "bytes");
    for (size_t i = 0; i < in->count; i++) {
        const struct inner_bytes_size *s = &in->sizes[i];
        char each[24];
        snprintf(each, sizeof each, i < INNER_BYTES_SIZES_MAX ? "%.0f" : "others", s->each);
        printf("  %15s %10" PRIu64 " %10" PRId64 " %10" PRId64 " %10" PRIu64 " %18.0f\n", each,
               s->steps, s->first, s->last, s->sums, s->bytes);
    }
    if (in->again)
        printf("  %" PRIu64 " steps repeated after a restart: %.0f bytes more\n", in->again,
               in->bytes_again);
    puts("");
}

static void print_inside_csv(const char *directory, const struct inner_bytes *in)
{
    for (size_t i = 0; i < in->count; i++) {
        const struct inner_bytes_size *s = &in->sizes[i];
        printf("%s,%" PRId64 ",%.0f,%" PRIu64 ",%" PRId64 ",%" PRId64 ",%" PRIu64 ",%.0f\n",
               directory, in->ranks, s->each, s->steps, s->first, s->last, s->sums, s->bytes);
    }
}

void ledger_print_inside(const struct ledger_print *p, const char *directory,
                         const struct inner_bytes *in)
{
    if (p->w)
        inside_json(p->w, directory, in);
    else if (p->csv)
        print_inside_csv(directory, in);
    else
        print_inside(directory, in);
}

/* ---- the document ---- */
void ledger_print_begin(const struct ledger_print *p, const char *by, bool inside)
{
    if (p->w) {
        json_object(p->w, NULL);
        json_text(p->w, "by", by);
        json_array(p->w, "directories");
    } else if (p->csv) {
        puts(inside ? "directory,ranks,bytes_of_a_step,steps,first,last,sums,bytes"
                    : "directory,replica,by,label,calls,broken,up_predicted,up_payload,up_grpc,up_"
                      "http2,up_tls,up_layers,up_socket,down_predicted,down_payload,down_grpc,down_"
                      "http2,down_tls,down_layers,down_socket,wrong");
    }
}

void ledger_print_end(const struct ledger_print *p)
{
    if (p->w)
        json_close(p->w);
}
