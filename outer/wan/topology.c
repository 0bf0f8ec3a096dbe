/* SPDX-License-Identifier: Apache-2.0 */
/* A topology's text into flows. The sections of pairs are not known beforehand, so the text is read
 * twice: once for its sections, from which key tables are made, and once through config_load_text
 * with them. */
#include "outer/wan/topology.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/config/config_yaml.h"
#include "kernels/base/nearest.h"
#include "kernels/base/file.h"
#include "outer/wan/emulator.h"

CONFIG_CHOICES(link_jitter, LINK_JITTER)

static const struct config_key wan_keys[] = {
#define X(...) CONFIG_ROW(struct topology_settings, __VA_ARGS__)
    TOPOLOGY_KEYS(X)
#undef X
};
static const struct config_key link_keys[] = {
#define X(...) CONFIG_ROW(struct topology_link, __VA_ARGS__)
    TOPOLOGY_LINK_KEYS(X)
#undef X
};
enum { LINK_KEYS = sizeof link_keys / sizeof *link_keys, SECTIONS_MAX = 4096 };

struct section { /* of links: `link`, a<>b, a>b */
    const char *name;
    int line;     /* of its first key */
    int from, to; /* places in the file; -1: unknown; link: -1, -1 */
    bool pair, both;
    struct topology_link set;
};
struct reading {
    struct topology *t;
    struct arena *a;
    struct config_errors errors;
    struct config_entries entries;
    struct config_list names; /* of the places in the file */
    struct section *sections;
    size_t section_count;
};

/* ---- sections ---- */
static const struct config_entry *entry_of(const struct reading *r, const char *section,
                                           const char *name)
{
    size_t n = strlen(section);
    for (size_t i = 0; i < r->entries.count; i++) {
        const char *key = r->entries.items[i].key;
        if (!strncmp(key, section, n) && key[n] == '.' && (!name || !strcmp(key + n + 1, name)))
            return &r->entries.items[i];
    }
    return NULL;
}

static int line_of(const struct reading *r, const char *section, const char *name)
{
    const struct config_entry *e = entry_of(r, section, name);
    e = e ? e : entry_of(r, section, NULL);
    return e && e->line ? e->line : 1;
}

static int place_in(const struct config_list *names, const char *name, size_t length)
{
    for (size_t i = 0; i < names->count; i++)
        if (strlen(names->items[i]) == length && !strncmp(names->items[i], name, length))
            return (int)i;
    return -1;
}

static enum err unknown_place(struct reading *r, const struct section *s, const char *name,
                              size_t length)
{
    char word[100];
    const char *best = "";
    unsigned least = ~0u;
    snprintf(word, sizeof word, "%.*s", (int)length, name);
    for (size_t i = 0; i < r->names.count; i++)
        if (nearest_edits(word, r->names.items[i]) < least) {
            least = nearest_edits(word, r->names.items[i]);
            best = r->names.items[i];
        }
    return config_error(&r->errors, s->line,
                        "%.100s: \"%s\" is none of wan.sites; the nearest is \"%s\"", s->name, word,
                        best);
}

/* a<>b or a>b; anything else is left to config_load_text to complain about. */
static enum err section_add(struct reading *r, const char *name, int line)
{
    struct section s = {.name = name, .line = line, .from = -1, .to = -1};
    const char *mark = strchr(name, '>');
    if (strcmp(name, "link") != 0) {
        if (!mark || mark == name || !mark[1])
            return ERR_OK;
        s.pair = true;
        s.both = mark[-1] == '<';
        size_t left = (size_t)(mark - name) - s.both, right = strlen(mark + 1);
        s.from = place_in(&r->names, name, left);
        s.to = place_in(&r->names, mark + 1, right);
        if (s.from < 0)
            TRY(unknown_place(r, &s, name, left));
        if (s.to < 0)
            TRY(unknown_place(r, &s, mark + 1, right));
        if (s.from >= 0 && s.from == s.to)
            TRY(config_error(&r->errors, line, "%.100s: a place has no link to itself", name));
    }
    ASSERT(r->section_count < SECTIONS_MAX);
    r->sections[r->section_count++] = s;
    return ERR_OK;
}

