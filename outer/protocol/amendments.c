/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/protocol/amendments.h"
#include <string.h>
#include "kernels/base/err.h"

/* A key is letters, digits, . and _, with one point at least. */
bool amendments_text(const char *text)
{
    size_t key = strcspn(text, "="), n = strnlen(text, AMENDMENT_TEXT_MAX);
    const char *point = memchr(text, '.', key < n ? key : n);
    if (n == AMENDMENT_TEXT_MAX || key + 1 >= n || !point || point == text ||
        point + 1 == text + key)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
        if (i < key ? !word : c < 32 || c > 126)
            return false;
    }
    return true;
}

bool amendments_good(const struct amendments *a)
{
    if (a->count > AMENDMENTS_MAX)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!amendments_text(a->list[i].text) || digest_zero(&a->list[i].by) ||
            (i && a->list[i].round < a->list[i - 1].round))
            return false;
    return true;
}

void amendments_add(struct amendments *a, const struct amendment *one)
{
    ASSERT(a->count < AMENDMENTS_MAX);
    a->list[a->count++] = *one;
    ASSERT(amendments_good(a));
}

bool amendments_agree(const struct amendments *a, const struct amendments *b)
{
    uint32_t n = a->count < b->count ? a->count : b->count;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(a->list[i].text, b->list[i].text) != 0 || a->list[i].round != b->list[i].round ||
            !digest_equal(&a->list[i].by, &b->list[i].by))
            return false;
    return true;
}

uint32_t amendments_in_force(const struct amendments *a, uint64_t round)
{
    uint32_t n = 0;
    while (n < a->count && a->list[n].round <= round)
        n++;
    return n;
}

void amendments_put(struct bytes_writer *w, const struct amendments *a)
{
    ASSERT(a->count <= AMENDMENTS_MAX);
    bytes_put_u32(w, a->count);
    for (uint32_t i = 0; i < a->count; i++) {
        const struct amendment *one = &a->list[i];
        size_t n = strlen(one->text);
        bytes_put_u16(w, (uint16_t)n);
        bytes_put(w, one->text, n);
        bytes_put_u64(w, one->round);
        bytes_put(w, one->by.bytes, sizeof one->by.bytes);
    }
}

void amendments_get(struct bytes_reader *r, struct amendments *a)
{
    uint32_t count = bytes_get_u32(r);
    r->bad |= count > AMENDMENTS_MAX;
    a->count = 0;
    for (uint32_t i = 0; i < count && !r->bad; i++) {
        struct amendment *one = &a->list[i];
        size_t n = bytes_get_u16(r);
        const uint8_t *from = n < AMENDMENT_TEXT_MAX ? bytes_view(r, n) : NULL;
        memset(one->text, 0, sizeof one->text);
        r->bad |= !from;
        if (from)
            memcpy(one->text, from, n);
        r->bad |= strlen(one->text) != n;
        one->round = bytes_get_u64(r);
        bytes_get(r, one->by.bytes, sizeof one->by.bytes);
        a->count = i + 1;
    }
    r->bad |= !r->bad && !amendments_good(a);
}
