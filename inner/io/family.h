/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAMILY_H
#define FAMILY_H
/* One family of Hugging Face's models: the names of its tensors, the fields of its config.json and
 * the settings of the one transformer that they mean. A family is a file family_NAME.c and a row of
 * FAMILIES.
 */
#include "inner/io/fields.h"
#include "inner/model/table.h"

/* Which rows of our tensor: theirs may have for each projection what ours has below each other. */
enum family_part { WHOLE, TRANSPOSED, QUERY, KEY, VALUE, GATE, UP };
struct family_name {
    const char *ours, *theirs;
    enum family_part part;
};
struct family_names {
    const struct family_name *names;
    size_t count;
};
#define FAMILY_COUNT(x) (sizeof(x) / sizeof *(x))
#define FAMILY_NAMES(list)                                                                         \
    {                                                                                              \
        list, FAMILY_COUNT(list)                                                                   \
    }

/* Heads of an architecture. */
enum { FAMILY_TOKENS = 1, FAMILY_POOLER = 2, FAMILY_PAIR = 4, FAMILY_CLASSES = 8 };
struct family_architecture {
    const char *name;
    unsigned heads;
};

struct family {
    const char *type, *title;                         /* model_type; in messages, NULL: in none */
    const struct family_architecture *architectures;  /* NULL name: the end */
    const char *prefix, *layer_before, *layer_behind; /* PREFIX BEFORE N BEHIND NAME */
    struct family_names body, layer; /* with the prefix, which a file may leave out */
    struct family_names heads;       /* without it */
    const char *const (*aliases)[2]; /* older name, name; NULL at the end. NULL: none */
    const char *const *constants;    /* ends of names of tensors that are no parameters */
    const struct hf_rule *rules;
    size_t rule_count;
    const char *pairs, *mlm_probability; /* of its masked training, data.pairs and
                                      data.mlm_probability; NULL: the defaults */
    bool encoder;                        /* its heads may be missing in a file */
    bool zero_biases; /* it has biases and token types, always: zeros stand for missing ones
                       */
    bool tied;        /* where tie_word_embeddings is missing */
    enum err (*read)(const struct hf_reading *r, unsigned heads) MUST;
    const char *(*lacks)(const struct settings *s); /* why these settings are not of this family */
    /* The lines of config.json whose fields `rules` have as HF_SPECIAL. NULL: no memory. */
    char *(*specials)(const struct settings *s, struct arena *a);
};

#define FAMILIES(X) X(gpt2) X(llama) X(mistral) X(bert) X(albert) X(modernbert)
#define X(name)     extern const struct family family_##name;
FAMILIES(X)
#undef X
extern const struct family *const families[]; /* NULL at the end */
const struct family *family_by_type(const char *type);
/* ERR_UNSUPPORTED names for each family what the settings have that it has not. */
enum err family_of(const struct settings *s, const struct family **f) MUST;
/* The architecture of these settings. */
const char *family_architecture(const struct family *f, const struct settings *s);
/* Settings that GPT-2 and Llama have in common: what is missing, or NULL. */
const char *family_lacks_decoder(const struct settings *s);
/* The same for encoders. */
const char *family_lacks_encoder(const struct settings *s);
/* The settings that every encoder has, from its heads. */
enum err family_read_encoder(const struct hf_reading *r, unsigned heads) MUST;
/* BERT's and ALBERT's blocks: norms after each addition, learned positions, biases. */
enum err family_read_post_norm(const struct hf_reading *r, unsigned heads) MUST;
const char *family_lacks_post_norm(const struct settings *s);
char *family_post_norm_specials(const struct settings *s, struct arena *a);
extern const char *const family_constants[]; /* ends of names, in both: buffers, no parameters */

/* A field that names a GELU: what it is in model.activation, and back. */
enum err family_read_gelu(const struct hf_reading *r, const char *field, const char *known,
                          const char *fallback) MUST;
const char *family_gelu(const struct settings *s);

#endif
