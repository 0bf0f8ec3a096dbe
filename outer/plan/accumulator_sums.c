/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/accumulator_sums.h"
#include <stdio.h>
#include <string.h>
#include "inner/train/train.h"
#include "outer/plan/accumulator.h"
#include "outer/record/json_write.h"

static void sums_add(struct accumulator_sums *l, size_t n, const char *of)
{
    size_t i = 0;
    while (i < l->count && l->s[i].n != n)
        i++;
    if (i == ACCUMULATOR_SUMS_MAX)
        return;
    struct accumulator_sum *s = &l->s[i];
    s->n = n;
    l->count += i == l->count;
    size_t used = strlen(s->of);
    if (!strstr(s->of, of))
        snprintf(s->of + used, sizeof s->of - used, "%s%s", used ? ", " : "", of);
}

/* Of a layer: y = x w^T sums over w's columns, dx over its rows, dw over the tokens. */
struct accumulator_sums accumulator_sums_of(const struct run *p)
{
    struct accumulator_sums l = {.count = 0};
    char of[64];
    for (size_t i = 0; i < p->table.count; i++) {
        const struct tensor *x = &p->table.tensors[i];
        const char *name = strchr(x->name + strlen("layers."), '.');
        if (x->group != TABLE_HIDDEN || x->layer > 0 || !name)
            continue;
        size_t length = strlen(name + 1) - strlen(".weight");
        snprintf(of, sizeof of, "%.*s", (int)length, name + 1);
        sums_add(&l, (size_t)x->shape[1], of);
        snprintf(of, sizeof of, "d %.*s", (int)length, name + 1);
        sums_add(&l, (size_t)x->shape[0], of);
    }
    sums_add(&l, table_vocab_padded(&p->s), "d logits");
    sums_add(&l, train_micro_batch_tokens(&p->s, 1), "weight gradients");
    return l;
}

static void print_sum(const struct accumulator_sum *s, int bits, int product)
{
    const struct accumulator one = {bits, product, s->n, 0},
                             two = {bits, product, s->n, ACCUMULATOR_CHUNK};
    double lost = accumulator_lost(&one), chunked = accumulator_lost(&two);
    printf("%8zu  %9.3g %-3s %5d  %9.3g %-3s %5d  2^%-6.1f 2^%-6.1f 2^%-6.1f %s\n", s->n, lost,
           lost < ACCUMULATOR_LOST_MAX ? "yes" : "no", accumulator_least(one), chunked,
           chunked < ACCUMULATOR_LOST_MAX ? "yes" : "no", accumulator_least(two),
           accumulator_error(&one, false), accumulator_error(&two, false),
           accumulator_error(&two, true), s->of);
    fflush(stdout);
}

static void level_json(struct json_write *w, const char *key, const struct accumulator *a)
{
    double lost = accumulator_lost(a);
    json_object(w, key);
    json_real(w, "lost", lost);
    json_bool(w, "ok", lost < ACCUMULATOR_LOST_MAX);
    json_int(w, "least_bits", accumulator_least(*a));
    json_real(w, "error_log2", accumulator_error(a, false));
    json_end(w);
}

static void sums_json(const struct accumulator_sums *l, int bits, int product)
{
    struct json_write w = {.out = stdout, .digits = 6};
    json_object(&w, NULL);
    json_int(&w, "bits", bits);
    json_int(&w, "product_bits", product);
    json_int(&w, "chunk_terms", ACCUMULATOR_CHUNK);
    json_array(&w, "sums");
    for (size_t i = 0; i < l->count; i++) {
        const struct accumulator one = {bits, product, l->s[i].n, 0},
                                 two = {bits, product, l->s[i].n, ACCUMULATOR_CHUNK};
        json_object(&w, NULL);
        json_int(&w, "terms", (int64_t)l->s[i].n);
        json_text(&w, "of", l->s[i].of);
        level_json(&w, "one_level", &one);
        level_json(&w, "chunks", &two);
        json_real(&w, "chunks_in_f32_error_log2", accumulator_error(&two, true));
        json_end(&w);
    }
    json_close(&w);
}

void accumulator_sums_print(const struct accumulator_sums *l, int bits, int product, bool json)
{
    if (json) {
        sums_json(l, bits, product);
        return;
    }
    printf(
        "Sums of products of %d bits of mantissa in accumulators of %d; fp16 has 10, bf16 7; "
        "products\nof fp8 E5M2 have 5, of bf16 15. chunks: of %d terms. error: simulated, of the "
        "sum.\n\n%8s  %-19s  %-19s  %-26s\n%8s  %9s %-3s %5s  %9s %-3s %5s  %-8s %-8s %-8s\n",
        product, bits, ACCUMULATOR_CHUNK, "", "one level", "chunks",
        "error: one level, chunks, chunks in f32", "terms", "lost", "ok", "least", "lost", "ok",
        "least", "", "", "");
    for (size_t i = 0; i < l->count; i++)
        print_sum(&l->s[i], bits, product);
    printf(
        "\nlost: n (1 - VRR), the variance retention ratio of Sakr et al. 2019 (1901.06588); less "
        "than 3.9 is ok.\nleast: bits with which it is. Sums are taken as random; a mean of one "
        "sign needs more bits.\ndevice.accumulator trains so, emulated; without it products "
        "accumulate in f32.\n");
}
