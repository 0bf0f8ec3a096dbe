/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if kernels/base is wrong: every digest, every durable file, every parser of foreign
 * bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/arena.h"
#include "kernels/base/bytes.h"
#include "kernels/base/clock.h"
#include "kernels/base/digest.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "kernels/base/spill.h"

static char root[64]; /* a scratch directory, removed at the end */

static const char *in_root(const char *name)
{
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
    return path[turn];
}

static void err_keeps_one_sentence(void **state)
{
    (void)state;
    err_clear();
    assert_string_equal(err_message(), "");
    assert_int_equal(err_set(ERR_PROTO, "chunk %u past end", 7u), ERR_PROTO);
    assert_int_equal(err_add(ERR_PROTO, "%s:%d: ", "a.yaml", 12), ERR_PROTO);
    assert_string_equal(err_message(), "a.yaml:12: chunk 7 past end");
    err_set(ERR_IO, "again: %s", err_message());
    assert_string_equal(err_message(), "again: a.yaml:12: chunk 7 past end");
    assert_string_equal(err_name(ERR_STOPPED), "STOPPED");
    assert_int_equal(err_exit_code(ERR_STOPPED), 75);
    assert_string_equal(err_name(ERR_INTERNAL), "INTERNAL");
}

static void arena_gives_zeroed_aligned_memory(void **state)
{
    (void)state;
    struct arena a = arena_make(0);
    char *last = NULL;
    for (size_t n = 0; n < 40000; n = n * 2 + 1) {
        char *p = arena_alloc(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_ptr_not_equal(p, last);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 255, n);
        last = p;
    }
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 5), "x-5");
    assert_string_equal(arena_string(&a, "abcdef", 3), "abc");
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    uint32_t *list = NULL;
    size_t room = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t *more = arena_grow(&a, list, i, &room, sizeof *more);
        assert_true(more && room > i && (more == list || (i & (i - 1)) == 0));
        list = more;
        list[i] = i;
    }
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(list[i], i);
    room = SIZE_MAX / 4;
    assert_null(arena_grow(&a, list, room, &room, 8));
    assert_int_equal(room, SIZE_MAX / 4);
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_free(&a);
    arena_free(&a);
}

static void arena_keeps_its_cap(void **state)
{
    (void)state;
    struct arena a = arena_make(1024);
    assert_non_null(arena_alloc(&a, 1000));
    assert_null(arena_alloc(&a, 1));
    assert_non_null(strstr(err_message(), "limit 1024"));
    arena_reset(&a);
    assert_non_null(arena_alloc(&a, 1024));
    arena_free(&a);
}

