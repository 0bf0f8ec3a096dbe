/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/site/site_marks.h"
#include <string.h>
#include "kernels/base/log.h"
#include "outer/store/store.h"

static const char path[] = "id/marks";

static void mark_fields(struct record_cursor *c, struct site_mark *m)
{
    record_u64(c, &m->step);
    record_digest(c, &m->parameters);
    record_bool(c, &m->before);
    for (unsigned f = 0; f < ROUND_FRAGMENTS_MAX; f++)
        record_u64(c, &m->postponed[f]);
}

static void marks_fields(struct record_cursor *c, void *self)
{
    struct site_marks *m = self;
    record_u32(c, &m->count);
    if (m->count > SITE_MARKS_MAX) /* then the head is not what a writer makes: damage */
        m->count = SITE_MARKS_MAX;
    for (uint32_t i = 0; i < m->count; i++)
        mark_fields(c, &m->mark[i]);
}

enum err site_marks_read(struct site_marks *m, struct env *env)
{
    struct arena scratch = arena_make(0);
    struct record_form form = {"marks", marks_fields, m};
    struct record r;
    memset(m, 0, sizeof *m);
    enum err e = store_read(env, path, &form, 0, &r, &scratch);
    arena_free(&scratch);
    return e == ERR_INPUT ? ERR_OK : e;
}

enum err site_marks_add(struct env *env, const struct site_mark *mark)
{
    struct site_marks m;
    struct record_form form = {"marks", marks_fields, &m};
    enum err e = site_marks_read(&m, env);
    if (e == ERR_CORRUPT) { /* of older checkpoints: what they need is gone, the new one's is not */
        log_event(LOG_ERROR, "marks_lost", "why=\"%s\"", err_message());
        memset(&m, 0, sizeof m);
        e = ERR_OK;
    }
    TRY(e);
    if (m.count == SITE_MARKS_MAX)
        memmove(m.mark, m.mark + 1, --m.count * sizeof *m.mark);
    m.mark[m.count++] = *mark;
    return store_write(env, path, &form, NULL, 0);
}

const struct site_mark *site_marks_find(const struct site_marks *m, uint64_t step,
                                        const struct digest *parameters)
{
    for (uint32_t i = m->count; i-- > 0;)
        if (m->mark[i].step == step && digest_equal(&m->mark[i].parameters, parameters))
            return &m->mark[i];
    return NULL;
}

bool site_marks_step(const struct site_marks *m, uint64_t step)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->mark[i].step == step)
            return true;
    return false;
}
