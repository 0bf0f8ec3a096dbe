/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/args_forms.h"
#include <stdio.h>
#include <string.h>

bool args_form_read(const char *word, enum args_form *form)
{
    static const struct {
        const char *word;
        enum args_form form;
    } words[] = {{"--help", ARGS_HELP_TEXT},
                 {"-h", ARGS_HELP_TEXT},
                 {"--help=man", ARGS_HELP_MAN},
                 {"--help=words", ARGS_HELP_WORDS}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0) {
            *form = words[i].form;
            return true;
        }
    return false;
}

/* A default below the least value that can be given stands for "not given". */
void args_default_text(const struct args_option *o, char *out, size_t size)
{
    bool limits = o->min != 0 || o->max != 0;
    *out = 0;
    if (o->required)
        snprintf(out, size, " Required.");
    else if (o->kind == ARGS_INT && limits && (double)*(const int64_t *)o->target < o->min)
        return;
    else if (o->kind == ARGS_INT)
        snprintf(out, size, " Default: %lld.", (long long)*(const int64_t *)o->target);
    else if (o->kind == ARGS_REAL)
        snprintf(out, size, " Default: %g.", *(const double *)o->target);
    else if (o->kind == ARGS_TEXT && *(const char *const *)o->target)
        snprintf(out, size, " Default: %s.", *(const char *const *)o->target);
}

/* ---- manual page ---- */

/* roff reads a period or an apostrophe at the start of a line as a request, and - as a hyphen. */
static void put_roff(const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
        start = *text == '\n';
    }
}

/* "cert issue" -> "cert-issue", the name of its page after "atoll-". */
static void put_page_name(const char *command)
{
    fputs("atoll", stdout);
    if (*command)
        fputs("\\-", stdout);
    for (; *command; command++)
        fputs(*command == ' ' || *command == '-' ? "\\-" : (char[]){*command, 0}, stdout);
}

static void put_title(const char *command)
{
    fputs(".TH ATOLL", stdout);
    for (const char *s = command; *s; s++) {
        if (s == command)
            putchar('-');
        putchar(*s == ' ' ? '-' : *s >= 'a' && *s <= 'z' ? *s - 'a' + 'A' : *s);
    }
    puts(" 1 \"\" \"Atoll\" \"Atoll\"");
}

void args_man_section(const char *name)
{
    printf(".SH %s\n", name);
}

/* Its first sentence, without "atoll NAME ACT:" before it. */
static const char *sentence(const char *summary, size_t *length)
{
    const char *colon = strstr(summary, ": "), *stop;
    if (strncmp(summary, "atoll ", 6) == 0 && colon)
        summary = colon + 2;
    stop = strstr(summary, ". ");
    *length = stop ? (size_t)(stop - summary) : strcspn(summary, "\n");
    if (*length && summary[*length - 1] == '.')
        --*length;
    return summary;
}

static void put_head(const char *command, const char *summary)
{
    size_t length;
    const char *first = sentence(summary, &length);
    put_title(command);
    args_man_section("NAME");
    put_page_name(command);
    printf(" \\- ");
    for (size_t i = 0; i < length; i++)
        put_roff((char[]){first[i], 0});
    puts("");
    args_man_section("SYNOPSIS");
    printf(".B atoll%s%s\n", *command ? " " : "", command);
}

static void put_description(const char *summary)
{
    args_man_section("DESCRIPTION");
    put_roff(summary);
    puts("");
}

static void put_tail(const char *command, const char *example)
{
    if (example) {
        args_man_section("EXAMPLE");
        puts(".nf");
        put_roff(example);
        puts("\n.fi");
    }
    args_man_section("EXIT STATUS");
    puts(
        "0: done. 4: a mistake in the configuration or the arguments. 75: stopped on request, with "
        "all\nwork stored. The message names other reasons.");
    if (*command) {
        args_man_section("SEE ALSO");
        puts(".BR atoll (1)");
    }
}

void args_man_begin(const struct args_page *p)
{
    put_head(p->name, p->summary);
    puts(".I COMMAND\n[options]");
    put_description(p->summary);
    args_man_section(p->heading);
}

void args_man_row(const struct args_row *r)
{
    printf(".TP\n.B %s\n", r->name);
    put_roff(r->meaning);
    puts("");
}

void args_man_end(const struct args_page *p)
{
    put_tail(p->name, p->example);
}

static void put_option(const struct args_option *o)
{
    char fallback[256];
    args_default_text(o, fallback, sizeof fallback);
    printf(".TP\n.B \\-\\-");
    put_roff(o->name);
    if (o->value)
        printf(" \\fI%s\\fR", o->value);
    puts("");
    put_roff(o->help);
    put_roff(fallback);
    puts("");
}

void args_print_man(const struct args *a)
{
    put_head(a->command, a->summary);
    if (a->count)
        puts("[options]");
    if (a->settings)
        puts("[\\-\\-section.key value ...]");
    if (a->operands)
        puts(a->operands);
    put_description(a->summary);
    args_man_section("OPTIONS");
    for (size_t i = 0; i < a->count; i++)
        put_option(&a->options[i]);
    puts(".TP\n.B \\-\\-help\nA short form of this page.");
    if (a->settings)
        puts(
            ".TP\n.B \\-\\-section.key \\fIVALUE\\fR\nAny setting of the configuration: atoll help "
            "SECTION.KEY.");
    put_tail(a->command, a->example);
}

/* ---- words ---- */

void args_words_row(const struct args_row *r)
{
    size_t first = strcspn(r->meaning, "\n\t");
    printf("%s\t%.*s\n", r->name, (int)first, r->meaning);
}

void args_print_words(const struct args *a)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct args_option *o = &a->options[i];
        char name[128];
        snprintf(name, sizeof name, "--%s%s", o->name, o->value ? "=" : "");
        args_words_row(&(struct args_row){name, o->help});
    }
    puts("--help\tThis command's options");
    if (a->settings)
        puts("--section.key=\tAny setting of the configuration");
}
