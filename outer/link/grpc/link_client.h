/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_CLIENT_H
#define LINK_CLIENT_H
/* Private to outer/link/grpc: a site's end. Calls may come from several threads at once. Its files,
 * what both ends share, and the members of struct link_grpc that each of them writes:
 *
 *   link_grpc.c: base, o, mutex, channels, pace_up, pace_down, paths, counters, sockets, seen. The
 *       channels, and what calls begin and end with.
 *   link_up.c: pace_up, uploads. Contributions.
 *   link_down.c: pace_down. Downloads.
 *   link_proxy.c: none. Connections through a proxy.
 *   link_call.c: none. One call, of both ends.
 *   link_path.c: none. What one end sends the other.
 *   link_socket.c: none. Counters of sockets.
 *   link_accept.c: none. Pending connections of the aggregator.
 *
 * unary.c has the small calls.
 */
#include "outer/link/grpc/link_call.h"
#include "outer/link/deal.h"
#include "outer/link/grpc/link_path.h"
#include "outer/link/grpc/link_proxy.h"
#include "outer/link/grpc/link_socket.h"
#include "outer/link/pace.h"

enum { LINK_TEXT_MAX = 1024 };
enum { LINK_CONTROL, LINK_BULK }; /* channels; stream i of a transfer is LINK_BULK + i */

struct link_settings { /* never change once the link is open */
    char *target, *server_name, *ca, *certificate, *key;
    struct link_tls files;
    struct link_proxy *proxy; /* NULL: none */
    struct dial_proxy how;    /* the proxy, for reading the peer's certificate */
    uint32_t keepalive_ms;
    unsigned streams; /* channels for bulk: the most that may be used */
    uint64_t look_ms; /* interval of expiry checks */
    ledger_sink *book;
    void *book_self;
};
struct link_channels {
    grpc_completion_queue *cq;
    grpc_channel *list[LINK_BULK + LINK_STREAMS_MAX];
    void *methods[LINK_BULK + LINK_STREAMS_MAX][LINK_METHODS];
    uint64_t stamp; /* tls_stamp of the files that the channels use */
    unsigned calls; /* running */
    bool used[LINK_BULK + LINK_STREAMS_MAX];
    unsigned connected; /* channels in use = expected number of sockets */
};
struct link_paths {
    struct link_path up; /* what this end sends */
    struct deal_rates rates;
    struct link_watch watch; /* of up; not under the mutex */
    unsigned down; /* connections of the next download: the aggregator's choice; 0: not heard */
};
struct link_uploads {                    /* link_up.c */
    uint64_t transfers;                  /* number so far; names the next transfer */
    uint64_t fresh[ROUND_FRAGMENTS_MAX]; /* the round after the last one with a receipt: not yet
                                            offered; 0: no receipt yet */
};
struct link_seen { /* who answers at the address */
    bool reached; /* a verified aggregator answered: from then on a certificate that does not verify
                     is a broken link */
    uint64_t own_ms, peer_ms; /* times of the last expiry checks */
    uint64_t asked_ms; /* time of the last check of the peer's certificate; 0: none since a call
                          succeeded */
    bool other;        /* that check found another certificate; `who` describes it */
    char who[LINK_TEXT_MAX];
};
struct link_grpc {
    struct link base;
    struct link_settings o;
    pthread_mutex_t mutex; /* guards all below */
    struct link_channels channels;
    struct pace pace_up, pace_down;
    struct link_paths paths;
    struct link_uploads uploads;
    struct link_counters counters;
    struct link_sockets sockets;
    struct link_seen seen;
};

/* link_open, with the table of operations of unary.c, and two rows of it. */
enum err link_grpc_open(struct link **out, const struct link_dial *d,
                        const struct link_ops *ops) MUST;
void link_grpc_counters(struct link *base, struct link_counters *out);
void link_grpc_close(struct link *base);
/* Around an upload: measures and sets its connections (link_path.h). */
void link_up_begin(struct link_grpc *l);
void link_up_end(struct link_grpc *l);
/* Connections of the next upload or download. */
unsigned link_streams(struct link_grpc *l, bool up);
/* The transfer's dealing of blocks, with what earlier ones have learnt. With a given number of
 * connections none is refused: what waits in their sockets is not limited. */
void link_deal_begin(struct link_grpc *l, struct deal *d, bool up, unsigned streams);
void link_deal_end(struct link_grpc *l, const struct deal *d, bool up);
/* The channel of part i of a transfer over `streams` connections. */
unsigned link_channel(const struct link_grpc *l, unsigned streams, unsigned i);
struct link_call *link_begin(struct link_grpc *l, enum link_method method, unsigned channel,
                             uint64_t timeout_ms);
void link_end(struct link_grpc *l, struct link_call *c);
void link_count(struct link_grpc *l, const grpc_byte_buffer *up, const grpc_byte_buffer *down,
                size_t payload_up, size_t payload_down);
grpc_byte_buffer *link_received(struct link_grpc *l,
                                struct link_call *c); /* counted; NULL: end of stream, or broken */
/* Waits for the call's status and turns it into an error with its text. */
enum err link_result(struct link_grpc *l, struct link_call *c);
/* Waits until the rate limit admits these bytes. */
void link_pace(struct link_grpc *l, struct pace *p, size_t bytes);

enum err link_contribute(struct link *base, const struct wire_contribution *m,
                         const uint8_t *payload, struct wire_answer *answer);
enum err link_fetch(struct link *base, const struct wire_fetch *m, uint8_t *out, size_t size_bytes,
                    struct wire_answer *answer);

#endif
