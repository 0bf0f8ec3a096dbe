/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/load.h"
#include <stdio.h>
#include <string.h>
#include "inner/data/shard.h"
#include "inner/io/checkpoint.h"
#include "outer/aggregator/aggregator.h"
#include "outer/record/directory.h"
#include "outer/wire/wire.h"
#include "outer/record/jsonl.h"
#include "outer/store/outer_state.h"

/* ---- comparison of the models ---- */
/* The lines of a canonical text whose keys begin with `section`. */
static enum err lines_of(const char *text, const char *section, struct arena *a, char **out)
{
    size_t used = 0;
    TRY_ALLOC(*out = arena_alloc(a, strlen(text) + 2));
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\n");
        n += text[n] == '\n';
        if (strncmp(text, section, strlen(section)) != 0)
            continue;
        memcpy(*out + used, text, n);
        used += n;
    }
    (*out)[used] = 0;
    return ERR_OK;
}

static enum err compare(struct load *l, const char *dir, const char *section, const char *ours,
                        const char *theirs)
{
    const struct config_table inner = keys_inner(NULL);
    char *here, *there, *text;
    TRY(lines_of(ours, section, &l->run.perm, &here));
    TRY(lines_of(theirs, section, &l->run.perm, &there));
    TRY(config_difference(&inner, 1, here, there, &l->run.perm, &text));
    if (!*text)
        return ERR_OK;
    return err_set(ERR_MISMATCH, "%s holds another model than the configuration describes: %s", dir,
                   text);
}

/* ---- mean of states ---- */
/* mean, of count - 1 arrays: x is the next one. The newest comes first. */
static void mean_take(float *mean, const float *x, size_t n, uint64_t count)
{
    for (size_t i = 0; i < n; i++)
        mean[i] += (x[i] - mean[i]) / (float)count;
}

/* ---- inner checkpoint ---- */
/* meta->settings may be empty (checkpoint without settings): then only the tensors are compared. */
static enum err checkpoint_model_check(struct load *l, const char *dir,
                                       const struct checkpoint_meta *meta)
{
    const struct config_table inner = keys_inner(&l->run.s);
    struct digest want = table_digest(&l->run.table);
    char *ours;
    TRY(config_canonical(&inner, 1, &l->run.perm, &ours));
    if (*meta->settings)
        TRY(compare(l, dir, "model.", ours, meta->settings));
    if (digest_equal(&meta->model, &want))
        return ERR_OK;
    return err_set(ERR_MISMATCH, "%s holds other tensors than the configuration describes", dir);
}

static enum err checkpoint_params_read(struct load *l, const char *dir,
                                       const struct checkpoint_meta *meta,
                                       const struct checkpoint_reader *r, float *params)
{
    size_t bytes = l->run.table.elements * sizeof *params;
    TRY(checkpoint_model_check(l, dir, meta));
    if (checkpoint_part_bytes(r, "params") != bytes)
        return err_set(ERR_INPUT, "%s holds no parameters", dir);
    TRY(checkpoint_get(r, "params", 0, params, bytes));
    return ERR_OK;
}

/* Of the newest checkpoint of a step below *before, which becomes its step; `newer` are read. */
static enum err checkpoint_params(struct load *l, const char *dir, uint64_t newer, uint64_t *before,
                                  float *params)
{
    struct checkpoint_reader *r;
    struct checkpoint_meta meta;
    enum err e = checkpoint_look(&r, dir, *before, &meta);
    if (e == ERR_INPUT && newer)
        return err_set(e,
                       "--mean %lld: %s has %llu checkpoints; train.checkpoint_keep is how many a "
                       "run keeps",
                       (long long)l->states, dir, (unsigned long long)newer);
    TRY(e);
    e = checkpoint_params_read(l, dir, &meta, r, params);
    checkpoint_close(r);
    *before = meta.step;
    return e;
}

