/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/chained.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"

enum { CRC = 13, LINE_MAX = CHAINED_TEXT_MAX + 128, BYTES_MAX = 1 << 30, SLOT = 128 };
static const char NUMBER[] = "number=", CHAIN[] = " chain=";

/* ---- a line ---- */
static struct digest chain_with(const struct digest *before, const char *text, size_t n)
{
    struct digest_stream s;
    digest_open(&s);
    digest_add(&s, before->bytes, sizeof before->bytes);
    digest_add(&s, text, n);
    digest_add(&s, "", 1);
    return digest_close(&s);
}

/* "TEXT number=N chain=HEX crc=XXXXXXXX\n", without the blank where there is no text. */
static int line_print(char line[LINE_MAX], const char *text, const struct chained_at *at)
{
    char hex[65];
    digest_hex(&at->chain, hex);
    int n = snprintf(line, LINE_MAX, "%s%s%s%" PRIu64 "%s%s", text, *text ? " " : "", NUMBER,
                     at->number, CHAIN, hex);
    ASSERT(n > 0 && n < LINE_MAX - CRC - 1);
    uint32_t crc = digest_crc32c(0, line, (size_t)n);
    return n + snprintf(line + n, (size_t)(LINE_MAX - n), " crc=%08x\n", crc);
}

/* Without its crc; false: that is another one. */
static bool line_whole(const char *line, size_t *n)
{
    char crc[CRC + 1];
    if (*n <= CRC || *n >= LINE_MAX || memchr(line, 0, *n))
        return false;
    *n -= CRC;
    snprintf(crc, sizeof crc, " crc=%08x", digest_crc32c(0, line, *n));
    return memcmp(line + *n, crc, CRC) == 0;
}

/* Cuts " number=N chain=HEX" off; false: the line has none. */
static bool line_position(char *text, size_t *n, struct chained_at *at)
{
    enum { HEX = 64 };
    char *chain, *blank, *number, *end;
    if (*n < strlen(CHAIN) + HEX)
        return false;
    chain = text + *n - HEX - strlen(CHAIN);
    if (memcmp(chain, CHAIN, strlen(CHAIN)) != 0 ||
        !digest_hex_read(&at->chain, chain + strlen(CHAIN)))
        return false;
    *chain = 0;
    blank = strrchr(text, ' ');
    number = blank ? blank + 1 : text;
    if (strncmp(number, NUMBER, strlen(NUMBER)) != 0)
        return false;
    number += strlen(NUMBER);
    at->number = strtoull(number, &end, 10);
    *n = blank ? (size_t)(blank - text) : 0;
    text[*n] = 0;
    return end != number && !*end;
}

/* ---- a list ---- */
struct walk {
    const char *path;
    const struct chained_options *o;
    struct chained_at head, last;
    bool headed;       /* there is a head */
    bool known, named; /* found: the line of o->known; of the head */
    bool numbered;     /* a line has a position */
};

static enum err line_bad(const struct walk *w, uint64_t line, const char *why)
{
    return err_set(ERR_CORRUPT,
                   "%s, line %" PRIu64 ", is no %s%s: %s; restore the file, or the whole directory "
                   "of one backup",
                   w->path, line, w->o->what, why, w->o->lost);
}

static enum err walk_line(struct walk *w, const char *line, size_t n)
{
    char text[LINE_MAX];
    struct chained_at at, next = {.number = w->last.number + 1};
    bool good = line_whole(line, &n);
    if (!good)
        return line_bad(w, next.number, "");
    memcpy(text, line, n);
    text[n] = 0;
    bool has = line_position(text, &n, &at);
    next.chain = chain_with(&w->last.chain, text, n);
    if (!has && w->numbered)
        return line_bad(w, next.number, " with a number, as those before it are");
    if (has && (at.number != next.number || !digest_equal(&at.chain, &next.chain)))
        return line_bad(w, next.number,
                        " that follows the line before: lines are missing, or altered");
    w->numbered |= has;
    w->last = next;
    w->known |= next.number == w->o->known.number && digest_equal(&next.chain, &w->o->known.chain);
    w->named |= next.number == w->head.number && digest_equal(&next.chain, &w->head.chain);
    TRY(w->o->visit(w->o->self, text, n, &good));
    return good ? ERR_OK : line_bad(w, next.number, "");
}

