/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/store/scrub.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/log.h"
#include "kernels/base/record.h"
#include "outer/protocol/manifest.h"
#include "outer/store/env_files.h"
#include "outer/store/journal.h"
#include "outer/store/store.h"

enum {
    PIECE_BYTES = 256 << 10,
    AGAIN_MS = 500,             /* before a file that seems damaged is read once more */
    JOURNAL_READ_MAX = 64 << 20 /* many times what it is compacted at */
};

struct scrub {
    struct env *env;
    struct scrub_options o;
    struct env_thread *thread;
    struct env_mutex *mutex; /* guards `closing` and `counts` */
    bool closing;
    bool at_once; /* scrub_pass: nothing waits, and there is no lock */
    struct scrub_counts counts;
    uint64_t owed_bytes; /* read since the last pause */
    uint8_t *piece;      /* [PIECE_BYTES] */
};

/* ---- waiting and counting ---- */

static void scrub_lock(struct scrub *s)
{
    if (!s->at_once)
        s->env->ops->lock(s->env, s->mutex);
}

static void scrub_unlock(struct scrub *s)
{
    if (!s->at_once)
        s->env->ops->unlock(s->env, s->mutex);
}

bool scrub_wait(struct scrub *s, uint64_t ms)
{
    if (s->at_once)
        return false;
    uint64_t now = s->env->ops->now_ms(s->env), until = now + ms;
    scrub_lock(s);
    for (; !s->closing && now < until; now = s->env->ops->now_ms(s->env))
        s->env->ops->wait(s->env, s->mutex, until - now);
    bool closing = s->closing;
    scrub_unlock(s);
    return closing;
}

static void count_add(struct scrub *s, uint64_t *count, uint64_t n)
{
    scrub_lock(s);
    *count += n;
    scrub_unlock(s);
}

/* ERR_STOPPED: the scrub is being closed. */
static enum err scrub_pace(struct scrub *s, size_t read_bytes)
{
    count_add(s, &s->counts.bytes, read_bytes);
    s->owed_bytes += read_bytes;
    uint64_t ms = s->owed_bytes * 1000 / s->o.bytes_per_s;
    if (s->owed_bytes < PIECE_BYTES && ms < 10)
        return ERR_OK;
    s->owed_bytes = 0;
    return scrub_wait(s, ms) ? ERR_STOPPED : ERR_OK;
}

/* ---- reading ---- */

struct scrub_input { /* an open file */
    struct scrub *s;
    char full[PATH_MAX];
    int fd;
    size_t size_bytes;
};

static enum err input_open(struct scrub_input *in, struct scrub *s, const char *path)
{
    struct disk *d = s->env->disk;
    in->s = s;
    TRY(env_files_path(s->env, in->full, path));
    TRY(durable_open(d, in->full, &in->fd, &in->size_bytes));
    d->ops->uncache(d, in->fd);
    return ERR_OK;
}

/* Bytes that only the scrub reads need not stay in the page cache. */
static void input_close(struct scrub_input *in)
{
    struct disk *d = in->s->env->disk;
    d->ops->uncache(d, in->fd);
    d->ops->close(d, in->fd);
}

static enum err input_read(struct scrub_input *in, uint8_t *to, size_t n, uint64_t at)
{
    for (size_t done = 0, part; done < n; done += part) {
        part = n - done < PIECE_BYTES ? n - done : PIECE_BYTES;
        TRY(durable_read_at(in->s->env->disk, in->fd, in->full, to + done, part, at + done));
        TRY(scrub_pace(in->s, part));
    }
    return ERR_OK;
}

static enum err input_digest(struct scrub_input *in, uint64_t at, uint64_t bytes,
                             struct digest *out)
{
    struct digest_stream d;
    enum err e = ERR_OK;
    digest_open(&d);
    for (uint64_t done = 0, part; e == ERR_OK && done < bytes; done += part) {
        part = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        e = input_read(in, in->s->piece, (size_t)part, at + done);
        if (e == ERR_OK)
            digest_add(&d, in->s->piece, (size_t)part);
    }
    *out = digest_close(&d);
    return e;
}

