/* SPDX-License-Identifier: Apache-2.0 */
/* One site of a run, in C, with libatoll: a toy trainer among sites of `atoll train`.
 *
 *     site CONFIG TEXT [section.key=value ...]
 *
 * It holds the tensors of the run's model and trains one of them: wte.weight, as the table of a
 * bigram model, whose logits for the byte after x are wte[x] . wte[0..255]. A checkpoint every ten
 * steps, and one when it is asked to stop; after kill -9 the same command continues from it.
 */
#include <atoll.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, WIDTH = 32, CONTEXT = 64, VOCAB = 256, HIDDEN = 4 * WIDTH }; /* as run.yaml */
enum { TENSORS = 4 + 12 * LAYERS, PAIRS = 64, CHECKPOINT_EVERY = 10 };
static const char checkpoint[] = "site.checkpoint";

static char names[TENSORS][48];
static struct atoll_tensor tensors[TENSORS];
static size_t tensor_count;
static struct atoll *run;

static int fail(const char *what, int code)
{
    fprintf(stderr, "%s: %s\n", what, atoll_error());
    return code;
}

/* ---- the model ---- */

static void add(const char *name, int layer, int64_t rows, int64_t columns)
{
    struct atoll_tensor *t = &tensors[tensor_count];
    snprintf(names[tensor_count], sizeof *names, layer < 0 ? "%.0d%s" : "layers.%d.%s",
             layer < 0 ? 0 : layer, name);
    t->name = names[tensor_count++];
    t->dims = columns ? 2 : 1;
    t->shape[0] = rows;
    t->shape[1] = columns;
    t->data = calloc((size_t)(rows * (columns ? columns : 1)), sizeof(float));
}

/* The table of a GPT-2 with these sizes: inner/model/table.h, docs/library.md. */
static void add_all(void)
{
    add("wte.weight", -1, VOCAB, WIDTH);
    add("wpe.weight", -1, CONTEXT, WIDTH);
    for (int l = 0; l < LAYERS; l++) {
        add("norm1.weight", l, WIDTH, 0);
        add("norm1.bias", l, WIDTH, 0);
        add("attn.qkv.weight", l, 3 * WIDTH, WIDTH);
        add("attn.qkv.bias", l, 3 * WIDTH, 0);
        add("attn.proj.weight", l, WIDTH, WIDTH);
        add("attn.proj.bias", l, WIDTH, 0);
        add("norm2.weight", l, WIDTH, 0);
        add("norm2.bias", l, WIDTH, 0);
        add("mlp.up.weight", l, HIDDEN, WIDTH);
        add("mlp.up.bias", l, HIDDEN, 0);
        add("mlp.down.weight", l, WIDTH, HIDDEN);
        add("mlp.down.bias", l, WIDTH, 0);
    }
    add("norm.weight", -1, WIDTH, 0);
    add("norm.bias", -1, WIDTH, 0);
}

static size_t bytes_of(const struct atoll_tensor *t)
{
    return (size_t)(t->shape[0] * (t->dims == 2 ? t->shape[1] : 1)) * sizeof(float);
}

/* ---- the training ---- */

/* One descent on -log softmax(wte[x] . wte)[y]; returns the loss before it. */
static double train_pair(float *wte, int x, int y, float rate)
{
    double p[VOCAB], sum = 0;
    float from[WIDTH], change[WIDTH] = {0};
    memcpy(from, wte + x * WIDTH, sizeof from);
    for (int j = 0; j < VOCAB; j++) {
        double logit = 0;
        for (int i = 0; i < WIDTH; i++)
            logit += (double)from[i] * (double)wte[j * WIDTH + i];
        sum += p[j] = exp(logit);
    }
    for (int j = 0; j < VOCAB; j++) {
        float g = rate * (float)(p[j] / sum - (j == y));
        for (int i = 0; i < WIDTH; i++) {
            change[i] += g * wte[j * WIDTH + i];
            wte[j * WIDTH + i] -= g * from[i];
        }
    }
    for (int i = 0; i < WIDTH; i++)
        wte[x * WIDTH + i] -= change[i];
    return -log(p[y] / sum);
}

/* Which pairs depends on the step alone, so a repeated step is the same step. */
static double train_step(const unsigned char *text, size_t length, int64_t step)
{
    uint64_t random = (uint64_t)step * 0x9e3779b97f4a7c15u + 1;
    double loss = 0;
    for (int i = 0; i < PAIRS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(random >> 33) % (length - 1);
        loss += train_pair(tensors[0].data, text[at], text[at + 1], 0.3f) / PAIRS;
    }
    return loss;
}

/* ---- its checkpoint ---- */

static int64_t load(void)
{
    int64_t step = 0;
    FILE *f = fopen(checkpoint, "rb");
    if (!f || fread(&step, sizeof step, 1, f) != 1)
        step = 0;
    for (size_t i = 0; step && i < tensor_count; i++)
        if (fread(tensors[i].data, bytes_of(&tensors[i]), 1, f) != 1)
            step = 0;
    if (f)
        fclose(f);
    return step;
}

static int save(int64_t step)
{
    int code = atoll_saving(run, step);
    FILE *f = code ? NULL : fopen("site.checkpoint.new", "wb");
    int bad = !f || fwrite(&step, sizeof step, 1, f) != 1;
    for (size_t i = 0; !bad && i < tensor_count; i++)
        bad = fwrite(tensors[i].data, bytes_of(&tensors[i]), 1, f) != 1;
    if (f)
        bad |= fclose(f) != 0;
    if (code || bad || rename("site.checkpoint.new", checkpoint))
        return code ? code : 1;
    return atoll_saved(run, step);
}

static void stop(int number)
{
    (void)number;
    atoll_stop(run);
}

static void say(void *self, int level, const char *line)
{
    (void)self;
    if (level >= 2)
        fprintf(stderr, "%s\n", line);
}

static unsigned char *read_text(const char *path, size_t *length)
{
    unsigned char *text = malloc(1 << 20);
    FILE *f = fopen(path, "rb");
    *length = f && text ? fread(text, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    struct atoll_options o = {.size = sizeof o, .tensors = tensors, .log = say};
    struct atoll_report report = {.size = sizeof report, .tokens_per_second = NAN};
    size_t length = 0;
    char digest[65];
    int code = 0;
    unsigned char *text = argc > 2 ? read_text(argv[2], &length) : NULL;
    if (length < 2) {
        fprintf(stderr, "usage: site CONFIG TEXT [section.key=value ...]; TEXT has two bytes\n");
        return 4;
    }
    add_all();
    o.config = argv[1];
    o.settings = (const char *const *)argv + 3;
    o.setting_count = (size_t)argc - 3;
    o.tensor_count = tensor_count;
    if ((code = atoll_open(&run, &o)))
        return fail("open", code);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    int64_t step = load();
    if ((code = atoll_start(run, &step)))
        fail("start", code);
    while (!code && step < atoll_steps(run)) {
        report.loss = train_step(text, length, step++);
        if ((code = atoll_step(run, &step, &report)) && code != ATOLL_STOPPED)
            fail("step", code);
        if (code == ATOLL_STOPPED || (!code && step % CHECKPOINT_EVERY == 0)) {
            int saved = save(step);
            code = saved ? fail("save", saved) : code;
        }
    }
    if (!code && !(code = atoll_digest(run, digest)))
        printf("step %lld, loss %.4f, outer state %s\n", (long long)step, report.loss, digest);
    int closed = atoll_close(run);
    return code ? code : closed ? fail("close", closed) : 0;
}
