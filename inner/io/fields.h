/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FIELDS_H
#define FIELDS_H
/* The fields of one config.json, flat, and the settings that a family derives from them. */
#include "inner/config/json.h"
#include "inner/config/keys.h"
#include "kernels/base/args.h"

struct hf_setting {
    const char *key;   /* "model.heads" */
    const char *value; /* as in a configuration file */
    bool checked; /* false: a proposal, such as the longest sequence of a model without a position
                     table */
};
enum { HF_SETTINGS_MAX = 48 };
struct hf_config { /* text lives in the arena of the reading */
    const char *path;
    const char *type; /* "gpt2", "llama", "mistral", "bert", "albert", "modernbert" */
    /* data.objective, pairs and mlm_probability that fit an encoder's heads; NULL: the default */
    const char *objective, *pairs, *mlm_probability;
    struct hf_setting *settings;
    size_t count;
};

/* What a field is for this program. */
enum hf_use {
    HF_IGNORED, /* changes no result: dropout, token ids, generation defaults, ... */
    HF_FIXED,   /* must be `value` */
    HF_SETTING, /* is the value of `value`, a key */
    HF_SPECIAL, /* the family looks at it by name */
};
struct hf_rule {
    const char *field; /* ending in ".": all fields below it */
    enum hf_use use;
    const char *value; /* FIXED: "true", "null", "1", a word; SETTING: the key */
    const char
        *json; /* SETTING: what transformers takes where the field is missing; NULL: the field
                  must be there. FIXED, IGNORED: what an export writes; NULL: nothing */
};

struct hf_field { /* a scalar, or an empty list or map */
    const char
        *name; /* with the keys of the maps around it and places in lists: "architectures.0" */
    const struct json *value;
};
struct hf_reading {
    struct hf_config *c;
    const struct args_texts *ignored; /* fields that the user takes the blame for; NULL: none */
    struct hf_field *fields;
    size_t count;
    struct arena *a;
};

/* NULL: not there, or null. */
const struct hf_field *hf_field_find(const struct hf_reading *r, const char *name);
bool hf_field_is_number(const struct hf_field *f);
bool hf_field_is(const struct hf_field *f, const char *word);
/* Text of a scalar as it stands in a configuration; numbers with the digits that a float32 has.
 * NULL: no memory. */
const char *hf_field_text(const struct hf_field *f, struct arena *a);
bool hf_flag(const struct hf_reading *r, const char *name, bool fallback);
double hf_number(const struct hf_reading *r, const char *name, double fallback);
const char *hf_word(const struct hf_reading *r, const char *name, const char *fallback);
/* ERR_UNSUPPORTED: the field has another value than those in `known`. */
enum err hf_refuse(const struct hf_reading *r, const struct hf_field *f, const char *known) MUST;
enum err hf_add(const struct hf_reading *r, const char *key, const char *value) MUST;
/* A proposal, which hf_check does not compare. */
enum err hf_propose(const struct hf_reading *r, const char *key, const char *value) MUST;
/* One of theirs[i][0] becomes model.activation = theirs[i][1]; a NULL row ends the list. */
struct hf_activations {
    const char *field, *known, *fallback;
    const char *const (*theirs)[2];
};
enum err hf_add_activation(const struct hf_reading *r, const struct hf_activations *x) MUST;

#endif
