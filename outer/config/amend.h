/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AMEND_H
#define AMEND_H
/* Amendments (outer/protocol/amendments.h, docs/protocol.md 3.17) as settings: which keys an
 * operator may change in mid-run, why not the others, and what is in force for a round. Functions
 * of the configuration and a list alone, so that every replica, and a replay of the manifests, has
 * the same settings for a round. Values are read and checked by the key tables, and the amended
 * settings pass all rules of a configuration.
 *
 * A setting of round N is in force for the rounds of fragment 0 from N on, and for all steps after
 * the border: the step that ends round N - 1. Another fragment's round is under it when its step is
 * after the border.
 */
#include "inner/data/loader.h"
#include "outer/config/keys.h"
#include "outer/diloco/schedule.h"
#include "outer/protocol/amendments.h"

/* X(section, name, effect): the keys that can be amended. */
#define AMEND_KEYS(X)                                                                              \
    X(outer, lr, AMEND_SCHEDULE)                                                                   \
    X(outer, sync_every, AMEND_SCHEDULE)                                                           \
    X(outer, codec, AMEND_SCHEDULE)                                                                \
    X(outer, overlap_steps, AMEND_SCHEDULE)                                                        \
    X(outer, straggler_timeout_s, AMEND_ROUND)                                                     \
    X(train, steps, AMEND_SCHEDULE)                                                                \
    X(data, weights, AMEND_DATA)                                                                   \
    X(train, lr, AMEND_TRAIN)                                                                      \
    X(train, min_lr_ratio, AMEND_TRAIN)                                                            \
    X(train, warmup_steps, AMEND_TRAIN)                                                            \
    X(train, warmup_shape, AMEND_TRAIN)                                                            \
    X(train, stable_steps, AMEND_TRAIN)                                                            \
    X(train, lr_schedule, AMEND_TRAIN)                                                             \
    X(train, lr_decay_factor, AMEND_TRAIN)                                                         \
    X(train, lr_decay_steps, AMEND_TRAIN)
enum amend_effect {
    AMEND_SCHEDULE, /* rounds and the outer step: struct schedule_change */
    AMEND_ROUND,    /* how the aggregator closes a round */
    AMEND_DATA,     /* the mixture after the border, of a site that has as many sources */
    AMEND_TRAIN     /* the inner steps after the border */
};

/* The settings in force for this round of fragment 0. Strings of amended keys lie in `a`.
 * ERR_PROTO: a list that no aggregator of this run has made. */
enum err amend_settings(struct settings *s, struct outer_settings *o, const struct keys_base *base,
                        const struct amendments *list, uint64_t round, struct arena *a) MUST;
/* outer_state_options.amend; self: struct keys_base. `s`: the schedule of the configuration. */
enum err amend_schedule(const void *self, struct schedule *s, const struct amendments *list) MUST;
/* The same as *s, which keeps the former values of train.steps that it has. configured: the
 * schedule of the configuration. */
enum err amend_reschedule(const struct keys_base *base, const struct schedule *configured,
                          const struct amendments *list, struct schedule *s) MUST;
/* The border of an amendment from this round on. ERR_PROTO: the run has no such round. */
enum err amend_border(const struct schedule *s, uint64_t round, int64_t *step) MUST;

bool amend_allowed(const struct config_key *k);
/* May the key be amended? NULL; or why not. *known false: there is no such key. */
const char *amend_refusal(const char *key, bool *known);
/* May `one` follow the list? s: the schedule under the list. ERR_CONFIG: the reason. */
enum err amend_check(const struct keys_base *base, const struct schedule *s,
                     const struct amendments *list, const struct amendment *one) MUST;
/* What a person should know of one that may follow the list: the warnings that a configuration with
 * the amended settings gets at a start, where the settings before have not the same one already.
 * "": nothing. */
enum err amend_warning(char *out, size_t size_bytes, const struct keys_base *base,
                       const struct amendments *list, const struct amendment *one) MUST;

/* Settings of the inner steps, for the training loop: those that are in force for the step after
 * `step`, into the site's own. */
enum err amend_train(struct settings *s, const struct keys_base *base, const struct schedule *x,
                     const struct amendments *list, int64_t step, struct arena *a) MUST;
/* data.weights after the borders. */
enum err amend_data(struct loader_changes *c, const struct keys_base *base,
                    const struct schedule *x, const struct amendments *list) MUST;

#endif
