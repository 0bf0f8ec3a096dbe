/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SECURE_H
#define SECURE_H
/* What secure aggregation promises, in words: printed at a start, in the report and in the record
 * of a run (docs/privacy-methods.md). Pure. */
#include "outer/protocol/round.h"

enum { SECURE_SENTENCE_MAX = 640 };
/* sites: of the roster; strict: every sum has all of them. */
void secure_sentence(char out[SECURE_SENTENCE_MAX], const struct round_masks *m, unsigned sites,
                     bool strict);
/* Who may leave, and what then, in one or two sentences; without masks too. */
enum { SECURE_LEAVE_MAX = 400 };
void secure_leave(char out[SECURE_LEAVE_MAX], const struct round_masks *m, unsigned sites,
                  bool strict);

#endif
