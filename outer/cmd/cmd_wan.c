/* SPDX-License-Identifier: Apache-2.0 */
/* atoll wan: one command at every place of an emulated network, real processes over real TCP; what
 * the network did to their packets is printed at the end (outer/wan/places.h). */
#include <stdio.h>
#include <string.h>
#include "kernels/base/args.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/record/json_write.h"
#include "outer/wan/places.h"

enum { MODES = 3 };

struct session {
    const char *source, *sites, *mode, *format;
    bool print, keys, list;
    struct places_options o;
    struct arena *arena;
    struct topology topology;
};

static enum err session(struct session *s)
{
    static const char *const modes[MODES] = {
        [WAN_AUTO] = "auto", [WAN_PACKETS] = "packets", [WAN_RELAY] = "relay"};
    int mode = 0;
    while (mode < MODES && strcmp(s->mode, modes[mode]) != 0)
        mode++;
    if (mode == MODES)
        return err_set(ERR_CONFIG, "--mode \"%.40s\": allowed is auto, packets, relay", s->mode);
    bool any = s->o.command != NULL;
    for (unsigned i = 0; i < s->topology.places; i++)
        any = any || *s->topology.command[i];
    if (!any)
        return err_set(ERR_CONFIG,
                       "nothing to run: give a command after --, or a section `run` in %s",
                       s->source);
    s->o.mode = (enum wan_mode)mode;
    return places_run(&s->topology, &s->o, s->arena);
}

static void presets_json(const struct topology_preset *presets, size_t count)
{
    struct json_write w = {.out = stdout};
    json_object(&w, NULL);
    json_array(&w, "presets");
    for (size_t i = 0; i < count; i++) {
        json_object(&w, NULL);
        json_text(&w, "name", presets[i].name);
        json_text(&w, "summary", presets[i].summary);
        json_end(&w);
    }
    json_close(&w);
}

static void presets_list(bool json)
{
    size_t count;
    const struct topology_preset *presets = topology_presets(&count);
    if (json)
        presets_json(presets, count);
    for (size_t i = 0; i < count && !json; i++)
        printf("%-18s %s\n", presets[i].name, presets[i].summary);
}

static enum err session_answer(struct session *s)
{
    char *text;
    bool json;
    TRY(cmd_format(s->format, &json));
    if (s->list)
        presets_list(json);
    if (s->keys) {
        TRY(topology_reference(s->arena, &text));
        printf("%s", text);
    }
    if (s->list || s->keys)
        return ERR_OK;
    if (!s->source)
        return err_set(ERR_CONFIG,
                       "--topology FILE is missing; `atoll wan --list` shows the presets");
    TRY(topology_load(&s->topology, s->source, s->sites, s->arena));
    s->o.json = json;
    if (!s->print && json && !s->o.logs)
        return err_set(ERR_CONFIG, "--format json needs --logs DIR: the commands, too, write to "
                                   "standard output");
    if (!s->print)
        return session(s);
    printf("%s", s->topology.text);
    return ERR_OK;
}

enum err cmd_wan(int argc, char **argv, struct arena *arena)
{
    struct session s = {.mode = "auto", .format = "text", .arena = arena};
    const struct args_option options[] = {
        {"topology", ARGS_TEXT, &s.source, .value = "FILE",
         .help = "Topology, - is standard input; or a preset's name."},
        {"sites", ARGS_TEXT, &s.sites, .value = "A,B,..",
         .help = "Other names for its places, in their order; further ones are joined to all by "
                 "`link`."},
        {"mode", ARGS_TEXT, &s.mode, .value = "MODE",
         .help = "packets: namespaces and TUN devices; relay: TCP streams on loopback, with rate, "
                 "delay, jitter and outages only; auto: packets where this machine allows them."},
        {"until", ARGS_TEXT, &s.o.until, .value = "PLACE",
         .help = "The end of this place's command ends all; without it the last one does."},
        {"seconds", ARGS_REAL, &s.o.seconds, .value = "S", .max = 1e8,
         .help = "End all after this time; 0: not."},
        {"logs", ARGS_TEXT, &s.o.logs, .value = "DIR",
         .help = "Output into DIR/PLACE.log, not here."},
        {"record", ARGS_TEXT, &s.o.record, .value = "FILE",
         .help = "Append what it did to the packets to this file, for atoll report --wan."},
        {"list", ARGS_FLAG, &s.list, .help = "The presets."},
        FORMAT_ROW(&s.format, ": what the network did (needs --logs); with --list presets"),
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
        ARGS_OPTIONS(options)};
    int own = 1;
    while (own < argc && strcmp(argv[own], "--") != 0)
        own++;
    if (own < argc - 1)
        s.o.command = argv + own + 1;
    TRY(args_parse(&args, own, argv, arena));
    return args.help ? ERR_OK : session_answer(&s);
}
