/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/record.h"
#include <string.h>

enum {
    KIND_BYTES = 8,
    PREAMBLE_BYTES = 8 + 4 + 4 + 8 + KIND_BYTES,
    SECTION_BYTES = 8 + 32,
    ALIGN = 64 /* of the head's size: the first section of a mapped file is aligned */
};
static const char magic[8] = {'a', 't', 'o', 'l', 'l', 'r', 'e', 'c'};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields and sections are little-endian");

/* First bytes of files of version 1. */
static const char *const before[] = {"atollS1", "atollO1", "atollE1",  "atollI3",
                                     "atollM3", "atollM4", "ATOLLCKP", "round "};

/* Without `to` and `from` it only counts bytes. */
struct record_cursor {
    uint8_t *to;
    const uint8_t *from;
    size_t at, size_bytes; /* of `to` or `from` */
    struct arena *arena;   /* reading */
    enum err e;            /* reading; ERR_CORRUPT or ERR_MEMORY */
};

/* ---- fields ---- */

static void field(struct record_cursor *c, void *v, size_t n)
{
    if (c->from && (c->e != ERR_OK || n > c->size_bytes - c->at)) {
        c->e = c->e == ERR_OK ? ERR_CORRUPT : c->e;
        memset(v, 0, n);
        return;
    }
    ASSERT(!c->to || n <= c->size_bytes - c->at);
    if (c->from && n)
        memcpy(v, c->from + c->at, n);
    else if (c->to && n)
        memcpy(c->to + c->at, v, n);
    c->at += n;
}

void record_u8(struct record_cursor *c, uint8_t *v)
{
    field(c, v, sizeof *v);
}

void record_bool(struct record_cursor *c, bool *v)
{
    uint8_t byte = *v;
    field(c, &byte, 1);
    *v = byte == 1; /* any other byte but 0 shows when the head is written again */
}

void record_u32(struct record_cursor *c, uint32_t *v)
{
    field(c, v, sizeof *v);
}

void record_u64(struct record_cursor *c, uint64_t *v)
{
    field(c, v, sizeof *v);
}

void record_f32(struct record_cursor *c, float *v)
{
    field(c, v, sizeof *v);
}

void record_digest(struct record_cursor *c, struct digest *v)
{
    field(c, v->bytes, sizeof v->bytes);
}

bool record_reading(const struct record_cursor *c)
{
    return c->from != NULL;
}

void *record_alloc(struct record_cursor *c, size_t count, size_t size)
{
    void *p = c->e == ERR_OK ? arena_array(c->arena, count, size) : NULL;
    if (!p && c->e == ERR_OK)
        c->e = ERR_MEMORY;
    return p;
}

void record_text(struct record_cursor *c, const char **text, size_t max_bytes)
{
    uint32_t n = record_reading(c) ? 0 : (uint32_t)strlen(*text);
    ASSERT(n <= max_bytes);
    record_u32(c, &n);
    if (!record_reading(c)) {
        field(c, (void *)(uintptr_t)*text, n);
        return;
    }
    if (c->e == ERR_OK && (n > max_bytes || n > c->size_bytes - c->at))
        c->e = ERR_CORRUPT;
    char *copy = record_alloc(c, (size_t)n + 1, 1); /* a zero inside shows in the head's length */
    if (copy)
        field(c, copy, n);
    *text = copy ? copy : "";
}

/* ---- the head ---- */

static void fields(struct record_cursor *c, const struct record_form *f)
{
    if (f->fields)
        f->fields(c, f->self);
}

static void preamble(struct record_cursor *c, uint32_t *version, uint32_t *sections,
                     uint64_t *head_bytes, char kind[KIND_BYTES])
{
    char start[sizeof magic];
    memcpy(start, magic, sizeof magic);
    field(c, start, sizeof start);
    record_u32(c, version);
    record_u32(c, sections);
    record_u64(c, head_bytes);
    field(c, kind, KIND_BYTES);
}

