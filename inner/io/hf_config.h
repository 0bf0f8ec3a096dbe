/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HF_CONFIG_H
#define HF_CONFIG_H
/* The config.json of a Hugging Face model, read by allow-list: every field is either the value of
 * one of our settings, or must have the value that this program computes with, or does not change
 * the arithmetic. A field that is in none of these lists is refused by name unless its value is
 * null, false, 0 or empty. So a model whose function differs (another activation, scaled rope,
 * sliding windows, ...) is refused instead of loaded.
 */
#include "inner/io/family.h"

/* The config.json at this path. ERR_UNSUPPORTED names the field whose value this program cannot
 * compute with, ERR_INPUT a file that is not what Hugging Face writes. */
enum err hf_read(struct hf_config *c, const char *path, struct arena *a) MUST;
/* The same, but unknown fields with these names are passed over, with a warning. ERR_CONFIG: a name
 * is of no field, or of one that changes what the model computes. NULL: none. */
enum err hf_read_ignoring(struct hf_config *c, const char *path, const struct args_texts *ignored,
                          struct arena *a) MUST;
/* ERR_MISMATCH lists every setting that differs from the file's. */
enum err hf_check(const struct hf_config *c, const struct settings *s, struct arena *a) MUST;
extern const struct hf_rule hf_common[]; /* fields of every family */
extern const size_t hf_common_count;
/* The config.json of a model with these settings, by the same tables. */
struct hf_export {
    const struct settings *s;
    const struct family *family;
    const char *dtype;  /* of the tensors: "float32" */
    const char *labels; /* the fields id2label and label2id; empty without classes */
};
enum err hf_write(const struct hf_export *x, struct arena *a, char **text) MUST;
/* A configuration file with the sections model and data. */
enum err hf_yaml(const struct hf_config *c, struct arena *a, char **text) MUST;

#endif
