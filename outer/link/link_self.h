/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_SELF_H
#define LINK_SELF_H
/* The link of a site that is its own aggregator: every call is a function call of the service, in
 * the calling thread, under one lock. Nothing is lost, cut or delivered twice.
 */
#include "outer/link/link.h"
#include "outer/store/env.h"

/* `site`: the only one that calls. The service and `env`, whose clock and lock it uses, must
 * outlive the link. */
enum err link_self_open(struct link **out, struct env *env, const struct link_service *service,
                        const char *run, const char *site) MUST;

#endif
