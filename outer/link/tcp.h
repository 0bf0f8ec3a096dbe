/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TCP_H
#define TCP_H
/* The kernel's settings that limit the throughput of a TCP connection over a long link. The
 * operator owns these settings: this module reads them and names the commands that change them.
 */
#include <stdbool.h>
#include <stdio.h>

struct tcp_settings {
    char congestion[16];              /* congestion control of new connections; "": unknown */
    double send_bytes, receive_bytes; /* largest size of a socket's buffers; 0: unknown */
    bool slow_start_after_idle;
};

void tcp_read(struct tcp_settings *t, const char *directory); /* "/proc/sys/net/ipv4" */
/* Without its name, "tcp"; "": unknown. */
void tcp_text(const struct tcp_settings *t, char *out, size_t size);
/* Prints one line, with the command that changes it, for each setting that keeps `streams`
 * connections from filling a line of `bps` bits per second and a round trip of rtt_s. Prints no
 * line when the settings suffice or are unknown. */
void tcp_advise(const struct tcp_settings *t, double bps, double rtt_s, unsigned streams,
                FILE *out);

#endif
