/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/sim/link_server.h"

enum { STAGE_MS = 300 }; /* without the lock: docs/protocol.md 3.14 */

void link_sim_up(struct link_sim_server *s, struct link_service service)
{
    s->service = service;
    s->generation++;
    s->up = true;
    s->up_ms = s->clock->now_ms;
    s->stopped = false;
    s->committing = false;
    link_sim_run(s);
}

void link_sim_down(struct link_sim_server *s)
{
    s->up = false;
    sim_kick(s->clock, s); /* held polls end */
}

bool link_sim_serving(const struct link_sim_server *s, uint64_t generation)
{
    return s->up && !s->stopped && !*s->dead && s->generation == generation;
}

/* As server_work_main: work() under the lock, commit() without it. Only this task ends the process,
 * so it needs no generation. */
static void stages_run(struct link_sim_server *s)
{
    struct clock_sim *c = s->clock;
    s->committing = false;
    do {
        s->wake_ms = s->service.work(s->service.self, &s->stopped);
        s->worked(s->watcher);
        sim_kick(c, s);
        if (s->committing || sim_chance(c, 0.3))
            sim_sleep(c, c->now_ms + sim_below(c, STAGE_MS), NULL);
        s->committing = !*s->dead && s->service.commit(s->service.self);
        if (s->committing)
            sim_sleep(c, c->now_ms + sim_below(c, STAGE_MS), NULL);
    } while (s->committing && !*s->dead);
}

void link_sim_run(struct link_sim_server *s)
{
    if (!s->beside)
        link_sim_work(s);
    else if (link_sim_serving(s, s->generation))
        stages_run(s);
}

void link_sim_work(struct link_sim_server *s)
{
    s->calls++;
    if (s->beside && link_sim_serving(s, s->generation)) {
        s->amidst += s->committing;
        s->wake_ms = s->clock->now_ms;
        sim_kick(s->clock, s->task);
        return;
    }
    if (link_sim_serving(s, s->generation))
        s->wake_ms = link_service_work(&s->service, &s->stopped);
    s->worked(s->watcher);
    sim_kick(s->clock, s);
    sim_kick(s->clock, s->task);
}
