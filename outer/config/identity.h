#ifndef IDENTITY_H
#define IDENTITY_H
/* What makes two processes replicas of one run: the canonical text of all pinned settings, the
 * digest of the tensor table and the data format, one "section.key=value" per line. Its digest,
 * train.steps left out, travels in every message; the text itself in hello, so that a refusal names
 * the keys that differ. `atoll serve` and `atoll train` both call this and nothing else.
 */
#include "inner/config/keys.h"
#include "outer/config/keys.h"

/* table: table_digest(). */
enum err identity_text(struct settings *s, struct outer_settings *o, const struct digest *table,
                       struct arena *a, char **text) MUST;
/* The digest of such a text without its line of train.steps, which may grow between two starts:
 * hello compares that one by itself. */
struct digest identity_digest(const char *text);
/* train.steps of such a text; 0: it has no such line. */
int64_t identity_steps(const char *text);
/* Position of name in outer.sites; -1: not there. */
int identity_site(const struct outer_settings *o, const char *name);

#endif
