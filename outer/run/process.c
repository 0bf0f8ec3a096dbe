/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/process.h"
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include "kernels/base/log.h"

void process_files_private(void)
{
    umask(0077);
}

void process_directory_look(const char *dir)
{
    char quoted[1024];
    struct stat st;
    if (stat(dir, &st) == 0 && (st.st_mode & 0077))
        log_event(LOG_WARN, "directory_open",
                  "dir=%s mode=%03o why=\"other users can read it\" do=\"chmod 700\"",
                  log_quote(quoted, sizeof quoted, dir), (unsigned)st.st_mode & 0777);
}

void process_memory_private(void)
{
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        log_event(LOG_WARN, "memory_private", "ok=0 why=\"%s\"", strerror(errno));
}
