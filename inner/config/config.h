/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_H
#define CONFIG_H
/* One mechanism for all settings: tables of keys (section, name, type, default, range, unit, help),
 * filled from defaults, then one YAML file, then `--section.key value` arguments. From the same
 * tables come the checks,
 * --help, the reference page, the resolved configuration in the log, the canonical text of the
 * pinned keys (what all sites of a run must share) and its digest.
 *
 * The tables are X-macros that also make the struct: inner/config/keys.h (struct settings) and
 * outer/config/keys.h (struct outer_settings). Both kinds of tables are given to config_load in one
 * call. libyaml is included by config_yaml.c alone. All errors are reported at once, each with
 * file:line, key, value, what is allowed, and for an unknown key the nearest one.
 */
#include <stdbool.h>
#include <stdint.h>
#include "kernels/base/digest.h"
#include "kernels/base/arena.h"

enum config_type { CONFIG_BOOL, CONFIG_INT, CONFIG_REAL, CONFIG_TEXT, CONFIG_CHOICE, CONFIG_LIST };

struct config_list { /* list of scalars, borrowed from the arena given to config_load */
    const char **items;
    size_t count;
};

/* Two names of a key: the one that people type and read, and the one in recorded texts (the
 * digested settings, metrics.jsonl, checkpoints, amendments), which never changes. They differ
 * where a key was renamed, so that a directory that was begun under the old name resumes, and sites
 * of both versions join the same run. */
enum config_names { CONFIG_TYPED, CONFIG_RECORDED };

enum config_level { CONFIG_ADVANCED, CONFIG_BASIC, CONFIG_EXPERT }; /* who needs a key */

struct config_choice { /* a list of them ends with the name NULL */
    const char *name;
    int value;
    const char *recorded; /* NULL: as name */
};
struct config_key {
    const char *section, *name;
    const char *recorded; /* NULL: as name */
    const char *formerly; /* another name of before, which no text has recorded; NULL: none */
    enum config_type type;
    size_t offset; /* of the field in the table's struct: bool, int64_t, double, const char *, an
                      enum, config_list */
    const char *fallback;                /* default, as text; NULL: must be given */
    double min, max;                     /* INT, REAL: inclusive range */
    const struct config_choice *choices; /* CHOICE */
    const char *unit;                    /* "ms", "tokens", ...; NULL: none */
    bool pinned;         /* all sites of a run must agree on it: part of the configuration digest */
    bool later;          /* pinned, and left out of the digest at its default: runs that were begun
                            before the key existed continue */
    const char *field;   /* of a list of maps: "train.weight", the values of `weight` in the maps of
                            SECTION.train; NULL: none */
    const char *members; /* of a list that people write as a map: "rounds factor most", in the order
                            of the recorded list; NULL: none */
    const char *help;    /* a sentence or two */
    enum config_level level;
    const char *group;   /* of the page: begins with this key, to the next one that names a group */
    const char *example; /* NULL: the default */
};
struct config_table {
    const struct config_key *keys;
    size_t count;
    void *values; /* the struct to fill */
    bool
        keep; /* config_load leaves values that nothing names: no defaults, nothing must be given */
    bool written; /* the files are a program's: recorded names are read, too */
    const struct config_elsewhere *elsewhere; /* NULL: none */
};
struct config_elsewhere { /* a section that is in files of another kind: refused, with the reason */
    const char *section, *why;
};

/* A row of a key table names only what it needs:
 *     X(outer, sync_every, INT, .recorded = "every", .fallback = "50", .min = 1, .max = 1e6, .unit
 * = "steps", .pinned = true, .help = "H: inner steps between two rounds of a fragment.") TYPE is
 * BOOL, INT, REAL, TEXT, LIST, CHOICE(e): `enum e` with the names e_choices, or CHOICE_OF(e,
 * names): an enum of another header with the names names_choices. */
