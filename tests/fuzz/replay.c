/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target where there is no libFuzzer: every file of a directory as it is, then seeded
 * mutations of it. A failure is reproduced by the same command: there is no other source of chance.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"
#include "kernels/base/rng.h"
#include "tests/fuzz/fuzz.h"

enum { MUTATIONS = 300, EDITS_MAX = 4, FILE_MAX_BYTES = 1 << 20 };

/* Each run gets its own heap block of the exact size, so that a sanitizer sees a read past the end.
 */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    ASSERT(copy);
    if (size)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

/* Flips, overwrites with telling values, or cuts. Returns the new size. */
static size_t mutate(uint8_t *data, size_t size, uint64_t seed)
{
    static const uint8_t telling[] = {0,   1,   0x7f, 0x80, 0xff, '{', '}',
                                      '[', '&', '*',  '\n', ' ',  ':', '"'};
    uint64_t edits = 1 + rng_below(seed, RNG_TEST, 0, EDITS_MAX);
    for (uint64_t i = 0; i < edits && size; i++) {
        uint64_t at = rng_below(seed, RNG_TEST, 3 * i + 1, size),
                 value = rng_u64(seed, RNG_TEST, 3 * i + 2);
        switch (rng_below(seed, RNG_TEST, 3 * i + 3, 4)) {
        case 0:
            data[at] ^= (uint8_t)(1 << value % 8);
            break;
        case 1:
            data[at] = (uint8_t)value;
            break;
        case 2:
            data[at] = telling[value % sizeof telling];
            break;
        default:
            size = value % 4 ? size : at; /* cuts are rarer: they hide what is after them */
        }
    }
    return size;
}

static enum err replay(const char *path, struct arena *a)
{
    uint8_t *data, *changed;
    size_t size;
    TRY(file_read(path, FILE_MAX_BYTES, a, &data, &size));
    TRY_ALLOC(changed = arena_alloc(a, size + 1));
    run(data, size);
    for (uint64_t seed = 0; seed < MUTATIONS; seed++) {
        memcpy(changed, data, size);
        run(changed, mutate(changed, size, seed));
    }
    return ERR_OK;
}

static enum err replay_all(const char *directory, struct arena *a, size_t *count)
{
    char **names, *path;
    TRY(file_list(directory, a, &names, count));
    for (size_t i = 0; i < *count; i++) {
        TRY_ALLOC(path = arena_printf(a, "%s/%s", directory, names[i]));
        TRY(replay(path, a));
    }
    return *count ? ERR_OK : err_set(ERR_INPUT, "%s: no corpus", directory);
}

int main(int argc, char **argv)
{
    struct arena a = arena_make(0);
    size_t count = 0;
    enum err e = argc == 2 ? replay_all(argv[1], &a, &count)
                           : err_set(ERR_CONFIG, "one argument: the corpus directory");
    if (e)
        fprintf(stderr, "%s\n", err_message());
    else
        printf("%zu files, each as it is and in %d mutations\n", count, MUTATIONS);
    arena_free(&a);
    return err_exit_code(e);
}
