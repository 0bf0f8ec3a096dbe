/* SPDX-License-Identifier: Apache-2.0 */
/* atoll data: text in, token shards out. What it does to the text is in inner/data/text.h. */
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/record/json_write.h"
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

/* A part of the shards, of text or of labelled texts. */
struct part {
    const char *name;
    int64_t site;   /* -1: held out */
    uint64_t count; /* tokens, or texts */
    uint32_t shards;
    const char *files;
};
/* What a call made, for both forms of its report. */
struct made {
    const char *of; /* "tokens", or "texts" */
    struct part *part;
    size_t parts;
    const char *configuration; /* what that of site 0 needs, ready to be copied */
};

static enum err part_add(struct made *m, int64_t site, uint64_t count, uint32_t shards,
                         const struct text_options *o, struct arena *a)
{
    struct part *p = &m->part[m->parts++];
    const char *number = shards ? "*" : "0000";
    *p = (struct part){.site = site, .count = count, .shards = shards};
    TRY_ALLOC(p->name =
                  site < 0 ? "held out" : arena_printf(a, "train, site %lld", (long long)site));
    TRY_ALLOC(p->files = site < 0 ? arena_printf(a, "%s/eval-%s.bin", o->out, number)
                                  : arena_printf(a, "%s/train-%lld-%s.bin", o->out, (long long)site,
                                                 number));
    return ERR_OK;
}

static void print_parts(const struct made *m)
{
    for (const struct part *p = m->part; p < m->part + m->parts; p++) {
        printf("%-14s %13llu %s", p->name, (unsigned long long)p->count, m->of);
        if (p->shards)
            printf("  %4u shard%s  %s\n", p->shards, p->shards == 1 ? " " : "s", p->files);
        else
            printf("                %s\n", p->files);
    }
    printf("\nin the configuration of site 0:\n%s", m->configuration);
}

static void json_parts(struct json_write *w, const struct made *m)
{
    json_array(w, "parts");
    for (const struct part *p = m->part; p < m->part + m->parts; p++) {
        json_object(w, NULL);
        if (p->site < 0)
            json_bool(w, "held_out", true);
        else
            json_int(w, "site", p->site);
        json_int(w, m->of, (int64_t)p->count);
        if (p->shards)
            json_int(w, "shards", p->shards);
        json_text(w, "files", p->files);
        json_end(w);
    }
    json_end(w);
    json_text(w, "configuration", m->configuration);
}

/* Documents of one sentence, and those that --min-sentences left out. */
static uint64_t single_documents(const struct text_report *r, const struct text_options *o)
{
    uint64_t single = r->eval.single;
    for (uint32_t i = 0; i < o->sites; i++)
        single += r->train[i].single;
    return single;
}

static uint64_t left_out_documents(const struct text_report *r, const struct text_options *o)
{
    uint64_t left_out = r->eval.left_out;
    for (uint32_t i = 0; i < o->sites; i++)
        left_out += r->train[i].left_out;
    return left_out;
}

