/* SPDX-License-Identifier: Apache-2.0 */
/* Structs <-> protobuf. The only file that includes protobuf-c. Decoding takes memory from the
 * caller's capped arena, and every text, digest, count and enumeration is checked before it reaches
 * a struct.
 */
#include "outer/wire/wire.h"
#include "outer/codec/codec.h"
#include <math.h>
#include <string.h>
#include "proto/atoll.pb-c.h"

typedef ProtobufCBinaryData blob;

/* ---- encoding ---- */

/* A length that a decoder would refuse is a bug (assertion). */
static blob text_out(const char *s, size_t capacity)
{
    size_t n = strnlen(s, capacity);
    ASSERT(n < capacity);
    return (blob){n, (uint8_t *)(uintptr_t)s};
}

static blob digest_out(const struct digest *d)
{
    return (blob){digest_zero(d) ? 0 : sizeof d->bytes, (uint8_t *)(uintptr_t)d->bytes};
}

static Atoll__Head head_out(const struct wire_head *h)
{
    Atoll__Head p = ATOLL__HEAD__INIT;
    p.run = text_out(h->run, sizeof h->run);
    p.site = text_out(h->site, sizeof h->site);
    p.config = digest_out(&h->config);
    p.roster_version = h->roster_version;
    p.term = h->term;
    p.incarnation = h->incarnation;
    p.instance = h->instance;
    p.aggregator = h->aggregator;
    return p;
}

static Atoll__Answer answer_out(const struct wire_answer *m)
{
    Atoll__Answer p = ATOLL__ANSWER__INIT;
    p.outcome = m->outcome;
    p.text = text_out(m->text, sizeof m->text);
    p.offset = m->offset;
    p.round = m->round;
    p.retry_ms = m->retry_ms;
    p.final = m->final;
    p.clock_ms = m->clock_ms;
    ASSERT(m->blocks.count <= BLOCKS_MAX);
    p.n_stored = m->outcome == ROUND_RESUME ? m->blocks.count : 0;
    p.stored = (uint64_t *)(uintptr_t)m->blocks.stored;
    return p;
}

enum { PROOF_BYTES = 3 * 8 + SIGNER_BYTES };

static blob proof_out(const struct wire_proof *p, uint8_t out[PROOF_BYTES])
{
    struct bytes_writer w = bytes_writer(out, PROOF_BYTES);
    bytes_put_u64(&w, p->term);
    bytes_put_u64(&w, p->instance);
    bytes_put_u64(&w, p->unix_ms);
    bytes_put(&w, p->signature, sizeof p->signature);
    return (blob){p->there ? PROOF_BYTES : 0, out};
}

static blob announcement_out(const struct wire_announcement *a)
{
    ASSERT(a->size_bytes <= sizeof a->bytes);
    return (blob){a->size_bytes, (uint8_t *)(uintptr_t)a->bytes};
}

/* protobuf-c's form of a repeated message: list[count] points to parts[count]. */
static void states_out(Atoll__FragmentState *parts, Atoll__FragmentState **list,
                       uint8_t (*proofs)[PROOF_BYTES], const struct wire_fragment_state *from,
                       size_t count)
{
    ASSERT(count <= ROUND_FRAGMENTS_MAX);
    for (size_t i = 0; i < count; i++) {
        parts[i] = (Atoll__FragmentState)ATOLL__FRAGMENT_STATE__INIT;
        parts[i].round = from[i].round;
        parts[i].state = digest_out(&from[i].state);
        parts[i].manifest = digest_out(&from[i].manifest);
        parts[i].accepted = digest_out(&from[i].accepted);
        parts[i].sealed = from[i].sealed;
        parts[i].first = from[i].first;
        parts[i].final = from[i].final;
        parts[i].step_back = from[i].step_back;
        parts[i].elsewhere = from[i].elsewhere;
        parts[i].proof = proof_out(&from[i].proof, proofs[i]);
        list[i] = &parts[i];
    }
}

struct packed {
    enum wire_kind kind;
    struct arena *arena;
    uint8_t *data;
    size_t size_bytes;
};

static enum err message_pack(struct packed *to, const ProtobufCMessage *m)
{
    to->size_bytes = protobuf_c_message_get_packed_size(m);
    ASSERT(to->size_bytes <= wire_largest(to->kind));
    TRY_ALLOC(to->data = arena_alloc(to->arena, to->size_bytes));
    size_t written = protobuf_c_message_pack(m, to->data);
    ASSERT(written == to->size_bytes);
    return ERR_OK;
}

