/* SPDX-License-Identifier: Apache-2.0 */
/* What the relay reads of a stranger's first bytes: never past the end, the name is printable and
 * terminated, and a message that is whole is whole with more bytes after it, and short without its
 * last one. */
#include <stdlib.h>
#include "kernels/base/err.h"
#include "outer/link/client_hello.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct client_hello h, cut;
    uint8_t *copy = malloc(size_bytes + 1); /* so that a sanitizer sees the end */
    ASSERT(copy);
    memcpy(copy, data, size_bytes);
    enum client_hello_state s = client_hello_read(&h, copy, size_bytes);
    ASSERT(memchr(h.name, 0, sizeof h.name));
    for (const char *c = h.name; s == CLIENT_HELLO_WHOLE && *c; c++)
        ASSERT(*c > ' ' && *c < 0x7f);
    if (s == CLIENT_HELLO_WHOLE) {
        size_t whole = 5 + ((size_t)data[3] << 8 | data[4]);
        ASSERT(whole <= size_bytes);
        ASSERT(client_hello_read(&cut, copy, whole - 1) == CLIENT_HELLO_SHORT);
        ASSERT(client_hello_read(&cut, copy, whole) == CLIENT_HELLO_WHOLE);
        ASSERT(strcmp(cut.name, h.name) == 0 && cut.h2 == h.h2 && cut.tls13 == h.tls13);
    }
    free(copy);
    return 0;
}
