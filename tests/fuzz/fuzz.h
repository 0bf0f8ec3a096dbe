/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FUZZ_H
#define FUZZ_H
/* The one function of a fuzz target, by libFuzzer's name. It must accept any bytes: crashes,
 * sanitizer reports and failed ASSERTs are findings. Returns 0.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "kernels/base/digest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* The head's digest of a durable file (kernels/base/record.h) is made right, so that fields and
 * sections are reached. */
static inline void fuzz_record_head(uint8_t *data, size_t size)
{
    uint64_t head;
    if (size < 64)
        return;
    memcpy(&head, data + 16, sizeof head);
    if (head < 64 || head > size)
        return;
    struct digest d = digest_of(data, head - sizeof d);
    memcpy(data + head - sizeof d, d.bytes, sizeof d);
}

#endif
