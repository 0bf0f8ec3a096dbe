/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the rules are wrong: a run starts with settings that cannot work, or refuses ones
 * that can. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"
#include "outer/config/identity.h"

static struct arena arena;
static struct settings inner;
static struct outer_settings outer;

/* Loads `--key value` pairs separated by blanks; returns what the checks say. */
static enum err checked(const char *settings)
{
    static char text[65536];
    char *argv[32];
    int argc = 0;
    struct config_table tables[] = {keys_inner(&inner), keys_outer(&outer)};
    arena_reset(&arena);
    snprintf(text, sizeof text, "%s", settings);
    for (char *at = strtok(text, " "); at; at = strtok(NULL, " "))
        argv[argc++] = at;
    assert_int_equal(config_load(tables, 2, NULL, argc, argv, &arena), ERR_OK);
    struct config_rules rules = {0};
    keys_outer_check(&rules, &outer, &inner);
    return config_rules_report(&rules);
}

static void refused(const char *settings, const char *sentence)
{
    if (checked(settings) != ERR_CONFIG || !strstr(err_message(), sentence))
        fail_msg("\"%s\": \"%s\" expected, got \"%s\"", settings, sentence, err_message());
}

static void defaults_and_good_settings_pass(void **state)
{
    (void)state;
    assert_int_equal(checked(""), ERR_OK);
    assert_int_equal(
        checked("--outer.sites a,b --site.name b --site.aggregator agg.example.org:7443"), ERR_OK);
    assert_int_equal(checked("--outer.sites a,b --outer.fragments 2 --site.batch_scale 0.5"),
                     ERR_OK);
    assert_int_equal(
        checked("--outer.sites a,b,c --outer.mode quorum --outer.max_local_steps_offline 20"),
        ERR_OK);
    assert_int_equal(checked("--serve.listen [::1]:0"), ERR_OK);
}

/* The recorded text of a map is the list that it was, so that digests stay. */
static void a_map_is_recorded_as_its_list(void **state)
{
    static const char *const wrong[] = {"rounds=10,factor=2,mots=400",
                                        "rounds=10,factor=2,rounds=400", "rounds=10,factor=2",
                                        "rounds=10,2,most=400"};
    static const char name[] = "outer.interval_schedule";
    const struct config_table tables[] = {keys_inner(&inner), keys_outer(&outer)};
    char *listed, *mapped;
    (void)state;
    assert_int_equal(checked("--outer.interval_schedule 10,2,400"), ERR_OK);
    assert_int_equal(config_canonical(tables, 2, &arena, &listed), ERR_OK);
    assert_non_null(strstr(listed, "outer.grow=[10, 2, 400]\n"));
    assert_int_equal(config_set(tables, 2, CONFIG_TYPED, name, "9,9,9", &arena), ERR_OK);
    assert_int_equal(
        config_set(tables, 2, CONFIG_TYPED, name, "most=400,rounds=10,factor=2", &arena), ERR_OK);
    assert_int_equal(config_canonical(tables, 2, &arena, &mapped), ERR_OK);
    assert_string_equal(mapped, listed);
    assert_int_equal(config_lines(tables, 2, &arena, &mapped), ERR_OK);
    assert_non_null(strstr(mapped, "outer.interval_schedule={rounds: 10, factor: 2, most: 400}\n"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(config_set(tables, 2, CONFIG_TYPED, name, wrong[i], &arena), ERR_CONFIG);
        assert_non_null(strstr(err_message(), "each once: rounds factor most"));
    }
}

/* A value that becomes 0, which means "the published rate" of many keys, is not taken for 0. */
static void no_key_takes_a_number_that_becomes_0(void **state)
{
    static const char *const texts[] = {"1e-400", "1e-60", "1e400", "-1e400"};
    static struct settings s;
    static struct outer_settings o;
    const struct config_table tables[] = {keys_inner(&s), keys_outer(&o)};
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const struct config_key *k = &tables[t].keys[i];
            char key[96];
            if (k->type != CONFIG_REAL && k->type != CONFIG_INT)
                continue;
            snprintf(key, sizeof key, "%s.%s", k->section, k->name);
            for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) {
                assert_int_equal(config_set(tables, 2, CONFIG_TYPED, key, texts[j], &arena),
                                 ERR_CONFIG);
                assert_non_null(strstr(err_message(), "out of range"));
            }
        }
}

