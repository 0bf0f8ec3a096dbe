/* ledger.jsonl of a directory. What the reader takes adds up: its sums are those of its rows, and
 * no row is there twice. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "outer/report/ledger_read.h"
#include "tests/fuzz/fuzz.h"

enum { MEMORY_BYTES = 64 << 20 };

static bool same(const struct ledger_row *a, const struct ledger_row *b)
{
    return a->what == b->what && a->round == b->round && a->fragment == b->fragment &&
           strcmp(a->site, b->site) == 0;
}

static void adds_up(const struct ledger_member *m)
{
    uint64_t up = 0, down = 0;
    for (size_t i = 0; i < m->count; i++) {
        up += m->rows[i].up.payload;
        down += m->rows[i].down.payload;
        ASSERT(i == 0 || !same(&m->rows[i], &m->rows[i - 1]));
    }
    ASSERT(up == m->up.layers.payload && down == m->down.layers.payload);
    ASSERT(m->lives > 0 && m->unfinished <= m->lives);
    ASSERT(m->up.transfers >= m->up.unpredicted && m->down.transfers >= m->down.unpredicted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static char directory[48], path[64];
    struct arena a = arena_make(MEMORY_BYTES);
    struct ledger_member m;
    if (!*path) {
        snprintf(directory, sizeof directory, "/tmp/atoll-fuzz-ledger.%d", (int)getpid());
        snprintf(path, sizeof path, "%s/ledger.jsonl", directory);
    }
    mkdir(directory, 0700);
    FILE *f = fopen(path, "wb");
    ASSERT(f);
    ASSERT(fwrite(data, 1, size_bytes, f) == size_bytes);
    ASSERT(fclose(f) == 0);
    if (ledger_read(&m, directory, NULL, &a) == ERR_OK)
        adds_up(&m);
    unlink(path);
    rmdir(directory);
    arena_free(&a);
    return 0;
}
