/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLOSING_H
#define CLOSING_H
/* How a command ends: its output must have arrived, and its error has one message. */
#include "kernels/base/err.h"

/* e, or the error of standard output: a full disk shows only here. */
enum err closing_flush(enum err e) MUST;
/* The output is JSON: an error is in it, too. */
void closing_json(void);
/* The closing message of this process is left out: the lead rank of the job prints it. */
void closing_silence(void);
/* The closing message now, and not again at the end of the program. */
void closing_message(const char *command, enum err e);

#endif
