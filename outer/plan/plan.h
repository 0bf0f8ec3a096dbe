/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAN_H
#define PLAN_H
/* Predicts the cost of an exchange: time, compute utilisation, bytes, money, loss. Pure arithmetic
 * over the schedule's exact bytes, a link, a step time and the published tables (plan_tables.h).
 * `atoll plan` searches with it, `atoll train` prints it together with what it measures, `atoll
 * sim` checks the formulas against the simulated protocol.
 *
 * Rates count whole IP packets, as a provider sells them and an emulator limits them: headers and
 * TLS records are included, by the ledger's model.
 *
 * Which file writes which members of these structs:
 *   plan.c: link, exchange_s, exposed_s, steady, utilisation, total_s, up_bytes, down_bytes, cost,
 *     loss_low, loss_high, loss_percent, extrapolated, equal_s, deviant, told, schedule, result
 *   plan_settings.c: step_s, parameters, tokens, lamb, rank, outer, aggregator_bps, price_gb
 *   plan_layers.c: none
 *   plan_layers_print.c: none
 *   plan_print.c: sites
 *   plan_private.c: none
 *   plan_tables.c: none
 */
#include "outer/diloco/fragment.h"
#include "outer/diloco/schedule.h"
#include "outer/config/measured.h"
#include "outer/link/line.h"

struct plan_task {
    unsigned sites;
    double step_s; /* of the slowest site */
    double parameters;
    double tokens;       /* of the run, all sites together; 0: unknown */
    bool lamb;           /* inner optimizer; else AdamW */
    enum plan_rank rank; /* what the search minimises */
    struct line link;    /* of the site with the slowest link */
    struct exchange_cost outer;
    double aggregator_bps; /* the aggregator's own line, each direction, shared by all sites; 0: no
                              limit */
    double price_gb;       /* per 1e9 bytes that leave a site or the aggregator */
};
struct plan_result {
    double exchange_s;  /* one round of the largest fragment, from its send until the site has its
                           commit */
    double exposed_s;   /* time that training waits within H steps, all fragments */
    double steady;      /* compute utilisation between full-precision rounds */
    double utilisation; /* compute utilisation of the whole run */
    double total_s;     /* of the run */
    uint64_t up_bytes, down_bytes; /* payload of one site in the run: exactly the schedule's */
    double cost;                   /* of all sites and the aggregator */
    double loss_low, loss_high; /* range of the loss increase over data-parallel training at equal
                                   tokens, percent */
    double loss_percent;        /* middle of the range */
    bool extrapolated;          /* outside the measured settings */
    double equal_s; /* time until the loss that data-parallel training has after the same steps */
};

/* Predicts a run with the schedule's settings. elements[fragments]: values of each fragment. */
void plan_predict(const struct plan_task *t, const struct schedule *s, const size_t *elements,
                  struct plan_result *r);

/* ---- prediction against measurement ---- */

enum { PLAN_DEVIANT_MAX = 3 };
#define PLAN_DEVIANT 1.25
struct plan_watch {   /* zeroed: nothing measured yet */
    unsigned deviant; /* consecutive rounds that deviated from the plan */
    bool told;
};
/* Compares a round's times with the plan. True once: in PLAN_DEVIANT_MAX consecutive rounds the
 * exchange or the step took more than PLAN_DEVIANT times the prediction, or less than 1 /
 * PLAN_DEVIANT of it. Differences under 50 ms are ignored. */
bool plan_left(struct plan_watch *w, double exchange_s, double predicted_s, double step_s,
               double planned_step_s);

/* ---- the search ---- */
enum { PLAN_UTILISATION_MIN = 1 }; /* percent of the run */
enum { PLAN_OPTIONS_MAX = CODEC_COUNT, PLAN_EVERY_MAX = 1000, PLAN_OVERLAP_MAX = 10 };
struct plan_option {
    struct schedule schedule;
    struct plan_result result;
};
struct plan_goal {
    const struct schedule *schedule; /* steps and full-precision rounds */
    const struct table *table;
    double utilisation; /* least share of the run spent training */
};
/* Finds the best settings that reach goal->utilisation, at most one for each codec, in the order of
 * task.rank: time until the loss of data-parallel training, cost, or loss. Of settings within 10 %
 * of each other, a published H comes first, then the fewer bytes. H is at most PLAN_EVERY_MAX and
 * tau at most PLAN_OVERLAP_MAX, the published ranges. *count 0: no setting reaches the utilisation,
 * and *nearest has the highest. */
enum err plan_search(const struct plan_task *t, const struct plan_goal *goal,
                     struct plan_option out[PLAN_OPTIONS_MAX], size_t *count,
                     struct plan_option *nearest) MUST;
enum plan_nearest { PLAN_BY_RATE, PLAN_BY_DELAY, PLAN_BY_BOTH, PLAN_BY_NO_LINK };
/* Finds the slowest link, both rates scaled by one factor, at which a setting reaches the
 * utilisation. BY_DELAY: no rate suffices because of the delay; *link then has the longest delay
 * that suffices at the given rates. BY_BOTH: neither suffices alone; *link has half the longest
 * delay, and the rates that go with it. */
enum err plan_nearest_link(const struct plan_task *t, const struct schedule *s,
                           const struct table *table, double utilisation, struct line *link,
                           enum plan_nearest *by) MUST;

#endif
