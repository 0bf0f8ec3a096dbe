/* atoll data: text in, token shards out. What it does to the text is in inner/data/text.h. */
#include "outer/cmd/cmd.h"
#include <stdio.h>
#include "inner/data/shard.h"
#include "inner/data/text.h"
#include "kernels/base/args.h"

static void print_part(const char *name, const struct text_part *p, const char *pattern)
{
    printf("%-14s %13llu tokens  %4u shard%s  %s\n", name, (unsigned long long)p->tokens, p->shards,
           p->shards == 1 ? " " : "s", pattern);
}

static enum err print_report(const struct text_report *r, const struct text_options *o,
                             struct arena *a)
{
    char *name, *pattern;
    printf("%-14s %13llu tokens in %llu blocks\n", "read", (unsigned long long)r->tokens,
           (unsigned long long)r->blocks);
    for (uint32_t i = 0; i < o->sites; i++) {
        TRY_ALLOC(name = arena_printf(a, "train, site %u", i));
        TRY_ALLOC(pattern = arena_printf(a, "%s/train-%u-*.bin", o->out, i));
        print_part(name, &r->train[i], pattern);
    }
    TRY_ALLOC(pattern = arena_printf(a, "%s/eval-*.bin", o->out));
    if (r->eval.shards)
        print_part("held out", &r->eval, pattern);
    printf("\nin the configuration of site 0:\n    data:\n        train: [\"%s/train-0-*.bin\"]\n  "
           "      eval: [\"%s\"]\n",
           o->out, pattern);
    if (o->source.ids)
        printf("        tokenizer: external\n    model:\n        vocab: %u   # or more: the "
               "largest id is %u\n",
               r->largest_id + 1, r->largest_id);
    return ERR_OK;
}

static enum err run(struct args *args, struct text_options *o, int64_t sites, int64_t sequence,
                    int64_t shard_tokens, struct arena *a)
{
    struct text_report report;
    o->sites = (uint32_t)sites;
    o->sequence = (uint64_t)sequence;
    o->shard_tokens = (uint64_t)shard_tokens;
    if (!args->operand_count)
        return err_set(ERR_CONFIG, "name the text files; see --help");
    if (shard_tokens <= sequence)
        return err_set(ERR_CONFIG, "--shard-tokens must be more than --sequence");
    TRY(text_prepare((const char *const *)args->operand, (size_t)args->operand_count, o, a,
                     &report));
    return print_report(&report, o, a);
}

enum err cmd_data(int argc, char **argv)
{
    struct text_options o = {.held_out = 0.05};
    int64_t sites = 1, sequence = 128, shard_tokens = INT64_C(1) << 26;
    const struct args_option options[] = {
        {"out", ARGS_TEXT, &o.out, .value = "DIR", .required = true,
         .help = "Directory for the shards."},
        {"sites", ARGS_INT, &sites, .value = "N", .min = 1, .max = TEXT_SITES_MAX,
         .help = "Disjoint parts of the training text, one per site."},
        {"held-out", ARGS_REAL, &o.held_out, .value = "SHARE", .max = 0.5,
         .help = "Share of the text that no site trains on."},
        {"sequence", ARGS_INT, &sequence, .value = "TOKENS", .min = 1, .max = 131072,
         .help = "train.sequence of the run: no part may be shorter."},
        {"shard-tokens", ARGS_INT, &shard_tokens, .value = "N", .min = 2, .max = SHARD_TOKENS_MAX,
         .help = "Longest shard."},
        {"field", ARGS_TEXT, &o.source.field, .value = "NAME",
         .help = "The files are JSON lines: a document is the text of this field."},
        {"tokens", ARGS_TEXT, &o.source.ids, .value = "KIND",
         .help = "The files hold token ids of a tokenizer elsewhere: npy (NumPy, 16 to 64 bits), "
                 "uint16 or uint32 (raw, "
                 "little-endian)."},
        {"force", ARGS_FLAG, &o.replace, .help = "Replace shards that are there."},
    };
    struct args args = {
        .command = "data",
        .summary = "Turns plain text into token shards of the byte vocabulary (llm.c format), with "
                   "a held-out part and one\n"
                   "part per site. Or JSON lines (--field), or token ids (--tokens). Compressed "
                   "files have to "
                   "be unpacked first.",
        .example = "atoll data --out data --sites 2 book.txt",
        .operands = "FILE...",
        .options = options,
        .count = sizeof options / sizeof *options,
    };
    struct arena a = arena_make(0);
    enum err e = args_parse(&args, argc, argv, &a);
    if (!e && !args.help)
        e = run(&args, &o, sites, sequence, shard_tokens, &a);
    arena_free(&a);
    return e;
}
