/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILE_H
#define FILE_H
/* Files of this machine: what durable.h does, on its disk, with mappings, streams and locks. Errors
 * are as there.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/durable.h"

struct file_map { /* a read-only mapping; closed with file_unmap */
    const uint8_t *data;
    size_t size_bytes;
};

enum err file_map(struct file_map *m, const char *path) MUST; /* an empty file maps to {NULL, 0} */
/* The same for a file that is verified as a whole: every byte is read once before it is mapped, so
 * that a part which the disk cannot give back is ERR_CORRUPT with the path and the byte, and not a
 * SIGBUS at the first touch. */
enum err file_map_checked(struct file_map *m, const char *path) MUST;
void file_unmap(struct file_map *m);
/* A zero byte follows the data, so text is a C string. ERR_INPUT: longer than max_bytes. */
enum err file_read(const char *path, size_t max_bytes, struct arena *a, uint8_t **data,
                   size_t *size_bytes) MUST;
/* The same of a file that a person names: "-" is standard input. ERR_INPUT: it is empty. */
enum err file_read_input(const char *path, size_t max_bytes, struct arena *a, uint8_t **data,
                         size_t *size_bytes) MUST;
/* May this file hold a secret of this user? It belongs to the user or to root, and its mode
 * excludes others. ERR_DENIED says what to do. what: "the key". */
struct stat;
enum err file_secret(const char *path, const struct stat *st, const char *what) MUST;
/* Durable, atomic, gathered. mode e.g. 0644, keys 0600. The temporary file is path.tmp: one writer
 * per path. ERR_INPUT: `path` exists and is no regular file (a device, a link); it is left
 * unchanged. */
enum err file_write(const char *path, const struct file_part *parts, size_t part_count,
                    unsigned mode) MUST;
/* A file larger than memory, appended piece by piece to path.tmp. The commit is as durable as
 * file_write; before it `path` does not exist. */
struct file_stream {
    int fd; /* 0: not open */
    char *path, *temporary;
    uint8_t *buffer;
    size_t used;
    uint64_t at; /* of what is after the buffer */
};
enum err file_stream_open(struct file_stream *f, const char *path, struct arena *a) MUST;
enum err file_stream_append(struct file_stream *f, const void *data, size_t size_bytes) MUST;
/* Over bytes that were appended earlier. */
enum err file_stream_replace(struct file_stream *f, const void *data, size_t size_bytes,
                             uint64_t at) MUST;
enum err file_stream_commit(struct file_stream *f) MUST; /* closes; on an error nothing is left */
void file_stream_abandon(struct file_stream *f);         /* a zeroed or closed stream is fine */
enum err file_mkdirs(const char *path) MUST;             /* like mkdir -p, directories fsynced */
bool file_exists(const char *path);
enum err file_remove(const char *path) MUST;      /* a missing file is no error */
enum err file_remove_tree(const char *path) MUST; /* a missing tree is no error */
enum err file_free_bytes(const char *path, uint64_t *free_bytes) MUST;
/* A directory that one process alone uses: the directory's inode is locked, and the file LOCK in
 * it. The file alone would be no lock once it is removed; a directory cannot be locked on
 * every file system (NFS). */
struct file_lock {
    int directory, file; /* -1: not locked */
    bool by_file;        /* the file system does not lock directories */
};
enum err file_lock(struct file_lock *l, const char *directory) MUST; /* ERR_BUSY names it */
/* Of a directory that another process of the same job has locked: it is opened, for
 * file_lock_check. */
enum err file_lock_join(struct file_lock *l, const char *directory) MUST;
/* Is the directory of this name still the one that is locked? ERR_BUSY: it was moved away and
 * another one put in its place, or the file that is the lock was removed. */
enum err file_lock_check(const struct file_lock *l, const char *directory) MUST;
/* Does a process hold the directory? Takes nothing, so it disturbs no start. */
enum file_held { FILE_HELD_UNKNOWN, FILE_HELD_NO, FILE_HELD_YES };
enum file_held file_held(const char *directory);
void file_unlock(struct file_lock *l); /* one that is not locked is fine */
/* Names in a directory, sorted, without . and .. and without temporaries. */
enum err file_list(const char *path, struct arena *a, char ***names, size_t *count) MUST;

#endif
