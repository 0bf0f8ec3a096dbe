/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/wan/places.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "outer/wan/child.h"

enum { POLL_MS = 50 };

struct places {
    const struct places_options *o;
    const struct topology *topology;
    struct arena *arena;
    struct wan wan;
    struct child child[EMULATOR_PLACES_MAX];
    bool told[EMULATOR_PLACES_MAX]; /* that its command has ended */
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    stopped = number;
}

/* ---- substitution ---- */
/* {site}, {address}, {address:NAME}; other braces are the command's own. */
static enum err brace_value(struct places *s, unsigned place, const char *word, size_t n,
                            const char **out)
{
    static const char address[] = "address:";
    const struct topology *t = s->topology;
    char text[WAN_ADDRESS_MAX];
    int to = (int)place;
    *out = NULL;
    if (n == 4 && !strncmp(word, "site", 4)) {
        *out = t->place[place];
        return ERR_OK;
    }
    if (n > strlen(address) && !strncmp(word, address, strlen(address))) {
        char *name;
        TRY_ALLOC(name = arena_string(s->arena, word + strlen(address), n - strlen(address)));
        if ((to = topology_place(t, name)) < 0)
            return err_set(ERR_CONFIG, "{%.*s}: the topology has no place \"%s\"", (int)n, word,
                           name);
    } else if (n != 7 || strncmp(word, address, n) != 0) {
        return ERR_OK;
    }
    wan_address(&s->wan, place, (unsigned)to, text);
    TRY_ALLOC(*out = arena_string(s->arena, text, strlen(text)));
    return ERR_OK;
}

static enum err substitute(struct places *s, unsigned place, const char *text, char **out)
{
    TRY_ALLOC(*out = arena_string(s->arena, "", 0));
    while (*text) {
        size_t plain = strcspn(text, "{"), word = strcspn(text + plain, "}");
        const char *value = NULL;
        if (text[plain] && text[plain + word])
            TRY(brace_value(s, place, text + plain + 1, word - 1, &value));
        if (!value) { /* up to and with the brace, which is not ours */
            plain += text[plain] != 0;
            TRY_ALLOC(*out = arena_printf(s->arena, "%s%.*s", *out, (int)plain, text));
            text += plain;
        } else {
            TRY_ALLOC(*out = arena_printf(s->arena, "%s%.*s%s", *out, (int)plain, text, value));
            text += plain + word + 1;
        }
    }
    return ERR_OK;
}

static enum err start_one(struct places *s, unsigned place, const char **words)
{
    struct child_command c = {.name = s->topology->place[place],
                              .where = wan_place(&s->wan, place)};
    char **argv;
    size_t n = 0;
    while (words[n])
        n++;
    TRY_ALLOC(argv = arena_array(s->arena, n + 1, sizeof *argv));
    for (size_t i = 0; i < n; i++)
        TRY(substitute(s, place, words[i], &argv[i]));
    if (s->o->logs)
        TRY_ALLOC(c.log = arena_printf(s->arena, "%s/%s.log", s->o->logs, c.name));
    bool self = strcmp(argv[0], "atoll") == 0;
    c.argv = argv;
    c.program = self ? NULL : argv[0];
    return child_start(&s->child[place], &c);
}

static enum err start_all(struct places *s)
{
    for (unsigned i = 0; i < s->topology->places; i++) {
        const char *shell[] = {"sh", "-c", s->topology->command[i], NULL};
        if (s->o->command)
            TRY(start_one(s, i, (const char **)s->o->command));
        else if (*s->topology->command[i])
            TRY(start_one(s, i, shell));
    }
    return ERR_OK;
}

/* With --logs the places' output is elsewhere: what happens is said here, at once. */
static void logs_say(struct places *s)
{
    for (unsigned i = 0; s->o->logs && i < s->topology->places; i++)
        if (s->child[i].pid)
            fprintf(stderr, "%s: started, output in %s/%s.log\n", s->topology->place[i], s->o->logs,
                    s->topology->place[i]);
}

static void ended_say(struct places *s, unsigned place, double seconds)
{
    struct child *c = &s->child[place];
    if (!s->o->logs || s->told[place] || !c->name)
        return;
    s->told[place] = true;
    if (c->status)
        fprintf(stderr, "%s: failed after %.1f s\n", c->name, seconds);
    else
        fprintf(stderr, "%s: ended after %.1f s\n", c->name, seconds);
}

/* True while a command runs that is waited for: any of them, or the one that --until names. */
static bool any_running(struct places *s, int until, double seconds)
{
    bool any = false;
    for (unsigned i = 0; i < s->topology->places; i++) {
        bool runs = child_running(&s->child[i]);
        any = any || (runs && (until < 0 || until == (int)i));
        if (!runs)
            ended_say(s, i, seconds);
    }
    return any;
}

static enum err ended_well(struct places *s, int until)
{
    for (unsigned i = 0; i < s->topology->places; i++) {
        struct child *c = &s->child[i];
        if (c->status == 0 || (until >= 0 && until != (int)i))
            continue;
        return child_failed(c);
    }
    return ERR_OK;
}

static void network_say(const struct places *s)
{
    struct json_write w = {.out = stdout};
    if (!s->o->json) {
        wan_print(&s->wan, stderr);
        return;
    }
    json_object(&w, NULL);
    wan_json(&s->wan, &w);
    json_close(&w);
}

static enum err run_all(struct places *s)
{
    int until = s->o->until ? topology_place(s->topology, s->o->until) : -1;
    double begun = clock_mono_s(), end = s->o->seconds > 0 ? begun + s->o->seconds : 0;
    if (s->o->until && until < 0)
        return err_set(ERR_CONFIG, "--until %s: the topology has no such place", s->o->until);
    TRY(start_all(s));
    logs_say(s);
    while (!stopped && any_running(s, until, clock_mono_s() - begun) &&
           !(end > 0 && clock_mono_s() >= end)) {
        TRY(wan_check(&s->wan));
        child_pause(POLL_MS);
    }
    bool complete = !any_running(s, until, clock_mono_s() - begun);
    enum err e = complete ? ended_well(s, until) : ERR_OK;
    child_end(s->child, s->topology->places);
    network_say(s);
    if (s->o->record)
        TRY(wan_record(&s->wan, s->o->record, s->arena));
    return stopped ? err_set(ERR_STOPPED, "stopped on request") : e;
}

enum err places_run(const struct topology *t, const struct places_options *o, struct arena *a)
{
    struct places s = {.o = o, .topology = t, .arena = a};
    struct sigaction action = {.sa_handler = on_signal};
    char said[1024];
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (o->logs)
        TRY(file_mkdirs(o->logs));
    enum err e = wan_open(&s.wan, t, o->mode, a);
    if (e == ERR_OK)
        e = run_all(&s);
    snprintf(said, sizeof said, "%s", err_message());
    child_end(s.child, EMULATOR_PLACES_MAX);
    wan_close(&s.wan);
    return err_set(e, "%s", said);
}
