/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INDEXED_H
#define INDEXED_H
/* Megatron-LM's indexed data set, version 1: NAME.bin holds token ids without a header, NAME.idx
 * where its sequences begin and which of them make a document. Here a sequence is a sentence. The
 * index, little-endian:
 *
 *     9 bytes      "MMIDIDX\0\0"
 *     uint64       version: 1
 *     uint8        type of the ids: 8 uint16, 4 int32
 *     uint64 n     sequences
 *     uint64 d     entries of the document index, one more than documents
 *     int32[n]     tokens of each sequence
 *     int64[n]     byte in NAME.bin where each begins
 *     int64[d]     sequence with which each document begins, 0 first and n last
 *
 * Not here: the ids themselves (shard.h).
 */
#include "kernels/base/file.h"

enum {
    INDEXED_HEADER_BYTES = 34,
    INDEXED_UINT16 = 8,
    INDEXED_INT32 = 4,
    INDEXED_UINT16_VOCAB = 65500 /* Megatron's: a vocabulary from here on has int32 ids */
};

struct indexed { /* a view of the bytes of an index */
    const uint8_t *lengths, *documents;
    const uint8_t *pointers;
    unsigned id_bytes;
    uint64_t sentences, documents_count, tokens;
};

/* Checks the whole index against the size of its .bin. ERR_INPUT names `path` and what is wrong. */
enum err indexed_parse(struct indexed *x, const char *path, const uint8_t *data, size_t size_bytes,
                       uint64_t bin_bytes) MUST;
uint32_t indexed_length(const struct indexed *x, uint64_t sentence);   /* tokens, > 0 */
uint64_t indexed_first(const struct indexed *x, uint64_t sentence);    /* its first token */
uint64_t indexed_document(const struct indexed *x, uint64_t document); /* its first sentence; also
                                                                          of documents_count */

struct indexed_writer {
    struct arena memory;
    struct file_stream bin;
    char *index_path;
    unsigned id_bytes;
    int64_t vocab;
    int32_t *lengths; /* (sentences), and room for more */
    uint64_t *ends;   /* (documents): the sentence after each */
    uint64_t sentences, documents, tokens;
    size_t lengths_room, ends_room;
};

/* Begins STEM.bin and STEM.idx; both appear at indexed_close. `w` is zeroed. */
enum err indexed_open(struct indexed_writer *w, const char *stem, int64_t vocab) MUST;
/* One more sentence of the document; one without tokens is left out. ERR_INPUT: an id is negative
 * or not below the vocabulary. */
enum err indexed_sentence(struct indexed_writer *w, const int32_t *ids, size_t count) MUST;
/* The document ends; one without sentences is left out. */
enum err indexed_document_end(struct indexed_writer *w) MUST;
/* Durable. ERR_INPUT: there was no sentence at all. Frees everything, after an error too. */
enum err indexed_close(struct indexed_writer *w) MUST;
/* Leaves no file of this call; a zeroed or closed writer is fine. */
void indexed_abandon(struct indexed_writer *w);

#endif