static void print_notes(const struct text_report *r, const struct text_options *o)
{
    uint64_t left_out = left_out_documents(r, o), single = single_documents(r, o);
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

static enum err text_configuration(const struct text_report *r, const struct text_options *o,
                                   struct arena *a, const char **text)
{
    const char *ids = "", *eval = "";
    bool masked = o->split_sentences && r->masks, pairs = masked && !single_documents(r, o);
    if (o->source.ids || r->vocab)
        TRY_ALLOC(ids = arena_printf(
                      a,
                      "        tokenizer: external\n%s%s%s%s%s    model:\n        vocab_size: %u   "
                      "# or more: the largest id is %u\n%s%s",
                      r->vocab ? "        tokenizer_sha256: " : "", r->sha256, r->vocab ? "\n" : "",
                      masked ? "        objective: mlm\n" : "",
                      pairs ? "        pairs: sop   # or nsp, or none\n" : "", r->largest_id + 1,
                      r->largest_id, masked ? "        causal: false\n" : "",
                      pairs ? "        token_types: 2\n        pooler: true\n" : ""));
    if (r->eval.shards)
        TRY_ALLOC(eval = arena_printf(a, "        eval: [\"%s/eval-*.bin\"]\n", o->out));
    TRY_ALLOC(*text = arena_printf(a, "    data:\n        train: [\"%s/train-0-*.bin\"]\n%s%s",
                                   o->out, eval, ids));
    return ERR_OK;
}

static void text_json(const struct text_report *r, const struct text_options *o,
                      const struct made *m)
{
    struct json_write w = {.out = stdout};
    json_object(&w, NULL);
    json_int(&w, "tokens", (int64_t)r->tokens);
    json_int(&w, "blocks", (int64_t)r->blocks);
    if (r->vocab) {
        json_int(&w, "documents", (int64_t)r->documents);
        json_int(&w, "vocab", r->vocab);
    }
    json_parts(&w, m);
    if (r->owners)
        json_int(&w, "owners", (int64_t)r->owners);
    if (o->split_sentences) {
        json_int(&w, "left_out", (int64_t)left_out_documents(r, o));
        json_int(&w, "of_one_sentence", (int64_t)single_documents(r, o));
        json_bool(&w, "masks", r->masks);
    }
    json_close(&w);
}

static enum err text_say(const struct text_report *r, const struct text_options *o, bool json,
                         struct arena *a)
{
    struct made m = {.of = "tokens"};
    TRY_ALLOC(m.part = arena_array(a, (size_t)o->sites + 1, sizeof *m.part));
    for (uint32_t i = 0; i < o->sites; i++)
        TRY(part_add(&m, i, r->train[i].tokens, r->train[i].shards, o, a));
    if (r->eval.shards)
        TRY(part_add(&m, -1, r->eval.tokens, r->eval.shards, o, a));
    TRY(text_configuration(r, o, a, &m.configuration));
    if (json) {
        text_json(r, o, &m);
        return ERR_OK;
    }
    printf("%-14s %13llu tokens in %llu blocks\n", "read", (unsigned long long)r->tokens,
           (unsigned long long)r->blocks);
    if (r->vocab)
        printf("%-14s %13llu documents, a vocabulary of %d\n", "", (unsigned long long)r->documents,
               r->vocab);
    print_parts(&m);
    if (r->owners)
        printf("\n%llu owners\n", (unsigned long long)r->owners);
    if (o->split_sentences)
        print_notes(r, o);
    return ERR_OK;
}

static enum err labels_configuration(const struct labels_report *r, const struct text_options *o,
                                     struct arena *a, const char **text)
{
    const char *classes = "", *eval = "";
    for (size_t i = 0; i < r->of.classes_count; i++)
        TRY_ALLOC(classes =
                      arena_printf(a, "%s%s\"%s\"", classes, i ? ", " : "", r->of.classes[i].name));
    if (r->held_out)
        TRY_ALLOC(eval = arena_printf(a, "        eval: [\"%s/eval-*.bin\"]\n", o->out));
    TRY_ALLOC(*text = arena_printf(
                  a,
                  "    data:\n        objective: labels\n        train: [\"%s/train-0-*.bin\"]\n%s"
                  "        tokenizer: external\n        tokenizer_sha256: %s\n        classes: "
                  "[%s]\n    model:\n        vocab_size: %lld\n        pooler: true\n        "
                  "classes: [%zu]\n",
                  o->out, eval, r->of.sha256, classes, (long long)r->of.vocab,
                  r->of.classes_count));
    return ERR_OK;
}

static void labels_json(const struct labels_report *r, const struct made *m)
{
    struct json_write w = {.out = stdout};
    json_object(&w, NULL);
    json_int(&w, "texts", (int64_t)r->documents);
    json_int(&w, "tokens", (int64_t)r->tokens);
    json_int(&w, "classes", (int64_t)r->of.classes_count);
    if (r->owners)
        json_int(&w, "owners", (int64_t)r->owners);
    json_parts(&w, m);
    json_close(&w);
}

static enum err labels_say(const struct labels_report *r, const struct text_options *o, bool json,
                           struct arena *a)
{
    struct made m = {.of = "texts"};
    TRY_ALLOC(m.part = arena_array(a, (size_t)o->sites + 1, sizeof *m.part));
    for (uint32_t i = 0; i < o->sites; i++)
        TRY(part_add(&m, i, r->train[i], 0, o, a));
    if (r->held_out)
        TRY(part_add(&m, -1, r->held_out, 0, o, a));
    TRY(labels_configuration(r, o, a, &m.configuration));
    if (json) {
        labels_json(r, &m);
        return ERR_OK;
    }
    printf("%-14s %13llu texts, %llu tokens, %zu classes\n", "read",
           (unsigned long long)r->documents, (unsigned long long)r->tokens, r->of.classes_count);
    if (r->owners)
        printf("%-14s %13llu owners\n", "", (unsigned long long)r->owners);
    print_parts(&m);
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
                      const struct labels_wish *w, bool json, struct arena *a)
{
    struct labels_report report;
    if (!o->tokenizer || o->learn || o->source.ids || o->source.field || o->split_sentences ||
        o->documents)
        return err_set(ERR_CONFIG, "--labels needs --tokenizer PATH, and takes none of --learn, "
                                   "--tokens, --field, --split-sentences, --documents");
    TRY(text_labels_prepare((const char *const *)args->operand, (size_t)args->operand_count, o,
                            w->classes_of, a, &report));
    return labels_say(&report, o, json, a);
}

static enum err run(struct args *args, struct text_options *o, const struct labels_wish *labels,
                    bool json, struct arena *a)
{
    struct text_report report;
    struct progress progress = {.terminal = isatty(STDERR_FILENO) == 1};
    o->progress = progress_show;
    o->progress_self = &progress;
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
        return label(args, o, labels, json, a);
    if (o->shard_tokens <= o->sequence)
        return err_set(ERR_CONFIG, "--shard-tokens must be more than --seq-len");
    TRY(text_prepare((const char *const *)args->operand, (size_t)args->operand_count, o, a,
                     &report));
    return text_say(&report, o, json, a);
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

enum err cmd_data(int argc, char **argv, struct arena *arena)
{
    struct text_options o = {.held_out = 0.05, .min_sentences = 1};
    int64_t sites = 1, sequence = 128, shard_tokens = INT64_C(1) << 26, learn = 0;
    struct labels_wish labels = {0};
    const char *format = "text";
    bool json;
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
        FORMAT_ROW(&format, ": parts, configuration"),
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
        ARGS_OPTIONS(options),
    };
    process_files_private();
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    o.learn = (uint64_t)learn;
    o.sites = (uint32_t)sites;
    o.sequence = (uint64_t)sequence;
    o.shard_tokens = (uint64_t)shard_tokens;
    TRY(cmd_format(format, &json));
    TRY(input_take(&args, o.out, arena));
    TRY(run(&args, &o, &labels, json, arena));
    return directory_claim(o.out, DIRECTORY_DATA);
}
