/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LIVE_H
#define LIVE_H
/* What is shown of a run while it trains, from the records of its directories (report_follow): as
 * Prometheus text, as a table for a terminal (page_data.h: as JSON). Losses of single sites are
 * left out in a run with privacy. Writes to a FILE; errors are the caller's to find (ferror).
 */
#include "outer/view/report_data.h"

/* Prometheus. X(name, type, who, value, help); value: an expression of `r` (const struct
 * report_run), `n` (its struct report_now), `now` (seconds since 1970); not finite: the line is
 * left out. */
enum live_who { LIVE_SITE = 1, LIVE_AGGREGATOR = 2, LIVE_BOTH = 3 };
#define LIVE_METRICS(X)                                                                            \
    X(atoll_step, gauge, LIVE_SITE, n->step, "Steps done.")                                        \
    X(atoll_steps_planned, gauge, LIVE_SITE, r->training.steps,                                    \
      "Steps of the whole run: `train.steps`.")                                                    \
    X(atoll_training, gauge, LIVE_SITE, !*n->state,                                                \
      "1: the site trains; 0: it waits, starts, has stopped or is done.")                          \
    X(atoll_blocking_others, gauge, LIVE_SITE, n->waited, "1: the other sites wait for this one.") \
    X(atoll_state_seconds, gauge, LIVE_SITE, *n->state ? now - n->state_t : 0,                     \
      "How long the site has not trained; 0: it trains.")                                          \
    X(atoll_last_record_timestamp_seconds, gauge, LIVE_BOTH, r->role == REPORT_SEEN ? NAN : n->t,  \
      "Unix time of the newest record that the replica itself has written.")                       \
    X(atoll_loss, gauge, LIVE_SITE, live_private(r) ? NAN : n->loss,                               \
      "Training loss of the last step, nats per target; not in a run with privacy.")               \
    X(atoll_eval_loss, gauge, LIVE_SITE, report_last(&r->series[REPORT_EVAL]),                     \
      "Last eval loss, nats per target.")                                                          \
    X(atoll_gradient_norm, gauge, LIVE_SITE, n->norm,                                              \
      "Gradient norm of the last step before clipping; with privacy of the noised sum.")           \
    X(atoll_tokens_total, counter, LIVE_SITE, r->training.tokens, "Tokens trained on.")            \
    X(atoll_tokens_per_second, gauge, LIVE_SITE, n->tokens_per_second,                             \
      "Tokens per second, smoothed over about ten steps.")                                         \
    X(atoll_rounds_total, counter, LIVE_BOTH, n->rounds,                                           \
      "Rounds of all fragments: adopted by a site, committed by the aggregator.")                  \
    X(atoll_rounds_planned, gauge, LIVE_BOTH, n->rounds_all, "Rounds of the whole run.")           \
    X(atoll_payload_up_bytes_total, counter, LIVE_BOTH, n->up,                                     \
      "Payload of contributions in the run; at the aggregator of those included.")                 \
    X(atoll_payload_down_bytes_total, counter, LIVE_SITE, n->down, "Payload of aggregates.")       \
    X(atoll_next_sync_seconds, gauge, LIVE_SITE, live_sync_s(r, now),                              \
      "Until the next exchange, by the time of the last step or round.")                           \
    X(atoll_eta_seconds, gauge, LIVE_SITE, live_eta_s(r),                                          \
      "Until the last step, by the median pace.")                                                  \
    X(atoll_round_wait_seconds, gauge, LIVE_AGGREGATOR, live_round(r, LIVE_WAITED) / 1e3,          \
      "From the first contribution to the commit, last round.")                                    \
    X(atoll_round_interval_seconds, gauge, LIVE_BOTH, n->interval_s,                               \
      "Between the last two rounds.")                                                              \
    X(atoll_round_included_sites, gauge, LIVE_AGGREGATOR, live_round(r, LIVE_INCLUDED),            \
      "Sites in the last round.")                                                                  \
    X(atoll_round_sites, gauge, LIVE_AGGREGATOR, live_round(r, LIVE_SITES),                        \
      "Sites of the run at the last round.")                                                       \
    X(atoll_outer_gain, gauge, LIVE_SITE, live_metric(r, REPORT_GAIN),                             \
      "Applied outer step along the mean delta, over the outer learning rate.")                    \
    X(atoll_outer_rho, gauge, LIVE_SITE, live_metric(r, REPORT_RHO),                               \
      "Cosine of the mean delta and that of the round before.")                                    \
    X(atoll_outer_agreement, gauge, LIVE_SITE, live_metric(r, REPORT_AGREEMENT),                   \
      "Cosine of this site's delta and the mean delta.")                                           \
    X(atoll_outer_residual_ratio, gauge, LIVE_SITE, live_metric(r, REPORT_RESIDUAL),               \
      "Norm of the residual over the norm of this site's delta.")                                  \
    X(atoll_starts_total, counter, LIVE_BOTH, r->lives.starts, "Processes that began.")            \
    X(atoll_epoch, gauge, LIVE_AGGREGATOR, n->term, "Term of the aggregator.")                     \
    X(atoll_certificate_remaining_seconds, gauge, LIVE_BOTH, n->certificate_days * 86400,          \
      "Until the process's own certificate expires, in whole days; negative: it has expired, "     \
      "or is not valid.")                                                                          \
    X(atoll_disk_free_bytes, gauge, LIVE_BOTH, n->disk_free_bytes,                                 \
      "Free space of the file system with the directory of the run.")                              \
    X(atoll_clock_offset_seconds, gauge, LIVE_SITE, n->clock.aggregator_s,                         \
      "Clock of the site minus the aggregator's, measured once a round.")                          \
    X(atoll_clock_correction_seconds, gauge, LIVE_BOTH, n->clock.offset_s,                         \
      "Offset of the clock that the kernel still corrects (adjtimex).")                            \
    X(atoll_clock_error_seconds, gauge, LIVE_BOTH, n->clock.error_s,                               \
      "Largest error of the clock, as the kernel estimates it; grows without a time server, to "   \
      "16 s.")                                                                                     \
    X(atoll_privacy_epsilon, gauge, LIVE_SITE, n->budget.epsilon,                                  \
      "Epsilon of all steps of the run together, those ahead included.")                           \
    X(atoll_privacy_epsilon_cap, gauge, LIVE_SITE, n->budget.cap, "`privacy.epsilon_max`.")        \
    X(atoll_privacy_steps_left, gauge, LIVE_SITE, live_private_steps(r),                           \
      "Steps ahead that `privacy.epsilon_max` allows.")

const struct report_run *live_aggregator(const struct report_follow *f); /* the first; or NULL */
const char *live_name(const struct report_run *r); /* a site's, without the word before it */
bool live_private(const struct report_run *r);     /* its losses are not shown */
double live_eta_s(const struct report_run *r);     /* NaN: not known */
double live_sync_s(const struct report_run *r, double now);
/* Sentence of what it does: "trains", "waiting for b", "no record for 80 s". */
void live_state(const struct report_run *r, double now, char *out, size_t size);

/* A site's live row. */
void live_line(struct progress_line *l, const struct report_run *r, double now);
void live_metrics(FILE *out, const struct report_follow *f, double now);
void live_metrics_table(FILE *out); /* the documentation, Markdown */
void live_text(FILE *out, const struct report_follow *f, double now);

#endif
