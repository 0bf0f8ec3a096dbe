/* SPDX-License-Identifier: Apache-2.0 */
/* The program: a table of subcommands. Nothing else exits. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/base/nearest.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/run/closing.h"
#include "outer/run/crash.h"
#include "outer/record/directory.h"
#include "outer/record/events.h"
#include "outer/record/version.h"

#ifdef ATOLL_NET
#define RUN_NET(command) command
#else
#define RUN_NET(command) NULL
#endif
#define RUN_ANY(command) command

enum group {
#define X(name, title) GROUP_##name,
    CMD_GROUPS(X)
#undef X
};
static const char *const group_titles[] = {
#define X(name, title) title,
    CMD_GROUPS(X)
#undef X
};
static const struct command {
    const char *name, *summary;
    enum group group;
    enum err (*run)(int argc, char **argv,
                    struct arena *arena); /* NULL: this build is without the network */
} commands[] = {
#define X(name, needs, group, summary) {#name, summary, GROUP_##group, RUN_##needs(cmd_##name)},
    CMD_LIST(X)
#undef X
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static const char program_summary[] =
    "atoll trains transformer language models in several datacenters at once, joined only by slow "
    "links.";

static void help_text(void)
{
    args_print(program_summary, 0, 0);
    puts("\nusage: atoll COMMAND [options]     atoll COMMAND --help says more\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        char text[512];
        if (!i || commands[i].group != commands[i - 1].group)
            printf("%s%s:\n", i ? "\n" : "", group_titles[commands[i].group]);
        snprintf(text, sizeof text, "%s%s", commands[i].summary,
                 commands[i].run ? "" : " (not in this build: -DNET=OFF)");
        args_print(text, printf("  %-8s ", commands[i].name), 11);
    }
    puts("\n  --help, --version (-V); each command: -q less, -v more of the log; help SECTION.KEY "
         "explains a key of the configuration,\n"
         "  help EVENT a line of the log (ev=EVENT), help ERROR an error\n\n"
         "First steps: deploy/run-demo.sh, or `atoll demo`; then README.md.");
}

/* For a manual page or a shell. A shell is told only what this build has. */
static void help_list(enum args_form form)
{
    struct cmd_act rows[COMMAND_COUNT];
    size_t count = 0;
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (form == ARGS_HELP_MAN || commands[i].run)
            rows[count++] = (struct cmd_act){commands[i].name, commands[i].summary, NULL};
    cmd_acts_help(&(struct cmd_acts){"", program_summary, NULL, rows, count}, form);
}

static int finish(const char *command, enum err e)
{
    closing_message(command, e);
    return err_exit_code(e);
}

static enum err run_command(int argc, char **argv)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[0], commands[i].name) != 0)
            continue;
        if (!commands[i].run)
            return err_set(ERR_UNSUPPORTED, "this build has no network: configure with -DNET=ON "
                                            "(needs libgrpc-dev, libprotobuf-c-dev)");
        struct arena arena = arena_make(0);
        enum err e = commands[i].run(argc, argv, &arena);
        arena_free(&arena);
        return closing_flush(e);
    }
    const char *nearest = commands[0].name;
    for (int i = 1; i < COMMAND_COUNT; i++)
        if (nearest_edits(argv[0], commands[i].name) < nearest_edits(argv[0], nearest))
            nearest = commands[i].name;
    bool slip = nearest_enough(argv[0], nearest_edits(argv[0], nearest));
    return err_set(ERR_CONFIG, "there is no command \"%.40s\"; %s%s%s`atoll --help` lists them",
                   argv[0], slip ? "the nearest is `atoll " : "", slip ? nearest : "",
                   slip ? "`; " : "");
}

static enum err help_event(const char *name)
{
    struct arena scratch = arena_make(0);
    char *text;
    enum err e = event_explain(name, &scratch, &text);
    if (e == ERR_OK)
        args_print(text, 0, 4);
    arena_free(&scratch);
    return closing_flush(e);
}

