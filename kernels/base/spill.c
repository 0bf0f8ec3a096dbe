/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/spill.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

struct spill spill_make(const char *directory)
{
    return (struct spill){.directory = directory};
}

static enum err spill_failed(const struct spill *s, const char *what)
{
    bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return err_set(full ? ERR_FULL : ERR_IO, "%s: cannot %s after %llu bytes of expanded data: %s",
                   s->directory, what, (unsigned long long)(s->count - s->used), strerror(errno));
}

static enum err spill_file(struct spill *s)
{
    char path[4096];
    TRY(file_mkdirs(s->directory));
    if (snprintf(path, sizeof path, "%s/.spill-XXXXXX", s->directory) >= (int)sizeof path)
        return err_set(ERR_INPUT, "%s: path too long", s->directory);
    s->fd = mkostemp(path, O_CLOEXEC);
    if (s->fd < 0)
        return spill_failed(s, "make a file");
    s->is_file = true;
    return unlink(path) ? spill_failed(s, "remove the name of a file") : ERR_OK;
}

static enum err spill_write(struct spill *s)
{
    if (!s->is_file)
        TRY(spill_file(s));
    for (size_t at = 0; at < s->used;) {
        ssize_t n = write(s->fd, s->piece + at, s->used - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return spill_failed(s, "write");
        at += (size_t)n;
    }
    s->used = 0;
    return ERR_OK;
}

static enum err spill_room(struct spill *s, size_t room)
{
    uint8_t *larger = realloc(s->piece, room);
    if (!larger)
        return err_set(ERR_MEMORY, "no memory for %zu bytes of expanded data", room);
    s->piece = larger;
    s->room = room;
    return ERR_OK;
}

enum err spill_add(struct spill *s, const void *data, size_t size_bytes)
{
    const uint8_t *from = data;
    for (size_t left = size_bytes; left;) {
        size_t most = s->is_file ? PIECE_BYTES : SPILL_MEMORY_BYTES;
        if (s->used == most) {
            TRY(spill_write(s));
            continue;
        }
        size_t n = left < most - s->used ? left : most - s->used;
        if (s->used + n > s->room)
            TRY(spill_room(s, s->used + n > most / 2 ? most : 2 * (s->used + n)));
        memcpy(s->piece + s->used, from, n);
        s->used += n;
        s->count += n;
        from += n;
        left -= n;
    }
    return ERR_OK;
}

enum err spill_end(struct spill *s, const uint8_t **data)
{
    *data = s->piece;
    if (!s->is_file)
        return ERR_OK;
    TRY(spill_write(s));
    free(s->piece);
    s->piece = NULL;
    s->room = 0;
    void *p = mmap(NULL, s->count, PROT_READ, MAP_SHARED, s->fd, 0);
    if (p == MAP_FAILED)
        return spill_failed(s, "map");
    s->map = (struct file_map){p, s->count};
    close(s->fd);
    s->fd = -1;
    *data = p;
    return ERR_OK;
}

void spill_close(struct spill *s)
{
    file_unmap(&s->map);
    if (s->is_file && s->fd >= 0)
        close(s->fd);
    free(s->piece);
    *s = (struct spill){0};
}
