/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a link of which a tenth is used, and no message says why; or advice
 * that is already followed. */
#include "tests/inner/scratch.h"
#include "outer/link/tcp.h"

static char text[2048];

static void put(const char *name, const char *value)
{
    scratch_write(name, value, strlen(value));
}

static void kernel(const char *congestion, const char *most, const char *idle)
{
    char buffers[64];
    snprintf(buffers, sizeof buffers, "4096\t131072\t%s\n", most);
    put("tcp_congestion_control", congestion);
    put("tcp_wmem", buffers);
    put("tcp_rmem", buffers);
    put("tcp_slow_start_after_idle", idle);
}

static const char *advice(double mbit, double rtt_ms, unsigned streams)
{
    struct tcp_settings t;
    memset(text, 0, sizeof text);
    FILE *f = fmemopen(text, sizeof text - 1, "w");
    assert_non_null(f);
    tcp_read(&t, scratch_root);
    tcp_advise(&t, mbit * 1e6, rtt_ms / 1e3, streams, f);
    fclose(f);
    return text;
}

/* 1 Gbit/s, 100 ms: 12.5 MB under way, so 25 MB of buffers, and 64 MiB that are recommended. */
static void a_host_as_it_comes(void **state)
{
    (void)state;
    kernel("cubic\n", "4194304", "1\n");
    const char *said = advice(1000, 100, 4);
    assert_non_null(strstr(said, "12207 KiB are in flight"));
    assert_non_null(strstr(
        said, "tcp_wmem=\"4096 65536 67108864\" net.ipv4.tcp_rmem=\"4096 131072 67108864\""));
    assert_non_null(strstr(said, "tcp_congestion_control=bbr"));
    assert_non_null(strstr(said, "tcp_slow_start_after_idle=0"));
    assert_null(strstr(said, "site.streams"));
    assert_null(strstr(advice(100, 50, 4), "under way")); /* 0.6 MB */
    assert_non_null(strstr(text, "bbr"));
    assert_string_equal(advice(1000, 0.5, 4), ""); /* the same hall */
}

static void a_host_that_is_set_up(void **state)
{
    (void)state;
    kernel("bbr\n", "67108864", "1\n");
    assert_string_equal(advice(1000, 100, 1), "");
    assert_non_null(strstr(advice(1000, 100, 4), "site.streams: auto"));
    kernel("cubic\n", "67108864", "0\n"); /* several lose less at once */
    assert_null(strstr(advice(1000, 100, 4), "site.streams"));
    assert_null(strstr(text, "idle"));
    kernel("bbr\n", "4194304", "1\n"); /* one connection is not enough, seven are */
    assert_null(strstr(advice(1000, 100, 7), "site.streams"));
    assert_null(strstr(text, "sysctl"));
    assert_non_null(strstr(advice(1000, 100, 5), "tcp_wmem"));
}

static void what_is_unknown_is_not_advised_on(void **state)
{
    (void)state;
    kernel("cubic\n", "4194304", "1\n");
    assert_int_equal(remove(scratch("tcp_wmem")), 0);
    assert_string_equal(advice(1000, 100, 4), "");
    kernel("cubic\n", "", "1\n");
    assert_string_equal(advice(1000, 100, 4), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_as_it_comes),
        cmocka_unit_test(a_host_that_is_set_up),
        cmocka_unit_test(what_is_unknown_is_not_advised_on),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
