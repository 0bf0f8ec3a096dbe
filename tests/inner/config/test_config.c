/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a mistyped key trains for a week with the default; two sites run
 * different settings. */
#include "tests/inner/scratch.h"
#include "inner/config/config_yaml.h"
#include "inner/config/keys.h"

static struct arena arena;
static struct settings settings;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    memset(&settings, 0xa5, sizeof settings); /* a field that is not set shows */
    return 0;
}

static enum err load_file(const char *path, int argc, char **argv)
{
    struct config_table table = keys_inner(&settings);
    err_clear();
    return config_load(&table, 1, path, argc, argv, &arena);
}

static enum err load_text(const char *text)
{
    return load_file(scratch_write("c.yaml", text, strlen(text)), 0, NULL);
}

static enum err load_args(int argc, const char **argv)
{
    return load_file(NULL, argc, (char **)(uintptr_t)argv);
}

static enum err check_rules(void)
{
    struct config_rules rules = {0};
    keys_check(&rules, &settings);
    return config_rules_report(&rules);
}

static void defaults_fill_every_field(void **state)
{
    (void)state;
    assert_int_equal(load_file(NULL, 0, NULL), ERR_OK);
    assert_string_equal(settings.run_name, "atoll");
    assert_int_equal(settings.run_seed, 1);
    assert_true(settings.train_lr == 0.003);
    assert_true(settings.model_causal);
    assert_int_equal(settings.data_train.count, 0);
    assert_int_equal(settings.train_optimizer, OPTIM_LAMB);
    assert_int_equal(check_rules(), ERR_OK);
}

static void file_gives_types_to_text(void **state)
{
    (void)state;
    assert_int_equal(
        load_text("# a comment\n"
                  "run:\n  name: no\n  seed: 1e6\n"
                  "model: {bias: no, causal: off, layers: 12}\n"
                  "train:\n  lr: 1e-3\n  optimizer: \"adamw\"\n  min_lr_ratio: .5\n"
                  "data:\n  train:\n  - a*.bin\n  - 'b, c.bin'\n  eval: [x.bin, y.bin]\n"),
        ERR_OK);
    assert_string_equal(settings.run_name, "no"); /* a TEXT key: not false */
    assert_int_equal(settings.run_seed, 1000000);
    assert_false(settings.model_bias);
    assert_false(settings.model_causal);
    assert_int_equal(settings.model_layers, 12);
    assert_true(settings.train_lr == 1e-3 && settings.train_min_lr_ratio == 0.5);
    assert_int_equal(settings.train_optimizer, OPTIM_ADAMW);
    assert_int_equal(settings.data_train.count, 2);
    assert_string_equal(settings.data_train.items[1], "b, c.bin");
    assert_int_equal(settings.data_eval.count, 2);
    assert_string_equal(settings.data_eval.items[1], "y.bin");
}

static void empty_files_and_sections_mean_defaults(void **state)
{
    (void)state;
    assert_int_equal(load_text(""), ERR_OK);
    assert_int_equal(load_text("# nothing\n"), ERR_OK);
    assert_int_equal(load_text("train:\nmodel: {}\n"), ERR_OK);
    assert_int_equal(settings.train_steps, 400);
}

static void command_line_wins_over_file(void **state)
{
    (void)state;
    char *argv[] = {"--train.steps",     "7", "--train.lr=0.5", "--data.train", "a.bin, b.bin",
                    "--model.bias=false"};
    const char *text = "train:\n  steps: 9\n  warmup_steps: 3\n";
    assert_int_equal(load_file(scratch_write("c.yaml", text, strlen(text)), 6, argv), ERR_OK);
    assert_int_equal(settings.train_steps, 7);
    assert_int_equal(settings.train_warmup_steps, 3);
    assert_true(settings.train_lr == 0.5);
    assert_int_equal(settings.data_train.count, 2);
    assert_string_equal(settings.data_train.items[1], "b.bin");
    assert_false(settings.model_bias);
}

/* A path with a comma could otherwise not be given on the command line. */
static void an_item_in_quotes_may_have_a_comma(void **state)
{
    (void)state;
    static const struct {
        const char *text, *items[4];
    } cases[] = {
        {"\"a,b.bin\",c.bin", {"a,b.bin", "c.bin"}},
        {"c.bin, \"a,b.bin\" ,d", {"c.bin", "a,b.bin", "d"}},
        {"\"say \"\"a,b\"\"\"", {"say \"a,b\""}},
        {"a\"b\",c", {"a\"b\"", "c"}},
        {" a b , , c ,", {"a b", "c"}},
        {"\"\",x", {"", "x"}},
        {"", {NULL}},
        {",", {NULL}},
    };
    struct config_table table = keys_inner(&settings);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *argv[] = {"--data.train", (char *)(uintptr_t)cases[i].text};
        size_t n = 0;
        assert_int_equal(config_load(&table, 1, NULL, 2, argv, &arena), ERR_OK);
        for (; cases[i].items[n]; n++)
            assert_string_equal(settings.data_train.items[n], cases[i].items[n]);
        assert_int_equal(settings.data_train.count, n);
    }
    static const char *const bad[] = {"\"a,b", "\"a\"b,c", "\"\"\"", "a,\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *argv[] = {"--data.train", (char *)(uintptr_t)bad[i]};
        assert_int_equal(config_load(&table, 1, NULL, 2, argv, &arena), ERR_CONFIG);
        assert_says("data.train: a quote is not closed, or text follows it");
    }
}

