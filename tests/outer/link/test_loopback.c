/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this fails: a page without authentication listens where others reach it, or
 * answers another site's script. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "outer/link/loopback.h"

static void only_this_machine(void **state)
{
    static const char *const good[] = {"127.0.0.1:0",    "127.0.0.1:8080", "127.255.255.254:65535",
                                       "localhost:8080", "[::1]:1",        "127.1.2.3:80"};
    static const char *const bad[] = {"",
                                      "127.0.0.1",
                                      "8080",
                                      ":8080",
                                      "0.0.0.0:8080",
                                      "128.0.0.1:80",
                                      "127.0.0.256:80",
                                      "127.0.0.1.evil.example:80",
                                      "127.0.0:80",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:-1",
                                      "127.0.0.1:+80",
                                      "127.0.0.1:80x",
                                      "127.0.0.1:80,0.0.0.0:81",
                                      " 127.0.0.1:80",
                                      "localhost.evil.example:80",
                                      "[::]:80",
                                      "[::ffff:127.0.0.1]:80",
                                      "::1:80",
                                      "127.0.0.1:",
                                      "127.+0.0.1:80"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(loopback_address(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (loopback_address(bad[i]))
            fail_msg("%s is taken for a loopback address", bad[i]);
    assert_true(loopback_host("localhost", 9));
    assert_false(loopback_host("localhostx", 10));
    assert_true(loopback_host("127.0.0.1:80", 9)); /* its first bytes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_this_machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
