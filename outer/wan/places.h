/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLACES_H
#define PLACES_H
/* A command at every place of an emulated network, until the last one, or a named one, has ended.
 * SIGINT and SIGTERM end all of them: ERR_STOPPED. One a process; one thread; none of the commands
 * outlives the call.
 */
#include "outer/wan/wan.h"

struct places_options { /* borrowed */
    enum wan_mode mode;
    char **command;     /* NULL-terminated, with {site}, {address}, {address:NAME}; NULL: the
                           topology's own */
    const char *until;  /* the end of this place's command ends all; NULL: the last one does */
    double seconds;     /* all end after this time; 0: not */
    const char *logs;   /* output into logs/PLACE.log; NULL: into ours */
    const char *record; /* wan_record; NULL: none */
    bool json;          /* what the network did: an object on standard output */
};
/* ERR_CONFIG: no such place; what wan_open says; or what child_failed says of a command that is
 * waited for and ended badly. What the network did goes to standard error, unless json. */
enum err places_run(const struct topology *t, const struct places_options *o, struct arena *a) MUST;

#endif
