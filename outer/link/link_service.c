/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/link.h"
#include <stdio.h>
#include <string.h>

void link_service_chunk(const struct link_service *s, void *upload, uint64_t offset,
                        const uint8_t *data, size_t n, struct wire_answer *answer)
{
    *answer = (struct wire_answer){.offset = offset};
    if (n == 0)
        return;
    s->chunk(s->self, upload, offset, data, n, answer);
    if (answer->outcome == ROUND_PENDING)
        s->stored(s->self, upload, offset, n, s->store(s->self, upload, offset, data, n), answer);
}

void link_service_finish(const struct link_service *s, void *upload, bool complete,
                         struct wire_answer *answer)
{
    s->finish(s->self, upload, complete, answer);
    if (answer->outcome != ROUND_PENDING)
        return;
    s->verify(s->self, upload);
    s->verified(s->self, upload, answer);
}

uint64_t link_service_work(const struct link_service *s, bool *stop)
{
    uint64_t wake_ms = s->work(s->self, stop);
    while (s->commit(s->self))
        wake_ms = s->work(s->self, stop);
    return wake_ms;
}

bool link_service_no_commit(void *self)
{
    (void)self;
    return false;
}

enum err link_service_no_store(void *self, void *upload, uint64_t offset, const uint8_t *data,
                               size_t n)
{
    (void)self, (void)upload, (void)offset, (void)data, (void)n;
    ASSERT(false && "this service stores in chunk()");
    return ERR_INTERNAL;
}

void link_service_no_stored(void *self, void *upload, uint64_t offset, size_t n, enum err e,
                            struct wire_answer *answer)
{
    (void)self, (void)upload, (void)offset, (void)n, (void)e, (void)answer;
    ASSERT(false && "this service stores in chunk()");
}

void link_service_no_verify(void *self, void *upload)
{
    (void)self, (void)upload;
    ASSERT(false && "this service answers in finish()");
}

void link_service_no_verified(void *self, void *upload, struct wire_answer *answer)
{
    (void)self, (void)upload, (void)answer;
    ASSERT(false && "this service answers in finish()");
}

void link_service_mask(const struct link_service *s, const char *peer, const struct wire_mask *m,
                       struct wire_mask_answer *answer)
{
    memset(&answer->answer, 0, sizeof answer->answer);
    answer->body_bytes = 0;
    answer->number = 0;
    if (s->mask) {
        s->mask(s->self, peer, m, answer);
        return;
    }
    answer->answer.outcome = ROUND_INVALID;
    snprintf(answer->answer.text, sizeof answer->answer.text,
             "this aggregator has no secure aggregation");
}

bool link_service_holds(const struct wire_poll_answer *answer)
{
    return answer->answer.outcome == ROUND_PENDING && answer->wants == WIRE_MASK_NONE;
}
