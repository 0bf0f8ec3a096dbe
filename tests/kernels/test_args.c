/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a mistyped option is ignored, or --help starts the program. */
#include <math.h>
#include "tests/inner/scratch.h"
#include "kernels/base/args.h"
#include "kernels/base/log.h"
#include "kernels/base/nearest.h"
#include "kernels/base/number.h"

static struct arena arena;
static bool force;
static int64_t sites;
static double share;
static const char *out;
static struct args_texts names;
static struct args args;

static const struct args_option options[] = {
    {.name = "out",
     .kind = ARGS_TEXT,
     .target = &out,
     .value = "DIR",
     .required = true,
     .help = "Where."},
    {.name = "sites",
     .kind = ARGS_INT,
     .target = &sites,
     .value = "N",
     .min = 1,
     .max = 64,
     .help = "How many."},
    {.name = "share",
     .kind = ARGS_REAL,
     .target = &share,
     .value = "X",
     .min = 0,
     .max = 0.5,
     .help = "How much."},
    {.name = "force", .kind = ARGS_FLAG, .target = &force, .help = "Anyway."},
    {.name = "name", .kind = ARGS_TEXTS, .target = &names, .value = "NAME", .help = "Which."},
    {.name = "rate",
     .kind = ARGS_SETTING,
     .target = (char[]){"--train.lr"},
     .value = "R",
     .help = "Speed.",
     .former = "pace"},
};

static void numbers_are_read_once(void **state)
{
    static const struct {
        const char *text;
        enum number_kind kind;
        double value;
    } cases[] = {
        {"0", NUMBER_WHOLE, 0},
        {"-0", NUMBER_WHOLE, 0},
        {"+7", NUMBER_WHOLE, 7},
        {"1e3", NUMBER_REAL, 1000},
        {".5", NUMBER_REAL, .5},
        {"5.", NUMBER_REAL, 5},
        {"0e-400", NUMBER_REAL, 0},
        {"0.000", NUMBER_REAL, 0},
        {"1e-37", NUMBER_REAL, 1e-37},
        {"1e-400", NUMBER_OUT_OF_RANGE, 0},
        {"-1e-400", NUMBER_OUT_OF_RANGE, 0},
        {"1e-60", NUMBER_OUT_OF_RANGE, 0},
        {"1e400", NUMBER_OUT_OF_RANGE, 0},
        {"-1e400", NUMBER_OUT_OF_RANGE, 0},
        {"0.0001e-396", NUMBER_OUT_OF_RANGE, 0},
        {"", NUMBER_NONE, 0},
        {"e3", NUMBER_NONE, 0},
        {"1e", NUMBER_NONE, 0},
        {".", NUMBER_NONE, 0},
        {"inf", NUMBER_NONE, 0},
        {"nan", NUMBER_NONE, 0},
        {"0x1", NUMBER_NONE, 0},
        {" 1", NUMBER_NONE, 0},
        {"1 ", NUMBER_NONE, 0},
        {"1,5", NUMBER_NONE, 0},
        {"--1", NUMBER_NONE, 0},
        {"1e3.5", NUMBER_NONE, 0},
    };
    int64_t whole;
    double value;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        value = -1;
        assert_int_equal(number_read(cases[i].text, &value), cases[i].kind);
        if (cases[i].kind >= NUMBER_REAL) {
            assert_true(value == cases[i].value && !signbit(value));
        }
        assert_int_equal(number_good(cases[i].text, &value), cases[i].kind >= NUMBER_REAL);
    }
    assert_true(number_read_whole("1e3", &whole) && whole == 1000);
    assert_true(number_read_whole("-9007199254740993", &whole) && whole == -9007199254740993);
    assert_true(number_read_whole("99999999999999999999", &whole) && whole == INT64_MAX);
    assert_false(number_read_whole("1.5", &whole) || number_read_whole("1e300", &whole));
}

/* "steps" is a setting, train.steps. */
static void nearest_setting(const char *word, char *name, size_t size, unsigned *edits)
{
    *edits = nearest_edits(word, "steps");
    snprintf(name, size, "train.steps");
}

