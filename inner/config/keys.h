#ifndef KEYS_H
#define KEYS_H
/* The settings of one datacenter. `pinned` keys must be equal at every site of a run. */
#include "inner/config/config.h"

/* X(section, name, type, default, min, max, choices, unit, pinned, help) */
#define KEYS_INNER(X)                                                                              \
    X(run, name, TEXT, "atoll", 0, 0, NULL, "", true,                                              \
      "Name of the run: letters, digits, - and _; part of every certificate's URI.")               \
    X(run, seed, INT, "1", 0, 9e15, NULL, "", true, "Seed of initialisation and data order.")      \
    X(run, dir, TEXT, "run", 0, 0, NULL, "", false,                                                \
      "Directory for checkpoints, outer state, logs. One process owns it.")                        \
    X(model, vocab, INT, "256", 2, 1e6, NULL, "tokens", true,                                      \
      "Vocabulary size; 256 for the byte vocabulary.")                                             \
    X(model, layers, INT, "4", 1, 512, NULL, "", true, "Transformer blocks.")                      \
    X(model, heads, INT, "4", 1, 512, NULL, "", true, "Attention heads; must divide model.width.") \
    X(model, kv_heads, INT, "0", 0, 512, NULL, "", true,                                           \
      "Key and value heads, each shared by a group of query heads (grouped-query attention, "      \
      "Llama); must divide model.heads. 0: as many as heads.")                                     \
    X(model, width, INT, "128", 8, 65536, NULL, "", true, "Channels of the residual stream.")      \
    X(model, mlp, INT, "0", 0, 262144, NULL, "", true,                                             \
      "Hidden width of the MLP. 0: 4 x width; with swiglu 8/3 x width, rounded up to a multiple "  \
      "of 64, which has as many parameters.")                                                      \
    X(model, context, INT, "128", 1, 131072, NULL, "tokens", true,                                 \
      "Longest sequence; rows of the position table.")                                             \
    X(model, positions, CHOICE, "learned", 0, 0, "learned|rope|none", "", true,                    \
      "learned: a position table is added to the embedding (GPT-2). rope: rotary positions of "    \
      "queries and keys (Llama). none: only causal attention orders the tokens.")                  \
    X(model, rope_theta, REAL, "10000", 1, 1e9, NULL, "", true,                                    \
      "Base of the rotary angles; Llama 3 has 500000.")                                            \
    X(model, norm, CHOICE, "layer", 0, 0, "layer|rms", "", true, "Kind of normalisation.")         \
    X(model, norm_eps, REAL, "1e-5", 1e-12, 1, NULL, "", true,                                     \
      "Added to the variance, or mean square, of a normalisation.")                                \
    X(model, activation, CHOICE, "gelu", 0, 0, "gelu|gelu_erf|swiglu", "", true,                   \
      "MLP activation. gelu: the tanh form (GPT-2). gelu_erf: the exact form. swiglu: a second "   \
      "projection of the same width is the gate (Llama).")                                         \
    X(model, causal, BOOL, "true", 0, 0, NULL, "", true, "Causal attention (GPT).")                \
    X(model, bias, BOOL, "true", 0, 0, NULL, "", true, "Biases in linear layers and LayerNorm.")   \
    X(model, tied, BOOL, "true", 0, 0, NULL, "", true,                                             \
      "true: the output head is the token embedding. false: a matrix of its own.")                 \
    X(data, train, LIST, "", 0, 0, NULL, "", false,                                                \
      "Training token shards (.bin); a * is a glob.")                                              \
    X(data, eval, LIST, "", 0, 0, NULL, "", false, "Held-out token shards.")                       \
    X(data, tokenizer, CHOICE, "bytes", 0, 0, "bytes|external", "", true,                          \
      "bytes: ids are bytes; external: shards made elsewhere (GPT-2 ids).")                        \
    X(train, steps, INT, "400", 1, 1e9, NULL, "steps", true, "Inner steps in all.")                \
    X(train, batch_tokens, INT, "4096", 1, 1e9, NULL, "tokens", true,                              \
      "Tokens of one site's inner step; a multiple of sequence x ranks x micro-batches.")          \
    X(train, sequence, INT, "128", 1, 131072, NULL, "tokens", true,                                \
      "Tokens of one training sequence; at most model.context.")                                   \
    X(train, micro_batch_tokens, INT, "0", 0, 1e9, NULL, "tokens", false,                          \
      "Tokens of one micro-batch of a rank; gradients accumulate over the micro-batches of a "     \
      "step. 0: the whole batch of the rank at once.")                                             \
    X(train, activation_checkpointing, CHOICE, "none", 0, 0, "none|block", "", false,              \
      "block: keeps only the input of each block and recomputes its activations in the backward "  \
      "pass. Same bits, at most a third more time, activations of one block instead of all.")      \
    X(train, bucket_mb, REAL, "25", 0, 65536, NULL, "MiB", false,                                  \
      "Bucket size of the gradient all-reduce, which runs while the backward pass still runs. 0: " \
      "one all-reduce after the backward pass.")                                                   \
    X(train, grad_reduce_dtype, CHOICE, "f32", 0, 0, "f32|bf16", "", true,                         \
      "Type in which the ranks of a site reduce their gradients. bf16: half the bytes inside the " \
      "site, an error of 2^-9 at each addition, 2 more bytes of memory per parameter.")            \
    X(train, zero_stage, INT, "0", 0, 1, NULL, "", false,                                          \
      "1: the ranks of a site share the optimizer's moments and its update (ZeRO-1), 8 bytes per " \
      "parameter divided by the number of ranks. 0: every rank keeps all moments.")                \
    X(train, rounding, CHOICE, "nearest", 0, 0, "nearest|stochastic", "", true,                    \
      "Rounding of the f32 parameters to the bf16 copy that the GEMMs read. stochastic: "          \
      "unbiased, by counter-based random bits. Not used with f32.")                                \
    X(train, optimizer, CHOICE, "lamb", 0, 0, "lamb|adamw", "", true, "Inner optimizer.")          \
    X(train, lr, REAL, "0.003", 0, 100, NULL, "", true, "Peak learning rate.")                     \
    X(train, lr_end, REAL, "0.1", 0, 1, NULL, "", true,                                            \
      "Final learning rate as a share of the peak.")                                               \
    X(train, warmup, INT, "40", 0, 1e9, NULL, "steps", true, "Steps of linear warm-up.")           \
    X(train, stable_steps, INT, "0", 0, 1e9, NULL, "steps", true,                                  \
      "Steps at the peak learning rate before the decay (the stable phase of WSD).")               \
    X(train, decay, CHOICE, "cosine", 0, 0, "cosine|linear|none", "", true,                        \
      "Shape of the decay to lr_end at train.steps.")                                              \
    X(train, beta1, REAL, "0.9", 0, 0.999999, NULL, "", true, "First-moment decay.")               \
    X(train, beta2, REAL, "0.95", 0, 0.9999999, NULL, "", true, "Second-moment decay.")            \
    X(train, eps, REAL, "1e-6", 0, 1, NULL, "", true, "Added to the root of the second moment.")   \
    X(train, weight_decay, REAL, "0.1", 0, 10, NULL, "", true,                                     \
      "Decoupled decay; not on biases, norms.")                                                    \
    X(train, clip, REAL, "1.0", 0, 1e6, NULL, "", true,                                            \
      "Clip of the global gradient norm; 0: none.")                                                \
    X(train, eval_every, INT, "0", 0, 1e9, NULL, "steps", false,                                   \
      "Steps between two evaluations of the eval loss; 0: only at start and end.")                 \
    X(train, eval_tokens, INT, "65536", 1, 1e9, NULL, "tokens", false,                             \
      "Tokens of one evaluation.")                                                                 \
    X(train, profile, INT, "0", 0, 1e6, NULL, "steps", false,                                      \
      "After the first steps, profiles this many steps and logs the time of each class of "        \
      "operations (ev=profile); 0: never.")                                                        \
    X(train, checkpoint_every, INT, "100", 0, 1e9, NULL, "steps", false,                           \
      "Steps between two inner checkpoints; 0: only at a stop.")                                   \
    X(train, checkpoint_keep, INT, "2", 1, 1000, NULL, "", false,                                  \
      "Inner checkpoints that are kept.")                                                          \
    X(device, kind, CHOICE, "cpu", 0, 0, "cpu|cuda", "", false, "Where the arithmetic runs.")      \
    X(device, dtype, CHOICE, "auto", 0, 0, "f32|bf16|auto", "", false,                             \
      "Type of activations and GEMMs; auto: bf16 where it is faster.")                             \
    X(device, attention, CHOICE, "auto", 0, 0, "auto|own|cudnn", "", false,                        \
      "GPU: attention kernels. auto: ours or cuDNN's, the faster of those that repeat bit for "    \
      "bit, measured before the first step and kept in the checkpoint. own: ours. cudnn: cuDNN's " \
      "fastest, whose backward pass does not repeat bit for bit. Not yet run on a GPU.")           \
    X(device, graphs, CHOICE, "off", 0, 0, "off|on|auto", "", false,                               \
      "GPU: launches forward and backward of repeated batch shapes as CUDA graphs, with the same " \
      "bits. auto: times both ways in the first 16 steps and keeps the faster. Not yet run on a "  \
      "GPU.")                                                                                      \
    X(device, threads, INT, "0", 0, 1024, NULL, "", false,                                         \
      "CPU threads of one rank; 0: all cores this rank may use.")

struct settings {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    KEYS_INNER(X)
#undef X
};
struct config_table keys_inner(struct settings *s); /* a table over *s */
/* The rules over several keys: heads divide width, ... */
void keys_check(struct config_rules *r, const struct settings *s);

#endif
