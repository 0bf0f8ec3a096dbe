/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/tfevents.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/digest.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "outer/record/jsonl.h"

enum { TAG_MAX = 80, EVENT_MAX = 192, LINE_MAX_BYTES = 65536, FLUSH_MS = 2000 };

struct message {
    uint8_t bytes[EVENT_MAX];
    size_t used;
};

static void put(struct message *m, const void *data, size_t n)
{
    ASSERT(m->used + n <= sizeof m->bytes);
    memcpy(m->bytes + m->used, data, n);
    m->used += n;
}

static void put_little(struct message *m, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        put(m, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void put_varint(struct message *m, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put(m, &(uint8_t){(uint8_t)(value | 128)}, 1);
    put(m, &(uint8_t){(uint8_t)value}, 1);
}

enum wire_type { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
static void put_field(struct message *m, unsigned number, enum wire_type type)
{
    put_varint(m, number << 3 | type);
}

static void put_bytes(struct message *m, unsigned number, const void *data, size_t n)
{
    put_field(m, number, BYTES);
    put_varint(m, n);
    put(m, data, n);
}

static uint32_t masked_crc(const void *data, size_t n)
{
    uint32_t crc = digest_crc32c(0, data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void event_begin(struct message *m)
{
    double now = (double)clock_wall_ms() / 1e3;
    uint64_t bits;
    memcpy(&bits, &now, sizeof bits);
    m->used = 0;
    put_field(m, 1, FIXED64); /* wall_time */
    put_little(m, bits, 8);
}

static void record_write(struct tfevents *t, const struct message *event)
{
    struct message head = {.used = 0}, tail = {.used = 0};
    put_little(&head, event->used, 8);
    put_little(&head, masked_crc(head.bytes, 8), 4);
    put_little(&tail, masked_crc(event->bytes, event->used), 4);
    bool good = fwrite(head.bytes, 1, head.used, t->file) == head.used &&
                fwrite(event->bytes, 1, event->used, t->file) == event->used &&
                fwrite(tail.bytes, 1, tail.used, t->file) == tail.used;
    if (good)
        return;
    log_event(LOG_WARN, "tensorboard", "ok=0 why=\"%s\"", strerror(errno));
    tfevents_close(t); /* TensorBoard reads what is whole */
}

enum err tfevents_open(struct tfevents *t, const char *directory)
{
    static const char version[] = "brain.Event:2";
    struct message m;
    char path[4096];
    *t = (struct tfevents){0};
    TRY(file_mkdirs(directory));
    snprintf(path, sizeof path, "%s/events.out.tfevents.%lld.atoll.%ld", directory,
             (long long)clock_wall_s(), (long)getpid());
    t->file = fopen(path, "ae");
    if (!t->file)
        return err_set(ERR_IO, "%s: cannot open it for TensorBoard: %s", path, strerror(errno));
    event_begin(&m);
    put_bytes(&m, 3, version, sizeof version - 1); /* file_version */
    record_write(t, &m);
    tfevents_flush(t);
    return ERR_OK;
}

void tfevents_scalar(struct tfevents *t, const char *tag, int64_t step, double value)
{
    struct message m, one = {.used = 0}, summary = {.used = 0};
    float number = (float)value;
    uint32_t bits;
    if (!t->file || !isfinite(number))
        return;
    memcpy(&bits, &number, sizeof bits);
    put_bytes(&one, 1, tag, strnlen(tag, TAG_MAX)); /* Summary.Value: tag, simple_value */
    put_field(&one, 2, FIXED32);
    put_little(&one, bits, 4);
    put_bytes(&summary, 1, one.bytes, one.used);
    event_begin(&m);
    put_field(&m, 2, VARINT); /* step */
    put_varint(&m, (uint64_t)step);
    put_bytes(&m, 5, summary.bytes, summary.used);
    record_write(t, &m);
}

/* "round/rho", of a later fragment "round/rho/fragment_1"; the loss of two models has two tags. */
static void tag_of(const struct jsonl_row *row, const char *key, char tag[TAG_MAX])
{
    double fragment = jsonl_number(row, "fragment");
    const char *of = jsonl_string(row, "of");
    int n = snprintf(tag, TAG_MAX, "%s%s%s/%s", jsonl_string(row, "kind"), *of ? "_" : "", of, key);
    if (fragment > 0 && n < TAG_MAX)
        snprintf(tag + n, TAG_MAX - (size_t)n, "/fragment_%.0f", fragment);
}

static bool is_scalar(const char *key)
{
    static const char *const none[] = {"v", "t", "step", "kind", "of", "fragment", "replayed"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strcmp(key, none[i]) == 0)
            return false;
    return true;
}

/* A replayed round is there already, unless its process ended between commit and record. */
static bool round_new(struct tfevents *t, const struct jsonl_row *row, int64_t step)
{
    double fragment = jsonl_number(row, "fragment");
    if (!(fragment >= 0 && fragment < ROUND_FRAGMENTS_MAX))
        return false;
    int64_t *last = &t->round_step[(unsigned)fragment];
    if (jsonl_number(row, "replayed") > 0 && step <= *last)
        return false;
    *last = step;
    return true;
}

static void row_scalars(struct tfevents *t, const struct jsonl_row *row)
{
    double step = jsonl_number(row, "step");
    bool shown = jsonl_is(row, "step") || jsonl_is(row, "round") || jsonl_is(row, "eval") ||
                 jsonl_is(row, "task");
    if (!shown || !(step >= 0) || (jsonl_is(row, "round") && !round_new(t, row, (int64_t)step)))
        return;
    for (size_t i = 0; i < row->count; i++) {
        char tag[TAG_MAX];
        if (!is_scalar(row->key[i]))
            continue;
        tag_of(row, row->key[i], tag);
        tfevents_scalar(t, tag, (int64_t)step, jsonl_number(row, row->key[i]));
    }
}

void tfevents_begin(struct tfevents *t, int64_t step)
{
    enum { STATUS = 1, START = 1 };
    struct message m, begun = {.used = 0};
    if (!t->file)
        return;
    for (unsigned f = 0; f < ROUND_FRAGMENTS_MAX; f++)
        t->round_step[f] = step;
    put_field(&begun, STATUS, VARINT);
    put_varint(&begun, START);
    event_begin(&m);
    put_field(&m, 2, VARINT); /* step */
    put_varint(&m, (uint64_t)step + 1);
    put_bytes(&m, 7, begun.bytes, begun.used); /* session_log */
    record_write(t, &m);
}

void tfevents_kept(struct tfevents *t, int64_t step, const struct jsonl_row *row)
{
    if (t->file && jsonl_number(row, "step") > (double)step && jsonl_number(row, "round") >= 0)
        row_scalars(t, row);
}

void tfevents_record(struct tfevents *t, const char *line, size_t size)
{
    struct jsonl_row row;
    uint64_t now = clock_mono_ms();
    char *copy = t->file && size < LINE_MAX_BYTES ? strndup(line, size) : NULL;
    bool round = false;
    if (copy && jsonl_parse(&row, copy)) {
        row_scalars(t, &row);
        round = jsonl_is(&row, "round");
    }
    free(copy);
    /* A round is written once: a restart after its checkpoint does not repeat it. */
    if (round || now - t->flushed_ms >= (uint64_t)FLUSH_MS) {
        t->flushed_ms = now;
        tfevents_flush(t);
    }
}

void tfevents_flush(struct tfevents *t)
{
    if (t->file && fflush(t->file) != 0) {
        log_event(LOG_WARN, "tensorboard", "ok=0 why=\"%s\"", strerror(errno));
        tfevents_close(t);
    }
}

void tfevents_close(struct tfevents *t)
{
    if (t->file)
        fclose(t->file);
    t->file = NULL;
}