/* A configuration with a key's old name is refused with the new one, and no name means two keys. */
static void old_names_are_refused_with_the_new_ones(void **state)
{
    (void)state;
    struct settings s;
    struct outer_settings o;
    const struct config_table tables[] = {keys_inner(&s), keys_outer(&o)};
    unsigned count = 0;
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const struct config_key *k = &tables[t].keys[i];
            char old[96], argument[128], sentence[256], *argv[] = {argument};
            if (!config_key_old(k))
                continue;
            count++;
            snprintf(old, sizeof old, "%s.%s", k->section, config_key_old(k));
            assert_null(config_key_find(tables, 2, CONFIG_TYPED, old));
            assert_ptr_equal(config_key_renamed(tables, 2, old), k);
            if (k->recorded)
                assert_ptr_equal(config_key_find(tables, 2, CONFIG_RECORDED, old), k);
            snprintf(argument, sizeof argument, "--%s=1", old);
            snprintf(sentence, sizeof sentence, "%s is now named %s.%s", old, k->section, k->name);
            assert_int_equal(config_load(tables, 2, NULL, 1, argv, &arena), ERR_CONFIG);
            assert_non_null(strstr(err_message(), sentence));
        }
    assert_true(count >= 12);
}

/* The page's examples are read, and a first run needs a page of keys. */
static void examples_are_read(void **state)
{
    (void)state;
    struct settings s;
    struct outer_settings o;
    const struct config_table tables[] = {keys_inner(&s), keys_outer(&o)};
    unsigned levels[3] = {0};
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const struct config_key *k = &tables[t].keys[i];
            levels[k->level]++;
            assert_true(k->example || (k->fallback && *k->fallback));
            char yaml[256];
            snprintf(yaml, sizeof yaml, "%s: {%s: %s}", k->section, k->name,
                     k->example ? k->example : k->fallback);
            const struct config_text text = {k->name, yaml, strlen(yaml), CONFIG_TYPED};
            if (config_load_text(tables, 2, &text, 0, NULL, &arena) != ERR_OK)
                fail_msg("%s: %s", yaml, err_message());
        }
    assert_in_range(levels[CONFIG_BASIC], 20, 60);
    assert_true(levels[CONFIG_EXPERT] >= 50);
}

static char *golden(const char *name)
{
    uint8_t *text;
    size_t size;
    assert_int_equal(file_read(name, 1 << 20, &arena, &text, &size), ERR_OK);
    return arena_string(&arena, (char *)text, size);
}

static void has_each_line(const char *text, const char *lines)
{
    char line[1024];
    for (const char *at = lines; *at; at += strcspn(at, "\n") + 1) {
        snprintf(line, sizeof line, "\n%.*s\n", (int)strcspn(at, "\n"), at);
        const char *found = strstr(text, line);
        if (!found && strncmp(text, line + 1, strlen(line) - 1) != 0)
            fail_msg("no such line: %s", line);
    }
}

/* What the release before the names of today recorded is read, and recorded again in its words: a
 * directory that it began resumes, and its sites join the same run. Every key has another value
 * than its default there; the text of the pinned ones is what the digest is of. */
static void recorded_texts_keep_their_names(void **state)
{
    (void)state;
    struct settings s;
    struct outer_settings o;
    struct config_table tables[] = {keys_inner(&s), keys_outer(&o)};
    char *yaml = golden("tests/golden/config/recorded.yaml"), *text;
    const struct config_text recorded = {"recorded.yaml", yaml, strlen(yaml), CONFIG_RECORDED};
    assert_int_equal(config_load_text(tables, 2, &recorded, 0, NULL, &arena), ERR_OK);
    assert_int_equal(config_canonical(tables, 2, &arena, &text), ERR_OK);
    has_each_line(text, golden("tests/golden/config/pinned.txt"));
    assert_int_equal(config_print(tables, 2, CONFIG_RECORDED, &arena, &text), ERR_OK);
    has_each_line(text, yaml);
    /* For people it has today's names, which are read as a configuration. */
    assert_int_equal(config_print_typed(tables, 2, text, &arena, &text), ERR_OK);
    const struct config_text typed = {"typed.yaml", text, strlen(text), CONFIG_TYPED};
    memset(&s, 0, sizeof s);
    memset(&o, 0, sizeof o);
    assert_int_equal(config_load_text(tables, 2, &typed, 0, NULL, &arena), ERR_OK);
    assert_int_equal(config_print(tables, 2, CONFIG_TYPED, &arena, &yaml), ERR_OK);
    assert_string_equal(yaml, text);
}

