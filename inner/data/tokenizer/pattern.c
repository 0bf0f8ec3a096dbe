/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include "inner/data/tokenizer/pattern.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "inner/data/tokenizer/buffer.h"

/* PCRE2's \s has U+180E, which left White_Space with Unicode 6.3. */
#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"

struct pattern {
    pcre2_code *code;
    bool machine_code;
};
struct pattern_match {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* The pattern with \s and \S spelt out. \S inside of brackets stays PCRE2's. */
static enum err spaces_write(const char *text, size_t n, struct buffer *out)
{
    bool inside = false;
    for (size_t i = 0; i < n; i++) {
        const char *put = text + i;
        size_t bytes = 1;
        if (text[i] == '\\' && i + 1 < n) {
            bytes = 2;
            if (text[i + 1] == 's')
                put = inside ? SPACES : "[" SPACES "]";
            else if (text[i + 1] == 'S' && !inside)
                put = "[^" SPACES "]";
            if (put != text + i)
                bytes = strlen(put);
            i++;
        } else if (text[i] == '[') {
            inside = true;
        } else if (text[i] == ']') {
            inside = false;
        }
        TRY(buffer_add(out, put, bytes));
    }
    return ERR_OK;
}

enum err pattern_open(struct pattern **p, const char *text, size_t text_bytes)
{
    struct buffer spelt = {0};
    int error = 0;
    PCRE2_SIZE where = 0;
    unsigned char why[120] = "";
    TRY_ALLOC(*p = calloc(1, sizeof **p));
    TRY(spaces_write(text, text_bytes, &spelt));
    (*p)->code =
        pcre2_compile(spelt.data, spelt.count, PCRE2_UTF | PCRE2_UCP, &error, &where, NULL);
    buffer_free(&spelt);
    if (!(*p)->code) {
        pcre2_get_error_message(error, why, sizeof why);
        return err_set(ERR_INPUT, "no regular expression: %.100s: %s", text, (char *)why);
    }
    (*p)->machine_code = !pcre2_jit_compile((*p)->code, PCRE2_JIT_COMPLETE);
    return ERR_OK;
}

void pattern_close(struct pattern *p)
{
    if (p)
        pcre2_code_free(p->code);
    free(p);
}

enum err pattern_match_open(struct pattern_match **m)
{
    *m = calloc(1, sizeof **m);
    if (*m) {
        (*m)->data = pcre2_match_data_create(8, NULL);
        (*m)->context = pcre2_match_context_create(NULL);
        (*m)->stack = pcre2_jit_stack_create(32 << 10, 8 << 20, NULL);
    }
    if (!*m || !(*m)->data || !(*m)->context || !(*m)->stack)
        return err_set(ERR_MEMORY, "no memory for matching patterns");
    pcre2_jit_stack_assign((*m)->context, NULL, (*m)->stack);
    return ERR_OK;
}

void pattern_match_close(struct pattern_match *m)
{
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

enum err pattern_next(const struct pattern *p, struct pattern_match *m, const uint8_t *text,
                      size_t n, size_t at, struct pattern_span *span)
{
    int result =
        p->machine_code
            ? pcre2_jit_match(p->code, text, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context)
            : pcre2_match(p->code, text, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(m->data);
    *span = (struct pattern_span){false, n, n};
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
        return err_set(ERR_INPUT, "the split pattern needs more steps than PCRE2 allows (error %d)",
                       result);
    if (result >= 0)
        *span = (struct pattern_span){true, ends[0], ends[1]};
    return ERR_OK;
}
