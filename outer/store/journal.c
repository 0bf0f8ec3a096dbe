/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/store/journal.h"
#include <inttypes.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "outer/protocol/mutant.h"

enum {
    HEAD_BYTES = 4 + 4 + 8 + 32 + 1,
    RECORD_MAX = HEAD_BYTES + JOURNAL_BODY_MAX,
    CRC_AT = 4,
    CHAIN_AT = 4 + 4 + 8
};

/* Length and what follows the CRC, so that a flipped bit anywhere shows. */
static uint32_t record_crc(const uint8_t *record, size_t n)
{
    uint32_t crc = digest_crc32c(0, record, CRC_AT);
    return digest_crc32c(crc, record + CRC_AT + 4, n - CRC_AT - 4);
}

static bool has_site(enum journal_kind k)
{
    return k == JOURNAL_ACCEPT || k == JOURNAL_QUARANTINE || k == JOURNAL_OPERATOR ||
           k == JOURNAL_ROSTER;
}

static bool has_act(enum journal_kind k)
{
    return k == JOURNAL_OPERATOR || k == JOURNAL_ROSTER || k == JOURNAL_AMENDMENT;
}

static bool has_name(enum journal_kind k)
{
    return k == JOURNAL_ROSTER || k == JOURNAL_AMENDMENT;
}

static void name_get(struct bytes_reader *b, char name[JOURNAL_NAME_MAX])
{
    size_t n = bytes_get_u8(b);
    const uint8_t *from = n < JOURNAL_NAME_MAX ? bytes_view(b, n) : NULL;
    if (!from || memchr(from, 0, n))
        b->bad = true;
    else
        memcpy(name, from, n);
}

/* JOURNAL_HEAD: `fragment` is the version, `round` the bytes that were written at once. */
static void body_put(struct bytes_writer *w, const struct journal_record *r)
{
    bytes_put_u32(w, r->fragment);
    bytes_put_u64(w, r->round);
    bytes_put(w, r->digest.bytes, sizeof r->digest.bytes);
    if (has_site(r->kind))
        bytes_put_u32(w, r->site);
    if (has_act(r->kind)) {
        bytes_put_u8(w, r->act);
        bytes_put_u64(w, r->to);
    }
    if (has_name(r->kind)) {
        size_t n = strnlen(r->name, JOURNAL_NAME_MAX);
        ASSERT(n < JOURNAL_NAME_MAX);
        bytes_put_u8(w, (uint8_t)n);
        bytes_put(w, r->name, n);
    }
    if (r->kind != JOURNAL_ACCEPT)
        return;
    bytes_put_u64(w, r->payload_bytes);
    bytes_put_u64(w, r->incarnation);
    bytes_put_u64(w, r->data_cursor);
    bytes_put_f32(w, r->weight);
    bytes_put_u8(w, r->residual_ratio);
    if (r->charged)
        bytes_put_u64(w, r->charged);
}

static bool body_get(struct bytes_reader b, struct journal_record *r)
{
    r->fragment = bytes_get_u32(&b);
    r->round = bytes_get_u64(&b);
    bytes_get(&b, r->digest.bytes, sizeof r->digest.bytes);
    if (has_site(r->kind))
        r->site = bytes_get_u32(&b);
    if (has_act(r->kind)) {
        r->act = bytes_get_u8(&b);
        r->to = bytes_get_u64(&b);
    }
    if (has_name(r->kind))
        name_get(&b, r->name);
    if (r->kind == JOURNAL_ACCEPT) {
        r->payload_bytes = bytes_get_u64(&b);
        r->incarnation = bytes_get_u64(&b);
        r->data_cursor = bytes_get_u64(&b);
        r->weight = bytes_get_f32(&b);
        r->residual_ratio = bytes_get_u8(&b);
        if (!b.bad && b.at != b.end) {
            r->charged = bytes_get_u64(&b);
            b.bad |= !r->charged;
        }
    }
    return bytes_done(&b);
}

/* Appends one record to w and moves sequence and chain on. */
static void record_put(struct bytes_writer *w, const struct journal_record *r, uint64_t *sequence,
                       struct digest *last)
{
    uint8_t body[JOURNAL_BODY_MAX], *start = w->at;
    struct bytes_writer b = bytes_writer(body, sizeof body);
    body_put(&b, r);
    bytes_put_u32(w, (uint32_t)bytes_size(&b));
    bytes_put_u32(w, 0); /* the CRC, below */
    bytes_put_u64(w, (*sequence)++);
    bytes_put(w, last->bytes, sizeof last->bytes);
    bytes_put_u8(w, (uint8_t)r->kind);
    bytes_put(w, body, bytes_size(&b));
    ASSERT(!w->bad && !b.bad);
    size_t n = (size_t)(w->at - start);
    struct bytes_writer crc = bytes_writer(start + CRC_AT, 4);
    bytes_put_u32(&crc, record_crc(start, n));
    *last = digest_of(start, n);
}

