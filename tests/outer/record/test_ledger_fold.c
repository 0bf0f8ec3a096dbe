/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger's folding. Broken, it would lose bytes, transfers or differences of older rounds, let
 * the file grow with the rounds of a run, refuse a start, or leave half a file after a crash.
 */
#include <inttypes.h>
#include <unistd.h>
#include "kernels/base/durable.h"
#include "outer/record/ledger_fold.h"
#include "outer/record/ledger_scan.h"
#include "tests/sim/disk_sim.h"
#include "tests/inner/scratch.h"

/* ---- a ledger's text ---- */

enum { TEXT_BYTES = 96 << 20, SITES_MAX = 64, BEGAN = 1700000000 };

struct story {
    const char *name;
    unsigned sites, rounds, fragments;
    unsigned seconds;    /* of a round */
    unsigned keep;       /* rounds that stay */
    unsigned kill;       /* every n-th round a process is killed and another begins; 0: never */
    unsigned cut;        /* every n-th round site 0 breaks off, and ends it later; 0: never */
    unsigned unfinished; /* this round's transfer of site 0 never ends; 0: none */
    unsigned wrong;      /* every n-th round has another size than predicted; 0: none */
    unsigned lacks;      /* every n-th round misses bytes; 0: none */
    unsigned unplayed;   /* every n-th round has a prediction and no transfer; 0: none */
    unsigned back;       /* at this round the clock goes back by two days; 0: never */
    bool masked;         /* calls of masks, predictions of each site, wider payload */
    bool unnumbered;     /* as the first version wrote: rows have no `n` */
    bool gap;            /* a row is not there: the disk was full */
};
static struct text {
    const struct story *story;
    char *bytes;
    size_t used;
    uint64_t n;
    double now;
    bool running;
    struct ledger_counts up, down; /* what its transfers add up to, by the story */
} text;

static void begin_line(const char *kind)
{
    text.used += (size_t)sprintf(text.bytes + text.used, "{\"v\":1,\"kind\":\"%s\",\"t\":%.3f",
                                 kind, text.now);
    text.n++;
    if (!text.story->unnumbered)
        text.used += (size_t)sprintf(text.bytes + text.used, ",\"n\":%" PRIu64, text.n);
}

