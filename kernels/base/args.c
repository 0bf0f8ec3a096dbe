#include "kernels/base/args.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/nearest.h"

/* ---- --help
 * ------------------------------------------------------------------------------------------- */

static void print_default(const struct args_option *o)
{
    if (o->required)
        printf(" Required.");
    else if (o->kind == ARGS_INT)
        printf(" Default: %lld.", (long long)*(const int64_t *)o->target);
    else if (o->kind == ARGS_REAL)
        printf(" Default: %g.", *(const double *)o->target);
    else if (o->kind == ARGS_TEXT && *(const char *const *)o->target)
        printf(" Default: %s.", *(const char *const *)o->target);
}

static void print_help(const struct args *a)
{
    printf("Usage: atoll %s%s%s%s%s\n\n%s\n\n", a->command, a->count ? " [options]" : "",
           a->settings ? " [--section.key value ...]" : "", a->operands ? " " : "",
           a->operands ? a->operands : "", a->summary);
    for (size_t i = 0; i < a->count; i++) {
        const struct args_option *o = &a->options[i];
        int width = 22 - (int)strlen(o->name) - 1;
        printf("  --%s %-*s %s", o->name, width > 0 ? width : 0, o->value ? o->value : "", o->help);
        print_default(o);
        printf("\n");
    }
    printf("  --%-22s This text.\n", "help");
    if (a->settings)
        printf("  --section.key VALUE      Any setting of the configuration; docs/configuration.md "
               "lists them.\n");
    printf("\nExample:\n  %s\n", a->example);
}

/* ---- parsing
 * ------------------------------------------------------------------------------------------ */

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

static enum err unknown(const struct args *a, struct mistakes *m, const char *name)
{
    const char *best = "help";
    unsigned least = nearest_edits(name, best);
    for (size_t i = 0; i < a->count; i++) {
        unsigned d = nearest_edits(name, a->options[i].name);
        if (d < least) {
            least = d;
            best = a->options[i].name;
        }
    }
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

static enum err store(const struct args_option *o, struct mistakes *m, const char *text)
{
    if (o->kind == ARGS_TEXT) {
        *(const char **)o->target = text;
        return ERR_OK;
    }
    char *end = NULL;
    double real = strtod(text, &end); /* also checks the range of an INT: limits are small */
    int64_t whole = strtoll(text, o->kind == ARGS_INT ? &end : NULL, 10);
    bool number = *text && !*end &&
                  strspn(text, "+-.0123456789eE") == strlen(text); /* no inf, nan, 0x, blanks */
    bool limited = o->min != 0 || o->max != 0;
    if (!number || (limited && !(real >= o->min && real <= o->max)))
        return bad_number(o, m, text);
    if (o->kind == ARGS_INT)
        *(int64_t *)o->target = whole;
    else
        *(double *)o->target = real;
    return ERR_OK;
}

struct cursor {
    int argc, at;
    char **argv;
    bool given[64]; /* per option */
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
    if (!o)
        return unknown(a, m, name);
    c->given[o - a->options] = true;
    if (o->kind == ARGS_FLAG) {
        *(bool *)o->target = true;
        return equals ? mistake(m, arena_printf(m->arena, "--%s takes no value", o->name)) : ERR_OK;
    }
    const char *value = value_of(c, equals);
    if (!value)
        return mistake(m, arena_printf(m->arena, "--%s lacks its value %s", o->name, o->value));
    return store(o, m, value);
}

/* --section.key: kept as it is, with the value that follows, for config_load, which reports what is
 * wrong. */
static bool take_setting(struct args *a, struct cursor *c, char *arg)
{
    if (!a->settings || strncmp(arg, "--", 2) || !memchr(arg, '.', strcspn(arg, "=")))
        return false;
    a->setting[a->setting_count++] = arg;
    if (!strchr(arg, '=') && c->at < c->argc && strncmp(c->argv[c->at], "--", 2))
        a->setting[a->setting_count++] = c->argv[c->at++];
    return true;
}

static enum err take(struct args *a, struct cursor *c, struct mistakes *m)
{
    char *arg = c->argv[c->at++];
    if (!strcmp(arg, "--help") || !strcmp(arg, "-h"))
        a->help = true;
    else if (take_setting(a, c, arg))
        return ERR_OK;
    else if (!strncmp(arg, "--", 2))
        return take_option(a, c, m, arg);
    else if (a->operands)
        a->operand[a->operand_count++] = arg;
    else
        return mistake(m, arena_printf(m->arena, "what is \"%.100s\"? See --help", arg));
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
    TRY_ALLOC(a->setting = arena_array(arena, (size_t)argc + 1, sizeof *a->setting));
    while (c.at < argc)
        TRY(take(a, &c, &m));
    if (a->help) {
        print_help(a);
        return ERR_OK;
    }
    for (size_t i = 0; i < a->count; i++)
        if (a->options[i].required && !c.given[i])
            TRY(mistake(&m, arena_printf(arena, "--%s %s is missing: %s", a->options[i].name,
                                         a->options[i].value, a->options[i].help)));
    return m.text ? err_set(ERR_CONFIG, "%s", m.text) : ERR_OK;
}

const char *args_line(struct arena *arena, int argc, char **argv)
{
    char *text = arena_printf(arena, "atoll");
    for (int i = 0; i < argc && text; i++)
        text = arena_printf(arena, "%s %s", text, argv[i]);
    return text ? text : "";
}