enum err record_make_head(const struct record_form *f, const struct record_view *views,
                          size_t count, struct arena *a, struct file_part *out)
{
    struct record_cursor c = {0};
    uint32_t version = RECORD_FORMAT, sections = (uint32_t)count;
    char kind[KIND_BYTES] = {0};
    size_t length = strlen(f->kind);
    uint8_t *head;
    ASSERT(length <= KIND_BYTES && count <= RECORD_SECTIONS_MAX);
    memcpy(kind, f->kind, length);
    fields(&c, f); /* counts */
    uint64_t bytes = PREAMBLE_BYTES + c.at + count * SECTION_BYTES + sizeof(struct digest);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    ASSERT(bytes <= RECORD_HEAD_MAX);
    TRY_ALLOC(head = arena_alloc(a, bytes));
    c = (struct record_cursor){.to = head, .size_bytes = bytes};
    preamble(&c, &version, &sections, &bytes, kind);
    fields(&c, f);
    for (size_t i = 0; i < count; i++) {
        uint64_t size = views[i].size_bytes;
        struct digest digest = views[i].digest;
        record_u64(&c, &size);
        record_digest(&c, &digest);
    }
    c.at = bytes - sizeof(struct digest);
    struct digest sum = digest_of(head, c.at);
    record_digest(&c, &sum);
    *out = (struct file_part){head, bytes};
    return ERR_OK;
}

/* ---- write ---- */

static size_t parts_bytes(const struct file_part *parts, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += parts[i].size_bytes;
    return bytes;
}

static void section_sum(struct record_section *s)
{
    struct digest_stream d;
    if (!digest_zero(&s->digest))
        return;
    digest_open(&d);
    for (size_t i = 0; i < s->part_count; i++)
        digest_add(&d, s->parts[i].data, s->parts[i].size_bytes);
    s->digest = digest_close(&d);
}

void record_sum(struct record_section *sections, size_t count, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (count > 2)
    for (size_t i = 0; i < count; i++)
        section_sum(&sections[i]);
}

enum err record_make(const struct record_form *f, struct record_section *sections, size_t count,
                     struct file_part **parts, size_t *part_count, struct arena *a)
{
    struct record_view *views;
    size_t n = 1;
    TRY_ALLOC(views = arena_array(a, count + 1, sizeof *views));
    record_sum(sections, count, 1);
    for (size_t i = 0; i < count; i++) {
        views[i].size_bytes = parts_bytes(sections[i].parts, sections[i].part_count);
        views[i].digest = sections[i].digest;
        n += sections[i].part_count;
    }
    TRY_ALLOC(*parts = arena_array(a, n, sizeof **parts));
    TRY(record_make_head(f, views, count, a, &(*parts)[0]));
    *part_count = 1;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sections[i].part_count; k++)
            (*parts)[(*part_count)++] = sections[i].parts[k];
    return ERR_OK;
}

/* ---- read ---- */

static enum err of_version(const char *path, unsigned version)
{
    return err_set(ERR_MISMATCH,
                   "%s: state of version %u; this program reads version %d: start a new run "
                   "directory, or use the program that wrote it",
                   path, version, RECORD_FORMAT);
}

static enum err damaged(const char *path)
{
    return err_set(ERR_CORRUPT, "%s: damaged", path);
}

