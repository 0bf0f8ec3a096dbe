/* atoll wan: one command at every place of an emulated network, real processes over real TCP; what
 * the network did to their packets is printed at the end. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "kernels/base/args.h"
#include "outer/wan/child.h"
#include "outer/cmd/cmd.h"
#include "outer/wan/wan.h"

enum { POLL_MS = 50, MODES = 3 };

struct session {
    const char *source, *sites, *mode, *logs, *until, *record;
    bool print, keys, list;
    double seconds;
    char **command; /* after --; NULL: the topology's own */
    struct arena arena;
    struct topology topology;
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
static enum err brace_value(struct session *s, unsigned place, const char *word, size_t n,
                            const char **out)
{
    static const char address[] = "address:";
    const struct topology *t = &s->topology;
    char text[WAN_ADDRESS_MAX];
    int to = (int)place;
    *out = NULL;
    if (n == 4 && !strncmp(word, "site", 4)) {
        *out = t->place[place];
        return ERR_OK;
    }
    if (n > strlen(address) && !strncmp(word, address, strlen(address))) {
        char *name;
        TRY_ALLOC(name = arena_string(&s->arena, word + strlen(address), n - strlen(address)));
        if ((to = topology_place(t, name)) < 0)
            return err_set(ERR_CONFIG, "{%.*s}: the topology has no place \"%s\"", (int)n, word,
                           name);
    } else if (n != 7 || strncmp(word, address, n) != 0) {
        return ERR_OK;
    }
    wan_address(&s->wan, place, (unsigned)to, text);
    TRY_ALLOC(*out = arena_string(&s->arena, text, strlen(text)));
    return ERR_OK;
}

static enum err substitute(struct session *s, unsigned place, const char *text, char **out)
{
    TRY_ALLOC(*out = arena_string(&s->arena, "", 0));
    while (*text) {
        size_t plain = strcspn(text, "{"), word = strcspn(text + plain, "}");
        const char *value = NULL;
        if (text[plain] && text[plain + word])
            TRY(brace_value(s, place, text + plain + 1, word - 1, &value));
        if (!value) { /* up to and with the brace, which is not ours */
            plain += text[plain] != 0;
            TRY_ALLOC(*out = arena_printf(&s->arena, "%s%.*s", *out, (int)plain, text));
            text += plain;
        } else {
            TRY_ALLOC(*out = arena_printf(&s->arena, "%s%.*s%s", *out, (int)plain, text, value));
            text += plain + word + 1;
        }
    }
    return ERR_OK;
}

static enum err start_one(struct session *s, unsigned place, const char **words)
{
    struct child_command c = {.name = s->topology.place[place], .where = wan_place(&s->wan, place)};
    char **argv;
    size_t n = 0;
    while (words[n])
        n++;
    TRY_ALLOC(argv = arena_array(&s->arena, n + 1, sizeof *argv));
    for (size_t i = 0; i < n; i++)
        TRY(substitute(s, place, words[i], &argv[i]));
    if (s->logs)
        TRY_ALLOC(c.log = arena_printf(&s->arena, "%s/%s.log", s->logs, c.name));
    bool self = strcmp(argv[0], "atoll") == 0;
    c.argv = argv;
    c.program = self ? NULL : argv[0];
    return child_start(&s->child[place], &c);
}

static enum err start_all(struct session *s)
{
    for (unsigned i = 0; i < s->topology.places; i++) {
        const char *shell[] = {"sh", "-c", s->topology.command[i], NULL};
        if (s->command)
            TRY(start_one(s, i, (const char **)s->command));
        else if (*s->topology.command[i])
            TRY(start_one(s, i, shell));
    }
    return ERR_OK;
}

/* With --logs the places' output is elsewhere: what happens is said here, at once. */
static void logs_say(struct session *s)
{
    for (unsigned i = 0; s->logs && i < s->topology.places; i++)
        if (s->child[i].pid)
            fprintf(stderr, "%s: started, output in %s/%s.log\n", s->topology.place[i], s->logs,
                    s->topology.place[i]);
}

static void ended_say(struct session *s, unsigned place, double seconds)
{
    struct child *c = &s->child[place];
    if (!s->logs || s->told[place] || !c->name)
        return;
    s->told[place] = true;
    if (c->status)
        fprintf(stderr, "%s: failed after %.1f s\n", c->name, seconds);
    else
        fprintf(stderr, "%s: ended after %.1f s\n", c->name, seconds);
}

/* True while a command runs that is waited for: any of them, or the one that --until names. */
static bool any_running(struct session *s, int until, double seconds)
{
    bool any = false;
    for (unsigned i = 0; i < s->topology.places; i++) {
        bool runs = child_running(&s->child[i]);
        any = any || (runs && (until < 0 || until == (int)i));
        if (!runs)
            ended_say(s, i, seconds);
    }
    return any;
}

static enum err ended_well(struct session *s, int until)
{
    for (unsigned i = 0; i < s->topology.places; i++) {
        struct child *c = &s->child[i];
        if (c->status == 0 || (until >= 0 && until != (int)i))
            continue;
        return child_failed(c);
    }
    return ERR_OK;
}

