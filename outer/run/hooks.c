/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/hooks.h"
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "inner/data/shard.h"
#include "inner/io/checkpoint.h"
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"

enum { POLL_MS = 50, FIRST_PAUSE_MS = 1000, LONGEST_PAUSE_MS = 60000, KILL_MS = 5000 };

static uint64_t pause_ms(unsigned tries)
{
    uint64_t ms = FIRST_PAUSE_MS;
    while (--tries && ms < LONGEST_PAUSE_MS)
        ms *= 2;
    return ms < LONGEST_PAUSE_MS ? ms : LONGEST_PAUSE_MS;
}

/* ---- after a checkpoint; the mutex is locked unless it says otherwise ---- */
static void hold(const struct hooks *h)
{
    const uint64_t steps[] = {(uint64_t)h->running.step, (uint64_t)h->next.step};
    bool both[] = {h->running.there, h->next.there};
    uint64_t held[2];
    size_t n = 0;
    for (size_t i = 0; i < 2; i++)
        if (both[i])
            held[n++] = steps[i];
    checkpoint_hold(held, n);
}

static void tell(struct hooks *h, const struct hook_checkpoint *c, int status, bool replaced)
{
    struct hook_outcome o = {c->step, c->tries, status, replaced,
                             (double)(clock_mono_ms() - c->saved_ms) / 1e3};
    char line[300] = "", quoted[400];
    if (status && !replaced && c->tries)
        command_said(h->o.log, line, sizeof line);
    if (!c->tries && !replaced)
        log_event(LOG_WARN, "after_checkpoint",
                  "step=%lld text=\"the command was not started for this checkpoint: no time was "
                  "left; run it by hand\"",
                  (long long)c->step);
    log_event(status || replaced ? LOG_WARN : LOG_INFO, "after_checkpoint",
              "step=%lld %s=%d tries=%u seconds=%.1f%s%s", (long long)c->step,
              replaced ? "replaced" : "exit", replaced ? 1 : status, c->tries, o.seconds,
              *line ? " output=" : "", *line ? log_quote(quoted, sizeof quoted, line) : "");
    if (h->outcome_count == HOOK_OUTCOMES) /* not taken in time: the oldest goes */
        memmove(h->outcomes, h->outcomes + 1, --h->outcome_count * sizeof *h->outcomes);
    h->outcomes[h->outcome_count++] = o;
}

static enum err start(struct hooks *h, struct arena *a)
{
    struct command_options x = {.text = h->o.command, .log = h->o.log};
    const struct hook_checkpoint *c = &h->running;
    char path[PATH_MAX];
    const char *absolute = realpath(h->o.checkpoints, path);
    if (!absolute)
        return err_set(ERR_IO, "%s is not there", h->o.checkpoints);
    TRY(command_set(&x, a, "ATOLL_RUN=%s", h->o.run));
    TRY(command_set(&x, a, "ATOLL_SITE=%s", h->o.site));
    TRY(command_set(&x, a, "ATOLL_CHECKPOINT=%s/%08lld", absolute, (long long)c->step));
    TRY(command_set(&x, a, "ATOLL_STEP=%lld", (long long)c->step));
    TRY(command_set(&x, a, "ATOLL_ROUND=%llu", (unsigned long long)c->round));
    TRY(command_set(&x, a, "ATOLL_TRY=%u", c->tries));
    return command_start(&h->command, &x);
}

/* No time is left for it, because the process ends. */
static bool is_late(const struct hooks *h)
{
    return h->ending && clock_mono_ms() >= h->end_ms;
}

/* Until `until_ms` at most, and only until a newer checkpoint comes. */
static void pause_until(struct hooks *h, uint64_t until_ms)
{
    while (!is_late(h) && !h->next.there && clock_mono_ms() < until_ms)
        clock_cond_wait(&h->changed, &h->mutex,
                        h->ending && h->end_ms < until_ms ? h->end_ms : until_ms);
}

/* One try. Returns what it ended with. */
static int run_once(struct hooks *h)
{
    struct arena scratch = arena_make(0);
    uint64_t timeout = clock_mono_ms() + h->o.timeout_ms, killed = 0;
    enum err e = start(h, &scratch);
    arena_free(&scratch);
    if (e != ERR_OK) {
        char quoted[600];
        log_event(LOG_WARN, "after_checkpoint", "why=%s",
                  log_quote(quoted, sizeof quoted, err_message()));
        return 127;
    }
    while (command_running(&h->command)) {
        uint64_t now = clock_mono_ms();
        bool over = now >= timeout || is_late(h);
        if (over && !killed) {
            command_signal(&h->command, SIGTERM);
            killed = now;
        }
        if (killed && now - killed >= KILL_MS)
            command_signal(&h->command, SIGKILL);
        clock_cond_wait(&h->changed, &h->mutex, now + POLL_MS);
    }
    return h->command.status ? h->command.status : killed ? 128 + SIGTERM : 0;
}

