/* SPDX-License-Identifier: Apache-2.0 */
/* The table of one datacenter's settings and the rules that need more than one key. */
#include "inner/config/keys.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/number.h"

#define WEIGHT_MAX 1e6      /* of data.weights */
enum { RUN_NAME_MAX = 63 }; /* it is part of a certificate's URI and of file names */

CHOICES_INNER(CONFIG_CHOICES)

static const struct config_key keys[] = {
#define X(...) CONFIG_ROW(struct settings, __VA_ARGS__)
    KEYS_INNER(X)
#undef X
};

int64_t keys_warmup(const struct settings *s)
{
    bool fits = s->train_warmup_steps + s->train_stable_steps <= s->train_steps;
    return fits || s->train_warmup_steps != KEYS_WARMUP ? s->train_warmup_steps
                                                        : s->train_steps / 10;
}

struct config_table keys_inner(struct settings *s)
{
    return (struct config_table){.keys = keys, .count = sizeof keys / sizeof keys[0], .values = s};
}

static void check_name(struct config_rules *r, const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t n = strlen(name);
    if (n < 1 || n > RUN_NAME_MAX || name[strspn(name, allowed)])
        config_broken(r, "run.name = \"%.80s\": allowed are 1 to %d letters, digits, - and _", name,
                      RUN_NAME_MAX);
}

/* The divisor of n nearest to x; of two as near, the larger. */
static long long nearest_divisor(long long n, long long x)
{
    long long best = 1;
    for (long long i = 1; i <= n; i++)
        if (n % i == 0 && llabs(i - x) <= llabs(best - x))
            best = i;
    return best;
}

/* The fewest heads, from `least` on, that divide the width; even: into an even dimension. */
static long long heads_from(long long width, long long least, bool even)
{
    while (least < width && (width % least || (even && width / least % 2)))
        least++;
    return least;
}

enum { HEAD_DIMENSION_CUDA = 256 }; /* attention_plain.cu's */

static void check_heads(struct config_rules *r, const struct settings *s)
{
    long long heads = s->model_heads, shared = s->model_kv_heads, width = s->model_d_model;
    bool rope = s->model_positions == MODEL_POSITIONS_ROPE;
    if (shared && heads % shared)
        config_broken(
            r,
            "model.kv_heads = %lld does not divide model.heads = %lld; the nearest that does is "
            "%lld",
            shared, heads, nearest_divisor(heads, shared));
    if (width % heads) {
        config_broken(
            r,
            "model.heads = %lld does not divide model.d_model = %lld; make the width a multiple "
            "of the heads",
            heads, width);
        return;
    }
    if (rope && width / heads % 2)
        config_broken(
            r,
            "model.positions = rope turns pairs, but a head has model.d_model / model.heads = "
            "%lld channels; "
            "the nearest larger width is %lld",
            width / heads, width + heads);
    if (s->device_kind == DEVICE_CUDA && width / heads > HEAD_DIMENSION_CUDA)
        config_broken(
            r,
            "model.heads = %lld are heads of %lld channels; attention on a GPU (device.kind = "
            "cuda) takes up to "
            "%d: the nearest is model.heads = %lld",
            heads, width / heads, HEAD_DIMENSION_CUDA,
            heads_from(width, (width + HEAD_DIMENSION_CUDA - 1) / HEAD_DIMENSION_CUDA, rope));
}

int64_t keys_classes(const struct settings *s, size_t task)
{
    return strtoll(s->model_classes.items[task], NULL, 10);
}

enum { CLASSES_MAX = 65536 };

static void check_classes(struct config_rules *r, const struct settings *s)
{
    if (s->model_classes.count > KEYS_TASKS_MAX)
        config_broken(r, "model.classes names %zu tasks; at most %d are possible",
                      s->model_classes.count, KEYS_TASKS_MAX);
    for (size_t i = 0; i < s->model_classes.count; i++) {
        const char *text = s->model_classes.items[i];
        if (text[strspn(text, "0123456789")] || strlen(text) > 5 || keys_classes(s, i) < 2 ||
            keys_classes(s, i) > CLASSES_MAX)
            config_broken(r, "model.classes has \"%.40s\"; a task has 2 to %d classes", text,
                          CLASSES_MAX);
    }
    if (s->model_classes.count && !s->model_pooler)
        config_broken(r, "model.classes without model.pooler = true: the heads read the pooler");
    if (s->model_pooler_norm && !s->model_pooler)
        config_broken(r, "model.pooler_norm = true without model.pooler = true");
    if (s->model_pooler_norm && s->model_activation == MODEL_ACTIVATION_SWIGLU)
        config_broken(r, "model.pooler_norm = true has the activation of model.activation, and "
                         "swiglu is a gate; use gelu, gelu_erf or geglu");
    if (s->model_pooling != MODEL_POOLING_FIRST && !s->model_pooler)
        config_broken(r, "model.pooling = mean without model.pooler = true");
    if (s->model_pooler && s->model_causal)
        config_broken(r, "model.pooler = true with model.causal = true: the first token, which it "
                         "reads, would see no other");
}

