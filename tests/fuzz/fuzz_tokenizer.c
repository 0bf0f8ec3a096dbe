/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a tokenizer.json, and as a text for a small tokenizer of each kind. */
#include "inner/data/tokenizer/tokenizer.h"
#include "kernels/base/log.h"
#include "tests/fuzz/fuzz.h"

static const char *const tokenizers[] = {
    "{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"
    "\"BertPreTokenizer\"},"
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"##a\":2}},"
    "\"added_tokens\":[{\"id\":3,\"content\":\"[MASK]\",\"special\":true,\"lstrip\":true},"
    "{\"id\":4,\"content\":\"aa\",\"single_word\":true}]}",
    "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}",
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKD\"},"
    "{\"type\":\"StripAccents\"},{\"type\":\"Lowercase\"}]},\"pre_tokenizer\":{\"type\":"
    "\"Metaspace\","
    "\"replacement\":\"_\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
    "\"vocab\":[[\"u\",0],[\"a\",-1],[\"_a\",-2]]}}",
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\"},{\"type\":"
    "\"Prepend\","
    "\"prepend\":\"_\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"b\"},\"behavior\":"
    "\"MergedWithNext\"},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\"_\"},\"content\":\" "
    "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Strip\","
    "\"start\":1}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"byte_fallback\":true,"
    "\"fuse_unk\":true,\"vocab\":{\"u\":0,\"a\":1,\"b\":2,\"ab\":3,\"<0xC3>\":4,\"<0xA9>\":5,"
    "\"<0x0A>\":6,\"_\":7,\"_a\":8},\"merges\":[\"a b\",\"_ a\"]}}"};

static void use(struct tokenizer *t, struct tokenizer_scratch *x, const uint8_t *data, size_t bytes)
{
    struct buffer_ids ids = {0};
    struct buffer text = {0};
    if (tokenizer_encode(t, x, data, bytes, &ids) == ERR_OK) {
        for (size_t i = 0; i < ids.count; i++)
            ASSERT(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_size(t));
        ASSERT(tokenizer_decode(t, ids.ids, ids.count, false, &text) == ERR_OK);
    }
    buffer_free(&text);
    buffer_ids_free(&ids);
}

enum { TOKENIZERS = sizeof tokenizers / sizeof *tokenizers };

/* Opened once: compiling their patterns takes longer than a run. */
static struct tokenizer *const *opened(void)
{
    static struct tokenizer *t[TOKENIZERS];
    log_min(LOG_ERROR); /* ids that are numbered again are told in each run */
    for (size_t i = 0; i < TOKENIZERS && !t[i]; i++)
        ASSERT(tokenizer_parse(&t[i], "fuzz", tokenizers[i], strlen(tokenizers[i])) == ERR_OK);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static const char sample[] = "abc aab\xc3\xa9 1 [MASK]";
    struct tokenizer_scratch *x;
    struct tokenizer *t;
    ASSERT(tokenizer_scratch_open(&x) == ERR_OK);
    for (size_t i = 0; i < TOKENIZERS; i++)
        use(opened()[i], x, data, size_bytes);
    if (tokenizer_parse(&t, "fuzz.json", (const char *)data, size_bytes) == ERR_OK) {
        use(t, x, (const uint8_t *)sample, sizeof sample - 1);
        tokenizer_close(t);
    }
    tokenizer_scratch_close(x);
    return 0;
}
