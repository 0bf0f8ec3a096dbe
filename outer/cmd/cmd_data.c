/* atoll data: text in, token shards out. What it does to the text is in inner/data/text.h. */
#include "outer/cmd/cmd.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "inner/data/shard.h"
#include "inner/data/text.h"
#include "kernels/base/args.h"
#include "kernels/base/clock.h"

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
    if (r->vocab)
        printf("%-14s %13llu documents, a vocabulary of %d\n", "", (unsigned long long)r->documents,
               r->vocab);
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
    if (o->source.ids || r->vocab)
        printf("        tokenizer: external\n%s%s%s    model:\n        vocab: %u   # or more: the "
               "largest id is %u\n",
               r->vocab ? "        tokenizer_sha256: " : "", r->sha256, r->vocab ? "\n" : "",
               r->largest_id + 1, r->largest_id);
    return ERR_OK;
}

/* ---- progress ---- */

struct progress {
    double start_s, shown_s;
    const char *what;
    bool terminal;
};

/* A bar on a terminal, a line every ten seconds elsewhere. */
static void progress_show(void *self, const char *what, uint64_t done, uint64_t all)
{
    enum { BAR = 30 };
    struct progress *p = self;
    if (!p->what || strcmp(p->what, what) != 0) {
        p->start_s = p->shown_s = clock_mono_s();
        p->what = what;
    }
    bool last = done >= all;
    double now_s = clock_mono_s(), spent = now_s - p->start_s + 1e-9;
    if (!last && now_s - p->shown_s < (p->terminal ? 0.2 : 10))
        return;
    if (!p->terminal && spent < 10)
        return;
    double share = all ? (double)done / (double)all : 1;
    int filled = (int)(share * BAR), left = (int)(share > 0 ? spent / share - spent : 0);
    p->shown_s = now_s;
    fprintf(stderr, "%s%-12s [%.*s%*s] %3.0f %%  %7.1f MB  %6.1f MB/s  ETA %d:%02d%s",
            p->terminal ? "\r" : "", what, filled, "##############################", BAR - filled,
            "", 100 * share, (double)done / 1e6, (double)done / 1e6 / spent, left / 60, left % 60,
            p->terminal && !last ? "" : "\n");
}

/* ---- the command ---- */

static enum err tokenizer_check(const struct text_options *o)
{
    if (o->learn && !o->tokenizer)
        return err_set(ERR_CONFIG, "--learn needs --tokenizer wordpiece or bpe");
    if (o->tokenizer && o->source.ids)
        return err_set(ERR_CONFIG,
                       "--tokenizer is for text and --tokens for ids; give one of them");
    if (!o->learn && o->tokenizer &&
        (!strcmp(o->tokenizer, "wordpiece") || !strcmp(o->tokenizer, "bpe")) &&
        access(o->tokenizer, F_OK) != 0)
        return err_set(ERR_CONFIG,
                       "--tokenizer %s: give --learn N for a vocabulary of N tokens, or "
                       "the path of a tokenizer",
                       o->tokenizer);
    return ERR_OK;
}

static enum err run(struct args *args, struct text_options *o, int64_t sites, int64_t sequence,
                    int64_t shard_tokens, struct arena *a)
{
    struct text_report report;
    struct progress progress = {.terminal = isatty(STDERR_FILENO) == 1};
    o->progress = progress_show;
    o->progress_self = &progress;
    o->sites = (uint32_t)sites;
    o->sequence = (uint64_t)sequence;
    o->shard_tokens = (uint64_t)shard_tokens;
    if (!args->operand_count)
        return err_set(ERR_CONFIG, "name the text files; see --help");
    TRY(tokenizer_check(o));
    if (shard_tokens <= sequence)
        return err_set(ERR_CONFIG, "--shard-tokens must be more than --sequence");
    TRY(text_prepare((const char *const *)args->operand, (size_t)args->operand_count, o, a,
                     &report));
    return print_report(&report, o, a);
}

enum err cmd_data(int argc, char **argv)
{
    struct text_options o = {.held_out = 0.05};
    int64_t sites = 1, sequence = 128, shard_tokens = INT64_C(1) << 26, learn = 0;
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
        {"tokenizer", ARGS_TEXT, &o.tokenizer, .value = "PATH",
         .help = "Text becomes the ids of this tokenizer: a tokenizer.json (WordPiece, byte-level "
                 "BPE, Unigram), a vocab.txt, or a directory with one of them. With --learn: "
                 "wordpiece or bpe."},
        {"learn", ARGS_INT, &learn, .value = "N", .max = 1 << 20,
         .help = "Learn a vocabulary of N tokens from the training text, and write its "
                 "tokenizer.json beside the shards."},
        {"cased", ARGS_FLAG, &o.cased,
         .help = "A learned WordPiece vocabulary keeps capitals and accents."},
        {"whole-files", ARGS_FLAG, &o.source.whole_files,
         .help =
             "With a tokenizer: a file is one document. Otherwise a blank line ends a document, "
             "except in files of directories."},
        {"tokens", ARGS_TEXT, &o.source.ids, .value = "KIND",
         .help = "The files hold token ids of a tokenizer elsewhere: npy (NumPy, 16 to 64 bits), "
                 "uint16 or uint32 (raw, "
                 "little-endian)."},
        {"force", ARGS_FLAG, &o.replace, .help = "Replace shards that are there."},
    };
    struct args args = {
        .command = "data",
        .summary = "Turns text into token shards (llm.c format), with a held-out part and one part "
                   "per site: bytes, or the\n"
                   "ids of a tokenizer (--tokenizer). Text is plain, or JSON lines (--field), also "
                   "as .gz and .zst; of a\n"
                   "directory all files are taken. Or token ids of another program (--tokens).",
        .example = "atoll data --out data --sites 2 book.txt",
        .operands = "FILE|DIR...",
        .options = options,
        .count = sizeof options / sizeof *options,
    };
    struct arena a = arena_make(0);
    enum err e = args_parse(&args, argc, argv, &a);
    o.learn = (uint64_t)learn;
    if (!e && !args.help)
        e = run(&args, &o, sites, sequence, shard_tokens, &a);
    arena_free(&a);
    return e;
}
