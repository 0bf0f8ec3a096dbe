/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEARN_H
#define LEARN_H
/* Learns a vocabulary from words and their counts: WordPiece as Hugging Face's WordPieceTrainer
 * does (byte-pair encoding over characters, "##" inside of words), and byte-level BPE. The pair
 * that occurs most often becomes a token; among equals the pair of the lower ids. The result is a
 * function of the words and the options alone.
 */
#include "inner/data/tokenizer/tokenizer.h"
#include "inner/data/tokenizer/tally.h"

struct learn_options {
    enum tokenizer_kind kind; /* WORDPIECE or BPE */
    size_t size;              /* tokens, specials and alphabet included; fewer if no pair is left */
    size_t alphabet_max;      /* WORDPIECE: the most frequent characters; 0: all of them */
    bool lower;               /* WORDPIECE: lower case, without accents */
};

/* A tokenizer that splits text into the words to count (tokenizer_words), with the options'
 * normaliser and pre-tokenizer. */
enum err learn_words_open(struct tokenizer **t, const struct learn_options *o) MUST;
/* Learns from sorted words and writes DIRECTORY/tokenizer.json, and for WordPiece vocab.txt and
 * tokenizer_config.json: Hugging Face's libraries load them as they are. ERR_CONFIG: the size has
 * no room for specials and alphabet. */
enum err learn_write(const struct tally *w, const struct learn_options *o,
                     const char *directory) MUST;

#endif