static void check_multiverse(struct config_rules *r, const struct settings *s)
{
    if (s->model_classifier_heads > 1 && s->model_classes.count != 1)
        config_broken(r,
                      "model.classifier_heads = %lld needs one task; model.classes has %zu, and "
                      "model.classifier_heads "
                      "= 1 is a plain head for each",
                      (long long)s->model_classifier_heads, s->model_classes.count);
    if (s->train_heads_drop > 0 && s->train_heads_drop <= 1)
        config_broken(r,
                      "train.heads_drop = %g would drop heads no worse than the others; use more "
                      "than 1, or 0 for none",
                      s->train_heads_drop);
}

/* Settings of encoders that exclude each other. */
static void check_encoder(struct config_rules *r, const struct settings *s)
{
    bool factorised = s->model_embedding_size && s->model_embedding_size != s->model_d_model;
    check_classes(r, s);
    check_multiverse(r, s);
    if (s->train_layer_drop > 0 && s->model_norm_place == MODEL_NORM_POST)
        config_broken(r,
                      "train.layer_drop = %g with model.norm_place = post: without its layer a "
                      "norm would run alone; use pre",
                      s->train_layer_drop);
    if (s->train_standardization_weight > 0 && s->model_norm_place != MODEL_NORM_NONE)
        config_broken(r,
                      "train.standardization_weight = %g with model.norm_place = %s: the loss "
                      "stands in place of "
                      "norms; use model.norm_place = none",
                      s->train_standardization_weight,
                      config_choice_name(model_norm_place_choices, s->model_norm_place));
    if (factorised && s->model_head == MODEL_HEAD_PLAIN && !s->model_classes.count)
        config_broken(r,
                      "model.embedding_size = %lld is not model.d_model = %lld, and model.head = "
                      "plain has no "
                      "matrix from one to the other; use model.head = mlm",
                      (long long)s->model_embedding_size, (long long)s->model_d_model);
    if (s->model_head == MODEL_HEAD_MLM && s->model_activation == MODEL_ACTIVATION_SWIGLU)
        config_broken(r, "model.head = mlm has the activation of model.activation, and swiglu is a "
                         "gate; use gelu, gelu_erf or geglu (its GELU without the gate)");
    if (s->model_global_attn_every && !s->model_sliding_window)
        config_broken(
            r,
            "model.global_attn_every = %lld without model.sliding_window: all layers see the whole "
            "sequence",
            (long long)s->model_global_attn_every);
}

static void check_model(struct config_rules *r, const struct settings *s)
{
    check_heads(r, s);
    check_encoder(r, s);
    if (s->model_rope_factor > 1 && s->model_positions != MODEL_POSITIONS_ROPE)
        config_broken(r, "model.rope_factor scales rotary positions; set model.positions = rope");
    if (s->model_rope_factor > 1 && !(s->model_rope_low < s->model_rope_high))
        config_broken(r, "model.rope_low = %g is not less than model.rope_high = %g",
                      s->model_rope_low, s->model_rope_high);
    bool own = !*s->model_tensors; /* else no key of model.* counts */
    if (own && s->data_tokenizer == DATA_TOKENIZER_BYTES && s->model_vocab_size < 256)
        config_broken(r,
                      "model.vocab_size = %lld is less than the 256 ids of data.tokenizer = bytes",
                      (long long)s->model_vocab_size);
}

static const struct {
    const char *name;
    bool causal;
} objectives[] = {
#define X(NAME, name, causal) {#name, causal},
    OBJECTIVE_LIST(X)
#undef X
};

/* Settings of another objective than the one that is trained are mistakes. */
static void check_belongs(struct config_rules *r, const char *key, bool set, const char *objective,
                          const char *chosen)
{
    if (set && strcmp(objective, chosen) != 0)
        config_broken(r, "%s belongs to data.objective = %s; data.objective is %s", key, objective,
                      chosen);
}

static void check_masks(struct config_rules *r, const struct settings *s)
{
    const char *chosen = objectives[s->data_objective].name;
    long long least = s->data_pairs == DATA_PAIRS_NONE ? 4 : 5;
    check_belongs(r, "data.mask", s->data_mask != DATA_MASK_TOKEN, "mlm", chosen);
    check_belongs(r, "data.mlm_probability", s->data_mlm_probability != 0.15, "mlm", chosen);
    check_belongs(r, "data.pairs", s->data_pairs != DATA_PAIRS_NONE, "mlm", chosen);
    check_belongs(r, "data.short_seq_prob", s->data_short_seq_prob != 0.1, "mlm", chosen);
    check_belongs(r, "data.classes", s->data_classes.count > 0, "labels", chosen);
    if (s->data_objective != DATA_OBJECTIVE_CAUSAL && s->train_seq_len < least)
        config_broken(r,
                      "train.seq_len = %lld is too short for data.objective = %s: special tokens "
                      "take %lld of at least %lld",
                      (long long)s->train_seq_len, chosen, least - 2, least);
}