static enum err load_checkpoint(struct load *l, const char *dir)
{
    uint64_t step = UINT64_MAX;
    float *older = NULL;
    TRY(checkpoint_params(l, dir, 0, &step, l->params));
    l->step = l->finished = (int64_t)step;
    snprintf(l->source, sizeof l->source, "%.256s, step %lld", dir, (long long)l->step);
    if (l->states > 1)
        TRY_ALLOC(older = arena_array(&l->run.perm, l->run.table.elements, sizeof *older));
    for (uint64_t i = 1; i < (uint64_t)l->states; i++) {
        TRY(checkpoint_params(l, dir, i, &step, older));
        mean_take(l->params, older, l->run.table.elements, i + 1);
    }
    if (l->states > 1)
        snprintf(l->source, sizeof l->source,
                 "%.256s, mean of %lld checkpoints, steps %llu to %lld", dir, (long long)l->states,
                 (unsigned long long)step, (long long)l->step);
    TRY_ALLOC(l->checkpoints = arena_string(&l->run.perm, dir, strlen(dir)));
    return ERR_OK;
}

/* ---- outer state ---- */
/* run.cfg: an aggregator's settings. The settings that determine the place of each value must equal
 * ours. outer_state_load checks the parts of the state; settings of the training do not matter.
 */
static enum err check_run(struct load *l, struct env *w, const char *dir)
{
    const char *ours = l->run.identity;
    uint8_t *theirs;
    size_t n;
    if (!w->ops->exists(w, "run.cfg"))
        return err_set(ERR_INPUT,
                       "%s holds outer state, but neither checkpoints nor an aggregator's run.cfg; "
                       "name another directory with --from",
                       dir);
    TRY(w->ops->read(w, "run.cfg", WIRE_CONFIG_MAX, &l->run.perm, &theirs, &n));
    static const char *const same[] = {
        "model.",
        "outer.fragments=",
        "outer.partition=",
        "outer.slices=",
        "outer.aggregators=",
        "outer.sites=" /* part of the file names from which a damaged state is rebuilt */};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        TRY(compare(l, dir, same[i], ours, (char *)theirs));
    bool drawn = l->run.o.outer_partition == FRAGMENT_RANDOM;
    return drawn ? compare(l, dir, "run.seed=", ours, (char *)theirs) : ERR_OK;
}

/* One of several aggregators commits only the rounds of its own fragments; of the others it holds
 * round 0. */
static enum err check_share(const struct load *l, const struct outer_state *m, const char *dir)
{
    char missing[6 * ROUND_FRAGMENTS_MAX] = "";
    size_t used = 0;
    if (l->run.o.outer_aggregators <= 1)
        return ERR_OK;
    for (unsigned f = 0; f < m->fragments->count; f++)
        if (m->state[f].round == 0)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%u",
                                     used ? ", " : "", f);
    return err_set(ERR_CONFIG,
                   "%s is of one of outer.aggregators = %lld and holds only its share: "
                   "no rounds of fragments %s; name a site's run directory with --from",
                   dir, (long long)l->run.o.outer_aggregators, missing);
}

/* The fragment's theta becomes the mean of its newest l->states rounds. older: memory of as many
 * values. */
static enum err outer_theta_mean(const struct load *l, struct outer_state *m, unsigned fragment,
                                 float *older, const char *dir)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    for (uint64_t i = 1; i < (uint64_t)l->states; i++) {
        if (s->round <= i) /* round 0 is what the run began from */
            return err_set(ERR_INPUT, "--mean %lld: %s has %llu rounds of fragment %u",
                           (long long)l->states, dir, (unsigned long long)s->round, fragment);
        if (!outer_state_kept(m, fragment, s->round - i))
            return err_set(ERR_INPUT,
                           "--mean %lld: %s does not keep round %llu of fragment %u; "
                           "serve.keep_states is how many rounds a run keeps",
                           (long long)l->states, dir, (unsigned long long)(s->round - i), fragment);
        TRY(outer_state_load_theta(m, fragment, s->round - i, older));
        mean_take(s->theta, older, m->fragments->f[fragment].elements, i + 1);
    }
    return ERR_OK;
}

