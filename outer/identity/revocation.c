/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/identity/revocation.h"
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "kernels/base/file.h"
#include "kernels/base/log.h"

static const char URI[] = "atoll://", SHA256[] = "sha256:", SERIAL[] = "serial:";
enum { SERIAL_DIGITS_MAX = 40 }; /* RFC 5280: 20 bytes */

struct list {
    struct arena arena;
    char **entries; /* [count], in their one form */
    size_t count;
    unsigned unknown; /* lines that are no entry */
};
struct revocation {
    char *path, *copy;
    pthread_mutex_t mutex; /* guards all below */
    struct list list;
    struct stat seen;   /* of the list when it was read, or could not be read */
    bool read, missing; /* there was a list; it is missing now, which was logged */
    bool damaged;       /* it could not be read, and has not been read since */
};

/* ---- text ---- */

/* Hexadecimal digits in lower case, without colons and leading zeros. False: other characters, or
 * not [least, most] digits. */
static bool digits_copy(char *out, const char *text, size_t least, size_t most)
{
    size_t n = 0;
    for (; *text; text++) {
        if (*text == ':')
            continue;
        if (!isxdigit((unsigned char)*text) || n == most)
            return false;
        out[n++] = (char)tolower((unsigned char)*text);
    }
    out[n] = 0;
    return n >= least;
}

bool revocation_entry(char out[REVOCATION_ENTRY_MAX], const char *text)
{
    size_t n = strlen(text);
    if (strncmp(text, URI, sizeof URI - 1) == 0 && n < REVOCATION_ENTRY_MAX) {
        memmove(out, text, n + 1);
        return n >= sizeof URI && strspn(text, " \t\r\n#") == 0 &&
               text[strcspn(text, " \t\r\n#")] == 0;
    }
    bool sha = strncasecmp(text, SHA256, sizeof SHA256 - 1) == 0;
    if (!sha && strncasecmp(text, SERIAL, sizeof SERIAL - 1) != 0)
        return false;
    memcpy(out, sha ? SHA256 : SERIAL, sizeof SHA256 - 1);
    const char *digits = text + sizeof SHA256 - 1;
    if (!sha)
        while (*digits == '0' || *digits == ':')
            digits++;
    return digits_copy(out + sizeof SHA256 - 1, digits, sha ? 64 : 1, sha ? 64 : SERIAL_DIGITS_MAX);
}

/* The entry at the start of a line, or false for an empty line, a comment, and what is none:
 * *unknown then counts it. */
static bool line_entry(char out[REVOCATION_ENTRY_MAX], const char *line, size_t n,
                       unsigned *unknown)
{
    char word[REVOCATION_ENTRY_MAX];
    size_t at = 0, end;
    while (at < n && strchr(" \t\r", line[at]))
        at++;
    for (end = at; end < n && !strchr(" \t\r#", line[end]);)
        end++;
    if (end == at)
        return false;
    bool fits = end - at < sizeof word;
    snprintf(word, sizeof word, "%.*s", fits ? (int)(end - at) : 0, line + at);
    bool entry = fits && revocation_entry(out, word);
    *unknown += !entry;
    return entry;
}

/* Calls line_entry for the line at *at and moves to the next one. False: the text has ended. */
static bool line_next(const char **at, char out[REVOCATION_ENTRY_MAX], bool *entry,
                      unsigned *unknown)
{
    if (!**at)
        return false;
    size_t n = strcspn(*at, "\n");
    *entry = line_entry(out, *at, n, unknown);
    *at += n + ((*at)[n] == '\n');
    return true;
}

static enum err list_parse(struct list *l, const char *text)
{
    char word[REVOCATION_ENTRY_MAX];
    size_t room = 1;
    bool entry;
    for (const char *p = text; *p; p++)
        room += *p == '\n';
    TRY_ALLOC(l->entries = arena_array(&l->arena, room, sizeof *l->entries));
    for (const char *at = text; line_next(&at, word, &entry, &l->unknown);)
        if (entry)
            TRY_ALLOC(l->entries[l->count++] = arena_string(&l->arena, word, strlen(word)));
    return ERR_OK;
}

