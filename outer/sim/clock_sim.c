/* SPDX-License-Identifier: Apache-2.0 */
#undef _FORTIFY_SOURCE /* its longjmp refuses to go to another stack */
#include "outer/sim/clock_sim.h"
#include <stdlib.h>
#include "kernels/base/err.h"
#include "kernels/base/rng.h"

/* Messages and manifests lie on the stack: 400 KiB at the deepest with the largest roster, more
 * under sanitizers; pages that are never touched cost nothing. */
enum { STACK_BYTES = 2 << 20, BUCKETS = 4096 };

struct sim_task {
    size_t place;                     /* in the heap */
    struct sim_task *before, *behind; /* of those that wait in one bucket */
    struct clock_sim *clock;
    void (*run)(void *self);
    void *self;
    uint64_t wake_ms, order;
    const void *on;
    bool ended;
    struct sim_place at;
    char *stack;
};

/* ---- the heap: every live task, the earliest first ---- */

static bool earlier(const struct sim_task *a, const struct sim_task *b)
{
    return a->wake_ms < b->wake_ms || (a->wake_ms == b->wake_ms && a->order < b->order);
}

static void put(struct clock_sim *c, struct sim_task *t, size_t place)
{
    c->heap[place] = t;
    t->place = place;
}

static void sift(struct clock_sim *c, struct sim_task *t)
{
    size_t at = t->place;
    for (; at > 0 && earlier(t, c->heap[(at - 1) / 2]); at = (at - 1) / 2)
        put(c, c->heap[(at - 1) / 2], at);
    for (size_t child = 2 * at + 1; child < c->tasks; child = 2 * at + 1) {
        child += child + 1 < c->tasks && earlier(c->heap[child + 1], c->heap[child]);
        if (!earlier(c->heap[child], t))
            break;
        put(c, c->heap[child], at);
        at = child;
    }
    put(c, t, at);
}

static void add(struct clock_sim *c, struct sim_task *t)
{
    if (c->tasks == c->room) {
        c->room = c->room ? 2 * c->room : 64;
        c->heap = realloc(c->heap, c->room * sizeof(struct sim_task *));
        ASSERT(c->heap);
    }
    put(c, t, c->tasks++);
    sift(c, t);
}

static void take_out(struct clock_sim *c, struct sim_task *t)
{
    struct sim_task *last = c->heap[--c->tasks];
    if (last == t)
        return;
    put(c, last, t->place);
    sift(c, last);
}

/* ---- who waits on what ---- */

static struct sim_task **bucket_of(struct clock_sim *c, const void *on)
{
    return &c->waiting[((uintptr_t)on >> 3) * 0x9e3779b97f4a7c15u >> 52];
}

static void wait_begin(struct clock_sim *c, struct sim_task *t, const void *on)
{
    t->on = on;
    if (!on)
        return;
    struct sim_task **first = bucket_of(c, on);
    t->before = NULL;
    t->behind = *first;
    if (*first)
        (*first)->before = t;
    *first = t;
}

static void wait_end(struct clock_sim *c, struct sim_task *t)
{
    if (!t->on)
        return;
    if (t->behind)
        t->behind->before = t->before;
    if (t->before)
        t->before->behind = t->behind;
    else
        *bucket_of(c, t->on) = t->behind;
    t->on = NULL;
}

/* ---- tasks ---- */

void clock_sim_open(struct clock_sim *c, uint64_t seed)
{
    *c = (struct clock_sim){.seed = seed};
    c->waiting = calloc(BUCKETS, sizeof(struct sim_task *));
    ASSERT(c->waiting);
}

/* Stacks of tasks that have ended, for those that begin: the kernel maps and clears the pages of a
 * new one. Sanitizers remember what a stack was used for. */
#ifdef SANITIZED
static char *stack_make(void)
{
    char *stack = malloc(STACK_BYTES);
    ASSERT(stack);
    return stack;
}

static void stack_free(char *stack)
{
    free(stack);
}
#else
enum { SPARE_MAX = 64 };
static char *spare[SPARE_MAX];
static size_t spares;

static char *stack_make(void)
{
    char *stack = spares ? spare[--spares] : malloc(STACK_BYTES);
    ASSERT(stack);
    return stack;
}

