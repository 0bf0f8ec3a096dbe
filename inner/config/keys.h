/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEYS_H
#define KEYS_H
/* The settings of one datacenter. `pinned` keys must be equal at every site of a run. */
#include "inner/config/config.h"
#include "kernels/scalar/opt.h"

/* Above the smallest number that number.h takes. */
#define PRIVACY_DELTA_MIN 1e-37

/* Choices: X(ENUMERATOR, name), the name as the configuration has it. */
#define MODEL_POSITIONS(X)                                                                         \
    X(MODEL_POSITIONS_LEARNED, learned)                                                            \
    X(MODEL_POSITIONS_ROPE, rope) X(MODEL_POSITIONS_NONE, none)
#define MODEL_NORM(X)       X(MODEL_NORM_LAYER, layer) X(MODEL_NORM_RMS, rms)
#define MODEL_NORM_PLACE(X) X(MODEL_NORM_PRE, pre) X(MODEL_NORM_POST, post) X(MODEL_NORM_NONE, none)
#define MODEL_ACTIVATION(X)                                                                        \
    X(MODEL_ACTIVATION_GELU, gelu)                                                                 \
    X(MODEL_ACTIVATION_GELU_ERF, gelu_erf)                                                         \
    X(MODEL_ACTIVATION_SWIGLU, swiglu) X(MODEL_ACTIVATION_GEGLU, geglu)
#define MODEL_POOLING(X)  X(MODEL_POOLING_FIRST, first) X(MODEL_POOLING_MEAN, mean)
#define MODEL_HEAD(X)     X(MODEL_HEAD_PLAIN, plain) X(MODEL_HEAD_MLM, mlm)
#define DATA_TOKENIZER(X) X(DATA_TOKENIZER_BYTES, bytes) X(DATA_TOKENIZER_EXTERNAL, external)
#define DATA_OBJECTIVE(X)                                                                          \
    X(DATA_OBJECTIVE_CAUSAL, causal)                                                               \
    X(DATA_OBJECTIVE_MLM, mlm) X(DATA_OBJECTIVE_LABELS, labels)
#define DATA_MASK(X)               X(DATA_MASK_TOKEN, token) X(DATA_MASK_WORD, word) X(DATA_MASK_NGRAM, ngram)
#define DATA_SHARDS(X)             X(DATA_SHARDS_SHARED, shared) X(DATA_SHARDS_OWN, own)
#define DATA_PAIRS(X)              X(DATA_PAIRS_NONE, none) X(DATA_PAIRS_NSP, nsp) X(DATA_PAIRS_SOP, sop)
#define TRAIN_CHECKPOINTING(X)     X(TRAIN_CHECKPOINTING_NONE, none) X(TRAIN_CHECKPOINTING_BLOCK, block)
#define TRAIN_GRAD_REDUCE_DTYPE(X) X(TRAIN_GRAD_REDUCE_F32, f32) X(TRAIN_GRAD_REDUCE_BF16, bf16)
#define TRAIN_CLIP_PER(X)          X(TRAIN_CLIP_PER_MODEL, model) X(TRAIN_CLIP_PER_BUCKET, bucket)
#define TRAIN_COMPRESS(X)                                                                          \
    X(TRAIN_COMPRESS_NONE, none)                                                                   \
    X(TRAIN_COMPRESS_ONEBIT, onebit)                                                               \
    X(TRAIN_COMPRESS_ZEROONE, zeroone) X(TRAIN_COMPRESS_SPARSE, sparse)
#define TRAIN_MASTER_WEIGHTS(X)                                                                    \
    X(TRAIN_MASTER_F32, f32)                                                                       \
    X(TRAIN_MASTER_FP16, fp16)                                                                     \
    X(TRAIN_MASTER_FP16_STOCHASTIC, fp16_stochastic)                                               \
    X(TRAIN_MASTER_FP16_MOMENT, fp16_stochastic_moment)
#define TRAIN_PIPELINE(X) X(TRAIN_PIPELINE_SEQUENTIAL, sequential) X(TRAIN_PIPELINE_STALE, stale)
#define TRAIN_ROUNDING(X)                                                                          \
    X(TRAIN_ROUNDING_NEAREST, nearest) X(TRAIN_ROUNDING_STOCHASTIC, stochastic)
#define TRAIN_INIT(X)      X(TRAIN_INIT_NORMAL, normal) X(TRAIN_INIT_TRUNCATED, truncated)
#define TRAIN_OPTIMIZER(X) OPTIM_LIST(X)
#define TRAIN_TRUST_PER(X)                                                                         \
    X(TRAIN_TRUST_PER_TENSOR, tensor) X(TRAIN_TRUST_PER_PROJECTION, projection)
#define TRAIN_TRUST_LAYERS(X) X(TRAIN_TRUST_LAYERS_ALL, all) X(TRAIN_TRUST_LAYERS_HIDDEN, hidden)
#define TRAIN_MUON_SCALE(X)   X(TRAIN_MUON_SCALE_RMS, rms) X(TRAIN_MUON_SCALE_SPECTRAL, spectral)
#define TRAIN_MUON_COEFFICIENTS(X)                                                                 \
    X(TRAIN_MUON_COEFFICIENTS_SAME, same)                                                          \
    X(TRAIN_MUON_COEFFICIENTS_PER_ITERATION, per_iteration)
#define TRAIN_LR_SCHEDULE(X)                                                                       \
    X(TRAIN_LR_SCHEDULE_COSINE, cosine)                                                            \
    X(TRAIN_LR_SCHEDULE_LINEAR, linear)                                                            \
    X(TRAIN_LR_SCHEDULE_NONE, none) X(TRAIN_LR_SCHEDULE_EXPONENTIAL, exponential)
#define TRAIN_WARMUP_SHAPE(X) X(TRAIN_WARMUP_LINEAR, linear) X(TRAIN_WARMUP_QUADRATIC, quadratic)
#define DEVICE_KIND(X)        X(DEVICE_CPU, cpu) X(DEVICE_CUDA, cuda)
#define DEVICE_DTYPE(X)                                                                            \
    X(DEVICE_DTYPE_F32, f32) X(DEVICE_DTYPE_BF16, bf16) X(DEVICE_DTYPE_AUTO, auto)
#define DEVICE_MATMUL(X)                                                                           \
    X(DEVICE_MATMUL_MODEL, model)                                                                  \
    X(DEVICE_MATMUL_FP8, fp8) X(DEVICE_MATMUL_FP8_HYBRID, fp8_hybrid)
#define DEVICE_ATTENTION(X)                                                                        \
    X(DEVICE_ATTENTION_AUTO, auto) X(DEVICE_ATTENTION_OWN, own) X(DEVICE_ATTENTION_CUDNN, cudnn)
#define DEVICE_GRAPHS(X)                                                                           \
    X(DEVICE_GRAPHS_OFF, off) X(DEVICE_GRAPHS_ON, on) X(DEVICE_GRAPHS_AUTO, auto)
#define PRIVACY_UNIT(X)                                                                            \
    X(PRIVACY_UNIT_NONE, none)                                                                     \
    X(PRIVACY_UNIT_SEQUENCE, sequence)                                                             \
    X(PRIVACY_UNIT_DOCUMENT, document) X(PRIVACY_UNIT_OWNER, owner)