static enum err text_read(const char *path, struct arena *a, char **text)
{
    uint8_t *data;
    size_t n;
    TRY(file_read(path, REVOCATION_BYTES_MAX, a, &data, &n));
    if (memchr(data, 0, n))
        return err_set(ERR_INPUT, "%s: holds a zero byte, so it is no list", path);
    *text = (char *)data;
    return ERR_OK;
}

static enum err list_read(struct list *l, const char *path)
{
    char *text = NULL;
    *l = (struct list){.arena = arena_make(0)};
    enum err e = text_read(path, &l->arena, &text);
    if (e == ERR_OK)
        e = list_parse(l, text);
    if (e != ERR_OK)
        arena_free(&l->arena);
    return e;
}

static bool list_has(const struct list *l, const char *entry)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->entries[i], entry) == 0)
            return true;
    return false;
}

/* ---- the list of a running aggregator ---- */

static bool stat_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static enum err copy_write(const struct revocation *r)
{
    struct arena a = arena_make(0);
    size_t count = 2 * r->list.count;
    struct file_part *parts = arena_array(&a, count + 1, sizeof *parts);
    for (size_t i = 0; parts && i < r->list.count; i++) {
        parts[2 * i] = (struct file_part){r->list.entries[i], strlen(r->list.entries[i])};
        parts[2 * i + 1] = (struct file_part){"\n", 1};
    }
    enum err e = parts ? file_write(r->copy, parts, count, 0600) : ERR_MEMORY;
    arena_free(&a);
    return e;
}

static void list_adopt(struct revocation *r, const struct list *l)
{
    arena_free(&r->list.arena);
    r->list = *l;
    r->read = true;
    r->damaged = false;
}

static void damaged_log(const char *why)
{
    char quoted[1024];
    log_event(LOG_ERROR, "revoked_unreadable",
              "why=%s until=\"every caller is refused until the list can be read\"",
              log_quote(quoted, sizeof quoted, why));
}

static void missing_log(const struct revocation *r)
{
    char quoted[512];
    log_event(LOG_ERROR, "revoked_missing",
              "file=%s entries=%zu why=\"the list that was read last stays in force; to admit "
              "all, leave an empty file\"",
              log_quote(quoted, sizeof quoted, r->path), r->list.count);
}

static void list_reload(struct revocation *r, const struct stat *now)
{
    struct list l;
    char quoted[1024];
    bool tried = r->damaged && stat_same(now, &r->seen);
    r->seen = *now;
    if (list_read(&l, r->path) != ERR_OK) {
        r->damaged = true;
        if (!tried)
            damaged_log(err_message());
        err_clear();
        return;
    }
    list_adopt(r, &l);
    log_event(l.unknown ? LOG_ERROR : LOG_INFO, "revoked_read", "count=%zu unknown=%u%s", l.count,
              l.unknown, l.unknown ? " why=\"a line is no identity, sha256: or serial:\"" : "");
    if (r->copy && copy_write(r) != ERR_OK) {
        log_event(LOG_ERROR, "revoked_copy", "why=%s",
                  log_quote(quoted, sizeof quoted, err_message()));
        err_clear();
    }
}

static void list_look(struct revocation *r)
{
    struct stat now = {0};
    bool there = stat(r->path, &now) == 0;
    bool absent = !there && (errno == ENOENT || errno == ENOTDIR);
    if (absent && !r->missing && r->read)
        missing_log(r);
    r->missing = absent;
    if (!absent && (r->damaged || !r->read || !stat_same(&now, &r->seen)))
        list_reload(r, &now);
}

