/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/observe.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "outer/view/report_data.h"

enum err observe_choose(struct observe **out, const struct observe_options *o, size_t count,
                        const char *command)
{
    *out = NULL;
    if (!o->aggregator == !count || count > REPORT_RUNS_MAX)
        return err_set(ERR_CONFIG,
                       "%s: give one to %d directories of sites, of the aggregator, or of both: "
                       "atoll %s aggregator; or --aggregator HOST:PORT",
                       command, REPORT_RUNS_MAX, command);
    return count ? ERR_OK : observe_open(out, o);
}

#ifdef ATOLL_NET
#include "kernels/base/clock.h"
#include "outer/link/link.h"
#include "outer/identity/tls.h"

enum { CALL_MS = 20000 };

struct observe {
    struct link *link;
    struct arena arena;
    uint64_t at; /* in the aggregator's records */
};

static enum err observe_dial(struct observe *o, const struct observe_options *from)
{
    struct link_dial d = {.target = from->aggregator,
                          .server_name = from->server_name,
                          .keepalive_ms = CALL_MS * 2 / 3};
    TRY_ALLOC(d.tls.ca = arena_printf(&o->arena, "%s/ca.pem", from->tls));
    TRY_ALLOC(d.tls.certificate = arena_printf(&o->arena, "%s/%s.pem", from->tls, from->name));
    TRY_ALLOC(d.tls.key = arena_printf(&o->arena, "%s/%s.key", from->tls, from->name));
    TRY(tls_usable(&d.tls, clock_wall_s()));
    signal(SIGPIPE, SIG_IGN);
    return link_open(&o->link, &d);
}

enum err observe_open(struct observe **out, const struct observe_options *from)
{
    struct observe *o = calloc(1, sizeof *o);
    if (!o)
        return err_set(ERR_MEMORY, "no memory for the observer");
    o->arena = arena_make(0);
    enum err e = observe_dial(o, from);
    if (e != ERR_OK) {
        observe_close(o);
        return e;
    }
    *out = o;
    return ERR_OK;
}

static enum err lines_take(char *text, enum err (*row)(void *, const struct jsonl_row *),
                           void *self)
{
    struct jsonl_row r;
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (jsonl_parse(&r, line))
            TRY(row(self, &r));
    return ERR_OK;
}

enum err observe_read(struct observe *o, enum err (*row)(void *, const struct jsonl_row *),
                      void *self)
{
    struct wire_answer answer;
    for (;;) {
        const struct wire_operate m = {.act = WIRE_RECORDS, .to = o->at};
        TRY(link_operate_on(o->link, &m, &answer));
        if (answer.outcome != ROUND_CURRENT)
            return err_set(
                answer.outcome == ROUND_DENIED || answer.outcome == ROUND_EXCLUDED ? ERR_DENIED
                                                                                   : ERR_CONFIG,
                "the aggregator answers %s: %s", round_outcome_name(answer.outcome), answer.text);
        if (answer.offset < o->at)
            return err_set(ERR_PROTO, "the aggregator goes back in its records");
        if (answer.offset == o->at)
            return ERR_OK;
        o->at = answer.offset;
        TRY(lines_take(answer.text, row, self));
    }
}

void observe_close(struct observe *o)
{
    if (!o)
        return;
    if (o->link)
        o->link->ops->close(o->link);
    arena_free(&o->arena);
    free(o);
}
#else
enum err observe_open(struct observe **out, const struct observe_options *o)
{
    (void)out;
    return err_set(ERR_UNSUPPORTED, "%s: this build has no network (-DNET=OFF)", o->aggregator);
}

enum err observe_read(struct observe *o, enum err (*row)(void *, const struct jsonl_row *),
                      void *self)
{
    (void)o, (void)row, (void)self;
    return ERR_UNSUPPORTED;
}

void observe_close(struct observe *o)
{
    (void)o;
}
#endif
