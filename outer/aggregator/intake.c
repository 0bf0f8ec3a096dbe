/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/aggregator/intake.h"
#include <stdio.h>
#include <string.h>

void intake_make(struct intake *in, const struct wire_contribution *m)
{
    in->header = *m;
    in->handle = in->marks = -1;
    snprintf(in->part, sizeof in->part, "%.250s" INTAKE_PART, in->final);
    snprintf(in->have, sizeof in->have, "%.250s" INTAKE_HAVE, in->final);
    blocks_make(&in->blocks, m->payload_bytes);
}

static enum err part_open(struct env *env, struct intake *in)
{
    uint64_t bytes;
    return env->ops->part_open(env, in->part, in->header.payload_bytes, &in->handle, &bytes);
}

enum err intake_open(struct env *env, struct intake *in, const struct wire_contribution *m)
{
    in->header = *m;
    return part_open(env, in);
}

static enum err marks_open(struct env *env, struct intake *in)
{
    struct arena scratch = arena_make(0);
    uint64_t bytes;
    uint8_t *data;
    size_t n;
    enum err e = env->ops->part_open(env, in->have, 8 * in->blocks.count, &in->marks, &bytes);
    if (e == ERR_OK && bytes) {
        e = env->ops->read(env, in->have, 8 * BLOCKS_MAX, &scratch, &data, &n);
        struct bytes_reader r = bytes_reader(data, e == ERR_OK ? n : 0);
        for (uint32_t k = 0; e == ERR_OK && k < n / 8; k++)
            in->blocks.stored[k] = bytes_get_u64(&r);
        if (!blocks_valid(&in->blocks))
            blocks_make(&in->blocks, in->header.payload_bytes);
    }
    arena_free(&scratch);
    return e;
}

enum err intake_open_marked(struct env *env, struct intake *in)
{
    if (!env->ops->exists(env, in->part)) /* marks without their bytes */
        TRY(env->ops->remove(env, in->have));
    TRY(part_open(env, in));
    return marks_open(env, in);
}

enum err intake_keep(struct env *env, struct intake *in, const char *final)
{
    enum err e = in->handle < 0 ? ERR_OK : env->ops->part_close(env, in->handle, in->part, final);
    in->handle = -1;
    return e;
}

enum err intake_close(struct env *env, struct intake *in)
{
    enum err e = intake_keep(env, in, NULL);
    int marks = in->marks;
    in->marks = -1;
    if (marks >= 0) {
        enum err closed = env->ops->part_close(env, marks, in->have, NULL);
        e = e == ERR_OK ? closed : e;
    }
    return e;
}

enum blocks_fit intake_fits(const struct intake *in, uint64_t offset, size_t n,
                            struct wire_answer *answer)
{
    enum blocks_fit fit = blocks_fits(&in->blocks, offset, n);
    answer->offset = offset + n;
    if (fit == BLOCKS_GAP) {
        answer->outcome = ROUND_RESUME;
        snprintf(answer->text, sizeof answer->text, "chunk does not follow the stored bytes");
        answer->offset = blocks_first(&in->blocks);
    }
    return fit;
}

/* A mark says how far its block is filled once the bytes are there. */
enum err intake_store(struct env *env, const struct intake *in, uint64_t offset,
                      const uint8_t *data, size_t n)
{
    const struct blocks *b = &in->blocks; /* its cut, which does not change */
    uint8_t mark[8];
    TRY(env->ops->part_write(env, in->handle, offset, data, n));
    if (in->marks < 0)
        return ERR_OK;
    for (uint32_t k = blocks_at(b, offset); k <= blocks_at(b, offset + n - 1); k++) {
        uint64_t filled = offset + n - blocks_start(b, k);
        struct bytes_writer w = bytes_writer(mark, sizeof mark);
        bytes_put_u64(&w, filled < blocks_bytes(b, k) ? filled : blocks_bytes(b, k));
        TRY(env->ops->part_write(env, in->marks, 8 * (uint64_t)k, mark, sizeof mark));
    }
    return ERR_OK;
}

bool intake_whole(const struct intake *in)
{
    return blocks_first(&in->blocks) == in->header.payload_bytes;
}

void intake_verdict(struct intake *in, enum err e)
{
    in->verdict = e;
    if (e != ERR_OK)
        snprintf(in->why, sizeof in->why, "%s", err_message());
}
