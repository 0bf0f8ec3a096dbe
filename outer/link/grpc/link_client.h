#ifndef LINK_CLIENT_H
#define LINK_CLIENT_H
/* Inside the real link only: a site's end. link_grpc.c has the channels and the small calls,
 * link_up.c contributions, link_down.c downloads. Calls may come from several threads at once.
 */
#include "outer/link/grpc/link_call.h"
#include "outer/link/grpc/link_socket.h"
#include "outer/link/pace.h"

enum { LINK_TEXT_MAX = 1024 };
enum { LINK_CONTROL, LINK_BULK }; /* channels; stream i of a transfer is LINK_BULK + i */

struct link_grpc {
    struct link base;
    grpc_completion_queue *cq;
    char *target, *server_name, *ca, *certificate, *key;
    struct link_tls files;
    uint32_t keepalive_ms;
    unsigned streams;      /* channels for bulk */
    pthread_mutex_t mutex; /* guards all below */
    grpc_channel *channels[LINK_BULK + LINK_STREAMS_MAX];
    void *methods[LINK_BULK + LINK_STREAMS_MAX][LINK_METHODS];
    uint64_t stamp;     /* of the files that the channels were made from */
    unsigned calls;     /* under way */
    uint64_t transfers; /* so far: their names */
    struct pace pace_up, pace_down;
    uint64_t fresh[ROUND_FRAGMENTS_MAX]; /* from this round on nothing was offered, since one before
                                            had its receipt; 0: none had */
    struct link_counters counters;
    struct link_sockets sockets;
    bool used[LINK_BULK + LINK_STREAMS_MAX];
    unsigned connected; /* channels that were used: the number of sockets that there should be */
    ledger_sink *book;
    void *book_self;
    bool reached; /* a verified aggregator answered: from then on a certificate that does not verify
                     is a broken link */
    uint64_t look_ms, own_looked_ms, peer_looked_ms; /* how often expiry is looked at, and when */
    uint64_t asked_ms; /* when it was last asked who answers; 0: not since a call succeeded */
    bool other;        /* then somebody else did, as `who` says */
    char who[LINK_TEXT_MAX];
};

struct link_call *link_begin(struct link_grpc *l, enum link_method method, unsigned channel,
                             uint64_t timeout_ms);
void link_end(struct link_grpc *l, struct link_call *c);
void link_count(struct link_grpc *l, const grpc_byte_buffer *up, const grpc_byte_buffer *down,
                size_t payload_up, size_t payload_down);
grpc_byte_buffer *link_received(struct link_grpc *l,
                                struct link_call *c); /* counted; NULL: end, or dead */
/* The end of a call as a sentence: waits for its status. */
enum err link_result(struct link_grpc *l, struct link_call *c);
/* Returns when these bytes may go. */
void link_pace(struct link_grpc *l, struct pace *p, size_t bytes);

enum err link_contribute(struct link *base, const struct wire_contribution *m,
                         const uint8_t *payload, struct wire_answer *answer);
enum err link_fetch(struct link *base, const struct wire_fetch *m, uint8_t *out, size_t size_bytes,
                    struct wire_answer *answer);

#endif