static enum err sections_find(struct reading *r)
{
    const char *last = "";
    TRY_ALLOC(r->sections = arena_array(r->a, SECTIONS_MAX, sizeof *r->sections));
    TRY(section_add(r, "link", line_of(r, "link", NULL)));
    for (size_t i = 0; i < r->entries.count; i++) {
        const char *key = r->entries.items[i].key;
        size_t n = strcspn(key, ".");
        char *name;
        if (strlen(last) == n && !strncmp(last, key, n))
            continue;
        TRY_ALLOC(name = arena_string(r->a, key, n));
        last = name;
        if (strcmp(name, "link") == 0)
            continue;
        if (r->section_count == SECTIONS_MAX)
            return config_error(&r->errors, r->entries.items[i].line, "more than %d sections",
                                SECTIONS_MAX);
        TRY(section_add(r, name, r->entries.items[i].line));
    }
    return ERR_OK;
}

/* The same pair in both orders would leave open which counts. */
static enum err sections_once(struct reading *r)
{
    for (size_t i = 0; i < r->section_count; i++)
        for (size_t k = 0; k < i; k++) {
            const struct section *s = &r->sections[i], *first = &r->sections[k];
            if (s->pair && s->both && first->both && s->from == first->to && s->to == first->from)
                TRY(config_error(&r->errors, s->line, "%s is the same pair as %s on line %d",
                                 s->name, first->name, first->line));
        }
    return ERR_OK;
}

/* ---- values ---- */
/* A table over the section's own struct: the keys of `link` under its name. */
static enum err section_table(struct reading *r, struct section *s, struct config_table *table)
{
    struct config_key *keys;
    TRY_ALLOC(keys = arena_array(r->a, LINK_KEYS, sizeof *keys));
    memcpy(keys, link_keys, sizeof link_keys);
    for (int i = 0; i < LINK_KEYS; i++)
        keys[i].section = s->name;
    *table = (struct config_table){.keys = keys, .count = LINK_KEYS, .values = &s->set};
    return ERR_OK;
}

/* Keys are the places' names. */
static enum err run_table(struct reading *r, struct config_table *table, const char ***commands)
{
    struct config_key *keys;
    size_t n = r->names.count;
    TRY_ALLOC(keys = arena_array(r->a, n + 1, sizeof *keys));
    TRY_ALLOC(*commands = arena_array(r->a, n + 1, sizeof **commands));
    for (size_t i = 0; i < n; i++)
        keys[i] = (struct config_key){.section = "run",
                                      .name = r->names.items[i],
                                      .type = CONFIG_TEXT,
                                      .offset = i * sizeof **commands,
                                      .fallback = "",
                                      .help = "Command of this place."};
    *table = (struct config_table){.keys = keys, .count = n, .values = *commands};
    return ERR_OK;
}

static void take_field(struct topology_link *to, const struct topology_link *from,
                       const struct config_key *k)
{
    static const size_t sizes[] = {[CONFIG_INT] = sizeof(int64_t),
                                   [CONFIG_REAL] = sizeof(double),
                                   [CONFIG_CHOICE] = sizeof(enum flow_jitter),
                                   [CONFIG_LIST] = sizeof(struct config_list)};
    memcpy((char *)to + k->offset, (const char *)from + k->offset, sizes[k->type]);
}

/* What the section gives, over what `base` says. queue_ms and queue_bytes are two words for one
 * thing: the nearer counts. */
static struct topology_link inherit(const struct reading *r, const struct section *s,
                                    const struct topology_link *base)
{
    struct topology_link all = *base;
    for (int i = 0; i < LINK_KEYS; i++)
        if (entry_of(r, s->name, link_keys[i].name))
            take_field(&all, &s->set, &link_keys[i]);
    if (entry_of(r, s->name, "queue_ms") && !entry_of(r, s->name, "queue_bytes"))
        all.link_queue_bytes = 0;
    return all;
}

static int64_t ns(double ms)
{
    return (int64_t)llround(ms * 1e6);
}

/* "30-35" in seconds. */
static bool parse_window(const char *text, struct flow_window *w)
{
    char *end;
    if (strspn(text, "0123456789.-") != strlen(text) || *text == '-')
        return false;
    double from = strtod(text, &end), until;
    if (*end != '-' || end[1] == '-' || !end[1])
        return false;
    until = strtod(end + 1, &end);
    *w = (struct flow_window){ns(from * 1e3), ns(until * 1e3)};
    return !*end && from < until && until <= 1e8;
}

