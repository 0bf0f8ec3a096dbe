/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/choice.h"
#include <stdio.h>
#include <string.h>

static const char letters[] = "?oc"; /* by enum choice */

/* "64x12/12x1024c:", whose two letters follow. */
static int key_of(char *out, size_t size, const struct choice_shape *s)
{
    return snprintf(out, size, "%zux%zu/%zux%zu%s%s:", s->HD, s->NH, s->KVH, s->S,
                    s->causal ? "c" : "", s->ragged ? "r" : "");
}

/* The entry's two letters; NULL: there is none. Entries begin the record or follow a semicolon. */
static const char *entry(const char *record, const struct choice_shape *s)
{
    char key[96];
    size_t length = (size_t)key_of(key, sizeof key, s);
    for (const char *at = record; at && *at; at = strchr(at, ';'), at = at ? at + 1 : NULL)
        if (!strncmp(at, key, length) && at[length] && at[length + 1])
            return at + length;
    return NULL;
}

enum choice choice_find(const char *record, const struct choice_shape *s, bool backward)
{
    const char *two = entry(record, s);
    const char *letter = two ? strchr(letters, two[backward]) : NULL;
    return letter ? (enum choice)(letter - letters) : CHOICE_NONE;
}

bool choice_keep(char *record, size_t size, const struct choice_shape *s, bool backward,
                 enum choice what)
{
    char key[96];
    size_t used = strlen(record);
    const char *two = entry(record, s);
    if (!two) {
        size_t length = (size_t)key_of(key, sizeof key, s);
        if (used + length + sizeof "??;" > size)
            return false;
        snprintf(record + used, size - used, "%s??;", key);
        two = record + used + length;
    }
    record[two - record + backward] = letters[what];
    return true;
}

static const double gain = 0.97; /* clocks of a GPU move by 2 or 3 % from one minute to the next */

enum choice choice_of(const struct choice_trial *t)
{
    bool right = t->difference <= t->bound && t->repeats; /* false for NaN, too */
    return right && t->cudnn_ms < gain * t->own_ms ? CHOICE_CUDNN : CHOICE_OWN;
}

uint32_t choice_hash(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 16777619u;
    return hash;
}

enum { DIGITS = 13 }; /* letter, eight, four; then a semicolon */

static void product_entry(char out[DIGITS + 2], struct choice_product p, unsigned decided)
{
    snprintf(out, DIGITS + 2, "%c%08x%04x;", (int)p.what, p.shape, decided & 0xffffu);
}

int choice_product_find(const char *record, struct choice_product p)
{
    char key[DIGITS + 2];
    unsigned decided;
    product_entry(key, p, 0);
    for (const char *at = record; at && *at; at = strchr(at, ';'), at = at ? at + 1 : NULL)
        if (!strncmp(at, key, DIGITS - 4) && strcspn(at, ";") == DIGITS &&
            sscanf(at + DIGITS - 4, "%4x;", &decided) == 1)
            return (int)decided;
    return -1;
}

bool choice_product_keep(char *record, size_t size, struct choice_product p, uint16_t decided)
{
    size_t used = strlen(record);
    if (used + DIGITS + 2 > size)
        return false;
    product_entry(record + used, p, decided);
    return true;
}

size_t choice_fastest(const double *ms, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (ms[i] < ms[best] && ms[i] < gain * ms[0])
            best = i;
    return best;
}
