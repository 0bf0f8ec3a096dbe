/* SPDX-License-Identifier: Apache-2.0 */
/* The config.json of another author's model. What the reader takes is a configuration: the file
 * that it makes of it reads again, with the same settings. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "inner/config/config_yaml.h"
#include "inner/io/hf_config.h"
#include "tests/fuzz/fuzz.h"

enum { MEMORY_BYTES = 64 << 20 };

/* Each setting once, and found again under its key in the configuration file. */
static void written_again(const struct hf_config *c, struct arena *a)
{
    struct config_entries entries = {0};
    struct config_errors errors = {.a = a, .path = "fuzz.yaml"};
    char *text;
    if (hf_yaml(c, a, &text) != ERR_OK) /* a model whose data section cannot be made of it */
        return;
    ASSERT(config_yaml(text, strlen(text), a, &entries, &errors) == ERR_OK && !errors.count);
    for (size_t i = 0; i < c->count; i++)
        for (size_t k = 0; k < i; k++)
            ASSERT(strcmp(c->settings[i].key, c->settings[k].key) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static char path[64];
    struct arena a = arena_make(MEMORY_BYTES);
    struct hf_config c;
    if (!*path)
        snprintf(path, sizeof path, "/tmp/atoll-fuzz-config.%d", (int)getpid());
    FILE *f = fopen(path, "wb");
    ASSERT(f);
    ASSERT(fwrite(data, 1, size_bytes, f) == size_bytes);
    ASSERT(fclose(f) == 0);
    if (hf_read(&c, path, &a) == ERR_OK)
        written_again(&c, &a);
    unlink(path);
    arena_free(&a);
    return 0;
}