static void stack_free(char *stack)
{
    if (spares < SPARE_MAX)
        spare[spares++] = stack;
    else
        free(stack);
}
#endif

static void task_free(struct sim_task *t)
{
    stack_free(t->stack);
    free(t);
}

void clock_sim_close(struct clock_sim *c)
{
    for (size_t i = 0; i < c->tasks; i++)
        task_free(c->heap[i]);
    free(c->heap);
    free(c->waiting);
    c->heap = c->waiting = NULL;
    c->tasks = c->room = 0;
}

uint64_t sim_below(struct clock_sim *c, uint64_t n)
{
    return rng_below(c->seed, RNG_SIM, c->drawn++, n);
}

bool sim_chance(struct clock_sim *c, double p)
{
    return p > 0 && rng_unit(c->seed, RNG_SIM, c->drawn++) < p;
}

bool sim_strikes(struct clock_sim *c, double p, const char *what, const char *who)
{
    if (p < 1 && !sim_chance(c, p))
        return false;
    uint64_t number = c->struck++;
    if (c->without && number < SIM_STRIKES_MAX && c->without[number])
        return false;
    if (c->told)
        c->told(c->told_self, c->now_ms, number, what, who);
    return true;
}

/* swapcontext has the kernel change the signal mask, which costs more than all else here, and
 * no task has another one. Sanitizers know only it. */
static void change(struct sim_place *from, struct sim_place *to)
{
#ifdef SANITIZED
    swapcontext(&from->first, &to->first);
#else
    if (_setjmp(from->then))
        return;
    from->begun = true;
    if (to->begun)
        _longjmp(to->then, 1);
    setcontext(&to->first);
#endif
}

/* makecontext passes ints only: the pointer comes in two halves. */
static void task_main(unsigned high, unsigned low)
{
    struct sim_task *t = (struct sim_task *)((uintptr_t)high << 32 | low);
    t->run(t->self);
    t->ended = true;
    change(&t->at, &t->clock->home);
}

void sim_start(struct clock_sim *c, void (*run)(void *self), void *self)
{
    struct sim_task *t = calloc(1, sizeof *t);
    ASSERT(t);
    t->stack = stack_make();
    t->clock = c;
    t->run = run;
    t->self = self;
    t->wake_ms = c->now_ms;
    t->order = sim_below(c, UINT64_MAX);
    add(c, t);
    ASSERT(getcontext(&t->at.first) == 0);
    t->at.first.uc_stack.ss_sp = t->stack;
    t->at.first.uc_stack.ss_size = STACK_BYTES;
    t->at.first.uc_link = NULL;
    uintptr_t bits = (uintptr_t)t;
    makecontext(&t->at.first, (void (*)(void))task_main, 2, (unsigned)(bits >> 32), (unsigned)bits);
}

void sim_sleep(struct clock_sim *c, uint64_t until_ms, const void *on)
{
    struct sim_task *t = c->running;
    unsigned process = c->process;
    ASSERT(t);
    t->wake_ms = until_ms > c->now_ms ? until_ms : c->now_ms;
    t->order = sim_below(c, UINT64_MAX);
    sift(c, t);
    wait_begin(c, t, on);
    change(&t->at, &c->home);
    c->process = process;
    wait_end(c, t);
}

void sim_kick(struct clock_sim *c, const void *on)
{
    if (!on)
        return;
    for (struct sim_task *t = *bucket_of(c, on); t; t = t->behind)
        if (t->on == on && t->wake_ms > c->now_ms) {
            t->wake_ms = c->now_ms;
            sift(c, t);
        }
}

bool sim_run(struct clock_sim *c, uint64_t limit_ms)
{
    while (c->tasks) {
        struct sim_task *t = c->heap[0];
        if (c->halted)
            return false;
        if (t->wake_ms > limit_ms)
            return false;
        if (t->wake_ms > c->now_ms)
            c->now_ms = t->wake_ms;
        c->running = t;
        c->process = 0;
        change(&c->home, &t->at);
        c->running = NULL;
        if (!t->ended)
            continue;
        take_out(c, t);
        task_free(t);
    }
    return true;
}