static enum err hello_encode(struct packed *to, const void *message)
{
    const struct wire_hello *m = message;
    Atoll__FragmentState parts[ROUND_FRAGMENTS_MAX], *list[ROUND_FRAGMENTS_MAX];
    uint8_t proofs[ROUND_FRAGMENTS_MAX][PROOF_BYTES];
    Atoll__HelloRequest p = ATOLL__HELLO_REQUEST__INIT;
    Atoll__Head head = head_out(&m->head);
    p.head = &head;
    p.major = m->major;
    p.minor = m->minor;
    p.config_text = text_out(m->config ? m->config : "", WIRE_CONFIG_MAX);
    p.has_state = m->has_state;
    ASSERT(m->identity_bytes <= sizeof m->identity);
    p.identity = (blob){m->identity_bytes, (uint8_t *)(uintptr_t)m->identity};
    p.announcement = announcement_out(&m->announcement);
    states_out(parts, list, proofs, m->fragments, m->fragment_count);
    p.n_fragments = m->fragment_count;
    p.fragments = list;
    return message_pack(to, &p.base);
}

static enum err hello_answer_encode(struct packed *to, const void *message)
{
    const struct wire_hello_answer *m = message;
    Atoll__FragmentState parts[ROUND_FRAGMENTS_MAX], *list[ROUND_FRAGMENTS_MAX];
    uint8_t proofs[ROUND_FRAGMENTS_MAX][PROOF_BYTES];
    Atoll__HelloAnswer p = ATOLL__HELLO_ANSWER__INIT;
    uint64_t ends[WIRE_ENDS_MAX];
    ASSERT(m->end_count <= WIRE_ENDS_MAX);
    for (uint32_t i = 0; i < m->end_count; i++)
        ends[i] = (uint64_t)m->ends[i];
    p.outcome = m->outcome;
    p.text = text_out(m->text, sizeof m->text);
    p.minor = m->minor;
    p.term = m->term;
    p.instance = m->instance;
    p.roster_version = m->roster_version;
    states_out(parts, list, proofs, m->fragments, m->fragment_count);
    p.n_fragments = m->fragment_count;
    p.fragments = list;
    p.n_ends = m->end_count;
    p.ends = ends;
    Atoll__Roster roster = ATOLL__ROSTER__INIT;
    roster.site = m->site;
    roster.sites = m->sites;
    p.roster = m->roster_version > 1 ? &roster : NULL;
    p.announcement = announcement_out(&m->announcement);
    return message_pack(to, &p.base);
}

static enum err poll_encode(struct packed *to, const void *message)
{
    const struct wire_poll *m = message;
    Atoll__PollRequest p = ATOLL__POLL_REQUEST__INIT;
    Atoll__Head head = head_out(&m->head);
    p.head = &head;
    p.fragment = m->fragment;
    p.round = m->round;
    p.hold_ms = m->hold_ms;
    return message_pack(to, &p.base);
}

static enum err poll_answer_encode(struct packed *to, const void *message)
{
    const struct wire_poll_answer *m = message;
    uint8_t manifest[MANIFEST_BYTES_MAX];
    Atoll__PollAnswer p = ATOLL__POLL_ANSWER__INIT;
    Atoll__Answer answer = answer_out(&m->answer);
    p.answer = &answer;
    if (m->answer.outcome == ROUND_COMMIT)
        p.manifest = (blob){manifest_encode(&m->manifest, manifest), manifest};
    p.wants = (uint32_t)m->wants;
    ASSERT(m->body_bytes <= WIRE_MASK_ANSWER_MAX);
    p.body = (blob){m->wants ? m->body_bytes : 0, (uint8_t *)(uintptr_t)m->body};
    return message_pack(to, &p.base);
}

static enum err mask_encode(struct packed *to, const void *message)
{
    const struct wire_mask *m = message;
    Atoll__MaskRequest p = ATOLL__MASK_REQUEST__INIT;
    Atoll__Head head = head_out(&m->head);
    ASSERT(m->body_bytes <= WIRE_MASK_REQUEST_MAX);
    p.head = &head;
    p.step = (uint32_t)m->step;
    p.fragment = m->fragment;
    p.round = m->round;
    p.first = m->first;
    p.body = (blob){m->body_bytes, (uint8_t *)(uintptr_t)m->body};
    return message_pack(to, &p.base);
}