/* A first short try starts; what was given, and what old runs recorded, is left alone. */
static void a_warmup_that_was_not_given_fits(void **state)
{
    (void)state;
    const char *few[] = {"--train.steps=5"}, *some[] = {"--train.steps=39"},
               *enough[] = {"--train.steps=40"},
               *given[] = {"--train.steps=5", "--train.warmup_steps=6"},
               *stable[] = {"--train.steps=50", "--train.stable_steps=45"},
               *too_stable[] = {"--train.steps=50", "--train.stable_steps=46"};
    assert_int_equal(load_args(1, few), ERR_OK);
    assert_int_equal(keys_warmup(&settings), 0);
    assert_int_equal(settings.train_warmup_steps,
                     KEYS_WARMUP); /* on record: train.steps may grow */
    assert_int_equal(load_text("train: {steps: 5, warmup_steps: 40}\n"),
                     ERR_OK); /* a recorded one */
    assert_int_equal(check_rules(), ERR_OK);
    assert_int_equal(check_rules(), ERR_OK);
    assert_int_equal(load_args(1, some), ERR_OK);
    assert_int_equal(keys_warmup(&settings), 3);
    assert_int_equal(settings.train_warmup_steps, 40);
    assert_int_equal(load_args(1, enough), ERR_OK);
    assert_int_equal(keys_warmup(&settings), 40);
    assert_int_equal(load_args(2, given), ERR_OK);
    assert_int_equal(settings.train_warmup_steps, 6);
    assert_int_equal(check_rules(), ERR_CONFIG);
    assert_int_equal(load_text("train: {steps: 5, warmup_steps: 6}\n"), ERR_OK);
    assert_int_equal(settings.train_warmup_steps, 6);
    assert_int_equal(load_args(2, stable), ERR_OK);
    assert_int_equal(keys_warmup(&settings), 5);
    assert_int_equal(check_rules(), ERR_OK);
    assert_int_equal(load_args(2, too_stable), ERR_OK);
    assert_int_equal(check_rules(), ERR_CONFIG);
}

static void one_key_is_explained(void **state)
{
    struct config_table table = keys_inner(&settings);
    char *text;
    (void)state;
    assert_int_equal(config_explain(&table, 1, NULL, "train.warmup_shape", &arena, &text), ERR_OK);
    assert_non_null(strstr(text, "train.warmup_shape\nallowed: linear|quadratic\n"
                                 "default: linear\npinned: equal at every site of a run\n"
                                 "level: advanced\n"));
    assert_int_equal(config_explain(&table, 1, NULL, "train.warmup_stpes", &arena, &text),
                     ERR_CONFIG);
    assert_non_null(strstr(err_message(), "the nearest is train.warmup_steps"));
}

static void what_differs_is_printed_alone(void **state)
{
    struct config_table table = keys_inner(&settings);
    const char *argv[] = {"--train.lr=0.1", "--model.d_model=64"};
    char *text;
    (void)state;
    assert_int_equal(load_args(2, argv), ERR_OK);
    assert_int_equal(config_print_differing(&table, 1, &arena, &text), ERR_OK);
    assert_non_null(strstr(text, "model:\n    d_model: 64  # default: "));
    assert_non_null(strstr(text, "train:\n    lr: 0.1  # default: 0.003\n"));
    assert_null(strstr(text, "warmup"));
    assert_null(strstr(text, "device:"));
    assert_int_equal(load_text(text), ERR_OK);
    assert_true(settings.train_lr == 0.1 && settings.model_d_model == 64);
}

static void all_errors_come_at_once(void **state)
{
    (void)state;
    assert_int_equal(load_text("train:\n"
                               "  setps: 100\n"       /* line 2: mistyped */
                               "  lr: 1_000\n"        /* line 3: no number */
                               "  optimizer: sgd\n"   /* line 4: no such choice */
                               "  warmup_steps: -1\n" /* line 5: out of range */
                               "  steps: [1, 2]\n"    /* line 6: a list */
                               "model:\n"
                               "  lr: 0.1\n"          /* line 8: other section */
                               "  causal: maybe\n"    /* line 9 */
                               "  layers: 2.5\n"      /* line 10 */
                               "  heads:\n    x: 1\n" /* lines 11, 12: too deep */
                               "  d_model: 64\n  d_model: 64\n"),
                     ERR_CONFIG);
    assert_says("c.yaml:2: unknown key train.setps; the nearest is train.steps");
    assert_says("c.yaml:3: train.lr = \"1_000\": allowed is a number from 0 to 100");
    assert_says("c.yaml:4: train.optimizer = \"sgd\": allowed is lamb|adamw");
    assert_says("c.yaml:5: train.warmup_steps = \"-1\": allowed is a whole number from 0 to "
                "1000000000 steps");
    assert_says("c.yaml:6: train.steps takes one value, not a list");
    assert_says("c.yaml:8: unknown key model.lr; the nearest is train.lr");
    assert_says("c.yaml:9: model.causal = \"maybe\": allowed is true or false");
    assert_says("c.yaml:10: model.layers = \"2.5\"");
    assert_says("model.heads holds further keys");
    assert_says("c.yaml:14: model.d_model is here a second time, first on line 13");
}

/* Each field of the maps is a list of its own; what a map does not have is empty. */
static void a_list_of_maps_is_several_lists(void **state)
{
    (void)state;
    assert_int_equal(load_text("data:\n  train:\n    - {glob: 'a, *.bin', weight: 3}\n"
                               "    - glob: b.bin\n      anneal_weight: 0.5\n"),
                     ERR_OK);
    assert_int_equal(settings.data_train.count, 2);
    assert_string_equal(settings.data_train.items[0], "a, *.bin");
    assert_string_equal(settings.data_train.items[1], "b.bin");
    assert_int_equal(settings.data_weights.count, 2);
    assert_string_equal(settings.data_weights.items[0], "3");
    assert_string_equal(settings.data_weights.items[1], "");
    assert_int_equal(settings.data_anneal_weights.count, 2);
    assert_string_equal(settings.data_anneal_weights.items[0], "");
    assert_string_equal(settings.data_anneal_weights.items[1], "0.5");
}