static enum err outer_theta_copy(struct load *l, struct outer_state *m, struct dev *cpu,
                                 const struct fragments *f, const char *dir)
{
    if (!outer_state_begun(m))
        return err_set(ERR_INPUT, "%s holds no outer state of outer.fragments = %lld", dir,
                       (long long)l->run.o.outer_fragments);
    TRY(outer_state_load(m));
    TRY(check_share(l, m, dir));
    float *older = NULL;
    if (l->states > 1)
        TRY_ALLOC(older = arena_array(&l->run.perm, fragment_largest(f), sizeof *older));
    for (unsigned i = 0; i < f->count; i++) {
        if (f->f[i].state != FRAGMENT_PARAMETERS)
            continue;
        TRY(outer_theta_mean(l, m, i, older, dir));
        fragment_scatter(cpu, l->params, m->state[i].theta, &f->f[i]);
    }
    l->step = -1;
    uint64_t round = m->state[0].round;
    l->finished = round ? schedule_step(&m->schedule, 0, round - 1) : 0;
    if (l->states > 1)
        snprintf(l->source, sizeof l->source, "%.256s, mean of outer rounds %llu to %llu", dir,
                 (unsigned long long)round - (unsigned long long)l->states + 1,
                 (unsigned long long)round);
    else
        snprintf(l->source, sizeof l->source, "%.256s, outer round %llu", dir,
                 (unsigned long long)round);
    return dev_sync(cpu);
}

static enum err load_outer(struct load *l, const char *dir)
{
    struct env *w = NULL;
    struct dev *cpu = NULL;
    struct outer_state m = {0};
    struct dev_options host = {.kind = "cpu", .model_type = "f32"};
    struct outer_state_options o = run_outer_state(&l->run, false);
    o.remake = aggregator_remake;
    enum err e = dev_open(&cpu, &host);
    if (!e)
        e = env_posix_open(&w, dir);
    if (!e)
        e = check_run(l, w, dir);
    if (!e)
        e = outer_state_open(&m, w, cpu, &o, &l->run.perm);
    if (!e)
        e = outer_theta_copy(l, &m, cpu, &l->run.sync.fragments, dir);
    outer_state_close(&m);
    if (w)
        env_posix_close(w);
    dev_close(cpu);
    return e;
}

/* ---- open ---- */
static enum err load_from(struct load *l, const char *from)
{
    char *inner, *current, *outer;
    TRY(directory_check(from, DIRECTORY_ANY));
    TRY_ALLOC(inner = arena_printf(&l->run.perm, "%s/inner", from));
    TRY_ALLOC(current = arena_printf(&l->run.perm, "%s/CURRENT", from));
    TRY_ALLOC(outer = arena_printf(&l->run.perm, "%s/frag", from));
    if (file_exists(inner))
        return load_checkpoint(l, inner);
    if (file_exists(current))
        return load_checkpoint(l, from);
    if (file_exists(outer))
        return load_outer(l, from);
    return err_set(
        ERR_INPUT,
        "%s holds neither checkpoints (%s) nor outer state (%s); train first, or name another "
        "directory with --from",
        from, inner, outer);
}

/* The value of --run.dir among the arguments; NULL: not given. */
static const char *run_dir_given(const struct args *args)
{
    static const char name[] = "--run.dir";
    const char *found = NULL;
    for (int i = 0; i < args->setting_count; i++) {
        const char *word = args->setting[i];
        if (strcmp(word, name) == 0 && i + 1 < args->setting_count)
            found = args->setting[i + 1];
        else if (strncmp(word, name, sizeof name - 1) == 0 && word[sizeof name - 1] == '=')
            found = word + sizeof name;
    }
    return found;
}

/* The configuration that the directory's process recorded at its last start. *text NULL: none. */
static enum err recorded_config(const char *dir, struct arena *a, char **path, char **text)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    *text = NULL;
    TRY_ALLOC(*path = arena_printf(a, "%s/%s", dir, RECORD_FILE));
    if (!jsonl_reader_open(&reader, *path))
        return ERR_OK;
    enum err e = ERR_OK;
    while (e == ERR_OK && jsonl_next(&reader, &row)) {
        const char *config = jsonl_string(&row, "config");
        if (jsonl_is(&row, "start") && *config &&
            !(*text = arena_string(a, config, strlen(config))))
            e = ERR_MEMORY;
    }
    jsonl_reader_close(&reader);
    return e;
}