static enum err mask_answer_encode(struct packed *to, const void *message)
{
    const struct wire_mask_answer *m = message;
    Atoll__MaskAnswer p = ATOLL__MASK_ANSWER__INIT;
    Atoll__Answer answer = answer_out(&m->answer);
    ASSERT(m->body_bytes <= WIRE_MASK_ANSWER_MAX);
    p.answer = &answer;
    p.number = m->number;
    p.body = (blob){m->body_bytes, (uint8_t *)(uintptr_t)m->body};
    return message_pack(to, &p.base);
}

static enum err report_encode(struct packed *to, const void *message)
{
    const struct wire_report *m = message;
    Atoll__ReportRequest p = ATOLL__REPORT_REQUEST__INIT;
    Atoll__Head head = head_out(&m->head);
    p.head = &head;
    p.fragment = m->fragment;
    p.round = m->round;
    p.state = digest_out(&m->state);
    p.step = m->step;
    p.loss = m->loss;
    p.tokens_per_second = m->tokens_per_second;
    p.tokens = m->tokens;
    p.bytes_up = m->bytes_up;
    p.bytes_down = m->bytes_down;
    return message_pack(to, &p.base);
}

static enum err leave_encode(struct packed *to, const void *message)
{
    const struct wire_leave *m = message;
    Atoll__LeaveRequest p = ATOLL__LEAVE_REQUEST__INIT;
    Atoll__Head head = head_out(&m->head);
    p.head = &head;
    p.text = text_out(m->text, sizeof m->text);
    return message_pack(to, &p.base);
}

static enum err operate_encode(struct packed *to, const void *message)
{
    const struct wire_operate *m = message;
    Atoll__OperateRequest p = ATOLL__OPERATE_REQUEST__INIT;
    p.act = (uint32_t)m->act;
    p.site = text_out(m->site, sizeof m->site);
    p.fragment = m->fragment;
    p.round = m->round;
    p.to = m->to;
    p.version = m->version;
    p.setting = text_out(m->setting, sizeof m->setting);
    return message_pack(to, &p.base);
}

static enum err upload_encode(struct packed *to, const void *message)
{
    const struct wire_contribution *m = message;
    static const uint8_t unsigned_[sizeof m->signature];
    Atoll__Offer offer = ATOLL__OFFER__INIT;
    Atoll__Head head = head_out(&m->head);
    offer.head = &head;
    offer.fragment = m->fragment;
    offer.round = m->round;
    offer.codec = m->codec;
    offer.payload_bytes = m->payload_bytes;
    offer.payload = digest_out(&m->payload);
    offer.parent = digest_out(&m->parent);
    offer.grid = digest_out(&m->grid);
    offer.weight = m->weight;
    offer.data_cursor = m->data_cursor;
    offer.max_local_steps_offline = m->max_local_steps_offline;
    offer.residual_ratio = m->residual_ratio;
    offer.charged = m->charged;
    offer.supply = m->supply;
    offer.trained_s = m->pace.trained_s;
    offer.waited_s = m->pace.waited_s;
    offer.exchange_s = m->pace.exchange_s;
    offer.transfer = m->transfer;
    offer.stream = m->stream;
    if (memcmp(m->signature, unsigned_, sizeof unsigned_) != 0)
        offer.signature = (blob){sizeof m->signature, (uint8_t *)(uintptr_t)m->signature};
    Atoll__Upload p = ATOLL__UPLOAD__INIT;
    p.offer = &offer;
    return message_pack(to, &p.base);
}

static enum err fetch_encode(struct packed *to, const void *message)
{
    const struct wire_fetch *m = message;
    Atoll__FetchRequest p = ATOLL__FETCH_REQUEST__INIT;
    Atoll__Head head = head_out(&m->head);
    p.head = &head;
    p.what = m->what;
    p.fragment = m->fragment;
    p.round = m->round;
    p.offset = m->offset;
    p.size = m->size_bytes;
    p.chunk = m->chunk_bytes;
    return message_pack(to, &p.base);
}

static enum err download_encode(struct packed *to, const void *message)
{
    Atoll__Answer answer = answer_out(message);
    Atoll__Download p = ATOLL__DOWNLOAD__INIT;
    p.answer = &answer;
    return message_pack(to, &p.base);
}

static enum err answer_encode(struct packed *to, const void *message)
{
    Atoll__Answer p = answer_out(message);
    return message_pack(to, &p.base);
}

