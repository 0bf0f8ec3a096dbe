#include "outer/cmd/ledger_inside.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "outer/record/jsonl.h"

enum { SIZES_MAX = 64 }; /* of a step that are told apart */

struct inside {
    const char *directory;
    int64_t ranks, last; /* last: the step that came last */
    struct size {        /* steps that sent as many bytes; the last entry: all further sizes */
        double each, bytes;
        int64_t first, last;
        uint64_t steps, sums;
    } sizes[SIZES_MAX + 1];
    size_t count;
    uint64_t steps, again; /* again: repeated after a restart */
    double bytes, bytes_again;
};

static struct size *size_of(struct inside *in, double each, int64_t step)
{
    size_t i = 0;
    while (i < in->count && in->sizes[i].each != each)
        i++;
    if (i > SIZES_MAX)
        i = SIZES_MAX;
    if (i == in->count) {
        in->sizes[i] = (struct size){.each = i < SIZES_MAX ? each : NAN, .first = step};
        in->count++;
    }
    return &in->sizes[i];
}

static void add(struct inside *in, const struct jsonl_row *row)
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
    struct size *s = size_of(in, each, step);
    in->last = s->last = step;
    in->steps++;
    in->bytes += each;
    s->steps++;
    s->bytes += each;
    s->sums += isnan(sums) || sums > 0;
}

static enum err read_steps(struct inside *in, const char *directory, struct arena *a)
{
    const char *path;
    struct jsonl_reader r;
    struct jsonl_row *row;
    *in = (struct inside){.directory = directory};
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

static void print(const struct inside *in)
{
    printf("%s: %" PRId64 " ranks, %" PRIu64 " steps; the lead rank sent %.0f bytes\n",
           in->directory, in->ranks, in->steps, in->bytes);
    printf("  %15s %10s %10s %10s %10s %18s\n", "bytes of a step", "steps", "first", "last", "sums",
           "bytes");
    for (size_t i = 0; i < in->count; i++) {
        const struct size *s = &in->sizes[i];
        char each[24];
        snprintf(each, sizeof each, i < SIZES_MAX ? "%.0f" : "others", s->each);
        printf("  %15s %10" PRIu64 " %10" PRId64 " %10" PRId64 " %10" PRIu64 " %18.0f\n", each,
               s->steps, s->first, s->last, s->sums, s->bytes);
    }
    if (in->again)
        printf("  %" PRIu64 " steps made again after a restart: %.0f bytes more\n", in->again,
               in->bytes_again);
    puts("");
}

static void print_csv(const struct inside *in)
{
    for (size_t i = 0; i < in->count; i++) {
        const struct size *s = &in->sizes[i];
        printf("%s,%" PRId64 ",%.0f,%" PRIu64 ",%" PRId64 ",%" PRId64 ",%" PRIu64 ",%.0f\n",
               in->directory, in->ranks, s->each, s->steps, s->first, s->last, s->sums, s->bytes);
    }
}

enum err ledger_inside(const struct args *directories, bool csv, struct arena *a)
{
    struct inside *in;
    TRY_ALLOC(in = arena_array(a, 1, sizeof *in));
    if (csv)
        puts("directory,ranks,bytes_of_a_step,steps,first,last,sums,bytes");
    for (int i = 0; i < directories->operand_count; i++) {
        TRY(read_steps(in, directories->operand[i], a));
        if (csv)
            print_csv(in);
        else
            print(in);
    }
    return ERR_OK;
}
