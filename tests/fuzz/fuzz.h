#ifndef FUZZ_H
#define FUZZ_H
/* The one function of a fuzz target, by libFuzzer's name. It must accept any bytes: crashes,
 * sanitizer reports and failed ASSERTs are findings. Returns 0.
 */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

#endif
