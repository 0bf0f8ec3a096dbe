/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/command.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum err command_set(struct command_options *o, struct arena *a, const char *format, ...)
{
    size_t i = 0;
    va_list args, again;
    while (o->set[i])
        i++;
    ASSERT(i + 1 < COMMAND_SET_MAX);
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    ASSERT(n > 0);
    o->set[i] = arena_alloc(a, (size_t)n + 1);
    if (o->set[i])
        vsnprintf(o->set[i], (size_t)n + 1, format, again);
    va_end(again);
    TRY_ALLOC(o->set[i]);
    return ERR_OK;
}

/* What is ours alone: a command that is told of must not answer the service manager. */
static bool is_inherited(const char *variable)
{
    static const char *const ours[] = {"ATOLL_", "NOTIFY_SOCKET=", "WATCHDOG_"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strncmp(variable, ours[i], strlen(ours[i])))
            return false;
    return true;
}

static enum err environment_of(const struct command_options *o, struct arena *a, char ***all)
{
    size_t count = 0, n = 0;
    while (environ && environ[count])
        count++;
    TRY_ALLOC(*all = arena_array(a, count + COMMAND_SET_MAX + 1, sizeof **all));
    for (size_t i = 0; i < count; i++)
        if (is_inherited(environ[i]))
            (*all)[n++] = environ[i];
    for (size_t i = 0; o->set[i]; i++)
        (*all)[n++] = o->set[i];
    return ERR_OK;
}

static int actions_of(posix_spawn_file_actions_t *f, const struct command_options *o)
{
    int bad = posix_spawn_file_actions_addopen(f, 0, "/dev/null", O_RDONLY, 0);
    if (!bad)
        bad = posix_spawn_file_actions_addopen(f, 1, o->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (!bad)
        bad = posix_spawn_file_actions_adddup2(f, 1, 2);
#if __GLIBC_PREREQ(2, 34) /* files of libraries that do not close at exec */
    if (!bad)
        bad = posix_spawn_file_actions_addclosefrom_np(f, 3);
#endif
    return bad;
}

/* Signals as a shell expects them: this process blocks some and ignores SIGPIPE. */
static int attributes_of(posix_spawnattr_t *x)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int bad = posix_spawnattr_setflags(x, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    bad = bad ? bad : posix_spawnattr_setpgroup(x, 0);
    bad = bad ? bad : posix_spawnattr_setsigmask(x, &none);
    return bad ? bad : posix_spawnattr_setsigdefault(x, &all);
}

enum err command_start(struct command *c, const struct command_options *o)
{
    struct arena scratch = arena_make(0);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    char *argv[] = {"/bin/sh", "-c", (char *)(uintptr_t)o->text, NULL}, **all = NULL;
    *c = (struct command){0};
    TRY(environment_of(o, &scratch, &all));
    int bad = posix_spawn_file_actions_init(&files);
    if (!bad) {
        bad = posix_spawnattr_init(&attributes);
        if (!bad) {
            bad = actions_of(&files, o);
            bad = bad ? bad : attributes_of(&attributes);
            bad = bad ? bad : posix_spawn(&c->pid, argv[0], &files, &attributes, argv, all);
            posix_spawnattr_destroy(&attributes);
        }
        posix_spawn_file_actions_destroy(&files);
    }
    arena_free(&scratch);
    if (!bad)
        return ERR_OK;
    c->pid = 0;
    return err_set(ERR_IO, "cannot start a command (output: %s): %s", o->log, strerror(bad));
}

bool command_running(struct command *c)
{
    int status;
    if (!c->pid)
        return false;
    pid_t got = waitpid(c->pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return true;
    c->status = got < 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    c->pid = 0;
    return false;
}

void command_signal(const struct command *c, int number)
{
    if (c->pid)
        kill(-c->pid, number);
}

void command_said(const char *log, char *line, size_t size)
{
    FILE *f = fopen(log, "re");
    char text[512];
    *line = 0;
    if (f && fseek(f, -2048, SEEK_END) != 0)
        rewind(f);
    while (f && fgets(text, sizeof text, f)) {
        text[strcspn(text, "\n")] = 0;
        if (*text)
            snprintf(line, size, "%s", text);
    }
    if (f)
        fclose(f);
}