/* What YAML can say and a configuration must not, each with its own sentence. */
static void yaml_beyond_our_shape_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"train: {steps: &a 3}\n", "an anchor (&name) is not allowed"},
        {"train: &t\n  steps: 3\n", "an anchor (&name) is not allowed"},
        {"train:\n  steps: *a\n", "an alias (*name)"},
        {"train:\n  steps: !!int 3\n", "c.yaml:2: a tag (!name) is not allowed"},
        {"data:\n  train: !x [a]\n", "a tag (!name)"},
        {"train: {steps: 3}\n---\ntrain: {steps: 4}\n", "c.yaml:2: a second document"},
        {"train:\n\tsteps: 3\n", "c.yaml:2: a tab"},
        {"train:\n  steps: 3\nrun: {seed: 1}\ntrain:\n  lr: 1\n",
         "c.yaml:4: section train is here a second time, first on line 1"},
        {"- a\n- b\n", "does not hold sections"},
        {"just words\n", "does not hold sections"},
        {"train: 3\n", "c.yaml:1: train is not a section"},
        {"train:\n  steps: 3\n bad\n", "not valid YAML"},
        {"train: {steps: 3\n", "not valid YAML"},
        {"run: {name: \"\xff\xfe\"}\n", "not UTF-8"},
        {"data:\n  train: [[a], b]\n", "c.yaml:2: data.train: a list holds plain values only"},
        {"data:\n  train: [{glob: a}, b]\n",
         "c.yaml:2: data.train: all items of a list are maps, or none is"},
        {"data:\n  train: [a, {glob: b}]\n", "all items of a list are maps, or none is"},
        {"data:\n  train: [{glob: [a]}]\n", "the fields of its maps hold plain values only"},
        {"data:\n  train: [{glob: a, glob: b}]\n",
         "data.train.glob is here a second time in one map"},
        {"data:\n  train: [{glob: a, wieght: 2}]\n",
         "unknown key data.train.wieght; the nearest is data.train.weight"},
        {"data:\n  train: [{glob: a, weight: 2}]\n  weights: [3]\n",
         "c.yaml:3: data.weights is here a second time, first on line 2"},
        {"run:\n  name: [{a: b}]\n", "unknown key run.name.a"},
        {"data:\n  train: [\"a\\nb\"]\n", "control character"},
        {"run: {name: \"a\\x9b\"}\n", "control character"}, /* C1, in UTF-8 */
        {"run: {name: \"a\\0b\"}\n", "zero byte"},
        {"? [a, b]\n: 3\n", "the name of a section is not plain text"},
        {"train:\n  ? [a]\n  : 3\n", "a key of section train is not plain text"},
        {"train:\n  <<: 3\n", "unknown key train.<<"},
        {"train:\n  steps:\n", "train.steps = \"\": allowed is"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(load_text(cases[i].text), ERR_CONFIG);
        assert_says(cases[i].says);
    }
}

static void deep_and_large_files_are_capped(void **state)
{
    (void)state;
    char *text = malloc(CONFIG_FILE_MAX + 2);
    memset(text, '#', CONFIG_FILE_MAX + 1);
    assert_int_equal(load_file(scratch_write("c.yaml", text, CONFIG_FILE_MAX + 1), 0, NULL),
                     ERR_INPUT);
    assert_says("at most 1048576");
    strcpy(text, "train: {steps: {a: ");
    memset(text + 19, '[', 5000);
    text[5019] = '\0';
    assert_int_equal(load_text(text), ERR_CONFIG);
    assert_says("nested more than 32 deep");
    free(text);
}

static void missing_file_is_named(void **state)
{
    (void)state;
    assert_int_equal(load_file(scratch("none.yaml"), 0, NULL), ERR_INPUT);
    assert_says("configuration: ");
    assert_says("none.yaml");
    assert_int_equal(load_file(scratch_root, 0, NULL), ERR_INPUT);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *argv[2], *says;
    } cases[] = {
        {{"--train.stesp", "3"}, "unknown key train.stesp; the nearest is train.steps"},
        {{"--train.zero", "1"}, "command line: train.zero is now named train.zero_stage"},
        {{"--trian.steps=3", NULL}, "unknown key trian.steps; the nearest is train.steps"},
        {{"steps", "3"}, "\"steps\" is not of the form --section.key value"},
        {{"--steps", "3"}, "\"--steps\" is not of the form"},
        {{"--train.steps", NULL}, "--train.steps needs a value"},
        {{"--train.steps", "--train.lr=1"}, "--train.steps needs a value"},
        {{"--train.steps=x", NULL}, "command line: train.steps = \"x\""},
        {{"--train.lr=nan", NULL}, "train.lr = \"nan\""},
        {{"--train.lr=inf", NULL}, "train.lr = \"inf\""},
        {{"--train.lr=0x10", NULL}, "train.lr = \"0x10\""},
        {{"--train.lr=1e999", NULL}, "train.lr = \"1e999\" is out of range"},
        {{"--train.lr=1e-400", NULL}, "train.lr = \"1e-400\" is out of range"},
        {{"--train.lr=1e-60", NULL}, "train.lr = \"1e-60\" is out of range"}, /* 0 as a float */
        {{"--train.lr=1,5", NULL}, "train.lr = \"1,5\""},
        {{"--train.steps=1e-1", NULL}, "train.steps = \"1e-1\""},
        {{"--train.steps=99999999999999999999999", NULL}, "allowed is a whole number"},
        {{"--train.steps= 3", NULL}, "train.steps = \" 3\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *argv[2] = {cases[i].argv[0], cases[i].argv[1]};
        assert_int_equal(load_args(argv[1] ? 2 : 1, argv), ERR_CONFIG);
        assert_says(cases[i].says);
    }
}

