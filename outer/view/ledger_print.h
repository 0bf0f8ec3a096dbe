/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_PRINT_H
#define LEDGER_PRINT_H
/* What `atoll ledger` says on standard output: the lines of outer/record/ledger_table.h, and what
 * the ranks of a site sent each other (outer/record/inner_bytes.h), as text, CSV or JSON. A call
 * for the beginning, one for each directory, one for the end.
 */
#include "outer/record/inner_bytes.h"
#include "outer/record/json_write.h"
#include "outer/record/ledger_table.h"

struct ledger_print {
    bool csv;
    struct json_write *w; /* NULL: text or CSV */
};
void ledger_print_begin(const struct ledger_print *p, const char *by, bool inside);
enum err ledger_print_member(const struct ledger_print *p, const struct ledger_member *m,
                             enum ledger_by by, struct arena *a) MUST;
void ledger_print_inside(const struct ledger_print *p, const char *directory,
                         const struct inner_bytes *in);
void ledger_print_end(const struct ledger_print *p);

#endif