#define PRIVACY_SAMPLING(X)                                                                        \
    X(PRIVACY_SAMPLING_POISSON, poisson)                                                           \
    X(PRIVACY_SAMPLING_BALLS, balls)                                                               \
    X(PRIVACY_SAMPLING_CYCLIC, cyclic) X(PRIVACY_SAMPLING_FIXED, fixed)
#define PRIVACY_MECHANISM(X)                                                                       \
    X(PRIVACY_MECHANISM_INDEPENDENT, independent) X(PRIVACY_MECHANISM_BANDED, banded)
#define PRIVACY_CLIPPING(X)                                                                        \
    X(PRIVACY_CLIPPING_GHOST, ghost)                                                               \
    X(PRIVACY_CLIPPING_PER_EXAMPLE, per_example, .recorded = "slow")
#define CHOICES_INNER(X)                                                                           \
    X(model_positions, MODEL_POSITIONS)                                                            \
    X(model_norm, MODEL_NORM)                                                                      \
    X(model_norm_place, MODEL_NORM_PLACE)                                                          \
    X(model_pooling, MODEL_POOLING)                                                                \
    X(model_head, MODEL_HEAD)                                                                      \
    X(model_activation, MODEL_ACTIVATION)                                                          \
    X(data_tokenizer, DATA_TOKENIZER)                                                              \
    X(data_objective, DATA_OBJECTIVE)                                                              \
    X(data_mask, DATA_MASK)                                                                        \
    X(data_shards, DATA_SHARDS)                                                                    \
    X(data_pairs, DATA_PAIRS)                                                                      \
    X(train_checkpointing, TRAIN_CHECKPOINTING)                                                    \
    X(train_grad_reduce_dtype, TRAIN_GRAD_REDUCE_DTYPE)                                            \
    X(train_clip_per, TRAIN_CLIP_PER)                                                              \
    X(train_compress, TRAIN_COMPRESS)                                                              \
    X(train_pipeline, TRAIN_PIPELINE)                                                              \
    X(train_rounding, TRAIN_ROUNDING)                                                              \
    X(train_master_weights, TRAIN_MASTER_WEIGHTS)                                                  \
    X(train_init, TRAIN_INIT)                                                                      \
    X(optim_kind, TRAIN_OPTIMIZER)                                                                 \
    X(train_trust_per, TRAIN_TRUST_PER)                                                            \
    X(train_trust_layers, TRAIN_TRUST_LAYERS)                                                      \
    X(train_muon_scale, TRAIN_MUON_SCALE)                                                          \
    X(train_muon_coefficients, TRAIN_MUON_COEFFICIENTS)                                            \
    X(train_lr_schedule, TRAIN_LR_SCHEDULE)                                                        \
    X(train_warmup_shape, TRAIN_WARMUP_SHAPE)                                                      \
    X(device_kind, DEVICE_KIND)                                                                    \
    X(device_dtype, DEVICE_DTYPE)                                                                  \
    X(device_matmul_precision, DEVICE_MATMUL)                                                      \
    X(device_attention, DEVICE_ATTENTION)                                                          \
    X(device_graphs, DEVICE_GRAPHS)                                                                \
    X(privacy_unit, PRIVACY_UNIT)                                                                  \
    X(privacy_sampling, PRIVACY_SAMPLING)                                                          \
    X(privacy_mechanism, PRIVACY_MECHANISM)                                                        \
    X(privacy_clipping, PRIVACY_CLIPPING)
CHOICES_INNER(CONFIG_ENUM)

/* Methods of compressed sums (inner/optim/compress.h): X(name, COMPRESS, OPTIMIZER): compress_name
 * is train.compress = COMPRESS with train.optimizer = OPTIMIZER; other pairs are refused.
 * train.compress = none goes with every optimizer and has no row. */
#define COMPRESS_LIST(X)                                                                           \
    X(onebit_adam, TRAIN_COMPRESS_ONEBIT, OPTIM_ADAMW)                                             \
    X(onebit_lamb, TRAIN_COMPRESS_ONEBIT, OPTIM_LAMB)                                              \
    X(zeroone, TRAIN_COMPRESS_ZEROONE, OPTIM_ADAMW)
/* Those that go with every optimizer: X(name, COMPRESS). */
#define COMPRESS_ANY_LIST(X) X(sparse, TRAIN_COMPRESS_SPARSE)

/* Training objectives (inner/data/objective.h): X(NAME, name, causal). causal: the targets are in
 * the text that the model sees, so that without causal attention a position sees its own target. */
#define OBJECTIVE_LIST(X) X(CAUSAL, causal, true) X(MLM, mlm, false) X(LABELS, labels, false)