static void more_errors_than_fit_are_counted(void **state)
{
    (void)state;
    char text[4096] = "train:\n";
    size_t used = strlen(text);
    for (int i = 0; i < CONFIG_ERRORS_MAX + 3; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "  zz%d: 1\n", i);
    assert_int_equal(load_text(text), ERR_CONFIG);
    assert_says("... and 3 more");
}

struct must {
    const char *site_name;
    int64_t site_count;
};
static void a_key_without_default_must_be_given(void **state)
{
    (void)state;
    struct must m;
    const struct config_key keys[] = {
        {.section = "site",
         .name = "name",
         .type = CONFIG_TEXT,
         .offset = offsetof(struct must, site_name),
         .pinned = true,
         .help = "Who."},
        {.section = "site",
         .name = "count",
         .type = CONFIG_INT,
         .offset = offsetof(struct must, site_count),
         .fallback = "1",
         .max = 9,
         .help = "How many."},
    };
    struct config_table tables[] = {keys_inner(&settings),
                                    {.keys = keys, .count = 2, .values = &m}};
    assert_int_equal(config_load(tables, 2, NULL, 0, NULL, &arena), ERR_CONFIG);
    assert_says("site.name must be given");
    char *argv[] = {"--site.name=a"};
    assert_int_equal(config_load(tables, 2, NULL, 1, argv, &arena), ERR_OK);
    assert_string_equal(m.site_name, "a");
}

static void printed_settings_read_back_to_the_same(void **state)
{
    (void)state;
    const char *argv[] = {"--train.lr=0.1",          "--train.eps=3e-9",
                          "--run.dir=it's # a: dir", "--run.name=-x",
                          "--data.train=*.bin,a b",  "--train.beta2=0.3333333333333333",
                          "--run.seed=9e15"};
    char *first, *second, *canonical[2];
    struct config_table table = keys_inner(&settings);
    assert_int_equal(load_args(7, argv), ERR_OK);
    assert_int_equal(config_print(&table, 1, CONFIG_RECORDED, &arena, &first), ERR_OK);
    assert_int_equal(config_canonical(&table, 1, &arena, &canonical[0]), ERR_OK);
    assert_non_null(strstr(first, "    lr: 0.1  # default: 0.003\n"));
    assert_non_null(strstr(first, "    warmup: 40\n")); /* unchanged: no comment */
    const struct config_text text = {"first", first, strlen(first), CONFIG_RECORDED};
    assert_int_equal(config_load_text(&table, 1, &text, 0, NULL, &arena), ERR_OK);
    assert_string_equal(settings.run_dir, "it's # a: dir");
    assert_string_equal(settings.data_train.items[0], "*.bin");
    assert_int_equal(settings.run_seed, 9000000000000000);
    assert_true(settings.train_beta2 == 0.3333333333333333 && settings.train_eps == 3e-9);
    assert_int_equal(config_print(&table, 1, CONFIG_RECORDED, &arena, &second), ERR_OK);
    assert_string_equal(first, second);
    assert_int_equal(config_canonical(&table, 1, &arena, &canonical[1]), ERR_OK);
    assert_string_equal(canonical[0], canonical[1]);
}

/* 1e-3 and 0.001 are one setting; an unpinned key (run.dir) is each process's own. */
static void canonical_text_follows_values_not_spelling(void **state)
{
    (void)state;
    const char *one[] = {"--train.lr=1e-3", "--run.dir=x", "--model.bias=no"};
    const char *two[] = {"--train.lr=0.00100", "--run.dir=y", "--model.bias=false"};
    const char *three[] = {"--train.lr=0.002", "--model.layers=6"};
    char *a, *b, *c, *difference;
    struct config_table table = keys_inner(&settings);
    assert_int_equal(load_args(3, one), ERR_OK);
    assert_int_equal(config_canonical(&table, 1, &arena, &a), ERR_OK);
    assert_int_equal(load_args(3, two), ERR_OK);
    assert_int_equal(config_canonical(&table, 1, &arena, &b), ERR_OK);
    assert_string_equal(a, b);
    assert_null(strstr(a, "run.dir"));
    assert_non_null(
        strstr(a, "model.bias=false\nmodel.causal=true\nmodel.classes=[]\nmodel.context=128\n"));
    assert_int_equal(config_difference(&table, 1, a, b, &arena, &difference), ERR_OK);
    assert_string_equal(difference, "");
    assert_int_equal(load_args(2, three), ERR_OK);
    assert_int_equal(config_canonical(&table, 1, &arena, &c), ERR_OK);
    assert_int_equal(config_difference(&table, 1, a, c, &arena, &difference), ERR_OK);
    assert_string_equal(difference,
                        "model.bias: false here, true there; model.layers: 4 here, 6 there; "
                        "train.lr: 0.001 here, 0.002 there");
    assert_int_equal(
        config_difference(&table, 1, "a.b=1\nc.d=2\n", "c.d=2\ne.f=3", &arena, &difference),
        ERR_OK);
    assert_string_equal(difference, "a.b: 1 here, not set there; e.f: not set here, 3 there");
    assert_int_equal(config_difference(&table, 1, "=\n\n=x\n", "\n==\n", &arena, &difference),
                     ERR_OK); /* a peer's rubbish */
}