static void check_objective(struct config_rules *r, const struct settings *s)
{
    bool causal = objectives[s->data_objective].causal;
    const char *name = objectives[s->data_objective].name;
    if (!s->model_causal && causal)
        config_broken(r,
                      "model.causal = false: data.objective = %s has the next id as the target of "
                      "each position, which would see it; use data.objective = mlm or labels, or "
                      "model.causal = true",
                      name);
    if (s->model_causal && !causal)
        config_broken(r,
                      "model.causal = true: data.objective = %s needs attention to both sides; use "
                      "model.causal = false",
                      name);
    if (s->data_shards == DATA_SHARDS_OWN && !causal &&
        (s->data_pairs != DATA_PAIRS_NONE || s->data_objective == DATA_OBJECTIVE_LABELS))
        config_broken(
            r,
            "data.shards = own with %s: a rank would not see what the other ranks' "
            "examples count; use data.shards = shared, or data.objective = causal, or mlm "
            "with data.pairs = none",
            s->data_pairs != DATA_PAIRS_NONE ? "data.pairs" : "data.objective = labels");
    if (*s->data_tokenizer_sha256 && !digest_is_hex(s->data_tokenizer_sha256))
        config_broken(r, "data.tokenizer_sha256 = \"%.80s\" is not 64 hexadecimal characters",
                      s->data_tokenizer_sha256);
    check_masks(r, s);
}

static void check_batch(struct config_rules *r, const struct settings *s)
{
    long long sequence = s->train_seq_len, batch = s->train_batch_tokens,
              micro = s->train_micro_batch_tokens;
    if (!*s->model_tensors && sequence > s->model_max_seq_len)
        config_broken(r, "train.seq_len = %lld is longer than model.max_seq_len = %lld", sequence,
                      (long long)s->model_max_seq_len);
    if (batch % sequence)
        config_broken(r, "train.batch_tokens = %lld is not a multiple of train.seq_len = %lld",
                      batch, sequence);
    if (micro % sequence)
        config_broken(r,
                      "train.micro_batch_tokens = %lld is not a multiple of train.seq_len = %lld",
                      micro, sequence);
    if (micro && batch % micro)
        config_broken(r,
                      "train.micro_batch_tokens = %lld does not divide train.batch_tokens = %lld",
                      micro, batch);
}

/* Settings of another optimizer than the one that trains are mistakes. */
static void check_optimizer_keys(struct config_rules *r, const struct settings *s)
{
    const enum optim_kind chosen = s->train_optimizer;
    const bool lamb = chosen == OPTIM_LAMB, lans = chosen == OPTIM_LANS,
               ratios = lamb || lans || chosen == OPTIM_MERIT,
               hidden = s->train_trust_layers == TRAIN_TRUST_LAYERS_HIDDEN;
    const struct {
        const char *key, *owner;
        bool changed, allowed;
    } rules[] = {
        {"train.trust_per", "lamb, lans or merit", s->train_trust_per != TRAIN_TRUST_PER_TENSOR,
         ratios},
        {"train.trust_layers", "lamb, lans or merit", hidden, ratios},
        {"train.trust_all", "lamb or lans", s->train_trust_all, lamb || lans},
        {"train.trust_min", "lamb", s->train_trust_min != 0.01, lamb},
        {"train.trust_max", "lamb", s->train_trust_max != 10, lamb},
        {"train.normalize", "lans", !s->train_normalize, lans},
        {"train.qh_weight", "qhadam", s->train_qh_weight != 0.7, chosen == OPTIM_QHADAM},
        {"train.momentum", "muon", s->train_momentum != 0.95, chosen == OPTIM_MUON},
        {"train.adamw_lr", "muon, or lamb, lans or merit with train.trust_layers = hidden",
         s->train_adamw_lr != 1, chosen == OPTIM_MUON || hidden},
        {"train.muon_scale", "muon", s->train_muon_scale != TRAIN_MUON_SCALE_RMS,
         chosen == OPTIM_MUON},
        {"train.muon_coefficients", "muon",
         s->train_muon_coefficients != TRAIN_MUON_COEFFICIENTS_SAME, chosen == OPTIM_MUON},
        {"train.beta3", "came", s->train_beta3 != 0.99, chosen == OPTIM_CAME},
        {"train.update_clip", "came", s->train_update_clip != 1, chosen == OPTIM_CAME},
        {"train.eps", "adamw, qhadam, lamb, lans, merit or muon", s->train_eps != 1e-6,
         chosen != OPTIM_CAME},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].changed && !rules[i].allowed)
            config_broken(r, "%s belongs to train.optimizer = %s; train.optimizer is %s",
                          rules[i].key, rules[i].owner,
                          config_choice_name(optim_kind_choices, chosen));
}

static void check_optimizer(struct config_rules *r, const struct settings *s)
{
    check_optimizer_keys(r, s);
    if (s->train_optimizer == OPTIM_LANS && s->train_normalize && s->train_max_grad_norm > 0)
        config_broken(r,
                      "train.optimizer = lans divides the gradient of each tensor by its norm, and "
                      "train.max_grad_norm = %g would scale all of them before: two rules; use "
                      "train.max_grad_norm = "
                      "0, or train.normalize = false",
                      s->train_max_grad_norm);
    if (s->train_trust_all && s->train_trust_layers == TRAIN_TRUST_LAYERS_HIDDEN)
        config_broken(r, "train.trust_all = true gives biases and norms a trust ratio, and "
                         "train.trust_layers = hidden takes it from them; use one of the two");
    if (s->train_optimizer == OPTIM_CAME && s->train_beta1 <= 0)
        config_broken(r, "train.optimizer = came divides by the distance between direction and "
                         "moment, and with train.beta1 = 0 there is none; use train.beta1 = 0.9, "
                         "or train.optimizer = adamw");
    if (s->train_trust_max > 0 && s->train_trust_max < s->train_trust_min)
        config_broken(r, "train.trust_max = %g is less than train.trust_min = %g",
                      s->train_trust_max, s->train_trust_min);
}

