#ifndef PLAN_H
#define PLAN_H
/* What an exchange will cost before it runs: time, share of the time that trains, bytes, money,
 * loss. Pure arithmetic over the schedule's exact bytes, a link, a step time and the published
 * tables (plan_tables.h). `atoll plan` searches with it, `atoll train` prints it beside what it
 * measures, `atoll sim` is the check that protocol and formula agree.
 *
 * Rates are of IP packets, as a provider sells them and an emulator keeps them: headers and TLS
 * records are part of them, by the ledger's model.
 */
#include "outer/diloco/fragment.h"
#include "outer/diloco/schedule.h"
#include "outer/config/keys.h"
#include "outer/link/line.h"

struct plan_task {
    unsigned sites;
    double step_s; /* of the slowest site */
    double parameters;
    double tokens;       /* of the run, all sites together; 0: not known */
    bool lamb;           /* inner optimizer; else AdamW */
    enum plan_rank rank; /* what the search minimises */
    struct line link;    /* of the site with the worst one */
    struct exchange_cost outer;
    double aggregator_bps; /* its own line, each direction, shared by all sites; 0: no limit */
    double price_gb;       /* per 1e9 bytes that leave a site or the aggregator */
};
struct plan_result {
    double
        exchange_s; /* one round of the largest fragment: from the send until its commit is here */
    double exposed_s;   /* of that, what training waits for, all fragments of H steps */
    double steady;      /* share of the time that trains, between full-precision rounds */
    double utilisation; /* the same over the whole run, full-precision rounds included */
    double total_s;     /* of the run */
    uint64_t up_bytes, down_bytes; /* payload of one site in the run: exactly the schedule's */
    double cost;                   /* of all sites and the aggregator */
    double loss_low,
        loss_high; /* range of the loss over data-parallel training at equal tokens, percent */
    double loss_percent; /* its middle */
    bool extrapolated;   /* beyond what was measured */
    double equal_s; /* time until the loss that data-parallel training has after the same steps */
};

/* Share of the time that trains when P exchanges of `exchange_s` each follow H steps of `steps_s`
 * in all; `hidden_s` of every exchange run beside training; no exchange can be faster than the line
 * is busy: `busy_s` for all P. */
double plan_share(double steps_s, unsigned fragments, double exchange_s, double hidden_s,
                  double busy_s);
/* The settings in force are the schedule's; elements[fragments] as its predictions want them. */
void plan_predict(const struct plan_task *t, const struct schedule *s, const size_t *elements,
                  struct plan_result *r);

/* ---- beside what is measured ---- */

enum { PLAN_DEVIANT_MAX = 3 };
#define PLAN_DEVIANT 1.25
struct plan_watch {   /* zeroed: nothing measured yet */
    unsigned deviant; /* rounds in a row that left the plan */
    bool told;
};
/* After a round: does the plan no longer hold? True once, when exchange or step took more than
 * PLAN_DEVIANT times what was predicted, or less than its inverse, in PLAN_DEVIANT_MAX rounds in a
 * row. Differences under 50 ms count for nothing. */
bool plan_left(struct plan_watch *w, double exchange_s, double predicted_s, double step_s,
               double planned_step_s);

/* ---- the search ---- */
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
/* The best settings that train at least this share of the run, at most one for each codec, the best
 * first: by task.rank, the time until the loss of data-parallel training is reached, the cost, or
 * the loss. Within 10 % of each other a published H comes first, then the fewer bytes. H up to
 * PLAN_EVERY_MAX, tau up to PLAN_OVERLAP_MAX: what was published. *count 0: none reaches the share,
 * and *nearest is the one with the highest. */
enum err plan_search(const struct plan_task *t, const struct plan_goal *goal,
                     struct plan_option out[PLAN_OPTIONS_MAX], size_t *count,
                     struct plan_option *nearest) MUST;
enum plan_nearest { PLAN_BY_RATE, PLAN_BY_DELAY, PLAN_BY_NO_LINK };
/* The slowest link like this one, both rates by the same factor, with which a setting reaches the
 * share. BY_DELAY: none does, however fast, because the delay alone is too long; then *link has the
 * longest delay that would do at the rates. */
enum err plan_nearest_link(const struct plan_task *t, const struct schedule *s,
                           const struct table *table, double utilisation, struct line *link,
                           enum plan_nearest *by) MUST;

#endif