static enum err parse(int argc, const char **argv, const char *operands, bool settings)
{
    arena_reset(&arena);
    err_clear();
    force = false;
    sites = 2;
    share = 0.25;
    out = NULL;
    names = (struct args_texts){NULL, 0};
    args = (struct args){.command = "data",
                         .summary = "Makes.",
                         .example = "atoll data x",
                         .options = options,
                         .count = sizeof options / sizeof *options,
                         .operands = operands,
                         .settings = settings ? nearest_setting : NULL};
    return args_parse(&args, argc, (char **)(uintptr_t)argv, &arena);
}

static void options_operands_and_settings_come_apart(void **state)
{
    (void)state;
    const char *argv[] = {"data",      "a.txt",   "--out",      "dir",   "--train.lr",
                          "-1",        "--force", "--share=.5", "b.txt", "--run.name=x.y",
                          "--sites=64"};
    assert_int_equal(parse(11, argv, "TEXT...", true), ERR_OK);
    assert_false(args.help);
    assert_string_equal(out, "dir");
    assert_true(force && sites == 64 && share == 0.5);
    assert_int_equal(args.operand_count, 2);
    assert_string_equal(args.operand[1], "b.txt");
    assert_int_equal(args.setting_count, 3);
    assert_string_equal(args.setting[0], "--train.lr");
    assert_string_equal(args.setting[1], "-1");
    assert_string_equal(args.setting[2], "--run.name=x.y");
}

static void defaults_stay(void **state)
{
    (void)state;
    const char *argv[] = {"data", "--out=d=e"};
    assert_int_equal(parse(2, argv, NULL, false), ERR_OK);
    assert_string_equal(out, "d=e");
    assert_true(!force && sites == 2 && share == 0.25);
}

static void mistakes_come_together(void **state)
{
    (void)state;
    const char *argv[] = {"data",        "--sties", "3",       "--sites=0",   "--share", "nan",
                          "--force=yes", "x",       "--a.b=1", "--sites=1e1", "--share"};
    assert_int_equal(parse(11, argv, NULL, false), ERR_CONFIG);
    assert_says("unknown option --sties; the nearest is --sites");
    assert_null(strstr(err_message(), "\"3\"")); /* the value of --sties */
    assert_says("unexpected argument \"x\"");
    assert_says("--sites = \"0\": allowed is a whole number from 1 to 64");
    assert_says("--sites = \"1e1\"");
    assert_says("--share = \"nan\": allowed is a number from 0 to 0.5");
    assert_says("--force takes no value");
    assert_says("unknown option --a.b");
    assert_says("--share needs a value: X");
    assert_says("--out DIR is missing: Where.");
}

static void a_setting_without_its_section(void **state)
{
    (void)state;
    const char *argv[] = {"data", "--out=x", "--stpes", "3"}, *site[] = {"data", "--siets", "3"};
    assert_int_equal(parse(4, argv, NULL, true), ERR_CONFIG);
    assert_string_equal(err_message(), "unknown option --stpes; the nearest is --train.steps");
    assert_int_equal(parse(4, argv, NULL, false), ERR_CONFIG);
    assert_says("unknown option --stpes"); /* and no nearest one: none is near */
    assert_int_equal(parse(3, site, NULL, true), ERR_CONFIG);
    assert_says("the nearest is --sites");
}

static void a_former_name_is_refused_with_the_one_of_now(void **state)
{
    (void)state;
    const char *argv[] = {"data", "--out=x", "--pace", "3"}, *equals[] = {"data", "--pace=3"};
    assert_int_equal(parse(4, argv, NULL, true), ERR_CONFIG);
    assert_string_equal(err_message(), "--pace is now named --rate R");
    assert_int_equal(parse(2, equals, NULL, false), ERR_CONFIG);
    assert_says("--pace is now named --rate R");
}

