/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers, the fused classifier and logits on the GPU: matrix products (cuda_matmul_run) and
 * the passes around them. Error bounds: kernels/cpu/linear.c. In bf16 the bias is rounded to bf16
 * first, because the library adds it in the type of the result. With operands in fp8 no epilogue is
 * fused.
 */
#include "kernels/cuda/choice.h"
#include "kernels/cuda/cuda.h"
#include <math.h>

static size_t type_bytes(const struct cuda *c)
{
    return dtype_size(c->dev.model_type);
}

/* As cuda_matmul_run; of a product of the model, which may have operands in fp8. */
static bool multiply(struct cuda *c, const struct product *p)
{
    if (!c->gpu.fp8)
        return cuda_matmul_run(c, p);
    return p->epilogue == EPILOGUE_NONE && cuda_fp8_run(c, p);
}

/* The product x w^T of linear_fwd, the classifier and logits. */
static struct product forward(const struct cuda *c, void *y, const struct dev_linear *a)
{
    enum dtype type = c->dev.model_type;
    return (struct product){.a = a->x,
                            .b = a->w,
                            .c = y,
                            .M = a->T,
                            .N = a->N,
                            .K = a->K,
                            .lda = a->K,
                            .ldb = a->K,
                            .ldc = a->N,
                            .b_t = true,
                            .in = type,
                            .out = type};
}

/* The bias in the model type, in scratch memory of the op; NULL: the device failed. */
static const void *bias_model(struct cuda *c, const struct dev_linear *a)
{
    if (c->dev.model_type == DTYPE_F32)
        return a->bias;
    void *bias = cuda_scratch(c, CUDA_SLOT_OP, a->N * type_bytes(c));
    if (bias)
        cuda_cast(&c->dev, bias, a->bias, a->N);
    return bias;
}

/* f32 does without the library's GELU, the probable reason why logits of a tiny GPT were off by
 * more than 2e-6 on an H200. */
static enum epilogue epilogue_of(const struct cuda *c, const struct dev_linear *a)
{
    if (!a->bias)
        return EPILOGUE_NONE;
    bool gelu = a->act == DEV_ACT_GELU_TANH && c->dev.model_type == DTYPE_BF16;
    return gelu ? EPILOGUE_BIAS_GELU : EPILOGUE_BIAS;
}

/* One fused product where the library has it; else the product, then one pass. */
void cuda_linear_fwd(struct dev *d, void *y, const struct dev_linear *a)
{
    struct cuda *c = cuda_of(d);
    bool act = a->act != DEV_ACT_NONE;
    void *sum = act ? a->pre : y; /* x w^T + bias goes here */
    ASSERT(!act || a->pre);
    if (!a->T)
        return;
    struct product p = forward(c, sum, a);
    p.epilogue = epilogue_of(c, a);
    if (p.epilogue != EPILOGUE_NONE && !(p.bias = bias_model(c, a)))
        return;
    if (p.epilogue == EPILOGUE_BIAS_GELU) {
        p.c = y;
        p.pre = a->pre;
    }
    bool fused = multiply(c, &p);
    if (!fused) {
        p = forward(c, sum, a);
        if (!multiply(c, &p))
            return;
    }
    bool left = p.epilogue != EPILOGUE_BIAS_GELU &&
                act; /* the activation, or bias and activation, remain */
    if (left || (!fused && a->bias))
        cuda_bias_act(c, &(struct cuda_bias_act){.y = y,
                                                 .x = sum,
                                                 .bias = fused ? NULL : a->bias,
                                                 .act = a->act,
                                                 .rows = a->T,
                                                 .N = a->N});
}

/* dw (N,K) += dy^T x; dbias += column sums of dy, in the same product where the library can. */
static void weight_gradient(struct cuda *c, const struct dev_linear *a,
                            const struct dev_linear_grad *g)
{
    struct product p = {.a = g->dy,
                        .b = a->x,
                        .c = g->dw,
                        .M = a->N,
                        .N = a->K,
                        .K = a->T,
                        .lda = a->N,
                        .ldb = a->K,
                        .ldc = a->K,
                        .a_t = true,
                        .accumulate = true,
                        .gradient = true,
                        .in = c->dev.model_type,
                        .out = DTYPE_F32};
    if (g->dbias) {
        p.sums = cuda_scratch(c, CUDA_SLOT_OP, a->N * sizeof(float));
        if (!p.sums)
            return;
        p.epilogue = EPILOGUE_COLUMN_SUMS;
        if (g->dw && multiply(c, &p)) {
            cuda_add_f32(c, g->dbias, p.sums, a->N);
            return;
        }
        cuda_act_bwd(c, &(struct cuda_act_bwd){.dy = (void *)(uintptr_t)g->dy, /* read: no act */
                                               .dbias = g->dbias,
                                               .act = DEV_ACT_NONE,
                                               .rows = a->T,
                                               .N = a->N});
        p.epilogue = EPILOGUE_NONE;
        p.sums = NULL;
    }
    if (g->dw)
        multiply(c, &p); /* the device records a failure */
}