/* Accepts a zeroed or partly opened struct. */
static void load_close(struct load *l)
{
    model_close(l->model);
    dev_close(l->dev);
    run_close(&l->run);
    *l = (struct load){0};
}

static enum err load_open(struct load *l, const struct load_options *o, const struct args *args)
{
    struct run_source source = {RUN_MODEL, .config = o->config, .args = args};
    const char *dir = o->from ? o->from : run_dir_given(args);
    char *path, *text = NULL;
    *l = (struct load){.perm = &l->run.perm, .states = o->mean > 1 ? o->mean : 1};
    if (dir)
        TRY(directory_check(dir, DIRECTORY_ANY));
    if (!o->config && dir) {
        TRY(recorded_config(dir, &l->run.perm, &path, &text));
        source.text = text;
        source.names = CONFIG_RECORDED;
        source.config = text ? path : NULL;
    }
    enum err e = run_open(&l->run, &source);
    if (!e && !(l->params = arena_array(&l->run.perm, l->run.table.elements, sizeof *l->params)))
        e = ERR_MEMORY;
    if (!e)
        e = load_from(l, o->from ? o->from : l->run.s.run_dir);
    if (e)
        load_close(l);
    return e;
}

void load_put(struct load *l)
{
    const struct dev_range all = slab_all(&l->run.table);
    l->dev->ops->copy(l->dev, model_gather(l->model, all), l->params,
                      all.count * sizeof *l->params);
    model_scatter(l->model, all, true);
    model_params_changed(l->model);
}

enum err load_model(struct load *l, size_t tokens_max)
{
    struct dev_options o = {
        .kind = config_choice_name(device_kind_choices, l->run.s.device_kind),
        .model_type = config_choice_name(device_dtype_choices, l->run.s.device_dtype),
        .threads = (int)l->run.s.device_threads,
        .attention = config_choice_name(device_attention_choices, l->run.s.device_attention)};
    TRY(dev_open(&l->dev, &o));
    TRY(model_open(&l->model, l->dev,
                   &(struct model_options){&l->run.s, &l->run.table, tokens_max, false},
                   &l->run.perm));
    model_set_finished(l->model, l->finished);
    load_put(l);
    TRY(dev_sync(l->dev));
    size_t heads;
    return model_find_heads(l->model, &heads);
}

/* ---- its tokenizer ---- */

static const char *directory_of(const struct config_list *paths, struct arena *a)
{
    const char *path = paths->count ? shard_item_path(paths->items[0]) : "";
    const char *slash = strrchr(path, '/');
    return slash ? arena_string(a, path, (size_t)(slash - path)) : ".";
}

enum err load_tokenizer(const struct settings *s, const char *path, struct tokenizer **t)
{
    struct arena a = arena_make(0);
    const char *places[] = {s->run_dir, directory_of(&s->data_train, &a),
                            directory_of(&s->data_eval, &a)};
    *t = NULL;
    for (size_t i = 0; !path && i < sizeof places / sizeof *places; i++)
        if (places[i] && tokenizer_is_in(places[i]))
            path = places[i];
    enum err e = path ? tokenizer_open(t, path) : ERR_OK;
    arena_free(&a);
    if (!e && *t && tokenizer_size(*t) > s->model_vocab_size)
        e = err_set(ERR_MISMATCH, "%s has %d tokens, more than model.vocab_size = %lld",
                    tokenizer_file(*t), tokenizer_size(*t), (long long)s->model_vocab_size);
    return e;
}

enum err load_run(const struct args *args, const struct load_options *o,
                  enum err (*work)(struct load *l, void *self), void *self)
{
    struct load l = {0};
    enum err e = args->help ? ERR_OK : load_open(&l, o, args);
    if (!e && !args->help)
        e = work(&l, self);
    load_close(&l);
    return e;
}