/* ---- one file ---- */

static enum err not_its_digest(const struct scrub_input *in)
{
    return err_set(ERR_CORRUPT, "%s: not the bytes of its digest", in->full);
}

static enum err record_sections_check(struct scrub_input *in, const struct record *r, uint64_t at)
{
    for (size_t i = 0; i < r->section_count; at += r->sections[i++].size_bytes) {
        struct digest d;
        TRY(input_digest(in, at, r->sections[i].size_bytes, &d));
        if (!digest_equal(&d, &r->sections[i].digest))
            return not_its_digest(in);
    }
    return ERR_OK;
}

static enum err record_check(struct scrub_input *in, struct arena *a)
{
    uint8_t start[RECORD_START], *head;
    struct record r;
    if (in->size_bytes < sizeof start)
        return not_its_digest(in);
    TRY(input_read(in, start, sizeof start, 0));
    size_t n = record_head_bytes(start, in->size_bytes);
    if (!n)
        return not_its_digest(in);
    TRY_ALLOC(head = arena_alloc(a, n));
    TRY(input_read(in, head, n, 0));
    if (!record_head_sections(head, n, in->size_bytes, &r, a))
        return not_its_digest(in);
    return record_sections_check(in, &r, n);
}

/* The manifest is a file of its own, with an alarm of its own. */
static enum err aggregate_check(struct scrub_input *in, const char *path, struct arena *a)
{
    static const struct record_form form = {.kind = "manifest"};
    char beside[SCRUB_PATH_MAX + 16];
    struct manifest m;
    struct record r;
    struct digest d;
    snprintf(beside, sizeof beside, "%.*sMANIFEST", (int)(strrchr(path, '/') - path + 1), path);
    enum err e = store_read(in->s->env, beside, &form, MANIFEST_BYTES_MAX, &r, a);
    if (e == ERR_INPUT || e == ERR_CORRUPT)
        return ERR_OK;
    TRY(e);
    if (!record_intact(&r, 0) ||
        !manifest_decode(&m, r.sections[0].data, r.sections[0].size_bytes) || !m.aggregate_bytes)
        return ERR_OK;
    TRY(input_digest(in, 0, in->size_bytes, &d));
    bool same = in->size_bytes == m.aggregate_bytes && digest_equal(&d, &m.aggregate);
    return same ? ERR_OK : not_its_digest(in);
}

static enum err named_check(struct scrub_input *in, const char *path)
{
    char hex[65];
    struct digest d;
    const char *name = strrchr(path, '.');
    if (!name || !digest_is_hex(name + 1))
        return ERR_OK;
    TRY(input_digest(in, 0, in->size_bytes, &d));
    digest_hex(&d, hex);
    return strcmp(hex, name + 1) == 0 ? ERR_OK : not_its_digest(in);
}

static enum err journal_check(struct scrub_input *in, struct arena *a)
{
    uint8_t *data;
    if (in->size_bytes > JOURNAL_READ_MAX)
        return not_its_digest(in);
    TRY_ALLOC(data = arena_alloc(a, in->size_bytes + 1));
    TRY(input_read(in, data, in->size_bytes, 0));
    return journal_intact(data, in->size_bytes) ? ERR_OK : not_its_digest(in);
}

/* ERR_CORRUPT: damaged. ERR_INPUT: gone. */
static enum err file_check(struct scrub *s, const struct scrub_row *row, const char *path)
{
    struct scrub_input in;
    struct arena a = arena_make(0);
    TRY(input_open(&in, s, path));
    enum err e = row->check == SCRUB_RECORD      ? record_check(&in, &a)
                 : row->check == SCRUB_AGGREGATE ? aggregate_check(&in, path, &a)
                 : row->check == SCRUB_NAMED     ? named_check(&in, path)
                                                 : journal_check(&in, &a);
    input_close(&in);
    arena_free(&a);
    return e;
}

