/* SPDX-License-Identifier: Apache-2.0 */
/* The messages and files of secure aggregation. First byte: which one. What is accepted must be
 * what the writer writes, byte for byte; files are read into a site that then continues. */
#include <stdlib.h>
#include <string.h>
#include "outer/masks/seal_site.h"
#include "tests/fuzz/fuzz.h"

enum { SITES = 4, FRAGMENTS = 2 };

static void statement(const uint8_t *data, size_t size)
{
    struct keys_statement s;
    uint8_t again[KEYS_STATEMENT_BYTES];
    if (keys_statement_read(&s, data, size) != ERR_OK)
        return;
    keys_statement_write(&s, again);
    ASSERT(size == sizeof again && !memcmp(again, data, size));
}

static void seal(const uint8_t *data, size_t size)
{
    static struct seal s;
    static uint8_t again[SEAL_BYTES_MAX];
    const struct seal_context c = {.run = "golden",
                                   .config = digest_of("configuration", 13),
                                   .roster_version = 1,
                                   .sites = SITES,
                                   .members = {{15}}};
    if (seal_read(&c, &s, data, size) != SEAL_ok)
        return;
    ASSERT(seal_write(&c, &s, again) == size && !memcmp(again, data, size));
    ASSERT(s.of.u.word[0] < 1 << SITES && s.s.word[0] < 1 << SITES);
}

static void signature(const uint8_t *data, size_t size)
{
    struct seal_signature s;
    uint8_t again[SEAL_SIGNATURE_BYTES];
    if (seal_signature_read(&s, data, size) != SEAL_ok)
        return;
    seal_signature_write(&s, again);
    ASSERT(size == sizeof again && !memcmp(again, data, size));
}

static void reveal(const uint8_t *data, size_t size)
{
    static struct seal_seed seeds[SET_MAX];
    struct seal_reveal r = {.seeds = seeds};
    if (seal_reveal_read(&r, data, size) != SEAL_ok)
        return;
    ASSERT(seal_reveal_bytes(r.count) == size);
    uint8_t *again = malloc(size);
    ASSERT(again);
    seal_reveal_write(&r, again);
    ASSERT(!memcmp(again, data, size));
    free(again);
}

static void files(uint8_t *data, size_t size)
{
    struct keys *k = NULL;
    struct seal_site *s = NULL;
    struct cipher_key seed;
    fuzz_record_head(data, size);
    ASSERT(keys_open(&k, &(struct keys_options){"golden", 1, SITES, FRAGMENTS, {{0}}}) == ERR_OK);
    if (keys_read(k, "keys", data, size) == ERR_OK)
        (void)!keys_seed(k, &seed, 0, 0, 3, 0);
    keys_close(k);
    ASSERT(seal_site_open(&s, 1, FRAGMENTS) == ERR_OK);
    if (seal_site_read(s, "seals", data, size) == ERR_OK) {
        (void)!seal_site_abort(s, 0, 3);
        seal_site_final(s, 1, 3);
    }
    seal_site_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    if (size_bytes < 1)
        return 0;
    size_t size = size_bytes - 1;
    uint8_t *copy = malloc(size + !size); /* of the exact size, for sanitizers */
    ASSERT(copy);
    memcpy(copy, data + 1, size);
    switch (data[0] % 5) {
    case 0:
        statement(copy, size);
        break;
    case 1:
        seal(copy, size);
        break;
    case 2:
        signature(copy, size);
        break;
    case 3:
        reveal(copy, size);
        break;
    default:
        files(copy, size);
    }
    free(copy);
    return 0;
}