static const struct {
    enum train_compress compress;
    enum optim_kind optimizer;
} compress_pairs[] = {
#define X(name, COMPRESS, OPTIMIZER) {COMPRESS, OPTIMIZER},
    COMPRESS_LIST(X)
#undef X
};

/* The optimizer of the setting if it goes with this compression, else the first that does. */
static enum optim_kind nearest_optimizer(const struct settings *s)
{
    enum optim_kind nearest = s->train_optimizer;
    for (size_t i = sizeof compress_pairs / sizeof *compress_pairs; i-- > 0;)
        if (compress_pairs[i].compress == s->train_compress) {
            nearest = compress_pairs[i].optimizer;
            if (nearest == s->train_optimizer)
                return nearest;
        }
    return nearest;
}

static void check_freeze(struct config_rules *r, const struct settings *s)
{
    long long warms = keys_warmup(s), least = warms > 1 ? warms : 1,
              steps = llround(s->train_compress_start * (double)s->train_steps);
    char warmup[80] = "which has to see one gradient";
    if (warms > 1)
        snprintf(warmup, sizeof warmup, "before the warm-up of train.warmup_steps = %lld ends",
                 warms);
    if (steps >= least ||
        least > s->train_steps) /* train.warmup_steps > train.steps: has an error of its own */
        return;
    config_broken(
        r,
        "train.compress_start = %g freezes the second moment after %lld of train.steps = %lld, "
        "%s; use train.compress_start = %.4g or more",
        s->train_compress_start, steps, (long long)s->train_steps, warmup,
        ceil(1e4 * (double)least / (double)s->train_steps) / 1e4);
}

/* Settings of another compression than the one that is chosen are mistakes. */
static void check_compress_keys(struct config_rules *r, const struct settings *s)
{
    const enum train_compress chosen = s->train_compress;
    const char *name = config_choice_name(train_compress_choices, chosen);
    if (chosen == TRAIN_COMPRESS_NONE && s->train_compress_start != 0.2)
        config_broken(
            r,
            "train.compress_start = %g belongs to train.compress, which is none; leave it out, or "
            "choose train.compress = onebit, zeroone or sparse",
            s->train_compress_start);
    if (chosen == TRAIN_COMPRESS_NONE && !s->train_error_feedback)
        config_broken(r, "train.error_feedback = false belongs to train.compress, which is "
                         "none; leave it out, or choose train.compress = onebit");
    if (chosen != TRAIN_COMPRESS_SPARSE &&
        (s->train_sparse_share != 0.1 || s->train_sparse_momentum > 0))
        config_broken(r,
                      "train.sparse_share and train.sparse_momentum belong to "
                      "train.compress = sparse; train.compress is %s",
                      name);
    if (chosen == TRAIN_COMPRESS_SPARSE && s->train_sparse_momentum > 0 && !s->train_error_feedback)
        config_broken(r,
                      "train.sparse_momentum = %g gathers what chunks that wait have to send, and "
                      "train.error_feedback = false drops it; use train.sparse_momentum = 0, or "
                      "train.error_feedback = true",
                      s->train_sparse_momentum);
}

static void check_zeroone(struct config_rules *r, const struct settings *s)
{
    long long below = 1, max = s->train_local_max;
    if (s->train_compress != TRAIN_COMPRESS_ZEROONE) {
        if (max != 16 || s->train_local_grow != 0.25 || s->train_variance_grow != 16)
            config_broken(r,
                          "train.local_max, train.local_grow and train.variance_grow belong to "
                          "train.compress = zeroone; train.compress is %s",
                          config_choice_name(train_compress_choices, s->train_compress));
        return;
    }
    while (2 * below <= max)
        below *= 2;
    if (below != max)
        config_broken(r,
                      "train.local_max = %lld is not a power of two; the nearest are %lld and %lld",
                      max, below, 2 * below);
}

static void check_compress(struct config_rules *r, const struct settings *s)
{
    const char *name = config_choice_name(train_compress_choices, s->train_compress);
    const struct {
        bool given;
        const char *key, *why, *use;
    } not [] = {{s->train_zero_stage > 0, "train.zero_stage", "every rank keeps all moments", "0"},
                {s->train_grad_reduce_dtype != TRAIN_GRAD_REDUCE_F32,
                 "train.grad_reduce_dtype = bf16", "two roundings of the same sums", "f32"},
                {s->train_layer_drop > 0, "train.layer_drop", "every step sends all tensors", "0"},
                {s->train_master_weights != TRAIN_MASTER_F32, "train.master_weights",
                 "what it sends are f32 updates", "f32"},
                {s->train_stages.count > 0, "train.stages", "every step sends all tensors",
                 "none of them"}};
    check_compress_keys(r, s);
    check_zeroone(r, s);
    if (s->train_compress == TRAIN_COMPRESS_NONE)
        return;
    if (nearest_optimizer(s) != s->train_optimizer)
        config_broken(r,
                      "train.compress = %s with train.optimizer = %s: there is no such method; use "
                      "train.optimizer = %s, or train.compress = none",
                      name, config_choice_name(optim_kind_choices, s->train_optimizer),
                      config_choice_name(optim_kind_choices, nearest_optimizer(s)));
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (not [i].given)
            config_broken(r, "train.compress = %s with %s: %s; use %s", name, not [i].key,
                          not [i].why, not [i].use);
    if (s->train_compress == TRAIN_COMPRESS_SPARSE)
        return;
    if (s->train_optimizer == OPTIM_LAMB && s->train_bias_correction)
        config_broken(r,
                      "train.compress = %s with train.optimizer = lamb has no bias correction; "
                      "use train.bias_correction = false",
                      name);
    check_freeze(r, s);
}