static void an_option_may_be_another_name_of_a_setting(void **state)
{
    (void)state;
    const char *argv[] = {"data", "--rate", "3", "--out=x", "--rate=4"};
    assert_int_equal(parse(5, argv, NULL, true), ERR_OK);
    assert_int_equal(args.setting_count, 4);
    assert_string_equal(args.setting[0], "--train.lr");
    assert_string_equal(args.setting[1], "3");
    assert_string_equal(args.setting[3], "4");
    assert_int_equal(parse(2, argv, NULL, true), ERR_CONFIG);
    assert_says("--rate needs a value: R");
}

static void loudness_is_a_level_of_the_log(void **state)
{
    (void)state;
    const char *quiet[] = {"data", "-q", "--out=x"}, *loud[] = {"data", "--out=x", "-v"};
    assert_int_equal(parse(3, quiet, NULL, true), ERR_OK);
    assert_int_equal(args.setting_count, 2);
    assert_string_equal(args.setting[0], "--log.level=warn");
    assert_string_equal(args.setting[1], "--log.progress=none");
    assert_int_equal(parse(3, loud, NULL, true), ERR_OK);
    assert_string_equal(args.setting[0], "--log.level=debug");
    assert_int_equal(parse(3, quiet, NULL, false), ERR_OK); /* of the process */
    assert_int_equal(args.setting_count, 0);
    assert_true(log_wanted(LOG_WARN) && !log_wanted(LOG_INFO));
    log_min(LOG_DETAIL);
}

/* What the shell makes of an unquoted pattern. */
static void an_unquoted_pattern_is_explained(void **state)
{
    (void)state;
    const char *two[] = {"data", "--data.train", "data/train-0-0000.bin", "data/train-0-0001.bin",
                         "--out=x"};
    assert_int_equal(parse(5, two, NULL, true), ERR_CONFIG);
    assert_string_equal(err_message(), "unexpected argument \"data/train-0-0001.bin\": quote a "
                                       "pattern: --data.train 'data/train-0-000*.bin'");
    const char *more[] = {"data",       "--out=x",    "--data.train", "d/a-00.bin",
                          "d/a-01.bin", "d/a-10.bin", "d/a-11.bin"};
    assert_int_equal(parse(7, more, NULL, true), ERR_CONFIG);
    assert_string_equal(err_message(), "unexpected argument \"d/a-01.bin\" and 2 more: quote a "
                                       "pattern: --data.train 'd/a-*.bin'");
    const char *number[] = {"data", "--out=x", "--model.d_model", "64", "65"};
    assert_int_equal(parse(5, number, NULL, true), ERR_CONFIG);
    assert_string_equal(err_message(), "unexpected argument \"65\"");
    assert_int_equal(parse(5, number, "SITE...", true), ERR_OK); /* a command with operands */
    assert_string_equal(args.operand[0], "65");
}

static void an_option_may_be_given_several_times(void **state)
{
    (void)state;
    const char *argv[] = {"data", "--name", "a", "--out=x", "--name=b", "--name", "c"};
    assert_int_equal(parse(7, argv, NULL, false), ERR_OK);
    assert_int_equal(names.count, 3);
    assert_string_equal(names.items[0], "a");
    assert_string_equal(names.items[1], "b");
    assert_string_equal(names.items[2], "c");
    assert_int_equal(parse(4, argv, NULL, false), ERR_OK);
    assert_int_equal(names.count, 1);
}

static void help_wins_over_mistakes(void **state)
{
    (void)state;
    const char *argv[] = {"data", "--nonsense", "--help"};
    assert_int_equal(parse(3, argv, "TEXT...", true), ERR_OK);
    assert_true(args.help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_once),
        cmocka_unit_test(options_operands_and_settings_come_apart),
        cmocka_unit_test(defaults_stay),
        cmocka_unit_test(mistakes_come_together),
        cmocka_unit_test(a_setting_without_its_section),
        cmocka_unit_test(a_former_name_is_refused_with_the_one_of_now),
        cmocka_unit_test(an_option_may_be_another_name_of_a_setting),
        cmocka_unit_test(loudness_is_a_level_of_the_log),
        cmocka_unit_test(an_unquoted_pattern_is_explained),
        cmocka_unit_test(an_option_may_be_given_several_times),
        cmocka_unit_test(help_wins_over_mistakes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