/* The gradient of the input of a layer whose input is an activation, in one of two ways. */
struct slope_way {
    struct cuda *c;
    const struct dev_linear *a;
    const struct dev_linear_grad *g;
    struct product p; /* without epilogue */
    bool fused, failed;
};

/* Either the product, then a pass for slope and bias sums; or the slope inside the product
 * (DGELU), then a pass that reads for the sums. Both at once (DGELU_BGRAD) reached 288 TFLOP/s on
 * an H200 in dx and dw together, where other layers reach 600 to 640. */
static void slope_run(void *self)
{
    struct slope_way *w = self;
    struct product p = w->p;
    if (w->fused) {
        p.epilogue = EPILOGUE_DGELU;
        p.pre = (void *)(uintptr_t)w->g->pre; /* read */
    }
    w->failed = w->failed || !multiply(w->c, &p);
    if (w->failed || (w->fused && !w->g->pre_dbias))
        return;
    cuda_act_bwd(w->c, &(struct cuda_act_bwd){.dy = w->g->dx,
                                              .dbias = w->g->pre_dbias,
                                              .pre = w->fused ? NULL : w->g->pre,
                                              .act = w->fused ? DEV_ACT_NONE : w->g->act,
                                              .rows = w->a->T,
                                              .N = w->a->K});
}

/* Whether the slope goes into the product: as recorded; while the device tunes, as measured. */
static bool slope_fused(struct slope_way *w)
{
    struct dev *d = &w->c->dev;
    if (w->g->act != DEV_ACT_GELU_TANH || !d->autotune || w->c->gpu.fp8)
        return false;
    const struct choice_product shape = {CHOICE_SLOPE, cuda_matmul_shape(&w->p)};
    int decided = choice_product_find(d->chosen, shape);
    if (decided >= 0 || d->autotune != DEV_TUNING_NOW || w->c->graphs.capturing)
        return decided == 1;
    double ms[2];
    for (int fused = 0; fused < 2; fused++) {
        struct slope_way way = *w;
        way.fused = fused;
        slope_run(&way); /* which measures the product's algorithms, if need be */
        ms[fused] = way.failed ? INFINITY : cuda_ms(w->c, slope_run, &way);
    }
    bool fused = choice_fastest(ms, 2) == 1;
    cuda_log(false, "product", "slope=gelu M=%zu N=%zu K=%zu pass_ms=%.4f fused_ms=%.4f kept=%s",
             w->p.M, w->p.N, w->p.K, ms[0], ms[1], fused ? "fused" : "pass");
    return choice_product_keep(d->chosen, sizeof d->chosen, shape, fused) && fused;
}

/* False: the device failed. */
static bool input_gradient(struct cuda *c, const struct dev_linear *a,
                           const struct dev_linear_grad *g)
{
    struct slope_way w = {.c = c,
                          .a = a,
                          .g = g,
                          .p = {.a = g->dy,
                                .b = a->w,
                                .c = g->dx,
                                .M = a->T,
                                .N = a->K,
                                .K = a->N,
                                .lda = a->N,
                                .ldb = a->K,
                                .ldc = a->K,
                                .gradient = true,
                                .in = c->dev.model_type,
                                .out = c->dev.model_type}};
    if (g->act == DEV_ACT_NONE)
        return multiply(c, &w.p);
    w.fused = slope_fused(&w);
    slope_run(&w);
    if (w.failed && w.fused && !c->dev.failed) { /* what was recorded is not there any more */
        w.fused = w.failed = false;
        slope_run(&w);
    }
    return !w.failed;
}

void cuda_linear_bwd(struct dev *d, const struct dev_linear *a, const struct dev_linear_grad *g)
{
    struct cuda *c = cuda_of(d);
    ASSERT(g->act == DEV_ACT_NONE || (g->pre && g->dx));
    if (!a->T || (g->dx && !input_gradient(c, a, g)))
        return;
    weight_gradient(c, a, g);
}

