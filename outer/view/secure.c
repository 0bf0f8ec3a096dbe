/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/secure.h"
#include <stdio.h>
#include <string.h>

void secure_sentence(char out[SECURE_SENTENCE_MAX], const struct round_masks *m, unsigned sites,
                     bool strict)
{
    const char *two = sites > 2 ? "With n = 2 nothing is hidden."
                                : "With these two sites nothing is hidden: each takes its own "
                                  "values off the sum.";
    snprintf(out, SECURE_SENTENCE_MAX,
             "Secure aggregation of n = %u sites: the aggregator, alone or together with up to %u "
             "of the sites, learns sums over at least %u sites and no site's part of them. The sum "
             "of all sites is revealed each round. %s Changing participant sets between rounds "
             "leaks differences. The values of one site cannot be checked: a site that sends wrong "
             "ones spoils the sum.",
             sites, m->colluding, round_least(sites, strict, m), two);
}

/* "c may" of c sites. */
static const char *may(char out[32], unsigned count)
{
    if (count)
        snprintf(out, 32, "%u of them may", count);
    else
        snprintf(out, 32, "none may");
    return out;
}

static void leave_plain(char out[SECURE_LEAVE_MAX], const struct round_leave *l, unsigned sites)
{
    if (l->away)
        snprintf(out, SECURE_LEAVE_MAX, "%u of %u sites are enough for a round", l->least, sites);
    else
        snprintf(out, SECURE_LEAVE_MAX, "every round waits for all %u sites", sites);
}

void secure_leave(char out[SECURE_LEAVE_MAX], const struct round_masks *m, unsigned sites,
                  bool strict)
{
    const struct round_leave l = round_leave(m, sites, strict);
    char away[32], remove[32];
    if (!m->on) {
        leave_plain(out, &l, sites);
        return;
    }
    snprintf(
        out, SECURE_LEAVE_MAX,
        "%u sites, sums of at least %u: %s be away while rounds continue, and %s leave for good%s",
        sites, l.least, may(away, l.away), may(remove, l.remove),
        l.remove ? ""
                 : " (atoll operator roster remove is refused until another site was added: "
                   "if one leaves, the run ends)");
    if (l.pairs)
        snprintf(out + strlen(out), SECURE_LEAVE_MAX - strlen(out),
                 "; a sum of two sites shows each of them the other's contribution");
}
