/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLOCK_SIM_H
#define CLOCK_SIM_H
/* Virtual time, chance and coroutines of the simulator: one thread, one 64-bit seed. A task is
 * ordinary code on a stack of its own that gives way in sim_sleep only; the earliest sleeper runs
 * next, equals in an order drawn from the seed. Same seed, same run.
 *
 * A fault asks sim_strikes. Each one that strikes has a number, and a run can leave out single ones
 * (`without`): up to the first one that is left out the run is the same.
 */
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

struct sim_task;
struct sim_place { /* where a stack continues */
    ucontext_t first;
    jmp_buf then;
    bool begun;
};
enum { SIM_STRIKES_MAX = 8192 }; /* that can be left out; later ones strike */
/* One fault, as it strikes. who: a node, "" for none. */
typedef void sim_told(void *self, uint64_t now_ms, uint64_t number, const char *what,
                      const char *who);
struct clock_sim {
    uint64_t now_ms, seed, drawn;
    struct sim_task **heap, **waiting; /* by time; by what they wait on */
    size_t tasks, room;
    struct sim_task *running;
    bool halted; /* set by anyone: sim_run returns */
    struct sim_place home;
    uint64_t struck;        /* faults so far, those left out too */
    const uint8_t *without; /* [SIM_STRIKES_MAX] not 0: that fault is left out; NULL: none is */
    sim_told *told;         /* NULL: no listener */
    void *told_self;
    unsigned process; /* 1 + the node whose code runs; 0: none */
};

void clock_sim_open(struct clock_sim *c, uint64_t seed);
void clock_sim_close(
    struct clock_sim *c); /* tasks that have not ended are dropped with their stacks */
void sim_start(struct clock_sim *c, void (*run)(void *self), void *self);
/* The running task sleeps until then, or until sim_kick(c, on). on may be NULL. */
void sim_sleep(struct clock_sim *c, uint64_t until_ms, const void *on);
void sim_kick(struct clock_sim *c, const void *on);
bool sim_run(struct clock_sim *c,
             uint64_t limit_ms); /* false: halted, or at limit_ms a task still sleeps */
uint64_t sim_below(struct clock_sim *c, uint64_t n); /* uniform in [0, n) */
bool sim_chance(struct clock_sim *c, double p);
bool sim_strikes(struct clock_sim *c, double p, const char *what, const char *who);

#endif
