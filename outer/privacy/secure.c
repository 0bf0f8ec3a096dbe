#include "outer/privacy/secure.h"
#include <stdio.h>

unsigned secure_least(const struct round_masks *m, unsigned sites, bool strict)
{
    return round_least(sites, strict, &(struct round_masks){.on = true, .colluding = m->colluding});
}

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
             "leaks differences. Nobody can check the values of one site: a site that sends wrong "
             "ones spoils the sum.",
             sites, m->colluding, secure_least(m, sites, strict), two);
}