/* ---- decoding ---- */

/* Length of the UTF-8 sequence at p, at most n bytes: 0 when malformed, overlong, a surrogate or
 * past U+10FFFF. */
static size_t wire_utf8_length(const uint8_t *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    size_t length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool bad = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
               (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f);
    return bad ? 0 : length;
}

static enum err text_check(blob in, size_t capacity, const char *what)
{
    if (in.len >= capacity)
        return err_set(ERR_PROTO, "%s of %zu bytes, at most %zu are allowed", what, in.len,
                       capacity - 1);
    for (size_t at = 0, n; at < in.len; at += n) {
        n = wire_utf8_length(in.data + at, in.len - at);
        if (n == 0 || in.data[at] == 0)
            return err_set(ERR_PROTO, "%s is not UTF-8 text, at byte %zu", what, at);
    }
    return ERR_OK;
}

static enum err text_in(char *out, size_t capacity, blob in, const char *what)
{
    TRY(text_check(in, capacity, what));
    if (in.len)
        memcpy(out, in.data, in.len);
    memset(out + in.len, 0, capacity - in.len);
    return ERR_OK;
}

static enum err digest_in(struct digest *out, blob in, const char *what)
{
    *out = (struct digest){0};
    if (in.len != 0 && in.len != sizeof out->bytes)
        return err_set(ERR_PROTO, "%s of %zu bytes, a digest has %zu", what, in.len,
                       sizeof out->bytes);
    if (in.len)
        memcpy(out->bytes, in.data, in.len);
    return ERR_OK;
}

static enum err outcome_in(enum round_outcome *out, uint32_t in)
{
    if (in >= ROUND_OUTCOMES || in == ROUND_ABORTED)
        return err_set(ERR_PROTO, "outcome %u is unknown to this version", in);
    *out = (enum round_outcome)in;
    return ERR_OK;
}

static enum err fragment_in(uint32_t *out, uint32_t in)
{
    if (in >= ROUND_FRAGMENTS_MAX)
        return err_set(ERR_PROTO, "fragment %u, at most %d are possible", in, ROUND_FRAGMENTS_MAX);
    *out = in;
    return ERR_OK;
}

static enum err head_in(struct wire_head *out, const Atoll__Head *p)
{
    if (!p)
        return err_set(ERR_PROTO, "the message has no head");
    TRY(text_in(out->run, sizeof out->run, p->run, "run"));
    TRY(text_in(out->site, sizeof out->site, p->site, "site"));
    TRY(digest_in(&out->config, p->config, "configuration digest"));
    out->roster_version = p->roster_version;
    out->term = p->term;
    out->incarnation = p->incarnation;
    out->instance = p->instance;
    out->aggregator = p->aggregator;
    out->certificate = (struct wire_certificate){0};
    return ERR_OK;
}

static enum err answer_in(struct wire_answer *out, const Atoll__Answer *p)
{
    if (!p)
        return err_set(ERR_PROTO, "the message has no answer");
    TRY(outcome_in(&out->outcome, p->outcome));
    TRY(text_in(out->text, sizeof out->text, p->text, "text"));
    out->offset = p->offset;
    out->round = p->round;
    out->retry_ms = p->retry_ms;
    out->final = p->final;
    out->clock_ms = p->clock_ms;
    if (p->n_stored > BLOCKS_MAX)
        return err_set(ERR_PROTO, "%zu blocks, at most %d are possible", p->n_stored, BLOCKS_MAX);
    if (p->n_stored)
        memcpy(out->blocks.stored, p->stored, p->n_stored * sizeof *p->stored);
    out->blocks.count = (uint32_t)p->n_stored;
    return ERR_OK;
}

static enum err proof_in(struct wire_proof *out, blob in)
{
    if (in.len != 0 && in.len != PROOF_BYTES)
        return err_set(ERR_PROTO, "a proof of %zu bytes, it has %d", in.len, PROOF_BYTES);
    struct bytes_reader r = bytes_reader(in.data, in.len);
    out->there = in.len > 0;
    if (!out->there)
        return ERR_OK;
    out->term = bytes_get_u64(&r);
    out->instance = bytes_get_u64(&r);
    out->unix_ms = bytes_get_u64(&r);
    bytes_get(&r, out->signature, sizeof out->signature);
    return ERR_OK;
}

