/* SPDX-License-Identifier: Apache-2.0 */
/* site.proxy as it is written: what is accepted, what is refused, and that no message holds the
 * password. If this fails, a site sends another user than its operator gave, or a password into a
 * log. */
#include "outer/link/dial.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/clock.h"
#include "outer/link/forward.h"

static void test_good(void **state)
{
    (void)state;
    struct dial_proxy p;
    assert_int_equal(dial_proxy_parse(&p, ""), ERR_OK);
    assert_int_equal(p.kind, DIAL_DIRECT);
    assert_int_equal(dial_proxy_parse(&p, "http://proxy.example:3128/"), ERR_OK);
    assert_int_equal(p.kind, DIAL_CONNECT);
    assert_string_equal(p.host, "proxy.example");
    assert_string_equal(p.port, "3128");
    assert_string_equal(p.user, "");
    assert_string_equal(p.shown, "http://proxy.example:3128");
    assert_int_equal(dial_proxy_parse(&p, "socks5://an%40na:p:w%25@d@[::1]:1080"), ERR_OK);
    assert_int_equal(p.kind, DIAL_SOCKS5);
    assert_string_equal(p.host, "::1");
    assert_string_equal(p.user, "an@na");
    assert_string_equal(p.password, "p:w%@d");
    assert_string_equal(p.shown, "socks5://[::1]:1080");
    dial_proxy_forget(&p);
    assert_string_equal(p.password, "");
}

static void test_bad(void **state)
{
    static const char *const urls[] = {
        "proxy:3128",
        "https://proxy:3128",
        "http://proxy",
        "http://proxy:0",
        "http://proxy:65536",
        "http://proxy:3128/path",
        "http://:3128",
        "http://u:secret%4@p:1",
        "http://u:secret%zz@p:1",
        "http://:secret@p:1",
        "http://u:secret%00@p:1",
        "http://u:secret@a b:1",
        "http://u:secret@p\n:1",
        "socks4://p:1080",
        "http://::1:3128",
        "http://",
        "http://u:secret@",
    };
    char longest[700] = "http://u:secret";
    struct dial_proxy p;
    (void)state;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        assert_int_equal(dial_proxy_parse(&p, urls[i]), ERR_CONFIG);
        assert_null(strstr(err_message(), "secret"));
    }
    memset(longest + strlen(longest), 's', 300);
    strcat(longest, "@p:1");
    assert_int_equal(dial_proxy_parse(&p, longest), ERR_CONFIG);
}

static enum err from_file(struct dial_proxy *p, const char *text, unsigned mode)
{
    char path[] = "/tmp/test_dial_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    assert_int_equal(dial_proxy_parse(p, "http://p:1"), ERR_OK);
    enum err e = dial_proxy_credentials(p, path);
    unlink(path);
    if (e != ERR_OK)
        assert_null(strstr(err_message(), "secret"));
    return e;
}

static void test_file(void **state)
{
    struct dial_proxy p;
    (void)state;
    assert_int_equal(from_file(&p, "anna:secret%41:x\r\nmore\n", 0600), ERR_OK);
    assert_string_equal(p.user, "anna");
    assert_string_equal(p.password, "secret%41:x"); /* as it stands */
    assert_int_equal(from_file(&p, "anna:secret", 0640), ERR_DENIED);
    assert_int_equal(from_file(&p, ":secret", 0600), ERR_INPUT);
    assert_int_equal(from_file(&p, "", 0600), ERR_INPUT);
    assert_int_equal(dial_proxy_parse(&p, ""), ERR_OK);
    assert_int_equal(dial_proxy_credentials(&p, "/tmp/x"), ERR_CONFIG);
    assert_int_equal(dial_proxy_credentials(&p, ""), ERR_OK);
}

