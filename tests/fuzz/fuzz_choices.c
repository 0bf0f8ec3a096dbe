/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/eval/choices.h"
#include "tests/fuzz/fuzz.h"

/* Lines of JSON, MMLU's CSV, or a .bin, by the first byte; what passes is whole: places within the
 * ids, a right choice. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct choices c = {0};
    const char *path = !size_bytes || *data >= 0x80 ? "fuzz.bin"
                       : *data == '{'               ? "fuzz.jsonl"
                                                    : "fuzz_test.csv";
    const struct choices_options o = {.name = "x", .path = path, .vocab = 256};
    enum err e = choices_parse(&c, &o, data, size_bytes);
    for (size_t i = 0; i < c.count && !e; i++) {
        const struct choices_question *q = &c.question[i];
        ASSERT(q->count >= 2 && q->label < q->count && q->first + q->count <= c.choice_count);
        ASSERT(q->context_count && q->context + q->context_count <= c.ids.count);
        for (size_t k = q->first; k < q->first + q->count; k++) {
            ASSERT(c.choice[k].count && c.choice[k].at + c.choice[k].count <= c.ids.count);
            ASSERT(c.choice[k].length > 0);
        }
    }
    choices_close(&c);
    return 0;
}
