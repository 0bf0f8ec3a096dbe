#ifndef SITE_H
#define SITE_H
/* A site's end of the outer loop, DiLoCo's Algorithm 1 line by line: z = weight * delta + residual, encode, outbox durable,
 * contribute, commit, outer step, residual, theta. Blocking, no thread of its own; runs on the real link and world and, unchanged, on the
 * simulated ones. It knows parameters as flat arrays only; binding to the trainer is outer/site_train.c.
 */
#include "outer/link/link.h"
#include "outer/member.h"

struct site_options {
    const char *run, *name;
    unsigned index, site_count;   /* position in the roster */
    const char *canonical;        /* pinned keys */
    bool strict;
    uint64_t straggler_ms;        /* other deadlines derive from it */
    uint64_t seed;                /* jitter */
    volatile int *stop;           /* asked to stop: return ERR_STOPPED from waits, outbox and state are safe */
    /* Progress while waiting, may be NULL: "waiting for b", "aggregator unreachable for 12 s, retrying in 3 s". */
    void (*notice)(void *self, const char *text);
    void *notice_self;
};
struct site_times { /* ms of the last round, for the step profile */
    double encode_ms, store_ms, send_ms, wait_ms, fetch_ms, apply_ms;
};
struct site; /* opaque */

enum err site_open(struct site **s, struct world *w, struct link *l, struct member *m, const struct site_options *o,
                   struct arena *perm) MUST;
void site_close(struct site *s);
/* Before the first step: hello; begins at round 0 with `initial` (its digest must equal the aggregator's), catches up, or joins by snapshot.
 * Afterwards the member's states are where the aggregator's are or resumable. */
enum err site_start(struct site *s, const float *initial_slab) MUST;
/* Round `round` of a fragment is due: local (elements, host or device memory of the cpu dev) -> the member's new theta for it.
 * Returns with member->state[fragment].round == round + 1 and the local copy replaced by theta. When that state is already recorded
 * (replay after a restart) nothing is sent. ERR_DIVERGED: z is not finite, nothing sent. ERR_STOPPED: asked to. */
enum err site_round(struct site *s, unsigned fragment, uint64_t round, float *local, float weight,
                    uint64_t data_cursor) MUST;
enum err site_report(struct site *s, unsigned fragment, int64_t step, double loss, double tokens_per_second,
                     uint64_t tokens) MUST;
enum err site_leave(struct site *s, const char *why) MUST;
struct site_times site_last(const struct site *s);

#endif