/* Is the head whole, of this version and kind? Then its size and number of sections. */
static enum err head_check(const struct record_form *f, const char *path, const uint8_t *data,
                           size_t size, uint64_t *bytes, uint32_t *sections)
{
    struct record_cursor c = {.from = data, .size_bytes = size};
    struct digest sum;
    uint32_t version = 0;
    char kind[KIND_BYTES] = {0};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (size >= strlen(before[i]) && !memcmp(data, before[i], strlen(before[i])))
            return of_version(path, 1);
    if (size < PREAMBLE_BYTES + sizeof sum || memcmp(data, magic, sizeof magic) != 0)
        return damaged(path);
    preamble(&c, &version, sections, bytes, kind);
    if (*bytes < PREAMBLE_BYTES + sizeof sum || *bytes > size || *bytes > RECORD_HEAD_MAX)
        return damaged(path);
    sum = digest_of(data, *bytes - sizeof sum);
    if (memcmp(sum.bytes, data + *bytes - sizeof sum, sizeof sum) != 0)
        return damaged(path);
    if (version != RECORD_FORMAT)
        return of_version(path, version);
    bool ours = strncmp(kind, f->kind, KIND_BYTES) == 0 && *sections <= *bytes / SECTION_BYTES;
    return ours ? ERR_OK : damaged(path);
}

/* The sections' table: they fill the file to its end. */
static bool views_read(struct record_cursor *c, struct record *r, size_t head, size_t size)
{
    size_t at = head;
    for (size_t i = 0; i < r->section_count; i++) {
        uint64_t bytes = 0;
        record_u64(c, &bytes);
        record_digest(c, &r->sections[i].digest);
        if (c->e != ERR_OK || bytes > size - at)
            return false;
        r->sections[i].size_bytes = bytes;
        at += bytes;
    }
    return at == size;
}

enum err record_open_head(struct record *r, const struct record_form *f, const char *path,
                          const uint8_t *head, size_t head_bytes, uint64_t size_bytes,
                          struct arena *a)
{
    struct file_part again;
    uint64_t bytes = 0;
    uint32_t sections = 0;
    *r = (struct record){0};
    TRY(head_check(f, path, head, head_bytes, &bytes, &sections));
    struct record_cursor c = {.from = head,
                              .at = PREAMBLE_BYTES,
                              .size_bytes = bytes - sizeof(struct digest),
                              .arena = a};
    r->section_count = sections;
    r->head_bytes = bytes;
    TRY_ALLOC(r->sections = arena_array(a, (size_t)sections + 1, sizeof *r->sections));
    fields(&c, f);
    if (c.e == ERR_MEMORY)
        return c.e;
    if (c.e != ERR_OK || !views_read(&c, r, bytes, size_bytes))
        return damaged(path);
    TRY(record_make_head(f, r->sections, sections, a, &again));
    bool same = again.size_bytes == bytes && memcmp(again.data, head, bytes) == 0;
    return same ? ERR_OK : damaged(path);
}

enum err record_open(struct record *r, const struct record_form *f, const char *path,
                     const void *data, size_t size, struct arena *a)
{
    TRY(record_open_head(r, f, path, data, size, size, a));
    const uint8_t *at = (const uint8_t *)data + r->head_bytes;
    for (size_t i = 0; i < r->section_count; at += r->sections[i++].size_bytes)
        r->sections[i].data = at;
    return ERR_OK;
}

bool record_intact(const struct record *r, size_t section)
{
    if (section >= r->section_count)
        return false;
    const struct record_view *v = &r->sections[section];
    struct digest d = digest_of(v->data, v->size_bytes);
    return digest_equal(&d, &v->digest);
}

bool record_intact_all(const struct record *r, size_t first, size_t count, int threads)
{
    bool damaged = first > r->section_count || count > r->section_count - first;
    size_t n = damaged ? 0 : count;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(|| : damaged) if (n > 2)
    for (size_t i = 0; i < n; i++)
        damaged = damaged || !record_intact(r, first + i);
    return !damaged;
}

static void section_copy(const struct record_section *to, const uint8_t *from)
{
    for (size_t i = 0; i < to->part_count; from += to->parts[i++].size_bytes)
        if (to->parts[i].size_bytes)
            memcpy((void *)(uintptr_t)to->parts[i].data, from, to->parts[i].size_bytes);
}

