/* SPDX-License-Identifier: Apache-2.0 */
/* atoll data: text in, token shards out. What it does to the text is in inner/data/text.h. */
#include "outer/cmd/cmd.h"
#include "outer/run/process.h"
#include "outer/record/directory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "inner/data/shard.h"
#include "inner/data/text.h"
#include "kernels/base/args.h"
#include "kernels/base/clock.h"
#include "kernels/base/durable.h"

static void print_part(const char *name, const struct text_part *p, const char *pattern)
{
    printf("%-14s %13llu tokens  %4u shard%s  %s\n", name, (unsigned long long)p->tokens, p->shards,
           p->shards == 1 ? " " : "s", pattern);
}

/* Documents of one sentence. */
static uint64_t single_documents(const struct text_report *r, const struct text_options *o)
{
    uint64_t single = r->eval.single;
    for (uint32_t i = 0; i < o->sites; i++)
        single += r->train[i].single;
    return single;
}

static void print_notes(const struct text_report *r, const struct text_options *o)
{
    uint64_t left_out = r->eval.left_out, single = single_documents(r, o);
    for (uint32_t i = 0; i < o->sites; i++)
        left_out += r->train[i].left_out;
    if (left_out)
        printf("\n%llu document%s of fewer than %lld sentences left out\n",
               (unsigned long long)left_out, left_out == 1 ? "" : "s", (long long)o->min_sentences);
    if (single)
        printf("\n%llu document%s one sentence, which data.pairs refuses: --min-sentences 2 "
               "leaves such documents out\n",
               (unsigned long long)single, single == 1 ? " has" : "s have");
    if (!r->masks)
        printf("\nthe tokenizer has no [CLS], [SEP] or [MASK]: data.objective = mlm refuses these "
               "shards\n");
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
    bool masked = o->split_sentences && r->masks, pairs = masked && !single_documents(r, o);
    if (o->source.ids || r->vocab)
        printf("        tokenizer: external\n%s%s%s%s%s    model:\n        vocab_size: %u   # or "
               "more: "
               "the largest id is %u\n%s%s",
               r->vocab ? "        tokenizer_sha256: " : "", r->sha256, r->vocab ? "\n" : "",
               masked ? "        objective: mlm\n" : "",
               pairs ? "        pairs: sop   # or nsp, or none\n" : "", r->largest_id + 1,
               r->largest_id, masked ? "        causal: false\n" : "",
               pairs ? "        token_types: 2\n        pooler: true\n" : "");
    if (r->owners)
        printf("\n%llu owners\n", (unsigned long long)r->owners);
    if (o->split_sentences)
        print_notes(r, o);
    return ERR_OK;
}

/* What the configuration needs, ready to be copied. */
static void print_labels(const struct labels_report *r, const struct text_options *o)
{
    printf("%-14s %13llu texts, %llu tokens, %zu classes\n", "read",
           (unsigned long long)r->documents, (unsigned long long)r->tokens, r->of.classes_count);
    if (r->owners)
        printf("%-14s %13llu owners\n", "", (unsigned long long)r->owners);
    for (uint32_t i = 0; i < o->sites; i++)
        printf("train, site %u  %13llu texts                %s/train-%u-0000.bin\n", i,
               (unsigned long long)r->train[i], o->out, i);
    if (r->held_out)
        printf("held out       %13llu texts                %s/eval-0000.bin\n",
               (unsigned long long)r->held_out, o->out);
    printf("\nin the configuration of site 0:\n    data:\n        objective: labels\n"
           "        train: [\"%s/train-0-*.bin\"]\n",
           o->out);
    if (r->held_out)
        printf("        eval: [\"%s/eval-*.bin\"]\n", o->out);
    printf("        tokenizer: external\n        tokenizer_sha256: %s\n        classes: [",
           r->of.sha256);
    for (size_t i = 0; i < r->of.classes_count; i++)
        printf("%s\"%s\"", i ? ", " : "", r->of.classes[i].name);
    printf(
        "]\n    model:\n        vocab_size: %lld\n        pooler: true\n        classes: [%zu]\n",
        (long long)r->of.vocab, r->of.classes_count);
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
    if ((o->split_sentences || o->documents) && !o->tokenizer)
        return err_set(ERR_CONFIG, "%s needs --tokenizer",
                       o->split_sentences ? "--split-sentences" : "--documents");
    if (o->source.owner && !(o->split_sentences || o->documents))
        return err_set(ERR_CONFIG, "%s needs --documents or --split-sentences",
                       o->columns.name[COLUMNS_OWNER] ? "--csv owner=" : "--owner-field");
    if (o->source.raw && o->tokenizer)
        return err_set(ERR_CONFIG, "--bytes takes the bytes of any file, and --tokenizer text; "
                                   "give one of them");
    if (o->split_sentences && o->documents)
        return err_set(ERR_CONFIG, "--documents has one sequence for a document, and "
                                   "--split-sentences one for a sentence; give one of them");
    if (!o->split_sentences && o->min_sentences > 1)
        return err_set(ERR_CONFIG, "--min-sentences needs --split-sentences");
    return ERR_OK;
}

