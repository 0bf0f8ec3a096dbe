/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over packed sequences against the textbook in double, and its gradient against finite
 * differences: lengths of one token, primes, whole blocks of 64 and not (bf16: products by the
 * library from 64 tokens on); head dimensions with and without padding; heads that share keys and
 * values; windows. If this is wrong, tokens see the future or another sequence. */
#include "tests/kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"

struct attention {
    size_t T, NH, KVH, HD, sequences;
    const int32_t *cu;
    bool causal;
    size_t window;
    double scale, *qkv, *out, *lse, *dout;
    double largest; /* scaled score */
};

static void head_fwd(struct attention *a, size_t first, size_t end, size_t head)
{
    size_t C = a->NH * a->HD, row = (a->NH + 2 * a->KVH) * a->HD;
    size_t shared = head * a->KVH / a->NH * a->HD; /* heads in a row share, rounded down */
    const double *q = a->qkv + head * a->HD, *k = a->qkv + C + shared, *v = k + a->KVH * a->HD;
    for (size_t i = first; i < end; i++) {
        size_t keys = a->causal ? i + 1 : end, from = first, half = a->window / 2;
        if (a->window && i > half && i - half > from)
            from = i - half;
        if (a->window && i + half + 1 < keys)
            keys = i + half + 1;
        double *p = malloc((end - first) * sizeof *p), top = -1e300, sum = 0;
        for (size_t j = from; j < keys; j++) {
            double s = 0;
            for (size_t c = 0; c < a->HD; c++)
                s += q[i * row + c] * k[j * row + c];
            p[j - first] = s * a->scale;
            top = fmax(top, p[j - first]);
        }
        for (size_t j = from - first; j < keys - first; j++)
            sum += p[j] = exp(p[j] - top);
        a->lse[head * a->T + i] = top + log(sum);
        a->largest = fmax(a->largest, top);
        for (size_t c = 0; c < a->HD; c++) {
            double o = 0;
            for (size_t j = from; j < keys; j++)
                o += p[j - first] / sum * v[j * row + c];
            a->out[i * C + head * a->HD + c] = o;
        }
        free(p);
    }
}

static double attention_loss(const void *ctx)
{
    struct attention copy = *(const struct attention *)ctx, *a = &copy;
    double loss = 0;
    for (size_t s = 0; s < a->sequences; s++)
        for (size_t h = 0; h < a->NH; h++)
            head_fwd(a, (size_t)a->cu[s], (size_t)a->cu[s + 1], h);
    for (size_t i = 0; i < a->T * a->NH * a->HD; i++)
        loss += a->dout[i] * a->out[i];
    return loss;
}

struct heads {
    size_t NH, KVH, HD, window;
};

static void heads_case(struct dev *d, const int32_t *cu, size_t sequences, const struct heads *h,
                       bool causal)
{
    size_t NH = h->NH, KVH = h->KVH, HD = h->HD, window = h->window;
    enum dtype type = d->model_type;
    size_t T = (size_t)cu[sequences], C = NH * HD, size = dtype_size(type);
    size_t row = (NH + 2 * KVH) * HD;
    struct attention a = {T,
                          NH,
                          KVH,
                          HD,
                          sequences,
                          cu,
                          causal,
                          window,
                          (double)(float)(1 / sqrt((double)HD)),
                          numbers(T * row, 1, type),
                          doubles(T * C),
                          doubles(NH * T),
                          numbers(T * C, 1, type),
                          0};
    struct dev_attention args = {.qkv = upload(d, a.qkv, T * row, type),
                                 .cu_seqlens = upload_ints(d, cu, sequences + 1),
                                 .cu_seqlens_host = cu,
                                 .sequences = sequences,
                                 .T = T,
                                 .NH = NH,
                                 .KVH = KVH,
                                 .HD = HD,
                                 .causal = causal,
                                 .window = window,
                                 .scale = (float)a.scale,
                                 .lse = room(d, NH * T * sizeof(float))};
    void *out[2], *dqkv[2], *dout = upload(d, a.dout, T * C, type);
    for (int i = 0; i < 2; i++) {
        out[i] = room(d, T * C * size);
        dqkv[i] = room(d, T * row * size);
        d->ops->attention_fwd(d, out[i], &args);
        d->ops->attention_bwd(d, dqkv[i], dout, out[i], &args);
    }
    snprintf(strchr(check_place, '=') + 2, 60, " T=%zu NH=%zu/%zu HD=%zu causal=%d window=%zu", T,
             NH, KVH, HD, causal, window);
    attention_loss(&a);
    near("out", d, out[0], type, a.out, T * C, bound(d, 2e-6, 0.0078));
    near("lse", d, args.lse, DTYPE_F32, a.lse, NH * T, 2e-6);
    near_slope("dqkv", d, dqkv[0], type, 0, attention_loss, &a, a.qkv, T * row,
               bound(d, 1e-5, 0.015));
    same_bytes(d, out[0], out[1], T * C * size);
    same_bytes(d, dqkv[0], dqkv[1], T * row * size);
}

