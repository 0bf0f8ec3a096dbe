/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of answers. */
#include <stdarg.h>
#include <stdio.h>
#include "outer/aggregator/aggregator_state.h"

enum { NO_MEMORY_RETRY_MS = 1000 };

void aggregator_say(struct wire_answer *answer, enum round_outcome outcome, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(answer->text, sizeof answer->text, format, list);
    va_end(list);
    answer->outcome = outcome;
}

void aggregator_text_add(struct aggregator_text *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = t->used < t->size ? vsnprintf(t->out + t->used, t->size - t->used, format, list) : 0;
    va_end(list);
    t->used += n > 0 ? (size_t)n : 0;
}

void aggregator_put_text(char out[WIRE_TEXT_MAX], const char *text)
{
    snprintf(out, WIRE_TEXT_MAX, "%s", text ? text : "");
}

void aggregator_say_no_memory(struct wire_answer *answer)
{
    answer->outcome = ROUND_FULL;
    answer->retry_ms = NO_MEMORY_RETRY_MS;
    aggregator_put_text(answer->text, AGGREGATOR_NO_MEMORY);
}
