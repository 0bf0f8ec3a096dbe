/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/args.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "kernels/base/args_forms.h"
#include "kernels/base/log.h"
#include "kernels/base/nearest.h"
#include "kernels/base/number.h"

/* ---- --help ---- */

enum { COLUMNS_MAX = 100, COLUMNS_MIN = 40, HELP_INDENT = 27, DEFAULT_MAX = 256 };

static int columns(void)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= COLUMNS_MIN;
    return known && size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
}

void args_print(const char *text, int column, int indent)
{
    int width = columns();
    bool first = true; /* of its line */
    while (*text) {
        size_t word = strcspn(text, " \n");
        if (!first && column + 1 + (int)word > width) {
            column = printf("\n%*s", indent, "") - 1;
            first = true;
        }
        column += printf("%s%.*s", first ? "" : " ", (int)word, text);
        first = false;
        text += word;
        if (*text == '\n' && text[1]) {
            column = printf("\n%*s", indent, "") - 1;
            first = true;
        }
        text += *text != 0;
    }
    printf("\n");
}

static void print_option(const struct args_option *o)
{
    char text[1024], fallback[DEFAULT_MAX];
    int width = HELP_INDENT - 6 - (int)strlen(o->name);
    args_default_text(o, fallback, sizeof fallback);
    snprintf(text, sizeof text, "%s%s", o->help, fallback);
    int column = printf("  --%s %-*s ", o->name, width > 0 ? width : 0, o->value ? o->value : "");
    args_print(text, column, HELP_INDENT);
}

static void print_help(const struct args *a)
{
    char usage[512];
    snprintf(usage, sizeof usage, "Usage: atoll %s%s%s%s%s", a->command,
             a->count ? " [options]" : "", a->settings ? " [--section.key value ...]" : "",
             a->operands ? " " : "", a->operands ? a->operands : "");
    args_print(usage, 0, 4);
    printf("\n");
    args_print(a->summary, 0, 0);
    printf("\n");
    for (size_t i = 0; i < a->count; i++)
        print_option(&a->options[i]);
    printf("  --%-22s This text.\n", "help");
    if (a->settings)
        printf("  --section.key VALUE      Any setting of the configuration; docs/configuration.md "
               "lists them.\n");
    printf("\nExample:\n  %s\n", a->example);
}

/* ---- parsing ---- */

struct mistakes { /* sentences, one per line */
    struct arena *arena;
    char *text;
};

static enum err mistake(struct mistakes *m, const char *sentence)
{
    TRY_ALLOC(sentence);
    TRY_ALLOC(m->text = arena_printf(m->arena, "%s%s%s", m->text ? m->text : "",
                                     m->text ? "\n" : "", sentence));
    return ERR_OK;
}

static const struct args_option *find(const struct args *a, const char *name, size_t length)
{
    for (size_t i = 0; i < a->count; i++)
        if (!strncmp(a->options[i].name, name, length) && !a->options[i].name[length])
            return &a->options[i];
    return NULL;
}

static const struct args_option *find_former(const struct args *a, const char *name, size_t length)
{
    for (size_t i = 0; i < a->count; i++) {
        const char *former = a->options[i].former;
        if (former && !strncmp(former, name, length) && !former[length])
            return &a->options[i];
    }
    return NULL;
}

/* The option that has this name no more; else the nearest option or setting. */
static enum err unknown(const struct args *a, struct mistakes *m, const char *word, size_t length)
{
    char *name, setting[128] = "";
    const char *best = "help";
    unsigned least, edits;
    const struct args_option *now = find_former(a, word, length);
    if (now)
        return mistake(m, arena_printf(m->arena, "--%s is now named --%s %s", now->former,
                                       now->name, now->value));
    TRY_ALLOC(name = arena_string(m->arena, word, length));
    least = nearest_edits(name, best);
    for (size_t i = 0; i < a->count; i++) {
        unsigned d = nearest_edits(name, a->options[i].name);
        if (d < least) {
            least = d;
            best = a->options[i].name;
        }
    }
    if (a->settings) {
        a->settings(name, setting, sizeof setting, &edits);
        best = edits < least ? setting : best;
        least = edits < least ? edits : least;
    }
    if (!nearest_enough(name, least))
        return mistake(m, arena_printf(m->arena, "unknown option --%.100s", name));
    return mistake(
        m, arena_printf(m->arena, "unknown option --%.100s; the nearest is --%s", name, best));
}

