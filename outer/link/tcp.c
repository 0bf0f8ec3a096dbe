/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/tcp.h"
#include <string.h>

/* Less than this in flight and every kernel's defaults do. */
static const double LONG_BYTES = 1 << 18;

/* One line of text, "" where there is none. */
static void setting(const char *directory, const char *name, char *out, int size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(out, size, f))
        *out = 0;
    if (f)
        fclose(f);
    out[strcspn(out, "\n")] = 0;
}

static double largest(const char *directory, const char *name) /* of "least default largest" */
{
    char text[96];
    double bytes = 0;
    setting(directory, name, text, sizeof text);
    return sscanf(text, "%*f %*f %lf", &bytes) == 1 ? bytes : 0;
}

void tcp_read(struct tcp_settings *t, const char *directory)
{
    char idle[8];
    setting(directory, "tcp_congestion_control", t->congestion, sizeof t->congestion);
    setting(directory, "tcp_slow_start_after_idle", idle, sizeof idle);
    t->send_bytes = largest(directory, "tcp_wmem");
    t->receive_bytes = largest(directory, "tcp_rmem");
    t->slow_start_after_idle = *idle == '1';
    if (t->send_bytes <= 0 || t->receive_bytes <= 0)
        *t->congestion = 0;
}

void tcp_text(const struct tcp_settings *t, char *out, size_t size)
{
    *out = 0;
    if (*t->congestion)
        snprintf(out, size, "%s%s, buffers of at most %.0f KiB to send and %.0f KiB to receive",
                 t->congestion, t->slow_start_after_idle ? ", slow start after idle" : "",
                 t->send_bytes / 1024, t->receive_bytes / 1024);
}

/* Needed: twice the bandwidth-delay product, because half of a buffer holds bytes that wait for
 * sending or retransmission. Recommended: twice the need, so that the queue never runs empty: BBR
 * estimates the rate only from a full queue. */
static void advise_buffers(double way_bytes, unsigned streams, FILE *out)
{
    double bytes = 4 << 20;
    while (bytes < 4 * way_bytes)
        bytes *= 2;
    fprintf(
        out,
        "tcp %.0f KiB are in flight on this link, more than the buffers of %u connections hold; "
        "as root, at both ends:\n"
        "     sysctl -w net.ipv4.tcp_wmem=\"4096 65536 %.0f\" net.ipv4.tcp_rmem=\"4096 131072 "
        "%.0f\"\n",
        way_bytes / 1024, streams, bytes, bytes);
}

void tcp_advise(const struct tcp_settings *t, double bps, double rtt_s, unsigned streams, FILE *out)
{
    double way_bytes = bps / 8 * rtt_s;
    double buffer = t->send_bytes < t->receive_bytes ? t->send_bytes : t->receive_bytes;
    bool bbr = strncmp(t->congestion, "bbr", 3) == 0;
    if (!*t->congestion || way_bytes < LONG_BYTES)
        return;
    if (streams * buffer < 2 * way_bytes)
        advise_buffers(way_bytes, streams, out);
    if (!bbr)
        fprintf(out,
                "tcp %s slows down at every lost packet; as root, at both ends:\n"
                "     sysctl -w net.ipv4.tcp_congestion_control=bbr\n",
                t->congestion);
    if (!bbr && t->slow_start_after_idle)
        fputs("tcp each exchange begins with slow start; as root, at both ends:\n"
              "     sysctl -w net.ipv4.tcp_slow_start_after_idle=0\n",
              out);
    if (bbr && streams > 1 && buffer >= 2 * way_bytes)
        fputs("tcp one connection with bbr fills this link, several compete for its "
              "queue: site.streams: auto\n",
              out);
}