/* Whether module by module is a pass over the model: all layers run, each with tensors and saved
 * activations of its own, and every rank holds the whole of the state that a checkpoint has. */
static void check_modules(struct config_rules *r, const struct settings *s)
{
    long long modules = s->train_modules, layers = s->model_layers;
    const struct config_excluded not [] = {
        {s->model_share_layers, "model.share_layers = true", "false"},
        {s->model_classifier_heads > 1, "model.classifier_heads", "1"},
        {s->train_micro_batch_tokens && s->train_micro_batch_tokens < s->train_batch_tokens,
         "train.micro_batch_tokens", "0"},
        {s->train_activation_checkpointing != TRAIN_CHECKPOINTING_NONE,
         "train.activation_checkpointing = block", "none"},
        {s->train_grad_reduce_dtype != TRAIN_GRAD_REDUCE_F32, "train.grad_reduce_dtype = bf16",
         "f32: no gradients are summed"},
        {s->train_compress != TRAIN_COMPRESS_NONE, "train.compress", "none"},
        {s->train_clip_per == TRAIN_CLIP_PER_BUCKET, "train.clip_per = bucket", "model"},
        {s->train_zero_stage > 0, "train.zero_stage", "0"},
        {s->train_rounding == TRAIN_ROUNDING_STOCHASTIC, "train.rounding = stochastic", "nearest"},
        {s->train_layer_drop > 0, "train.layer_drop", "0"},
        {s->train_stages.count > 0, "train.stages", "none of them"},
        {s->train_optimizer == OPTIM_CAME, "train.optimizer = came", "adamw"},
        {s->train_optimizer == OPTIM_MUON, "train.optimizer = muon", "adamw"}};
    if (modules == 1)
        return;
    if (layers < modules)
        config_broken(r,
                      "train.modules = %lld with model.layers = %lld: each module has a layer at "
                      "least; use train.modules = %lld, or model.layers = %lld",
                      modules, layers, layers, modules);
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (not [i].given)
            config_broken(r, "train.modules = %lld with %s; use %s, or train.modules = 1", modules,
                          not [i].key, not [i].use);
    if (s->train_pipeline == TRAIN_PIPELINE_STALE && s->data_objective != DATA_OBJECTIVE_CAUSAL)
        config_broken(
            r,
            "train.pipeline = stale with data.objective = %s: gradients of different steps "
            "are divided by one number of targets; use train.pipeline = sequential, or "
            "data.objective = causal",
            objectives[s->data_objective].name);
}

static void check_clip(struct config_rules *r, const struct settings *s)
{
    const struct config_excluded not [] = {
        {s->train_max_grad_norm <= 0, "train.max_grad_norm = 0", "a clip above 0"},
        {s->train_compress != TRAIN_COMPRESS_NONE, "train.compress", "none"},
        {s->train_layer_drop > 0, "train.layer_drop", "0"},
        {s->train_stages.count > 0, "train.stages", "none of them"},
        {s->train_zero_stage > 1, "train.zero_stage above 1: no rank holds a bucket", "1"}};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (s->train_clip_per == TRAIN_CLIP_PER_BUCKET && not [i].given)
            config_broken(r, "train.clip_per = bucket with %s; use %s, or train.clip_per = model",
                          not [i].key, not [i].use);
}

static void check_schedule(struct config_rules *r, const struct settings *s)
{
    int64_t warmup = keys_warmup(s);
    if (warmup + s->train_stable_steps > s->train_steps)
        config_broken(
            r,
            "train.warmup_steps = %lld and train.stable_steps = %lld together are longer than "
            "train.steps = %lld",
            (long long)warmup, (long long)s->train_stable_steps, (long long)s->train_steps);
    if (s->train_lr_schedule != TRAIN_LR_SCHEDULE_EXPONENTIAL &&
        (s->train_lr_decay_factor != 0.9 || s->train_lr_decay_steps != 250))
        config_broken(
            r,
            "train.lr_decay_factor and train.lr_decay_steps belong to train.lr_schedule = "
            "exponential; train.lr_schedule is %s",
            config_choice_name(train_lr_schedule_choices, s->train_lr_schedule));
}

struct keys_stage keys_stage(const struct settings *s, size_t i)
{
    char *at;
    struct keys_stage x = {.layers = strtoll(s->train_stages.items[i], &at, 10)};
    x.share = *at == '@' ? strtod(at + 1, NULL) : 0;
    return x;
}

