/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/config/identity.h"
#include <string.h>

/* Changed when the shard format or the reading order changes, so that old and new sites refuse each
 * other. */
static const char DATA_FORMAT[] = "llm.c-1";

enum err identity_text(struct settings *s, struct outer_settings *o, const struct digest *table,
                       struct arena *a, char **text)
{
    struct config_table tables[] = {keys_inner(s), keys_outer(o)};
    char *pinned, hex[65];
    TRY(config_canonical(tables, 2, a, &pinned));
    digest_hex(table, hex);
    TRY_ALLOC(*text =
                  arena_printf(a, "%sdata.format=%s\nmodel.table=%s\n", pinned, DATA_FORMAT, hex));
    return ERR_OK;
}

static const char STEPS[] = "train.steps=";

struct digest identity_digest(const char *text)
{
    struct digest_stream d;
    digest_open(&d);
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\n");
        n += text[n] == '\n';
        if (strncmp(text, STEPS, sizeof STEPS - 1) != 0)
            digest_add(&d, text, n);
    }
    return digest_close(&d);
}

int64_t identity_steps(const char *text)
{
    return config_integer(text, "train.steps");
}

int identity_site(const struct outer_settings *o, const char *name)
{
    for (size_t i = 0; i < o->outer_sites.count; i++)
        if (strcmp(o->outer_sites.items[i], name) == 0)
            return (int)i;
    return -1;
}