static void more(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void more(const char *format, ...)
{
    va_list v;
    va_start(v, format);
    text.used += (size_t)vsnprintf(text.bytes + text.used, 1000, format, v);
    va_end(v);
    assert_true(text.used < TEXT_BYTES - 4096);
}

static void life(void)
{
    text.n = 0;
    text.now += 1;
    begin_line("life");
    more(",\"run\":\"test\",\"replica\":\"aggregator\"}\n");
    text.running = true;
}

static void end(void)
{
    begin_line("end");
    more("}\n");
    text.running = false;
}

/* round < 0: none */
static void flow(const char *what, unsigned site, unsigned fragment, int64_t round, uint64_t total,
                 uint64_t up, uint64_t down, bool done)
{
    begin_line("flow");
    more(",\"what\":\"%s\",\"site\":\"site-%02u\"", what, site);
    if (round >= 0)
        more(",\"fragment\":%u,\"round\":%" PRId64, fragment, round);
    more(",\"calls\":1,\"broken\":%d", !done);
    if (!strcmp(what, "contribution") || !strcmp(what, "aggregate"))
        more(",\"total\":%" PRIu64 ",\"done\":%d", total, done);
    more(",\"up\":%" PRIu64 ",\"up_grpc\":%u,\"up_http2\":31,\"up_tls\":%" PRIu64, up, 60 + site,
         22 + up / 700);
    more(",\"down\":%" PRIu64 ",\"down_grpc\":41,\"down_http2\":27,\"down_tls\":%" PRIu64 "}\n",
         down, 22 + down / 700);
}

static void predicted(int site, unsigned fragment, unsigned round, uint64_t up, uint64_t down)
{
    begin_line("predicted");
    if (site >= 0)
        more(",\"site\":\"site-%02d\"", site);
    more(",\"fragment\":%u,\"round\":%u,\"up\":%" PRIu64 ",\"down\":%" PRIu64 "}\n", fragment,
         round, up, down);
}

static void sockets(unsigned site)
{
    begin_line("socket");
    more(",\"site\":\"site-%02u\",\"up\":%u,\"down\":9000,\"resent\":%u}\n", site, 9000 + site,
         site % 3);
}

static bool every(unsigned n, unsigned round)
{
    return n && round % n == n - 1;
}

static uint64_t size_of(unsigned site, unsigned fragment, unsigned round)
{
    return (text.story->masked ? 4000000 : 1000000) + 4096 * site + 17 * fragment + round % 100;
}

static void transfer_told(struct ledger_counts *c, uint64_t total, uint64_t sent, bool done)
{
    if (!done) {
        c->incomplete++;
        c->incomplete_bytes += sent;
        return;
    }
    c->transfers++;
    c->counted += sent;
    c->total += total;
    c->resent += sent > total ? sent - total : 0;
    c->lost += sent < total ? total - sent : 0;
    c->cut += sent < total;
    c->predicted_total += total;
}

static void site_plays(unsigned site, unsigned fragment, unsigned round)
{
    const struct story *s = text.story;
    uint64_t up = size_of(site, fragment, round), down = size_of(0, fragment, round) + 5000;
    bool unfinished = s->unfinished && round == s->unfinished && !site;
    uint64_t broken = (every(s->cut, round) && !site) || unfinished ? up / 3 : 0;
    uint64_t sent = unfinished ? 0 : every(s->lacks, round) && site == 1 ? up - 100 : up;
    flow("poll", site, fragment, round, 0, 0, 0, true);
    if (s->masked)
        flow("mask", site, fragment, round, 0, 0, 0, true);
    if (broken)
        flow("contribution", site, fragment, round, up, broken, 0, false);
    if (!unfinished)
        flow("contribution", site, fragment, round, up, sent, 0, true);
    flow("aggregate", site, fragment, round, down, 0, down, true);
    flow("report", site, fragment, round, 0, 0, 0, true);
    transfer_told(&text.up, up, broken + sent, !unfinished);
    transfer_told(&text.down, down, down, true);
    text.up.predicted += unfinished ? 0 : up + every(s->wrong, round);
    text.up.differ += every(s->wrong, round);
    text.down.predicted += down;
}

static void round_of(unsigned fragment, unsigned round)
{
    const struct story *s = text.story;
    uint64_t down = size_of(0, fragment, round) + 5000;
    bool played = !every(s->unplayed, round);
    for (unsigned site = 0; site < s->sites && played; site++)
        site_plays(site, fragment, round);
    predicted(-1, fragment, round, 0, down);
    text.down.absent += !played;
    text.down.absent_bytes += played ? 0 : down;
    for (unsigned site = 0; site < s->sites; site++) {
        uint64_t up = size_of(site, fragment, round) + every(s->wrong, round);
        predicted((int)site, fragment, round, up, 0);
        text.up.absent += !played;
        text.up.absent_bytes += played ? 0 : up;
    }
}

static void rounds(unsigned from, unsigned to)
{
    const struct story *s = text.story;
    for (unsigned round = from; round < to; round++) {
        if (s->back && round == s->back)
            text.now -= 2 * 86400;
        for (unsigned fragment = 0; fragment < s->fragments; fragment++)
            round_of(fragment, round);
        for (unsigned site = 0; site < s->sites; site++) {
            flow("hello", site, 0, -1, 0, 0, 0, true);
            sockets(site);
        }
        if (every(s->kill, round))
            life();
        if (s->gap && round == 1)
            text.n++;
        text.now += s->seconds;
    }
}

static void story_begin(const struct story *s)
{
    text = (struct text){.story = s, .bytes = text.bytes, .now = BEGAN};
    life();
}

/* ---- what a reader makes of it ---- */

static struct arena arena;

/* Files in memory: of folds that no fault strikes an fsync says nothing, and it is slow. */
struct trial {
    struct clock_sim clock;
    struct disk_sim disk;
};
static struct trial memory;

static void trial_open(struct trial *t)
{
    clock_sim_open(&t->clock, 7);
    disk_sim_open(&t->disk, &t->clock, "ledger", "run");
}

static void trial_close(struct trial *t)
{
    disk_sim_close(&t->disk);
    clock_sim_close(&t->clock);
}

static const char *path_of(const char *directory)
{
    static char path[100];
    snprintf(path, sizeof path, "%s/%s", directory, LEDGER_FILE);
    return path;
}

static void put(const char *directory, const char *bytes, size_t size)
{
    struct file_part whole = {bytes, size};
    struct disk *d = &memory.disk.disk;
    assert_int_equal(durable_mkdirs(d, directory), ERR_OK);
    assert_int_equal(durable_write(d, path_of(directory), &whole, 1, 0644), ERR_OK);
}

static void append(const char *directory, const char *bytes, size_t size)
{
    assert_int_equal(durable_append(&memory.disk.disk, path_of(directory), bytes, size), ERR_OK);
}

static enum err read_err(struct ledger_member *m, const char *directory)
{
    return ledger_read_on(&memory.disk.disk, m, directory, NULL, &arena);
}

static struct ledger_member read_of(const char *directory)
{
    struct ledger_member m;
    if (read_err(&m, directory) != ERR_OK)
        fail_msg("%s", err_message());
    return m;
}

static enum err fold_err(const char *directory, uint64_t keep)
{
    return ledger_fold(&memory.disk.disk, path_of(directory), keep);
}

static void fold(const char *directory, uint64_t keep)
{
    if (fold_err(directory, keep) != ERR_OK)
        fail_msg("%s", err_message());
}

static const uint8_t *bytes_of(const char *directory, size_t *size)
{
    uint8_t *bytes;
    assert_int_equal(
        durable_read(&memory.disk.disk, path_of(directory), 1 << 30, &arena, &bytes, size), ERR_OK);
    return bytes;
}

enum { VALUES = 32, TOTALS_MAX = 20000 };
struct totals {
    struct total {
        char key[96];
        uint64_t value[VALUES];
    } * line;
    size_t count;
};
enum way { BY_SITE, BY_CALL, BY_FRAGMENT, BY_DAY, BY_HOUR, BY_NO_ROUND, BY_ALL, WAYS };

static void key_of(char key[96], enum way way, const struct ledger_sum *s)
{
    bool none = s->row.round == LEDGER_NO_ROUND;
    unsigned long long t = s->row.t_ms / 1000;
    *key = 0;
    if (way == BY_SITE || way == BY_ALL)
        snprintf(key, 96, "%s", s->row.site);
    if (way == BY_CALL || way == BY_ALL)
        snprintf(key + strlen(key), 96 - strlen(key), " %s", ledger_name(s->row.what));
    if (way == BY_FRAGMENT || way == BY_ALL)
        snprintf(key + strlen(key), 96 - strlen(key), " %u", none ? 99 : s->row.fragment);
    if (way == BY_DAY)
        snprintf(key, 96, "%llu", t / 86400);
    if (way == BY_HOUR || way == BY_ALL)
        snprintf(key + strlen(key), 96 - strlen(key), " %llu", t / 3600);
    if (way == BY_NO_ROUND)
        snprintf(key, 96, "%s", none ? "none" : "rounds");
}

static void total_add(uint64_t v[VALUES], const struct ledger_member *m, const struct ledger_sum *s)
{
    const struct ledger_row *r = &s->row;
    const uint64_t values[] = {r->calls,        r->broken,          r->resent,     r->up.payload,
                               r->up.grpc,      r->up.http2,        r->up.tls,     r->up.socket,
                               r->down.payload, r->down.grpc,       r->down.http2, r->down.tls,
                               r->down.socket,  s->model.payload,   s->model.grpc, s->model.http2,
                               s->model.tls,    ledger_wrong(m, s),
#define X(name) s->of.name,
                               LEDGER_COUNTS(X)
#undef X
    };
    _Static_assert(sizeof values <= VALUES * sizeof *values, "too many");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        v[i] += values[i];
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct total *)a)->key, ((const struct total *)b)->key);
}

