/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/notify.h"
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "kernels/base/clock.h"

enum { ALIVE_EVERY_S = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char said[256];
static double alive_s;

/* '@' stands for a zero: an abstract name. Never waits. */
static void notify_send(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (!n || n >= sizeof a.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(a.sun_path, path, n);
    if (*path == '@')
        a.sun_path[0] = 0;
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    (void)!sendto(s, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&a, size);
    close(s);
}

void notify_ready(void)
{
    notify_send("READY=1");
}

void notify_stopping(void)
{
    notify_send("STOPPING=1");
}

/* Of the last second? The lock is held. */
static bool alive_recent(void)
{
    double now = clock_mono_s();
    if (now - alive_s < ALIVE_EVERY_S)
        return true;
    alive_s = now;
    return false;
}

static void status_send(const char *words)
{
    char text[sizeof said + 16];
    if (strncmp(said, words, sizeof said - 1) == 0)
        return;
    snprintf(said, sizeof said, "%s", words);
    snprintf(text, sizeof text, "STATUS=%s", said);
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    notify_send(text);
}

void notify_alive(void)
{
    pthread_mutex_lock(&lock);
    if (!alive_recent())
        notify_send("WATCHDOG=1");
    pthread_mutex_unlock(&lock);
}

void notify_status(const char *words)
{
    pthread_mutex_lock(&lock);
    status_send(words);
    pthread_mutex_unlock(&lock);
}

void notify_step(const char *words)
{
    pthread_mutex_lock(&lock);
    if (!alive_recent()) {
        notify_send("WATCHDOG=1");
        status_send(words);
    }
    pthread_mutex_unlock(&lock);
}