/* At the start, when there is no list: the copy of the last one. */
static void copy_look(struct revocation *r)
{
    struct list l;
    if (!r->missing || !r->copy || !file_exists(r->copy))
        return;
    if (list_read(&l, r->copy) == ERR_OK) {
        list_adopt(r, &l);
        missing_log(r);
    } else {
        r->damaged = true;
        damaged_log(err_message());
        err_clear();
    }
}

enum err revocation_open(struct revocation **out, const char *path, const char *copy)
{
    struct revocation *r = calloc(1, sizeof *r);
    TRY_ALLOC(r);
    pthread_mutex_init(&r->mutex, NULL);
    r->path = strdup(path);
    r->copy = copy ? strdup(copy) : NULL;
    if (!r->path || (copy && !r->copy)) {
        revocation_close(r);
        return err_set(ERR_MEMORY, "no memory for the list of revoked identities");
    }
    list_look(r);
    copy_look(r);
    *out = r;
    return ERR_OK;
}

void revocation_close(struct revocation *r)
{
    if (!r)
        return;
    arena_free(&r->list.arena);
    pthread_mutex_destroy(&r->mutex);
    free(r->path);
    free(r->copy);
    free(r);
}

static const char *list_why(const struct list *l, const char *uri, const struct wire_certificate *c)
{
    char entry[sizeof SHA256 + 64], hex[65], serial[REVOCATION_ENTRY_MAX];
    if (list_has(l, uri))
        return "this name is revoked";
    digest_hex(&c->sha256, hex);
    snprintf(entry, sizeof entry, "%s%s", SHA256, hex);
    snprintf(serial, sizeof serial, "%s%s", SERIAL, c->serial);
    bool revoked = (!digest_zero(&c->sha256) && list_has(l, entry)) ||
                   (revocation_entry(serial, serial) && list_has(l, serial));
    return revoked ? "this certificate is revoked; a new one of the same name is accepted" : NULL;
}

const char *revocation_why(struct revocation *r, const char *uri, const struct wire_certificate *c)
{
    pthread_mutex_lock(&r->mutex);
    list_look(r);
    const char *why =
        r->damaged ? "the list of revoked identities cannot be read" : list_why(&r->list, uri, c);
    pthread_mutex_unlock(&r->mutex);
    return why;
}

/* ---- the list of an authority ---- */

static enum err directory_read(const char *path, struct arena *a, char **text)
{
    static char none[] = "";
    *text = none;
    return file_exists(path) ? text_read(path, a, text) : ERR_OK;
}

static bool text_has(const char *text, const char *wanted)
{
    char entry[REVOCATION_ENTRY_MAX];
    unsigned unknown = 0;
    bool is;
    for (const char *at = text; line_next(&at, entry, &is, &unknown);)
        if (is && strcmp(entry, wanted) == 0)
            return true;
    return false;
}

enum err revocation_listed(const char *directory, const char *entry, bool *listed)
{
    char path[4096], *text = NULL;
    struct arena a = arena_make(0);
    snprintf(path, sizeof path, "%s/revoked.txt", directory);
    enum err e = directory_read(path, &a, &text);
    *listed = e == ERR_OK && text_has(text, entry);
    arena_free(&a);
    return e;
}

enum err revocation_add(const char *directory, const char *entry, const char *note, bool *was_there)
{
    char path[4096], *text = NULL;
    struct arena a = arena_make(0);
    snprintf(path, sizeof path, "%s/revoked.txt", directory);
    enum err e = directory_read(path, &a, &text);
    *was_there = e == ERR_OK && text_has(text, entry);
    if (e == ERR_OK && !*was_there) {
        size_t n = strlen(text);
        struct file_part parts[] = {{text, n},
                                    {"\n", n && text[n - 1] != '\n'},
                                    {entry, strlen(entry)},
                                    {"  # ", note ? 4 : 0},
                                    {note, note ? strlen(note) : 0},
                                    {"\n", 1}};
        e = file_write(path, parts, sizeof parts / sizeof *parts, 0644);
    }
    arena_free(&a);
    return e;
}