static enum err windows(struct reading *r, const struct section *s, const struct topology_link *l,
                        struct flow_settings *f)
{
    int line = line_of(r, s->name, "outages");
    size_t n = l->link_outages.count;
    struct flow_window *w;
    TRY_ALLOC(w = arena_array(r->a, n + 1, sizeof *w));
    for (size_t i = 0; i < n; i++) {
        const char *text = l->link_outages.items[i];
        if (!parse_window(text, &w[i]))
            return config_error(&r->errors, line,
                                "%s.outages: \"%.60s\" is not FROM-TO in seconds, as in 30-35",
                                s->name, text);
        if (i && w[i].from_ns < w[i - 1].until_ns)
            TRY(config_error(&r->errors, line,
                             "%s.outages: %.60s begins before %.60s is over; it can begin at %g",
                             s->name, text, l->link_outages.items[i - 1],
                             (double)w[i - 1].until_ns / 1e9));
        if (l->link_outage_every_s > 0 && w[i].until_ns > ns(l->link_outage_every_s * 1e3))
            TRY(config_error(
                &r->errors, line,
                "%s.outages: %.60s lasts beyond the period outage_every_s = %g; the least is %g",
                s->name, text, l->link_outage_every_s, (double)w[i].until_ns / 1e9));
    }
    f->outages = w;
    f->outage_count = n;
    f->outage_every_ns = ns(l->link_outage_every_s * 1e3);
    return ERR_OK;
}

/* Rules over several keys. What they name is the section that said it, or inherited it. */
static enum err rules(struct reading *r, const struct section *s, const struct topology_link *l)
{
    double loss = l->link_loss_percent / 100, run = l->link_loss_run;
    double most =
        l->link_jitter == FLOW_UNIFORM ? l->link_delay_ms / sqrt(3) : l->link_delay_ms / 3;
    if (run > 0 && run < 1)
        TRY(config_error(&r->errors, line_of(r, s->name, "loss_run"),
                         "%s.loss_run = %g: a run has at least 1 packet; 0 is "
                         "no runs",
                         s->name, run));
    else if (run > 0 && loss < 1 && loss / (1 - loss) > run)
        TRY(config_error(
            &r->errors, line_of(r, s->name, "loss_run"),
            "%s.loss_run = %g with loss_percent = %g: less than one "
            "packet would arrive between two runs; the least run is %.4g, the most loss %.4g %%",
            s->name, run, l->link_loss_percent, loss / (1 - loss), 100 * run / (1 + run)));
    if (l->link_jitter != FLOW_EXPONENTIAL && l->link_jitter_ms > most)
        TRY(config_error(&r->errors, line_of(r, s->name, "jitter_ms"),
                         "%s.jitter_ms = %g is too much for delay_ms = %g: packets "
                         "would arrive before they were sent; at most %.4g, or jitter: exponential",
                         s->name, l->link_jitter_ms, l->link_delay_ms, most));
    if (l->link_reorder_percent > 0 && l->link_reorder_ms <= 0)
        TRY(config_error(&r->errors, line_of(r, s->name, "reorder_percent"),
                         "%s.reorder_percent = %g needs reorder_ms, by how "
                         "much those packets are later",
                         s->name, l->link_reorder_percent));
    if (l->link_rate_mbit > 0 && l->link_rate_mbit < 1e-3)
        TRY(config_error(&r->errors, line_of(r, s->name, "rate_mbit"),
                         "%s.rate_mbit = %g: the least is 0.001; 0 is no limit", s->name,
                         l->link_rate_mbit));
    if (l->link_later_s > 0 && (l->link_later_rate_mbit < 1e-3 || l->link_rate_mbit <= 0))
        TRY(config_error(&r->errors, line_of(r, s->name, "later_s"),
                         "%s.later_s = %g needs rate_mbit and later_rate_mbit, both at least 0.001",
                         s->name, l->link_later_s));
    return ERR_OK;
}

