/* SPDX-License-Identifier: Apache-2.0 */
/* With libFuzzer a failed assertion aborts, so that the input is kept in found/TARGET: err_bug()
 * ends the program in a way that libFuzzer does not see. */
#include <stdio.h>
#include <stdlib.h>
#include "kernels/base/err.h"

noreturn void __wrap_err_bug(const char *file, int line, const char *expression);

noreturn void __wrap_err_bug(const char *file, int line, const char *expression)
{
    fprintf(stderr, "%s:%d: this must hold: %s\n", file, line, expression);
    abort();
}
