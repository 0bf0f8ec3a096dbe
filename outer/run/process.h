/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROCESS_H
#define PROCESS_H
/* What other users of this machine may see of this process and of its files. */

/* From now on new files and directories are readable by this user alone: state, payloads, shards.
 */
void process_files_private(void);
/* ev=directory_open when other users can read the directory: it was made by an older version. */
void process_directory_look(const char *dir);
/* No other process of this user may attach to this one, and it writes no core dump: it holds a key.
 */
void process_memory_private(void);

#endif
