/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/version.h"

#ifdef __clang__
#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)
#define COMPILER                                                                                   \
    "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "." TEXT(__clang_patchlevel__)
#else
#define COMPILER "gcc " __VERSION__
#endif

#ifdef ATOLL_NET
#define NETWORK ""
#else
#define NETWORK ", no network"
#endif
#ifdef HAVE_MPI
#define RANKS ""
#else
#define RANKS ", no MPI"
#endif

const char *version_number(void)
{
    return ATOLL_VERSION;
}

const char *version_commit(void)
{
    return ATOLL_COMMIT;
}

const char *version_compiler(void)
{
    return COMPILER;
}

const char *version_line(void)
{
    return "atoll " ATOLL_VERSION " (" ATOLL_COMMIT ", " COMPILER NETWORK RANKS ")";
}
