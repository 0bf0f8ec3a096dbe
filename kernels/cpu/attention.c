/* Attention over packed sequences: one task per (sequence, head), computed in attend.c. Tasks share
 * nothing, so the bits do not depend on which thread takes which. */
#include "kernels/cpu/cpu.h"
#include <omp.h>

typedef void task(const struct rows_attention *r, size_t sequence, size_t head, float *buf);

static void run_tasks(struct cpu *c, task *run, const struct rows_attention *r)
{
    const struct dev_attention *a = r->a;
    size_t longest = 0;
    ASSERT(a->cu_seqlens_host[0] == 0 && (size_t)a->cu_seqlens_host[a->sequences] == a->T);
    for (size_t s = 0; s < a->sequences; s++) {
        size_t length = (size_t)(a->cu_seqlens_host[s + 1] - a->cu_seqlens_host[s]);
        longest = length > longest ? length : longest;
    }
    size_t floats = (c->rows->attention_floats(longest, a->HD) + 15) / 16 * 16;
    float *buf = cpu_scratch(c, 0, (size_t)c->dev.threads * floats * sizeof *buf);
    if (!buf)
        return;
#pragma omp parallel for num_threads(c->dev.threads) schedule(dynamic)
    for (size_t i = 0; i < a->sequences * a->NH; i++)
        run(r, i / a->NH, i % a->NH, buf + (size_t)omp_get_thread_num() * floats);
}

/* out: |err| <= 1e-5 max|v| in f32 for scores below 30; lse: 1e-5 (1 + |lse|). bf16: the same
 * before the result is rounded. */
void cpu_attention_fwd(struct dev *d, void *out, const struct dev_attention *a)
{
    struct cpu *c = cpu_of(d);
    struct rows_attention r = {.a = a, .type = d->model_type, .out = out};
    run_tasks(c, c->rows->attention_fwd, &r);
}

/* dqkv: |err| <= 1e-4 of its largest value in f32; in bf16 2^-6 of it, since out is read back
 * rounded. */
void cpu_attention_bwd(struct dev *d, void *dqkv, const void *dout, const void *out,
                       const struct dev_attention *a)
{
    struct cpu *c = cpu_of(d);
    struct rows_attention r = {
        .a = a, .type = d->model_type, .dqkv = dqkv, .dout = dout, .out_in = out};
    run_tasks(c, c->rows->attention_bwd, &r);
}
