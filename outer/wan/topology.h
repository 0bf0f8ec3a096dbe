#ifndef TOPOLOGY_H
#define TOPOLOGY_H
/* Which places an emulated network has and what lies between them, from a YAML file or a preset:
 *
 *     wan:
 *       sites: [a, b, aggregator]     # its places; each gets a network of its own
 *     link:                           # between every two of them, each direction, unless said
 * otherwise below rate_mbit: 1000 delay_ms: 45 a<>aggregator:                  # both directions
 * between two; what is not said comes from link delay_ms: 1 b>a:                            # one
 * direction; what is not said comes from b<>a, then from link loss_percent: 0.1 run: # optional: a
 * command of the shell for each place a: iperf3 -s
 *
 * The keys, with help: `atoll wan --help-keys`. All mistakes come at once, with file and line.
 */
#include "inner/config/config.h"
#include "outer/wan/flow.h"

/* X(section, name, type, default, min, max, choices, unit, pinned, help) */
#define TOPOLOGY_KEYS(X)                                                                           \
    X(wan, sites, LIST, NULL, 0, 0, NULL, "", false,                                               \
      "Names of the places, 2 to 65; one of them may be the aggregator.")                          \
    X(wan, seed, INT, "1", 0, 9e15, NULL, "", false,                                               \
      "Seed of loss, jitter, duplication, reordering.")                                            \
    X(wan, mtu, INT, "1500", 576, 65535, NULL, "bytes", false, "Largest IP packet.")               \
    X(wan, tcp_buffer_kib, INT, "0", 0, 2e6, NULL, "KiB", false,                                   \
      "Largest TCP send and receive buffers, as net.ipv4.tcp_wmem and tcp_rmem; 0: the kernel's.") \
    X(wan, congestion, TEXT, "", 0, 0, NULL, "", false,                                            \
      "TCP congestion control in all places (cubic, bbr); empty: the kernel's.")                   \
    X(wan, slow_start_after_idle, BOOL, "true", 0, 0, NULL, "", false,                             \
      "TCP forgets its window after a pause (the kernel's default).")                              \
    X(wan, ports, LIST, "7443", 0, 0, NULL, "", false,                                             \
      "TCP ports that the relay carries, where namespaces are refused; the emulator carries "      \
      "everything.")

#define TOPOLOGY_LINK_KEYS(X)                                                                      \
    X(link, rate_mbit, REAL, "0", 0, 1e6, NULL, "Mbit/s", false,                                   \
      "Rate of IP packets, headers included; 0: no limit.")                                        \
    X(link, burst_bytes, INT, "0", 0, 1e9, NULL, "bytes", false,                                   \
      "What passes at once after a pause (token bucket); 0: every packet takes its time.")         \
    X(link, queue_ms, REAL, "50", 0, 60000, NULL, "ms", false,                                     \
      "Queue before the link, drop-tail, as time at rate_mbit.")                                   \
    X(link, queue_bytes, INT, "0", 0, 1e10, NULL, "bytes", false,                                  \
      "The same in bytes; 0: queue_ms says it.")                                                   \
    X(link, delay_ms, REAL, "0", 0, 60000, NULL, "ms", false,                                      \
      "One way; the round trip is the sum of both directions.")                                    \
    X(link, jitter_ms, REAL, "0", 0, 10000, NULL, "ms", false, "Standard deviation of the delay.") \
    X(link, jitter, CHOICE, "normal", 0, 0, "normal|uniform|exponential", "", false,               \
      "Its distribution; exponential is only ever later.")                                         \
    X(link, loss_percent, REAL, "0", 0, 100, NULL, "%", false,                                     \
      "Share of packets that get lost at random.")                                                 \
    X(link, loss_run, REAL, "0", 0, 1e6, NULL, "packets", false,                                   \
      "Mean number of packets lost in a row (Gilbert); 0: each on its own.")                       \
    X(link, duplicate_percent, REAL, "0", 0, 100, NULL, "%", false,                                \
      "Share of packets that arrive twice.")                                                       \
    X(link, reorder_percent, REAL, "0", 0, 100, NULL, "%", false,                                  \
      "Share of packets that others may overtake.")                                                \
    X(link, reorder_ms, REAL, "0", 0, 10000, NULL, "ms", false, "How much later those are.")       \
    X(link, outages, LIST, "", 0, 0, NULL, "s", false,                                             \
      "When nothing arrives: FROM-TO in seconds after the start, as in [30-35, 120-130].")         \
    X(link, outage_every_s, REAL, "0", 0, 1e7, NULL, "s", false,                                   \
      "The outages repeat with this period; 0: once.")

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
