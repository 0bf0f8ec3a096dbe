/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELEASED_PRINT_H
#define RELEASED_PRINT_H
/* What `atoll privacy verify` says of one site on standard output, as text or as one JSON object:
 * what left it, whether that was charged, what is not proved.
 */
#include "outer/record/json_write.h"
#include "outer/view/released.h"

/* w NULL: text. Adds the number of statements that are not proved. */
enum err released_print(const struct released *r, struct json_write *w, struct arena *a,
                        size_t *failed) MUST;

#endif
