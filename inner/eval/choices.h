/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHOICES_H
#define CHOICES_H
/* A multiple-choice task: questions of a file as token ids, each a context and choices that may
 * follow it. inner/eval/choose.h says which choice a model picks. Three kinds of files:
 *     NAME.bin    evaluation files of llm.c (HellaSwag, MMLU; dev/data/data_common.py,
 *                 write_evalfile): token ids of GPT-2's tokenizer
 *     NAME.csv    MMLU as Hendrycks publishes it: question, A, B, C, D, letter of the right one;
 * the subject is in the file's name, SUBJECT_test.csv. The prompt is as of JSON lines else JSON
 * lines, one question a line, with the prompt that lm-evaluation-harness makes of it; the keys tell
 * the task: ctx_a, ctx_b, activity_label, endings, label    HellaSwag question, choices, answerKey
 * ARC, as Hugging Face or AI2 write it question, choices, answer, subject              MMLU query,
 * choices, gold                            any other Text becomes ids as in lm-evaluation-harness
 * (api/model.py, _encode_pair): blanks at the end of the context belong to the choice, and the ids
 * of a choice are what context and choice together have after the ids of the context alone. All of
 * it is read at open; one owner.
 */
#include "inner/data/tokenizer/tokenizer.h"

enum { CHOICES_MAX = 26, CHOICES_QUESTIONS_MAX = 1 << 20, CHOICES_SHOTS_MAX = 64 };

struct choices_options {
    const char *name, *path; /* a pattern: all files that match it, by name */
    const char *shots_path;  /* the same; NULL: none */
    size_t shots;            /* worked examples before each question: the first of shots_path, of
                                the question's subject where it has one */
    size_t questions;        /* the first ones of each file alone; 0: all */
    int64_t vocab;           /* ids are below it */
    const struct tokenizer *tokenizer; /* NULL: a byte is an id, or with `ids` only .bin is read */
    bool ids;
};
struct choices_question {
    size_t context, context_count; /* ids[context ..] */
    size_t first, count, label;    /* choice[first ..]; label: which of them is right */
};
struct choices_choice {
    size_t at, count; /* ids[at ..] */
    double length;    /* acc_norm divides by it: characters of the text; of .bin the ids (llm.c) */
};
struct choices {
    const char *name, *path;
    struct choices_question *question;
    struct choices_choice *choice;
    size_t count, choice_count;
    double chance;                 /* accuracy of a pick at random */
    struct buffer questions, list; /* private: the memory of the two arrays */
    struct buffer_ids ids;
};

/* ERR_INPUT names the line or the question that is wrong. */
enum err choices_open(struct choices *c, const struct choices_options *o) MUST;
void choices_close(struct choices *c); /* a zeroed or partly opened one is fine */
/* What a file named o->path holds, without worked examples: the fuzz target. */
enum err choices_parse(struct choices *c, const struct choices_options *o, const uint8_t *data,
                       size_t size_bytes) MUST;

#endif
