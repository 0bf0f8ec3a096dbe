/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NOTIFY_H
#define NOTIFY_H
/* What a service manager is told (sd_notify): datagrams to $NOTIFY_SOCKET, without libsystemd.
 * Without that variable every call does nothing. Any thread. */

void notify_ready(void);
void notify_stopping(void);
void notify_alive(void);               /* WATCHDOG=1, at most once a second */
void notify_status(const char *words); /* one line; the same words are not sent again */
void notify_step(const char *words);   /* alive, and the status, at most once a second */

#endif