/* "LAYERS@SHARE", both numbers and nothing else, the share above 0 and at most 1. */
static bool stage_reads(const char *text)
{
    char *end;
    size_t digits = strspn(text, "0123456789");
    if (!digits || digits > 6 || text[digits] != '@')
        return false;
    text += digits + 1;
    double share = strtod(text, &end);
    return text[strspn(text, "0123456789.")] == 0 && !*end && share > 0 && share <= 1;
}

static void check_emulation(struct config_rules *r, const struct settings *s)
{
    const char *products =
        config_choice_name(device_matmul_precision_choices, s->device_matmul_precision);
    bool hybrid = s->device_matmul_precision == DEVICE_MATMUL_FP8_HYBRID,
         narrow = s->device_matmul_precision != DEVICE_MATMUL_MODEL || s->device_accumulator,
         gpu = s->device_kind == DEVICE_CUDA;
    if (narrow && !gpu && s->device_dtype != DEVICE_DTYPE_F32)
        config_broken(r, "device.%s%s is emulated on the CPU in f32 only; use device.dtype = f32",
                      s->device_accumulator ? "accumulator" : "matmul_precision = ",
                      s->device_accumulator ? "" : products);
    else if (narrow && gpu && (!hybrid || s->device_accumulator))
        config_broken(r,
                      "device.%s%s is emulated on the CPU only; use device.kind = cpu, or "
                      "device.matmul_precision = fp8_hybrid alone",
                      s->device_accumulator ? "accumulator" : "matmul_precision = ",
                      s->device_accumulator ? "" : products);
    if (s->device_accumulator_chunk && !s->device_accumulator)
        config_broken(r,
                      "device.accumulator_chunk = %lld belongs to device.accumulator, which is 0",
                      (long long)s->device_accumulator_chunk);
}

static void check_stage(struct config_rules *r, const struct settings *s, size_t i)
{
    const char *text = s->train_stages.items[i];
    long long layers = keys_stage(s, i).layers, before = i ? keys_stage(s, i - 1).layers : 1;
    if (layers > s->model_layers)
        config_broken(r, "train.stages: \"%.40s\" has %lld layers, model.layers is %lld", text,
                      layers, (long long)s->model_layers);
    else if (layers < before && i)
        config_broken(r,
                      "train.stages: \"%.40s\" has fewer layers than the %lld of the stage before; "
                      "stages only grow",
                      text, before);
    else if (layers < 1)
        config_broken(r, "train.stages: \"%.40s\" has no layer", text);
}

static void check_shares(struct config_rules *r, const struct settings *s)
{
    size_t count = s->train_stages.count;
    double share = 0;
    for (size_t i = 0; i < count; i++) {
        double before = share;
        share += keys_stage(s, i).share;
        if (llround(share * (double)s->train_steps) == llround(before * (double)s->train_steps))
            config_broken(r, "train.stages: \"%.40s\" is less than one of train.steps = %lld",
                          s->train_stages.items[i], (long long)s->train_steps);
    }
    if (fabs(share - 1) > 1e-6)
        config_broken(r, "train.stages: the shares add up to %g, not to 1", share);
    if (keys_stage(s, count - 1).layers < s->model_layers)
        config_broken(r,
                      "train.stages: the last stage has %lld layers, model.layers is %lld; the "
                      "last must have all",
                      (long long)keys_stage(s, count - 1).layers, (long long)s->model_layers);
}

static void check_stages(struct config_rules *r, const struct settings *s)
{
    size_t count = s->train_stages.count, read = 0;
    if (count && *s->run_init_from)
        config_broken(r,
                      "train.stages begins with few layers and overwrites the others; leave it "
                      "out, or run.init_from = %.200s, whose parameters are trained",
                      s->run_init_from);
    for (size_t i = 0; i < count; i++)
        if (stage_reads(s->train_stages.items[i]))
            read++;
        else
            config_broken(
                r, "train.stages: \"%.40s\" is not LAYERS@SHARE with a share above 0, as in 3@0.25",
                s->train_stages.items[i]);
    if (!count || read < count)
        return;
    if (count > KEYS_STAGES_MAX)
        config_broken(r, "train.stages has %zu stages; at most %d are possible", count,
                      KEYS_STAGES_MAX);
    for (size_t i = 0; i < count; i++)
        check_stage(r, s, i);
    check_shares(r, s);
    if (s->model_share_layers)
        config_broken(r, "train.stages with model.share_layers = true: all layers have the same "
                         "parameters, so there is none to add");
    if (s->train_layer_drop > 0)
        config_broken(
            r, "train.stages with train.layer_drop = %g: two rules which layers run; use one",
            s->train_layer_drop);
}

static const double PRIVACY_NOISE_MIN = 0.01;

int64_t keys_unit_sequences(const struct settings *s)
{
    return s->privacy_unit == PRIVACY_UNIT_SEQUENCE ? 1 : s->privacy_unit_sequences;
}

int64_t keys_expected_units(const struct settings *s)
{
    return s->train_batch_tokens / (s->train_seq_len * keys_unit_sequences(s));
}

