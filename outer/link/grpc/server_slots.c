/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of contributions' streams: memory limits the number of streams received at a time. Streams
 * get slots in the order of arrival. A stream loses its slot when a newer stream of the same site
 * and fragment arrives, or when it sends almost nothing while others wait; the tolerated time
 * derives from the rates of earlier streams.
 */
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/link/grpc/server.h"

enum {
    SILENT_LEAST_MS = 5000, /* 5 s without data do not prove a broken link, but justify giving the
                               slot to another site */
    SILENT_MOST_MS = 60000,
    SILENT_CHUNKS =
        4, /* tolerated time: that of 4 chunks at the mean rate, within the two limits above */
    SILENT_BYTES = 1024, /* pings and window updates of an idle connection stay below it */
    SLOWER = 64          /* a rate below 1/64 of the mean counts as silence */
};

static bool slot_same_site(const struct server_call *a, const struct server_call *b)
{
    return strcmp(a->peer, b->peer) == 0;
}

/* One site's share of the slots; a quarter when the number of sites is unknown. */
static unsigned slot_share(const struct link_server *s)
{
    unsigned sites = s->o.sites ? s->o.sites : 4;
    return (s->o.receiving_most + sites - 1) / sites;
}

/* Joining streams leave one slot for each site; else a few sites with slow links would delay all
 * others. This function and those after it run under the server's mutex. */
static bool slot_free_for(const struct link_server *s, const struct server_call *call)
{
    unsigned mine = 0, joined = 0;
    if (s->slots.receiving >= s->o.receiving_most)
        return false;
    for (const struct server_call *c = s->calls.running; c; c = c->next) {
        bool held = c->slot.state == SLOT_HELD;
        joined += held && c->slot.joins;
        mine += held && slot_same_site(c, call);
    }
    return mine < slot_share(s) && (!call->slot.joins || joined + s->o.sites < s->o.receiving_most);
}

static void slot_give(struct link_server *s, struct server_call *call)
{
    struct server_slot *slot = &call->slot;
    slot->state = SLOT_HELD;
    slot->since_ms = slot->mark_ms = clock_mono_ms();
    slot->mark_bytes = slot->bytes = 0;
    slot->mark_socket = link_sockets_received(&s->sockets, call->socket);
    s->slots.receiving++;
}

static struct server_call *slot_next_waiting(const struct link_server *s, uint64_t after)
{
    struct server_call *next = NULL;
    for (struct server_call *c = s->calls.running; c; c = c->next)
        if (c->slot.state == SLOT_WAITING && c->slot.ticket > after &&
            (!next || c->slot.ticket < next->slot.ticket))
            next = c;
    return next;
}

/* Assigns free slots to waiting streams in the order of arrival. */
static void slots_pass_on(struct link_server *s)
{
    uint64_t ticket = 0;
    struct server_call *c;
    while (s->slots.receiving < s->o.receiving_most && (c = slot_next_waiting(s, ticket))) {
        ticket = c->slot.ticket;
        if (!slot_free_for(s, c))
            continue;
        slot_give(s, c);
        link_call_wake(c->c);
    }
}

static void slot_take_back(struct link_server *s, struct server_call *call, enum slot_state state)
{
    s->slots.receiving -= call->slot.state == SLOT_HELD;
    call->slot.state = state;
}

/* Supersedes older streams of the site and fragment when a new leading stream arrives: their
 * connection may be broken without being detected yet. */
static void slots_supersede(struct link_server *s, const struct server_call *call)
{
    for (struct server_call *c = s->calls.running; c; c = c->next) {
        bool live = c->slot.state == SLOT_HELD || c->slot.state == SLOT_WAITING;
        if (c == call || !live || c->slot.fragment != call->slot.fragment ||
            !slot_same_site(c, call))
            continue;
        slot_take_back(s, c, SLOT_SUPERSEDED);
        link_call_wake(c->c);
    }
}

static enum slot_state slot_ask(struct server_call *call, const struct wire_contribution *m)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    call->slot = (struct server_slot){
        .fragment = m->fragment, .joins = m->stream > 0, .ticket = ++s->slots.tickets};
    if (!call->slot.joins) {
        slots_supersede(s, call);
        call->slot.state = SLOT_WAITING;
        slots_pass_on(s);
    } else if (slot_free_for(s, call)) {
        slot_give(s, call);
    }
    enum slot_state state = call->slot.state;
    pthread_mutex_unlock(&s->mutex);
    return state;
}

enum slot_state server_slot_state(struct server_call *call)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    enum slot_state state = call->slot.state;
    pthread_mutex_unlock(&s->mutex);
    return state;
}