/* Files are replaced and removed while they are read: what seems damaged is read once more. */
static enum err file_check_twice(struct scrub *s, const struct scrub_row *row, const char *path)
{
    enum err e = file_check(s, row, path);
    if (e != ERR_CORRUPT)
        return e;
    if (scrub_wait(s, AGAIN_MS))
        return ERR_STOPPED;
    return file_check(s, row, path);
}

static void repair_log(const struct scrub *s, const struct scrub_row *row, const char *path,
                       enum err e)
{
    char quoted[2 * SCRUB_TEXT_MAX];
    if (e == ERR_OK)
        log_event(LOG_WARN, "scrub", "file=%s/%s damaged=1 repaired=1", s->env->root, path);
    else
        log_event(LOG_ERROR, "scrub", "file=%s/%s damaged=1 repaired=0 why=%s action=\"%s\"",
                  s->env->root, path, log_quote(quoted, sizeof quoted, err_message()), row->advice);
}

/* The file is whole again, or an alarm; nothing where the file is no longer needed. */
static enum err file_mend(struct scrub *s, const struct scrub_row *row, const struct scrub_file *f)
{
    enum err e = row->repair ? row->repair(s->o.self, f)
                             : err_set(ERR_CORRUPT, "no part of this process can repair this file");
    if (e == ERR_INPUT)
        return ERR_OK;
    if (e == ERR_OK && (e = file_check(s, row, f->path)) == ERR_INPUT)
        e = ERR_OK; /* a repair may remove what can be had again */
    if (e == ERR_STOPPED)
        return e;
    count_add(s, &s->counts.damaged, 1);
    count_add(s, e == ERR_OK ? &s->counts.repaired : &s->counts.alarms, 1);
    repair_log(s, row, f->path, e);
    return ERR_OK;
}

static enum err file_scrub(struct scrub *s, const struct scrub_row *row, const struct scrub_file *f)
{
    char quoted[2 * SCRUB_TEXT_MAX];
    if (s->o.wanted && !s->o.wanted(s->o.self, f))
        return ERR_OK;
    enum err e = file_check_twice(s, row, f->path);
    if (e == ERR_STOPPED)
        return e;
    if (e == ERR_INPUT)
        return ERR_OK;
    count_add(s, &s->counts.files, 1);
    if (e == ERR_CORRUPT)
        return file_mend(s, row, f);
    if (e != ERR_OK) /* says nothing about the bytes */
        log_event(LOG_WARN, "scrub", "file=%s unread=1 why=%s", f->path,
                  log_quote(quoted, sizeof quoted, err_message()));
    return ERR_OK;
}

/* ---- the rows' files ---- */

static bool scrub_number_read(const char *name, uint64_t *number)
{
    char rest;
    return *name && strspn(name, "0123456789") == strlen(name) && strlen(name) < 20 &&
           sscanf(name, "%20" SCNu64 "%c", number, &rest) == 1;
}

/* Files below `path` that fit the rest of the row's pattern. `f` has the numbers read so far. */
static enum err row_walk(struct scrub *s, const struct scrub_row *row, const char *pattern,
                         const char *path, struct scrub_file f, unsigned numbers)
{
    char next[SCRUB_PATH_MAX], *one, **names = &one;
    size_t count, n = strcspn(pattern, "/");
    const char *rest = pattern[n] ? pattern + n + 1 : NULL;
    bool number = *pattern == '#', any = n && pattern[n - 1] == '*';
    struct arena a = arena_make(0);
    enum err e = ERR_OK;
    if (!number && !any) {
        one = arena_string(&a, pattern, n);
        count = one != NULL;
    } else {
        e = s->env->ops->exists(s->env, path) ? s->env->ops->list(s->env, path, &a, &names, &count)
                                              : ERR_INPUT;
    }
    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        struct scrub_file found = f;
        bool fits = number ? numbers < 2 && scrub_number_read(names[i], &found.number[numbers])
                           : !any || strncmp(names[i], pattern, n - 1) == 0;
        int bytes = snprintf(next, sizeof next, "%s%s%s", path, *path ? "/" : "", names[i]);
        if (!fits || bytes < 0 || (size_t)bytes >= sizeof next)
            continue;
        found.path = next;
        e = rest ? row_walk(s, row, rest, next, found, numbers + number)
                 : file_scrub(s, row, &found);
    }
    arena_free(&a);
    return e == ERR_STOPPED ? e : ERR_OK; /* a directory that went away meanwhile */
}