static enum err walk_short(const struct walk *w, const struct chained_at *at, const char *by)
{
    if (w->last.number >= at->number)
        return err_set(ERR_CORRUPT,
                       "%s: line %" PRIu64 " is another one than %s says: %s; restore the whole "
                       "directory of one backup, or begin a new run",
                       w->path, at->number, by, w->o->lost);
    return err_set(ERR_CORRUPT,
                   "%s has %" PRIu64 " lines, and %s says that there were %" PRIu64
                   ": %s; restore the whole directory of one backup, or begin a new run",
                   w->path, w->last.number, by, at->number, w->o->lost);
}

static enum err walk_lines(struct walk *w, const char *data, size_t size, size_t *whole)
{
    for (*whole = 0; *whole < size;) {
        const char *end = memchr(data + *whole, '\n', size - *whole);
        if (!end)
            break;
        TRY(walk_line(w, data + *whole, (size_t)(end - data) - *whole));
        *whole = (size_t)(end - data) + 1;
    }
    if (w->numbered && !w->headed)
        return err_set(ERR_CORRUPT, "%s%s is missing: %s; restore it", w->path, CHAINED_HEAD,
                       w->o->lost);
    if (w->head.number && !w->named)
        return walk_short(w, &w->head, "its file " CHAINED_HEAD);
    if (w->o->known.number && !w->known)
        return walk_short(w, &w->o->known, w->o->known_by);
    return ERR_OK;
}

static bool slot_read(const char *slot, struct chained_at *at)
{
    char text[SLOT + 1];
    size_t n = SLOT - 1;
    memcpy(text, slot, SLOT);
    while (n && text[n - 1] == ' ')
        n--;
    bool good = slot[SLOT - 1] == '\n' && line_whole(text, &n);
    text[good ? n : 0] = 0;
    return good && line_position(text, &n, at) && n == 0;
}

static enum err head_read(struct walk *w, struct disk *d, const char *path, struct arena *a)
{
    uint8_t *data;
    size_t size;
    enum err e = durable_read(d, path, 2 * SLOT, a, &data, &size);
    w->headed = e == ERR_OK;
    if (e == ERR_INPUT && d->ops->kind(d, path) == DISK_MISSING) {
        err_clear();
        return ERR_OK;
    }
    TRY(e);
    bool good[2] = {false, false};
    for (size_t i = 0; i < 2 && size == 2 * SLOT; i++) {
        struct chained_at at;
        good[i] = slot_read((const char *)data + i * SLOT, &at);
        if (good[i] && at.number >= w->head.number)
            w->head = at;
    }
    if (!good[0] && !good[1])
        return err_set(ERR_CORRUPT, "%s is damaged: %s; restore it", path, w->o->lost);
    return ERR_OK;
}

/* The head first: the list that is read after it has its line. */
static enum err list_read(struct walk *w, struct disk *d, struct arena *a, uint8_t **data,
                          size_t *size, size_t *whole)
{
    const char *head = arena_printf(a, "%s%s", w->path, CHAINED_HEAD);
    TRY_ALLOC(head);
    TRY(head_read(w, d, head, a));
    TRY(durable_read(d, w->path, BYTES_MAX, a, data, size));
    return walk_lines(w, (const char *)*data, *size, whole);
}

enum err chained_read(struct chained_at *last, struct disk *d, const char *path,
                      const struct chained_options *o)
{
    struct walk w = {.path = path, .o = o};
    struct arena a = arena_make(0);
    uint8_t *data;
    size_t size, whole;
    enum err e = list_read(&w, d, &a, &data, &size, &whole);
    *last = w.last;
    arena_free(&a);
    return e;
}

