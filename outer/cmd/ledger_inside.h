#ifndef LEDGER_INSIDE_H
#define LEDGER_INSIDE_H
/* atoll ledger --by inside: bytes that the ranks of a site sent each other, of metrics.jsonl of run
 * directories, by bytes of a step: a phase of a compressed run has its own.
 */
#include "kernels/base/arena.h"
#include "kernels/base/args.h"

/* ERR_INPUT: no metrics.jsonl, or no step of several ranks in it; the sentence names the file. */
enum err ledger_inside(const struct args *directories, bool csv, struct arena *a) MUST;

#endif