static enum err scrub_all(struct scrub *s)
{
    struct scrub_counts before = s->counts;
    uint64_t began = s->env->ops->now_ms(s->env);
    for (size_t i = 0; i < s->o.row_count; i++) {
        struct scrub_file f = {.path = ""};
        TRY(row_walk(s, &s->o.rows[i], s->o.rows[i].pattern, "", f, 0));
    }
    const struct scrub_counts *c = &s->counts;
    uint64_t ended = s->env->ops->now_ms(s->env);
    log_event(LOG_INFO, "scrub",
              "pass=%" PRIu64 " files=%" PRIu64 " bytes=%" PRIu64 " damaged=%" PRIu64
              " repaired=%" PRIu64 " seconds=%.3f",
              c->passes + 1, c->files - before.files, c->bytes - before.bytes,
              c->damaged - before.damaged, c->repaired - before.repaired,
              (double)(ended - began) / 1000);
    scrub_lock(s);
    s->counts.passes++;
    s->counts.ended_ms = ended;
    scrub_unlock(s);
    err_clear();
    return ERR_OK;
}

static void scrub_main(void *self)
{
    struct scrub *s = self;
    uint64_t wait_ms = s->o.every_ms < SCRUB_FIRST_MS ? s->o.every_ms : SCRUB_FIRST_MS;
    while (!scrub_wait(s, wait_ms)) {
        uint64_t began = s->env->ops->now_ms(s->env);
        if (scrub_all(s) != ERR_OK)
            return;
        uint64_t took = s->env->ops->now_ms(s->env) - began;
        wait_ms = took < s->o.every_ms ? s->o.every_ms - took : 0;
    }
}

enum err scrub_open(struct scrub **out, struct env *w, const struct scrub_options *o)
{
    ASSERT(o->every_ms && o->bytes_per_s);
    struct scrub *s = *out = calloc(1, sizeof *s);
    TRY_ALLOC(s);
    s->env = w;
    s->o = *o;
    TRY_ALLOC(s->piece = malloc(PIECE_BYTES));
    TRY(w->ops->mutex_open(w, &s->mutex));
    return w->ops->thread_start(w, &s->thread, scrub_main, s);
}

void scrub_close(struct scrub *s)
{
    if (!s)
        return;
    if (s->thread) {
        scrub_lock(s);
        s->closing = true;
        s->env->ops->signal(s->env, s->mutex);
        scrub_unlock(s);
        s->env->ops->thread_join(s->env, s->thread);
    }
    s->env->ops->mutex_close(s->env, s->mutex);
    free(s->piece);
    free(s);
}

void scrub_counts(struct scrub *s, struct scrub_counts *out)
{
    *out = (struct scrub_counts){0};
    if (!s)
        return;
    scrub_lock(s);
    *out = s->counts;
    scrub_unlock(s);
}

void scrub_text(char *out, size_t size, const struct scrub_counts *c, uint64_t now_ms)
{
    int n = snprintf(out, size,
                     "  scrub: %" PRIu64 " files, %.1f MiB read, %" PRIu64 " damaged, %" PRIu64
                     " repaired, %" PRIu64 " alarms; %" PRIu64 " passes",
                     c->files, (double)c->bytes / (1 << 20), c->damaged, c->repaired, c->alarms,
                     c->passes);
    if (c->passes && n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, ", the last one ended %" PRIu64 " s ago",
                 (now_ms - c->ended_ms) / 1000);
}

enum err scrub_pass(struct env *w, const struct scrub_options *o, struct scrub_counts *out)
{
    struct scrub s = {.env = w, .o = *o, .at_once = true};
    TRY_ALLOC(s.piece = malloc(PIECE_BYTES));
    enum err e = scrub_all(&s);
    *out = s.counts;
    free(s.piece);
    return e;
}
