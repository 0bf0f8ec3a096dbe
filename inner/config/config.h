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

struct config_key {
    const char *section, *name;
    enum config_type type;
    size_t offset; /* of the field in the table's struct: bool, int64_t, double, const char *,
                      config_list */
    const char *fallback; /* default, as text; NULL: must be given when `required` says so */
    double min, max;      /* INT, REAL: inclusive range */
    const char *choices;  /* CHOICE: "f32|bf16|auto" */
    const char *unit;     /* "", "ms", "tokens", ... */
    bool pinned;      /* all sites of a run must agree on it: part of the configuration digest */
    const char *help; /* one sentence */
};
struct config_renamed { /* of a section of this table: refused, with the new name */
    const char *section, *old, *name;
};
struct config_table {
    const struct config_key *keys;
    size_t count;
    void *values; /* the struct to fill */
    const struct config_renamed *renamed;
    size_t renamed_count;
};

/* KEYS(X) entries: X(section, name, TYPE, default, min, max, choices, unit, pinned, help) */
#define CONFIG_FIELD_BOOL   bool
#define CONFIG_FIELD_INT    int64_t
#define CONFIG_FIELD_REAL   double
#define CONFIG_FIELD_TEXT   const char *
#define CONFIG_FIELD_CHOICE const char *
#define CONFIG_FIELD_LIST   struct config_list
#define CONFIG_FIELD(section, name, type, def, lo, hi, choices, unit, pinned, help)                \
    CONFIG_FIELD_##type section##_##name;
/* In a .c file: #define X(...) CONFIG_ROW(struct settings, __VA_ARGS__) */
#define CONFIG_ROW(st, section, name, type, def, lo, hi, choices, unit, pinned, help)              \
    {#section, #name,  CONFIG_##type, offsetof(st, section##_##name), def, lo, hi, choices,        \
     unit,     pinned, help},

/* Fills every table. `path` NULL: defaults and arguments only. `argv` holds only what is left for
 * the configuration
 * (--section.key value or --section.key=value); anything else is an error. Strings live in `a`.
 * ERR_CONFIG: the sentence holds every error, one per line. */
enum err config_load(const struct config_table *tables, size_t table_count, const char *path,
                     int argc, char **argv, struct arena *a) MUST;
/* The same from a text in memory; name stands in for its path in messages. */
enum err config_load_text(const struct config_table *tables, size_t table_count, const char *name,
                          const char *text, size_t size_bytes, int argc, char **argv,
                          struct arena *a) MUST;

/* Rules that need more than one key: a check adds a sentence for each violated rule, so that one
 * message lists them all. */
struct config_rules {
    char text[6000];
    size_t length;
    unsigned left_out; /* sentences that found no room */
};
void config_broken(struct config_rules *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
enum err config_rules_report(const struct config_rules *r) MUST; /* ERR_CONFIG, one per line */

/* The resolved configuration as YAML text with comments (which keys differ from the default). */
enum err config_print(const struct config_table *tables, size_t table_count, struct arena *a,
                      char **text) MUST;
/* Canonical text of the pinned keys, "section.key=value\n" sorted; same text <=> same settings. */
enum err config_canonical(const struct config_table *tables, size_t table_count, struct arena *a,
                          char **text) MUST;
/* The keys in which two canonical texts differ: "model.layers: 4 here, 6 there; ..." */
enum err config_difference(const char *ours, const char *theirs, struct arena *a, char **text) MUST;
/* The reference page: Markdown, one table per section. */
enum err config_reference(const struct config_table *tables, size_t table_count, struct arena *a,
                          char **text) MUST;

#endif
