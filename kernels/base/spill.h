/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SPILL_H
#define SPILL_H
/* Bytes of unknown length that are appended and then read as a whole: what a small file may grow to
 * when it is expanded. They lie in a file without a name in a directory, so that the disk bounds
 * them and not memory; up to SPILL_MEMORY_BYTES in memory. The file is gone when the process ends,
 * however that ends. One owner, one thread.
 */
#include "kernels/base/file.h"

enum { SPILL_MEMORY_BYTES = 65536 };

struct spill {
    const char *directory; /* borrowed; made when the first file is */
    int fd;                /* only if `is_file` */
    bool is_file;
    uint8_t *piece; /* not written yet: all of it, or what is after the file's end */
    size_t used, room;
    uint64_t count; /* bytes appended */
    struct file_map map;
};

struct spill spill_make(const char *directory);
/* ERR_FULL: the disk is; the message names the directory and how much there is. */
enum err spill_add(struct spill *s, const void *data, size_t size_bytes) MUST;
/* Nothing is appended any more. The bytes stay valid until spill_close. */
enum err spill_end(struct spill *s, const uint8_t **data) MUST;
void spill_close(struct spill *s); /* a zeroed one is fine */

#endif