static void each_rule_names_what_to_do(void **state)
{
    (void)state;
    refused("--outer.sync_every 50 --outer.fragments 4", "the nearest are 48 and 52");
    refused("--outer.downlink_compression_from 1", "2 is the least");
    refused("--run.archive true", "give on, off, or a directory");
    refused("--run.archive_states 5", "needs run.archive: on");
    refused("--outer.slices 0@5", "outer.partition = strided");
    refused("--outer.partition slices", "0 entries");
    refused("--outer.partition slices --outer.slices embed-0@5,1-final@60 --outer.sync_every 50",
            "1..50");
    refused("--outer.partition slices --outer.slices embed-final@50 --outer.fragments 2",
            "leave outer.fragments out");
    refused("--outer.sync_every 3 --outer.fragments 4", "the least is 4");
    refused("--outer.moment2_every 100 --outer.sync_every 50 --train.optimizer came",
            "outer.moment2_every = 100: train.optimizer = came keeps no second moment to average; "
            "use 0");
    refused(
        "--outer.moment2_every 100 --outer.sync_every 50 --train.optimizer adamw --train.compress "
        "onebit",
        "use outer.moment2_every = 0");
    refused("--train.modules 3 --outer.sites a --site.aggregator localhost:1",
            "use train.modules = 1, or leave site.aggregator empty");
    refused(
        "--outer.moment2_every 100 --outer.sync_every 50 --train.optimizer adamw --train.compress "
        "zeroone",
        "use outer.moment2_every = 0");
    refused("--outer.sites a,b --train.optimizer adamw --train.compress zeroone "
            "--outer.overlap_steps 2",
            "train.compress = zeroone with several sites needs outer.overlap_steps = 0");
    refused("--outer.sites a,b --train.optimizer adamw --train.compress zeroone --outer.mode "
            "quorum",
            "train.compress = zeroone with several sites needs outer.mode = strict");
    refused("--outer.sites a,b --train.optimizer adamw --train.compress zeroone "
            "--outer.sync_interval_s 5",
            "train.compress = zeroone with several sites needs outer.sync_interval_s = 0");
    refused("--outer.fragments 5", "more than model.layers = 4");
    refused("--outer.sites a,b,a", "\"a\" is listed twice");
    refused("--outer.sites a,b.c", "\"b.c\": allowed are 1 to 63 letters");
    refused("--outer.sites a,b --site.name c", "none of outer.sites");
    assert_int_equal(checked("--outer.sites a,b --site.aggregator h:1"),
                     ERR_OK); /* a site needs site.name: test_run.c */
    refused("--site.name a --site.aggregator h:1", "outer.sites is empty");
    assert_int_equal(checked("--outer.sites a,b --site.name c --site.aggregator h:1"),
                     ERR_OK); /* an operator may have added it: the aggregator knows */
    refused("--outer.sites a,b --site.name c.d --site.aggregator h:1", "1 to 63 letters");
    refused("--outer.sites a --site.name c --site.aggregator self", "none of outer.sites");
    refused("--outer.sites a --site.aggregator nowhere", "no address: host:port");
    refused("--outer.sites a --site.aggregator h:0", "no address: host:port");
    refused("--site.rate_up 0.001", "0.01 is the least");
    refused("--outer.aggregators 2", "more than outer.fragments");
    refused("--serve.index 1", "indices go from 0 to 0");
    const char *two =
        "--outer.sites a --outer.sync_every 48 --outer.fragments 2 --outer.aggregators 2 "
        "--site.aggregator ";
    char line[200];
    snprintf(line, sizeof line, "%sh:1,i:2", two);
    assert_int_equal(checked(line), ERR_OK);
    snprintf(line, sizeof line, "%sh:1", two);
    refused(line, "names 1, outer.aggregators is 2");
    snprintf(line, sizeof line, "%sh:1,", two);
    refused(line, "not host:port");
    refused("--serve.listen 7443", "serve.listen: \"7443\" is no address: host:port");
    refused("--serve.listen h:70000", "is no address: host:port");
    refused("--serve.listen ::1:7443", "write [::1]:7443");
    refused("--site.aggregator fd00::1:7443", "write [fd00::1]:7443");
    assert_int_equal(
        checked(
            "--outer.sites a --site.name a --serve.listen [::1]:7443 --site.aggregator [::1]:7443"),
        ERR_OK);
    refused("--outer.overlap_steps 51", "the most is 50, or take outer.sync_every = 51");
    refused("--outer.sync_every 48 --outer.fragments 4 --outer.overlap_steps 50",
            "or take outer.sync_every = 52");
    refused("--outer.overlap_steps 5 --outer.update_alpha 1", "ignores the other sites");
    refused("--outer.update_alpha -0.5", "the nearest is 0");
    refused("--outer.update_alpha 0",
            "the nearest is outer.update_alpha = -1, or outer.overlap_steps = 50");
    refused("--outer.sync_every 40 --outer.update_alpha 0.5", "or outer.overlap_steps = 40");
    refused("--outer.eager true",
            "the nearest is outer.overlap_steps = 50, or outer.eager = false");
    refused("--outer.eager true --outer.overlap_steps 49",
            "the nearest is outer.overlap_steps = 50");
    refused("--outer.eager true --outer.overlap_steps 50 --outer.update_alpha 0.5",
            "the nearest is 0, or outer.eager = false");
    refused("--outer.before_update true", "overlap_steps is 0; the nearest is 1, or");
    refused("--outer.before_update true --outer.overlap_steps 50", "the nearest is 49, or");
    refused("--outer.sync_every 1 --outer.before_update true --outer.overlap_steps 1",
            "the nearest is outer.sync_every = 2");
    refused("--outer.interval_schedule 10,2", "as {rounds: 10, factor: 2, most: 400}");
    refused("--outer.interval_schedule 10,1,400", "factor from 2");
    refused("--outer.interval_schedule 10,2,50", "most from 51");
    refused("--outer.interval_schedule 10,2,x",
            "outer.interval_schedule is {rounds, factor, most}");
    refused("--outer.interval_schedule rounds=10,factor=1,most=400", "factor from 2");
    refused("--outer.interval_schedule 10,2,400 --outer.overlap_steps 50",
            "outer.overlap_steps = 49");
    refused("--outer.interval_schedule 10,2,400 --outer.moment1_every 150",
            "outer.moment2_every = 0");
    refused("--outer.moment1_every 150 --train.optimizer adamw --train.zero_stage 1",
            "use train.zero_stage = 0");
    refused("--outer.sync_interval_s 60 --outer.overlap_steps 50",
            "needs outer.overlap_steps = 0; or");
    refused("--outer.sync_interval_s 60 --outer.sync_every 1",
            "needs outer.sync_every = the most steps of a round");
    refused("--outer.sync_interval_s 60 --outer.fragments 2", "needs outer.fragments = 1");
    refused("--outer.sync_interval_s 60 --outer.interval_schedule 10,2,400",
            "needs outer.interval_schedule = []");
    refused("--outer.sync_interval_s 60 --outer.moment1_every 150", "moment2_every = 0");
    refused("--outer.sync_interval_s 60 --outer.mode quorum", "needs outer.mode = strict");
    refused("--outer.sync_interval_s 60 --train.compress sparse", "needs train.compress = none");
    refused("--model.layers 2 --outer.partition slices --outer.slices embed-0@2+5,1-final@50 "
            "--outer.overlap_steps 3",
            "the nearest is outer.overlap_steps = 2");
    refused("--model.layers 2 --outer.partition slices --outer.slices embed-0@2+5,1-final@50 "
            "--outer.interval_schedule 10,2,400",
            "give one step, or leave outer.interval_schedule out");
    refused("--outer.beta2 0.9", "outer.beta2 = 0.9 belongs to outer.optimizer = adam");
    refused("--outer.optimizer sgd --outer.eps 0.1", "outer.optimizer is sgd: leave it out");
    assert_int_equal(checked("--outer.optimizer adam --outer.beta2 0.9 --outer.eps 0.1"), ERR_OK);
    refused("--outer.interpolation 0.5", "outer.interpolation = 0.5 belongs to outer.optimizer = "
                                         "primal; outer.optimizer is nesterov: leave it out");
    assert_int_equal(checked("--outer.optimizer primal --outer.interpolation 0.5"), ERR_OK);
    refused("--outer.optimizer average --outer.lr_schedule cosine",
            "the nearest is outer.optimizer = sgd with outer.lr = 1");
    refused("--run.dir a/b --privacy.unit sequence --privacy.noise_multiplier 1 --privacy.ledger "
            "a/b/led",
            "give a directory outside of every run.dir");
    refused(
        "--run.dir a/b/ --privacy.unit sequence --privacy.noise_multiplier 1 --privacy.ledger a/b",
        "give a directory outside of every run.dir");
    refused("--privacy.ledger led", "nothing is charged");
    refused("--outer.min_lr_ratio 0.1",
            "outer.min_lr_ratio = 0.1 belongs to outer.lr_schedule, which is "
            "constant; leave it out");
    refused("--train.steps 4 --train.warmup_steps 1 --outer.sites a --outer.sync_every 4 "
            "--model.layers 2 "
            "--train.stages 1@0.5,2@0.5",
            "ends after step 2, which is no multiple of outer.sync_every = 4; the nearest is "
            "outer.sync_every = 2");
    refused("--outer.optimizer sgd --outer.momentum_restart 4",
            "the nearest is outer.optimizer = nesterov, or outer.momentum_restart = 0");
    refused("--outer.optimizer sgd --outer.momentum_warmup 4",
            "outer.momentum_warmup = 4: outer.optimizer = sgd keeps no momentum; the nearest is "
            "outer.optimizer = nesterov, or outer.momentum_warmup = 0");
    refused("--outer.optimizer average --outer.momentum_cooldown 4",
            "or outer.momentum_cooldown = 0");
    refused("--outer.momentum_start 0.5",
            "outer.momentum_start = 0.5 needs outer.momentum_warmup: the number of rounds; or "
            "leave it out");
    refused("--outer.momentum_warmup 4 --outer.momentum_end 0.5",
            "outer.momentum_end = 0.5 needs outer.momentum_cooldown");
    refused("--outer.merge radial", "the nearest is outer.codec = fp8_e4m3, or outer.merge = mean");
    refused("--outer.merge radial --outer.codec int4", "the nearest is outer.codec = e3m0");
    refused("--outer.merge radial --outer.codec csc", "the nearest is outer.codec = topk");
    refused("--outer.merge radial --outer.codec f32 --outer.partition random",
            "the nearest is outer.partition = balanced");
    refused("--outer.merge radial --outer.codec f32 --outer.sites a,b "
            "--outer.downlink_compression_from 2",
            "outer.downlink_compression_from = 0, or outer.merge = mean");
    refused("--outer.merge radial --outer.codec f32 --outer.overlap_steps 50 --outer.eager true",
            "outer.eager = false, or outer.merge = mean");
    refused("--outer.merge radial --outer.codec fixed", "the nearest is outer.codec = bf16");
    refused(
        "--outer.merge radial --outer.codec e3m0 --outer.full_precision fixed",
        "with outer.full_precision = fixed the aggregator forwards only the sum; the nearest is "
        "outer.full_precision = bf16, or outer.merge = mean");
    refused("--outer.clip 4 --outer.codec e3m0 --outer.full_precision fixed",
            "the nearest is outer.full_precision = bf16, or outer.clip = 0");
    refused("--outer.sync_fraction 0.1 --outer.codec e3m0 --outer.full_precision fixed",
            "outer.sync_fraction = 0.1 needs outer.full_precision = bf16");
    refused("--outer.moment1_every 100 --outer.moments_codec int8 --outer.full_precision fixed",
            "the nearest is outer.moments_codec = bf16, or outer.full_precision = bf16");
    assert_int_equal(checked("--outer.clip 4 --outer.codec bf16 --outer.full_precision fixed"),
                     ERR_OK); /* bf16 stays bf16 */
    refused("--outer.clip 4", "the nearest is outer.codec = fp8_e4m3, or outer.clip = 0");
    refused("--outer.clip 4 --outer.codec f32 --outer.sites a,b "
            "--outer.downlink_compression_from 2",
            "outer.downlink_compression_from = 0, or outer.clip = 0");
    refused("--outer.clip 4 --outer.codec f32 --outer.overlap_steps 50 --outer.eager true",
            "outer.eager = false, or outer.clip = 0");
    refused("--outer.clip 4 --outer.codec f32 --outer.merge edit",
            "outer.merge = mean, or outer.clip = 0");
    refused("--outer.merge edit", "the nearest is outer.codec = fp8_e4m3, or outer.merge = mean");
    refused("--outer.merge clipped --outer.codec sign", "the nearest is outer.codec = topk");
    refused("--outer.max_local_steps_offline 5", "needs outer.mode = quorum");
    refused("--outer.sync_fraction 0.1 --outer.codec int8", "needs outer.codec = bf16");
    refused("--outer.sync_fraction 0.1 --outer.codec f32 --outer.fragments 2",
            "needs outer.fragments = 1");
    refused("--outer.sync_fraction 0.1 --outer.codec f32 --outer.overlap_steps 50",
            "overlap_steps = 0");
    refused("--outer.sync_fraction 0.1 --outer.codec f32 --outer.merge radial",
            "needs outer.merge = mean");
    refused("--outer.sync_fraction 0.1 --outer.codec f32 --outer.moment1_every 50",
            "moment2_every = 0");
    refused("--outer.grace_fraction 0.5", "needs outer.mode = quorum");
    refused("--outer.grace_fraction 0.5 --outer.mode quorum",
            "the nearest is outer.overlap_steps = 1");
    refused("--site.batch_scale 0.011", "not a multiple of train.seq_len");
    refused("--outer.sync_every 50 --outer.fragments 4 --serve.listen x",
            "\nserve.listen"); /* all at once */
}

