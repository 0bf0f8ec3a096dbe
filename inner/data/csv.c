/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/csv.h"
#include "inner/data/tokenizer/unicode.h"

/* Of the letter at c->at; 0: the end of the text. */
static char csv_letter(const struct csv *c)
{
    return c->at < c->size_bytes ? c->text[c->at] : 0;
}

static bool csv_line_ends(const struct csv *c)
{
    return c->at == c->size_bytes || csv_letter(c) == '\n' || csv_letter(c) == '\r';
}

/* \r\n is one line break. */
static void csv_step(struct csv *c)
{
    char x = c->text[c->at++];
    c->line += x == '\n' || (x == '\r' && csv_letter(c) != '\n');
}

static enum err csv_take(struct csv *c, size_t begun)
{
    if (c->at - begun >= CSV_RECORD_BYTES_MAX)
        return err_set(ERR_INPUT, "longer than %d bytes; is a quote not closed?",
                       CSV_RECORD_BYTES_MAX);
    TRY(buffer_add(&c->scratch, c->text + c->at, 1));
    csv_step(c);
    return ERR_OK;
}

/* From its first quote on. */
static enum err csv_quoted(struct csv *c, size_t begun, size_t number)
{
    csv_step(c);
    for (;;) {
        if (c->at == c->size_bytes)
            return err_set(ERR_INPUT, "the quote that begins field %zu is not closed", number);
        if (csv_letter(c) == '"') {
            csv_step(c);
            if (csv_letter(c) != '"')
                break;
        }
        TRY(csv_take(c, begun));
    }
    if (csv_letter(c) != ',' && !csv_line_ends(c))
        return err_set(ERR_INPUT,
                       "field %zu has text after the quote that closes it; a quote within a field "
                       "is written twice",
                       number);
    return ERR_OK;
}

static enum err csv_field(struct csv *c, size_t begun, size_t number)
{
    c->scratch.count = 0;
    TRY(buffer_reserve(&c->scratch, 1)); /* arena_string wants memory */
    if (csv_letter(c) == '"')
        TRY(csv_quoted(c, begun, number));
    else
        while (csv_letter(c) != ',' && !csv_line_ends(c))
            TRY(csv_take(c, begun));
    for (size_t at = 0, bytes; at < c->scratch.count; at += bytes) {
        uint32_t point;
        bytes = unicode_read(c->scratch.data + at, c->scratch.count - at, &point);
        if (!bytes || !point)
            return err_set(ERR_INPUT, "field %zu is no UTF-8, or has a zero byte", number);
    }
    return ERR_OK;
}

enum err csv_read(struct csv *c, struct arena *a, const char **fields, size_t most, size_t *count)
{
    size_t begun = c->at;
    bool blank = true, more = true;
    for (*count = 0; more; *count += 1) {
        blank = blank && csv_letter(c) != '"';
        TRY(csv_field(c, begun, *count + 1));
        for (size_t i = 0; i < c->scratch.count; i++)
            blank = blank && (c->scratch.data[i] == ' ' || c->scratch.data[i] == '\t');
        if (*count < most)
            TRY_ALLOC(fields[*count] = arena_string(a, (char *)c->scratch.data, c->scratch.count));
        more = csv_letter(c) == ',' && c->at < c->size_bytes;
        if (more)
            c->at++;
    }
    if (c->at < c->size_bytes && csv_letter(c) == '\r')
        csv_step(c);
    if (c->at < c->size_bytes && csv_letter(c) == '\n')
        csv_step(c);
    if (blank && *count == 1)
        *count = 0;
    return ERR_OK;
}