enum slot_state server_slot_begin(struct server_call *call, const struct wire_contribution *m)
{
    enum slot_state state = slot_ask(call, m);
    while (state == SLOT_WAITING && !server_stopping(call->server) &&
           link_call_wait_again(call->c, UINT64_MAX / 4))
        state = server_slot_state(call);
    return state;
}

void server_slot_end(struct server_call *call)
{
    struct link_server *s = call->server;
    struct server_slot *slot = &call->slot;
    pthread_mutex_lock(&s->mutex);
    uint64_t held_ms = clock_mono_ms() - slot->since_ms;
    if (slot->state == SLOT_HELD && slot->bytes >= WIRE_CHUNK_BYTES) {
        double rate = (double)slot->bytes * 1000 / (double)(held_ms + 1);
        s->slots.rate += (rate - s->slots.rate) / (s->slots.rate > 0 ? 8 : 1);
    }
    slot_take_back(s, call, SLOT_NONE);
    slots_pass_on(s);
    pthread_mutex_unlock(&s->mutex);
}

/* ---- progress ---- */

uint64_t server_silent_ms(const struct link_server *s)
{
    if (s->slots.rate <= 0)
        return SILENT_LEAST_MS;
    double ms = SILENT_CHUNKS * 1000.0 * WIRE_CHUNK_BYTES / s->slots.rate;
    return ms < SILENT_LEAST_MS  ? SILENT_LEAST_MS
           : ms > SILENT_MOST_MS ? SILENT_MOST_MS
                                 : (uint64_t)ms;
}

double server_silent_bytes(const struct link_server *s, uint64_t ms)
{
    double least = s->slots.rate / SLOWER * (double)ms / 1000;
    return least > SILENT_BYTES ? least : SILENT_BYTES;
}

/* Number of waiting streams that could use this slot. */
static unsigned slots_wanted(const struct link_server *s, const struct server_call *call)
{
    unsigned wanted = 0;
    for (const struct server_call *c = s->calls.running; c; c = c->next)
        wanted += c->slot.state == SLOT_WAITING && !slot_same_site(c, call);
    return wanted;
}

/* Logs once for each site, while the list has room. */
static void silent_log(struct link_server *s, const struct server_call *call, uint64_t ms,
                       unsigned wanted)
{
    unsigned held = 0;
    for (unsigned i = 0; i < SERVER_SILENT_LOGGED; i++)
        if (strcmp(s->slots.logged[i], call->peer) == 0)
            return;
    for (const struct server_call *c = s->calls.running; c; c = c->next)
        held += c->slot.state == SLOT_HELD && slot_same_site(c, call);
    memcpy(s->slots.logged[s->slots.next++ % SERVER_SILENT_LOGGED], call->peer, sizeof call->peer);
    log_event(LOG_WARN, "receive_slot",
              "site=%s fragment=%u silent_s=%llu held=%u of=%u waiting=%u "
              "why=\"it offered a contribution and sends nothing; its slot goes to the next site\"",
              server_site_of(call->peer), call->slot.fragment, (unsigned long long)ms / 1000, held,
              s->o.receiving_most, wanted);
}

/* True: silent for too long. Progress is counted in chunks, or in bytes of the connection within a
 * chunk. */
static bool slot_silent(struct link_server *s, struct server_call *call)
{
    struct server_slot *slot = &call->slot;
    uint64_t now = clock_mono_ms(), ms = now - slot->mark_ms;
    if (ms < server_silent_ms(s))
        return false;
    uint64_t socket = link_sockets_received(&s->sockets, call->socket);
    uint64_t came = slot->bytes - slot->mark_bytes, arrived = socket - slot->mark_socket;
    if ((double)(came > arrived ? came : arrived) >= server_silent_bytes(s, ms)) {
        slot->mark_ms = now;
        slot->mark_bytes = slot->bytes;
        slot->mark_socket = socket;
        return false;
    }
    unsigned wanted = slots_wanted(s, call);
    if (wanted)
        silent_log(s, call, ms, wanted);
    return wanted > 0;
}

void server_slot_bytes(struct server_call *call, size_t bytes)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    call->slot.bytes += bytes;
    pthread_mutex_unlock(&s->mutex);
}

enum slot_state server_slot_look(struct server_call *call)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    if (call->slot.state == SLOT_HELD && slot_silent(s, call)) {
        slot_take_back(s, call, SLOT_SILENT);
        slots_pass_on(s);
    }
    enum slot_state state = call->slot.state;
    pthread_mutex_unlock(&s->mutex);
    return state;
}