static enum err session_run(struct session *s)
{
    int until = s->until ? topology_place(&s->topology, s->until) : -1;
    double begun = clock_mono_s(), end = s->seconds > 0 ? begun + s->seconds : 0;
    if (s->until && until < 0)
        return err_set(ERR_CONFIG, "--until %s: the topology has no such place", s->until);
    TRY(start_all(s));
    logs_say(s);
    while (!stopped && any_running(s, until, clock_mono_s() - begun) &&
           !(end > 0 && clock_mono_s() >= end)) {
        TRY(wan_check(&s->wan));
        child_pause(POLL_MS);
    }
    bool complete = !any_running(s, until, clock_mono_s() - begun);
    enum err e = complete ? ended_well(s, until) : ERR_OK;
    child_end(s->child, s->topology.places);
    wan_print(&s->wan, stderr);
    if (s->record)
        TRY(wan_record(&s->wan, s->record, &s->arena));
    return stopped ? err_set(ERR_STOPPED, "stopped on request") : e;
}

static enum err session(struct session *s)
{
    static const char *const modes[MODES] = {
        [WAN_AUTO] = "auto", [WAN_PACKETS] = "packets", [WAN_RELAY] = "relay"};
    int mode = 0;
    while (mode < MODES && strcmp(s->mode, modes[mode]) != 0)
        mode++;
    if (mode == MODES)
        return err_set(ERR_CONFIG, "--mode \"%.40s\": allowed is auto, packets, relay", s->mode);
    bool any = s->command != NULL;
    for (unsigned i = 0; i < s->topology.places; i++)
        any = any || *s->topology.command[i];
    if (!any)
        return err_set(ERR_CONFIG,
                       "nothing to run: give a command after --, or a section `run` in %s",
                       s->source);
    if (s->logs)
        TRY(file_mkdirs(s->logs));
    TRY(wan_open(&s->wan, &s->topology, (enum wan_mode)mode, &s->arena));
    return session_run(s);
}

static enum err session_answer(struct session *s)
{
    char *text;
    size_t count;
    const struct topology_preset *presets = topology_presets(&count);
    for (size_t i = 0; i < count && s->list; i++)
        printf("%-18s %s\n", presets[i].name, presets[i].summary);
    if (s->keys) {
        TRY(topology_reference(&s->arena, &text));
        printf("%s", text);
    }
    if (s->list || s->keys)
        return ERR_OK;
    if (!s->source)
        return err_set(ERR_CONFIG,
                       "--topology FILE is missing; `atoll wan --list` shows the presets");
    TRY(topology_load(&s->topology, s->source, s->sites, &s->arena));
    if (!s->print)
        return session(s);
    printf("%s", s->topology.text);
    return ERR_OK;
}

enum err cmd_wan(int argc, char **argv)
{
    struct session s = {.mode = "auto", .arena = arena_make(0)};
    const struct args_option options[] = {
        {"topology", ARGS_TEXT, &s.source, .value = "FILE",
         .help = "Topology, or a preset's name."},
        {"sites", ARGS_TEXT, &s.sites, .value = "A,B,..",
         .help = "Other names for its places, in their order; further ones are joined to all by "
                 "`link`."},
        {"mode", ARGS_TEXT, &s.mode, .value = "MODE",
         .help = "packets: namespaces and TUN devices; relay: TCP streams on loopback, with rate, "
                 "delay, jitter and outages only; auto: packets where this machine allows them."},
        {"until", ARGS_TEXT, &s.until, .value = "PLACE",
         .help = "The end of this place's command ends all; without it the last one does."},
        {"seconds", ARGS_REAL, &s.seconds, .value = "S", .max = 1e8,
         .help = "End all after this time; 0: not."},
        {"logs", ARGS_TEXT, &s.logs, .value = "DIR",
         .help = "Output into DIR/PLACE.log, not here."},
        {"record", ARGS_TEXT, &s.record, .value = "FILE",
         .help = "Append what it did to the packets to this file, for atoll report --wan."},
        {"list", ARGS_FLAG, &s.list, .help = "The presets."},
        {"print", ARGS_FLAG, &s.print,
         .help = "The topology's text: a preset as a start of your own."},
        {"help-keys", ARGS_FLAG, &s.keys, .help = "Every key of a topology."},
    };
    struct args args = {
        .command = "wan",
        .summary = "Runs a command at every place of an emulated network: real processes, real "
                   "TCP, with rate, delay, jitter, loss, reordering, duplication, queues and "
                   "outages between them. In the command {site} is the place's name, {address} its "
                   "address, {address:NAME} that of another.",
        .example = "atoll wan --topology transatlantic --sites a,b --until a -- sh -c 'case {site} "
                   "in a) ping -c 5 {address:b};; *) sleep 99;; esac'",
        .options = options,
        .count = sizeof options / sizeof *options};
    int own = 1;
    while (own < argc && strcmp(argv[own], "--") != 0)
        own++;
    if (own < argc - 1)
        s.command = argv + own + 1;
    enum err e = args_parse(&args, own, argv, &s.arena);
    if (e == ERR_OK && !args.help) {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        e = session_answer(&s);
        char said[1024];
        snprintf(said, sizeof said, "%s", err_message());
        child_end(s.child, EMULATOR_PLACES_MAX);
        wan_close(&s.wan);
        err_set(e, "%s", said);
    }
    arena_free(&s.arena);
    return e;
}