static void mix_is_half_or_nothing(void **state)
{
    (void)state;
    assert_int_equal(checked("--outer.sites a --outer.overlap_steps 5"), ERR_OK);
    assert_true(keys_mix(&outer) == 0.5);
    assert_int_equal(checked("--outer.sites a --outer.overlap_steps 50"), ERR_OK);
    assert_true(keys_mix(&outer) == 0);
    assert_int_equal(checked("--outer.sites a --outer.overlap_steps 50 --outer.eager true"),
                     ERR_OK);
    assert_true(keys_mix(&outer) == 0);
    assert_int_equal(checked("--outer.sites a --outer.overlap_steps 5 --outer.before_update true"),
                     ERR_OK);
    assert_true(keys_mix(&outer) == 0);
    assert_int_equal(checked("--outer.sites a --outer.overlap_steps 50 --outer.update_alpha 0.25"),
                     ERR_OK);
    assert_true(keys_mix(&outer) == 0.25);
}

static char *sites(char *list, int count, const char *format)
{
    size_t n = (size_t)sprintf(list, "--outer.sites ");
    for (int i = 0; i < count; i++) {
        n += (size_t)sprintf(list + n, "%s", i ? "," : "");
        n += (size_t)sprintf(list + n, format, i);
    }
    return list;
}