static enum err flow_of(struct reading *r, const struct section *s, const struct topology_link *l,
                        uint32_t direction, struct flow_settings *f)
{
    TRY(rules(r, s, l));
    *f = (struct flow_settings){
        .rate_bps = (uint64_t)llround(l->link_rate_mbit * 1e6),
        .later_bps = (uint64_t)llround(l->link_later_rate_mbit * 1e6),
        .later_ns = ns(l->link_later_s * 1e3),
        .burst_bytes = (uint64_t)l->link_burst_bytes,
        .queue_bytes = (uint64_t)l->link_queue_bytes,
        .delay_ns = ns(l->link_delay_ms),
        .jitter = l->link_jitter,
        .jitter_ns = l->link_jitter_ms * 1e6,
        .loss = l->link_loss_percent / 100,
        .loss_run = l->link_loss_run,
        .duplicate = l->link_duplicate_percent / 100,
        .reorder = l->link_reorder_percent / 100,
        .reorder_ns = ns(l->link_reorder_ms),
        .seed = (uint64_t)r->t->set.wan_seed,
        .direction = direction,
    };
    if (!f->queue_bytes)
        f->queue_bytes = (uint64_t)(l->link_queue_ms * l->link_rate_mbit * 125);
    return windows(r, s, l, f);
}

static const struct section *section_between(const struct reading *r, int from, int to, bool both)
{
    for (size_t i = 0; i < r->section_count; i++) {
        const struct section *s = &r->sections[i];
        if (s->pair && s->both == both &&
            ((s->from == from && s->to == to) || (both && s->from == to && s->to == from)))
            return s;
    }
    return NULL;
}

/* link, then a<>b, then a>b. The section that complaints name is the nearest one. */
static enum err flows_make(struct reading *r)
{
    struct topology *t = r->t;
    int known = (int)r->names.count;
    TRY_ALLOC(t->flows = arena_array(r->a, (size_t)t->places * t->places, sizeof *t->flows));
    for (unsigned from = 0; from < t->places; from++)
        for (unsigned to = 0; to < t->places; to++) {
            const struct section *nearest = &r->sections[0];
            struct topology_link all = nearest->set;
            for (int both = 1; both >= 0 && (int)from < known && (int)to < known; both--) {
                const struct section *s = section_between(r, (int)from, (int)to, both);
                if (s) {
                    nearest = s;
                    all = inherit(r, s, &all);
                }
            }
            size_t i = from * t->places + to, said = r->errors.count;
            TRY(flow_of(r, nearest, &all, (uint32_t)i, &t->flows[i]));
            if (r->errors.count > said)
                return ERR_OK; /* the same section would complain again for its other directions */
        }
    return ERR_OK;
}

/* ---- places ---- */
static bool name_good(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t n = strlen(name);
    return n >= 1 && n <= 63 && !name[strspn(name, allowed)];
}

static enum err names_check(struct reading *r, const struct config_list *names, int line,
                            const char *what)
{
    if (names->count < 2 || names->count > EMULATOR_PLACES_MAX)
        TRY(config_error(&r->errors, line, "%s: %zu places; a network has 2 to %d", what,
                         names->count, EMULATOR_PLACES_MAX));
    for (size_t i = 0; i < names->count; i++) {
        if (!name_good(names->items[i]))
            TRY(config_error(&r->errors, line,
                             "%s: \"%.80s\": allowed are 1 to 63 letters, digits, - and _", what,
                             names->items[i]));
        if (place_in(names, names->items[i], strlen(names->items[i])) != (int)i)
            TRY(config_error(&r->errors, line, "%s: \"%.80s\" is listed twice", what,
                             names->items[i]));
    }
    return ERR_OK;
}

/* A list as YAML has it, or one text with commas: as config.h reads both. */
static enum err names_read(struct config_list *names, const char *text, struct arena *a)
{
    *names = (struct config_list){0};
    TRY_ALLOC(names->items = arena_array(a, strlen(text) / 2 + 1, sizeof *names->items));
    for (const char *at = text; *at; at += *at == ',') {
        at += strspn(at, " ");
        size_t n = strcspn(at, ", ");
        if (n)
            TRY_ALLOC(names->items[names->count++] = arena_string(a, at, n));
        at += n + strspn(at + n, " ");
        if (*at && *at != ',')
            break; /* a blank inside a name */
    }
    return ERR_OK;
}

