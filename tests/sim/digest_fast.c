/* SPDX-License-Identifier: Apache-2.0 */
/* digest_of and digest_stream for programs that run hundreds of schedules a second: the loop of
 * xxHash64 (Yann Collet), with its four lanes kept apart, 256 bits long. It is not cryptographic:
 * no part of a simulation looks for collisions, and a byte that changes by accident changes the
 * result. A program that lists this file does not take kernels/base/digest.c, whose SHA-256 took a
 * fifth of a run. test_points, test_memory and the processes of the end-to-end tests run the same
 * code with SHA-256.
 */
#include <stdlib.h>
#include <string.h>
#include "kernels/base/digest.h"
#include "kernels/base/err.h"

enum { LANES = 4, BLOCK_BYTES = 8 * LANES, ROUNDS = 2 };
static const uint64_t prime[3] = {0x9e3779b185ebca87u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u};

struct fast {
    uint64_t lane[LANES], bytes;
    uint8_t tail[BLOCK_BYTES]; /* the last bytes % BLOCK_BYTES bytes */
};

static uint64_t turned(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static void fast_open(struct fast *f)
{
    f->bytes = 0;
    for (unsigned i = 0; i < LANES; i++)
        f->lane[i] = prime[i % 3] * (i + 1);
}

static void fast_block(struct fast *f, const uint8_t *data)
{
    uint64_t word[LANES];
    memcpy(word, data, sizeof word);
    for (unsigned i = 0; i < LANES; i++)
        f->lane[i] = turned(f->lane[i] + word[i] * prime[1], 31) * prime[0];
}

static void fast_add(struct fast *f, const uint8_t *data, size_t n)
{
    size_t have = f->bytes % BLOCK_BYTES, missing = BLOCK_BYTES - have;
    f->bytes += n;
    if (have && n >= missing) {
        memcpy(f->tail + have, data, missing);
        fast_block(f, f->tail);
        data += missing;
        n -= missing;
        have = 0;
    }
    for (; !have && n >= BLOCK_BYTES; data += BLOCK_BYTES, n -= BLOCK_BYTES)
        fast_block(f, data);
    if (n)
        memcpy(f->tail + have, data, n);
}

/* Every bit of every lane into every lane. */
static struct digest fast_close(struct fast *f)
{
    struct digest d;
    size_t have = f->bytes % BLOCK_BYTES;
    memset(f->tail + have, 0, BLOCK_BYTES - have);
    fast_block(f, f->tail);
    f->lane[0] += f->bytes;
    for (unsigned k = 0; k < ROUNDS * LANES; k++) {
        uint64_t x = f->lane[k % LANES] + turned(f->lane[(k + 3) % LANES], 17) * prime[2];
        x = (x ^ x >> 33) * prime[1];
        x = (x ^ x >> 29) * prime[2];
        f->lane[k % LANES] = x ^ x >> 32;
    }
    memcpy(d.bytes, f->lane, sizeof d.bytes);
    return d;
}

struct digest digest_of(const void *data, size_t size_bytes)
{
    struct fast f;
    fast_open(&f);
    if (size_bytes)
        fast_add(&f, data, size_bytes);
    return fast_close(&f);
}

void digest_open(struct digest_stream *s)
{
    s->ctx = malloc(sizeof(struct fast));
    ASSERT(s->ctx);
    fast_open(s->ctx);
}

void digest_add(struct digest_stream *s, const void *data, size_t size_bytes)
{
    ASSERT(s->ctx);
    if (size_bytes)
        fast_add(s->ctx, data, size_bytes);
}

struct digest digest_close(struct digest_stream *s)
{
    ASSERT(s->ctx);
    struct digest d = fast_close(s->ctx);
    free(s->ctx);
    s->ctx = NULL;
    return d;
}