static void many_bad_names_fit_the_message(void **state)
{
    (void)state;
    char list[65536];
    sites(list, 64, "abcdefghijklmnopqrstuvwxyz%d!");
    refused(list, "abcdefghijklmnopqrstuvwxyz0!");
}

/* The roster travels in every hello: its names must fit into it. */
static void a_thousand_sites_and_no_more(void **state)
{
    (void)state;
    char list[65536];
    assert_int_equal(checked(sites(list, 1024, "s%d")), ERR_OK);
    refused(sites(list, 1025, "s%d"), "1025 names, at most 1024");
    refused(sites(list, 1000, "a-datacenter-with-a-long-name-%d"),
            "1000 sites can have names of 31 bytes");
}

static void identity_is_the_pinned_settings_and_the_table(void **state)
{
    (void)state;
    struct digest table = digest_of("t", 1);
    char *a, *b, *difference;
    assert_int_equal(checked("--outer.sites a,b"), ERR_OK);
    assert_int_equal(identity_text(&inner, &outer, &table, &arena, &a), ERR_OK);
    a = strdup(a);
    assert_int_equal(checked("--outer.sites a,b --site.name b --serve.dir elsewhere"), ERR_OK);
    assert_int_equal(identity_text(&inner, &outer, &table, &arena, &b), ERR_OK);
    assert_string_equal(a, b);
    assert_int_equal(identity_site(&outer, "b"), 1);
    assert_int_equal(identity_site(&outer, "c"), -1);
    table = digest_of("u", 1);
    assert_int_equal(checked("--outer.sites a,b --outer.sync_every 60"), ERR_OK);
    assert_int_equal(identity_text(&inner, &outer, &table, &arena, &b), ERR_OK);
    assert_int_equal(keys_difference(a, b, &arena, &difference), ERR_OK);
    assert_non_null(strstr(difference, "outer.sync_every: 50 here, 60 there"));
    assert_non_null(strstr(difference, "model.table: "));
    free(a);
}

