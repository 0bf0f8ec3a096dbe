/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/config/setting.h"
#include <stdio.h>
#include <string.h>
#include "inner/config/keys.h"
#include "outer/config/keys.h"

const struct config_key *setting_key(enum config_names names, const char *key)
{
    const struct config_table tables[] = {keys_inner(NULL), keys_outer(NULL)};
    return config_key_find(tables, 2, names, key);
}

const char *setting_key_text(const char *recorded, char key[SETTING_KEY_MAX])
{
    snprintf(key, SETTING_KEY_MAX, "%.*s", (int)strcspn(recorded, "="), recorded);
    return key;
}

const struct config_key *setting_key_of(const char *recorded)
{
    char key[SETTING_KEY_MAX];
    return setting_key(CONFIG_RECORDED, setting_key_text(recorded, key));
}

enum err setting_unknown(enum config_names names, const char *key, struct arena *a)
{
    struct settings s;
    struct outer_settings o;
    const struct config_table tables[] = {keys_inner(&s), keys_outer(&o)};
    return config_set(tables, 2, names, key, "", a);
}

enum err setting_record(char *out, size_t size_bytes, const char *key, const char *value)
{
    struct arena scratch = arena_make(0);
    const struct config_key *k = setting_key(CONFIG_TYPED, key);
    enum err e = k ? ERR_OK : setting_unknown(CONFIG_TYPED, key, &scratch);
    if (k)
        snprintf(out, size_bytes, "%s.%s=%s", k->section, config_key_name(k, CONFIG_RECORDED),
                 value);
    arena_free(&scratch);
    return e;
}

const char *setting_shown(const char *recorded, char out[SETTING_SHOWN_MAX])
{
    const struct config_key *k = setting_key_of(recorded);
    if (k)
        snprintf(out, SETTING_SHOWN_MAX, "%s.%s%s", k->section, k->name,
                 recorded + strcspn(recorded, "="));
    else
        snprintf(out, SETTING_SHOWN_MAX, "%s", recorded);
    return out;
}
