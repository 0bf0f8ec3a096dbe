/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H
/* Which places an emulated network has and what lies between them, from a YAML file or a preset:
 *
 *     wan:
 *       sites: [a, b, aggregator]   # its places; each gets a network of its own
 *     link:                         # between every two of them, each direction, unless said below
 *       rate_mbit: 1000
 *       delay_ms: 45
 *     a<>aggregator:                # both directions; what is not said comes from link
 *       delay_ms: 1
 *     b>a:                          # one direction; what is not said comes from b<>a, then link
 *       loss_percent: 0.1
 *     run:                          # optional: a command of the shell for each place
 *       a: iperf3 -s
 *
 * The keys, with help: `atoll wan --help-keys`. All mistakes come at once, with file and line.
 */
#include "inner/config/config.h"
#include "outer/wan/flow.h"

#define LINK_JITTER(X)                                                                             \
    X(FLOW_NORMAL, normal) X(FLOW_UNIFORM, uniform) X(FLOW_EXPONENTIAL, exponential)
CONFIG_CHOICES_DECLARE(link_jitter, LINK_JITTER)

/* Rows: config.h */
#define TOPOLOGY_KEYS(X)                                                                           \
    X(wan, sites, LIST,                                                                            \
      .help = "Names of the places, 2 to 65; one of them may be the aggregator.")                  \
    X(wan, seed, INT, .fallback = "1", .min = 0, .max = 9e15,                                      \
      .help = "Seed of loss, jitter, duplication, reordering.")                                    \
    X(wan, mtu, INT, .fallback = "1500", .min = 576, .max = 65535, .unit = "bytes",                \
      .help = "Largest IP packet.")                                                                \
    X(wan, tcp_buffer_kib, INT, .fallback = "0", .min = 0, .max = 2e6, .unit = "KiB",              \
      .help = "Largest TCP send and receive buffers, as net.ipv4.tcp_wmem and tcp_rmem; 0: the "   \
              "kernel's.")                                                                         \
    X(wan, congestion, TEXT, .fallback = "",                                                       \
      .help = "TCP congestion control in all places (cubic, bbr); empty: the kernel's.")           \
    X(wan, slow_start_after_idle, BOOL, .fallback = "true",                                        \
      .help = "TCP forgets its window after a pause (the kernel's default).")                      \
    X(wan, ports, LIST, .fallback = "7443",                                                        \
      .help = "TCP ports that the relay carries, where namespaces are refused; the emulator "      \
              "carries everything.")

#define TOPOLOGY_LINK_KEYS(X)                                                                      \
    X(link, rate_mbit, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "Mbit/s",              \
      .help = "Rate of IP packets, headers included; 0: no limit.")                                \
    X(link, later_s, REAL, .fallback = "0", .min = 0, .max = 1e7, .unit = "s",                     \
      .help = "From this number of seconds after the start on the rate is later_rate_mbit; 0: it " \
              "stays.")                                                                            \
    X(link, later_rate_mbit, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "Mbit/s",        \
      .help = "The rate from later_s on; needs both rates.")                                       \
    X(link, burst_bytes, INT, .fallback = "0", .min = 0, .max = 1e9, .unit = "bytes",              \
      .help = "What passes at once after a pause (token bucket); 0: every packet takes its time.") \
    X(link, queue_ms, REAL, .fallback = "50", .min = 0, .max = 60000, .unit = "ms",                \
      .help = "Queue before the link, drop-tail, as time at rate_mbit.")                           \
    X(link, queue_bytes, INT, .fallback = "0", .min = 0, .max = 1e10, .unit = "bytes",             \
      .help = "The same in bytes; 0: queue_ms says it.")                                           \
    X(link, delay_ms, REAL, .fallback = "0", .min = 0, .max = 60000, .unit = "ms",                 \
      .help = "One way; the round trip is the sum of both directions.")                            \
    X(link, jitter_ms, REAL, .fallback = "0", .min = 0, .max = 10000, .unit = "ms",                \
      .help = "Standard deviation of the delay.")                                                  \
    X(link, jitter, CHOICE_OF(flow_jitter, link_jitter), .fallback = "normal",                     \
      .help = "Its distribution; exponential is only ever later.")                                 \
    X(link, loss_percent, REAL, .fallback = "0", .min = 0, .max = 100, .unit = "%",                \
      .help = "Share of packets that get lost at random.")                                         \
    X(link, loss_run, REAL, .fallback = "0", .min = 0, .max = 1e6, .unit = "packets",              \
      .help = "Mean number of packets lost in a row (Gilbert); 0: each on its own.")               \
    X(link, duplicate_percent, REAL, .fallback = "0", .min = 0, .max = 100, .unit = "%",           \
      .help = "Share of packets that arrive twice.")                                               \
    X(link, reorder_percent, REAL, .fallback = "0", .min = 0, .max = 100, .unit = "%",             \
      .help = "Share of packets that others may overtake.")                                        \
    X(link, reorder_ms, REAL, .fallback = "0", .min = 0, .max = 10000, .unit = "ms",               \
      .help = "How much later those are.")                                                         \
    X(link, outages, LIST, .fallback = "", .unit = "s",                                            \
      .help = "When nothing arrives: FROM-TO in seconds after the start, as in [30-35, 120-130].") \
    X(link, outage_every_s, REAL, .fallback = "0", .min = 0, .max = 1e7, .unit = "s",              \
      .help = "The outages repeat with this period; 0: once.")

struct topology_settings {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    TOPOLOGY_KEYS(X)
#undef X
};
struct topology_link {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    TOPOLOGY_LINK_KEYS(X)
#undef X
};
struct topology {
    const char *source; /* the file, or the preset's name */
    const char *text;   /* as it was read */
    struct topology_settings set;
    unsigned places;
    const char **place;          /* names */
    const char **command;        /* of each place; "": none */
    struct flow_settings *flows; /* [from * places + to] */
};

/* `source`: a file, or else a preset. `names` ("x,y,z", NULL: as the file says) are given to the
 * places in their order; fewer leave the last ones out, more are joined to all by `link`.
 * Everything lives in `a`. */
enum err topology_load(struct topology *t, const char *source, const char *names,
                       struct arena *a) MUST;
enum err topology_parse(struct topology *t, const char *source, const char *text, size_t size_bytes,
                        const char *names, struct arena *a) MUST;
int topology_place(const struct topology *t, const char *name); /* -1: there is none */
enum err topology_reference(struct arena *a, char **text) MUST; /* of the keys, Markdown */

/* Presets: texts as a user would write them, with their sources. */
struct topology_preset {
    const char *name, *summary, *text;
};
const struct topology_preset *topology_presets(size_t *count);

#endif
