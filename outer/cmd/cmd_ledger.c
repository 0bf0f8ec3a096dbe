/* SPDX-License-Identifier: Apache-2.0 */
/* atoll ledger: what went over the link, by layer, site, round, fragment or kind of call:
 * predicted, counted, and what the kernel's sockets say. Ends with an error when a payload is not
 * what was predicted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/args.h"
#include "outer/cmd/cmd.h"
#include "outer/record/inner_bytes.h"
#include "outer/record/ledger_table.h"

enum { MEMBERS_MAX = 1025 }; /* the largest roster and its aggregator */
/* ---- printing ---- */

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

static enum err print_member(const struct ledger_member *m, enum ledger_by by, bool csv,
                             struct arena *a)
{
    struct ledger_line *lines;
    size_t count;
    TRY(ledger_lines_make(m, by, a, &lines, &count));
    if (csv) {
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

static enum err read_all(const struct args *args, struct ledger_member *members, struct arena *a)
{
    for (int i = 0; i < args->operand_count; i++) {
        TRY(ledger_read(&members[i], args->operand[i], i ? members : NULL, a));
        for (int k = 0; k < i; k++)
            if (strcmp(members[k].name, members[i].name) == 0)
                return err_set(ERR_CONFIG, "%s and %s are both of %s: give each replica once",
                               args->operand[k], args->operand[i], members[i].name);
    }
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

static enum err ledger_inside(const struct args *directories, bool csv, struct arena *a)
{
    struct inner_bytes *in;
    TRY_ALLOC(in = arena_array(a, 1, sizeof *in));
    if (csv)
        puts("directory,ranks,bytes_of_a_step,steps,first,last,sums,bytes");
    for (int i = 0; i < directories->operand_count; i++) {
        TRY(inner_bytes_read(in, directories->operand[i], a));
        if (csv)
            print_inside_csv(directories->operand[i], in);
        else
            print_inside(directories->operand[i], in);
    }
    return ERR_OK;
}

static enum err ledger(const struct args *args, const char *by_text, bool csv, struct arena *a)
{
    struct ledger_member *members;
    size_t count = (size_t)args->operand_count;
    int by = 0;
    bool inside = strcmp(by_text, "inside") == 0;
    while (by < LEDGER_BYS && strcmp(ledger_by_name[by], by_text) != 0)
        by++;
    if (by == LEDGER_BYS && !inside)
        return err_set(ERR_CONFIG,
                       "--by %s: one of layer, site, round, fragment, call, hour, inside", by_text);
    if (count == 0 || count > MEMBERS_MAX)
        return err_set(ERR_CONFIG,
                       "ledger: give the directories of sites, of the aggregator, or of both: "
                       "atoll ledger run-a run-b aggregator");
    if (inside)
        return ledger_inside(args, csv, a);
    TRY_ALLOC(members = arena_array(a, count, sizeof *members));
    TRY(read_all(args, members, a));
    if (csv)
        puts("directory,replica,by,label,calls,broken,up_predicted,up_payload,up_grpc,up_http2,up_"
             "tls,up_layers,up_socket,"
             "down_predicted,down_payload,down_grpc,down_http2,down_tls,down_layers,down_socket,"
             "wrong");
    for (size_t i = 0; i < count; i++)
        TRY(print_member(&members[i], (enum ledger_by)by, csv, a));
    return ledger_check(members, count);
}

enum err cmd_ledger(int argc, char **argv)
{
    const char *by = "layer";
    bool csv = false;
    const struct args_option options[] = {
        {"by", ARGS_TEXT, &by, .value = "WHAT",
         .help = "layer, site, round, fragment, call (hello, poll, ...) or hour (UTC; of earlier "
                 "days: day); inside: what the ranks of a site sent each other, by bytes of a "
                 "step."},
        {"csv", ARGS_FLAG, &csv, .help = "Comma-separated, with all layers of both directions."},
    };
    struct args args = {.command = "ledger",
                        .summary =
                            "Adds up what went over the link: payload as predicted and as "
                            "counted, protobuf and gRPC, HTTP/2, TLS, and "
                            "the kernel's socket counters for comparison. Ends with exit code "
                            "1 when a payload is not what was "
                            "predicted.",
                        .example = "atoll ledger run-a run-b aggregator --by site",
                        .operands = "DIR...",
                        .options = options,
                        .count = sizeof options / sizeof *options};
    struct arena arena = arena_make(0);
    enum err e = args_parse(&args, argc, argv, &arena);
    if (e == ERR_OK && !args.help)
        e = ledger(&args, by, csv, &arena);
    arena_free(&arena);
    return e;
}