int64_t keys_bands(const struct settings *s)
{
    return s->privacy_mechanism == PRIVACY_MECHANISM_BANDED ? s->privacy_bands : 1;
}

static void check_mechanism(struct config_rules *r, const struct settings *s)
{
    bool banded = s->privacy_mechanism == PRIVACY_MECHANISM_BANDED;
    const char *sampling = config_choice_name(privacy_sampling_choices, s->privacy_sampling);
    if (s->privacy_bands != 8 && !banded)
        config_broken(r, "privacy.bands belongs to privacy.mechanism = banded; privacy.mechanism "
                         "is independent");
    if (banded && s->privacy_sampling != PRIVACY_SAMPLING_BALLS &&
        s->privacy_sampling != PRIVACY_SAMPLING_CYCLIC)
        config_broken(r,
                      "privacy.mechanism = banded with privacy.sampling = %s: a record could "
                      "return while its noise is still correlated; use privacy.sampling = balls "
                      "or cyclic",
                      sampling);
    if (!banded && s->privacy_sampling == PRIVACY_SAMPLING_CYCLIC)
        config_broken(r, "privacy.sampling = cyclic belongs to privacy.mechanism = banded; use "
                         "privacy.sampling = poisson");
}

static void check_units(struct config_rules *r, const struct settings *s)
{
    long long k = keys_unit_sequences(s), sequence = s->train_seq_len,
              batch = s->train_batch_tokens;
    if (batch % (sequence * k))
        config_broken(r,
                      "train.batch_tokens = %lld is not a multiple of train.seq_len x "
                      "privacy.unit_sequences = %lld x %lld",
                      batch, sequence, k);
    if (s->privacy_unit == PRIVACY_UNIT_OWNER && s->model_classes.count > 1 &&
        s->privacy_clipping == PRIVACY_CLIPPING_GHOST)
        config_broken(r, "privacy.unit = owner with several tasks of model.classes: the examples "
                         "of an owner are not side by side in the heads; use privacy.clipping = "
                         "per_example");
}

/* Refuses settings that make a record's gradient depend on other records, or let a number out that
 * is not charged. */
static void check_privacy(struct config_rules *r, const struct settings *s)
{
    const char *unit = config_choice_name(privacy_unit_choices, s->privacy_unit);
    const struct {
        bool given;
        const char *key, *why, *use;
    } not [] = {
        {s->device_kind != DEVICE_CPU, "device.kind = cuda", "no GPU op clips record by record yet",
         "cpu"},
        {s->device_dtype == DEVICE_DTYPE_BF16, "device.dtype = bf16",
         "norms are compared with f32 sums", "f32"},
        {s->device_matmul_precision != DEVICE_MATMUL_MODEL, "device.matmul_precision",
         "its norms are not tested", "model"},
        {s->device_accumulator > 0, "device.accumulator", "its norms are not tested", "0"},
        {s->data_pairs == DATA_PAIRS_NSP, "data.pairs = nsp",
         "an example holds text of two documents, so two records share it", "sop or none"},
        {s->model_classifier_heads > 1, "model.classifier_heads",
         "its orthogonality loss belongs to no record", "1"},
        {s->train_standardization_weight > 0, "train.standardization_weight",
         "its loss is over the tokens of several records", "0"},
        {s->train_grad_reduce_dtype != TRAIN_GRAD_REDUCE_F32, "train.grad_reduce_dtype = bf16",
         "it rounds a clipped sum further than the noise allows for", "f32"},
        {s->train_modules > 1, "train.modules", "modules do not clip record by record", "1"},
        {s->train_zero_stage > 1, "train.zero_stage above 1",
         "clipping record by record needs the whole gradients and parameters on every rank", "1"},
        {s->train_compress != TRAIN_COMPRESS_NONE, "train.compress",
         "errors that are fed back would let a record act twice", "none"},
        {s->train_clip_per == TRAIN_CLIP_PER_BUCKET, "train.clip_per = bucket",
         "the gradient of a private site is clipped record by record", "model"},
        {s->train_layer_drop > 0, "train.layer_drop", "its norms are not tested", "0"},
        {s->train_stages.count > 0, "train.stages", "its norms are not tested", "none of them"},
        {s->train_profile > 0, "train.profile",
         "it reports the sizes of the batches, which are secret", "0"},
        {s->data_shards == DATA_SHARDS_OWN, "data.shards = own", "sampling is over all files",
         "shared"}};
    if (s->privacy_unit_sequences != 4 && s->privacy_unit < PRIVACY_UNIT_DOCUMENT)
        config_broken(r,
                      "privacy.unit_sequences belongs to privacy.unit = document or owner; "
                      "privacy.unit is %s",
                      unit);
    if (s->privacy_unit == PRIVACY_UNIT_NONE) {
        if (s->privacy_epsilon > 0 || s->privacy_epsilon_max > 0)
            config_broken(
                r, "privacy.epsilon or privacy.epsilon_max with privacy.unit = none: nothing is "
                   "hidden; give privacy.unit, such as sequence");
        return;
    }
    check_units(r, s);
    check_mechanism(r, s);
    if (s->privacy_noise_multiplier == 0 && s->privacy_epsilon == 0)
        config_broken(r,
                      "privacy.unit = %s without noise: give privacy.epsilon, for which the noise "
                      "is computed, or privacy.noise_multiplier",
                      unit);
    if (s->privacy_noise_multiplier > 0 && s->privacy_noise_multiplier < PRIVACY_NOISE_MIN)
        config_broken(r, "privacy.noise_multiplier = %g is below %g: it hides nothing",
                      s->privacy_noise_multiplier, PRIVACY_NOISE_MIN);
    bool fixed = s->privacy_sampling == PRIVACY_SAMPLING_FIXED;
    if (fixed && (s->privacy_epsilon > 0 || s->privacy_epsilon_max > 0))
        config_broken(
            r,
            "privacy.%s = %g with privacy.sampling = fixed: the order of the records "
            "follows from run.seed, which all sites know, so no epsilon can be claimed; "
            "use privacy.sampling = poisson, or neither privacy.epsilon nor privacy.epsilon_max",
            s->privacy_epsilon > 0 ? "epsilon" : "epsilon_max",
            s->privacy_epsilon > 0 ? s->privacy_epsilon : s->privacy_epsilon_max);
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (not [i].given)
            config_broken(r, "privacy.unit = %s with %s: %s; use %s, or privacy.unit = none", unit,
                          not [i].key, not [i].why, not [i].use);
}

