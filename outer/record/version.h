/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VERSION_H
#define VERSION_H
/* Version, commit and compiler of this program, for --version, the first log line and each run's
 * record. */

const char *version_number(void);   /* "0.2.0" */
const char *version_commit(void);   /* "8f894fd" or "unknown" */
const char *version_compiler(void); /* "gcc 12.2.0" */
const char *version_line(void);     /* all of them, and the parts left out of this build */

#endif