static struct totals totals_of(const struct ledger_member *m, enum way way)
{
    size_t count = ledger_sum_count(m), n = 0;
    struct total *all = arena_array(&arena, count + 1, sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < count; i++) {
        struct ledger_sum s = ledger_sum_at(m, i);
        key_of(all[i].key, way, &s);
        total_add(all[i].value, m, &s);
    }
    qsort(all, count, sizeof *all, by_key);
    for (size_t i = 0; i < count; i++)
        if (n && !strcmp(all[n - 1].key, all[i].key))
            for (int k = 0; k < VALUES; k++)
                all[n - 1].value[k] += all[i].value[k];
        else
            all[n++] = all[i];
    return (struct totals){all, n};
}

static void same(const char *name, const struct ledger_member *a, const struct ledger_member *b,
                 bool hours)
{
    if (a->lives.count != b->lives.count || a->lives.unfinished != b->lives.unfinished ||
        a->lives.running != b->lives.running || a->lives.missing != b->lives.missing ||
        a->lives.begun != b->lives.begun || a->lives.begun_last != b->lives.begun_last ||
        strcmp(a->run, b->run) != 0 || strcmp(a->name, b->name) != 0 ||
        a->connections != b->connections)
        fail_msg("%s: other processes after the fold", name);
    if (memcmp(&a->up, &b->up, sizeof a->up) != 0 ||
        memcmp(&a->down, &b->down, sizeof a->down) != 0)
        fail_msg("%s: other sums after the fold: wrong %" PRIu64 " %" PRIu64 ", total %" PRIu64
                 " %" PRIu64 ", absent %" PRIu64 " %" PRIu64,
                 name, a->up.wrong, b->up.wrong, a->up.total, b->up.total, a->down.absent,
                 b->down.absent);
    for (enum way way = 0; way < WAYS; way++) {
        if (!hours && (way == BY_HOUR || way == BY_ALL))
            continue;
        struct totals x = totals_of(a, way), y = totals_of(b, way);
        if (x.count != y.count || memcmp(x.line, y.line, x.count * sizeof *x.line) != 0)
            fail_msg("%s: other sums by way %d after the fold", name, (int)way);
    }
}