/* The length of the record at data, when length and CRC hold; else 0. */
static size_t record_whole(const uint8_t *data, size_t left)
{
    struct bytes_reader b = bytes_reader(data, left);
    uint32_t body = bytes_get_u32(&b), crc = bytes_get_u32(&b);
    size_t n = HEAD_BYTES + (size_t)body;
    if (b.bad || body > JOURNAL_BODY_MAX || n > left)
        return 0;
    return crc == record_crc(data, n) ? n : 0;
}

/* Is there a whole record of this journal anywhere after the bad one? The sequence number keeps
 * the payload of a record from being taken for one, and most offsets from costing a CRC. */
static bool record_behind(const uint8_t *data, size_t size, uint64_t sequence)
{
    for (size_t at = 1; at + HEAD_BYTES <= size; at++) {
        struct bytes_reader b = bytes_reader(data + at + 8, 8);
        uint64_t its = bytes_get_u64(&b);
        if (its > sequence && its - sequence <= size / HEAD_BYTES + 1 &&
            record_whole(data + at, size - at))
            return true;
    }
    return false;
}

static enum err journal_damaged(const struct journal *j, const char *what)
{
    return err_set(ERR_CORRUPT, "%s/%s: record %" PRIu64 " at byte %" PRIu64 ": %s", j->env->root,
                   j->path, j->sequence, j->size_bytes, what);
}

static enum err journal_of_version(const struct journal *j, unsigned version)
{
    return err_set(ERR_MISMATCH,
                   "%s/%s: journal of version %u; this program reads version %d: start a new run "
                   "directory, or use the program that wrote it",
                   j->env->root, j->path, version, JOURNAL_VERSION);
}

/* Known by its version: it is the first record, and of no other. */
static enum err journal_head_read(struct journal *j, const struct journal_record *r)
{
    if (r->fragment != JOURNAL_VERSION)
        return journal_of_version(j, r->fragment);
    j->whole_bytes = r->round;
    return ERR_OK;
}

/* The record at data, whole by its CRC: whose is it, what does it say? */
static enum err journal_record_read(struct journal *j, const uint8_t *data, size_t n,
                                    struct journal_record *r)
{
    struct digest before;
    bool first = j->size_bytes == 0;
    struct bytes_reader b = bytes_reader(data + 8, n - 8);
    uint64_t sequence = bytes_get_u64(&b);
    bytes_get(&b, before.bytes, sizeof before.bytes);
    *r = (struct journal_record){.kind = (enum journal_kind)bytes_get_u8(&b)};
    if (first) { /* a rewritten journal continues where the one before it ended */
        j->sequence = sequence;
        j->last = before;
    }
    if (first && r->kind != JOURNAL_HEAD && sequence > 1)
        return err_set(ERR_MISMATCH,
                       "%s/%s: record 1 is missing, or the journal is of version 1, which this "
                       "program does not read: restore it, or remove it, and the sites are asked "
                       "for the rounds in flight",
                       j->env->root, j->path);
    if (first && r->kind != JOURNAL_HEAD)
        return journal_of_version(j, 1);
    if (sequence != j->sequence || !digest_equal(&before, &j->last))
        return journal_damaged(j, "does not follow the one before it");
    bool known = r->kind == JOURNAL_ACCEPT || r->kind == JOURNAL_SEAL ||
                 r->kind == JOURNAL_COMMIT || r->kind == JOURNAL_TERM ||
                 r->kind == JOURNAL_QUARANTINE || r->kind == JOURNAL_OPERATOR ||
                 r->kind == JOURNAL_ROSTER || r->kind == JOURNAL_AMENDMENT;
    if (first != (r->kind == JOURNAL_HEAD) || (!first && !known))
        return journal_damaged(j, "of a kind this version does not know: written by a newer one?");
    if (!body_get(b, r))
        return journal_damaged(j, "malformed");
    return first ? journal_head_read(j, r) : ERR_OK;
}

/* No whole record is at the end of the bytes that were read. A torn append is less than one record
 * long. */
static enum err tail_read(struct journal *j, const uint8_t *at, size_t left)
{
    bool at_once = j->size_bytes == 0 || j->size_bytes < j->whole_bytes;
    if (at_once || left >= RECORD_MAX || record_behind(at, left, j->sequence))
        return journal_damaged(j, "damaged");
    return ERR_OK;
}

static enum err journal_read(struct journal *j, const struct file_map *m, journal_visit *visit,
                             void *self)
{
    while (j->size_bytes < m->size_bytes) {
        const uint8_t *at = m->data + j->size_bytes;
        size_t left = m->size_bytes - (size_t)j->size_bytes, n = record_whole(at, left);
        struct journal_record r;
        if (!n)
            break;
        TRY(journal_record_read(j, at, n, &r));
        if (r.kind != JOURNAL_HEAD)
            TRY(visit(self, &r));
        j->last = digest_of(at, n);
        j->sequence++;
        j->size_bytes += n;
    }
    j->cut_bytes = m->size_bytes - j->size_bytes;
    if (j->cut_bytes || j->size_bytes < j->whole_bytes || !j->size_bytes)
        return tail_read(j, m->data + j->size_bytes, (size_t)j->cut_bytes);
    return ERR_OK;
}

