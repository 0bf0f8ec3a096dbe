/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/events.h"
#include <string.h>

static const struct event {
    const char *name, *process, *meaning, *action;
} events[] = {
#define X(name, process, meaning, action) {#name, process, meaning, action},
    EVENT_LIST(X)
#undef X
};

static const struct event *event_find(const char *name)
{
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (!strcmp(events[i].name, name))
            return &events[i];
    return NULL;
}

/* In the form of the events, with its exit code in place of a process. */
static enum err error_explain(const char *name, struct arena *a, char **text)
{
#define X(number, error, what, exit_code, action)                                                  \
    if (!strcmp(#error, name)) {                                                                   \
        TRY_ALLOC(*text = arena_printf(a, "%s, exit code %d\nmeans: %s\ndo: %s", #error,           \
                                       (int)(exit_code), what, action));                           \
        return ERR_OK;                                                                             \
    }
    ERR_LIST(X)
#undef X
    return err_set(ERR_CONFIG, "there is no event or error %.40s: docs/events.md lists them", name);
}

enum err event_explain(const char *name, struct arena *a, char **text)
{
    static const char field[] = "ev=";
    const struct event *e =
        event_find(strncmp(name, field, strlen(field)) == 0 ? name + strlen(field) : name);
    if (!e)
        return error_explain(name, a, text);
    TRY_ALLOC(*text = arena_printf(a, "ev=%s, logged by: %s\nmeans: %s\ndo: %s", e->name,
                                   e->process, e->meaning, e->action));
    return ERR_OK;
}