/* A run that was begun before the key was there has no line of it, and is the same run. */
static void a_key_of_later_has_a_line_where_it_is_set(void **state)
{
    (void)state;
    char *before, *same, *other, *difference;
    const char *all[] = {"--train.trust_layers=all"}, *hidden[] = {"--train.trust_layers=hidden"};
    struct config_table table = keys_inner(&settings);
    assert_int_equal(load_args(0, NULL), ERR_OK);
    assert_int_equal(config_canonical(&table, 1, &arena, &before), ERR_OK);
    assert_null(strstr(before, "train.trust_layers"));
    assert_int_equal(load_args(1, all), ERR_OK);
    assert_int_equal(config_canonical(&table, 1, &arena, &same), ERR_OK);
    assert_string_equal(before, same);
    assert_int_equal(load_args(1, hidden), ERR_OK);
    assert_int_equal(config_canonical(&table, 1, &arena, &other), ERR_OK);
    assert_int_equal(config_difference(&table, 1, other, before, &arena, &difference), ERR_OK);
    assert_string_equal(difference, "train.trust_layers: hidden here, not set there");
}

/* ---- two names of a key ---- */

#define SHAPE(X) X(SHAPE_ROUND, round) X(SHAPE_PER_CORNER, per_corner, .recorded = "slow")
CONFIG_ENUM(shape, SHAPE)
CONFIG_CHOICES(shape, SHAPE)
#define RENAMED(X)                                                                                 \
    X(a, sync_every, INT, .recorded = "every", .fallback = "5", .min = 0, .max = 100,              \
      .pinned = true, .help = "")                                                                  \
    X(a, every_s, REAL, .fallback = "0", .min = 0, .max = 100, .pinned = true, .help = "")         \
    X(a, form, CHOICE(shape), .recorded = "shape", .fallback = "round", .pinned = true, .help = "")
struct renamed {
#define X(...) CONFIG_FIELD(__VA_ARGS__)
    RENAMED(X)
#undef X
};
static const struct config_key renamed_keys[] = {
#define X(...) CONFIG_ROW(struct renamed, __VA_ARGS__)
    RENAMED(X)
#undef X
};

static enum err load_renamed(struct renamed *r, const char *text, enum config_names names,
                             bool written)
{
    const struct config_table t = {renamed_keys, 3, .values = r, .written = written};
    const struct config_text source = {"t.yaml", text, strlen(text), names};
    err_clear();
    return config_load_text(&t, 1, &source, 0, NULL, &arena);
}

static const char typed[] = "a:\n    sync_every: 7\n    every_s: 0\n    form: per_corner\n",
                  recorded[] = "a:\n    every: 7\n    every_s: 0\n    shape: slow\n";

static void a_text_is_read_by_its_names(void **state)
{
    struct renamed r;
    (void)state;
    assert_int_equal(load_renamed(&r, typed, CONFIG_TYPED, false), ERR_OK);
    assert_true(r.a_sync_every == 7 && r.a_form == SHAPE_PER_CORNER);
    r = (struct renamed){0};
    assert_int_equal(load_renamed(&r, recorded, CONFIG_RECORDED, false), ERR_OK);
    assert_true(r.a_sync_every == 7 && r.a_form == SHAPE_PER_CORNER);
    assert_int_equal(load_renamed(&r, recorded, CONFIG_TYPED, false), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "t.yaml:2: a.every is now named a.sync_every"));
    assert_non_null(strstr(err_message(), "t.yaml:4: a.shape is now named a.form"));
    assert_int_equal(load_renamed(&r, "a: {form: slow}", CONFIG_TYPED, false), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "a.form = \"slow\" is now named per_corner"));
    assert_int_equal(load_renamed(&r, typed, CONFIG_RECORDED, false), ERR_CONFIG);
    /* A probe file of before. */
    assert_int_equal(load_renamed(&r, "a: {every: 9}", CONFIG_TYPED, true), ERR_OK);
    assert_int_equal(r.a_sync_every, 9);
    assert_int_equal(load_renamed(&r, "a: {every: 9, sync_every: 8}", CONFIG_TYPED, true),
                     ERR_CONFIG);
    assert_non_null(strstr(err_message(), "a.sync_every is here a second time"));
}

static void a_text_is_written_by_its_names(void **state)
{
    struct renamed r = {7, 0, SHAPE_PER_CORNER};
    const struct config_table t = {renamed_keys, 3, .values = &r};
    char *text;
    (void)state;
    assert_int_equal(config_canonical(&t, 1, &arena, &text), ERR_OK);
    assert_string_equal(text, "a.every=7\na.every_s=0\na.shape=slow\n");
    assert_int_equal(config_lines(&t, 1, &arena, &text), ERR_OK);
    assert_string_equal(text, "a.every_s=0\na.form=per_corner\na.sync_every=7\n");
    assert_int_equal(
        config_difference(&t, 1, "a.every=7\nb.c=1\n", "a.every=8\nb.c=2\n", &arena, &text),
        ERR_OK);
    assert_string_equal(text, "a.sync_every: 7 here, 8 there; b.c: 1 here, 2 there");
    assert_int_equal(config_print_typed(&t, 1,
                                        "a:\n    every: 7  # default: 5\n    shape: slow\n"
                                        "    every_s: 0\n    other: slow\n    every:",
                                        &arena, &text),
                     ERR_OK);
    assert_string_equal(text, "a:\n    sync_every: 7  # default: 5\n    form: per_corner\n"
                              "    every_s: 0\n    other: slow\n    every:");
    assert_int_equal(config_explain(&t, 1, NULL, "a.every", &arena, &text), ERR_CONFIG);
    assert_string_equal(err_message(), "a.every is now named a.sync_every");
    assert_int_equal(config_reference(&t, 1, NULL, &arena, &text), ERR_OK);
    assert_non_null(strstr(text, "| `a.every` | `a.sync_every` |\n| `a.shape` | `a.form` |\n"
                                 "| `a.form: slow` | `a.form: per_corner` |\n"));
}

