/* SPDX-License-Identifier: Apache-2.0 */
/* Text to ids, MB/s of one thread:  bench_tokenizer TOKENIZER TEXT [SECONDS]
 * The text is taken in pieces of about 64 KiB that end with a line. tokenizer_speed.py runs it
 * next to the tokenizers of Hugging Face. */
#include <stdio.h>
#include <time.h>
#include "inner/data/tokenizer/tokenizer.h"
#include "kernels/base/file.h"

enum { PIECE_BYTES = 1 << 16 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* a busy machine does not count */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum err pass(const struct tokenizer *t, struct tokenizer_scratch *x,
                     const struct file_map *m, struct buffer_ids *ids)
{
    ids->count = 0;
    for (size_t at = 0, end; at < m->size_bytes; at = end) {
        end = at + PIECE_BYTES < m->size_bytes ? at + PIECE_BYTES : m->size_bytes;
        while (end < m->size_bytes && m->data[end - 1] != '\n')
            end++;
        TRY(tokenizer_encode(t, x, m->data + at, end - at, ids));
    }
    return ERR_OK;
}

static enum err work(const char *path, const char *text, double seconds)
{
    struct tokenizer *t;
    struct tokenizer_scratch *x;
    struct file_map m;
    struct buffer_ids ids = {0};
    double best = 1e9, start = now();
    TRY(tokenizer_open(&t, path));
    printf("open %.3f s\n", now() - start);
    TRY(tokenizer_scratch_open(&x));
    TRY(file_map(&m, text));
    for (double end = now() + seconds; now() < end;) {
        double from = now();
        TRY(pass(t, x, &m, &ids));
        best = now() - from < best ? now() - from : best;
    }
    printf("bytes %zu ids %zu MB/s %.1f\n", m.size_bytes, ids.count,
           (double)m.size_bytes / best / 1e6);
    buffer_ids_free(&ids);
    tokenizer_scratch_close(x);
    tokenizer_close(t);
    file_unmap(&m);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s TOKENIZER TEXT [SECONDS]\n", argv[0]);
        return 4;
    }
    enum err e = work(argv[1], argv[2], argc > 3 ? strtod(argv[3], NULL) : 5);
    if (e)
        fprintf(stderr, "%s\n", err_message());
    return err_exit_code(e);
}