static enum err places_name(struct reading *r, const char *names, const char **commands)
{
    struct topology *t = r->t;
    struct config_list given = r->names;
    TRY(names_check(r, &r->names, line_of(r, "wan", "sites"), "wan.sites"));
    if (names) {
        TRY(names_read(&given, names, r->a));
        TRY(names_check(r, &given, 0, "--sites"));
    }
    if (r->errors.count)
        return ERR_OK;
    t->places = (unsigned)given.count;
    t->place = given.items;
    TRY_ALLOC(t->command = arena_array(r->a, given.count, sizeof *t->command));
    for (size_t i = 0; i < given.count; i++)
        t->command[i] = i < r->names.count ? commands[i] : "";
    return ERR_OK;
}

/* ---- the whole ---- */
static enum err values_read(struct reading *r, size_t size_bytes, const char ***commands)
{
    struct config_table *tables;
    size_t count = 0;
    TRY_ALLOC(tables = arena_array(r->a, r->section_count + 2, sizeof *tables));
    tables[count++] = (struct config_table){
        .keys = wan_keys, .count = sizeof wan_keys / sizeof *wan_keys, .values = &r->t->set};
    TRY(run_table(r, &tables[count++], commands));
    for (size_t i = 0; i < r->section_count; i++)
        TRY(section_table(r, &r->sections[i], &tables[count++]));
    const struct config_text text = {r->t->source, r->t->text, size_bytes, CONFIG_TYPED};
    return config_load_text(tables, count, &text, 0, NULL, r->a);
}

enum err topology_parse(struct topology *t, const char *source, const char *text, size_t size_bytes,
                        const char *names, struct arena *a)
{
    *t = (struct topology){.source = source, .text = text};
    struct reading r = {.t = t, .a = a, .errors = {.a = a, .path = source}};
    struct config_errors twice = {.a = a,
                                  .path = source}; /* config_load_text finds the same ones again */
    const char **commands;
    TRY(config_yaml(text, size_bytes, a, &r.entries, &twice));
    const struct config_entry *sites = entry_of(&r, "wan", "sites");
    if (sites && sites->list)
        r.names = sites->values;
    else if (sites)
        TRY(names_read(&r.names, sites->values.items[0], a));
    TRY(sections_find(&r));
    TRY(values_read(&r, size_bytes, &commands));
    TRY(sections_once(&r));
    TRY(places_name(&r, names, commands));
    if (!r.errors.count)
        TRY(flows_make(&r));
    return config_errors_report(&r.errors);
}

static enum err no_such(const char *source, struct arena *a)
{
    size_t count;
    const struct topology_preset *all = topology_presets(&count), *best = all;
    char *list = NULL;
    for (size_t i = 0; i < count; i++) {
        if (nearest_edits(source, all[i].name) < nearest_edits(source, best->name))
            best = &all[i];
        TRY_ALLOC(list =
                      arena_printf(a, "%s%s%s", list ? list : "", list ? ", " : "", all[i].name));
    }
    return err_set(ERR_CONFIG,
                   "\"%.200s\" is neither a file nor a preset (%s); the nearest preset is %s",
                   source, list, best->name);
}

enum err topology_load(struct topology *t, const char *source, const char *names, struct arena *a)
{
    size_t count;
    const struct topology_preset *all = topology_presets(&count);
    if (strcmp(source, "-") == 0 || file_exists(source)) {
        uint8_t *text;
        size_t size_bytes;
        TRY(file_read_input(source, CONFIG_FILE_MAX, a, &text, &size_bytes));
        return topology_parse(t, source, (const char *)text, size_bytes, names, a);
    }
    for (size_t i = 0; i < count; i++)
        if (strcmp(source, all[i].name) == 0)
            return topology_parse(t, source, all[i].text, strlen(all[i].text), names, a);
    return no_such(source, a);
}

int topology_place(const struct topology *t, const char *name)
{
    struct config_list names = {t->place, t->places};
    return place_in(&names, name, strlen(name));
}

enum err topology_reference(struct arena *a, char **text)
{
    struct topology_settings set;
    struct topology_link link;
    struct config_table tables[] = {
        {.keys = wan_keys, .count = sizeof wan_keys / sizeof *wan_keys, .values = &set},
        {.keys = link_keys, .count = LINK_KEYS, .values = &link}};
    TRY(config_reference(tables, 2, NULL, a, text));
    char *sections = strstr(*text, "## "); /* after the text about `atoll train` */
    ASSERT(sections);
    *text = sections;
    return ERR_OK;
}
