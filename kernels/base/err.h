/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ERR_H
#define ERR_H
/* Errors outside the program (files, peers, configuration, memory): number, name, meaning, action
 * for the operator, and exit code. Bugs are ASSERTs, always compiled in. Protocol outcomes (late,
 * duplicate, `behind`) are ordinary enums elsewhere, never errors.
 *
 * err_set() sets the thread's message and replaces the previous one; err_add() puts context before
 * it ("config.yaml:12: "). Any thread; never blocks.
 */
#include <stdnoreturn.h>

/*    number, name,      text,                              exit, what the operator should do */
#define ERR_LIST(X)                                                                                \
    X(0, OK, "done", 0, "nothing")                                                                 \
    X(1, CONFIG, "configuration or arguments are wrong", 4,                                        \
      "correct them; a restart will not help")                                                     \
    X(2, INPUT, "an input file is missing or unusable", 4, "correct the file or its path")         \
    X(3, IO, "a read or write failed", 1,                                                          \
      "look at the disk, then restart: nothing acknowledged is lost")                              \
    X(4, FULL, "the disk is full", 1, "make room, then restart: nothing acknowledged is lost")     \
    X(5, MEMORY, "not enough memory", 4, "use the smaller settings that the message names")        \
    X(6, CORRUPT, "stored bytes do not match their digest", 1,                                     \
      "keep the file, do as the runbook says of it")                                               \
    X(7, BUSY, "another process owns this", 4,                                                     \
      "stop the other process, or use another directory or port")                                  \
    X(8, LINK, "the other side cannot be reached", 2, "restart when the network is back")          \
    X(9, DENIED, "certificate or authorisation refused", 2,                                        \
      "check certificates, roster and clocks")                                                     \
    X(10, MISMATCH, "the two sides are configured differently", 4, "make the named keys equal")    \
    X(11, PROTO, "the other side broke the protocol", 1, "check versions; report with both logs")  \
    X(12, DIVERGED, "training diverged", 1, "lower the learning rate, or look at the data")        \
    X(13, DISAGREE, "the outer states disagree", 1, "stop, keep all files, see runbook")           \
    X(14, DEADLINE, "the deadline passed", 3, "restart; raise the limit the message names")        \
    X(15, STOPPED, "stopped on request", 75,                                                       \
      "start it again; a run continues from what it stored")                                       \
    X(16, UNSUPPORTED, "this build or machine cannot do that", 4, "use another build or setting")  \
    X(17, INTERNAL, "internal error", 5, "report it with the log")                                 \
    X(18, DIFFERS, "what was counted is not what was predicted", 1,                                \
      "report it with the ledgers of both ends")                                                   \
    X(19, TAKEN, "this site's former process may still be counted as connected", 1,                \
      "see that it has ended, wait a few seconds, start again")                                    \
    X(20, COMMAND, "a command failed", 1, "read what it said; a restart runs it again")            \
    X(21, SHORT, "the run ended without the last work of some sites", 6,                           \
      "see which sites and why; a restart changes nothing")                                        \
    X(22, STALE, "this directory is older than what the sites have", 4,                            \
      "do not serve it: use the newest one, or rebuild it (--rebuild, see runbook)")               \
    X(23, BUDGET, "the privacy budget of this site allows no further step", 7,                     \
      "end the run here, or let the people who own the data raise the cap")                        \
    X(24, WARNED, "there are warnings, and nothing failed", 8,                                     \
      "read the lines that begin with WARN; a run can start")                                      \
    X(25, UNREADY, "a run would not start here, or would not end well", 4,                         \
      "do what the lines that begin with FAIL say")                                                \
    X(26, UNLIKE, "what was recomputed is not what is on record", 1,                               \
      "look at the first line: it names round, site and place; keep the files")                    \
    X(27, GAPS, "some rounds cannot be recomputed, and nothing differs", 9,                        \
      "give the directories of more replicas; a gap of all of them stays")                         \
    X(28, DEVICE, "the GPU failed or is gone", 1,                                                  \
      "look at nvidia-smi and the kernel's log (Xid), then start again: nothing acknowledged is "  \
      "lost")

enum err {
#define X(number, name, text, exit, action) ERR_##name = number,
    ERR_LIST(X)
#undef X
};

#define MUST __attribute__((warn_unused_result))

/* Sets this thread's message and returns e: return err_set(ERR_PROTO, "chunk %u past end", i); */
enum err err_set(enum err e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts context before this thread's message; returns e unchanged. */
enum err err_add(enum err e, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *
err_message(void); /* this thread's message; "" if none. Valid until the thread's next err_set */
void err_clear(void);
const char *err_name(enum err e);   /* "CONFIG" */
const char *err_text(enum err e);   /* what it means */
const char *err_action(enum err e); /* what the operator should do */
int err_exit_code(enum err e);

/* The only macro that hides control flow. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err try_err_ = (call);                                                                \
        if (try_err_ != ERR_OK)                                                                    \
            return try_err_;                                                                       \
    } while (0)

/* Prints the assertion and ends the process with the exit code of ERR_INTERNAL. */
noreturn void err_bug(const char *file, int line, const char *expression);
#define ASSERT(x) ((x) ? (void)0 : err_bug(__FILE__, __LINE__, #x))

#endif
