/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHARD_H
#define SHARD_H
/* Token shards (*.bin), read as they are through a memory mapping, of two kinds. llm.c's: magic
 * 20240520 version 1 (uint16 ids) and magic 20240801 version 7 (uint32 ids); header: 256
 * little-endian int32: magic, version, token count, 0... Megatron's: ids alone, next to a file .idx
 * (indexed.h) that cuts them into sentences and documents, and perhaps a file .labels (labels.h)
 * with a class for each document, and a file .owners (owners.h) that says whose it is. What is
 * wrong with a file (kind, version, cut short, ids beyond the vocabulary) is found here, at open,
 * and named with file, position and value; afterwards every id is known to be valid. Opening reads
 * the whole file once.
 */
#include "inner/config/config.h"
#include "inner/data/indexed.h"

enum {
    SHARD_HEADER_BYTES = 1024,
    SHARD_MAGIC_U16 = 20240520,
    SHARD_MAGIC_U32 = 20240801,
    SHARD_VERSION_U16 = 1,
    SHARD_VERSION_U32 = 7
};
#define SHARD_TOKENS_MAX 2147483647u /* the count is an int32 */
#define SHARD_FILES_MAX  100000u     /* of one set: a pattern that matches more is a mistake */

struct shard {
    const char *path; /* borrowed from the arena of the set */
    const char *set;  /* its name in the list; "": none */
    struct file_map map;
    const uint8_t *ids; /* first token in the mapping */
    unsigned id_bytes;  /* 2 or 4 */
    uint64_t count;     /* tokens, > 0 */
    bool indexed;       /* Megatron's: it has sentences and documents */
    struct file_map index_map, labels_map, owners_map;
    struct indexed index;
    const uint8_t *labels; /* (documents) little-endian int32, at any byte; NULL: none */
    const uint8_t *owners; /* (documents) owners.h; NULL: none */
};
struct shard_set { /* in the order of the list; what one `*` matches is sorted by name */
    struct shard *shards;
    size_t count;
    uint64_t tokens; /* of all shards */
};

/* Checks header and size of one shard in memory; the mapping stays the caller's. Also the fuzz
 * target. */
enum err shard_parse(struct shard *s, const char *path, const uint8_t *data,
                     size_t size_bytes) MUST;
/* The same for a .bin and its .idx. */
enum err shard_parse_indexed(struct shard *s, const char *path, const struct file_map *bin,
                             const struct file_map *index) MUST;
enum err shard_check_ids(const struct shard *s, int64_t vocab) MUST;
/* Copies ids [first, first + count) as int32. */
void shard_read(const struct shard *s, uint64_t first, size_t count, int32_t *ids);

/* An item of a list is a path, or NAME=PATH (letters, digits, - and _) of a set with a name; where
 * a file has the whole item as its path, or matches it, it is a path (year=2020/a.bin). Items by
 * their names, in the order in which these come first; items without one are one group, "". */
struct shard_group {
    const char *name;
    struct config_list paths;
};
const char *shard_item_path(const char *item); /* without the name */
size_t shard_name_length(const char *item);    /* of what may be a name; 0: none */
/* For a list whose items have no names: what looks like one is made part of the path, "./year=..".
 */
enum err shard_items_plain(struct config_list *list, struct arena *a) MUST;
enum err shard_groups(const struct config_list *list, struct arena *a, struct shard_group **groups,
                      size_t *count) MUST;

/* The items one by one, with their names, with the files that a pattern matches in its place.
 * Opens none of them. */
enum err shard_files(const struct config_list *list, struct arena *a,
                     struct config_list *files) MUST;
/* Leaves out the files of shard_files that a set has already, under any path. twice: the first
 * one; NULL: none. */
enum err shard_files_once(struct config_list *files, struct arena *a, const char **twice,
                          size_t *left_out) MUST;
/* How many files of list `a` are in `b` too, and the first one of them. */
enum err shard_files_common(const struct config_list *a, const struct config_list *b,
                            struct arena *scratch, const char **common, size_t *count) MUST;
/* Of R ranks, rank r has files r, r + R, r + 2 R .. of a list of files. */
struct config_list shard_dealt(const struct config_list *files, uint32_t rank, uint32_t ranks,
                               const char **items);

/* `paths` are file names; `*`, `?` and `[..]` make one a glob pattern. ERR_INPUT names the file and
 * what is wrong. */
enum err shard_set_open(struct shard_set *set, struct arena *perm, const struct config_list *paths,
                        int64_t vocab) MUST;
void shard_set_close(struct shard_set *set); /* accepts a zeroed or partly opened set */

#endif