struct labels_wish {
    bool labels;
    const char *classes_of, *csv;
};

/* Without --labels the columns are fields, as of JSON lines. */
static enum err csv_check(struct text_options *o, const struct labels_wish *w, struct arena *a)
{
    const struct {
        enum columns_role role;
        const char **field, *option;
    } fields[] = {{COLUMNS_TEXT, &o->source.field, "--field"},
                  {COLUMNS_OWNER, &o->source.owner, "--owner-field"}};
    if (!w->csv)
        return ERR_OK;
    o->source.csv = true;
    TRY(columns_parse(&o->columns, w->csv, a));
    if (w->labels)
        return ERR_OK;
    if (o->columns.name[COLUMNS_LABEL] || o->columns.name[COLUMNS_TEXT_B])
        return err_set(ERR_CONFIG, "--csv label= and text_b= are for --labels");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *name = o->columns.name[fields[i].role];
        if (name && *fields[i].field && strcmp(name, *fields[i].field) != 0)
            return err_set(ERR_CONFIG, "--csv and %s name two columns: %s, %s", fields[i].option,
                           name, *fields[i].field);
        *fields[i].field = name ? name : *fields[i].field;
    }
    return ERR_OK;
}

static enum err label(const struct args *args, const struct text_options *o,
                      const struct labels_wish *w, struct arena *a)
{
    struct labels_report report;
    if (!o->tokenizer || o->learn || o->source.ids || o->source.field || o->split_sentences ||
        o->documents)
        return err_set(ERR_CONFIG, "--labels needs --tokenizer PATH, and takes none of --learn, "
                                   "--tokens, --field, --split-sentences, --documents");
    TRY(text_labels_prepare((const char *const *)args->operand, (size_t)args->operand_count, o,
                            w->classes_of, a, &report));
    print_labels(&report, o);
    return ERR_OK;
}

static enum err run(struct args *args, struct text_options *o, const struct labels_wish *labels,
                    int64_t sequence, int64_t shard_tokens, struct arena *a)
{
    struct text_report report;
    struct progress progress = {.terminal = isatty(STDERR_FILENO) == 1};
    o->progress = progress_show;
    o->progress_self = &progress;
    o->sequence = (uint64_t)sequence;
    o->shard_tokens = (uint64_t)shard_tokens;
    if (!args->operand_count)
        return err_set(ERR_CONFIG, "name the text files; see --help");
    if (labels->classes_of && !labels->labels)
        return err_set(ERR_CONFIG, "--classes-of is for --labels");
    if (o->owners && !labels->labels)
        return err_set(ERR_CONFIG,
                       "--owners is for --labels; JSON lines and CSV have --owner-field");
    TRY(csv_check(o, labels, a));
    TRY(tokenizer_check(o));
    if (labels->labels)
        return label(args, o, labels, a);
    if (shard_tokens <= sequence)
        return err_set(ERR_CONFIG, "--shard-tokens must be more than --seq-len");
    TRY(text_prepare((const char *const *)args->operand, (size_t)args->operand_count, o, a,
                     &report));
    return print_report(&report, o, a);
}

/* Standard input as a file, which is read more than once: next to the shards, and gone with the
 * process. */
static enum err input_copy(const char *out, struct arena *a, char **path)
{
    static char piece[1 << 16];
    ssize_t got;
    char *name;
    TRY_ALLOC(name = arena_printf(a, "%s.input.XXXXXX", out));
    int fd = mkstemp(name);
    if (fd < 0)
        return durable_failed("write", name, ERR_IO);
    unlink(name);
    while ((got = read(STDIN_FILENO, piece, sizeof piece)) > 0)
        for (ssize_t at = 0, n; at < got; at += n)
            if ((n = write(fd, piece + at, (size_t)(got - at))) < 0)
                return durable_failed("write", "a copy of standard input", ERR_IO);
    if (got < 0)
        return durable_failed("read", "standard input", ERR_IO);
    TRY_ALLOC(*path = arena_printf(a, "/dev/fd/%d", fd));
    return ERR_OK;
}

/* The operand - is standard input. */
static enum err input_take(struct args *args, const char *out, struct arena *a)
{
    bool taken = false;
    for (int i = 0; i < args->operand_count; i++) {
        if (strcmp(args->operand[i], "-") != 0)
            continue;
        if (taken)
            return err_set(ERR_CONFIG, "- is standard input, and can be read once");
        TRY(input_copy(out, a, &args->operand[i]));
        taken = true;
    }
    return ERR_OK;
}