/* Every score counts, those of the heads and sequences apart; what is larger stays; the lse too. */
static void largest_case(struct dev *d, const int32_t *cu, size_t sequences, const struct heads *h,
                         bool causal)
{
    size_t T = (size_t)cu[sequences], row = (h->NH + 2 * h->KVH) * h->HD, C = h->NH * h->HD;
    enum dtype type = d->model_type;
    for (int sign = -1; sign <= 1; sign += 2) {
        struct attention a = {.T = T,
                              .NH = h->NH,
                              .KVH = h->KVH,
                              .HD = h->HD,
                              .sequences = sequences,
                              .cu = cu,
                              .causal = causal,
                              .window = h->window,
                              .scale = 0.25,
                              .qkv = numbers(T * row, 1, type),
                              .out = doubles(T * C),
                              .lse = doubles(h->NH * T)};
        for (size_t i = 0; sign < 0 && i < T * row; i++) /* all scores below 0 */
            a.qkv[i] = i % row < C ? -fabs(a.qkv[i]) : fabs(a.qkv[i]);
        struct dev_attention args = {.qkv = upload(d, a.qkv, T * row, type),
                                     .cu_seqlens = upload_ints(d, cu, sequences + 1),
                                     .cu_seqlens_host = cu,
                                     .sequences = sequences,
                                     .T = T,
                                     .NH = h->NH,
                                     .KVH = h->KVH,
                                     .HD = h->HD,
                                     .causal = causal,
                                     .window = h->window,
                                     .scale = 0.25f};
        a.largest = -INFINITY;
        for (size_t s = 0; s < sequences; s++)
            for (size_t i = 0; i < h->NH; i++)
                head_fwd(&a, (size_t)cu[s], (size_t)cu[s + 1], i);
        const double before[] = {-INFINITY, a.largest - 0.5, a.largest + 0.5};
        for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
            float *largest = upload(d, &before[i], 1, DTYPE_F32);
            double right = fmax(before[i], a.largest);
            d->ops->attention_largest(d, largest, &args);
            near("largest", d, largest, DTYPE_F32, &right, 1, 1e-6);
        }
    }
    check_done(d);
}

static void check_largest(struct dev *d)
{
    static const int32_t many[] = {0, 1, 2, 9, 40, 41, 72}, two[] = {0, 130, 201};
    for (int causal = 0; causal < 2; causal++) {
        largest_case(d, (const int32_t[]){0, 1}, 1, &(struct heads){1, 1, 4, 0}, causal);
        largest_case(d, many, 6, &(struct heads){3, 3, 7, 0}, causal);
        largest_case(d, two, 2, &(struct heads){4, 2, 16, 0}, causal);
        largest_case(d, two, 2, &(struct heads){2, 1, 8, 20}, causal);
    }
}

static void grouped_case(struct dev *d, const int32_t *cu, size_t sequences, size_t NH, size_t KVH,
                         size_t HD, bool causal)
{
    heads_case(d, cu, sequences, &(struct heads){NH, KVH, HD, 0}, causal);
}

static void attention_case(struct dev *d, const int32_t *cu, size_t sequences, size_t NH, size_t HD,
                           bool causal)
{
    grouped_case(d, cu, sequences, NH, NH, HD, causal);
}

static void check_attention(struct dev *d)
{
    static const int32_t many[] = {0, 1, 2, 9, 40, 41, 72}, block[] = {0, 64},
                         long_one[] = {0, 101};
    for (int causal = 0; causal < 2; causal++) {
        attention_case(d, (const int32_t[]){0, 1}, 1, 1, 4, causal);
        attention_case(d, many, 6, 3, 7, causal);
        attention_case(d, block, 1, 2, 32, causal);
        attention_case(d, long_one, 1, 1, 20, causal);
        check_done(d);
    }
    attention_case(d, (const int32_t[]){0, 33, 37}, 2, 1, 128, true);
    attention_case(d, (const int32_t[]){0, 47}, 1, 1, 64, true);
    attention_case(d, (const int32_t[]){0, 128, 194}, 2, 1, 8, true);
    attention_case(d, (const int32_t[]){0, 128}, 1, 2, 8, false);
}

/* Heads that share keys and values: in pairs, threes, all of them; short, long, packed. */
static void check_groups(struct dev *d)
{
    static const int32_t many[] = {0, 1, 9, 72};
    for (int causal = 0; causal < 2; causal++) {
        grouped_case(d, many, 3, 4, 2, 7, causal);
        grouped_case(d, many, 3, 6, 2, 16, causal);
        check_done(d);
        grouped_case(d, (const int32_t[]){0, 101, 130}, 2, 3, 1, 8, causal);
        check_done(d);
    }
}

/* Windows narrower than a block, of several blocks, odd, as long as the sequence and longer. */
static void check_windows(struct dev *d)
{
    static const int32_t many[] = {0, 1, 2, 9, 40, 41, 72}, two[] = {0, 130, 201};
    for (int causal = 0; causal < 2; causal++) {
        heads_case(d, many, 6, &(struct heads){2, 1, 7, 6}, causal);
        heads_case(d, many, 6, &(struct heads){1, 1, 8, 1}, causal);
        heads_case(d, many, 6, &(struct heads){1, 1, 8, 80}, causal);
        check_done(d);
        heads_case(d, two, 2, &(struct heads){2, 1, 8, 20}, causal);
        heads_case(d, two, 2, &(struct heads){1, 1, 16, 128}, causal);
        heads_case(d, two, 2, &(struct heads){1, 1, 4, 3}, causal);
        check_done(d);
    }
}