static enum err bytes_in(uint8_t *out, size_t capacity, size_t *size, blob in, const char *what)
{
    if (in.len > capacity)
        return err_set(ERR_PROTO, "%s of %zu bytes, at most %zu are allowed", what, in.len,
                       capacity);
    if (in.len)
        memcpy(out, in.data, in.len);
    *size = in.len;
    return ERR_OK;
}

static enum err announcement_in(struct wire_announcement *out, blob in)
{
    return bytes_in(out->bytes, sizeof out->bytes, &out->size_bytes, in, "announcement");
}

static enum err states_in(struct wire_fragment_state *out, uint32_t *count,
                          Atoll__FragmentState *const *list, size_t n)
{
    if (n > ROUND_FRAGMENTS_MAX)
        return err_set(ERR_PROTO, "%zu fragments, at most %d are possible", n, ROUND_FRAGMENTS_MAX);
    for (size_t i = 0; i < n; i++) {
        out[i].round = list[i]->round;
        TRY(digest_in(&out[i].state, list[i]->state, "state"));
        TRY(digest_in(&out[i].manifest, list[i]->manifest, "manifest digest"));
        TRY(digest_in(&out[i].accepted, list[i]->accepted, "accepted payload"));
        out[i].sealed = list[i]->sealed;
        out[i].first = list[i]->first;
        out[i].final = list[i]->final;
        out[i].step_back = list[i]->step_back;
        out[i].elsewhere = list[i]->elsewhere;
        TRY(proof_in(&out[i].proof, list[i]->proof));
    }
    *count = (uint32_t)n;
    return ERR_OK;
}

static enum err hello_decode(void *message, const void *unpacked, struct arena *a)
{
    struct wire_hello *m = message;
    const Atoll__HelloRequest *p = unpacked;
    TRY(head_in(&m->head, p->head));
    TRY(text_check(p->config_text, WIRE_CONFIG_MAX, "configuration text"));
    TRY_ALLOC(m->config = arena_string(a, (const char *)p->config_text.data, p->config_text.len));
    m->major = p->major;
    m->minor = p->minor;
    m->has_state = p->has_state;
    TRY(bytes_in(m->identity, sizeof m->identity, &m->identity_bytes, p->identity, "identity"));
    TRY(announcement_in(&m->announcement, p->announcement));
    return states_in(m->fragments, &m->fragment_count, p->fragments, p->n_fragments);
}

/* Former values of train.steps: at least 1 and ascending, as schedule.h requires. */
static enum err former_steps_read(struct wire_hello_answer *m, const uint64_t *ends, size_t n)
{
    if (n > WIRE_ENDS_MAX)
        return err_set(ERR_PROTO, "%zu former values of train.steps, at most %d are possible", n,
                       WIRE_ENDS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (ends[i] > INT64_MAX || ends[i] <= (i ? ends[i - 1] : 0))
            return err_set(ERR_PROTO, "the former values of train.steps do not grow");
        m->ends[i] = (int64_t)ends[i];
    }
    m->end_count = (uint32_t)n;
    return ERR_OK;
}

static enum err hello_answer_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    struct wire_hello_answer *m = message;
    const Atoll__HelloAnswer *p = unpacked;
    TRY(outcome_in(&m->outcome, p->outcome));
    TRY(text_in(m->text, sizeof m->text, p->text, "text"));
    m->minor = p->minor;
    m->term = p->term;
    m->instance = p->instance;
    m->roster_version = p->roster_version;
    if (p->roster) {
        m->site = p->roster->site;
        m->sites = p->roster->sites;
    }
    if (m->site >= ROUND_SITES_MAX || m->sites > ROUND_SITES_MAX ||
        ((p->roster || m->roster_version > 1) && !m->sites))
        return err_set(ERR_PROTO, "site %u of a roster of %u", m->site, m->sites);
    TRY(former_steps_read(m, p->ends, p->n_ends));
    TRY(announcement_in(&m->announcement, p->announcement));
    return states_in(m->fragments, &m->fragment_count, p->fragments, p->n_fragments);
}

static enum err poll_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    struct wire_poll *m = message;
    const Atoll__PollRequest *p = unpacked;
    m->round = p->round;
    m->hold_ms = p->hold_ms;
    TRY(fragment_in(&m->fragment, p->fragment));
    return head_in(&m->head, p->head);
}

