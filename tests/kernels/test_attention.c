/* Attention over packed sequences against the textbook in double, and its gradient against finite
 * differences: lengths of one token, primes, whole blocks of 64 and not (bf16: products by the
 * library from 64 tokens on); head dimensions with and without padding; heads that share keys and
 * values. If this is wrong, tokens see the future or another sequence. */
#include "tests/kernels/check.h"

struct attention {
    size_t T, NH, KVH, HD, sequences;
    const int32_t *cu;
    bool causal;
    double scale, *qkv, *out, *lse, *dout;
};

static void head_fwd(const struct attention *a, size_t first, size_t end, size_t head)
{
    size_t C = a->NH * a->HD, row = (a->NH + 2 * a->KVH) * a->HD;
    size_t shared = head * a->KVH / a->NH * a->HD; /* heads in a row share, rounded down */
    const double *q = a->qkv + head * a->HD, *k = a->qkv + C + shared, *v = k + a->KVH * a->HD;
    for (size_t i = first; i < end; i++) {
        size_t keys = a->causal ? i + 1 : end;
        double *p = malloc((keys - first) * sizeof *p), top = -1e300, sum = 0;
        for (size_t j = first; j < keys; j++) {
            double s = 0;
            for (size_t c = 0; c < a->HD; c++)
                s += q[i * row + c] * k[j * row + c];
            p[j - first] = s * a->scale;
            top = fmax(top, p[j - first]);
        }
        for (size_t j = 0; j < keys - first; j++)
            sum += p[j] = exp(p[j] - top);
        a->lse[head * a->T + i] = top + log(sum);
        for (size_t c = 0; c < a->HD; c++) {
            double o = 0;
            for (size_t j = first; j < keys; j++)
                o += p[j - first] / sum * v[j * row + c];
            a->out[i * C + head * a->HD + c] = o;
        }
        free(p);
    }
}

static double attention_loss(const void *ctx)
{
    const struct attention *a = ctx;
    double loss = 0;
    for (size_t s = 0; s < a->sequences; s++)
        for (size_t h = 0; h < a->NH; h++)
            head_fwd(a, (size_t)a->cu[s], (size_t)a->cu[s + 1], h);
    for (size_t i = 0; i < a->T * a->NH * a->HD; i++)
        loss += a->dout[i] * a->out[i];
    return loss;
}

static void grouped_case(struct dev *d, const int32_t *cu, size_t sequences, size_t NH, size_t KVH,
                         size_t HD, bool causal)
{
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
                          (double)(float)(1 / sqrt((double)HD)),
                          numbers(T * row, 1, type),
                          doubles(T * C),
                          doubles(NH * T),
                          numbers(T * C, 1, type)};
    struct dev_attention args = {.qkv = upload(d, a.qkv, T * row, type),
                                 .cu_seqlens = upload_ints(d, cu, sequences + 1),
                                 .cu_seqlens_host = cu,
                                 .sequences = sequences,
                                 .T = T,
                                 .NH = NH,
                                 .KVH = KVH,
                                 .HD = HD,
                                 .causal = causal,
                                 .scale = (float)a.scale,
                                 .lse = room(d, NH * T * sizeof(float))};
    void *out[2], *dqkv[2], *dout = upload(d, a.dout, T * C, type);
    for (int i = 0; i < 2; i++) {
        out[i] = room(d, T * C * size);
        dqkv[i] = room(d, T * row * size);
        d->ops->attention_fwd(d, out[i], &args);
        d->ops->attention_bwd(d, dqkv[i], dout, out[i], &args);
    }
    snprintf(strchr(check_place, '=') + 2, 60, " T=%zu NH=%zu/%zu HD=%zu causal=%d", T, NH, KVH, HD,
             causal);
    attention_loss(&a);
    near("out", d, out[0], type, a.out, T * C, bound(d, 2e-6, 0.0078));
    near("lse", d, args.lse, DTYPE_F32, a.lse, NH * T, 2e-6);
    near_slope("dqkv", d, dqkv[0], type, 0, attention_loss, &a, a.qkv, T * row,
               bound(d, 1e-5, 0.015));
    assert_memory_equal(out[0], out[1], T * C * size);
    assert_memory_equal(dqkv[0], dqkv[1], T * row * size);
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
                          1,
                          numbers(T * 3 * HD, 8, type),
                          doubles(T * HD),
                          doubles(T),
                          doubles(T * HD)};
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

static void heads_share_keys(void **state)
{
    (void)state;
    on_every_device(check_groups);
}

static void large_scores(void **state)
{
    (void)state;
    on_every_device(check_large_scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees),
        cmocka_unit_test(heads_share_keys),
        cmocka_unit_test(large_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
