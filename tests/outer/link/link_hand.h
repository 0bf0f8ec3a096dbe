/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_HAND_H
#define LINK_HAND_H
/* Calls as no site of ours would make them: a channel and one call at a time, message by message,
 * with gRPC's own status at the end. */
#include <grpc/grpc_security.h>
#include "outer/link/grpc/link_call.h"
#include "tests/outer/link/link_fake.h"

struct hand {
    grpc_completion_queue *cq;
    grpc_channel *channel;
};

static inline void hand_open(struct hand *h, int port, const char *name)
{
    struct tls_pem pem;
    char target[32];
    struct link_tls files = fake_tls("ca.pem", name);
    assert_int_equal(link_core_open(&h->cq, true), ERR_OK);
    assert_int_equal(tls_load(&pem, &files), ERR_OK);
    snprintf(target, sizeof target, "127.0.0.1:%d", port);
    grpc_ssl_pem_key_cert_pair pair = {pem.key, pem.certificate};
    grpc_arg own[] = {{GRPC_ARG_INTEGER, (char *)"grpc.use_local_subchannel_pool", {.integer = 1}}};
    grpc_channel_args args = {1, own};
    grpc_channel_credentials *credentials =
        grpc_ssl_credentials_create_ex(pem.ca, &pair, NULL, NULL);
    h->channel = grpc_channel_create(target, credentials, &args);
    grpc_channel_credentials_release(credentials);
    tls_forget(&pem);
}

static inline struct link_call *hand_call(struct hand *h, const char *path, uint64_t timeout_ms)
{
    void *method = grpc_channel_register_call(h->channel, path, NULL, NULL);
    struct link_call *c = link_call_open(h->channel, method, h->cq, timeout_ms, NULL);
    assert_non_null(c);
    return c;
}

/* The status of a call that ends by itself or at its deadline; *message: its answer, if any. */
static inline grpc_status_code hand_end(struct link_call *c, grpc_byte_buffer **message)
{
    grpc_byte_buffer *bb = link_call_recv(c);
    link_call_wait(c, &c->status);
    grpc_status_code code = c->end.code;
    if (message)
        *message = bb;
    else if (bb)
        grpc_byte_buffer_destroy(bb);
    link_call_close(c);
    return code;
}

static inline void hand_close(struct hand *h)
{
    grpc_channel_destroy(h->channel);
    link_core_close();
}

#endif
