/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that runs out in the link: it costs one call, at either end, and the next one goes
 * through. What breaks here is an aggregator that ends because one site's call found no memory.
 */
#include <stdatomic.h>
#include "tests/outer/link/link_fake.h"

void *__real_calloc(size_t n, size_t size);
void *__real_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);

static atomic_int calloc_left; /* the one that makes it 0 fails */
static atomic_bool no_chunk;   /* a buffer of one chunk is not to be had */

void *__wrap_calloc(size_t n, size_t size)
{
    return atomic_fetch_sub(&calloc_left, 1) == 1 ? NULL : __real_calloc(n, size);
}

void *__wrap_malloc(size_t size)
{
    return size == WIRE_CHUNK_BYTES && atomic_load(&no_chunk) ? NULL : __real_malloc(size);
}

static struct fake fake;

static enum err contribute(struct link *l, uint64_t round, const uint8_t *payload, size_t n,
                           struct wire_answer *answer)
{
    struct wire_contribution m = {
        .head = fake_head("a"), .round = round, .payload_bytes = n, .weight = 1};
    m.payload = digest_of(payload, n);
    *answer = (struct wire_answer){0};
    fake.have = 0;
    fake.blocks = (struct blocks){0};
    return l->ops->contribute(l, &m, payload, answer);
}

static void small_calls(void **state)
{
    (void)state;
    struct link *l;
    struct link_server *s = fake_pair(&fake, &l);
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(l, "a", &hello), ERR_OK);
    unsigned here = 0, there = 0;
    for (int i = 1; i <= 5; i++) {
        usleep(50000);
        atomic_store(&calloc_left, i);
        enum err e = fake_say_hello(l, "a", &hello);
        atomic_store(&calloc_left, 0);
        assert_true(e == ERR_OK || e == ERR_LINK || e == ERR_MEMORY);
        here += e == ERR_MEMORY;
        there += e == ERR_LINK; /* asks again later */
        assert_int_equal(fake_say_hello(l, "a", &hello), ERR_OK);
    }
    assert_in_range(here, 1, 2);
    assert_in_range(there, 2, 3); /* the call, in its two parts, and its request */
    l->ops->close(l);
    link_shutdown(s, 1000);
}

static void contributions(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    size_t n = 300000;
    uint8_t *payload = fake_payload(n);
    struct wire_answer answer;
    struct link_server *s = fake_serve(&fake, &port);
    struct link *l = fake_dial(port, "ca.pem", "a");
    atomic_store(&no_chunk, true);
    assert_int_equal(contribute(l, 1, payload, n, &answer), ERR_LINK);
    assert_says("no memory");
    atomic_store(&no_chunk, false);
    assert_int_equal(contribute(l, 1, payload, n, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_RECEIPT);
    unsigned failed = 0;
    for (int i = 1; i <= 6; i++) {
        usleep(50000);
        atomic_store(&calloc_left, i);
        enum err e = contribute(l, (uint64_t)i + 1, payload, n, &answer);
        atomic_store(&calloc_left, 0);
        failed += e != ERR_OK;
        assert_true(e == ERR_OK || e == ERR_LINK || e == ERR_MEMORY);
        assert_int_equal(contribute(l, (uint64_t)i + 1, payload, n, &answer), ERR_OK);
        assert_int_equal(answer.outcome, ROUND_RECEIPT);
        assert_memory_equal(fake.stored, payload, n);
    }
    assert_in_range(failed, 4,
                    6); /* the stream and its call here; call, its core, transfer there */
    l->ops->close(l);
    link_shutdown(s, 1000);
    free(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_calls),
        cmocka_unit_test(contributions),
    };
    return cmocka_run_group_tests(tests, fake_prepare, scratch_close);
}