static bool is_command(const char *name)
{
    bool is = false;
    for (int i = 0; i < COMMAND_COUNT; i++)
        is |= strcmp(name, commands[i].name) == 0;
    return is;
}

/* A word that is no command: an event's name, as in a line of the log, or an error's. */
static bool is_event(const char *word)
{
    struct arena scratch = arena_make(0);
    char *text;
    bool is = strncmp(word, "ev=", 3) == 0 ||
              (!is_command(word) && event_explain(word, &scratch, &text) == ERR_OK);
    err_clear();
    arena_free(&scratch);
    return is;
}

/* Says that a command is meant only where its name is near. */
static enum err help_unknown(char *word)
{
    enum err e = run_command(1, &word);
    return strstr(err_message(), "nearest")
               ? e
               : err_set(ERR_CONFIG,
                         "there is no command, key, event or error \"%.40s\"; `atoll --help` lists "
                         "commands, docs/events.md events and errors",
                         word);
}

/* `atoll help COMMAND ...` is `atoll COMMAND ... --help`; `atoll help outer.lr` explains a key,
 * `atoll help commit` an event of the log, `atoll help DISAGREE` an error. */
static enum err help_command(int argc, char **argv)
{
    static char option[] = "--help";
    if (strchr(argv[1], '.'))
        return cmd_help_key(argv[1]);
    if (argc == 2 && is_event(argv[1]))
        return help_event(argv[1]);
    if (argc == 2 && !is_command(argv[1]))
        return help_unknown(argv[1]);
    for (int i = 0; i + 1 < argc; i++)
        argv[i] = argv[i + 1];
    argv[argc - 1] = option;
    return run_command(argc, argv);
}

/* Frames hold whole manifests (136 KB), several at a time. The limit is raised where it may be;
 * glibc took it for the stacks of threads already. */
static enum err stack_check(void)
{
    const rlim_t wanted = 8 << 20, least = 2 << 20;
    struct rlimit limit;
    pthread_attr_t threads;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= wanted)
        return ERR_OK;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (limit.rlim_cur < least)
        return err_set(ERR_CONFIG,
                       "the stack may take %llu KiB (ulimit -s) and needs %llu: ulimit -s %llu",
                       (unsigned long long)limit.rlim_cur >> 10, (unsigned long long)least >> 10,
                       (unsigned long long)wanted >> 10);
    bool raised = setrlimit(RLIMIT_STACK, &limit) == 0 && pthread_attr_init(&threads) == 0 &&
                  pthread_attr_setstacksize(&threads, limit.rlim_cur) == 0 &&
                  pthread_setattr_default_np(&threads) == 0;
    return raised ? ERR_OK
                  : err_set(ERR_CONFIG, "the stack of %llu KiB (ulimit -s) cannot be raised",
                            (unsigned long long)limit.rlim_cur >> 10);
}

/* A file that is opened gets the least free number: the log of a program that was started with
 * standard error closed would go into its LOCK. Reading 0 and writing 1 fail as before. */
static void standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY) != fd)
            return; /* not even /dev/null: nothing else can be opened either */
}

int main(int argc, char **argv)
{
    standard_files();
    crash_report();
    signal(SIGXFSZ, SIG_IGN); /* `ulimit -f`: the write fails with EFBIG, and the file is named */
    umask(umask(0) | 0002);   /* under any umask: what atoll makes is not writable for all */
    bool help_word = argc > 1 && strcmp(argv[1], "help") == 0;
    enum args_form form = ARGS_HELP_TEXT;
    if (argc < 2 || args_form_read(argv[1], &form) || (help_word && argc == 2)) {
        if (form == ARGS_HELP_TEXT)
            help_text();
        else
            help_list(form);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("%s\nformats of directories: %s\n", version_line(), directory_formats());
        return 0;
    }
    enum err e = stack_check();
    if (e != ERR_OK)
        return finish(argv[1], e);
    if (help_word)
        return finish("help", help_command(argc - 1, argv + 1));
    return finish(argv[1], run_command(argc - 1, argv + 1));
}