double keys_weight(const struct config_list *list, size_t i)
{
    double w;
    return number_good(list->items[i], &w) ? w : (double)NAN;
}

/* Weights of one list; 0 only where `zero` allows it, and not for all. */
static void check_weights(struct config_rules *r, const struct settings *s, const char *key,
                          const struct config_list *list, bool zero)
{
    double sum = 0;
    if (list->count && list->count != s->data_train.count)
        config_broken(r, "%s has %zu items and data.train %zu: each item of data.train needs one",
                      key, list->count, s->data_train.count);
    for (size_t i = 0; i < list->count; i++) {
        double w = keys_weight(list, i);
        if (!*list->items[i])
            config_broken(r, "data.train: map %zu has no %s; where one map has it, each needs one",
                          i + 1, zero ? "anneal_weight" : "weight");
        else if (!(zero ? w >= 0 : w > 0) || w > WEIGHT_MAX)
            config_broken(r, "%s: item %zu is \"%.40s\"; a weight is a number %s 0, at most %g",
                          key, i + 1, list->items[i], zero ? "from" : "above", WEIGHT_MAX);
        sum += w;
    }
    if (list->count && sum == 0)
        config_broken(r, "%s: all are 0; one source at least must have a weight", key);
}

static void check_mixture(struct config_rules *r, const struct settings *s)
{
    const struct {
        bool broken;
        const char *sentence;
    } rules[] = {
        {s->privacy_unit != PRIVACY_UNIT_NONE,
         "data.weights with privacy.unit: a record's chance to be in a step must not depend on its "
         "source; leave data.weights out"},
        {s->data_shards == DATA_SHARDS_OWN,
         "data.weights with data.shards = own: a rank may have no file of a source; use "
         "data.shards = shared"},
        {s->train_modules > 1,
         "data.weights with train.modules: a restart reads the steps before its checkpoint "
         "again, "
         "which may be of other weights; leave data.weights out, or use train.modules = 1"},
        {s->data_train.count > KEYS_SOURCES_MAX, "data.weights: at most 64 items of data.train"},
    };
    for (size_t i = 0; i < s->data_train.count; i++)
        if (!*s->data_train.items[i])
            config_broken(r, "data.train: item %zu names no file; a map needs a glob", i + 1);
    if (!s->data_weights.count) {
        if (s->data_anneal_weights.count)
            config_broken(r, "data.anneal_weights without data.weights: what holds before "
                             "data.anneal_from?");
        return;
    }
    check_weights(r, s, "data.weights", &s->data_weights, false);
    check_weights(r, s, "data.anneal_weights", &s->data_anneal_weights, true);
    if (!s->data_anneal_weights.count != !s->data_anneal_from)
        config_broken(r,
                      "data.anneal_weights and data.anneal_from go together: the weights, and the "
                      "step from which they hold");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].broken)
            config_broken(r, "%s", rules[i].sentence);
}

/* Not refused: train.steps may grow, and then the weights change after all. */
void keys_warning(const struct settings *s, char *out, size_t size_bytes)
{
    *out = 0;
    if (s->data_anneal_from >= s->train_steps && s->data_anneal_from)
        snprintf(out, size_bytes,
                 "data.anneal_from = %lld, and the run ends at train.steps = %lld: no step is "
                 "trained with data.anneal_weights; lower data.anneal_from, or raise train.steps",
                 (long long)s->data_anneal_from, (long long)s->train_steps);
}

void keys_check(struct config_rules *r, const struct settings *s)
{
    check_name(r, s->run_name);
    if (!*s->run_dir)
        config_broken(r, "run.dir is empty; name the directory of this run");
    check_model(r, s);
    check_objective(r, s);
    check_batch(r, s);
    check_optimizer(r, s);
    check_compress(r, s);
    check_clip(r, s);
    check_modules(r, s);
    check_schedule(r, s);
    check_emulation(r, s);
    check_stages(r, s);
    check_privacy(r, s);
    check_mixture(r, s);
}