bool record_take_all(const struct record *r, size_t first, const struct record_section *to,
                     size_t count, int threads)
{
    if (!record_intact_all(r, first, count, threads))
        return false;
    for (size_t i = 0; i < count; i++)
        if (r->sections[first + i].size_bytes != parts_bytes(to[i].parts, to[i].part_count))
            return false;
#pragma omp parallel for num_threads(threads) schedule(static) if (count > 2)
    for (size_t i = 0; i < count; i++)
        section_copy(&to[i], r->sections[first + i].data);
    return true;
}

bool record_take(const struct record *r, size_t section, const struct file_part *to,
                 size_t part_count)
{
    const struct record_section one = {.parts = to, .part_count = part_count};
    return record_take_all(r, section, &one, 1, 1);
}

/* ---- in pieces, of any kind ---- */

_Static_assert((int)PREAMBLE_BYTES == (int)RECORD_START, "what comes before the fields");

size_t record_head_bytes(const uint8_t start[RECORD_START], uint64_t size_bytes)
{
    struct record_cursor c = {.from = start, .size_bytes = RECORD_START};
    uint32_t version = 0, sections = 0;
    uint64_t bytes = 0;
    char kind[KIND_BYTES] = {0};
    if (memcmp(start, magic, sizeof magic) != 0)
        return 0;
    preamble(&c, &version, &sections, &bytes, kind);
    bool fits = bytes >= PREAMBLE_BYTES + sizeof(struct digest) && bytes <= RECORD_HEAD_MAX &&
                bytes % ALIGN == 0 && bytes <= size_bytes;
    return fits ? bytes : 0;
}

/* The table ends where the zeros before the head's digest begin. How many these are follows from
 * the fields, which this reader does not know: at the right place the sizes are those of the file,
 * and an empty section has the digest of nothing. The most zeros first: the last bytes of a digest
 * with fewer zeros after them can look like the size of the file, while zeros that belong to the
 * last digest move each size up by a byte, so that the sizes are too large. */
static bool table_find(struct record_cursor c, size_t end, struct record *r, uint64_t left)
{
    const uint8_t *head = c.from;
    const struct digest empty = digest_of("", 0);
    size_t room = end - PREAMBLE_BYTES, sections = r->section_count * SECTION_BYTES, most = 0;
    while (most + 1 < ALIGN && sections + most < room && !head[end - most - 1])
        most++;
    if (sections > room)
        return false;
    for (size_t n = most + 1; n > 0; n--) {
        bool fits = true;
        uint64_t sum = 0;
        c.at = end - sections - (n - 1);
        for (size_t i = 0; i < r->section_count; i++) {
            uint64_t bytes = 0;
            record_u64(&c, &bytes);
            record_digest(&c, &r->sections[i].digest);
            r->sections[i].size_bytes = bytes;
            fits = fits && bytes <= left - sum &&
                   (bytes || digest_equal(&r->sections[i].digest, &empty));
            sum += fits ? bytes : 0;
        }
        if (fits && sum == left)
            return true;
    }
    return false;
}

bool record_head_sections(const uint8_t *head, size_t head_bytes, uint64_t size_bytes,
                          struct record *r, struct arena *a)
{
    struct record_cursor c = {.from = head, .size_bytes = head_bytes};
    size_t end = head_bytes - sizeof(struct digest);
    struct digest sum = digest_of(head, end);
    uint32_t version = 0, sections = 0;
    uint64_t bytes = 0;
    char kind[KIND_BYTES] = {0};
    *r = (struct record){0};
    preamble(&c, &version, &sections, &bytes, kind);
    if (bytes != head_bytes || memcmp(sum.bytes, head + end, sizeof sum) != 0)
        return false;
    if (version != RECORD_FORMAT)
        return true;
    if (sections > bytes / SECTION_BYTES)
        return false;
    r->sections = arena_array(a, (size_t)sections + 1, sizeof *r->sections);
    r->section_count = r->sections ? sections : 0;
    return !r->sections || table_find(c, end, r, size_bytes - head_bytes);
}
