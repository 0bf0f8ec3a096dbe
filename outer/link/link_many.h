#ifndef LINK_MANY_H
#define LINK_MANY_H
/* One link made of several, one to each aggregator that shares the fragments of a run: a call goes
 * to the one that its head names. Owns them: its close closes all.
 */
#include "outer/link/link.h"

enum err link_many_open(struct link **out, struct link *const *links, unsigned count) MUST;

#endif