void cuda_activation_bwd(struct dev *d, void *dy, float *dbias, const struct dev_activation *a)
{
    if (a->T)
        cuda_act_bwd(
            cuda_of(d),
            &(struct cuda_act_bwd){
                .dy = dy, .dbias = dbias, .pre = a->pre, .act = a->act, .rows = a->T, .N = a->N});
}

void cuda_logits(struct dev *d, float *logits, const struct dev_linear *a)
{
    struct cuda *c = cuda_of(d);
    struct product p = forward(c, logits, a);
    p.out = DTYPE_F32;
    if (multiply(c, &p) && a->bias && a->T) /* the device records a failure */
        cuda_bias_f32(c, logits, a->bias, a->T, a->N);
}

void cuda_matmul(struct dev *d, const struct dev_matmul *a)
{
    struct cuda *c = cuda_of(d);
    struct product p = {.a = a->a,
                        .b = a->b,
                        .c = a->c,
                        .M = a->M,
                        .N = a->N,
                        .K = a->K,
                        .lda = a->a_t ? a->M : a->K,
                        .ldb = a->b_t ? a->K : a->N,
                        .ldc = a->N,
                        .a_t = a->a_t,
                        .b_t = a->b_t,
                        .in = c->dev.model_type,
                        .out = a->out};
    cuda_matmul_run(c, &p); /* the device records a failure */
}

/* Logits whose gradient is wanted are in the model type, which the products of the gradient read;
 * losses alone are those of f32. */
static enum dtype logit_type(const struct cuda *c, const struct dev_classifier *a)
{
    return a->dx ? c->dev.model_type : DTYPE_F32;
}

/* One chunk: rows first .. first + rows. False: the device failed. */
static bool classify(struct cuda *c, const struct dev_classifier *a, void *logits, size_t first,
                     size_t rows)
{
    size_t C = a->C, VP = a->VP;
    enum dtype type = c->dev.model_type;
    const void *x = (const char *)a->x + first * C * type_bytes(c);
    const struct dev_linear linear = {.x = x, .w = a->w, .T = rows, .K = C, .N = VP};
    struct product p = forward(c, logits, &linear);
    p.out = logit_type(c, a);
    if (!multiply(c, &p))
        return false;
    cuda_xent(c, &(struct cuda_xent){.losses = a->losses + first,
                                     .logits = logits,
                                     .type = p.out,
                                     .gradient = a->dx != NULL,
                                     .targets = a->targets + first,
                                     .grad_scale = a->grad_scale,
                                     .rows = rows,
                                     .V = a->V,
                                     .width = VP,
                                     .bias = a->bias});
    if (!a->dx)
        return true;
    if (a->dbias)
        cuda_act_bwd(
            c, &(struct cuda_act_bwd){
                   .dy = logits, .dbias = a->dbias, .act = DEV_ACT_NONE, .rows = rows, .N = VP});
    struct product dx = {.a = logits,
                         .b = a->w,
                         .c = (char *)a->dx + first * C * type_bytes(c),
                         .M = rows,
                         .N = C,
                         .K = VP,
                         .lda = VP,
                         .ldb = C,
                         .ldc = C,
                         .gradient = true,
                         .in = type,
                         .out = type};
    struct product dw = {.a = logits,
                         .b = x,
                         .c = a->dw,
                         .M = VP,
                         .N = C,
                         .K = rows,
                         .lda = VP,
                         .ldb = C,
                         .ldc = C,
                         .a_t = true,
                         .accumulate = true,
                         .gradient = true,
                         .in = type,
                         .out = DTYPE_F32};
    return multiply(c, &dx) && (!a->dw || multiply(c, &dw));
}

/* One chunk of rows exists at a time. Columns V .. VP are computed, are left out of the softmax and
 * get gradient 0. */
void cuda_classifier(struct dev *d, const struct dev_classifier *a)
{
    struct cuda *c = cuda_of(d);
    if (!a->T)
        return;
    size_t row = a->VP * dtype_size(logit_type(c, a));
    size_t chunk = dev_logit_rows(DEV_LOGITS_CUDA, a->T, row);
    void *logits = cuda_scratch(c, CUDA_SLOT_LOGITS, chunk * row);
    if (!logits)
        return;
    for (size_t first = 0; first < a->T; first += chunk)
        if (!classify(c, a, logits, first, a->T - first < chunk ? a->T - first : chunk))
            return;
}
