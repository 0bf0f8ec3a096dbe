/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of its own: the module has no OpenMP, and its thread pools would stay after one call. */
#include "kernels/cuda/clear.h"
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

enum {
    PAGE_BYTES = 4096,
    PART_BYTES = 1 << 20, /* the least that is worth a thread */
    THREADS_MAX = 64      /* more do not write faster */
};

struct clear_work {
    void *p;
    size_t bytes;
    pthread_t thread;
    bool runs;
};

struct clear_part clear_part(size_t bytes, int i, int parts)
{
    size_t pages = bytes / PAGE_BYTES + (bytes % PAGE_BYTES != 0), n = (size_t)parts;
    size_t each = pages / n, more = pages % n, at = (size_t)i; /* the first `more` have one more */
    size_t first = at * each + (at < more ? at : more);
    size_t begin = first * PAGE_BYTES, end = (first + each + (at < more)) * PAGE_BYTES;
    begin = begin < bytes ? begin : bytes;
    end = end < bytes ? end : bytes;
    return (struct clear_part){begin, end - begin};
}

static void *clear_main(void *self)
{
    const struct clear_work *w = self;
    memset(w->p, 0, w->bytes);
    return NULL;
}

void clear_bytes(void *p, size_t bytes, int threads)
{
    struct clear_work work[THREADS_MAX];
    size_t most = bytes / PART_BYTES;
    int parts = threads < THREADS_MAX ? threads : THREADS_MAX;
    parts = (size_t)(parts > 1 ? parts : 1) < most ? parts : (int)most;
    parts = parts > 1 ? parts : 1;
    for (int i = parts - 1; i >= 0; i--) { /* the caller's part last */
        struct clear_part part = clear_part(bytes, i, parts);
        work[i] = (struct clear_work){.p = (char *)p + part.begin, .bytes = part.bytes};
        work[i].runs = i > 0 && pthread_create(&work[i].thread, NULL, clear_main, &work[i]) == 0;
        if (!work[i].runs)
            clear_main(&work[i]);
    }
    for (int i = 1; i < parts; i++)
        if (work[i].runs)
            pthread_join(work[i].thread, NULL);
}

int clear_threads(int asked)
{
    cpu_set_t mask;
    if (asked > 0)
        return asked;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}
