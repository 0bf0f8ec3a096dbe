/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SETTING_H
#define SETTING_H
/* One setting as a text, KEY=VALUE: by the key's recorded name (inner/config/config.h) in
 * manifests, journals and messages, by its typed name for people. Keys of both tables. */
#include "inner/config/config.h"

enum { SETTING_KEY_MAX = 96, SETTING_SHOWN_MAX = 256 };

/* NULL: there is no such key. */
const struct config_key *setting_key(enum config_names names, const char *key);
const struct config_key *setting_key_of(const char *recorded); /* of KEY=VALUE */
/* The part before the =. */
const char *setting_key_text(const char *recorded, char key[SETTING_KEY_MAX]);
/* ERR_CONFIG: there is no such key; names the nearest one, or the new name of an old one. */
enum err setting_unknown(enum config_names names, const char *key, struct arena *a) MUST;

/* The recorded text of what a person gives. ERR_CONFIG as above. */
enum err setting_record(char *out, size_t size_bytes, const char *key, const char *value) MUST;
/* A recorded text as people know it; returns out. */
const char *setting_shown(const char *recorded, char out[SETTING_SHOWN_MAX]);

#endif