static enum err bad_number(const struct args_option *o, struct mistakes *m, const char *text)
{
    const char *kind = o->kind == ARGS_INT ? "a whole number" : "a number";
    char *sentence =
        o->min == 0 && o->max == 0
            ? arena_printf(m->arena, "--%s = \"%.100s\": allowed is %s", o->name, text, kind)
            : arena_printf(m->arena, "--%s = \"%.100s\": allowed is %s from %.15g to %.15g",
                           o->name, text, kind, o->min, o->max);
    return mistake(m, sentence);
}

static enum err text_add(struct args_texts *all, const char *text, struct arena *a)
{
    const char **items;
    TRY_ALLOC(items = arena_array(a, all->count + 1, sizeof *items));
    for (size_t i = 0; i < all->count; i++)
        items[i] = all->items[i];
    items[all->count++] = text;
    all->items = items;
    return ERR_OK;
}

static enum err store(const struct args_option *o, struct mistakes *m, const char *text)
{
    if (o->kind == ARGS_TEXTS)
        return text_add(o->target, text, m->arena);
    if (o->kind == ARGS_TEXT) {
        *(const char **)o->target = text;
        return ERR_OK;
    }
    double real = 0; /* also checks the range of an INT: limits are small */
    int64_t whole = 0;
    enum number_kind kind = number_read(text, &real);
    bool number = o->kind == ARGS_INT ? kind == NUMBER_WHOLE && number_read_whole(text, &whole)
                                      : kind >= NUMBER_REAL;
    bool limited = o->min != 0 || o->max != 0;
    if (!number || (limited && !(real >= o->min && real <= o->max)))
        return bad_number(o, m, text);
    if (o->kind == ARGS_INT)
        *(int64_t *)o->target = whole;
    else
        *(double *)o->target = real;
    return ERR_OK;
}

/* Further arguments after a setting with its value: probably a pattern that the shell has expanded.
 */
struct expanded {
    const char *key, *value, *first; /* "--data.train", its value, the first further argument */
    size_t prefix, suffix;           /* length of their common prefix and suffix, bytes */
    unsigned count;                  /* of further arguments */
};
struct cursor {
    int argc, at;
    char **argv;
    bool given[64]; /* per option */
    struct expanded files;
};

/* The value after = or in the next argument, which must not be an option itself. */
static char *value_of(struct cursor *c, char *equals)
{
    if (equals)
        return equals + 1;
    if (c->at < c->argc && strncmp(c->argv[c->at], "--", 2))
        return c->argv[c->at++];
    return NULL;
}

static enum err take_option(struct args *a, struct cursor *c, struct mistakes *m, char *arg)
{
    char *name = arg + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct args_option *o = find(a, name, length);
    if (!o) {
        (void)value_of(c, equals); /* skips its value, which is not a second mistake */
        return unknown(a, m, name, length);
    }
    c->given[o - a->options] = true;
    if (o->kind == ARGS_FLAG) {
        *(bool *)o->target = true;
        return equals ? mistake(m, arena_printf(m->arena, "--%s takes no value", o->name)) : ERR_OK;
    }
    const char *value = value_of(c, equals);
    if (!value)
        return mistake(m, arena_printf(m->arena, "--%s needs a value: %s", o->name, o->value));
    if (o->kind != ARGS_SETTING)
        return store(o, m, value);
    a->setting[a->setting_count++] = o->target;
    TRY_ALLOC(a->setting[a->setting_count++] = arena_printf(m->arena, "%s", value));
    return ERR_OK;
}

/* --section.key: kept as it is, with the value that follows, for config_load, which reports what is
 * wrong. */
static bool take_setting(struct args *a, struct cursor *c, char *arg)
{
    if (!a->settings || strncmp(arg, "--", 2) || !memchr(arg, '.', strcspn(arg, "=")))
        return false;
    a->setting[a->setting_count++] = arg;
    if (strchr(arg, '=') || c->at == c->argc || !strncmp(c->argv[c->at], "--", 2))
        return true;
    c->files = (struct expanded){.key = arg, .value = c->argv[c->at]};
    a->setting[a->setting_count++] = c->argv[c->at++];
    return true;
}

static void in_common(struct expanded *f, const char *other)
{
    size_t n = strlen(f->value), k = strlen(other), prefix = 0, suffix = 0;
    while (prefix < n && f->value[prefix] == other[prefix])
        prefix++;
    while (suffix < n - prefix && prefix + suffix < k &&
           f->value[n - 1 - suffix] == other[k - 1 - suffix])
        suffix++;
    f->prefix = f->count && f->prefix < prefix ? f->prefix : prefix;
    f->suffix = f->count && f->suffix < suffix ? f->suffix : suffix;
    f->first = f->count ? f->first : other;
    f->count++;
}