/* Rounds that stay are what they were, each by itself. */
static void same_rounds(const struct ledger_member *whole, const struct ledger_member *folded)
{
    size_t stayed = 0;
    for (size_t i = 0; i < whole->count; i++) {
        struct ledger_row a = whole->rows[i];
        if (a.round == LEDGER_NO_ROUND ||
            a.round < ledger_rows_kept(folded->folded.kept, folded->folded.kept_count, a.fragment))
            continue;
        const struct ledger_row *found = ledger_row_of(folded, &a);
        assert_non_null(found);
        struct ledger_row b = *found;
        a.line = b.line = 0;
        assert_memory_equal(&a, &b, sizeof a);
        stayed++;
    }
    size_t rows = 0;
    for (size_t i = 0; i < folded->count; i++)
        rows += folded->rows[i].round != LEDGER_NO_ROUND;
    assert_int_equal(rows, stayed);
}

/* ---- what a fold keeps ---- */

static const struct story stories[] = {
    {.name = "one site, one round", 1, 1, 1, 60, .keep = 4},
    {.name = "as many rounds as stay", 2, 4, 1, 60, .keep = 4},
    {.name = "one round more than stays", 2, 5, 1, 60, .keep = 4},
    {.name = "hours", 3, 50, 1, 600, .keep = 4},
    {.name = "weeks", 2, 100, 1, 14000, .keep = 4},
    {.name = "fragments", 3, 20, 4, 600, .keep = 4},
    {.name = "masked rounds", 3, 20, 1, 600, .keep = 4, .masked = true},
    {.name = "killed", 3, 20, 1, 600, .keep = 4, .kill = 3, .cut = 2, .lacks = 5},
    {.name = "cut off", 2, 20, 2, 600, .keep = 4, .cut = 1},
    {.name = "unfinished, older", 2, 20, 1, 600, .keep = 4, .unfinished = 7},
    {.name = "unfinished, the last that is folded", 2, 20, 1, 600, .keep = 4, .unfinished = 15},
    {.name = "unfinished, the first that stays", 2, 20, 1, 600, .keep = 4, .unfinished = 16},
    {.name = "another size than predicted", 2, 20, 1, 600, .keep = 4, .wrong = 6},
    {.name = "bytes missing, no process killed", 2, 20, 1, 600, .keep = 4, .lacks = 6},
    {.name = "rounds without a transfer", 2, 20, 2, 600, .keep = 4, .unplayed = 3},
    {.name = "the clock goes back", 2, 40, 1, 3000, .keep = 4, .back = 20},
    {.name = "the first version", 2, 20, 1, 600, .keep = 4, .unnumbered = true},
    {.name = "a full disk", 2, 20, 1, 600, .keep = 4, .gap = true, .lacks = 5},
    {.name = "many rows at once", 40, 40, 1, 600, .keep = 8},
};

