#ifndef TCP_H
#define TCP_H
/* The kernel's settings that decide what a TCP connection carries over a long line. They are the
 * operator's: we read them and say what to change.
 */
#include <stdbool.h>
#include <stdio.h>

struct tcp_settings {
    char congestion[16];              /* control of new connections; "": unknown, as all below */
    double send_bytes, receive_bytes; /* that a socket's buffers may grow to */
    bool slow_start_after_idle;
};

void tcp_read(struct tcp_settings *t, const char *directory); /* "/proc/sys/net/ipv4" */
void tcp_print(const struct tcp_settings *t, FILE *out);      /* one line */
/* A line for each setting that keeps `streams` connections from filling a line of that rate and
 * round trip, with the command that changes it; nothing where all is well or nothing is known. */
void tcp_advise(const struct tcp_settings *t, double bps, double rtt_s, unsigned streams,
                FILE *out);

#endif
