/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/cmd/acts.h"
#include <stdio.h>
#include <string.h>
#include "outer/run/closing.h"

const struct cmd_act *cmd_act_find(const struct cmd_acts *c, const char *name)
{
    for (size_t i = 0; name && i < c->count; i++)
        if (strcmp(name, c->acts[i].name) == 0)
            return &c->acts[i];
    return NULL;
}

static void rows_man(const struct cmd_acts *c)
{
    for (size_t i = 0; i < c->count; i++)
        args_man_row(&(struct args_row){c->acts[i].name, c->acts[i].summary});
}

static void list_man(const struct cmd_acts *c)
{
    struct args_page page = {
        .name = c->command, .summary = c->head, .heading = "COMMANDS", .example = c->example};
    args_man_begin(&page);
    rows_man(c);
    args_man_end(&page);
}

static void list_words(const struct cmd_acts *c)
{
    for (size_t i = 0; i < c->count; i++)
        args_words_row(&(struct args_row){c->acts[i].name, c->acts[i].summary});
}

static void list_text(const struct cmd_acts *c)
{
    enum { COLUMN = 14 };
    printf("%s\n\n", c->head);
    for (size_t i = 0; i < c->count; i++) {
        printf("  %-11s ", c->acts[i].name);
        args_print(c->acts[i].summary, COLUMN, COLUMN);
    }
    printf("\nexample:\n%s\n", c->example);
}

void cmd_acts_help(const struct cmd_acts *c, enum args_form form)
{
    static void (*const list[])(const struct cmd_acts *) = {
        [ARGS_HELP_TEXT] = list_text, [ARGS_HELP_MAN] = list_man, [ARGS_HELP_WORDS] = list_words};
    list[form](c);
}

void cmd_acts_more(const struct cmd_acts *c, enum args_form form)
{
    if (form == ARGS_HELP_MAN) {
        args_man_section("COMMANDS");
        rows_man(c);
        return;
    }
    cmd_acts_help(c, form);
}

enum err cmd_acts_run(const struct cmd_acts *c, int argc, char **argv, struct arena *arena)
{
    char names[256] = "";
    const struct cmd_act *act = cmd_act_find(c, argv[1]);
    enum args_form form;
    if (argc > 1 && args_form_read(argv[1], &form)) {
        cmd_acts_help(c, form);
        return ERR_OK;
    }
    for (size_t i = 0; i < c->count; i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s",
                 i == 0              ? ""
                 : i + 1 == c->count ? " or "
                                     : ", ",
                 c->acts[i].name);
    }
    if (!act)
        return err_set(ERR_CONFIG, "%s: %s; `atoll %s --help` says more", c->command, names,
                       c->command);
    return act->run(argc - 1, argv + 1, arena);
}

enum err cmd_help_key(const char *key)
{
    struct arena scratch = arena_make(0);
    char *text;
    enum err e = run_key_reference(&scratch, key, &text);
    if (e == ERR_OK)
        args_print(text, 0, 4);
    arena_free(&scratch);
    return closing_flush(e);
}

enum err cmd_format(const char *format, bool *json)
{
    *json = strcmp(format, "json") == 0;
    if (*json)
        closing_json();
    return *json || strcmp(format, "text") == 0
               ? ERR_OK
               : err_set(ERR_CONFIG, "--format %.40s: allowed are text, json", format);
}

enum err cmd_run(const struct args *args, struct run_source *source,
                 enum err (*act)(struct run *r, void *self), void *self)
{
    struct run r = {.perm = arena_make(0)};
    source->args = args;
    enum err e = args->help ? ERR_OK : run_open(&r, source);
    if (e == ERR_OK && !args->help)
        e = act(&r, self);
    run_close(&r);
    return e;
}