/* Bytes of whole records of this journal, as far as it is known, into a file of its own. The bytes
 * of a file whose fsync failed may be in memory alone, and no fsync of that file says so; what a
 * process before this one appended may be such bytes (docs/protocol.md 5, row 22). */
static enum err journal_copy_write(struct journal *j, const struct file_map *m)
{
    TRY(j->env->ops->write(j->env, j->path, &(struct file_part){m->data, (size_t)j->size_bytes},
                           1));
    j->spoiled = false;
    return ERR_OK;
}

/* Are the bytes on disk those that this process knows? */
static enum err copy_check(const struct journal *j, const struct file_map *m)
{
    struct digest last = {0};
    size_t at = 0;
    while (at < j->size_bytes && m->size_bytes >= j->size_bytes) {
        size_t n = record_whole(m->data + at, (size_t)j->size_bytes - at);
        if (!n)
            break;
        last = digest_of(m->data + at, n);
        at += n;
    }
    return at == j->size_bytes && digest_equal(&last, &j->last)
               ? ERR_OK
               : err_set(ERR_CORRUPT, "%s/%s: its bytes are not those that were written",
                         j->env->root, j->path);
}

static enum err journal_copy(struct journal *j)
{
    struct file_map m;
    TRY(j->env->ops->map(j->env, j->path, &m));
    enum err e = copy_check(j, &m);
    if (e == ERR_OK)
        e = journal_copy_write(j, &m);
    j->env->ops->unmap(j->env, &m);
    return e;
}

enum err journal_open(struct journal *j, struct env *w, const char *path, journal_visit *visit,
                      void *self)
{
    struct file_map m;
    *j = (struct journal){.env = w, .path = path, .sequence = 1};
    j->found = w->ops->exists(w, path);
    if (!j->found)
        return journal_rewrite(j, NULL, 0);
    TRY(w->ops->map(w, path, &m));
    enum err e = journal_read(j, &m, visit, self);
    if (e == ERR_OK && (!MUTANT(JOURNAL_BELIEVED) || j->cut_bytes))
        e = journal_copy_write(j, &m);
    w->ops->unmap(w, &m);
    return e;
}

enum err journal_append(struct journal *j, const struct journal_record *r)
{
    uint8_t record[RECORD_MAX];
    struct bytes_writer w = bytes_writer(record, sizeof record);
    uint64_t sequence = j->sequence;
    struct digest last = j->last;
    if (j->spoiled && !MUTANT(APPEND_BELIEVED))
        TRY(journal_copy(j));
    record_put(&w, r, &sequence, &last);
    enum err e = j->env->ops->append(j->env, j->path, record, bytes_size(&w));
    if (e != ERR_OK) {
        j->spoiled = true;
        return e;
    }
    j->sequence = sequence;
    j->last = last;
    j->size_bytes += bytes_size(&w);
    return ERR_OK;
}

bool journal_intact(const uint8_t *data, size_t size_bytes)
{
    struct digest last = {0};
    size_t at = 0, n = 1;
    for (; at < size_bytes && n; at += n) {
        n = record_whole(data + at, size_bytes - at);
        bool follows = n && (at == 0 || !memcmp(data + at + CHAIN_AT, last.bytes, sizeof last));
        if (!follows)
            return false;
        last = digest_of(data + at, n);
    }
    return at > 0;
}

bool journal_long(const struct journal *j, uint64_t bytes_max)
{
    return j->size_bytes > (bytes_max ? bytes_max : JOURNAL_BYTES_MAX);
}

enum err journal_rewrite(struct journal *j, const struct journal_record *keep, size_t count)
{
    struct arena scratch = arena_make(0);
    uint8_t *data = arena_array(&scratch, count + 1, RECORD_MAX);
    enum err e = data ? ERR_OK : ERR_MEMORY;
    struct journal next = *j;
    struct journal_record head = {.kind = JOURNAL_HEAD, .fragment = JOURNAL_VERSION};
    for (int pass = 0; e == ERR_OK && pass < 2;
         pass++) { /* the first one tells the head's `round` */
        struct bytes_writer w = bytes_writer(data, (count + 1) * RECORD_MAX);
        next.sequence = j->sequence;
        next.last = j->last;
        record_put(&w, &head, &next.sequence, &next.last);
        for (size_t i = 0; i < count; i++)
            record_put(&w, &keep[i], &next.sequence, &next.last);
        head.round = next.size_bytes = next.whole_bytes = bytes_size(&w);
    }
    struct file_part part = {data, next.size_bytes};
    next.spoiled = false;
    if (e == ERR_OK)
        e = j->env->ops->write(j->env, j->path, &part, 1);
    if (e == ERR_OK)
        *j = next;
    arena_free(&scratch);
    return e;
}
