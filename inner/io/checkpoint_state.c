/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/checkpoint_state.h"
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

static void state_fields(struct record_cursor *c, void *self)
{
    struct state *s = self;
    struct checkpoint_meta *m = &s->meta;
    const char *device = m->device;
    uint32_t count = (uint32_t)s->part_count;
    record_u64(c, &m->step);
    record_u64(c, &m->seed);
    record_digest(c, &m->model);
    record_u32(c, &m->threads);
    record_u32(c, &m->ranks);
    record_text(c, &device, sizeof m->device - 1);
    record_text(c, &m->settings, CHECKPOINT_SETTINGS_MAX);
    record_u32(c, &count);
    if (record_reading(c)) {
        strcpy(m->device, device);
        count = count <= CHECKPOINT_PARTS_MAX ? count : 0;
        s->parts = record_alloc(c, (size_t)count + 1, sizeof *s->parts);
        s->part_count = s->parts ? count : 0;
    }
    for (size_t i = 0; i < s->part_count; i++)
        record_text(c, &s->parts[i].name, CHECKPOINT_NAME_MAX);
}

/* ---- write ---- */
/* The head's bytes are not known before its digests are; their number is. */
static enum err append_head(struct state_writer *w, struct arena *a, struct file_part *head)
{
    const struct record_form form = {"training", state_fields, &w->state};
    return record_make_head(&form, w->views, w->state.part_count, a, head);
}

static enum err append(struct state_writer *w, const void *data, size_t n)
{
    if (n)
        TRY(file_stream_append(&w->file, data, n));
    digest_add(&w->digest, data, n);
    w->put += n;
    return ERR_OK;
}

/* What is whole is closed, and what lies in memory follows at once. */
static enum err go_on(struct state_writer *w)
{
    const struct state *s = &w->state;
    while (w->now < s->part_count) {
        const struct checkpoint_part *part = &s->parts[w->now];
        if (w->put == 0 && part->data)
            TRY(append(w, part->data, part->size_bytes));
        if (w->put < part->size_bytes)
            return ERR_OK;
        w->views[w->now++] = (struct record_view){NULL, w->put, digest_close(&w->digest)};
        digest_open(&w->digest);
        w->put = 0;
    }
    return ERR_OK;
}

enum err state_create(struct state_writer *w, const char *path, const struct checkpoint_meta *meta,
                      const struct checkpoint_part *parts, size_t count, struct arena *a)
{
    struct file_part head;
    *w = (struct state_writer){.state = {.meta = *meta,
                                         .parts = (struct checkpoint_part *)(uintptr_t)parts,
                                         .part_count = count,
                                         .fd = -1}};
    TRY_ALLOC(w->views = arena_array(a, count + 1, sizeof *w->views));
    TRY(append_head(w, a, &head));
    TRY(file_stream_open(&w->file, path, a));
    TRY(file_stream_append(&w->file, head.data, head.size_bytes));
    digest_open(&w->digest);
    return go_on(w);
}

enum err state_put(struct state_writer *w, const void *data, size_t n)
{
    ASSERT(w->now < w->state.part_count && n <= w->state.parts[w->now].size_bytes - w->put);
    TRY(append(w, data, n));
    return go_on(w);
}

static void digest_end(struct state_writer *w)
{
    if (w->digest.ctx)
        (void)digest_close(&w->digest);
    w->digest.ctx = NULL;
}

enum err state_commit(struct state_writer *w, struct arena *a)
{
    struct file_part head;
    ASSERT(w->now == w->state.part_count);
    digest_end(w);
    TRY(append_head(w, a, &head));
    TRY(file_stream_replace(&w->file, head.data, head.size_bytes, 0));
    return file_stream_commit(&w->file);
}

void state_abandon(struct state_writer *w)
{
    digest_end(w);
    file_stream_abandon(&w->file);
}

/* ---- read ---- */
/* Pieces of the file, whose first bytes are its head. */
static enum err read_head(struct state *s, size_t size, struct arena *a, uint8_t **head, size_t *n)
{
    uint8_t start[RECORD_START];
    size_t some = size < sizeof start ? size : sizeof start;
    TRY(durable_read_at(disk_posix(), s->fd, s->path, start, some, 0));
    size_t whole = some == sizeof start ? record_head_bytes(start, size) : 0;
    *n = whole ? whole : some; /* of another format: record_open_head says so */
    TRY_ALLOC(*head = arena_alloc(a, *n + 1));
    return durable_read_at(disk_posix(), s->fd, s->path, *head, *n, 0);
}

enum err state_read(const struct state *s, size_t part, size_t at, void *data, size_t n)
{
    ASSERT(part < s->part_count && at + n <= s->parts[part].size_bytes);
    for (size_t i = 0; i < part; i++)
        at += s->parts[i].size_bytes;
    return n ? durable_read_at(disk_posix(), s->fd, s->path, data, n, s->record.head_bytes + at)
             : ERR_OK;
}

static enum err check_part(const struct state *s, size_t part, uint8_t *piece)
{
    size_t size = s->parts[part].size_bytes;
    struct digest_stream stream;
    enum err e = ERR_OK;
    digest_open(&stream);
    for (size_t at = 0; !e && at < size; at += PIECE_BYTES) {
        size_t n = size - at < PIECE_BYTES ? size - at : PIECE_BYTES;
        e = state_read(s, part, at, piece, n);
        digest_add(&stream, piece, e ? 0 : n);
    }
    struct digest d = digest_close(&stream);
    TRY(e);
    return digest_equal(&d, &s->record.sections[part].digest)
               ? ERR_OK
               : err_set(ERR_CORRUPT, "%s: damaged: \"%s\" has not the SHA-256 stored for it",
                         s->path, s->parts[part].name);
}

static enum err open_checked(struct state *s, size_t size, struct arena *a)
{
    const struct record_form form = {"training", state_fields, s};
    struct arena scratch = arena_make(0);
    uint8_t *head, *piece;
    size_t head_bytes;
    enum err e = read_head(s, size, a, &head, &head_bytes);
    if (!e)
        e = record_open_head(&s->record, &form, s->path, head, head_bytes, size, a);
    if (!e && s->record.section_count != s->part_count)
        e = err_set(ERR_CORRUPT, "%s: damaged", s->path);
    for (size_t i = 0; !e && i < s->part_count; i++)
        s->parts[i].size_bytes = s->record.sections[i].size_bytes;
    if (!e && !(piece = arena_alloc(&scratch, PIECE_BYTES)))
        e = ERR_MEMORY;
    for (size_t i = 0; !e && i < s->part_count; i++)
        e = check_part(s, i, piece);
    arena_free(&scratch);
    return e;
}

enum err state_open(struct state *s, const char *path, struct arena *a)
{
    size_t size;
    *s = (struct state){.fd = -1};
    TRY_ALLOC(s->path = arena_string(a, path, strlen(path)));
    int fd;
    TRY(durable_open(disk_posix(), path, &fd, &size));
    s->fd = fd;
    enum err e = open_checked(s, size, a);
    if (e)
        state_close(s);
    return e;
}

void state_close(struct state *s)
{
    if (s->path && s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

size_t state_find(const struct state *s, const char *name)
{
    size_t i = 0;
    while (i < s->part_count && strcmp(s->parts[i].name, name) != 0)
        i++;
    return i;
}