static void as_told(const char *name, const struct ledger_counts *c,
                    const struct ledger_transfers *t)
{
#define X(field)                                                                                   \
    if (c->field != t->field)                                                                      \
        fail_msg("%s: " #field " is %" PRIu64 ", not %" PRIu64, name, t->field, c->field);
    LEDGER_COUNTS(X)
#undef X
}

/* In one piece, or folded again and again while it grows; twice in a row nothing changes. */
static void story_is_kept(const struct story *s)
{
    bool hours = (uint64_t)s->rounds * s->seconds < 86400 && !s->back;
    struct arena outer = arena;
    arena = arena_make(0);
    story_begin(s);
    put("run/whole", text.bytes, 0);
    put("run/grown", text.bytes, 0);
    size_t at = 0, first, again;
    for (unsigned round = 0; round < s->rounds;) {
        unsigned to = round + 3 < s->rounds ? round + 3 : s->rounds;
        rounds(round, to);
        if (to == s->rounds)
            end();
        append("run/whole", text.bytes + at, text.used - at);
        append("run/grown", text.bytes + at, text.used - at);
        at = text.used;
        round = to;
        fold("run/grown", s->keep);
        struct ledger_member whole = read_of("run/whole"), grown = read_of("run/grown");
        if (round % 9 == 0 || round == s->rounds) /* reading all of it each time is slow */
            same(s->name, &whole, &grown, hours);
    }
    put("run/once", text.bytes, text.used);
    fold("run/once", s->keep);
    struct ledger_member whole = read_of("run/whole"), once = read_of("run/once"),
                         grown = read_of("run/grown");
    as_told(s->name, &text.up, &once.up);
    as_told(s->name, &text.down, &once.down);
    same(s->name, &whole, &once, hours);
    same_rounds(&whole, &once);
    same_rounds(&whole, &grown);
    for (size_t i = 0; i < once.folded.kept_count; i++)
        assert_int_equal(once.folded.kept[i].round, s->rounds - s->keep);
    assert_int_equal(once.folded.kept_count, s->rounds >= s->keep + 1 ? s->fragments : 0);
    const uint8_t *bytes = bytes_of("run/once", &first);
    fold("run/once", s->keep);
    const uint8_t *twice = bytes_of("run/once", &again);
    assert_int_equal(first, again);
    assert_memory_equal(bytes, twice, first);
    if (s->wrong || (s->lacks && !s->kill && !s->gap))
        assert_true(once.up.wrong > 0);
    else
        assert_true(once.up.wrong == 0 && once.down.wrong == 0);
    arena_free(&arena);
    arena = outer;
}

static void a_fold_keeps_every_sum(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        story_is_kept(&stories[i]);
}

/* The first round of each kind of difference is named in the sum. */
static void a_difference_keeps_its_round(void **state)
{
    (void)state;
    static const struct story s = {"wrong", 2, 30, 1, 60, .keep = 4, .wrong = 6, .lacks = 10};
    story_begin(&s);
    rounds(0, s.rounds);
    end();
    put("run/differ", text.bytes, text.used);
    fold("run/differ", s.keep);
    struct ledger_member m = read_of("run/differ");
    uint64_t differ = UINT64_MAX, cut = UINT64_MAX;
    for (size_t i = 0; i < m.folded.sum_count; i++) {
        if (m.folded.sums[i].of.differ && m.folded.sums[i].differ_round < differ)
            differ = m.folded.sums[i].differ_round;
        if (m.folded.sums[i].of.cut && m.folded.sums[i].cut_round < cut)
            cut = m.folded.sums[i].cut_round;
    }
    assert_int_equal(differ, 5);
    assert_int_equal(cut, 9);
}

/* A transfer that ends after its round was folded: nothing of it is lost, and it is no difference;
 * its two ends agree, as the aggregator has no row of that round any more. */
static void a_late_end_is_no_difference(void **state)
{
    (void)state;
    static const struct story s = {"late", 2, 20, 1, 600, .keep = 4, .unfinished = 7};
    struct ledger_row site = {.what = LEDGER_CONTRIBUTION,
                              .site = "site-01",
                              .round = 3,
                              .calls = 1,
                              .done = true,
                              .total = 77};
    story_begin(&s);
    rounds(0, s.rounds);
    put("run/late", text.bytes, text.used);
    struct ledger_member before = read_of("run/late");
    assert_false(ledger_ends_agree(&(struct ledger_member){0}, &site));
    fold("run/late", s.keep);
    size_t at = text.used;
    uint64_t up = size_of(0, 0, 7);
    flow("contribution", 0, 0, 7, up, up - up / 3, 0, true);
    end();
    append("run/late", text.bytes + at, text.used - at);
    for (int folds = 0; folds < 3; folds++) {
        struct ledger_member m = read_of("run/late");
        assert_int_equal(m.up.wrong, 0);
        assert_int_equal(m.up.transfers, before.up.transfers + 1);
        assert_int_equal(m.up.layers.payload, before.up.layers.payload + up - up / 3);
        m.lives.unfinished = 0; /* no process is an excuse */
        assert_true(ledger_ends_agree(&m, &site));
        site.round = 16; /* the first that is not folded */
        assert_false(ledger_ends_agree(&m, &site));
        site.round = 3;
        fold("run/late", s.keep);
    }
}

/* A peer names a round that does not exist, and sends bytes for it: no other round is folded for
 * that. */
static void a_named_round_folds_nothing(void **state)
{
    (void)state;
    static const struct story s = {"named", 2, 8, 1, 600, .keep = 4};
    story_begin(&s);
    rounds(0, 2);
    flow("contribution", 0, 0, 1000000000, 1000, 10, 0, false);
    rounds(2, s.rounds);
    put("run/named", text.bytes, text.used);
    struct ledger_member before = read_of("run/named");
    fold("run/named", s.keep);
    struct ledger_member m = read_of("run/named");
    same("named", &before, &m, true);
    assert_int_equal(m.folded.kept[0].round, s.rounds - s.keep);
}

/* ---- damage ---- */

/* A line of the sums that is not there, or there twice, is damage, at any place. */
static void a_fold_is_whole(void **state)
{
    (void)state;
    static const struct story s = {"whole", 2, 8, 1, 600, .keep = 2};
    struct ledger_member m;
    size_t size;
    story_begin(&s);
    rounds(0, s.rounds);
    put("run/sums", text.bytes, text.used);
    fold("run/sums", s.keep);
    const char *bytes = (const char *)bytes_of("run/sums", &size);
    char *other = arena_alloc(&arena, 2 * size);
    unsigned lines = 0;
    for (const char *at = bytes; at < bytes + size; lines++) {
        const char *next = (const char *)memchr(at, '\n', size) + 1;
        size_t begin = (size_t)(at - bytes), length = (size_t)(next - at);
        memcpy(other, bytes, begin);
        memcpy(other + begin, next, size - begin - length);
        put("run/hurt", other, size - length);
        enum err e = read_err(&m, "run/hurt");
        assert_int_equal(e, begin ? ERR_CORRUPT : ERR_INPUT);
        memcpy(other, bytes, begin + length);
        memcpy(other + begin + length, at, size - begin);
        put("run/hurt", other, size + length);
        assert_int_equal(read_err(&m, "run/hurt"), ERR_CORRUPT);
        put("run/hurt", bytes, begin + length / 2); /* cut short */
        assert_int_equal(read_err(&m, "run/hurt"), begin ? ERR_CORRUPT : ERR_INPUT);
        assert_int_not_equal(fold_err("run/hurt", s.keep), ERR_OK);
        size_t after;
        bytes_of("run/hurt", &after);
        assert_int_equal(after, begin + length / 2); /* as it was */
        at = next;
    }
    assert_true(lines > 20);
    memcpy(other, bytes, size);
    memcpy(other + size, bytes, size);
    put("run/hurt", other, 2 * size);
    assert_int_equal(read_err(&m, "run/hurt"), ERR_CORRUPT);
    assert_says("rows are there twice");
}

/* Half a last line, as a kill leaves it, is passed over; what follows is numbered on. */
static void a_torn_end_is_folded_away(void **state)
{
    (void)state;
    static const struct story s = {"torn", 2, 8, 1, 600, .keep = 2};
    story_begin(&s);
    rounds(0, s.rounds);
    put("run/torn", text.bytes, text.used);
    struct ledger_member before = read_of("run/torn");
    append("run/torn", "{\"v\":1,\"kind\":\"fl", 17);
    fold("run/torn", s.keep);
    struct ledger_member m = read_of("run/torn");
    same("torn", &before, &m, true);
    assert_true(m.lives.running && m.lives.missing == 0);
}

/* ---- crashes and full disks ---- */

static void trial_same(struct trial *t, const struct ledger_member *whole, const char *when)
{
    struct ledger_member m;
    if (ledger_read_on(&t->disk.disk, &m, "run", NULL, &arena) != ERR_OK)
        fail_msg("%s: %s", when, err_message());
    same(when, whole, &m, true);
}

/* One fault at one operation of the fold: the file says the same before the next start, after it,
 * and after the next fold. false: there is no such operation. */
static bool fault_is_survived(enum disk_fault fault, uint64_t at, const struct ledger_member *whole)
{
    static const char *const names[] = {"",
#define X(name, said) said,
                                        DISK_FAULTS(X)
#undef X
    };
    struct trial t;
    char when[64];
    snprintf(when, sizeof when, "%s at operation %" PRIu64, names[fault], at);
    const struct file_part file = {text.bytes, text.used};
    trial_open(&t);
    assert_int_equal(durable_write(&t.disk.disk, "run/" LEDGER_FILE, &file, 1, 0644), ERR_OK);
    t.disk.operations = 0;
    t.disk.plan = (struct disk_plan){.at = at, .fault = fault};
    enum err e = ledger_fold(&t.disk.disk, "run/" LEDGER_FILE, 4);
    bool struck = t.disk.operations >= at;
    assert_true(e == ERR_OK || t.disk.plan.applied);
    if (t.disk.dead || fault == DISK_FAULT_BROKEN || fault == DISK_FAULT_FULL) {
        bool power = t.disk.power;
        disk_sim_restart(&t.disk, power);
    }
    t.disk.plan = (struct disk_plan){0};
    t.disk.broken = t.disk.full = false;
    trial_same(&t, whole, when);
    disk_sim_restart(&t.disk, true); /* and the power goes afterwards */
    trial_same(&t, whole, when);
    assert_int_equal(ledger_fold(&t.disk.disk, "run/" LEDGER_FILE, 4), ERR_OK);
    trial_same(&t, whole, when);
    trial_close(&t);
    return struck;
}

static void every_fault_leaves_a_ledger(void **state)
{
    (void)state;
    static const struct story s = {"faults", 3, 12, 1, 600, .keep = 4, .cut = 3};
    story_begin(&s);
    rounds(0, s.rounds);
    put("run/faults", text.bytes, text.used);
    struct ledger_member whole = read_of("run/faults");
    unsigned struck = 0;
    for (enum disk_fault fault = DISK_FAULT_CRASH; fault < DISK_FAULT_COUNT; fault++)
        for (uint64_t at = 1; fault_is_survived(fault, at, &whole); at++)
            struck++;
    assert_true(struck >= 7 * 5);
}

/* ---- the writer ---- */

static struct ledger_book book;

static void book_begin(const char *directory, uint64_t fold_bytes)
{
    assert_int_equal(file_mkdirs(scratch(directory)), ERR_OK);
    usleep(2000); /* two processes of a directory never begin in one millisecond */
    assert_int_equal(ledger_book_open(&book,
                                      &(struct ledger_book_options){.directory = scratch(directory),
                                                                    .run = "test",
                                                                    .replica = "aggregator",
                                                                    .fold_bytes = fold_bytes},
                                      &arena),
                     ERR_OK);
}

static void book_plays(unsigned from, unsigned to)
{
    for (unsigned round = from; round < to; round++) {
        struct ledger_row row = {.what = LEDGER_CONTRIBUTION,
                                 .round = round,
                                 .calls = 1,
                                 .total = 1000 + round,
                                 .done = true,
                                 .up = {.payload = 1000 + round, .grpc = 7, .http2 = 9, .tls = 22}};
        struct ledger_row kernel = {
            .what = LEDGER_SOCKET, .round = LEDGER_NO_ROUND, .up.socket = 1100, .down.socket = 40};
        snprintf(row.site, sizeof row.site, "a");
        snprintf(kernel.site, sizeof kernel.site, "a");
        ledger_book_predict(&book, "a", 0, round, 1000 + round, 0);
        ledger_book_add(&book, &row);
        ledger_book_add(&book, &kernel);
    }
}

static struct ledger_member book_read(const char *directory, size_t *size)
{
    struct ledger_member m;
    uint8_t *bytes;
    if (ledger_read(&m, scratch(directory), NULL, &arena) != ERR_OK)
        fail_msg("%s", err_message());
    assert_int_equal(file_read(path_of(scratch(directory)), 1 << 30, &arena, &bytes, size), ERR_OK);
    return m;
}

static size_t book_check(const char *directory, unsigned rounds_all, unsigned lives)
{
    size_t size;
    struct ledger_member m = book_read(directory, &size);
    uint64_t total = 0;
    for (unsigned round = 0; round < rounds_all; round++)
        total += 1000 + round;
    assert_int_equal(m.lives.count, lives);
    assert_int_equal(m.lives.missing, 0);
    assert_int_equal(m.up.transfers, rounds_all);
    assert_int_equal(m.up.total, total);
    assert_int_equal(m.up.predicted, total);
    assert_int_equal(m.up.wrong + m.up.unpredicted + m.up.absent, 0);
    assert_int_equal(m.up.layers.socket, 1100 * (uint64_t)rounds_all);
    return size;
}

/* While it runs and at a start: the file stays small, rows are numbered on, and nothing is lost. */
static void the_writer_folds(void **state)
{
    enum { ROUNDS = 2000, FOLD = 64 << 10 };
    (void)state;
    size_t size;
    book_begin("book", FOLD);
    book_plays(0, ROUNDS);
    ledger_book_close(&book);
    assert_true(book_check("book", ROUNDS, 1) < 3 * FOLD); /* 900 KB of rows were written */
    struct ledger_member m = book_read("book", &size);
    assert_true(m.folded.sum_count > 0 && m.folded.kept_count == 1);
    assert_true(m.folded.kept[0].round > ROUNDS / 2 &&
                m.folded.kept[0].round <= ROUNDS - LEDGER_ROUNDS_WHOLE);
    book_begin("book", FOLD);
    book_plays(ROUNDS, ROUNDS + 10);
    ledger_book_close(&book);
    book_begin("book", 1); /* folded at the start */
    ledger_book_close(&book);
    book_check("book", ROUNDS + 10, 3);
    m = book_read("book", &size);
    assert_int_equal(m.folded.kept[0].round, ROUNDS + 10 - LEDGER_ROUNDS_WHOLE);
    assert_int_equal(m.lives.unfinished, 0);
}

/* A file that cannot be folded grows on: no start is refused, no row is lost. */
static void a_fold_that_fails_stops_nothing(void **state)
{
    enum { ROUNDS = 1000, FOLD = 64 << 10 };
    (void)state;
    char name[100];
    snprintf(name, sizeof name, "fails/%s%s", LEDGER_FILE, DURABLE_TEMPORARY);
    assert_int_equal(file_mkdirs(scratch(name)), ERR_OK); /* in the place of the new file */
    book_begin("fails", FOLD);
    book_plays(0, ROUNDS);
    ledger_book_close(&book);
    assert_true(book_check("fails", ROUNDS, 1) > 3 * FOLD);
    book_begin("fails", FOLD);
    assert_int_equal(file_remove_tree(scratch(name)), ERR_OK);
    book_plays(ROUNDS, ROUNDS + 400);
    ledger_book_close(&book);
    assert_true(book_check("fails", ROUNDS + 400, 2) < 3 * FOLD);
}

/* ---- the size ---- */

/* 64 sites, 10,000 rounds of three minutes: 21 days. Only their sums are made: the last rounds
 * whole, of the earlier ones as many as there are hours. docs/formats.md 12.4 states the bound. */
static void the_size_is_bounded(void **state)
{
    enum {
        SITES = 64,
        HOURS = 500,
        LAST = 10000 - LEDGER_ROUNDS_WHOLE,
        KINDS = 7, /* with a sum: four of a round, those of none: hello, socket; a spare one */
        SUM_BYTES = 450,
        ROUND_BYTES = 1600 /* of a site: four flows and two predictions */
    };
    (void)state;
    static const struct story s = {"size", SITES, 10000, 1, 180, .keep = 0};
    size_t written = 0, size, before;
    story_begin(&s);
    put("run/size", text.bytes, 0);
    for (unsigned hour = 0; hour < HOURS - 3; hour++) {
        text.now = BEGAN + 3600.0 * hour;
        rounds(hour * 20, hour * 20 + 1);
        if (hour % 100 != 99 && hour != HOURS - 4)
            continue;
        append("run/size", text.bytes, text.used);
        text.used = 0;
        fold("run/size", 0);
    }
    before = 0;
    rounds(LAST, 10000);
    written = text.used;
    append("run/size", text.bytes, text.used);
    fold("run/size", 0);
    bytes_of("run/size", &size);
    struct ledger_member m = read_of("run/size");
    size_t rows = 0, periods = 48 + 24 + HOURS / 24 + 1;
    for (size_t i = 0; i < m.count; i++)
        rows += m.rows[i].round != LEDGER_NO_ROUND;
    assert_int_equal(rows, SITES * 4 * LEDGER_ROUNDS_WHOLE);
    print_message("64 sites, 10,000 rounds, 500 hours: %.1f MB in %zu rows and %zu sums; unfolded "
                  "%.0f MB\n",
                  1e-6 * (double)size, m.count, m.folded.sum_count,
                  1e-6 * (double)written / LEDGER_ROUNDS_WHOLE * 10000);
    assert_true(m.folded.sum_count <= SITES * KINDS * periods);
    assert_true(size <=
                SITES * (KINDS * periods * SUM_BYTES + LEDGER_ROUNDS_WHOLE * ROUND_BYTES) + before);
    assert_int_equal(m.lives.missing, 0);
}

static int open_all(void **state)
{
    text.bytes = malloc(TEXT_BYTES);
    trial_open(&memory);
    return text.bytes ? scratch_open(state) : -1;
}

static int close_all(void **state)
{
    trial_close(&memory);
    free(text.bytes);
    return scratch_close(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fold_keeps_every_sum),
        cmocka_unit_test(a_difference_keeps_its_round),
        cmocka_unit_test(a_late_end_is_no_difference),
        cmocka_unit_test(a_named_round_folds_nothing),
        cmocka_unit_test(a_fold_is_whole),
        cmocka_unit_test(a_torn_end_is_folded_away),
        cmocka_unit_test(every_fault_leaves_a_ledger),
        cmocka_unit_test(the_writer_folds),
        cmocka_unit_test(a_fold_that_fails_stops_nothing),
        cmocka_unit_test(the_size_is_bounded),
    };
    arena = arena_make(0);
    int failed = cmocka_run_group_tests(tests, open_all, close_all);
    arena_free(&arena);
    return failed;
}
