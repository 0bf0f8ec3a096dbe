/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/wan/child.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "outer/wan/namespace.h"

enum { TAIL_LINES = 8, POLL_MS = 50, PATIENCE_MS = 10000 };

void child_pause(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Between fork and exec: calls that are safe there only. */
static void become(const struct child_command *command)
{
    sigset_t none;
    int bad = 0;
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    if (command->log) {
        int in = open("/dev/null", O_RDONLY),
            out = open(command->log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
            bad = errno;
        if (in > 2)
            close(in);
        if (out > 2)
            close(out);
    }
    if (!bad && command->where)
        bad = namespace_enter(command->where);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* entering a namespace would undo it */
    if (!bad) {
        if (command->program)
            execvp(command->program, command->argv);
        else
            execv("/proc/self/exe", command->argv);
        bad = errno;
    }
    dprintf(2, "cannot start %s: %s\n", command->argv[0], strerror(bad));
    _exit(127);
}

enum err child_start(struct child *c, const struct child_command *command)
{
    *c = (struct child){.name = command->name, .log = command->log};
    fflush(stdout);
    sigset_t all, ours;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &ours); /* our handlers are not the child's */
    pid_t pid = fork();
    if (pid == 0)
        become(command);
    sigprocmask(SIG_SETMASK, &ours, NULL);
    if (pid < 0)
        return err_set(ERR_IO, "cannot start %s: %s", command->name, strerror(errno));
    setpgid(pid, pid); /* in the child, too: which of the two runs first is not known */
    c->pid = pid;
    return ERR_OK;
}

bool child_running(struct child *c)
{
    int status;
    if (c->pid == 0)
        return false;
    pid_t got = waitpid(c->pid, &status, WNOHANG);
    if (got == 0)
        return true;
    c->status = got < 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    c->pid = 0;
    return false;
}

void child_end(struct child *children, unsigned count)
{
    const int signals[] = {SIGTERM, SIGKILL};
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < count; i++)
            if (child_running(&children[i]))
                kill(-children[i].pid, signals[turn]);
        for (int waited = 0; waited < PATIENCE_MS; waited += POLL_MS) {
            bool any = false;
            for (unsigned i = 0; i < count; i++)
                any = child_running(&children[i]) || any;
            if (!any)
                return;
            child_pause(POLL_MS);
        }
    }
}

/* What a person would look at first. */
static void show_tail(const struct child *c)
{
    char line[TAIL_LINES][400];
    int n = 0;
    FILE *f = c->log ? fopen(c->log, "re") : NULL;
    if (!f)
        return;
    while (fgets(line[n % TAIL_LINES], sizeof line[0], f))
        n++;
    fclose(f);
    for (int i = n > TAIL_LINES ? n - TAIL_LINES : 0; i < n; i++)
        fprintf(stderr, "    %s", line[i % TAIL_LINES]);
}

enum err child_failed(const struct child *c)
{
    enum err e = c->status == 75  ? ERR_STOPPED
                 : c->status == 4 ? ERR_CONFIG
                 : c->status == 5 ? ERR_INTERNAL
                                  : ERR_COMMAND;
    if (!c->log)
        return err_set(e, "%s: its command ended with exit code %d%s", c->name, c->status,
                       c->status == 127 ? ": not found, or it cannot be started" : "");
    fprintf(stderr, "\nlast lines of %s:\n", c->log);
    show_tail(c);
    return err_set(e, "%s: its command ended with exit code %d; its log is %s", c->name, c->status,
                   c->log);
}
