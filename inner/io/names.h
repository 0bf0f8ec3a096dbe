#ifndef NAMES_H
#define NAMES_H
/* Our slab as a Hugging Face GPT-2 or Llama (model.safetensors and config.json that transformers
 * loads), and back. GPT-2: their Conv1D stores (in, out): four weights of a layer are transposed,
 * the square one too; a model without biases gets zeros, which is the same function. Llama: q, k,
 * v, and gate, up are tensors of their own there. The padding of the vocabulary is cut; a tied head
 * is not written.
 */
#include "inner/model/table.h"

/* ERR_UNSUPPORTED: the model is neither GPT-2 nor Llama, and which keys say so. */
enum err names_supported(const struct settings *s) MUST;
/* Writes DIR/model.safetensors and DIR/config.json, both durable; bf16: half the size, rounded to
 * nearest even. */
enum err names_export(const struct settings *s, const struct table *t, const float *slab, bool bf16,
                      const char *dir) MUST;
/* Fills the host slab from a model.safetensors (F32 or BF16; with or without the prefix
 * "transformer." or "model."). ERR_MISMATCH names the tensor whose shape differs, or that this
 * model has no place for; a bias that this model lacks must be zero, and the head of a tied model
 * the embedding. Where a config.json lies beside it, its numbers of heads, eps and rope's theta
 * must be the settings', since no shape shows them; rope that it scales is ERR_UNSUPPORTED. */
enum err names_import(const struct settings *s, const struct table *t, float *slab,
                      const char *path) MUST;

#endif