/* ---- the writer ---- */
static void slot_print(char slot[SLOT], const struct chained_at *at)
{
    char line[LINE_MAX];
    int n = line_print(line, "", at);
    ASSERT(n > 0 && n <= SLOT);
    memset(slot, ' ', SLOT);
    memcpy(slot, line, (size_t)n - 1);
    slot[SLOT - 1] = '\n';
}

static enum err head_write(struct chained *c)
{
    char slots[2 * SLOT];
    const struct file_part part = {slots, sizeof slots};
    slot_print(slots, &c->last);
    memcpy(slots + SLOT, slots, SLOT);
    return durable_write(c->disk, c->head, &part, 1, 0600);
}

/* One of its two lines: the other one holds if this is torn. */
static enum err head_move(struct chained *c)
{
    char slot[SLOT];
    int fd = c->disk->ops->open(c->disk, c->head, O_WRONLY, 0);
    if (fd < 0)
        return durable_failed("open", c->head, ERR_IO);
    slot_print(slot, &c->last);
    enum err e = durable_write_at(c->disk, fd, c->head, slot, SLOT, c->last.number % 2 * SLOT);
    if (e == ERR_OK && c->disk->ops->sync(c->disk, fd, DISK_APPENDED) != 0)
        e = durable_failed("sync", c->head, ERR_IO);
    c->disk->ops->close(c->disk, fd);
    return e;
}

static enum err list_make(struct chained *c, bool begun, const struct chained_options *o,
                          struct arena *a)
{
    struct walk w = {.path = c->path, .o = o};
    TRY(head_read(&w, c->disk, c->head, a));
    if (begun || o->known.number || w.head.number)
        return err_set(ERR_INPUT, "%s is missing, and it has begun; restore it: %s", c->path,
                       o->lost);
    TRY(head_write(c)); /* first: a list without entries and without a head is none of ours */
    return durable_write(c->disk, c->path, NULL, 0, 0600);
}

static enum err list_take(struct chained *c, bool begun, const struct chained_options *o,
                          struct arena *a)
{
    struct walk w = {.path = c->path, .o = o};
    uint8_t *data;
    size_t size, whole;
    TRY(list_read(&w, c->disk, a, &data, &size, &whole));
    if (begun && !w.last.number)
        return err_set(ERR_CORRUPT,
                       "%s is empty, and it has begun: %s; restore it, or begin a new run", c->path,
                       o->lost);
    const struct file_part kept = {data, whole};
    if (whole < size)
        TRY(durable_write(c->disk, c->path, &kept, 1, 0600));
    c->last = w.last;
    return w.headed && w.head.number == w.last.number ? ERR_OK : head_write(c);
}

enum err chained_open(struct chained *c, struct disk *d, const char *path, bool begun,
                      const struct chained_options *o, struct arena *a)
{
    struct arena scratch = arena_make(0);
    *c = (struct chained){.disk = d};
    TRY_ALLOC(c->path = arena_string(a, path, strlen(path)));
    TRY_ALLOC(c->head = arena_printf(a, "%s%s", path, CHAINED_HEAD));
    enum err e = d->ops->kind(d, path) == DISK_MISSING ? list_make(c, begun, o, &scratch)
                                                       : list_take(c, begun, o, &scratch);
    arena_free(&scratch);
    return e;
}

enum err chained_append(struct chained *c, const char *text)
{
    char line[LINE_MAX];
    size_t n = strlen(text);
    ASSERT(n > 0 && n <= CHAINED_TEXT_MAX);
    ASSERT(!memchr(text, '\n', n));
    if (c->failed)
        return err_set(ERR_IO, "%s: a line could not be stored; start again", c->path);
    const struct chained_at next = {c->last.number + 1, chain_with(&c->last.chain, text, n)};
    c->failed = true;
    TRY(durable_append(c->disk, c->path, line, (size_t)line_print(line, text, &next)));
    c->last = next;
    TRY(head_move(c));
    c->failed = false;
    return ERR_OK;
}
