/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.jsonl of a directory. What the reader takes adds up: its sums are those of its rows, and
 * no row is there twice. A fold of it says the same. */
#include <string.h>
#include "kernels/base/durable.h"
#include "outer/record/ledger_fold.h"
#include "outer/record/ledger_scan.h"
#include "tests/sim/disk_sim.h"
#include "tests/fuzz/fuzz.h"

enum { MEMORY_BYTES = 64 << 20 };

static void adds_up(const struct ledger_member *m)
{
    uint64_t up = 0, down = 0;
    for (size_t i = 0; i < m->count; i++) {
        up += m->rows[i].up.payload;
        down += m->rows[i].down.payload;
        ASSERT(i == 0 || ledger_row_compare(&m->rows[i - 1], &m->rows[i]) < 0);
    }
    for (size_t i = 0; i < m->folded.sum_count; i++) {
        up += m->folded.sums[i].row.up.payload;
        down += m->folded.sums[i].row.down.payload;
    }
    ASSERT(up == m->up.layers.payload && down == m->down.layers.payload);
    ASSERT(m->lives.count > 0 && m->lives.unfinished <= m->lives.count);
    ASSERT(m->up.transfers >= m->up.unpredicted && m->down.transfers >= m->down.unpredicted);
}

static void folds(const struct ledger_member *m, struct disk *d, struct arena *a)
{
    struct ledger_member folded;
    if (ledger_fold(d, "run/" LEDGER_FILE, 2) != ERR_OK) /* its sums are too large */
        return;
    ASSERT(ledger_read_on(d, &folded, "run", NULL, a) == ERR_OK);
    ASSERT(memcmp(&m->up, &folded.up, sizeof m->up) == 0);
    ASSERT(memcmp(&m->down, &folded.down, sizeof m->down) == 0);
    ASSERT(m->lives.count == folded.lives.count && m->lives.unfinished == folded.lives.unfinished);
    ASSERT(m->lives.missing == folded.lives.missing && m->connections == folded.connections);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct arena a = arena_make(MEMORY_BYTES);
    struct clock_sim clock;
    struct disk_sim disk;
    struct ledger_member m;
    const struct file_part whole = {data, size_bytes};
    clock_sim_open(&clock, 1);
    disk_sim_open(&disk, &clock, "ledger", "run");
    ASSERT(durable_write(&disk.disk, "run/" LEDGER_FILE, &whole, 1, 0644) == ERR_OK);
    if (ledger_read_on(&disk.disk, &m, "run", NULL, &a) == ERR_OK) {
        adds_up(&m);
        folds(&m, &disk.disk, &a);
    }
    disk_sim_close(&disk);
    clock_sim_close(&clock);
    arena_free(&a);
    return 0;
}