/* Rows: config.h */
#define KEYS_INNER(X)                                                                              \
    X(run, name, TEXT, .level = CONFIG_BASIC, .example = "demo", .fallback = "atoll",              \
      .pinned = true,                                                                              \
      .help = "Name of the run: letters, digits, - and _; part of every certificate's URI.")       \
    X(run, seed, INT, .level = CONFIG_BASIC, .fallback = "1", .min = 0, .max = 9e15,               \
      .pinned = true, .help = "Seed of initialisation and data order.")                            \
    X(run, dir, TEXT, .level = CONFIG_BASIC, .example = "run-a", .fallback = "run",                \
      .help = "Directory for checkpoints, outer state, logs. One process owns it.")                \
    X(run, tensorboard, TEXT, .example = "true", .fallback = "",                                   \
      .help = "true: event files for TensorBoard go to run.dir/tensorboard; or a directory. "      \
              "Empty: none.")                                                                      \
    X(run, after_checkpoint, TEXT, .example = "sh copy.sh", .fallback = "",                        \
      .help = "Command of a site (sh -c), run while training continues, once a checkpoint is "     \
              "durable, "                                                                          \
              "such as a copy to an object store; docs/operations.md has its environment and "     \
              "recipes. Empty: none.")                                                             \
    X(run, after_checkpoint_timeout_s, INT, .fallback = "3600", .min = 1, .max = 1e6, .unit = "s", \
      .help = "Longest time of run.after_checkpoint, then it is ended and tried again; also how "  \
              "long the end of the run waits for it.")                                             \
    X(run, init_from, TEXT, .example = "masked", .recorded = "from", .fallback = "",               \
      .help = "Directory of a finished run (or its inner/) whose parameters, and at a site whose " \
              "moments, this run starts from instead of run.seed. All sites and the aggregator "   \
              "must start from equal parameters. A file that ends in .safetensors: values of a "   \
              "trainer (docs/python.md 5).")                                                       \
    X(model, vocab_size, INT, .group = "Size", .level = CONFIG_BASIC, .recorded = "vocab",         \
      .fallback = "256", .min = 2, .max = 1e6, .unit = "tokens", .pinned = true,                   \
      .help = "Vocabulary size; 256 for the byte vocabulary.")                                     \
    X(model, layers, INT, .level = CONFIG_BASIC, .fallback = "4", .min = 1, .max = 512,            \
      .pinned = true, .help = "Transformer blocks.")                                               \
    X(model, heads, INT, .level = CONFIG_BASIC, .fallback = "4", .min = 1, .max = 512,             \
      .pinned = true, .help = "Attention heads; must divide model.d_model.")                       \
    X(model, kv_heads, INT, .fallback = "0", .min = 0, .max = 512, .pinned = true,                 \
      .help = "Key and value heads, each shared by a group of query heads (grouped-query "         \
              "attention, Llama); must divide model.heads. 0: as many as heads.")                  \
    X(model, d_model, INT, .level = CONFIG_BASIC, .recorded = "width", .fallback = "128",          \
      .min = 8, .max = 65536, .pinned = true, .help = "Channels of the residual stream.")          \
    X(model, d_ff, INT, .recorded = "mlp", .fallback = "0", .min = 0, .max = 262144,               \
      .pinned = true,                                                                              \
      .help = "Hidden width of the MLP. 0: 4 x width; with swiglu 8/3 x width, rounded up to a "   \
              "multiple of 64, which has as many parameters.")                                     \
    X(model, max_seq_len, INT, .level = CONFIG_BASIC, .recorded = "context", .fallback = "128",    \
      .min = 1, .max = 131072, .unit = "tokens", .pinned = true,                                   \
      .help = "Longest sequence; rows of the position table.")                                     \
    X(model, positions, CHOICE(model_positions), .group = "Positions", .fallback = "learned",      \
      .pinned = true,                                                                              \
      .help =                                                                                      \
          "learned: a position table is added to the embedding (GPT-2). rope: rotary positions "   \
          "of queries and keys (Llama). none: only causal attention orders the tokens.")           \
    X(model, rope_theta, REAL, .fallback = "10000", .min = 1, .max = 1e9, .pinned = true,          \
      .help = "Base of the rotary angles; Llama 3 has 500000.")                                    \
    X(model, rope_theta_local, REAL, .fallback = "10000", .min = 1, .max = 1e9, .pinned = true,    \
      .help = "Base of the rotary angles of layers with a window (model.sliding_window).")         \
    X(model, rope_factor, REAL, .level = CONFIG_EXPERT, .fallback = "1", .min = 1, .max = 1e6,     \
      .pinned = true, .later = true,                                                               \
      .help = "Rotary angles as Llama 3.1 scales them: those that turn less than rope_low times "  \
              "in rope_original tokens are divided by this, those that turn more than rope_high "  \
              "times stay, and between them the two are mixed. 1: none are scaled.")               \
    X(model, rope_low, REAL, .level = CONFIG_EXPERT, .fallback = "1", .min = 1e-3, .max = 1e6,     \
      .unit = "turns", .pinned = true, .later = true,                                              \
      .help = "See rope_factor (low_freq_factor).")                                                \
    X(model, rope_high, REAL, .level = CONFIG_EXPERT, .fallback = "4", .min = 1e-3, .max = 1e6,    \
      .unit = "turns", .pinned = true, .later = true,                                              \
      .help = "See rope_factor (high_freq_factor).")                                               \
    X(model, rope_original, INT, .level = CONFIG_EXPERT, .fallback = "8192", .min = 1, .max = 1e7, \
      .unit = "tokens", .pinned = true, .later = true,                                             \
      .help = "See rope_factor (original_max_position_embeddings).")                               \
    X(model, norm, CHOICE(model_norm), .group = "Norms and activation", .fallback = "layer",       \
      .pinned = true, .help = "Kind of normalisation.")                                            \
    X(model, norm_place, CHOICE(model_norm_place), .fallback = "pre", .pinned = true,              \
      .help = "Place of the two norms of a block. pre: before attention and MLP, and one "         \
              "more after the last block (GPT, Llama, ModernBERT). post: after each addition "     \
              "to the residual stream (BERT, ALBERT). none: no norms in the blocks.")              \
    X(model, embed_norm, BOOL, .fallback = "false", .pinned = true,                                \
      .help = "A norm after the embeddings (BERT). With norm_place pre the first block then has "  \
              "no norm before its attention (ModernBERT).")                                        \
    X(model, norm_eps, REAL, .level = CONFIG_EXPERT, .fallback = "1e-5", .min = 1e-12, .max = 1,   \
      .pinned = true, .help = "Added to the variance, or mean square, of a normalisation.")        \
    X(model, activation, CHOICE(model_activation), .fallback = "gelu", .pinned = true,             \
      .help = "MLP activation. gelu: the tanh form (GPT-2). gelu_erf: the exact form. swiglu: a "  \
              "second projection of the same width is the gate (Llama). geglu: the same with the " \
              "exact GELU (ModernBERT).")                                                          \
    X(model, causal, BOOL, .group = "Form of the model", .fallback = "true", .pinned = true,       \
      .help =                                                                                      \
          "Causal attention (GPT). false with data.objective mlm or labels, whose targets the "    \
          "model does not see.")                                                                   \
    X(model, bias, BOOL, .fallback = "true", .pinned = true,                                       \
      .help = "Biases in linear layers and LayerNorm.")                                            \
    X(model, tie_embeddings, BOOL, .recorded = "tied", .fallback = "true", .pinned = true,         \
      .help = "true: the output head is the token embedding. false: a matrix of its own.")         \
    X(model, token_types, INT, .recorded = "types", .fallback = "0", .min = 0, .max = 8,           \
      .pinned = true,                                                                              \
      .help = "Token types, each with an embedding that is added (BERT has 2). 0: none.")          \
    X(model, embedding_size, INT, .recorded = "embed", .fallback = "0", .min = 0, .max = 65536,    \
      .pinned = true,                                                                              \
      .help = "Width of the embeddings; a matrix brings them to model.d_model (ALBERT has 128). "  \
              "0: model.d_model, without that matrix.")                                            \
    X(model, share_layers, BOOL, .recorded = "shared", .fallback = "false", .pinned = true,        \
      .help = "One block's parameters are applied model.layers times (ALBERT).")                   \
    X(model, head, CHOICE(model_head), .group = "Heads", .fallback = "plain", .pinned = true,      \
      .help = "Head of the tokens. plain: one matrix (GPT). mlm: dense layer, activation, norm, "  \
              "matrix and bias, computed at the positions that have a target (BERT).")             \
    X(model, pooler, BOOL, .fallback = "false", .pinned = true,                                    \
      .help = "A dense layer with tanh on the first token of each sequence, and on it a head of "  \
              "two classes for pairs of segments, or the heads of model.classes (BERT).")          \
    X(model, pooler_norm, BOOL, .level = CONFIG_EXPERT, .fallback = "false", .pinned = true,       \
      .help = "The pooler is a dense layer, model.activation without its gate and a norm "         \
              "(ModernBERT), instead of a dense layer and tanh.")                                  \
    X(model, pooling, CHOICE(model_pooling), .fallback = "first", .pinned = true,                  \
      .help =                                                                                      \
          "What the pooler reads of a sequence. first: its first token (BERT). mean: the mean "    \
          "of all of its tokens.")                                                                 \
    X(model, classes, LIST, .example = "[2]", .fallback = "", .pinned = true,                      \
      .help = "Number of classes of each task, one head for each; needs model.pooler. Empty: the " \
              "pooler has the head for pairs.")                                                    \
    X(model, classifier_heads, INT, .recorded = "heads_n", .fallback = "1", .min = 1, .max = 16,   \
      .pinned = true,                                                                              \
      .help = "Classifiers of the one task of model.classes, pairwise orthogonal (multiverse "     \
              "learning); the mean of their probabilities is the prediction. 1: a plain head.")    \
    X(model, sliding_window, INT, .group = "Local attention", .recorded = "window",                \
      .fallback = "0", .min = 0, .max = 131072, .unit = "tokens", .pinned = true,                  \
      .help = "Local attention: a token sees those at most half the window away (ModernBERT has "  \
              "128). 0: the whole sequence.")                                                      \
    X(model, global_attn_every, INT, .recorded = "global_every", .fallback = "0", .min = 0,        \
      .max = 512, .pinned = true,                                                                  \
      .help = "With a window: layers 0, n, 2n, .. also see the whole sequence "                    \
              "(ModernBERT has 3). 0: none of them does.")                                         \
    X(model, tensors, TEXT, .group = "Models of a trainer", .level = CONFIG_EXPERT,                \
      .example = "tensors.json", .fallback = "", .later = true,                                    \
      .help =                                                                                      \
          "A JSON file with the tensors of a model that Atoll does not have (docs/library.md "     \
          "3); all sites are then programs with libatoll, and no other key of model.* counts. "    \
          "Empty: the model of these keys.")                                                       \
    X(data, train, LIST, .group = "Text", .level = CONFIG_BASIC,                                   \
      .example = "[data/train-0-*.bin]", .fallback = "", .field = "train.glob",                    \
      .help = "Training token shards (.bin); a * is a glob. NAME=PATH: a task of its own, with "   \
              "data.objective = labels.")                                                          \
    X(data, weights, LIST, .example = "[0.7, 0.3]", .fallback = "", .field = "train.weight",       \
      .help =                                                                                      \
          "Mixture: the share of the tokens that each item of data.train gets, as any "            \
          "positive numbers; data.train: [{glob: .., weight: ..}, ..] sets both. Each item is "    \
          "then a source with an order and epochs of its own. Other weights at a restart hold "    \
          "from its step on; atoll operator set data.weights 0.7,0.3 amends those of all sites "   \
          "in "                                                                                    \
          "mid-run. Empty: all files are one text.")                                               \
    X(data, anneal_weights, LIST, .example = "[0.2, 0.8]", .fallback = "",                         \
      .field = "train.anneal_weight",                                                              \
      .help =                                                                                      \
          "Mixture: the weights from data.anneal_from on, such as more of the best text at the "   \
          "end; 0 ends a source.")                                                                 \
    X(data, anneal_from, INT, .fallback = "0", .min = 0, .max = 1e9, .unit = "steps",              \
      .help = "Mixture: step from which data.anneal_weights hold.")                                \
    X(data, eval, LIST, .level = CONFIG_BASIC, .example = "[data/eval-*.bin]", .fallback = "",     \
      .help =                                                                                      \
          "Held-out token shards. NAME=PATH: a set with a name, which is evaluated by itself.")    \
    X(data, fetch, TEXT, .group = "Shards",                                                        \
      .example = "aws s3 cp s3://bucket/$ATOLL_FILE $ATOLL_TARGET", .fallback = "",                \
      .help = "Command (sh -c) that brings a file that data.train or data.eval names and that is " \
              "not there, to the path $ATOLL_TARGET; docs/data.md. Empty: none.")                  \
    X(data, fetch_timeout_s, INT, .level = CONFIG_EXPERT, .fallback = "3600", .min = 1,            \
      .max = 1e6, .unit = "s",                                                                     \
      .help = "Longest time of data.fetch for one file, then it is ended and tried again.")        \
    X(data, shards, CHOICE(data_shards), .level = CONFIG_EXPERT, .fallback = "shared",             \
      .pinned = true,                                                                              \
      .help = "What a rank opens of data.train. shared: all files; which examples make up a step " \
              "does not depend on the number of ranks. own: of R ranks, rank r opens files r, "    \
              "r + R, r + 2 R .. of the list alone, as from a disk of its own, and draws from "    \
              "them; a run continues with the same number of ranks only.")                         \
    X(data, objective, CHOICE(data_objective), .group = "Objective", .fallback = "causal",         \
      .pinned = true,                                                                              \
      .help =                                                                                      \
          "causal: the next token (GPT). mlm: tokens that are masked (BERT). labels: the class "   \
          "of a labelled text (fine-tuning).")                                                     \
    X(data, mask, CHOICE(data_mask), .fallback = "token", .pinned = true,                          \
      .help =                                                                                      \
          "What mlm masks. token: single tokens. word: whole words. ngram: one to three whole "    \
          "words in a row (ALBERT).")                                                              \
    X(data, mlm_probability, REAL, .recorded = "mask_rate", .fallback = "0.15", .min = 0.001,      \
      .max = 0.9, .pinned = true,                                                                  \
      .help = "Share of the tokens that mlm masks; BERT has 0.15, ModernBERT 0.3.")                \
    X(data, pairs, CHOICE(data_pairs), .fallback = "none", .pinned = true,                         \
      .help = "Second task of mlm, on pairs of segments. nsp: does the second follow, or is it "   \
              "another document's (BERT)? sop: are they in order (ALBERT)?")                       \
    X(data, short_seq_prob, REAL, .recorded = "short", .fallback = "0.1", .min = 0, .max = 1,      \
      .pinned = true,                                                                              \
      .help = "Share of the examples of mlm that are shorter than train.seq_len on purpose.")      \
    X(data, classes, LIST, .example = "[no, yes]", .fallback = "", .pinned = true,                 \
      .help = "Names of the classes of labels in order, as data.json has them; TASK=CLASS where "  \
              "data.train names tasks. Several sites must set it.")                                \
    X(data, tokenizer_sha256, TEXT, .group = "Tokenizer", .example = "61af..", .fallback = "",     \
      .pinned = true,                                                                              \
      .help = "SHA-256 of the tokenizer's file, as data.json has it: shards of another tokenizer " \
              "are refused. Several sites must set it.")                                           \
    X(data, tokenizer, CHOICE(data_tokenizer), .level = CONFIG_BASIC, .fallback = "bytes",         \
      .pinned = true,                                                                              \
      .help = "bytes: ids are bytes; external: ids of a tokenizer, by atoll data --tokenizer or "  \
              "elsewhere.")                                                                        \
    X(train, steps, INT, .group = "Length and batch", .level = CONFIG_BASIC, .fallback = "400",    \
      .min = 1, .max = 1e9, .unit = "steps", .pinned = true,                                       \
      .help = "Inner steps in all. May grow between two starts, with the same value at all "       \
              "processes; the learning rate follows the new total.")                               \
    X(train, batch_tokens, INT, .level = CONFIG_BASIC, .fallback = "4096", .min = 1, .max = 1e9,   \
      .unit = "tokens", .pinned = true,                                                            \
      .help = "Tokens of one site's inner step; a multiple of sequence x ranks x micro-batches.")  \
    X(train, seq_len, INT, .level = CONFIG_BASIC, .recorded = "sequence", .fallback = "128",       \
      .min = 1, .max = 131072, .unit = "tokens", .pinned = true,                                   \
      .help = "Tokens of one training sequence; at most model.max_seq_len.")                       \
    X(train, micro_batch_tokens, INT, .level = CONFIG_BASIC, .formerly = "micro_tokens",           \
      .fallback = "0", .min = 0, .max = 1e9, .unit = "tokens",                                     \
      .help = "Tokens of one micro-batch of a rank; gradients accumulate over the micro-batches "  \
              "of a step. 0: the whole batch of the rank at once.")                                \
    X(train, activation_checkpointing, CHOICE(train_checkpointing), .group = "Memory",             \
      .formerly = "recompute", .fallback = "none",                                                 \
      .help = "block: keeps only the input of each block and recomputes its activations in the "   \
              "backward pass. Same bits, at most a third more time, activations of one block "     \
              "instead of all.")                                                                   \
    X(train, bucket_mb, REAL, .level = CONFIG_EXPERT, .fallback = "25", .min = 0, .max = 65536,    \
      .unit = "MiB",                                                                               \
      .help = "Bucket size of the gradient all-reduce, which runs while the backward pass still "  \
              "runs. 0: one all-reduce after the backward pass.")                                  \
    X(train, grad_reduce_dtype, CHOICE(train_grad_reduce_dtype), .group = "Sums inside a site",    \
      .formerly = "sums", .fallback = "f32", .pinned = true,                                       \
      .help =                                                                                      \
          "Type in which the ranks of a site reduce their gradients. bf16: half the bytes inside " \
          "the site, an error of 2^-9 at each addition, 2 more bytes of memory per parameter.")    \
    X(train, compress, CHOICE(train_compress), .level = CONFIG_EXPERT, .fallback = "none",         \
      .pinned = true,                                                                              \
      .help =                                                                                      \
          "What the ranks of a site send. none: gradients, in train.grad_reduce_dtype. onebit: "   \
          "after train.compress_start of the steps, one bit of each value of the first moment "    \
          "(1-bit Adam with train.optimizer adamw, 1-bit LAMB with lamb). zeroone: up to "         \
          "train.compress_start gradients in one bit each, and in full at growing intervals; "     \
          "after it "                                                                              \
          "local steps, and one bit of each value of their sum at growing intervals (0/1 Adam, "   \
          "with adamw). The ranks' parameters are also made equal before an evaluation, a "        \
          "checkpoint, an outer round and the end, so train.eval_every and "                       \
          "train.checkpoint_every change the result a little. sparse: after train.compress_start " \
          "of "                                                                                    \
          "the steps, the chunks of the gradient that are largest over all ranks (GradientFlow).") \
    X(train, compress_start, REAL, .level = CONFIG_EXPERT, .recorded = "freeze",                   \
      .fallback = "0.2", .min = 0, .max = 1, .pinned = true,                                       \
      .help = "With train.compress: sums are full for this share of train.steps; with onebit and " \
              "zeroone the second moment is frozen from there on, "                                \
              "and it is at least train.warmup_steps.")                                            \
    X(train, local_max, INT, .level = CONFIG_EXPERT, .fallback = "16", .min = 1, .max = 1 << 20,   \
      .pinned = true,                                                                              \
      .help = "With train.compress zeroone: largest interval between two sums of local steps, in " \
              "steps; a power of two.")                                                            \
    X(train, local_grow, REAL, .level = CONFIG_EXPERT, .fallback = "0.25", .min = 1e-6, .max = 1,  \
      .pinned = true,                                                                              \
      .help = "With train.compress zeroone: the interval between two sums of local steps is 1 "    \
              "step after train.compress_start, and twice as long after each such share of "       \
              "train.steps.")                                                                      \
    X(train, variance_grow, INT, .level = CONFIG_EXPERT, .fallback = "16", .min = 1,               \
      .max = 1 << 20, .pinned = true,                                                              \
      .help =                                                                                      \
          "With train.compress zeroone: up to train.compress_start the interval between two full " \
          "sums, which change the second moment, is twice as long after this many of them.")       \
    X(train, error_feedback, BOOL, .level = CONFIG_EXPERT, .fallback = "true", .pinned = true,     \
      .help = "With train.compress: what compression loses is added to what is sent next.")        \
    X(train, sparse_share, REAL, .level = CONFIG_EXPERT, .fallback = "0.1", .min = 1e-6, .max = 1, \
      .pinned = true,                                                                              \
      .help = "With train.compress sparse: share of the chunks of 4,096 gradients that are sent "  \
              "in a step.")                                                                        \
    X(train, sparse_momentum, REAL, .level = CONFIG_EXPERT, .fallback = "0", .min = 0,             \
      .max = 0.9999, .pinned = true,                                                               \
      .help = "With train.compress sparse: momentum correction. A chunk that waits gathers a "     \
              "momentum with this decay "                                                          \
              "instead of the gradient. 0: none.")                                                 \
    X(train, zero_stage, INT, .group = "What the ranks share", .formerly = "zero",                 \
      .fallback = "0", .min = 0, .max = 3,                                                         \
      .help =                                                                                      \
          "What the ranks of a site share out, each holding its part. 0: nothing. 1: the f32 "     \
          "parameters that the optimizer updates, its moments and its update (ZeRO-1); each rank " \
          "collects the parameters in the model type (device.dtype). 2: the gradients, too. 3: "   \
          "the parameters in the model type, too, collected layer by layer as a pass needs them.") \
    X(train, modules, INT, .level = CONFIG_EXPERT, .fallback = "1", .min = 1, .max = 64,           \
      .pinned = true,                                                                              \
      .help =                                                                                      \
          "Cuts the layers into this many modules, and the ranks of a site divide the modules "    \
          "instead of the batch; the number of ranks divides train.modules - 1. The first and "    \
          "the last module are on rank 0, with the embeddings and the heads. 1: every rank has "   \
          "all layers.")                                                                           \
    X(train, pipeline, CHOICE(train_pipeline), .level = CONFIG_EXPERT, .fallback = "sequential",   \
      .pinned = true,                                                                              \
      .help = "With train.modules. sequential: one module after the other, forward and backward, " \
              "the gradients of one rank. stale: after train.warmup_steps all modules run their "  \
              "backward "                                                                          \
              "at the same time, module k of K with the gradient of K - k steps ago (Ouroboros).") \
    X(train, rounding, CHOICE(train_rounding), .group = "Numbers", .level = CONFIG_EXPERT,         \
      .fallback = "nearest", .pinned = true,                                                       \
      .help = "Rounding of the f32 parameters to the bf16 copy that the GEMMs read. stochastic: "  \
              "unbiased, by counter-based random bits. Not used with f32.")                        \
    X(train, master_weights, CHOICE(train_master_weights), .level = CONFIG_EXPERT,                 \
      .fallback = "f32", .pinned = true,                                                           \
      .help = "Form to which each step rounds the parameters that it has updated. fp16: the 16 "   \
              "bits of Wang et al. 2018, 6 of exponent and 9 of mantissa, to nearest; "            \
              "fp16_stochastic: the same, unbiased, by counter-based random bits; "                \
              "fp16_stochastic_moment: so the first moment, too. Kept in f32 memory: for the "     \
              "study of widths. Not of the outer state.")                                          \
    X(train, dropout, REAL, .group = "Methods", .fallback = "0", .min = 0, .max = 0.9,             \
      .pinned = true,                                                                              \
      .help = "Share of the values that become 0, drawn again at each step, after the embeddings " \
              "and after attention and MLP of each block (BERT has 0.1). Not in evaluation.")      \
    X(train, layer_drop, REAL, .level = CONFIG_EXPERT, .fallback = "0", .min = 0, .max = 0.9,      \
      .pinned = true,                                                                              \
      .help = "Progressive layer dropping: a step leaves out layers at random, the deeper the "    \
              "more often; the last with a probability that grows to this (0.5 in the paper). 0: " \
              "none.")                                                                             \
    X(train, layer_drop_rate, REAL, .level = CONFIG_EXPERT, .fallback = "0.001", .min = 0,         \
      .max = 1000, .pinned = true,                                                                 \
      .help = "How fast train.layer_drop is approached: 1 - exp(-rate x step) of it.")             \
    X(train, standardization_weight, REAL, .level = CONFIG_EXPERT, .recorded = "standard",         \
      .fallback = "0", .min = 0, .max = 10, .pinned = true,                                        \
      .help = "Weight of the standardization loss: draws the channels of the input of each "       \
              "attention and MLP to mean 0 and variance 1 over the tokens of a micro-batch, in "   \
              "place of norms (model.norm_place = none). Training alone has it. 0: none.")         \
    X(train, heads_orthogonal, REAL, .level = CONFIG_EXPERT, .fallback = "0.005", .min = 0,        \
      .max = 10, .pinned = true,                                                                   \
      .help = "With model.classifier_heads: weight of the sum of |cosine| over all pairs of "      \
              "heads and all "                                                                     \
              "classes.")                                                                          \
    X(train, heads_drop, REAL, .level = CONFIG_EXPERT, .fallback = "1.1", .min = 0, .max = 1000,   \
      .pinned = true,                                                                              \
      .help = "With model.classifier_heads: a head leaves when its moving loss is above this "     \
              "times the "                                                                         \
              "median at two evaluations (train.eval_every) in a row. 0: all stay; several sites " \
              "need 0.")                                                                           \
    X(train, heads_least, INT, .level = CONFIG_EXPERT, .fallback = "2", .min = 1, .max = 16,       \
      .pinned = true, .help = "With model.classifier_heads: least number of heads that stay.")     \
    X(train, stages, LIST, .level = CONFIG_EXPERT, .example = "[3@0.5, 6@0.5]", .fallback = "",    \
      .pinned = true,                                                                              \
      .help =                                                                                      \
          "Progressive stacking: LAYERS@SHARE of each stage in order, as 3@0.2, 6@0.2, 9@0.2, "    \
          "12@0.2, 12@0.2. A stage trains the layers that it adds, which begin as copies of "      \
          "those below, and the heads; one that adds none trains all. The rate warms up "          \
          "again in each stage, over train.warmup_steps. Empty: all layers from the start.")       \
    X(train, init, CHOICE(train_init), .group = "Optimizer", .fallback = "normal", .pinned = true, \
      .help = "Initial matrices. normal: as GPT-2. truncated: the same without values beyond two " \
              "standard deviations (BERT as published; Hugging Face's has normal).")               \
    X(train, optimizer, CHOICE(optim_kind), .level = CONFIG_BASIC, .fallback = "lamb",             \
      .pinned = true,                                                                              \
      .help = "Inner optimizer. muon: Muon for the matrices of the layers, which keep the "        \
              "momentum only and are updated by orthogonal matrices at the root mean square of "   \
              "AdamW's updates, AdamW for all other tensors; the ranks share out the matrices.")   \
    X(train, trust_per, CHOICE(train_trust_per), .level = CONFIG_EXPERT, .fallback = "tensor",     \
      .pinned = true,                                                                              \
      .help = "What has one trust ratio of LAMB, LANS or MERIT. tensor: q, k and v together. "     \
              "projection: q, k "                                                                  \
              "and v, and gate and up of a gated MLP, one each, as Hugging Face's BERT and Llama " \
              "have them.")                                                                        \
    X(train, trust_layers, CHOICE(train_trust_layers), .level = CONFIG_EXPERT, .fallback = "all",  \
      .pinned = true, .later = true,                                                               \
      .help = "Which layers LAMB, LANS or MERIT is for. all: as published. hidden: the matrices "  \
              "of attention and MLP alone; embeddings (also a tied head), heads, biases and "      \
              "norms take AdamW's step at train.adamw_lr times the rate, as with muon.")           \
    X(train, trust_min, REAL, .level = CONFIG_EXPERT, .fallback = "0.01", .min = 0, .max = 1e6,    \
      .pinned = true, .help = "Lower bound of LAMB's trust ratio.")                                \
    X(train, trust_max, REAL, .level = CONFIG_EXPERT, .fallback = "10", .min = 0, .max = 1e6,      \
      .pinned = true, .help = "Upper bound of LAMB's trust ratio; 0: none.")                       \
    X(train, trust_all, BOOL, .level = CONFIG_EXPERT, .fallback = "false", .pinned = true,         \
      .help = "true: biases and norms have a trust ratio, too (DeepSpeed's LAMB). false: theirs "  \
              "is 1.")                                                                             \
    X(train, normalize, BOOL, .level = CONFIG_EXPERT, .fallback = "true", .pinned = true,          \
      .help = "With train.optimizer = lans: divides the gradient of each tensor by its norm, "     \
              "which takes the place of train.max_grad_norm.")                                     \
    X(train, qh_weight, REAL, .level = CONFIG_EXPERT, .fallback = "0.7", .min = 0, .max = 1,       \
      .pinned = true,                                                                              \
      .help = "With train.optimizer = qhadam: weight of the first moment in a step; the gradient " \
              "has the rest (MT-DAO's w). 1: AdamW.")                                              \
    X(train, lr, REAL, .group = "Learning rate", .level = CONFIG_BASIC, .fallback = "0.003",       \
      .min = 0, .max = 100, .pinned = true, .help = "Peak learning rate.")                         \
    X(train, lr_batch_tokens, INT, .fallback = "0", .min = 0, .max = 1e9, .unit = "tokens",        \
      .pinned = true,                                                                              \
      .help =                                                                                      \
          "Square-root rule: train.lr belongs to steps of this many tokens, and "                  \
          "sqrt(train.batch_tokens / this) times it is the peak. train.warmup_steps stays: at "    \
          "equal "                                                                                 \
          "tokens its share of the run then grows with the batch, as LAMB has it. 0: no rule.")    \
    X(train, min_lr_ratio, REAL, .recorded = "lr_end", .fallback = "0.1", .min = 0, .max = 1,      \
      .pinned = true,                                                                              \
      .help = "Final learning rate as a share of the peak; with train.lr_schedule = exponential "  \
              "it is "                                                                             \
              "added to all others.")                                                              \
    X(train, warmup_steps, INT, .level = CONFIG_BASIC, .recorded = "warmup", .fallback = "40",     \
      .min = 0, .max = 1e9, .unit = "steps", .pinned = true,                                       \
      .help = "Steps of warm-up. Where the default does not fit into train.steps: a tenth of "     \
              "them.")                                                                             \
    X(train, warmup_shape, CHOICE(train_warmup_shape), .fallback = "linear", .pinned = true,       \
      .help = "Shape of the warm-up: linear, or quadratic as in DeepSpeed's BERT.")                \
    X(train, stable_steps, INT, .formerly = "hold", .fallback = "0", .min = 0, .max = 1e9,         \
      .unit = "steps", .pinned = true,                                                             \
      .help = "Steps at the peak learning rate before the decay (the stable phase of WSD).")       \
    X(train, lr_schedule, CHOICE(train_lr_schedule), .recorded = "decay", .fallback = "cosine",    \
      .pinned = true,                                                                              \
      .help = "Shape of the decay to min_lr_ratio at train.steps. exponential: "                   \
              "train.lr_decay_factor to "                                                          \
              "the power of the steps after warm-up and stable steps, over train.lr_decay_steps, " \
              "and not over train.steps.")                                                         \
    X(train, lr_decay_factor, REAL, .level = CONFIG_EXPERT, .recorded = "decay_factor",            \
      .fallback = "0.9", .min = 1e-9, .max = 1, .pinned = true,                                    \
      .help = "With train.lr_schedule = exponential: factor over train.lr_decay_steps.")           \
    X(train, lr_decay_steps, INT, .level = CONFIG_EXPERT, .recorded = "decay_steps",               \
      .fallback = "250", .min = 1, .max = 1e9, .unit = "steps", .pinned = true,                    \
      .help = "With train.lr_schedule = exponential: steps of one train.lr_decay_factor.")         \
    X(train, bias_correction, BOOL, .group = "Moments", .level = CONFIG_EXPERT,                    \
      .fallback = "true", .pinned = true,                                                          \
      .help = "Divides the moments by 1 - beta^t. false: as BERT's Adam, LAMB as published in "    \
              "TensorFlow and MT-DAO have it.")                                                    \
    X(train, momentum, REAL, .fallback = "0.95", .min = 0, .max = 0.999999, .pinned = true,        \
      .help = "Muon: decay of the momentum of the layers' matrices, in Nesterov's form.")          \
    X(train, muon_scale, CHOICE(train_muon_scale), .level = CONFIG_EXPERT, .fallback = "rms",      \
      .pinned = true,                                                                              \
      .help = "Muon: factor of the orthogonal matrix (rows, columns) of an update. rms: 0.2 "      \
              "sqrt(max(rows, columns)), the root mean square of AdamW's updates, so that one "    \
              "rate serves both (Moonlight). spectral: sqrt(rows / columns), output over input "   \
              "width (MuLoCo).")                                                                   \
    X(train, muon_coefficients, CHOICE(train_muon_coefficients), .level = CONFIG_EXPERT,           \
      .fallback = "same", .pinned = true,                                                          \
      .help = "Muon: coefficients of the five iterations that make a matrix orthogonal. same: "    \
              "3.4445, -4.7750, 2.0315 in all of them. per_iteration: 4.0848, -6.8946, 2.9270 in " \
              "the first, others in each of the next, which bring the singular values closer to "  \
              "1 (MuLoCo).")                                                                       \
    X(train, adamw_lr, REAL, .fallback = "1", .min = 0, .max = 1e6, .pinned = true,                \
      .help = "Muon, or LAMB, LANS and MERIT with train.trust_layers = hidden: AdamW's learning "  \
              "rate, for every tensor that is not a matrix of a layer, as a multiple of "          \
              "train.lr. LAMB wants about 0.4.")                                                   \
    X(train, beta1, REAL, .fallback = "0.9", .min = 0, .max = 0.999999, .pinned = true,            \
      .help = "First-moment decay.")                                                               \
    X(train, beta2, REAL, .fallback = "0.95", .min = 0, .max = 0.9999999, .pinned = true,          \
      .help = "Second-moment decay.")                                                              \
    X(train, beta3, REAL, .level = CONFIG_EXPERT, .fallback = "0.99", .min = 0, .max = 0.9999999,  \
      .pinned = true,                                                                              \
      .help = "With train.optimizer = came: decay of the mean distance between direction and "     \
              "moment. 0.99 goes with beta2 = 0.95; the published 0.9999 with 0.999 wants a rate " \
              "five times lower in short runs.")                                                   \
    X(train, update_clip, REAL, .level = CONFIG_EXPERT, .fallback = "1", .min = 1e-6, .max = 1e6,  \
      .pinned = true,                                                                              \
      .help = "With train.optimizer = came: largest root mean square of a tensor's direction.")    \
    X(train, eps, REAL, .fallback = "1e-6", .min = 1e-30, .max = 1, .pinned = true,                \
      .help = "Added to the root of the second moment. Not of came, which has the published "      \
              "constants.")                                                                        \
    X(train, weight_decay, REAL, .group = "Weight decay and clipping", .level = CONFIG_BASIC,      \
      .fallback = "0.1", .min = 0, .max = 10, .pinned = true,                                      \
      .help = "Decoupled decay; not on biases, norms.")                                            \
    X(train, max_grad_norm, REAL, .level = CONFIG_BASIC, .recorded = "clip", .fallback = "1.0",    \
      .min = 0, .max = 1e6, .pinned = true, .help = "Clip of the global gradient norm; 0: none.")  \
    X(train, clip_per, CHOICE(train_clip_per), .level = CONFIG_EXPERT, .fallback = "model",        \
      .pinned = true,                                                                              \
      .help = "What train.max_grad_norm clips. model: the mean gradient of the site, by its "      \
              "norm. bucket: "                                                                     \
              "each rank's own gradient, "                                                         \
              "bucket by bucket (train.bucket_mb, from the end of the slab) before the sum: "      \
              "each of B buckets has norm train.max_grad_norm / sqrt(B) at most.")                 \
    X(train, eval_every, INT, .group = "Evaluation, checkpoints", .level = CONFIG_BASIC,           \
      .fallback = "0", .min = 0, .max = 1e9, .unit = "steps",                                      \
      .help = "Steps between two evaluations of the eval loss; 0: only at start and end.")         \
    X(train, eval_tokens, INT, .fallback = "65536", .min = 1, .max = 1e9, .unit = "tokens",        \
      .help = "Tokens of one evaluation.")                                                         \
    X(train, eval_attention, BOOL, .level = CONFIG_EXPERT, .fallback = "false",                    \
      .help = "Each evaluation finds the largest attention logit of each layer, q k^T over the "   \
              "root of the head's width, and writes it into metrics.jsonl. Costs the evaluation "  \
              "about half of its attention once more.")                                            \
    X(train, profile, INT, .level = CONFIG_EXPERT, .fallback = "0", .min = 0, .max = 1e6,          \
      .unit = "steps",                                                                             \
      .help = "After the first steps, profiles this many steps and logs the time of each class "   \
              "of operations (ev=profile); 0: never.")                                             \
    X(train, checkpoint_every, INT, .level = CONFIG_BASIC, .fallback = "100", .min = 0,            \
      .max = 1e9, .unit = "steps",                                                                 \
      .help = "Steps between two inner checkpoints; 0: only at a stop.")                           \
    X(train, checkpoint_keep, INT, .fallback = "2", .min = 1, .max = 1000,                         \
      .help =                                                                                      \
          "Inner checkpoints that are kept; atoll export --mean takes the mean of the newest.")    \
    X(device, kind, CHOICE(device_kind), .level = CONFIG_BASIC, .fallback = "cpu",                 \
      .help = "Where the arithmetic runs.")                                                        \
    X(device, dtype, CHOICE(device_dtype), .fallback = "auto",                                     \
      .help = "Type of activations and GEMMs; auto: bf16 where it is faster.")                     \
    X(device, matmul_precision, CHOICE(device_matmul_precision), .level = CONFIG_EXPERT,           \
      .recorded = "products", .fallback = "model",                                                 \
      .help = "Operands of the model's matrix products, without those of attention. model: "       \
              "device.dtype. fp8: rounded to E5M2 (Wang et al. 2018), on the CPU alone. "          \
              "fp8_hybrid: weights and activations to E4M3, gradients to E5M2, with a scale for "  \
              "each operand; a GPU multiplies so (compute capability 8.9; not yet seen to work, "  \
              "and by computation slower than bf16: each product rounds its operands). "           \
              "Sums in f32. Emulated on the CPU, slower than f32.")                                \
    X(device, accumulator, INT, .level = CONFIG_EXPERT, .fallback = "0", .min = 0, .max = 22,      \
      .unit = "bits",                                                                              \
      .help = "Bits of mantissa of the sums in these products, rounded after every addition; "     \
              "emulated on the CPU, a hundred times slower: for the study of widths (atoll plan "  \
              "--accumulator). 0: f32.")                                                           \
    X(device, accumulator_chunk, INT, .level = CONFIG_EXPERT, .fallback = "0", .min = 0,           \
      .max = 1e6, .unit = "terms",                                                                 \
      .help =                                                                                      \
          "With device.accumulator: number of terms that are summed apart first. 0: one level.")   \
    X(device, attention, CHOICE(device_attention), .level = CONFIG_EXPERT, .fallback = "auto",     \
      .help =                                                                                      \
          "GPU: attention kernels. auto: ours or cuDNN's, the faster of those that repeat "        \
          "bit for bit, measured before the first step and kept in the checkpoint, as are the "    \
          "algorithms of matrix products. own: ours, and no measurement. cudnn: cuDNN's fastest, " \
          "whose backward pass does not repeat bit for bit.")                                      \
    X(device, graphs, CHOICE(device_graphs), .level = CONFIG_EXPERT, .fallback = "off",            \
      .help = "GPU: launches forward and backward of repeated batch shapes as CUDA graphs, with "  \
              "the same bits. auto: times both ways in the first 16 steps and keeps the faster.")  \
    X(device, threads, INT, .level = CONFIG_BASIC, .fallback = "0", .min = 0, .max = 1024,         \
      .help = "CPU threads of one rank; 0: all cores this rank may use.")                          \
    X(privacy, unit, CHOICE(privacy_unit), .group = "Differential privacy", .level = CONFIG_BASIC, \
      .fallback = "none",                                                                          \
      .help = "Record whose presence the site's gradients hide (differential privacy, "            \
              "docs/privacy.md). none: nothing is hidden. sequence: one training example of "      \
              "train.seq_len. document: a document of an index. owner: all documents of a "        \
              "patient or an account, named in a file next to each shard.")                        \
    X(privacy, unit_sequences, INT, .fallback = "4", .min = 1, .max = 4096, .unit = "examples",    \
      .help = "With privacy.unit = document or owner: most examples of one of them in a step, "    \
              "drawn by the step, which are clipped together. A step has train.batch_tokens / "    \
              "(train.seq_len x this) documents or owners on average.")                            \
    X(privacy, clip, REAL, .fallback = "1", .min = 1e-6, .max = 1e6,                               \
      .help = "With privacy.unit: largest L2 norm of one record's gradient, which is that of the " \
              "mean loss of its targets; longer ones are scaled down to it.")                      \
    X(privacy, noise_multiplier, REAL, .recorded = "noise", .fallback = "0", .min = 0,             \
      .max = 1000,                                                                                 \
      .help = "With privacy.unit: noise multiplier. Each step adds a discrete Gaussian with a "    \
              "standard deviation of this times privacy.clip to the sum of the clipped "           \
              "gradients; with privacy.mechanism = banded, of this times what one record moves "   \
              "the correlated sums. 0: the smallest with which train.steps keep privacy.epsilon.") \
    X(privacy, epsilon, REAL, .level = CONFIG_BASIC, .fallback = "0", .min = 0, .max = 1e6,        \
      .help = "With privacy.unit: the claim of this site, an epsilon that all train.steps of the " \
              "run together keep. Checked at the start, with what is charged already. 0: no "      \
              "claim, privacy.noise_multiplier says what it costs.")                               \
    X(privacy, delta, REAL, .level = CONFIG_BASIC, .fallback = "1e-5", .min = PRIVACY_DELTA_MIN,   \
      .max = 0.999,                                                                                \
      .help = "With privacy.unit: delta of every epsilon; at most 1 / number of records.")         \
    X(privacy, epsilon_max, REAL, .recorded = "cap", .fallback = "0", .min = 0, .max = 1e6,        \
      .help = "With privacy.unit: this site trains no step with which the epsilon of all charged " \
              "steps would be above this, also if the aggregator asks for more. Then a strict "    \
              "run waits, "                                                                        \
              "and in a quorum run the site leaves. 0: privacy.epsilon, and without it no cap.")   \
    X(privacy, sampling, CHOICE(privacy_sampling), .fallback = "poisson",                          \
      .help = "With privacy.unit: which records are in a step. poisson: each with the same "       \
              "probability; the batch varies in size. balls: each record has a bin, drawn once, "  \
              "and the steps take the bins in turn; no amplification by sampling is claimed. "     \
              "cyclic: the records are in privacy.bands parts, and each step samples one of them " \
              "in turn; for privacy.mechanism = banded. fixed: the order of a run without "        \
              "privacy; nothing may be claimed for it.")                                           \
    X(privacy, mechanism, CHOICE(privacy_mechanism), .level = CONFIG_EXPERT,                       \
      .fallback = "independent",                                                                   \
      .help =                                                                                      \
          "With privacy.unit: the noise of successive steps. independent: drawn again each time. " \
          "banded: correlated, so that much of it cancels in the sum of the steps (banded "        \
          "matrix factorisation); needs privacy.sampling = balls or cyclic.")                      \
    X(privacy, bands, INT, .level = CONFIG_EXPERT, .fallback = "8", .min = 2, .max = 4096,         \
      .unit = "steps",                                                                             \
      .help = "With privacy.mechanism = banded: steps over which noise is correlated. A record "   \
              "returns no sooner. Costs 4 bytes a parameter and band.")                            \
    X(privacy, clipping, CHOICE(privacy_clipping), .level = CONFIG_EXPERT, .fallback = "ghost",    \
      .help = "How gradients are clipped. ghost: one pass for the norms of all records, one that " \
              "weights them. per_example: a pass for each record; the specification, for tests.")

