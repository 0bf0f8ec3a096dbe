/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PATH_H
#define PATH_H
/* Over how many connections a payload goes, and how fast each of them sends, from what the kernel
 * says of this end's sockets. Pure: the caller reads the sockets, the clock and the host's
 * settings. One struct path for each direction and peer: the sender's. The choice changes how long
 * a transfer takes, and no bit of what it carries.
 *
 * One connection fills a path where its congestion control is BBR. Several are needed where socket
 * buffers hold less than the path, and with a loss-based congestion control on a long path: a
 * window that was left early, or that a lost packet has halved, grows by the same few packets a
 * second however much the path holds, so each connection is given a small part of it. Together they
 * are paced at the path's rate, so that they do not overflow a queue, unless packets are lost at
 * random: then their windows are the limit.
 */
#include <stdbool.h>
#include <stddef.h>

enum {
    PATH_STREAMS_MAX = 16,
    PATH_WINDOW = 8 /* transfers whose largest rate counts */
};
enum path_reason {
    PATH_FIXED,   /* the configuration gives the number */
    PATH_UNKNOWN, /* nothing is measured yet, or the payloads are too short to measure the path */
    PATH_FULL,    /* the connections fill the path */
    PATH_BUFFERS, /* the socket buffers limit each connection */
    PATH_LOSS,    /* lost packets limit each connection */
    PATH_WINDOWS, /* a long path, whose windows grow slowly: a part of it for each connection */
};
struct path_facts {      /* of the sending end */
    char congestion[16]; /* of its sockets: "bbr", "cubic"; "": unknown */
    double buffer_bytes; /* largest socket buffer; 0: unknown */
    double rtt_s;        /* without queues; 0: unknown */
    double rate;         /* largest measured, all connections together, bytes per second; 0: not
                            measured */
    double mean;         /* of the last transfer, bytes per second */
    double loss;         /* share of the bytes that were sent again */
    unsigned streams;    /* connections over which it was measured */
};
struct path_choice {
    unsigned streams;
    double pace; /* bytes per second of all connections together; 0: no limit */
    enum path_reason reason;
};
struct path_sample {       /* a transfer that has ended */
    double bytes, seconds; /* of all of it */
    double rate;           /* largest */
    double rtt_s, loss;
    unsigned streams;
};
struct path {
    struct path_facts facts;
    struct path_choice now;
    double rates[PATH_WINDOW]; /* of the last transfers that were long enough, a ring */
    unsigned transfers;        /* such transfers so far */
    double gain;               /* pace over measured rate */
    unsigned fixed;            /* number of connections that the configuration gives; 0: chosen */
};

bool path_is_bbr(const char *congestion);
struct path_choice path_choose(const struct path_facts *f);
/* fixed: 0, or the number of connections. */
void path_open(struct path *p, const struct path_facts *f, unsigned fixed);
/* The sockets have this one: before the first transfer that is learnt from. */
void path_congestion(struct path *p, const char *name);
/* Learns from a transfer and chooses for the next one. A transfer that is shorter than a few round
 * trips at its rate says nothing of the path. */
void path_learn(struct path *p, const struct path_sample *s);
/* For a log, doctor and probe: "1 connection with bbr, paced at 118 MB/s: it fills the path". */
void path_text(const struct path *p, char *out, size_t size);

#endif