/* Reports the further arguments after a setting once. */
static enum err report_expanded(struct cursor *c, struct mistakes *m)
{
    struct expanded f = c->files;
    char more[48] = "";
    c->files = (struct expanded){0};
    if (!f.count)
        return ERR_OK;
    if (f.count > 1)
        snprintf(more, sizeof more, " and %u more", f.count - 1);
    bool files =
        memchr(f.value, '/', f.prefix) || strchr(f.value + strlen(f.value) - f.suffix, '.');
    if (!files)
        return mistake(m,
                       arena_printf(m->arena, "unexpected argument \"%.100s\"%s", f.first, more));
    return mistake(m, arena_printf(m->arena,
                                   "unexpected argument \"%.100s\"%s: quote a pattern: %s "
                                   "'%.*s*%s'",
                                   f.first, more, f.key, (int)f.prefix, f.value,
                                   f.value + strlen(f.value) - f.suffix));
}

static enum err take_operand(struct args *a, struct cursor *c, struct mistakes *m, char *arg)
{
    if (a->operands)
        a->operand[a->operand_count++] = arg;
    else if (c->files.key)
        in_common(&c->files, arg);
    else
        return mistake(m, arena_printf(m->arena, "unexpected argument \"%.100s\"", arg));
    return ERR_OK;
}

/* -q: warnings and errors alone; -v: all. Of a command with a configuration these are settings. */
static bool take_loudness(struct args *a, const char *arg)
{
    static char warn[] = "--log.level=warn", none[] = "--log.progress=none",
                debug[] = "--log.level=debug";
    bool quiet = !strcmp(arg, "-q");
    if (!quiet && strcmp(arg, "-v") != 0)
        return false;
    if (!a->settings) {
        log_min(quiet ? LOG_WARN : LOG_DEBUG);
        return true;
    }
    a->setting[a->setting_count++] = quiet ? warn : debug;
    if (quiet)
        a->setting[a->setting_count++] = none;
    return true;
}

static enum err take(struct args *a, struct cursor *c, struct mistakes *m)
{
    char *arg = c->argv[c->at++];
    bool word = strncmp(arg, "--", 2) != 0 && strcmp(arg, "-h") != 0;
    if (take_loudness(a, arg))
        return report_expanded(c, m);
    if (word)
        return take_operand(a, c, m, arg);
    TRY(report_expanded(c, m));
    if (args_form_read(arg, &a->form))
        a->help = true;
    else if (!take_setting(a, c, arg))
        return take_option(a, c, m, arg);
    return ERR_OK;
}

enum err args_parse(struct args *a, int argc, char **argv, struct arena *arena)
{
    struct cursor c = {.argc = argc, .at = 1, .argv = argv};
    struct mistakes m = {.arena = arena};
    ASSERT(a->count <= sizeof c.given);
    a->help = false;
    a->operand_count = a->setting_count = 0;
    TRY_ALLOC(a->operand = arena_array(arena, (size_t)argc + 1, sizeof *a->operand));
    TRY_ALLOC(a->setting = arena_array(arena, 2 * (size_t)argc + 1, sizeof *a->setting));
    while (c.at < argc)
        TRY(take(a, &c, &m));
    TRY(report_expanded(&c, &m));
    if (a->help) {
        static void (*const print[])(const struct args *) = {[ARGS_HELP_TEXT] = print_help,
                                                             [ARGS_HELP_MAN] = args_print_man,
                                                             [ARGS_HELP_WORDS] = args_print_words};
        print[a->form](a);
        return ERR_OK;
    }
    for (size_t i = 0; i < a->count; i++)
        if (a->options[i].required && !c.given[i])
            TRY(mistake(&m, arena_printf(arena, "--%s %s is missing: %s", a->options[i].name,
                                         a->options[i].value, a->options[i].help)));
    return m.text ? err_set(ERR_CONFIG, "%s", m.text) : ERR_OK;
}

/* A word of the command line without the password of an address: scheme://user:password@host. */
static char *word_shown(struct arena *arena, const char *word)
{
    const char *scheme = strstr(word, "://"), *at = scheme ? strrchr(scheme, '@') : NULL;
    const char *colon = at ? memchr(scheme + 3, ':', (size_t)(at - scheme - 3)) : NULL;
    return colon ? arena_printf(arena, "%.*s:...%s", (int)(colon - word), word, at)
                 : arena_printf(arena, "%s", word);
}

const char *args_line(struct arena *arena, int argc, char **argv)
{
    char *text = arena_printf(arena, "atoll");
    for (int i = 0; i < argc && text; i++) {
        const char *word = word_shown(arena, argv[i]);
        text = word ? arena_printf(arena, "%s %s", text, word) : NULL;
    }
    return text ? text : "";
}