static void reference_lists_every_key(void **state)
{
    (void)state;
    char *page, name[128];
    struct config_table table = keys_inner(&settings);
    assert_int_equal(config_reference(&table, 1, NULL, &arena, &page), ERR_OK);
    for (size_t i = 0; i < table.count; i++) {
        snprintf(name, sizeof name, "| `%s.%s` |", table.keys[i].section, table.keys[i].name);
        assert_non_null(strstr(page, name));
    }
    assert_non_null(strstr(page, "lamb\\|adamw"));
}

static void rules_across_keys(void **state)
{
    (void)state;
    static const struct {
        const char *argv[4], *says;
    } cases[] = {
        {{"--model.heads=3"}, "model.heads = 3 does not divide model.d_model = 128"},
        {{"--model.kv_heads=3"}, "does not divide model.heads = 4; the nearest that does is 4"},
        {{"--model.kv_heads=64"}, "the nearest that does is 4"},
        {{"--model.heads=128", "--model.positions=rope"}, "the nearest larger width is 256"},
        {{"--model.heads=4", "--model.d_model=1028", "--device.kind=cuda"},
         "the nearest is model.heads = 257"},
        {{"--model.heads=1", "--model.d_model=1024", "--device.kind=cuda"},
         "the nearest is model.heads = 4"},
        {{"--model.vocab_size=100"}, "model.vocab_size = 100 is less than the 256 ids"},
        {{"--train.seq_len=256"}, "train.seq_len = 256 is longer than model.max_seq_len = 128"},
        {{"--train.batch_tokens=4000"},
         "train.batch_tokens = 4000 is not a multiple of train.seq_len = 128"},
        {{"--train.micro_batch_tokens=100"}, "train.micro_batch_tokens = 100 is not a multiple"},
        {{"--train.micro_batch_tokens=384"},
         "train.micro_batch_tokens = 384 does not divide train.batch_tokens = 4096"},
        {{"--train.warmup_steps=300", "--train.stable_steps=101"},
         "train.warmup_steps = 300 and train.stable_steps = 101"},
        {{"--model.causal=false"}, "model.causal = false: data.objective = causal has the next id"},
        {{"--data.objective=mlm"}, "model.causal = true: data.objective = mlm needs attention"},
        {{"--data.objective=labels"}, "model.causal = true: data.objective = labels needs"},
        {{"--data.pairs=sop"},
         "data.pairs belongs to data.objective = mlm; data.objective is causal"},
        {{"--data.mask=word"}, "data.mask belongs to data.objective = mlm"},
        {{"--data.mlm_probability=0.3"}, "data.mlm_probability belongs to data.objective = mlm"},
        {{"--data.short_seq_prob=0"}, "data.short_seq_prob belongs to data.objective = mlm"},
        {{"--data.classes=a"}, "data.classes belongs to data.objective = labels"},
        {{"--data.tokenizer_sha256=12"}, "data.tokenizer_sha256 = \"12\" is not 64 hexadecimal"},
        {{"--data.objective=mlm", "--train.seq_len=2"},
         "train.seq_len = 2 is too short for data.objective = mlm: special tokens take 2"},
        {{"--model.classes=3"}, "model.classes without model.pooler = true"},
        {{"--model.classes=3,1", "--model.pooler=true"},
         "model.classes has \"1\"; a task has 2 to"},
        {{"--model.classes=x", "--model.pooler=true"}, "model.classes has \"x\""},
        {{"--model.pooler=true"}, "model.pooler = true with model.causal = true"},
        {{"--model.embedding_size=64"},
         "model.embedding_size = 64 is not model.d_model = 128, and model.head = plain"},
        {{"--model.head=mlm", "--model.activation=swiglu"}, "swiglu is a gate"},
        {{"--model.classifier_heads=4"},
         "model.classifier_heads = 4 needs one task; model.classes has 0"},
        {{"--model.classifier_heads=4", "--model.classes=2,3", "--model.pooler=true"},
         "needs one task; model.classes has 2"},
        {{"--train.heads_drop=0.9"}, "train.heads_drop = 0.9 would drop heads no worse"},
        {{"--train.standardization_weight=0.01"},
         "train.standardization_weight = 0.01 with model.norm_place = pre"},
        {{"--train.stages=5@0.5,4@0.5"}, "\"5@0.5\" has 5 layers, model.layers is 4"},
        {{"--train.stages=3@0.5,2@0.5"}, "has fewer layers than the 3 of the stage before"},
        {{"--train.stages=2@0.5,4@0.4"}, "the shares add up to 0.9"},
        {{"--train.stages=2@0.5,4@0.6"}, "the shares add up to 1.1"},
        {{"--train.stages=2@0.5,4"}, "\"4\" is not LAYERS@SHARE"},
        {{"--train.stages=2@0.5,4@0"}, "\"4@0\" is not LAYERS@SHARE"},
        {{"--train.stages=2@0.5,x@0.5"}, "\"x@0.5\" is not LAYERS@SHARE"},
        {{"--train.stages=2@0.5.5,4@0.5"}, "\"2@0.5.5\" is not LAYERS@SHARE"},
        {{"--train.stages=0@0.5,4@0.5"}, "has no layer"},
        {{"--train.stages=2@1"}, "the last stage has 2 layers, model.layers is 4"},
        {{"--train.stages=2@0.0001,4@0.9999"}, "is less than one of train.steps = 400"},
        {{"--train.stages=2@0.5,4@0.5", "--model.share_layers=true"},
         "train.stages with model.share_layers"},
        {{"--train.stages=2@0.5,4@0.5", "--train.layer_drop=0.5"}, "two rules which layers run"},
        {{"--train.compress=onebit", "--train.optimizer=qhadam"},
         "train.compress = onebit with train.optimizer = qhadam: there is no such method; use "
         "train.optimizer = adamw"},
        {{"--train.compress=onebit"},
         "with train.optimizer = lamb has no bias correction; use train.bias_correction = false"},
        {{"--train.compress=onebit", "--train.optimizer=adamw", "--train.zero_stage=1"},
         "with train.zero_stage: every rank keeps all moments; use 0"},
        {{"--train.compress=onebit", "--train.optimizer=adamw", "--train.grad_reduce_dtype=bf16"},
         "with train.grad_reduce_dtype = bf16: two roundings of the same sums; use f32"},
        {{"--train.compress=onebit", "--train.optimizer=adamw", "--train.layer_drop=0.5"},
         "with train.layer_drop: every step sends all tensors; use 0"},
        {{"--train.compress=onebit", "--train.optimizer=adamw", "--train.compress_start=0.05"},
         "before the warm-up of train.warmup_steps = 40 ends; use train.compress_start = 0.1 or "
         "more"},
        {{"--train.modules=3", "--model.layers=2"},
         "train.modules = 3 with model.layers = 2: each module has a layer at least; use "
         "train.modules = 2, or model.layers = 3"},
        {{"--train.clip_per=bucket", "--train.zero_stage=2"},
         "train.clip_per = bucket with train.zero_stage above 1: no rank holds a bucket; use 1"},
        {{"--privacy.unit=sequence", "--privacy.noise_multiplier=1", "--train.zero_stage=3"},
         "with train.zero_stage above 1: clipping record by record needs the whole gradients"},
        {{"--train.modules=3", "--train.zero_stage=1"},
         "train.modules = 3 with train.zero_stage; use 0, or train.modules = 1"},
        {{"--train.modules=3", "--train.micro_batch_tokens=1024"},
         "train.modules = 3 with train.micro_batch_tokens; use 0, or train.modules = 1"},
        {{"--train.modules=3", "--train.optimizer=muon"},
         "train.modules = 3 with train.optimizer = muon; use adamw, or train.modules = 1"},
        {{"--train.modules=3", "--train.compress=sparse"},
         "train.modules = 3 with train.compress; use none, or train.modules = 1"},
        {{"--train.modules=3", "--train.pipeline=stale", "--data.objective=mlm"},
         "train.pipeline = stale with data.objective = mlm"},
        {{"--train.compress=zeroone"},
         "train.compress = zeroone with train.optimizer = lamb: there is no such method; use "
         "train.optimizer = adamw"},
        {{"--train.compress=zeroone", "--train.optimizer=adamw", "--train.compress_start=0.05"},
         "before the warm-up of train.warmup_steps = 40 ends; use train.compress_start = 0.1 or "
         "more"},
        {{"--train.compress=zeroone", "--train.optimizer=adamw", "--train.local_max=12"},
         "train.local_max = 12 is not a power of two; the nearest are 8 and 16"},
        {{"--train.local_max=8"}, "belong to train.compress = zeroone; train.compress is none"},
        {{"--train.compress=sparse", "--train.zero_stage=1"},
         "train.compress = sparse with train.zero_stage"},
        {{"--train.clip_per=bucket", "--train.max_grad_norm=0"},
         "train.clip_per = bucket with train.max_grad_norm = 0; use a clip above 0, or "
         "train.clip_per"},
        {{"--train.clip_per=bucket", "--train.layer_drop=0.5"},
         "train.clip_per = bucket with train.layer_drop; use 0"},
        {{"--train.sparse_share=0.2"},
         "train.sparse_share and train.sparse_momentum belong to train.compress = sparse"},
        {{"--train.sparse_momentum=0.5", "--train.compress=onebit", "--train.optimizer=adamw"},
         "belong to train.compress = sparse; train.compress is onebit"},
        {{"--train.sparse_momentum=0.5", "--train.compress=sparse", "--train.error_feedback=false"},
         "use train.sparse_momentum = 0, or train.error_feedback = true"},
        {{"--train.compress_start=0.5"},
         "train.compress_start = 0.5 belongs to train.compress, which is none; leave it out"},
        {{"--train.compress=onebit", "--train.optimizer=adamw", "--train.compress_start=0",
          "--train.warmup_steps=0"},
         "after 0 of train.steps = 400, which has to see one gradient; use train.compress_start = "
         "0.0025"},
        {{"--train.eps=1e-8", "--train.optimizer=came"},
         "train.eps belongs to train.optimizer = adamw, qhadam, lamb, lans, merit or muon"},
        {{"--train.beta1=0", "--train.optimizer=came"}, "use train.beta1 = 0.9, or"},
        {{"--train.error_feedback=false"},
         "train.error_feedback = false belongs to train.compress, which is none"},
        {{"--model.global_attn_every=3"},
         "model.global_attn_every = 3 without model.sliding_window"},
        {{"--train.trust_per=projection", "--train.optimizer=adamw"},
         "train.trust_per belongs to train.optimizer = lamb, lans or merit; train.optimizer is "
         "adamw"},
        {{"--train.trust_all=true", "--train.optimizer=qhadam"},
         "train.trust_all belongs to train.optimizer = lamb or lans"},
        {{"--train.trust_min=0", "--train.optimizer=lans", "--train.max_grad_norm=0"},
         "train.trust_min belongs to train.optimizer = lamb; train.optimizer is lans"},
        {{"--train.trust_max=0", "--train.optimizer=adamw"}, "train.trust_max belongs to"},
        {{"--train.trust_max=0.1", "--train.trust_min=0.2"},
         "train.trust_max = 0.1 is less than train.trust_min = 0.2"},
        {{"--train.normalize=false"}, "train.normalize belongs to train.optimizer = lans"},
        {{"--train.qh_weight=1"}, "train.qh_weight belongs to train.optimizer = qhadam"},
        {{"--train.optimizer=lans"},
         "two rules; use train.max_grad_norm = 0, or train.normalize = false"},
        {{"--train.beta3=0.9"}, "train.beta3 belongs to train.optimizer = came"},
        {{"--train.update_clip=2"}, "train.update_clip belongs to train.optimizer = came"},
        {{"--train.trust_per=projection", "--train.optimizer=came"}, "train.trust_per belongs to"},
        {{"--train.lr_decay_steps=9"},
         "train.lr_decay_factor and train.lr_decay_steps belong to train.lr_schedule = "
         "exponential"},
        {{"--train.momentum=0.9", "--train.optimizer=adamw"},
         "train.momentum belongs to train.optimizer = muon; train.optimizer is adamw"},
        {{"--train.adamw_lr=0.5", "--train.optimizer=lamb"},
         "train.adamw_lr belongs to train.optimizer = muon, or lamb, lans or merit with "
         "train.trust_layers = hidden; train.optimizer is lamb"},
        {{"--train.trust_layers=hidden", "--train.optimizer=adamw"},
         "train.trust_layers belongs to train.optimizer = lamb, lans or merit; train.optimizer is "
         "adamw"},
        {{"--train.trust_layers=hidden", "--train.optimizer=muon"},
         "train.trust_layers belongs to train.optimizer = lamb, lans or merit; train.optimizer is "
         "muon"},
        {{"--train.trust_layers=hidden", "--train.optimizer=qhadam"},
         "train.trust_layers belongs to"},
        {{"--train.trust_layers=hidden", "--train.optimizer=came"},
         "train.trust_layers belongs to"},
        {{"--train.trust_layers=hidden", "--train.trust_all=true"},
         "train.trust_all = true gives biases and norms a trust ratio, and train.trust_layers = "
         "hidden takes it from them; use one of the two"},
        {{"--train.compress=onebit", "--train.optimizer=adamw", "--train.master_weights=fp16"},
         "train.compress = onebit with train.master_weights: what it sends are f32 updates; use "
         "f32"},
        {{"--device.matmul_precision=fp8"},
         "device.matmul_precision = fp8 is emulated on the CPU in f32 only; use device.dtype = "
         "f32"},
        {{"--device.matmul_precision=fp8", "--device.kind=cuda"},
         "device.matmul_precision = fp8 is emulated on the CPU only; use device.kind = cpu, or "
         "device.matmul_precision = fp8_hybrid alone"},
        {{"--device.accumulator=9", "--device.kind=cuda"},
         "device.accumulator is emulated on the CPU"},
        {{"--device.accumulator_chunk=64"}, "belongs to device.accumulator, which is 0"},
        {{"--run.name=a/b"}, "run.name = \"a/b\""},
        {{"--run.name="}, "run.name = \"\""},
        {{"--run.dir="}, "run.dir is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int argc = 1;
        while (argc < 4 && cases[i].argv[argc])
            argc++;
        assert_int_equal(load_args(argc, (const char **)(uintptr_t)cases[i].argv), ERR_OK);
        assert_int_equal(check_rules(), ERR_CONFIG);
        assert_says(cases[i].says);
    }
    const char *both[] = {"--model.heads=3", "--train.seq_len=256"};
    assert_int_equal(load_args(2, both), ERR_OK);
    assert_int_equal(check_rules(), ERR_CONFIG);
    assert_says("model.heads");
    assert_says("train.seq_len");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(defaults_fill_every_field),
        T(file_gives_types_to_text),
        T(empty_files_and_sections_mean_defaults),
        T(command_line_wins_over_file),
        T(an_item_in_quotes_may_have_a_comma),
        T(a_warmup_that_was_not_given_fits),
        T(one_key_is_explained),
        T(what_differs_is_printed_alone),
        T(all_errors_come_at_once),
        T(yaml_beyond_our_shape_is_refused),
        T(a_list_of_maps_is_several_lists),
        T(deep_and_large_files_are_capped),
        T(missing_file_is_named),
        T(arguments_are_checked),
        T(more_errors_than_fit_are_counted),
        T(a_key_without_default_must_be_given),
        T(printed_settings_read_back_to_the_same),
        T(canonical_text_follows_values_not_spelling),
        T(a_key_of_later_has_a_line_where_it_is_set),
        T(a_text_is_read_by_its_names),
        T(a_text_is_written_by_its_names),
        T(reference_lists_every_key),
        T(rules_across_keys),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
