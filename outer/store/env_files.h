/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENV_FILES_H
#define ENV_FILES_H
/* The file operations of an environment (env.h) on its disk: the same for the machine's files and
 * for the simulated ones, so that what the simulator crashes is what runs.
 */
#include "outer/store/env.h"

/* First of all in a process: makes the directories durable that are found, since the process before
 * may have been killed between making one and syncing it. */
enum err env_files_found(struct env *w) MUST;
enum err env_files_write(struct env *w, const char *path, const struct file_part *parts,
                         size_t n) MUST;
enum err env_files_read(struct env *w, const char *path, size_t max_bytes, struct arena *a,
                        uint8_t **data, size_t *size) MUST;
bool env_files_exists(struct env *w, const char *path);
enum err env_files_remove(struct env *w, const char *path) MUST;
enum err env_files_forget(struct env *w, const char *path) MUST;
enum err env_files_list(struct env *w, const char *path, struct arena *a, char ***names,
                        size_t *count) MUST;
enum err env_files_append(struct env *w, const char *path, const void *data, size_t n) MUST;
enum err env_files_part_open(struct env *w, const char *path, uint64_t total, int *handle,
                             uint64_t *have) MUST;
enum err env_files_part_write(struct env *w, int handle, uint64_t offset, const void *data,
                              size_t n) MUST;
enum err env_files_part_close(struct env *w, int handle, const char *path, const char *final) MUST;
/* root/path; out has PATH_MAX bytes. */
enum err env_files_path(const struct env *w, char *out, const char *path) MUST;

#endif
