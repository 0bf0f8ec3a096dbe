/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_MANY_H
#define LINK_MANY_H
/* One link over several links, one for each aggregator of a run. Each call goes to the aggregator
 * that the message's head names. Owns the links: close closes all of them.
 */
#include "outer/link/link.h"

enum err link_many_open(struct link **out, struct link *const *links, unsigned count) MUST;

#endif
