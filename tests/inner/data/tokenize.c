/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer as a filter, for comparing it with another one. Texts that end with a zero byte in,
 * for each of them "count id id ..\n" out; with --decode the other way.
 *     tokenize [--decode] FILE_OR_DIRECTORY
 *     tokenize --learn wordpiece|bpe SIZE DIRECTORY     learns a vocabulary from the texts
 */
#include <stdio.h>
#include "inner/data/tokenizer/learn.h"

static enum err text_print(const struct tokenizer *t, struct tokenizer_scratch *x, const char *text,
                           size_t bytes)
{
    struct buffer_ids ids = {0};
    TRY(tokenizer_encode(t, x, text, bytes, &ids));
    printf("%zu", ids.count);
    for (size_t i = 0; i < ids.count; i++)
        printf(" %d", (int)ids.ids[i]);
    putchar('\n');
    buffer_ids_free(&ids);
    return ERR_OK;
}

static enum err ids_print(const struct tokenizer *t, char *line)
{
    struct buffer_ids ids = {0};
    struct buffer text = {0};
    long count = strtol(line, &line, 10);
    for (long i = 0; i < count; i++)
        TRY(buffer_ids_add(&ids, (int32_t)strtol(line, &line, 10)));
    TRY(tokenizer_decode(t, ids.ids, ids.count, false, &text));
    fwrite(text.data, 1, text.count, stdout);
    putchar(0);
    buffer_free(&text);
    buffer_ids_free(&ids);
    return ERR_OK;
}

static enum err work(const char *path, bool decode)
{
    struct tokenizer *t;
    struct tokenizer_scratch *x;
    char *text = NULL;
    size_t room = 0;
    ssize_t bytes;
    TRY(tokenizer_open(&t, path));
    TRY(tokenizer_scratch_open(&x));
    while ((bytes = getdelim(&text, &room, decode ? '\n' : 0, stdin)) > 0)
        TRY(decode ? ids_print(t, text) : text_print(t, x, text, (size_t)bytes - !text[bytes - 1]));
    free(text);
    tokenizer_scratch_close(x);
    tokenizer_close(t);
    return ERR_OK;
}

/* ---- learning ---- */

static enum err word_count(void *self, const uint8_t *word, size_t bytes)
{
    return tally_add(self, word, bytes, 1);
}

static enum err learn(const char *kind, const char *size, const char *directory)
{
    struct learn_options o = {.kind = strcmp(kind, "bpe") ? TOKENIZER_WORDPIECE : TOKENIZER_BPE,
                              .size = strtoul(size, NULL, 10),
                              .alphabet_max = 1000,
                              .lower = true};
    struct tokenizer *t;
    struct tokenizer_scratch *x;
    struct tally words;
    struct split_sink sink = {word_count, &words};
    char *text = NULL;
    size_t room = 0;
    ssize_t bytes;
    TRY(tally_open(&words));
    TRY(learn_words_open(&t, &o));
    TRY(tokenizer_scratch_open(&x));
    while ((bytes = getdelim(&text, &room, 0, stdin)) > 0)
        TRY(tokenizer_words(t, x, text, (size_t)bytes - !text[bytes - 1], &sink));
    tally_sort(&words);
    TRY(learn_write(&words, &o, directory));
    free(text);
    tally_close(&words);
    tokenizer_scratch_close(x);
    tokenizer_close(t);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    bool learns = argc == 5 && !strcmp(argv[1], "--learn");
    bool decode = argc == 3 && !strcmp(argv[1], "--decode");
    if (argc != 2 + decode && !learns) {
        fprintf(stderr,
                "usage: %s [--decode] FILE_OR_DIRECTORY | --learn wordpiece|bpe SIZE DIRECTORY\n",
                argv[0]);
        return 4;
    }
    enum err e = learns ? learn(argv[2], argv[3], argv[4]) : work(argv[argc - 1], decode);
    if (e)
        fprintf(stderr, "%s\n", err_message());
    return err_exit_code(e);
}
