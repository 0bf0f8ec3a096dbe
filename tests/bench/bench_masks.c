/* SPDX-License-Identifier: Apache-2.0 */
/* Masks of secure aggregation, in GB/s of mask bytes, against ChaCha20 alone: one thread, in
 * processor time, so that other work on the machine counts little.
 *
 * Floor: the key stream. A mask of b bits a value is b/8 bytes of ChaCha20 a value, written once to
 * the first cache; adding it reads both and writes one, there. With C GB/s of ChaCha20 and A GB/s
 * of adding, a mask passes at 1 / (1/C + 1/A). Memory sees each word twice for all masks together.
 * A site of n sites has n masks: its own and one with each other site.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "outer/codec/codec.h"
#include "outer/masks/masked.h"
#include "tests/bench/bench.h"

enum { COUNT = 10000000, REPEATS = 5, SITES_MAX = 64, PIECE = 32 << 10 };

static double cipher_seconds(const struct mask_layout *l)
{
    static uint8_t piece[PIECE];
    struct cipher_key key = {{1}};
    struct cipher_stream s = {0};
    double start = bench_cpu();
    if (cipher_stream_open(&s, &key, 0) != ERR_OK)
        return 0;
    for (size_t at = 0; at < l->size_bytes; at += PIECE)
        cipher_stream_read(&s, piece, PIECE);
    cipher_stream_close(&s);
    return bench_cpu() - start;
}

static enum err measure(unsigned sites, uint64_t q, const char *csv)
{
    struct mask_part part = {mask_bits(sites, q), COUNT};
    struct mask_layout l;
    struct cipher_key seeds[SITES_MAX] = {{{0}}};
    struct mask_term terms[SITES_MAX];
    struct bench_times masked = {0}, cipher = {0}, sum = {0};
    TRY(mask_layout_make(&l, &part, 1));
    uint8_t *words = aligned_alloc(64, 2 * l.size_bytes);
    if (!words)
        return err_set(ERR_MEMORY, "words");
    memset(words, 0, 2 * l.size_bytes);
    for (unsigned i = 0; i < sites; i++) {
        seeds[i].bytes[0] = (uint8_t)(i + 1);
        terms[i] = (struct mask_term){&seeds[i], i % 2};
    }
    enum err e = ERR_OK;
    for (int r = 0; r < REPEATS && e == ERR_OK; r++) {
        bench_add(&cipher, cipher_seconds(&l));
        double start = bench_cpu();
        e = mask_apply(words, &l, terms, sites, 1);
        bench_add(&masked, bench_cpu() - start);
        start = bench_cpu();
        mask_sum(words, words + l.size_bytes, &l, 1);
        bench_add(&sum, bench_cpu() - start);
    }
    free(words);
    TRY(e);
    char what[64], flags[96];
    double bytes = 1e-9 * (double)l.size_bytes;
    snprintf(flags, sizeof flags, "threads=1 values=%d %s", COUNT, BENCH_COMPILER);
    snprintf(what, sizeof what, "mask of %u bits", part.bits);
    bench_write(csv, &(struct bench_row){.bench = "masks",
                                         .what = what,
                                         .unit = "GB/s a mask",
                                         .flags = flags,
                                         .value = bytes * sites / bench_median(&masked),
                                         .baseline = bytes / bench_median(&cipher)});
    snprintf(what, sizeof what, "all masks of one of %u sites %u bits", sites, part.bits);
    bench_write(csv, &(struct bench_row){.bench = "masks",
                                         .what = what,
                                         .unit = "ms",
                                         .flags = flags,
                                         .value = 1e3 * bench_median(&masked),
                                         .baseline = 1e3 * sites * bench_median(&cipher)});
    snprintf(what, sizeof what, "sum of words of %u bits", part.bits);
    bench_write(csv, &(struct bench_row){.bench = "masks",
                                         .what = what,
                                         .unit = "GB/s",
                                         .flags = flags,
                                         .value = bytes / bench_median(&sum)});
    return ERR_OK;
}

/* A payload as words, and a sum of words as an aggregate: of a codec, for 8 sites. The payload is a
 * full one, made by hand: every integer is 1. */
static enum err convert(enum codec_kind kind, const char *csv)
{
    enum { VALUES = COUNT / DEV_BLOCK * DEV_BLOCK, BLOCKS = VALUES / DEV_BLOCK, OF = 8 };
    const struct codec *c = codec_get(kind);
    struct mask_layout l;
    struct bench_times times[2] = {0};
    size_t bytes = c->payload_max(c, VALUES), size;
    TRY(masked_layout(&l, c, VALUES, OF));
    uint8_t *payload = malloc(bytes), *words = aligned_alloc(64, l.size_bytes);
    uint8_t *aggregate = malloc(c->aggregate_max(c, VALUES, OF));
    if (!payload || !words || !aggregate)
        return err_set(ERR_MEMORY, "payloads");
    memset(payload, 0xff, bytes);
    memset(payload, 128, BLOCKS);
    memset(payload + BLOCKS + (BLOCKS + 7) / 8, 0x80, bytes - BLOCKS - (BLOCKS + 7) / 8);
    enum err e = ERR_OK;
    for (int r = 0; r < REPEATS && e == ERR_OK; r++) {
        double start = bench_cpu();
        masked_pack(words, &l, c, payload, 1);
        bench_add(&times[0], bench_cpu() - start);
        start = bench_cpu();
        e = masked_aggregate(aggregate, &size, c, &l, words, OF, 1);
        bench_add(&times[1], bench_cpu() - start);
    }
    free(payload);
    free(words);
    free(aggregate);
    TRY(e);
    for (int i = 0; i < 2; i++) {
        char what[64], flags[96];
        snprintf(flags, sizeof flags, "threads=1 values=%d %s", VALUES, BENCH_COMPILER);
        snprintf(what, sizeof what, "%s %s of %d sites", c->name,
                 i ? "sum of words to aggregate" : "payload to words", OF);
        bench_write(csv, &(struct bench_row){.bench = "masks",
                                             .what = what,
                                             .unit = "GB/s f32",
                                             .flags = flags,
                                             .value = 4e-9 * VALUES / bench_median(&times[i])});
    }
    return ERR_OK;
}

int main(int argc, char **argv)
{
    static const unsigned sites[] = {3, 8, 64};
    static const uint64_t q[] = {7, 127};
    const char *csv = bench_arguments(argc, argv);
    enum err e = ERR_OK;
    for (unsigned i = 0; csv && i < 6 && e == ERR_OK; i++)
        e = measure(sites[i / 2], q[i % 2], csv);
    e = csv && e == ERR_OK ? measure(8, (uint64_t)codec_get(CODEC_FIXED)->q_max, csv) : e;
    e = csv && e == ERR_OK ? convert(CODEC_INT8, csv) : e;
    e = csv && e == ERR_OK ? convert(CODEC_INT4, csv) : e;
    e = csv && e == ERR_OK ? convert(CODEC_SIGN, csv) : e;
    e = csv && e == ERR_OK ? convert(CODEC_FIXED, csv) : e;
    if (e != ERR_OK)
        fprintf(stderr, "%s\n", err_message());
    return !csv ? 2 : e != ERR_OK;
}