#define CONFIG_FIELD_BOOL                      bool
#define CONFIG_FIELD_INT                       int64_t
#define CONFIG_FIELD_REAL                      double
#define CONFIG_FIELD_TEXT                      const char *
#define CONFIG_FIELD_LIST                      struct config_list
#define CONFIG_FIELD_CHOICE(e)                 enum e
#define CONFIG_FIELD_CHOICE_OF(e, names)       enum e
#define CONFIG_FIELD(section, name, type, ...) CONFIG_FIELD_##type section##_##name;

#define CONFIG_TYPE_BOOL                       .type = CONFIG_BOOL
#define CONFIG_TYPE_INT                        .type = CONFIG_INT
#define CONFIG_TYPE_REAL                       .type = CONFIG_REAL
#define CONFIG_TYPE_TEXT                       .type = CONFIG_TEXT
#define CONFIG_TYPE_LIST                       .type = CONFIG_LIST
#define CONFIG_TYPE_CHOICE(e)                  .type = CONFIG_CHOICE, .choices = e##_choices
#define CONFIG_TYPE_CHOICE_OF(e, names)        .type = CONFIG_CHOICE, .choices = names##_choices
/* In a .c file: #define X(...) CONFIG_ROW(struct settings, __VA_ARGS__) */
#define CONFIG_ROW(st, section_, name_, type_, ...)                                                \
    {.section = #section_,                                                                         \
     .name = #name_,                                                                               \
     CONFIG_TYPE_##type_,                                                                          \
     .offset = offsetof(st, section_##_##name_),                                                   \
     __VA_ARGS__},

/* The choices of a key are a list of X(ENUMERATOR, name), and a list of such lists, X(e, LIST),
 * makes the enums in the header and the names in the .c file: #define OUTER_MODE(X)
 * X(OUTER_MODE_STRICT, strict) X(OUTER_MODE_QUORUM, quorum) CONFIG_ENUM(outer_mode, OUTER_MODE)
 * enum outer_mode {OUTER_MODE_STRICT, ...} CONFIG_CHOICES(outer_mode, OUTER_MODE)
 * outer_mode_choices[] */
#define CONFIG_ENUM_VALUE(value, ...)  value,
#define CONFIG_CHOICE_ROW(value_, ...) {.value = value_, CONFIG_CHOICE_NAME(__VA_ARGS__, )},
#define CONFIG_CHOICE_NAME(name_, ...) .name = #name_, __VA_ARGS__
#define CONFIG_ENUM(e, LIST)                                                                       \
    enum e { LIST(CONFIG_ENUM_VALUE) };                                                            \
    CONFIG_CHOICES_DECLARE(e, LIST)
#define CONFIG_CHOICES_DECLARE(e, LIST) extern const struct config_choice e##_choices[];
#define CONFIG_CHOICES(e, LIST)                                                                    \
    const struct config_choice e##_choices[] = {LIST(CONFIG_CHOICE_ROW){.name = NULL}};
/* The name of a value of these choices. */
const char *config_choice_name(const struct config_choice *choices, unsigned value);

/* Names in `members`; 0: none. */
size_t config_member_count(const struct config_key *k);
/* Fills every table. `path` NULL: defaults and arguments only; "-": standard
 * input. `argv` holds only what is left for
 * the configuration
 * (--section.key value or --section.key=value); anything else is an error. Strings live in `a`.
 * ERR_CONFIG: the sentence holds every error, one per line. */
enum err config_load(const struct config_table *tables, size_t table_count, const char *path,
                     int argc, char **argv, struct arena *a) MUST;
/* The same from a text in memory. */
struct config_text {
    const char *name; /* in place of its path in messages */
    const char *text; /* NULL: no file */
    size_t size_bytes;
    enum config_names names;
};
enum err config_load_text(const struct config_table *tables, size_t table_count,
                          const struct config_text *text, int argc, char **argv,
                          struct arena *a) MUST;

/* One key of tables that are filled: "section.key" and its value. ERR_CONFIG: unknown, or a value
 * that the key does not allow; `values` are as they were. */
enum err config_set(const struct config_table *tables, size_t table_count, enum config_names names,
                    const char *key, const char *value, struct arena *a) MUST;
/* Of "section.key"; NULL: there is none. */
const struct config_key *config_key_find(const struct config_table *tables, size_t table_count,
                                         enum config_names names, const char *key);
const char *config_key_name(const struct config_key *k, enum config_names names);
/* Another name that the key has had; NULL: none. And the key that had this name, "section.name". */
const char *config_key_old(const struct config_key *k);
const struct config_key *config_key_renamed(const struct config_table *tables, size_t table_count,
                                            const char *old);
const char *config_choice_text(const struct config_choice *c, enum config_names names);

/* Rules that need more than one key: a check adds a sentence for each violated rule, so that one
 * message lists them all. */
struct config_rules {
    char text[6000];
    size_t length;
    unsigned left_out; /* sentences that found no room */
};
void config_broken(struct config_rules *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct config_excluded { /* a setting that another one excludes */
    bool given;
    const char *key, *use; /* and what it has to be */
};
/* "BEFORE needs KEY = USE" and `after`, for each row that is given. */
void config_needs(struct config_rules *r, const char *before, const struct config_excluded *rows,
                  size_t count, const char *after);
enum err config_rules_report(const struct config_rules *r) MUST; /* ERR_CONFIG, one per line */

/* The name, "section.key", of the key whose last part is nearest to a word; `edits`: how far. */
void config_nearest(const struct config_table *tables, size_t table_count, const char *word,
                    char *name, size_t size, unsigned *edits);

/* Whether key i of table t is the first of its section: one section may be spread over several
 * tables.
 */
bool config_section_first(const struct config_table *tables, size_t t, size_t i);

/* May an operator amend the key in a running run? NULL: nothing can be amended. */
typedef bool config_amendable(const struct config_key *k);
/* What one key means: its name, what is allowed, its default, its help. ERR_CONFIG: there is none;
 * names the nearest one. */
enum err config_explain(const struct config_table *tables, size_t table_count,
                        config_amendable *amendable, const char *key, struct arena *a,
                        char **text) MUST;
/* The keys whose values are not the default, as YAML text with comments. */
enum err config_print_differing(const struct config_table *tables, size_t table_count,
                                struct arena *a, char **text) MUST;
/* The resolved configuration as YAML text with comments (which keys differ from the default). */
enum err config_print(const struct config_table *tables, size_t table_count,
                      enum config_names names, struct arena *a, char **text) MUST;
/* Such a text with recorded names, by the names that people know. */
enum err config_print_typed(const struct config_table *tables, size_t table_count,
                            const char *recorded, struct arena *a, char **text) MUST;
/* Canonical text of the pinned keys, "section.key=value\n" sorted, with recorded names; same text
 * <=> same settings. */
enum err config_canonical(const struct config_table *tables, size_t table_count, struct arena *a,
                          char **text) MUST;
/* The same lines by the names that people know, for files of other programs. */
enum err config_lines(const struct config_table *tables, size_t table_count, struct arena *a,
                      char **text) MUST;
/* The keys in which two canonical texts differ, by the names that people know:
 * "model.layers: 4 here, 6 there; ..." */
enum err config_difference(const struct config_table *tables, size_t table_count, const char *ours,
                           const char *theirs, struct arena *a, char **text) MUST;
/* A canonical text without the line of that key. */
enum err config_without(const char *text, const char *key, struct arena *a, char **rest) MUST;
/* The whole number that a canonical text gives for that key; 0: no such line. */
int64_t config_integer(const char *text, const char *key);
/* The reference page: Markdown, one table for each group of a section, with levels, what can be
 * amended, an anchor and an example for each key. amendable NULL: one table for each section,
 * without these. */
enum err config_reference(const struct config_table *tables, size_t table_count,
                          config_amendable *amendable, struct arena *a, char **text) MUST;

#endif