struct settings {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    KEYS_INNER(X)
#undef X
};
struct config_table keys_inner(struct settings *s); /* a table over *s */
/* The classes of task i of model.classes, which keys_check has read. */
enum {
    KEYS_LAYERS_MAX = 512,
    KEYS_WARMUP = 40, /* default of train.warmup_steps */
    KEYS_TASKS_MAX = 16,
    KEYS_HEADS_MAX = 16,
    KEYS_STAGES_MAX = 32,
    KEYS_SOURCES_MAX = 64
};
int64_t keys_classes(const struct settings *s, size_t task);
/* Entry i of data.weights or data.anneal_weights; NAN: it is no number. */
double keys_weight(const struct config_list *list, size_t i);
/* Entry i of train.stages, which keys_check has read. */
struct keys_stage {
    int64_t layers;
    double share; /* of train.steps */
};
struct keys_stage keys_stage(const struct settings *s, size_t i);
/* Steps of warm-up: train.warmup_steps; its default, where that is longer than train.steps, is a
 * tenth of these. What is pinned does not depend on train.steps, which may grow. */
int64_t keys_warmup(const struct settings *s);
/* With privacy.unit: most examples of one record in a step, and records of a step on average. */
int64_t keys_unit_sequences(const struct settings *s);
int64_t keys_expected_units(const struct settings *s);
int64_t keys_bands(const struct settings *s); /* of the noise; 1: independent */
/* The rules over several keys: heads divide width, ... */
void keys_check(struct config_rules *r, const struct settings *s);
/* What is allowed and hardly meant, one sentence; "": nothing. */
void keys_warning(const struct settings *s, char *out, size_t size_bytes);

#endif