enum err cmd_data(int argc, char **argv)
{
    struct text_options o = {.held_out = 0.05, .min_sentences = 1};
    int64_t sites = 1, sequence = 128, shard_tokens = INT64_C(1) << 26, learn = 0;
    struct labels_wish labels = {0};
    const struct args_option options[] = {
        {"out", ARGS_TEXT, &o.out, .value = "DIR", .required = true,
         .help = "Directory for the shards."},
        {"sites", ARGS_INT, &sites, .value = "N", .min = 1, .max = TEXT_SITES_MAX,
         .help = "Disjoint parts of the training text, one per site."},
        {"held-out", ARGS_REAL, &o.held_out, .value = "SHARE", .max = 0.5,
         .help = "Share of the text that no site trains on."},
        {"seq-len", ARGS_INT, &sequence, .value = "TOKENS", .min = 1, .max = 131072,
         .help = "train.seq_len of the run: no part may be shorter.", .former = "sequence"},
        {"shard-tokens", ARGS_INT, &shard_tokens, .value = "N", .min = 2, .max = SHARD_TOKENS_MAX,
         .help = "Longest shard."},
        {"field", ARGS_TEXT, &o.source.field, .value = "NAME",
         .help = "JSON lines: a document is the text of this field. Of CSV the column (\"text\")."},
        {"owner-field", ARGS_TEXT, &o.source.owner, .value = "NAME",
         .help = "JSON lines, CSV: this field says whose the document is, such as a patient; for "
                 "privacy.unit = owner. All documents of an owner go to one part."},
        {"csv", ARGS_TEXT, &labels.csv, .value = "ROLE=COLUMN,..",
         .help = "The columns of CSV files, such as label=diagnosis,text=report,owner=patient; "
                 "also text_b. Otherwise the columns of these names. Takes files as CSV that are "
                 "not named .csv, but neither .txt nor .tsv."},
        {"bytes", ARGS_FLAG, &o.source.raw,
         .help = "The bytes of any file, text or not. Otherwise what is no text is refused."},
        {"tokenizer", ARGS_TEXT, &o.tokenizer, .value = "PATH",
         .help = "Text becomes the ids of this tokenizer: a tokenizer.json (WordPiece, byte-level "
                 "BPE, Unigram), a vocab.txt, a vocab.json with merges.txt, or a directory with "
                 "one of them. With --learn: "
                 "wordpiece or bpe."},
        {"learn", ARGS_INT, &learn, .value = "N", .max = 1 << 20,
         .help = "Learn a vocabulary of N tokens from the training text, and write its "
                 "tokenizer.json next to the shards."},
        {"cased", ARGS_FLAG, &o.cased,
         .help = "A learned WordPiece vocabulary keeps capitals and accents."},
        {"labels", ARGS_FLAG, &labels.labels,
         .help = "The files are lines label<TAB>text, or label<TAB>text<TAB>text, or CSV (--csv): "
                 "shards for data.objective = labels."},
        {"classes-of", ARGS_TEXT, &labels.classes_of, .value = "DIR",
         .help = "With --labels: the classes of DIR/data.json, in their order. Otherwise the "
                 "labels that occur."},
        {"owners", ARGS_FLAG, &o.owners,
         .help = "With --labels: the lines are owner<TAB>label<TAB>text, and all lines of an owner "
                 "go to one part; for privacy.unit = owner. A column owner of CSV does it too."},
        {"whole-files", ARGS_FLAG, &o.source.whole_files,
         .help =
             "With a tokenizer: a file is one document. Otherwise a blank line ends a document, "
             "except in files of directories."},
        {"documents", ARGS_FLAG, &o.documents,
         .help = "Documents, as Megatron's indexed data sets (.bin and .idx): privacy.unit = "
                 "document and owner need them, or those of --split-sentences."},
        {"split-sentences", ARGS_FLAG, &o.split_sentences,
         .help = "Documents of sentences, as Megatron's indexed data sets (.bin and .idx): masked "
                 "text with data.pairs needs them. A sentence ends with its line, or with . ! ? "
                 "and white space before an upper-case letter or a digit."},
        {"min-sentences", ARGS_INT, &o.min_sentences, .value = "N", .min = 1, .max = 1 << 20,
         .help = "With --split-sentences: documents of fewer sentences are left out. data.pairs "
                 "needs 2."},
        {"tokens", ARGS_TEXT, &o.source.ids, .value = "KIND",
         .help = "The files hold token ids of a tokenizer elsewhere: npy (NumPy, 16 to 64 bits), "
                 "uint16 or uint32 (raw, "
                 "little-endian)."},
        {"force", ARGS_FLAG, &o.replace, .help = "Replace shards that are there."},
    };
    struct args args = {
        .command = "data",
        .summary =
            "Turns text into token shards (of llm.c or Megatron-LM), with a held-out part and one "
            "part per site: bytes, or the ids of a tokenizer (--tokenizer). Text is plain, JSON "
            "lines (--field) or CSV, in one call, also as .gz and .zst; of a directory all files "
            "are taken. Or labelled texts (--labels), or token ids of another program (--tokens).",
        .example = "atoll data --out data --sites 2 book.txt",
        .operands = "FILE|DIR|-...",
        .options = options,
        .count = sizeof options / sizeof *options,
    };
    struct arena a = arena_make(0);
    process_files_private();
    enum err e = args_parse(&args, argc, argv, &a);
    o.learn = (uint64_t)learn;
    o.sites = (uint32_t)sites;
    if (!e && !args.help)
        e = input_take(&args, o.out, &a);
    if (!e && !args.help)
        e = run(&args, &o, &labels, sequence, shard_tokens, &a);
    if (!e && !args.help)
        e = directory_claim(o.out, DIRECTORY_DATA);
    arena_free(&a);
    return e;
}