static enum err mask_step_in(enum wire_mask_step *out, uint32_t in)
{
    if (in > WIRE_MASK_LAST)
        return err_set(ERR_PROTO, "step %u of secure aggregation, which there is not", in);
    *out = (enum wire_mask_step)in;
    return ERR_OK;
}

static enum err mask_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a; /* the body is in the arena */
    struct wire_mask *m = message;
    const Atoll__MaskRequest *p = unpacked;
    if (p->body.len > WIRE_MASK_REQUEST_MAX)
        return err_set(ERR_PROTO, "a body of %zu bytes, at most %d are allowed", p->body.len,
                       WIRE_MASK_REQUEST_MAX);
    m->round = p->round;
    m->first = p->first;
    m->body = p->body.data;
    m->body_bytes = p->body.len;
    TRY(mask_step_in(&m->step, p->step));
    TRY(fragment_in(&m->fragment, p->fragment));
    return head_in(&m->head, p->head);
}

static enum err mask_answer_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    struct wire_mask_answer *m = message;
    const Atoll__MaskAnswer *p = unpacked;
    m->number = p->number;
    TRY(bytes_in(m->body, sizeof m->body, &m->body_bytes, p->body, "body"));
    return answer_in(&m->answer, p->answer);
}

static enum err poll_answer_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    struct wire_poll_answer *m = message;
    const Atoll__PollAnswer *p = unpacked;
    TRY(answer_in(&m->answer, p->answer));
    TRY(mask_step_in(&m->wants, p->wants));
    TRY(bytes_in(m->body, sizeof m->body, &m->body_bytes, p->body, "body"));
    if (m->answer.outcome != ROUND_COMMIT)
        return ERR_OK;
    if (!manifest_decode(&m->manifest, p->manifest.data, p->manifest.len))
        return err_set(ERR_PROTO, "the manifest is malformed");
    return ERR_OK;
}

static enum err report_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    struct wire_report *m = message;
    const Atoll__ReportRequest *p = unpacked;
    TRY(fragment_in(&m->fragment, p->fragment));
    TRY(digest_in(&m->state, p->state, "state"));
    m->round = p->round;
    m->step = p->step;
    m->loss = p->loss;
    m->tokens_per_second = p->tokens_per_second;
    m->tokens = p->tokens;
    m->bytes_up = p->bytes_up;
    m->bytes_down = p->bytes_down;
    return head_in(&m->head, p->head);
}

static enum err leave_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    struct wire_leave *m = message;
    const Atoll__LeaveRequest *p = unpacked;
    TRY(text_in(m->text, sizeof m->text, p->text, "text"));
    return head_in(&m->head, p->head);
}

static enum err operate_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    struct wire_operate *m = message;
    const Atoll__OperateRequest *p = unpacked;
    if (p->act > WIRE_ACT_LAST)
        return err_set(ERR_PROTO, "an operator's act %u, which there is not", p->act);
    m->certificate = (struct wire_certificate){0};
    m->act = (enum wire_act)p->act;
    m->round = p->round;
    m->to = p->to;
    m->version = p->version;
    TRY(text_in(m->setting, sizeof m->setting, p->setting, "setting"));
    TRY(text_in(m->site, sizeof m->site, p->site, "site"));
    return fragment_in(&m->fragment, p->fragment);
}

/* One that nothing follows from is not known. */
static struct wire_pace pace_in(const Atoll__Offer *p)
{
    bool good = isfinite(p->trained_s) && p->trained_s > 0 && isfinite(p->waited_s) &&
                p->waited_s >= 0 && isfinite(p->exchange_s) && p->exchange_s >= 0;
    return good ? (struct wire_pace){p->trained_s, p->waited_s, p->exchange_s}
                : (struct wire_pace){0};
}

