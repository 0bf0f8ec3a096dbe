/* The start-up table: what this rank will hold, said before anything is taken. */
#include "inner/train.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"

struct train_memory train_plan(const struct settings *s, const struct table *t,
                               enum dtype model_type, int ranks)
{
    struct train_memory m = {.moments = optim_plan(s, t, ranks)};
    m.model = model_plan(s, t, model_type, train_micro_tokens(s, ranks), true);
    m.total = m.model.parameters + m.model.model_copy + m.model.gradients + m.model.activations +
              m.model.workspace + m.moments;
    if (m.moments < 2 * m.model.parameters && !strcmp(s->device_kind, "cpu"))
        m.staging = m.model.parameters;
    if (ranks > 1 && !strcmp(s->train_sums, "bf16"))
        m.half = m.model.gradients / 2;
    m.total += m.staging + m.half;
    return m;
}

/* The number of kB behind `name` in /proc/meminfo, or the number that a cgroup's file holds (name
 * ""), in bytes; SIZE_MAX: not known, or "max". Plain stdio: these files have no size. */
static size_t read_bytes(const char *path, const char *name, size_t unit)
{
    char line[128];
    size_t bytes = SIZE_MAX;
    FILE *f = fopen(path, "r");
    while (f && bytes == SIZE_MAX && fgets(line, sizeof line, f)) {
        size_t n = strlen(name);
        unsigned long long number;
        if (!strncmp(line, name, n) && sscanf(line + n, "%llu", &number) == 1)
            bytes = (size_t)number * unit;
    }
    if (f)
        fclose(f);
    return bytes;
}

size_t train_memory_left(void)
{
    size_t machine = read_bytes("/proc/meminfo", "MemAvailable:", 1024);
    size_t limit = read_bytes("/sys/fs/cgroup/memory.max", "", 1);
    size_t used = read_bytes("/sys/fs/cgroup/memory.current", "", 1);
    size_t left = limit == SIZE_MAX || used == SIZE_MAX ? SIZE_MAX
                  : limit > used                        ? limit - used
                                                        : 0;
    return left < machine ? left : machine;
}

/* The largest micro-batch that fits, 0: none does. With the settings as they are it is smaller than
 * theirs. */
static size_t fitting(const struct train *t, bool recompute, size_t bytes)
{
    struct settings s = *t->settings;
    size_t sequences = train_micro_tokens(&s, t->coll->size) / (size_t)s.train_sequence;
    if (recompute)
        s.train_recompute = "block";
    for (size_t n = sequences + recompute; n-- > 1;) {
        s.train_micro_tokens = (int64_t)n * s.train_sequence;
        struct train_memory m = train_plan(&s, &t->table, t->dev->model_type, t->coll->size);
        if (s.train_batch_tokens % s.train_micro_tokens == 0 && m.total <= bytes)
            return (size_t)s.train_micro_tokens;
    }
    return 0;
}

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

enum err train_memory_check(const struct train *t)
{
    const struct train_memory *m = &t->memory;
    size_t have = t->dev->memory_bytes ? t->dev->memory_bytes : train_memory_left();
    log_event(LOG_INFO, "memory",
              "parameters_mib=%.1f model_copy_mib=%.1f gradients_mib=%.1f half_mib=%.1f moments_mib=%.1f "
              "activations_mib=%.1f workspace_mib=%.1f staging_mib=%.1f data_mib=%.1f total_mib=%.1f",
              mib(m->model.parameters), mib(m->model.model_copy), mib(m->model.gradients), mib(m->half),
              mib(m->moments), mib(m->model.activations), mib(m->model.workspace), mib(m->staging), mib(m->data),
              mib(m->total));
    size_t need = m->total - m->data; /* pages of mapped files can be taken back */
    if (need <= have)
        return ERR_OK;
    size_t micro = fitting(t, false, have), again = fitting(t, true, have);
    if (micro)
        return err_set(
            ERR_MEMORY,
            "this rank needs %zu MiB, the machine has %zu MiB left: train.micro_tokens = %zu "
            "would fit; with train.recompute = block also %zu",
            need >> 20, have >> 20, micro, again);
    if (again)
        return err_set(
            ERR_MEMORY,
            "this rank needs %zu MiB, the machine has %zu MiB left: train.recompute = block with "
            "train.micro_tokens = %zu would fit",
            need >> 20, have >> 20, again);
    return err_set(
        ERR_MEMORY,
        "this rank needs %zu MiB, the machine has %zu MiB left: use a smaller model.width, "
        "model.layers or train.sequence",
        need >> 20, have >> 20);
}