static int close_all(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* privacy.secure = sum takes nothing that tells of one site, or needs one site's contribution. */
static void masked_rounds_refuse_what_does_not_add(void **state)
{
    (void)state;
#define MASKED "--privacy.secure sum --outer.sites a,b,c --outer.weights equal "
    for (int k = 0; k < CODEC_COUNT; k++) {
        char text[256];
        const char *name = codec_get((enum codec_kind)k)->name;
        bool may = k == CODEC_INT8 || k == CODEC_INT4 || k == CODEC_INT2 || k == CODEC_SIGN ||
                   k == CODEC_FIXED;
        snprintf(text, sizeof text, MASKED "--outer.codec %s", name);
        if (may)
            assert_int_equal(checked(text), ERR_OK);
        else
            refused(text,
                    "privacy.secure = sum needs outer.codec = int8, int4, int2, sign or fixed");
    }
    refused(MASKED "--outer.sites a,b", "with two sites hides nothing");
    refused(MASKED "--outer.mode quorum --privacy.threshold 2", "opens sums of two sites");
    assert_int_equal(checked(MASKED "--outer.mode quorum --privacy.threshold 2 "
                                    "--privacy.two_sites true"),
                     ERR_OK);
    assert_int_equal(checked(MASKED "--outer.mode quorum"), ERR_OK);
    assert_int_equal(checked(MASKED "--privacy.threshold 2"), ERR_OK); /* strict: all three */
    refused(MASKED "--outer.weights tokens", "needs outer.weights = equal");
    refused(MASKED "--outer.moment1_every 100", "needs outer.moment1_every and moment2_every = 0");
    refused(MASKED "--outer.residual_reset 2", "needs outer.residual_reset = 0");
    refused(MASKED "--outer.clip 2", "needs outer.clip = 0");
#undef MASKED
}

/* A codec, partition or optimizer that a key names is the one of that name. */
static void choices_are_what_they_name(void **state)
{
    (void)state;
    unsigned codecs = 0;
    for (const struct config_choice *c = outer_codec_choices; c->name; c++, codecs++)
        assert_string_equal(codec_get((enum codec_kind)c->value)->name, c->name);
    assert_int_equal(codecs, CODEC_COUNT);
    assert_int_equal(checked("--outer.mode quorum --outer.partition balanced --outer.optimizer "
                             "sgd --outer.codec topk --log.level info"),
                     ERR_OK);
    assert_int_equal(outer.outer_mode, OUTER_MODE_QUORUM);
    assert_int_equal(outer.outer_partition, FRAGMENT_BALANCED);
    assert_int_equal(outer.outer_optimizer, OUTER_OPT_SGD);
    assert_int_equal(outer.outer_codec, CODEC_TOPK);
    assert_int_equal(outer.log_level, LOG_DETAIL);
    const char *word[] = {"--outer.moments_codec", "topk"};
    struct config_table table = keys_outer(&outer);
    assert_int_equal(config_load(&table, 1, NULL, 2, (char **)(uintptr_t)word, &arena), ERR_CONFIG);
    assert_non_null(
        strstr(err_message(), "outer.moments_codec = \"topk\": allowed is f32|bf16|int8"));
    const char *measured[] = {"--plan.step_s", "1"};
    assert_int_equal(config_load(&table, 1, NULL, 2, (char **)(uintptr_t)measured, &arena),
                     ERR_CONFIG);
    assert_non_null(strstr(err_message(), "plan.step_s is no setting: what is measured is in a "
                                          "probe file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_and_good_settings_pass),
        cmocka_unit_test(no_key_takes_a_number_that_becomes_0),
        cmocka_unit_test(old_names_are_refused_with_the_new_ones),
        cmocka_unit_test(examples_are_read),
        cmocka_unit_test(recorded_texts_keep_their_names),
        cmocka_unit_test(each_rule_names_what_to_do),
        cmocka_unit_test(a_map_is_recorded_as_its_list),
        cmocka_unit_test(mix_is_half_or_nothing),
        cmocka_unit_test(many_bad_names_fit_the_message),
        cmocka_unit_test(a_thousand_sites_and_no_more),
        cmocka_unit_test(identity_is_the_pinned_settings_and_the_table),
        cmocka_unit_test(masked_rounds_refuse_what_does_not_add),
        cmocka_unit_test(choices_are_what_they_name),
    };
    return cmocka_run_group_tests(tests, NULL, close_all);
}