static enum err upload_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    struct wire_contribution *m = message;
    const Atoll__Upload *upload = unpacked;
    const Atoll__Offer *p = upload->offer;
    if (!p || upload->data.len)
        return err_set(ERR_PROTO, "the first message of a contribution must be its offer, alone");
    TRY(head_in(&m->head, p->head));
    TRY(fragment_in(&m->fragment, p->fragment));
    TRY(digest_in(&m->payload, p->payload, "payload digest"));
    TRY(digest_in(&m->parent, p->parent, "parent"));
    TRY(digest_in(&m->grid, p->grid, "grid"));
    if (p->signature.len != 0 && p->signature.len != sizeof m->signature)
        return err_set(ERR_PROTO, "a signature of %zu bytes, it has %zu", p->signature.len,
                       sizeof m->signature);
    if (!isfinite(p->weight) || p->weight < 0)
        return err_set(ERR_PROTO, "a weight that is negative or not finite");
    if (p->residual_ratio > CODEC_RATIO_MAX)
        return err_set(ERR_PROTO, "a residual ratio of code %u, at most %d is possible",
                       p->residual_ratio, CODEC_RATIO_MAX);
    if (p->supply > WIRE_SUPPLY_LAST)
        return err_set(ERR_PROTO, "part %u of a supply is unknown to this version", p->supply);
    if (p->signature.len)
        memcpy(m->signature, p->signature.data, sizeof m->signature);
    m->supply = (enum wire_supply)p->supply;
    m->round = p->round;
    m->codec = p->codec;
    m->payload_bytes = p->payload_bytes;
    m->weight = p->weight;
    m->data_cursor = p->data_cursor;
    m->max_local_steps_offline = p->max_local_steps_offline;
    m->residual_ratio = (uint8_t)p->residual_ratio;
    m->charged = p->charged;
    m->pace = pace_in(p);
    m->transfer = p->transfer;
    m->stream = p->stream;
    return ERR_OK;
}

static enum err fetch_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    struct wire_fetch *m = message;
    const Atoll__FetchRequest *p = unpacked;
    if (p->what > WIRE_SNAPSHOT)
        return err_set(ERR_PROTO, "kind %u of download is unknown to this version", p->what);
    m->what = (enum wire_what)p->what;
    m->round = p->round;
    m->offset = p->offset;
    m->size_bytes = p->size;
    m->chunk_bytes = p->chunk;
    TRY(fragment_in(&m->fragment, p->fragment));
    return head_in(&m->head, p->head);
}

static enum err download_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    return answer_in(message, ((const Atoll__Download *)unpacked)->answer);
}

static enum err answer_decode(void *message, const void *unpacked, struct arena *a)
{
    (void)a;
    return answer_in(message, unpacked);
}

/* ---- table ---- */

struct form {
    const ProtobufCMessageDescriptor *descriptor;
    enum err (*encode)(struct packed *to, const void *message);
    enum err (*decode)(void *message, const void *unpacked, struct arena *a);
};
static const struct form forms[WIRE_KINDS] = {
    [WIRE_HELLO] = {&atoll__hello_request__descriptor, hello_encode, hello_decode},
    [WIRE_HELLO_ANSWER] = {&atoll__hello_answer__descriptor, hello_answer_encode,
                           hello_answer_decode},
    [WIRE_POLL] = {&atoll__poll_request__descriptor, poll_encode, poll_decode},
    [WIRE_POLL_ANSWER] = {&atoll__poll_answer__descriptor, poll_answer_encode, poll_answer_decode},
    [WIRE_MASK] = {&atoll__mask_request__descriptor, mask_encode, mask_decode},
    [WIRE_MASK_ANSWER] = {&atoll__mask_answer__descriptor, mask_answer_encode, mask_answer_decode},
    [WIRE_REPORT] = {&atoll__report_request__descriptor, report_encode, report_decode},
    [WIRE_LEAVE] = {&atoll__leave_request__descriptor, leave_encode, leave_decode},
    [WIRE_OPERATE] = {&atoll__operate_request__descriptor, operate_encode, operate_decode},
    [WIRE_UPLOAD] = {&atoll__upload__descriptor, upload_encode, upload_decode},
    [WIRE_FETCH] = {&atoll__fetch_request__descriptor, fetch_encode, fetch_decode},
    [WIRE_DOWNLOAD] = {&atoll__download__descriptor, download_encode, download_decode},
    [WIRE_ANSWER] = {&atoll__answer__descriptor, answer_encode, answer_decode},
};
static const struct {
    size_t message_bytes, struct_bytes;
} sizes[WIRE_KINDS] = {
#define X(kind, type, largest) [WIRE_##kind] = {largest, sizeof(struct type)},
    WIRE_LIST(X)
#undef X
};

size_t wire_largest(enum wire_kind kind)
{
    ASSERT(kind < WIRE_KINDS);
    return sizes[kind].message_bytes;
}

enum err wire_encode(enum wire_kind kind, const void *message, struct arena *a, uint8_t **data,
                     size_t *size_bytes)
{
    ASSERT(kind < WIRE_KINDS);
    struct packed to = {.kind = kind, .arena = a};
    TRY(forms[kind].encode(&to, message));
    *data = to.data;
    *size_bytes = to.size_bytes;
    return ERR_OK;
}