/* All tries for one checkpoint. */
static void run_all(struct hooks *h)
{
    int status = 0;
    for (;;) {
        h->running.tries++;
        status = run_once(h);
        if (!status || h->running.tries == HOOK_TRIES || is_late(h))
            break;
        pause_until(h, clock_mono_ms() + pause_ms(h->running.tries));
        if (h->next.there) {
            tell(h, &h->running, status, true);
            return;
        }
    }
    tell(h, &h->running, status, false);
}

static void *hooks_main(void *self)
{
    struct hooks *h = self;
    pthread_mutex_lock(&h->mutex);
    for (;;) {
        while (!h->next.there && !h->ending)
            pthread_cond_wait(&h->changed, &h->mutex);
        if (!h->next.there)
            break;
        h->running = h->next;
        h->next.there = false;
        hold(h);
        if (h->ending && h->each) /* after an older one, which took the time */
            h->end_ms = clock_mono_ms() + h->patience_ms;
        if (is_late(h))
            tell(h, &h->running, 128 + SIGTERM, false); /* no time left for it */
        else
            run_all(h);
        h->running.there = false;
        hold(h);
    }
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

enum err hooks_open(struct hooks *h, const struct hook_options *o)
{
    *h = (struct hooks){.o = *o};
    if (!*o->command)
        return ERR_OK;
    pthread_mutex_init(&h->mutex, NULL);
    clock_cond_init(&h->changed);
    if (pthread_create(&h->thread, NULL, hooks_main, h) != 0)
        return err_set(ERR_IO, "no thread for run.after_checkpoint");
    h->open = true;
    return ERR_OK;
}

void hooks_saved(struct hooks *h, int64_t step, uint64_t rounds)
{
    if (!h->open)
        return;
    pthread_mutex_lock(&h->mutex);
    if (h->next.there)
        tell(h, &h->next, 0, true);
    h->next = (struct hook_checkpoint){
        .there = true, .step = step, .round = rounds, .saved_ms = clock_mono_ms()};
    hold(h);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

bool hooks_take(struct hooks *h, struct hook_outcome *out)
{
    if (!h->open)
        return false;
    pthread_mutex_lock(&h->mutex);
    bool any = h->outcome_count > 0;
    if (any) {
        *out = h->outcomes[0];
        memmove(h->outcomes, h->outcomes + 1, --h->outcome_count * sizeof *h->outcomes);
    }
    pthread_mutex_unlock(&h->mutex);
    return any;
}

void hooks_close(struct hooks *h, uint64_t patience_ms, bool each)
{
    if (!h->open || h->ending)
        return;
    pthread_mutex_lock(&h->mutex);
    if (h->running.there || h->next.there)
        log_event(LOG_INFO, "after_checkpoint",
                  "text=\"waiting for the command of the last checkpoint, %llu s at most\"",
                  (unsigned long long)(patience_ms / 1000));
    h->ending = true;
    h->each = each;
    h->patience_ms = patience_ms;
    h->end_ms = clock_mono_ms() + patience_ms;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
    pthread_join(h->thread, NULL);
    checkpoint_hold(NULL, 0);
}

void hooks_kill(struct hooks *h)
{
    if (!h->open)
        return;
    pthread_mutex_lock(&h->mutex);
    command_signal(&h->command, SIGKILL);
    pthread_mutex_unlock(&h->mutex);
}

/* ---- data.fetch ---- */
struct fetch {
    const struct fetch_options *o;
    const char *path, *part, *shown; /* shown: the path for the log */
};

static bool fetch_stopped(const struct fetch *f)
{
    return f->o->stop && atomic_load(f->o->stop);
}

static void fetch_pause(const struct fetch *f, uint64_t ms)
{
    const struct timespec poll = {.tv_nsec = POLL_MS * 1000000L};
    for (uint64_t passed = 0; passed < ms && !fetch_stopped(f); passed += POLL_MS)
        nanosleep(&poll, NULL);
}

static void fetch_wait(const struct fetch *f, struct command *c)
{
    const struct timespec poll = {.tv_nsec = POLL_MS * 1000000L};
    uint64_t began = clock_mono_ms(), ended = 0;
    while (command_running(c)) {
        uint64_t now = clock_mono_ms();
        if (!ended && (now - began >= f->o->timeout_ms || fetch_stopped(f))) {
            command_signal(c, SIGTERM);
            ended = now;
        }
        if (ended && now - ended >= KILL_MS)
            command_signal(c, SIGKILL);
        nanosleep(&poll, NULL);
    }
    if (ended && !c->status)
        c->status = 128 + SIGTERM;
}

static enum err fetch_once(const struct fetch *f, unsigned tries, struct command *c,
                           struct arena *a)
{
    struct command_options x = {.text = f->o->command, .log = f->o->log};
    TRY(command_set(&x, a, "ATOLL_RUN=%s", f->o->run));
    TRY(command_set(&x, a, "ATOLL_SITE=%s", f->o->site));
    TRY(command_set(&x, a, "ATOLL_SHARD=%s", f->path));
    TRY(command_set(&x, a, "ATOLL_TARGET=%s", f->part));
    TRY(command_set(&x, a, "ATOLL_TRY=%u", tries));
    TRY(file_remove_tree(f->part)); /* a command may have made a directory of it */
    TRY(command_start(c, &x));
    fetch_wait(f, c);
    return ERR_OK;
}

/* The file appears as a whole: the command writes to another name in its directory. */
static enum err fetch_place(const struct fetch *f)
{
    if (rename(f->part, f->path) == 0)
        return ERR_OK;
    return err_set(ERR_IO, "cannot rename %s to %s: %s", f->part, f->path, strerror(errno));
}

/* A link to a file is one. A directory or a pipe in the shard's place would end every later start.
 */
static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* What a try ended with, for people. */
static void fetch_tell(const struct fetch *f, const struct command *c, unsigned tries)
{
    char line[300], said[400], quoted[1700];
    command_said(f->o->log, line, sizeof line);
    snprintf(said, sizeof said, "%s%.300s", c->status ? "" : "it left no file ATOLL_TARGET; ",
             line);
    log_event(
        LOG_WARN, "fetch",
        "shard=%s exit=%d tries=%u output=%s text=\"the run waits for this file; data.fetch is "
        "tried again in %llu s\"",
        f->shown, c->status, tries, log_quote(quoted, sizeof quoted, said),
        (unsigned long long)(pause_ms(tries) / 1000));
}

static enum err fetch_file(const struct fetch *f, struct arena *a)
{
    double began = clock_mono_s();
    for (unsigned tries = 1; !fetch_stopped(f); tries++) {
        struct command c;
        log_event(LOG_INFO, "fetch", "shard=%s try=%u", f->shown, tries);
        TRY(fetch_once(f, tries, &c, a));
        if (!c.status && is_file(f->part))
            TRY(fetch_place(f));
        if (file_exists(f->path)) { /* this command's, or another host's on a shared disk */
            log_event(LOG_INFO, "fetched", "shard=%s tries=%u seconds=%.1f", f->shown, tries,
                      clock_mono_s() - began);
            return ERR_OK;
        }
        if (fetch_stopped(f))
            break;
        fetch_tell(f, &c, tries);
        fetch_pause(f, pause_ms(tries));
    }
    TRY(file_remove_tree(f->part));
    return err_set(ERR_STOPPED, "stopped while it waited for %s", f->path);
}

bool hooks_absent(const char *item)
{
    const char *path = shard_item_path(item);
    return !strpbrk(path, "*?[") && !file_exists(path);
}

static enum err fetch_item(const char *item, const struct fetch_options *o, struct arena *a)
{
    struct fetch f = {.o = o, .path = shard_item_path(item)};
    char host[65] = "", *part, *directory;
    if (!hooks_absent(item))
        return ERR_OK;
    const char *slash = strrchr(f.path, '/');
    gethostname(host, sizeof host - 1);
    TRY_ALLOC(directory =
                  arena_printf(a, "%.*s", slash ? (int)(slash - f.path) : 1, slash ? f.path : "."));
    if (*directory)
        TRY(file_mkdirs(directory));
    TRY_ALLOC(part = arena_printf(a, "%s.fetch.%s.%ld", f.path, host, (long)getpid()));
    f.part = part;
    char *quoted;
    size_t room = 4 * strlen(f.path) + 3;
    TRY_ALLOC(quoted = arena_alloc(a, room));
    f.shown = log_quote(quoted, room, f.path);
    return fetch_file(&f, a);
}

enum err hooks_fetch(const struct config_list *list, const struct fetch_options *o)
{
    struct arena a = arena_make(0);
    enum err e = ERR_OK;
    for (size_t i = o->number; i < list->count && *o->command && !e; i += o->each)
        e = fetch_item(list->items[i], o, &a);
    arena_free(&a);
    return e;
}
