/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_YAML_H
#define CONFIG_YAML_H
/* The shape of a configuration file: a mapping of sections, each a mapping of keys to a scalar or a
 * list of scalars. A list of maps, KEY: [{a: 1, b: 2}, {a: 3}], is read as the lists KEY.a: [1, 3]
 * and KEY.b: [2, ""]. Values stay text; the key tables give them types. Everything else YAML can
 * say (anchors, tags, several documents, deeper nesting, tabs, a key twice) is refused with its
 * line. The one place that includes libyaml.
 */
#include "inner/config/config.h"

enum {
    CONFIG_FILE_MAX = 1 << 20, /* bytes of a file */
    CONFIG_ERRORS_MAX = 50,    /* reported at once */
    CONFIG_DEPTH_MAX = 32 /* nesting that is skipped to find more errors; beyond it reading stops */
};

struct config_entry {          /* one `key: value`, in the order of the file */
    const char *key;           /* "section.name" */
    int line;                  /* 0: from the command line */
    bool list;                 /* written as a list */
    bool map;                  /* written as a map: a list of "name=value" */
    struct config_list values; /* one item unless list */
};
struct config_entries {
    struct config_entry *items;
    size_t count, capacity;
};
struct config_errors { /* sentences, one per error, in `a` */
    struct arena *a;
    const char *path; /* of the file; NULL: command line only */
    bool plain;       /* sentences do not say where: there is one value */
    const char *lines[CONFIG_ERRORS_MAX];
    size_t count; /* all of them; only the first CONFIG_ERRORS_MAX are kept */
};

/* line 0: an error of the command line. ERR_MEMORY only. */
enum err config_error(struct config_errors *e, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4))) MUST;
/* ERR_CONFIG with all of them, one per line; ERR_OK when there are none. */
enum err config_errors_report(struct config_errors *e) MUST;
enum err config_entry_add(struct config_entries *list, struct arena *a,
                          struct config_entry entry) MUST;
/* What is wrong goes to `errors`; the return value is about memory alone. Also the fuzz target. */
enum err config_yaml(const char *text, size_t size_bytes, struct arena *a,
                     struct config_entries *entries, struct config_errors *errors) MUST;

#endif
