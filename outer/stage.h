#ifndef STAGE_H
#define STAGE_H
/* The one fragment whose outer arithmetic is under way, on a device that has memory of its own. The
 * outer state lives in the host's memory (dev_arena: pinned); what an op reads is copied into a slot,
 * what it wrote is copied back. On a device that works in the host's memory a slot is the host's array
 * itself: nothing is copied and no memory taken, by the same calls.
 *
 * The slots are whoever's works on the member: inside the site's gate, from any of its threads. What
 * they hold is good until then, so nothing is left in them over a call to the aggregator.
 */
#include "kernels/dev.h"

enum stage_slot {       /* while a contribution is made; while a round is applied */
    STAGE_THETA,        /* theta, then z; theta */
    STAGE_BESIDE,       /* the local parameters, then what the payload decodes to; momentum */
    STAGE_DELTA,        /* residual, then residual'; mean */
    STAGE_GATHERED,     /* -; gathered */
    STAGE_SLOTS
};
struct stage {
    struct dev *d;
    float *slot[STAGE_SLOTS]; /* device, largest fragment; NULL: not needed */
};

size_t stage_bytes(size_t elements, bool gathers); /* on a device of its own memory */
/* Zeroed before; after a failure stage_close. */
enum err stage_open(struct stage *s, struct dev *d, size_t elements, bool gathers) MUST;
void stage_close(struct stage *s);
/* Where the device works on the host's array: the slot, or the array itself. host NULL: NULL. */
float *stage_at(const struct stage *s, enum stage_slot slot, float *host);
/* The same, with the array's values. */
const float *stage_in(struct stage *s, enum stage_slot slot, const float *host, size_t count);
/* What was written at `from` to the array that stage_at was asked for; waits for it. */
void stage_out(struct stage *s, float *host, const float *from, size_t count);

#endif
