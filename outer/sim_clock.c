#include "outer/sim_clock.h"
#include <stdlib.h>
#include "kernels/base/err.h"
#include "kernels/base/rng.h"

/* Messages and manifests lie on the stack: 40 KiB at the deepest, several times that under
 * sanitizers. */
enum { STACK_BYTES = 1 << 20 };

struct sim_task {
    struct sim_task *next;
    struct sim_clock *clock;
    void (*run)(void *self);
    void *self;
    uint64_t wake_ms, order;
    const void *on;
    bool ended;
    ucontext_t context;
    char *stack;
};

void sim_clock_open(struct sim_clock *c, uint64_t seed)
{
    *c = (struct sim_clock){.seed = seed};
}

static void task_free(struct sim_task *t)
{
    free(t->stack);
    free(t);
}

void sim_clock_close(struct sim_clock *c)
{
    while (c->tasks) {
        struct sim_task *t = c->tasks;
        c->tasks = t->next;
        task_free(t);
    }
}

uint64_t sim_below(struct sim_clock *c, uint64_t n)
{
    return rng_below(c->seed, RNG_SIM, c->drawn++, n);
}

bool sim_chance(struct sim_clock *c, double p)
{
    return p > 0 && rng_unit(c->seed, RNG_SIM, c->drawn++) < p;
}

/* makecontext passes ints only: the pointer comes in two halves. */
static void task_main(unsigned high, unsigned low)
{
    struct sim_task *t = (struct sim_task *)((uintptr_t)high << 32 | low);
    t->run(t->self);
    t->ended = true;
    swapcontext(&t->context, &t->clock->home);
}

void sim_start(struct sim_clock *c, void (*run)(void *self), void *self)
{
    struct sim_task *t = calloc(1, sizeof *t);
    ASSERT(t);
    t->stack = malloc(STACK_BYTES);
    ASSERT(t->stack);
    *t = (struct sim_task){.next = c->tasks,
                           .clock = c,
                           .run = run,
                           .self = self,
                           .wake_ms = c->now_ms,
                           .order = sim_below(c, UINT64_MAX),
                           .stack = t->stack};
    c->tasks = t;
    ASSERT(getcontext(&t->context) == 0);
    t->context.uc_stack.ss_sp = t->stack;
    t->context.uc_stack.ss_size = STACK_BYTES;
    t->context.uc_link = NULL;
    uintptr_t bits = (uintptr_t)t;
    makecontext(&t->context, (void (*)(void))task_main, 2, (unsigned)(bits >> 32), (unsigned)bits);
}

void sim_sleep(struct sim_clock *c, uint64_t until_ms, const void *on)
{
    struct sim_task *t = c->running;
    ASSERT(t);
    t->wake_ms = until_ms > c->now_ms ? until_ms : c->now_ms;
    t->order = sim_below(c, UINT64_MAX);
    t->on = on;
    swapcontext(&t->context, &c->home);
    t->on = NULL;
}

void sim_kick(struct sim_clock *c, const void *on)
{
    for (struct sim_task *t = c->tasks; t; t = t->next)
        if (on && t->on == on && t != c->running)
            t->wake_ms = c->now_ms;
}

static struct sim_task **earliest(struct sim_clock *c)
{
    struct sim_task **best = NULL;
    for (struct sim_task **at = &c->tasks; *at; at = &(*at)->next)
        if (!best || (*at)->wake_ms < (*best)->wake_ms ||
            ((*at)->wake_ms == (*best)->wake_ms && (*at)->order < (*best)->order))
            best = at;
    return best;
}

bool sim_run(struct sim_clock *c, uint64_t limit_ms)
{
    for (struct sim_task **at = earliest(c); at; at = earliest(c)) {
        struct sim_task *t = *at;
        if (c->halted)
            return false;
        if (t->wake_ms > limit_ms)
            return false;
        if (t->wake_ms > c->now_ms)
            c->now_ms = t->wake_ms;
        c->running = t;
        swapcontext(&c->home, &t->context);
        c->running = NULL;
        if (!t->ended)
            continue;
        for (at = &c->tasks; *at != t; at = &(*at)->next) /* the list may have grown meanwhile */
            continue;
        *at = t->next;
        task_free(t);
    }
    return true;
}
