/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOKENIZER_H
#define TOKENIZER_H
/* Text to token ids and back, with the ids of Hugging Face's tokenizers for the same file:
 *     vocab.txt        WordPiece as BERT has it
 *     vocab.json       with merges.txt next to it: byte-level BPE as GPT-2 was published
 *     tokenizer.json   WordPiece with BertNormalizer and BertPreTokenizer; byte-level BPE with the
 *                      split pattern of the file (GPT-2, Llama 3, ModernBERT); BPE of characters,
 *                      with byte_fallback (Llama 2, Mistral, Gemma); Unigram (ALBERT, T5)
 * Any other kind is refused by name. Templates (post-processors) are not applied: the code that
 * packs sequences adds [CLS] and [SEP], with the ids of tokenizer_special.
 * A tokenizer does not change after it was opened: any number of threads, one scratch each.
 */
#include "inner/data/tokenizer/buffer.h"
#include "inner/data/tokenizer/split.h"
#include "kernels/base/digest.h"

enum tokenizer_kind { TOKENIZER_WORDPIECE, TOKENIZER_BPE, TOKENIZER_UNIGRAM };
/* role, key of special_tokens_map.json, texts that are taken where no file says it */
#define TOKENIZER_ROLES(X)                                                                         \
    X(CLS, "cls_token", "[CLS]", "<cls>", "[CLS]")                                                 \
    X(SEP, "sep_token", "[SEP]", "<sep>", "[SEP]")                                                 \
    X(MASK, "mask_token", "[MASK]", "<mask>", "[MASK]")                                            \
    X(PAD, "pad_token", "[PAD]", "<pad>", "<|padding|>")                                           \
    X(UNK, "unk_token", "[UNK]", "<unk>", "[UNK]")                                                 \
    X(BOS, "bos_token", "<s>", "<|begin_of_text|>", "<bos>")                                       \
    X(EOS, "eos_token", "</s>", "<|endoftext|>", "<|end_of_text|>")
enum tokenizer_role {
#define X(role, key, a, b, c) TOKENIZER_##role,
    TOKENIZER_ROLES(X)
#undef X
        TOKENIZER_ROLE_COUNT
};

struct tokenizer;
struct tokenizer_scratch; /* of one thread, for any tokenizer: buffers and a cache of words */

/* A file, or a directory with tokenizer.json, vocab.txt or vocab.json. vocab.txt alone does not say
 * whether the text is lower-cased: tokenizer_config.json next to it does (do_lower_case,
 * strip_accents, tokenize_chinese_chars); without one it is, unless a token has a capital letter.
 * ERR_INPUT: missing, broken; ERR_UNSUPPORTED: a kind that is not there, named. */
enum err tokenizer_open(struct tokenizer **t, const char *path) MUST;
/* The text of a tokenizer.json; `what` begins messages. Also the fuzz target. */
enum err tokenizer_parse(struct tokenizer **t, const char *what, const char *text,
                         size_t bytes) MUST;
void tokenizer_close(struct tokenizer *t); /* NULL is fine */
enum err tokenizer_scratch_open(struct tokenizer_scratch **x) MUST;
void tokenizer_scratch_close(struct tokenizer_scratch *x); /* NULL is fine */

/* Appends the ids of a text. ERR_INPUT: it is not UTF-8; the message says at which byte. */
enum err tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *x, const void *text,
                          size_t bytes, struct buffer_ids *out) MUST;
/* The words that the model gets, in order; added tokens are left out. */
enum err tokenizer_words(const struct tokenizer *t, struct tokenizer_scratch *x, const void *text,
                         size_t bytes, const struct split_sink *sink) MUST;
/* Appends text; ids beyond the vocabulary add nothing, nor do special tokens if they are skipped.
 */
enum err tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count,
                          bool skip_special, struct buffer *out) MUST;

enum tokenizer_kind tokenizer_kind(const struct tokenizer *t);
int32_t tokenizer_size(const struct tokenizer *t); /* largest id + 1 */
/* As the file writes it ("##ing"); NULL: there is no such id. */
const char *tokenizer_token(const struct tokenizer *t, int32_t id);
int32_t tokenizer_id(const struct tokenizer *t, const char *token);             /* -1: not there */
int32_t tokenizer_special(const struct tokenizer *t, enum tokenizer_role role); /* -1: none */
/* The same, where it is needed: ERR_INPUT names the missing token. */
enum err tokenizer_need(const struct tokenizer *t, enum tokenizer_role role, int32_t *id) MUST;
bool tokenizer_is_special(const struct tokenizer *t, int32_t id); /* flagged so in the file */
/* true: the token continues a word ("##x"; without a blank or mark before it). For whole-word
 * masks.
 */
bool tokenizer_continues(const struct tokenizer *t, int32_t id);
/* With "##" a token that begins so continues a word; with any other text it starts one. */
const char *tokenizer_word_start(const struct tokenizer *t);
struct digest tokenizer_digest(const struct tokenizer *t); /* SHA-256 of the file, or of its text */
const char *tokenizer_file(const struct tokenizer *t);     /* path of the file that was read */
/* Of vocab.json and merges.txt: the tokenizer.json that means the same. NULL: the file itself. */
const char *tokenizer_text(const struct tokenizer *t);
/* Does the directory have one of the files? */
bool tokenizer_is_in(const char *directory);

#endif