/* ---- long sequences: bf16 against f32, whose loops the other tests hold against the textbook ----
 */
enum { LONG = 2500 };

struct long_case {
    bool causal;
    size_t window;
};

static void long_run(struct dev *d, const struct long_case *k, double **out, double **dqkv)
{
    static const int32_t cu[] = {0, LONG, LONG + 70};
    enum { T = LONG + 70, NH = 2, HD = 16, C = NH * HD };
    enum dtype type = d->model_type;
    size_t size = dtype_size(type);
    check_index = 0;
    struct dev_attention a = {.qkv = upload(d, numbers(T * 3 * C, 1, DTYPE_BF16), T * 3 * C, type),
                              .cu_seqlens = upload_ints(d, cu, 3),
                              .cu_seqlens_host = cu,
                              .sequences = 2,
                              .T = T,
                              .NH = NH,
                              .KVH = NH,
                              .HD = HD,
                              .causal = k->causal,
                              .window = k->window,
                              .scale = 0.25f,
                              .lse = room(d, NH * T * sizeof(float))};
    void *o = room(d, T * C * size), *grad = room(d, T * 3 * C * size);
    void *dout = upload(d, numbers(T * C, 1, DTYPE_BF16), T * C, type);
    d->ops->attention_fwd(d, o, &a);
    d->ops->attention_bwd(d, grad, dout, o, &a);
    *out = download(d, o, T * C, type);
    *dqkv = download(d, grad, T * 3 * C, type);
}

static void long_case(const struct long_case *k)
{
    enum { T = LONG + 70, C = 32 };
    struct dev *d[2];
    double *out[2], *dqkv[2];
    static const char *types[] = {"f32", "bf16"};
    for (int i = 0; i < 2; i++) {
        struct dev_options o = {.kind = "cpu", .model_type = types[i], .threads = 2};
        assert_int_equal(dev_open(&d[i], &o), ERR_OK);
        long_run(d[i], k, &out[i], &dqkv[i]);
    }
    snprintf(check_place, sizeof check_place, "long causal=%d window=%zu", k->causal, k->window);
    near_doubles("out", out[1], out[0], T * C, 0.0078, 0);
    near_doubles("dqkv", dqkv[1], dqkv[0], T * 3 * C, 0.015, 0);
    const struct matmul *m = cpu_of(d[1])->matmul; /* by its products, where it has any */
    assert_true(!*matmul_bf16(m) || matmul_counts(m).kept >= 8);
    while (check_held_count)
        dev_free(d[0], check_held[--check_held_count]);
    arena_reset(&check_host);
    dev_close(d[0]);
    dev_close(d[1]);
}

/* More key blocks than one product takes: runs of them are joined. */
static void long_sequences(void **state)
{
    (void)state;
    static const struct long_case cases[] = {{false, 0}, {true, 0}, {false, 128}, {false, 4400}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        long_case(&cases[i]);
}

/* Scores of several hundred must neither overflow nor lose the row's sum. */
static void check_large_scores(struct dev *d)
{
    enum dtype type = d->model_type;
    static const int32_t cu[] = {0, 50};
    size_t T = 50, HD = 16;
    struct attention a = {T,
                          1,
                          1,
                          HD,
                          1,
                          cu,
                          true,
                          0,
                          1,
                          numbers(T * 3 * HD, 8, type),
                          doubles(T * HD),
                          doubles(T),
                          doubles(T * HD),
                          0};
    struct dev_attention args = {.qkv = upload(d, a.qkv, T * 3 * HD, type),
                                 .cu_seqlens_host = cu,
                                 .cu_seqlens = upload_ints(d, cu, 2),
                                 .sequences = 1,
                                 .T = T,
                                 .NH = 1,
                                 .KVH = 1,
                                 .HD = HD,
                                 .causal = true,
                                 .scale = 1,
                                 .lse = room(d, T * sizeof(float))};
    void *out = room(d, T * HD * dtype_size(type));
    d->ops->attention_fwd(d, out, &args);
    attention_loss(&a);
    near("out", d, out, type, a.out, T * HD, bound(d, 2e-4, 0.0078));
}

static void attention_agrees(void **state)
{
    (void)state;
    on_every_device(check_attention);
}

static void largest_agrees(void **state)
{
    (void)state;
    on_every_device(check_largest);
}

static void heads_share_keys(void **state)
{
    (void)state;
    on_every_device(check_groups);
}

static void windows_hide(void **state)
{
    (void)state;
    on_every_device(check_windows);
}

static void large_scores(void **state)
{
    (void)state;
    on_every_device(check_large_scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees), cmocka_unit_test(heads_share_keys),
        cmocka_unit_test(windows_hide),     cmocka_unit_test(long_sequences),
        cmocka_unit_test(large_scores),     cmocka_unit_test(largest_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