static void *capped_alloc(void *arena, size_t size)
{
    return arena_alloc(arena, size);
}

static void capped_free(void *arena, void *p) /* no-op: the arena frees all at once */
{
    (void)arena;
    (void)p;
}

enum err wire_decode(enum wire_kind kind, void *message, const uint8_t *data, size_t size_bytes,
                     struct arena *a)
{
    if (size_bytes > wire_largest(kind))
        return err_set(ERR_PROTO, "a message of %zu bytes, at most %zu are allowed", size_bytes,
                       wire_largest(kind));
    ASSERT(a->cap_bytes);
    ProtobufCAllocator allocator = {capped_alloc, capped_free, a};
    memset(message, 0, sizes[kind].struct_bytes);
    void *unpacked =
        protobuf_c_message_unpack(forms[kind].descriptor, &allocator, size_bytes, data);
    if (!unpacked)
        return err_set(ERR_PROTO, "a message of %zu bytes is malformed", size_bytes);
    return forms[kind].decode(message, unpacked, a);
}

/* ---- chunks: fields 2 to 5 of Upload and Download, in order, data last ---- */

enum { TAG_OFFSET = 2 << 3, TAG_TOTAL = 3 << 3, TAG_CRC = 4 << 3 | 5, TAG_DATA = 5 << 3 | 2 };

static size_t varint_put(uint8_t *p, uint64_t v)
{
    size_t n = 0;
    for (; v >= 128; v >>= 7)
        p[n++] = (uint8_t)(v | 128);
    p[n++] = (uint8_t)v;
    return n;
}

/* Fields that are zero are omitted, as in proto3, except the data's length. */
size_t wire_chunk_header(uint8_t out[WIRE_CHUNK_HEADER_MAX], const struct wire_chunk *c)
{
    ASSERT(c->size_bytes > 0 && c->size_bytes <= WIRE_CHUNK_BYTES);
    size_t n = 0;
    if (c->offset) {
        out[n++] = TAG_OFFSET;
        n += varint_put(out + n, c->offset);
    }
    if (c->total) {
        out[n++] = TAG_TOTAL;
        n += varint_put(out + n, c->total);
    }
    if (c->crc32c) {
        out[n++] = TAG_CRC;
        for (unsigned shift = 0; shift < 32; shift += 8)
            out[n++] = (uint8_t)(c->crc32c >> shift);
    }
    out[n++] = TAG_DATA;
    return n + varint_put(out + n, c->size_bytes);
}

static uint64_t varint_get(struct bytes_reader *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t b = bytes_get_u8(r);
        if (shift == 63 && b > 1)
            break;
        v |= (uint64_t)(b & 127) << shift;
        if (!(b & 128))
            return v;
    }
    r->bad = true;
    return 0;
}

enum err wire_chunk_parse(struct wire_chunk *c, const uint8_t *head, size_t head_bytes,
                          size_t message_bytes, size_t *data_at)
{
    struct bytes_reader r = bytes_reader(head, head_bytes);
    *c = (struct wire_chunk){0};
    uint8_t tag = bytes_get_u8(&r);
    if (tag == TAG_OFFSET) {
        c->offset = varint_get(&r);
        tag = bytes_get_u8(&r);
    }
    if (tag == TAG_TOTAL) {
        c->total = varint_get(&r);
        tag = bytes_get_u8(&r);
    }
    if (tag == TAG_CRC) {
        c->crc32c = bytes_get_u32(&r);
        tag = bytes_get_u8(&r);
    }
    uint64_t size = varint_get(&r);
    if (r.bad || tag != TAG_DATA)
        return err_set(ERR_PROTO, "a chunk whose header is malformed");
    *data_at = head_bytes - (size_t)(r.end - r.at);
    if (size == 0 || size > WIRE_CHUNK_BYTES || *data_at + size != message_bytes)
        return err_set(ERR_PROTO, "a chunk of %llu bytes in a message of %zu",
                       (unsigned long long)size, message_bytes);
    if (c->offset > c->total || size > c->total - c->offset)
        return err_set(ERR_PROTO, "a chunk of %llu bytes at %llu, past the end at %llu",
                       (unsigned long long)size, (unsigned long long)c->offset,
                       (unsigned long long)c->total);
    c->size_bytes = (uint32_t)size;
    return ERR_OK;
}