/* Known answers: Random123 1.14, examples/kat_vectors, philox4x32 10. */
static void rng_matches_published_vectors(void **state)
{
    (void)state;
    static const struct {
        uint64_t index, stream, seed;
        uint32_t out[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x85a308d3243f6a88,
         0x0370734413198a2e,
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        rng_block(known[i].seed, known[i].stream, known[i].index, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

/* Against libm's log and cos, and the moments of 200000 draws (standard errors 0.0022, 0.0032,
 * 0.011). */
static void rng_normal_is_normal(void **state)
{
    (void)state;
    enum { N = 200000 };
    double m1 = 0, m2 = 0, m4 = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint32_t b[4];
        rng_block(11, RNG_TEST, i, b);
        double u1 = 1 - (double)(((uint64_t)b[1] << 32 | b[0]) >> 11) * 0x1p-53;
        double u2 = (double)(((uint64_t)b[3] << 32 | b[2]) >> 11) * 0x1p-53;
        double want = sqrt(-2 * log(u1)) * cos(2 * acos(-1.0) * u2);
        double x = (double)rng_normal(11, RNG_TEST, i);
        assert_true(fabs(x - want) <= 6.1e-8 * fabs(want) + 1e-14);
        m1 += x / N;
        m2 += x * x / N;
        m4 += x * x * x * x / N;
    }
    assert_true(fabs(m1) < 0.01 && fabs(m2 - 1) < 0.015 && fabs(m4 - 3) < 0.08);
}

static void rng_ranges(void **state)
{
    (void)state;
    int seen[7] = {0};
    for (uint64_t i = 0; i < 7000; i++) {
        double u = rng_unit(3, RNG_TEST, i);
        assert_true(u >= 0 && u < 1);
        uint64_t v = rng_below(3, RNG_TEST, i, 7);
        assert_true(v < 7);
        seen[v]++;
        assert_int_equal((uint32_t)rng_u64(3, RNG_TEST, i), rng_u32(3, RNG_TEST, i));
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(seen[i], 850, 1150);
}

static void bytes_round_trip_and_stop_at_the_end(void **state)
{
    (void)state;
    uint8_t buf[32];
    struct bytes_writer w = bytes_writer(buf, 27);
    bytes_put_u8(&w, 1);
    bytes_put_u16(&w, 0x0203);
    bytes_put_u32(&w, 0x04050607);
    bytes_put_u64(&w, 0x08090a0b0c0d0e0f);
    bytes_put_f32(&w, 1.5f);
    bytes_put_u64(&w, 1);
    assert_false(w.bad);
    assert_int_equal(bytes_size(&w), 27);
    assert_memory_equal(buf, "\x01\x03\x02\x07\x06\x05\x04\x0f", 8);
    bytes_put_u8(&w, 1);
    assert_true(w.bad);
    assert_int_equal(bytes_size(&w), 27);

    struct bytes_reader r = bytes_reader(buf, 27);
    assert_int_equal(bytes_get_u8(&r), 1);
    assert_int_equal(bytes_get_u16(&r), 0x0203);
    assert_int_equal(bytes_get_u32(&r), 0x04050607);
    assert_true(bytes_get_u64(&r) == 0x08090a0b0c0d0e0f);
    assert_true(bytes_get_f32(&r) == 1.5f);
    assert_false(bytes_done(&r));
    assert_int_equal(bytes_get_u64(&r), 1);
    assert_true(bytes_done(&r));
    assert_null(bytes_view(&r, SIZE_MAX));
    assert_int_equal(bytes_get_u32(&r), 0);
    assert_false(bytes_done(&r));

    r = bytes_reader(buf, 3);
    assert_int_equal(bytes_get_u32(&r), 0);
    assert_int_equal(bytes_get_u8(&r), 0); /* after an overrun nothing more is read */
    r = bytes_reader(NULL, 0);
    assert_true(bytes_done(&r));
}

/* SHA-256: FIPS 180-4 examples. CRC-32C: RFC 3720 B.4. */
static void digests_match_published_vectors(void **state)
{
    (void)state;
    char hex[65];
    struct digest d = digest_of("abc", 3);
    digest_hex(&d, hex);
    struct digest back;
    assert_true(digest_hex_read(&back, hex) && digest_equal(&back, &d));
    hex[63] = 'G';
    assert_false(digest_hex_read(&back, hex));
    digest_hex(&d, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    struct digest_stream s;
    digest_open(&s);
    digest_add(&s, "a", 1);
    digest_add(&s, NULL, 0);
    digest_add(&s, "bc", 2);
    struct digest e = digest_close(&s);
    assert_true(digest_equal(&d, &e));
    assert_false(digest_zero(&d));
    d = digest_of(NULL, 0);
    digest_hex(&d, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");

    uint8_t buf[32] = {0};
    assert_int_equal(digest_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(digest_crc32c(digest_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
    assert_int_equal(digest_crc32c(0, buf, 32), 0x8a9136aa);
    memset(buf, 255, 32);
    assert_int_equal(digest_crc32c(0, buf, 32), 0x62a8ab43);
    for (uint8_t i = 0; i < 32; i++)
        buf[i] = i;
    assert_int_equal(digest_crc32c(0, buf, 32), 0x46dd794e);
}

static void file_write_replaces_whole(void **state)
{
    (void)state;
    struct arena a = arena_make(0);
    const char *path = in_root("state");
    struct file_part parts[3] = {{"one ", 4}, {NULL, 0}, {"two", 3}};
    uint8_t *data;
    size_t size;
    assert_int_equal(file_write(path, parts, 3, 0600), ERR_OK);
    assert_int_equal(file_read(path, 100, &a, &data, &size), ERR_OK);
    assert_int_equal(size, 7);
    assert_memory_equal(data, "one two", 8); /* terminated */
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    /* A crash left a temporary: the next write replaces it, no listing shows it. */
    struct file_part junk = {"junk", 4};
    assert_int_equal(file_write(in_root("state.tmp"), &junk, 1, 0644), ERR_OK);
    char **names;
    size_t count;
    assert_int_equal(file_list(root, &a, &names, &count), ERR_OK);
    assert_int_equal(count, 1);
    assert_string_equal(names[0], "state");
    assert_int_equal(file_write(path, parts, 1, 0600), ERR_OK);
    assert_false(file_exists(in_root("state.tmp")));

    struct file_map m;
    assert_int_equal(file_map(&m, path), ERR_OK);
    assert_int_equal(m.size_bytes, 4);
    assert_memory_equal(m.data, "one ", 4);
    file_unmap(&m);
    assert_int_equal(file_read(path, 3, &a, &data, &size), ERR_INPUT);
    arena_free(&a);
}

static void file_errors_name_path_and_reason(void **state)
{
    (void)state;
    struct file_map m;
    assert_int_equal(file_map(&m, in_root("absent")), ERR_INPUT);
    assert_non_null(strstr(err_message(), "absent"));
    assert_non_null(strstr(err_message(), "No such file"));
    assert_int_equal(file_map(&m, root), ERR_INPUT);
    struct file_part p = {"x", 1};
    assert_int_equal(symlink("elsewhere", in_root("link")), 0); /* as /dev/stdout is one */
    assert_int_equal(file_write(in_root("link"), &p, 1, 0644), ERR_INPUT);
    assert_int_equal(unlink(in_root("link")), 0);
    assert_int_equal(file_write(in_root("no/such/dir"), &p, 1, 0644), ERR_IO);
    assert_int_equal(file_remove(in_root("absent")), ERR_OK);
    assert_int_equal(file_remove_tree(in_root("absent")), ERR_OK);
    assert_int_equal(file_write(in_root("empty"), NULL, 0, 0644), ERR_OK);
    assert_int_equal(file_map(&m, in_root("empty")), ERR_OK);
    assert_null(m.data);
    file_unmap(&m);
}

/* A write that fails half-way (here at the file size limit) leaves the old file and no temporary.
 */
static void file_write_failing_keeps_the_old_file(void **state)
{
    (void)state;
    struct arena a = arena_make(0);
    static uint8_t big[100000];
    uint8_t *data;
    size_t size;
    struct file_part old = {"old", 3}, new[2] = {{big, 10}, {big, sizeof big}};
    const char *path = in_root("kept");
    assert_int_equal(file_write(path, &old, 1, 0644), ERR_OK);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = (struct rlimit){4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    enum err e = file_write(path, new, 2, 0644);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(e, ERR_FULL);
    assert_non_null(strstr(err_message(), "kept"));
    assert_int_equal(file_read(path, 100, &a, &data, &size), ERR_OK);
    assert_memory_equal(data, "old", 4);
    assert_false(file_exists(in_root("kept.tmp")));
    arena_free(&a);
}

static void file_directories(void **state)
{
    (void)state;
    struct arena a = arena_make(0);
    assert_int_equal(file_mkdirs(in_root("d//e/f/")), ERR_OK);
    assert_int_equal(file_mkdirs(in_root("d/e/f")), ERR_OK);
    struct file_part p = {"x", 1};
    const char *order[] = {"b", "a", "c"};
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "d/e/f/%s", order[i]);
        assert_int_equal(file_write(in_root(name), &p, 1, 0644), ERR_OK);
    }
    assert_int_equal(file_mkdirs(in_root("d/e/f/a")), ERR_INPUT); /* a file is in the way */
    char **names;
    size_t count;
    assert_int_equal(file_list(in_root("d/e/f"), &a, &names, &count), ERR_OK);
    assert_int_equal(count, 3);
    assert_string_equal(names[0], "a");
    assert_string_equal(names[2], "c");
    struct file_lock first, second;
    assert_int_equal(file_lock(&first, in_root("d")), ERR_OK);
    assert_int_equal(file_lock(&second, in_root("d")), ERR_BUSY);
    assert_non_null(strstr(err_message(), "/d: "));
    file_unlock(&first);
    assert_int_equal(file_lock(&second, in_root("d")), ERR_OK);
    file_unlock(&second);
    uint64_t free_bytes = 0;
    assert_int_equal(file_free_bytes(root, &free_bytes), ERR_OK);
    assert_true(free_bytes > 0);
    assert_int_equal(symlink(root, in_root("d/link")), 0);
    assert_int_equal(file_remove_tree(in_root("d")), ERR_OK);
    assert_false(file_exists(in_root("d")));
    assert_true(file_exists(root)); /* the link was removed, not followed */
    arena_free(&a);
}

/* The directory itself is locked: no process gets in by removing LOCK. The holder sees when
 * another directory has taken its name. */
static void a_lock_outlives_its_file(void **state)
{
    (void)state;
    struct file_lock first, second;
    assert_int_equal(file_mkdirs(in_root("l")), ERR_OK);
    assert_int_equal(file_lock(&first, in_root("l")), ERR_OK);
    assert_int_equal(unlink(in_root("l/LOCK")), 0);
    assert_int_equal(file_lock(&second, in_root("l")), ERR_BUSY);
    assert_int_equal(file_lock_check(&first, in_root("l")), ERR_OK);
    assert_int_equal(rename(in_root("l"), in_root("moved")), 0);
    assert_int_equal(file_lock_check(&first, in_root("l")), ERR_BUSY);
    assert_int_equal(file_mkdirs(in_root("l")), ERR_OK);
    assert_int_equal(file_lock_check(&first, in_root("l")), ERR_BUSY);
    assert_non_null(strstr(err_message(), "/l: "));
    assert_int_equal(file_lock(&second, in_root("moved")), ERR_BUSY);
    file_unlock(&first);
    assert_int_equal(file_lock(&second, in_root("moved")), ERR_OK);
    file_unlock(&second);
    /* where directories cannot be locked, the file is all there is */
    assert_int_equal(file_lock(&first, in_root("l")), ERR_OK);
    first.by_file = true;
    assert_int_equal(file_lock_check(&first, in_root("l")), ERR_OK);
    assert_int_equal(unlink(in_root("l/LOCK")), 0);
    assert_int_equal(file_lock_check(&first, in_root("l")), ERR_BUSY);
    file_unlock(&first);
    assert_int_equal(file_remove_tree(in_root("l")), ERR_OK);
    assert_int_equal(file_remove_tree(in_root("moved")), ERR_OK);
}

static void keep_line(void *self, enum log_level level, const char *line)
{
    (void)level;
    snprintf(self, 256, "%s", line);
}

/* NFS without a lock service: the message says what is missing, not only "No locks available". */
static bool no_locks;
int __real_fcntl64(int fd, int cmd, void *argument);
int __wrap_fcntl64(int fd, int cmd, void *argument);
int __wrap_fcntl64(int fd, int cmd, void *argument)
{
    if (no_locks && cmd == F_OFD_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    return __real_fcntl64(fd, cmd, argument);
}
int __wrap_fcntl(int fd, int cmd, void *argument);
int __wrap_fcntl(int fd, int cmd, void *argument)
{
    return __wrap_fcntl64(fd, cmd, argument);
}

static void a_file_system_without_locks_is_named(void **state)
{
    (void)state;
    struct file_lock l;
    assert_int_equal(file_mkdirs(in_root("nfs")), ERR_OK);
    no_locks = true;
    enum err e = file_lock(&l, in_root("nfs"));
    no_locks = false;
    assert_int_equal(e, ERR_UNSUPPORTED);
    assert_non_null(strstr(err_message(), "nfs/LOCK: its file system gives no locks"));
    assert_int_equal(file_lock(&l, in_root("nfs")), ERR_OK);
    file_unlock(&l);
}

static void log_writes_logfmt(void **state)
{
    (void)state;
    char line[256] = "", quoted[32];
    log_to(keep_line, line);
    log_prefix("site=%s rank=%d ", "a", 0);
    log_event(LOG_INFO, "round_close", "round=%u name=%s", 41u,
              log_quote(quoted, sizeof quoted, "a \"b\""));
    assert_string_equal(line,
                        "site=a rank=0 level=info ev=round_close round=41 name=\"a \\\"b\\\"\"");
    log_event(LOG_DEBUG, "hidden", "x=1");
    assert_non_null(strstr(line, "round_close"));
    log_prefix("%s", "");
    log_event(LOG_WARN, "late", "%s", "");
    assert_string_equal(line, "level=warn ev=late");
    log_event(LOG_INFO, "round", "a=nan b=1 c=%s d=-nan e=\"x=nan y\" f=nan", "nano");
    assert_string_equal(line, "level=info ev=round b=1 c=nano e=\"x=nan y\"");
    assert_string_equal(log_time(1795840761671, line), "2026-11-28T04:39:21.671Z");
    assert_string_equal(log_quote(quoted, 8, "plain"), "plain");
    assert_string_equal(log_quote(quoted, 8, "far too long"), "\"far \"");
    log_to(NULL, NULL);
}

/* What a peer or a file says cannot move the cursor, hide a line or make one up. */
static void control_characters_are_escaped(void **state)
{
    (void)state;
    char line[256] = "", quoted[64];
    static const struct {
        const char *text, *quoted;
    } cases[] = {
        {"a\nb", "\"a\\nb\""},
        {"a\r\tb", "\"a\\r\\tb\""},
        {"\033[2J", "\"\\x1b[2J\""},
        {"\x7f", "\"\\x7f\""},
        {"\xc2\x9b"
         "2J",
         "\"\\xc2\\x9b2J\""},
        {"\xc3\xa9", "\xc3\xa9"},
        {"\xe2\x82\xac\xf0\x9f\x98\x80", "\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"a\x9b"
         "2J",
         "\"a\\x9b2J\""},                                          /* C1 of one byte */
        {"\xe2\x82", "\"\\xe2\\x82\""},                            /* cut short */
        {"\xc1\xbf\xe0\x9f\xbf", "\"\\xc1\\xbf\\xe0\\x9f\\xbf\""}, /* too long a form */
        {"\xed\xa0\x80", "\"\\xed\\xa0\\x80\""},                   /* a surrogate */
        {"\xf4\x90\x80\x80", "\"\\xf4\\x90\\x80\\x80\""},          /* above U+10FFFF */
        {"", "\"\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(log_quote(quoted, sizeof quoted, cases[i].text), cases[i].quoted);
    log_to(keep_line, line);
    log_event(LOG_INFO, "raw", "name=%s", "a\nev=forged\033[2J\xc2\x9b");
    assert_string_equal(line, "level=info ev=raw name=a?ev=forged?[2J?"
                              "?");
    log_event(LOG_INFO, "raw", "name=%s", "\x9b\xc3\xa9\xff");
    assert_string_equal(line, "level=info ev=raw name=?\xc3\xa9?");
    log_to(NULL, NULL);
    err_set(ERR_INPUT, "epoch: \"%s\" is no counter", "\033[2J\n\x7f");
    assert_string_equal(err_message(), "epoch: \"?[2J\n?\" is no counter");
    err_add(ERR_INPUT, "%s: ", "\r");
    assert_string_equal(err_message(), "?: epoch: \"?[2J\n?\" is no counter");
    err_clear();
}

static void keep_all(void *self, enum log_level level, const char *line)
{
    char *text = self;
    size_t n = strlen(text);
    (void)level;
    snprintf(text + n, 4096 - n, "%s\n", line);
}

static void the_limiter_counts_what_it_suppresses(void **state)
{
    (void)state;
    enum { KEYS = 64 };
    static struct log_limit_key keys[KEYS];
    static char text[4096];
    struct log_limit l = {keys, KEYS};
    unsigned suppressed = 99;
    assert_true(log_limit_pass(&l, "refused", "a", 2, 1000, &suppressed));
    assert_int_equal(suppressed, 0);
    assert_true(log_limit_pass(&l, "refused", "b", 2, 1000, &suppressed)); /* each peer its own */
    assert_true(log_limit_pass(&l, "denied", "a", 2, 1000, &suppressed));
    assert_true(log_limit_pass(&l, "refused", "a", 2, 2000, &suppressed));
    for (unsigned i = 0; i < 1300; i++)
        assert_false(log_limit_pass(&l, "refused", "a", 2, 3000 + i, &suppressed));
    assert_false(log_limit_pass(&l, "refused", "a", 2, 1000 + LOG_LIMIT_MS - 1, &suppressed));
    assert_true(log_limit_pass(&l, "refused", "a", 2, 1000 + LOG_LIMIT_MS, &suppressed));
    assert_int_equal(suppressed, 1301);
    assert_true(
        log_limit_pass(&l, "refused", "a", 2, 10, &suppressed)); /* a clock that went back */
    assert_int_equal(suppressed, 0);

    /* What is not asked about again is said when its window is over. */
    log_to(keep_all, text);
    for (unsigned i = 0; i < 5; i++)
        log_limit_pass(&l, "refused", "c d", 2, 100000, &suppressed);
    log_limit_flush(&l, 100000);
    assert_string_equal(text, "");
    log_limit_flush(&l, 100000 + LOG_LIMIT_MS);
    assert_string_equal(text, "level=warn ev=suppressed of=refused peer=\"c d\" lines=3\n");
    log_limit_flush(&l, 100000 + LOG_LIMIT_MS);
    assert_null(strchr(strchr(text, '\n') + 1, '\n'));

    /* More peers than keys: the lines in all stay few, and nothing is lost without a count. */
    unsigned passed = 0;
    for (unsigned i = 0; i < 10000; i++) {
        char who[16];
        snprintf(who, sizeof who, "%u", i);
        passed += log_limit_pass(&l, "refused", who, 2, 200000, &suppressed);
    }
    assert_in_range(passed, KEYS / 2, KEYS + 1);
    *text = 0;
    log_limit_flush(&l, 200000 + LOG_LIMIT_MS);
    unsigned counted = 0;
    const char *others = strstr(text, "of=others peer=\"\" lines=");
    assert_non_null(others);
    assert_int_equal(sscanf(others, "of=others peer=\"\" lines=%u", &counted), 1);
    assert_int_equal(counted, 10000 - passed);
    log_to(NULL, NULL);
}

/* Few bytes stay in memory; more of them lie in a file that has no name. */
static void a_spill_gives_back_what_was_appended(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,       1,       SPILL_MEMORY_BYTES - 1, SPILL_MEMORY_BYTES,
                                   65537,   1 << 20, (1 << 20) + 65536,      (1 << 20) + 65537,
                                   3 << 20, 2999999};
    static uint8_t bytes[3 << 20];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 11);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t step = 1; step < 5000000; step = step * 97 + 1) {
            struct spill s = spill_make(in_root("spill"));
            const uint8_t *data;
            if (step == 1 && sizes[i] > 70000)
                continue;
            for (size_t at = 0, n; at < sizes[i]; at += n) {
                n = sizes[i] - at < step ? sizes[i] - at : step;
                assert_int_equal(spill_add(&s, bytes + at, n), ERR_OK);
            }
            assert_int_equal(s.is_file, sizes[i] > SPILL_MEMORY_BYTES);
            assert_int_equal(spill_end(&s, &data), ERR_OK);
            assert_int_equal(s.count, sizes[i]);
            assert_true(!sizes[i] || memcmp(data, bytes, sizes[i]) == 0);
            spill_close(&s);
            if (file_exists(in_root("spill"))) { /* the directory; the file has no name */
                struct arena a = arena_make(0);
                char **names;
                size_t count;
                assert_int_equal(file_list(in_root("spill"), &a, &names, &count), ERR_OK);
                assert_int_equal(count, 0);
                arena_free(&a);
            }
        }
}

static void a_spill_says_where_the_disk_ended(void **state)
{
    (void)state;
    struct rlimit before, small;
    struct spill s = spill_make(in_root("spill"));
    static uint8_t bytes[4 << 20];
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1500000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum err e = spill_add(&s, bytes, sizeof bytes);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(e, ERR_FULL);
    assert_non_null(strstr(err_message(), "spill: cannot write after 1"));
    spill_close(&s);
    s = spill_make(in_root("spill/none"));
    FILE *f = fopen(in_root("spill/none"), "w"); /* a file where the directory should be */
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_true(spill_add(&s, bytes, sizeof bytes) != ERR_OK);
    spill_close(&s);
    assert_int_equal(file_remove(in_root("spill/none")), ERR_OK);
}

static void clock_waits_in_monotonic_time(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    uint64_t ns = clock_mono_ns(), ms = clock_mono_ms();
    double s = clock_mono_s();
    assert_true(ms >= ns / 1000000 && ms < ns / 1000000 + 5000);
    assert_true(s >= (double)ns * 1e-9 && s < (double)ns * 1e-9 + 5);
    assert_in_range(clock_wall_s() - (int64_t)time(NULL) + 5, 0, 10);
    assert_in_range((int64_t)(clock_wall_ms() / 1000) - (int64_t)time(NULL) + 5, 0, 10);
    /* With a deadline in wall time the wait would end at once. */
    clock_cond_init(&cond);
    pthread_mutex_lock(&mutex);
    assert_int_equal(clock_cond_wait(&cond, &mutex, ms + 30), ETIMEDOUT);
    assert_true(clock_mono_ms() >= ms + 30);
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_keeps_one_sentence),
        cmocka_unit_test(arena_gives_zeroed_aligned_memory),
        cmocka_unit_test(arena_keeps_its_cap),
        cmocka_unit_test(rng_matches_published_vectors),
        cmocka_unit_test(rng_normal_is_normal),
        cmocka_unit_test(rng_ranges),
        cmocka_unit_test(bytes_round_trip_and_stop_at_the_end),
        cmocka_unit_test(digests_match_published_vectors),
        cmocka_unit_test(file_write_replaces_whole),
        cmocka_unit_test(file_errors_name_path_and_reason),
        cmocka_unit_test(file_write_failing_keeps_the_old_file),
        cmocka_unit_test(file_directories),
        cmocka_unit_test(a_spill_gives_back_what_was_appended),
        cmocka_unit_test(a_spill_says_where_the_disk_ended),
        cmocka_unit_test(a_lock_outlives_its_file),
        cmocka_unit_test(a_file_system_without_locks_is_named),
        cmocka_unit_test(log_writes_logfmt),
        cmocka_unit_test(control_characters_are_escaped),
        cmocka_unit_test(the_limiter_counts_what_it_suppresses),
        cmocka_unit_test(clock_waits_in_monotonic_time),
    };
    snprintf(root, sizeof root, "/tmp/atoll_base_XXXXXX");
    if (!mkdtemp(root))
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    if (file_remove_tree(root) != ERR_OK)
        return 1;
    return failures;
}
