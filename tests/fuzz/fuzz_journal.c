/* SPDX-License-Identifier: Apache-2.0 */
/* The aggregator's journal as bytes of a file. First byte, bit 0: sequence, chain and CRC of
 * each record are made right first, as far as lengths allow, so that kinds and bodies are reached;
 * bit 1: the CRC alone, so that the chain is. Compared with a
 * reader of its own below, which is written from journal.h alone; what is accepted is written again
 * and must be the same bytes, and a record appended after it must be read. */
#include "outer/store/journal.h"
#include "tests/fuzz/env_memory.h"
#include "tests/fuzz/fuzz.h"

enum {
    HEAD = 49,
    BODY_MAX = 128,
    RECORDS_MAX = 256,
    SHORT_BODY = 44,
    SITE_BODY = 48,
    OPERATOR_BODY = 57,
    ACCEPT_BODY = 77
};
static const char PATH[] = "journal";

/* ---- the slow reader ---- */

static uint64_t number(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static uint32_t crc_slow(uint32_t crc, const uint8_t *data, size_t n)
{
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

/* Of the whole record at `at`; 0: there is none. */
static size_t whole(const uint8_t *at, size_t left)
{
    if (left < HEAD || number(at, 4) > BODY_MAX || left < HEAD + number(at, 4))
        return 0;
    size_t n = HEAD + (size_t)number(at, 4);
    return number(at + 4, 4) == crc_slow(crc_slow(0, at, 4), at + 8, n - 8) ? n : 0;
}

/* A name's length and its bytes lie after the rest; wrong: longer than any body. */
static size_t named_bytes(const uint8_t *body, size_t n, size_t at)
{
    size_t name = n > at ? body[at] : JOURNAL_NAME_MAX;
    bool good = name < JOURNAL_NAME_MAX && n == at + 1 + name && !memchr(body + at + 1, 0, name);
    return good ? n : BODY_MAX + 1;
}

static size_t body_bytes(uint8_t kind, const uint8_t *body, size_t n)
{
    switch (kind) {
    case JOURNAL_ROSTER:
        return named_bytes(body, n, OPERATOR_BODY);
    case JOURNAL_AMENDMENT:
        return named_bytes(body, n, OPERATOR_BODY - 4); /* no site */
    case JOURNAL_ACCEPT:
        return ACCEPT_BODY;
    case JOURNAL_QUARANTINE:
        return SITE_BODY;
    case JOURNAL_OPERATOR:
        return OPERATOR_BODY;
    default:
        return SHORT_BODY;
    }
}

struct slow {
    enum err e;
    size_t records, bytes; /* accepted, the head not counted */
};

static struct slow slow_read(const uint8_t *data, size_t size)
{
    struct slow s = {.e = ERR_OK};
    struct digest last = {{0}};
    uint64_t sequence = 0, at_once = 0;
    size_t at = 0, n;
    for (bool first = true; at < size && (n = whole(data + at, size - at)); first = false) {
        const uint8_t *r = data + at;
        size_t body = n - HEAD;
        uint8_t kind = r[48];
        if (first) {
            sequence = number(r + 8, 8);
            memcpy(last.bytes, r + 16, 32);
            if (kind != JOURNAL_HEAD)
                s.e = ERR_MISMATCH;
        } else if (number(r + 8, 8) != sequence || memcmp(r + 16, last.bytes, 32) != 0 ||
                   (kind != JOURNAL_ACCEPT && kind != JOURNAL_COMMIT && kind != JOURNAL_TERM &&
                    kind != JOURNAL_QUARANTINE && kind != JOURNAL_OPERATOR &&
                    kind != JOURNAL_ROSTER && kind != JOURNAL_AMENDMENT)) {
            s.e = ERR_CORRUPT;
        }
        if (s.e == ERR_OK && body != body_bytes(kind, r + HEAD, body))
            s.e = ERR_CORRUPT;
        if (s.e == ERR_OK && first && number(r + HEAD, 4) != JOURNAL_VERSION)
            s.e = ERR_MISMATCH;
        if (s.e != ERR_OK)
            return s;
        if (first)
            at_once = number(r + HEAD + 4, 8);
        s.records += !first;
        sequence++;
        last = digest_of(r, n);
        at += n;
    }
    s.bytes = at;
    if (at < size || at < at_once || at == 0) {
        bool torn = at > 0 && at >= at_once && size - at < HEAD + BODY_MAX;
        for (size_t k = at + 1; torn && k + HEAD <= size; k++) {
            uint64_t its = number(data + k + 8, 8);
            torn = !(its > sequence && its - sequence <= (size - at) / HEAD + 1 &&
                     whole(data + k, size - k));
        }
        s.e = torn ? ERR_OK : ERR_CORRUPT;
    }
    return s;
}

/* ---- making records right ---- */

static void records_right(uint8_t *data, size_t size, bool chain)
{
    struct digest last = {{0}};
    uint64_t sequence = 1;
    for (size_t at = 0; at + HEAD <= size;) {
        size_t n = HEAD + (size_t)number(data + at, 4);
        if (n > HEAD + BODY_MAX || n > size - at)
            return;
        for (int i = 0; chain && i < 8; i++)
            data[at + 8 + (size_t)i] = (uint8_t)(sequence >> 8 * i);
        if (chain)
            memcpy(data + at + 16, last.bytes, 32);
        uint32_t crc = crc_slow(crc_slow(0, data + at, 4), data + at + 8, n - 8);
        for (int i = 0; i < 4; i++)
            data[at + 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
        last = digest_of(data + at, n);
        sequence++;
        at += n;
    }
}

struct seen {
    struct journal_record records[RECORDS_MAX];
    size_t count;
};

static enum err see(void *self, const struct journal_record *r)
{
    struct seen *s = self;
    if (s->count < RECORDS_MAX)
        s->records[s->count] = *r;
    s->count++;
    return ERR_OK;
}

/* The records, appended one by one to a new journal whose head is the input's, are its bytes. */
static void write_again(const struct seen *s, const uint8_t *data, size_t bytes)
{
    struct env_memory m;
    struct journal j;
    struct seen none = {.count = 0};
    size_t head = HEAD + SHORT_BODY;
    memory_open(&m);
    memory_put(&m.env, PATH, data, head);
    if (number(data + HEAD + 4, 8) == head) { /* else it was rewritten with records */
        ASSERT(journal_open(&j, &m.env, PATH, see, &none) == ERR_OK);
        for (size_t i = 0; i < s->count; i++)
            ASSERT(journal_append(&j, &s->records[i]) == ERR_OK);
        const struct memory_file *f = memory_find(&m.env, PATH);
        ASSERT(f->size_bytes == bytes && memcmp(f->data, data, bytes) == 0);
    }
    memory_close(&m);
}

static void append_and_read(struct env_memory *m, struct journal *j, size_t count)
{
    struct journal again;
    struct seen s = {.count = 0};
    struct journal_record r = {.kind = JOURNAL_TERM, .round = 7};
    ASSERT(journal_append(j, &r) == ERR_OK);
    ASSERT(journal_open(&again, &m->env, PATH, see, &s) == ERR_OK);
    ASSERT(s.count == count + 1 && !again.cut_bytes && again.sequence == j->sequence);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static struct seen s;
    struct env_memory m;
    struct journal j;
    if (size_bytes < 1)
        return 0;
    size_t size = size_bytes - 1;
    uint8_t *copy = malloc(size + 1);
    ASSERT(copy);
    memcpy(copy, data + 1, size);
    if (data[0] & 3)
        records_right(copy, size, data[0] & 1);
    s.count = 0;
    memory_open(&m);
    memory_put(&m.env, PATH, copy, size);
    enum err e = journal_open(&j, &m.env, PATH, see, &s);
    struct slow slow = slow_read(copy, size);
    ASSERT(e == slow.e);
    if (e == ERR_OK) {
        ASSERT(s.count == slow.records && j.size_bytes == slow.bytes);
        if (s.count <= RECORDS_MAX)
            write_again(&s, copy, slow.bytes);
        append_and_read(&m, &j, s.count);
    }
    memory_close(&m);
    free(copy);
    return 0;
}
