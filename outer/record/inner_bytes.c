/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/inner_bytes.h"
#include <math.h>
#include "outer/record/jsonl.h"

static struct inner_bytes_size *size_of(struct inner_bytes *in, double each, int64_t step)
{
    size_t i = 0;
    while (i < in->count && in->sizes[i].each != each)
        i++;
    if (i > INNER_BYTES_SIZES_MAX)
        i = INNER_BYTES_SIZES_MAX;
    if (i == in->count) {
        in->sizes[i] = (struct inner_bytes_size){.each = i < INNER_BYTES_SIZES_MAX ? each : NAN,
                                                 .first = step};
        in->count++;
    }
    return &in->sizes[i];
}

static void add(struct inner_bytes *in, const struct jsonl_row *row)
{
    double each = jsonl_number(row, "inner_up"), sums = jsonl_number(row, "inner_rounds");
    int64_t step = jsonl_whole(jsonl_number(row, "step"));
    if (!(each >= 0))
        return;
    if (step <= in->last) {
        in->again++;
        in->bytes_again += each;
        return;
    }
    struct inner_bytes_size *s = size_of(in, each, step);
    in->last = s->last = step;
    in->steps++;
    in->bytes += each;
    s->steps++;
    s->bytes += each;
    s->sums += isnan(sums) || sums > 0;
}

enum err inner_bytes_read(struct inner_bytes *in, const char *directory, struct arena *a)
{
    const char *path;
    struct jsonl_reader r;
    struct jsonl_row *row;
    *in = (struct inner_bytes){.ranks = 0};
    TRY_ALLOC(path = arena_printf(a, "%s/" RECORD_FILE, directory));
    TRY_ALLOC(row = arena_array(a, 1, sizeof *row));
    if (!jsonl_reader_open(&r, path))
        return err_set(ERR_INPUT, "%s: cannot be read; give a site's run.dir", path);
    while (jsonl_next(&r, row)) {
        if (jsonl_is(row, "start"))
            in->ranks = jsonl_whole(jsonl_number(row, "ranks"));
        if (jsonl_is(row, "step"))
            add(in, row);
    }
    jsonl_reader_close(&r);
    if (in->steps)
        return ERR_OK;
    return err_set(ERR_INPUT,
                   "%s: no step of several ranks on record; one rank sends nothing inside its site",
                   path);
}