static void test_target(void **state)
{
    static const char *const bad[] = {"a.example\r\nX: y:7443",
                                      "a.example",
                                      "a.example:",
                                      ":7443",
                                      "",
                                      "[]:7443",
                                      "[a.example]:7443",
                                      "[fd00::1]",
                                      "[:7443",
                                      "a:b:1",
                                      "h:70000",
                                      "h:-1",
                                      "h:7443 ",
                                      "h:+1",
                                      "h:000007443",
                                      "h:0",
                                      "fd00::1:70000"};
    char host[ADDRESS_HOST_MAX], port[ADDRESS_PORT_MAX];
    (void)state;
    assert_int_equal(address_split("[fd00::1]:7443", 1, host, port), ERR_OK);
    assert_string_equal(host, "fd00::1");
    assert_string_equal(port, "7443");
    assert_int_equal(address_split("[fe80::1%eth0]:7443", 1, host, port), ERR_OK);
    assert_string_equal(host, "fe80::1%eth0");
    assert_int_equal(address_split("h:0", 0, host, port), ERR_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(address_split(bad[i], 1, host, port), ERR_CONFIG);
        assert_null(strstr(err_message(), "brackets"));
    }
    /* Without brackets: refused with the way to write it. */
    assert_int_equal(address_split("fd00::1:7443", 1, host, port), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "write [fd00::1]:7443"));
    assert_int_equal(address_split("::1:0", 0, host, port), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "write [::1]:0"));
}

struct far { /* a proxy that does one thing with its first connection */
    int listener, port;
    const char *answer; /* NULL: none */
    bool closes;
};

static void *far_main(void *arg)
{
    struct far *f = arg;
    char text[512];
    int fd = accept(f->listener, NULL, NULL);
    ssize_t n = read(fd, text, sizeof text);
    if (f->answer)
        n = write(fd, f->answer, strlen(f->answer));
    while (!f->closes && n > 0)
        n = read(fd, text, sizeof text); /* until the other end gives up */
    close(fd);
    return NULL;
}

/* What dial_connect says of it; milliseconds that it took. */
static enum err ask(struct far *f, uint32_t timeout_ms, int stop, uint64_t *took_ms)
{
    struct dial_proxy p;
    char url[64];
    pthread_t thread;
    int fd;
    assert_int_equal(forward_listen(&f->listener, "127.0.0.1:0", &f->port), ERR_OK);
    fcntl(f->listener, F_SETFL, 0);
    pthread_create(&thread, NULL, far_main, f);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", f->port);
    assert_int_equal(dial_proxy_parse(&p, url), ERR_OK);
    struct dial_question q = {"a.example:7443", &p, timeout_ms, stop};
    uint64_t begin = clock_mono_ms();
    enum err e = dial_connect(&fd, &q, NULL);
    *took_ms = clock_mono_ms() - begin;
    if (e == ERR_OK)
        close(fd);
    pthread_join(thread, NULL);
    close(f->listener);
    return e;
}

/* A proxy that never answers costs the timeout and no more; a loop that ends does not wait for it.
 */
static void test_silent(void **state)
{
    uint64_t took;
    int ends[2];
    (void)state;
    assert_int_equal(ask(&(struct far){0}, 300, 0, &took), ERR_LINK);
    assert_non_null(strstr(err_message(), "no answer in time"));
    assert_true(took >= 300 && took < 5000);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(ask(&(struct far){0}, 20000, ends[0], &took), ERR_LINK);
    assert_true(took < 5000);
    close(ends[0]);
    close(ends[1]);
}

/* Answers that break off, that never end, and that are longer than any header. */
static void test_answers(void **state)
{
    uint64_t took;
    char longest[10000];
    (void)state;
    assert_int_equal(ask(&(struct far){.answer = "HTTP/1.1 200 OK\r\n\r\n"}, 5000, 0, &took),
                     ERR_OK);
    assert_int_equal(
        ask(&(struct far){.answer = "HTTP/1.1 200 OK\r\n", .closes = true}, 5000, 0, &took),
        ERR_LINK);
    assert_non_null(strstr(err_message(), "closed the connection before its answer was complete"));
    assert_int_equal(ask(&(struct far){.answer = "HTTP/1.1 200 OK\r\nX: y"}, 300, 0, &took),
                     ERR_LINK);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    memcpy(longest, "HTTP/1.1 ", 9);
    assert_int_equal(ask(&(struct far){.answer = longest}, 5000, 0, &took), ERR_LINK);
    assert_non_null(strstr(err_message(), "bytes of header"));
    assert_int_equal(ask(&(struct far){.answer = "HTTP/1.1 \r\n\r\n"}, 5000, 0, &took), ERR_LINK);
    assert_int_equal(ask(&(struct far){.answer = "HTTP/1.1 407\r\n\r\n"}, 5000, 0, &took),
                     ERR_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_bad),
        cmocka_unit_test(test_file),   cmocka_unit_test(test_target),
        cmocka_unit_test(test_silent), cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
