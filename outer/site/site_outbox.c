/* SPDX-License-Identifier: Apache-2.0 */
/* The outbox: a site's contribution to a round is encoded once and stored durably; from then on
 * only its stored bytes are sent. When the round's manifest does not include it, its values return
 * to the residual.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/site/site_identity.h"
#include "outer/site/site_masks.h"
#include "outer/site/site_own.h"
#include "outer/site/site_repair.h"
#include "outer/protocol/mutant.h"

enum { PATH_BYTES = 64 };

static const struct fragment *site_fragment(const struct site *s, unsigned fragment)
{
    return &s->replica->fragments->f[fragment];
}

static void outbox_path(char out[PATH_BYTES], unsigned fragment, uint64_t round)
{
    snprintf(out, PATH_BYTES, "outbox/%u/%" PRIu64, fragment, round);
}

/* What goes to the aggregator. */
static const uint8_t *box_sent(const struct site_slot *l, size_t *size)
{
    *size = l->box.masked_bytes ? l->box.masked_bytes : l->box.made.payload_bytes;
    return l->box.masked_bytes ? l->masked.bytes : l->payload.bytes;
}

/* residual' and discarded residual after the payload. */
static size_t own_parts(struct site_slot *l, size_t elements, struct file_part out[2])
{
    out[0] = (struct file_part){l->residual, elements * sizeof *l->residual};
    out[1] = (struct file_part){l->discarded, elements * sizeof *l->discarded};
    return l->discarded ? 2 : 1;
}

static void box_fields(struct record_cursor *c, void *self)
{
    struct site_box *b = self;
    uint32_t fragment = b->fragment, codec = (uint32_t)b->made.codec;
    uint64_t bytes = b->made.payload_bytes;
    record_u32(c, &fragment);
    record_u32(c, &codec);
    record_u64(c, &b->round);
    record_u64(c, &bytes);
    record_f32(c, &b->made.weight);
    record_u64(c, &b->made.data_cursor);
    record_u64(c, &b->made.max_local_steps_offline);
    record_u8(c, &b->made.residual_ratio);
    record_digest(c, &b->made.parent);
    record_digest(c, &b->made.grid);
    b->fragment = fragment;
    b->made.codec = (enum codec_kind)codec;
    b->made.payload_bytes = bytes;
}

/* After the two sections that each contribution has: with a privacy budget, u64, the charged steps;
 * with secure aggregation, the masked bytes and the inputs of their masks. */
enum { BOX_SECTIONS = 2, BOX_MASKED_SECTIONS = 2, CHARGED_BYTES = 8 };

static void masked_parts(struct site_slot *l, struct file_part out[3])
{
    out[0] = (struct file_part){l->masked.bytes, l->box.masked_bytes};
    out[1] = (struct file_part){&l->box.announced, sizeof l->box.announced};
    out[2] = (struct file_part){&l->box.b, sizeof l->box.b};
}

static enum err box_write(struct site_slot *l)
{
    struct site *s = l->site;
    char path[PATH_BYTES];
    uint8_t charged[CHARGED_BYTES];
    struct bytes_writer w = bytes_writer(charged, sizeof charged);
    struct record_form form = {"outbox", box_fields, &l->box};
    struct file_part payload = {l->payload.bytes, l->box.made.payload_bytes}, own[2],
                     steps = {charged, sizeof charged}, masked[3];
    struct record_section sections[BOX_SECTIONS + 1 + BOX_MASKED_SECTIONS] = {
        {.parts = &payload, .part_count = 1},
        {.parts = own,
         .part_count = own_parts(l, site_fragment(s, l->box.fragment)->elements, own)}};
    size_t count = BOX_SECTIONS;
    bytes_put_u64(&w, l->box.made.charged);
    masked_parts(l, masked);
    if (l->box.made.charged)
        sections[count++] = (struct record_section){.parts = &steps, .part_count = 1};
    if (l->box.masked_bytes) {
        sections[count++] = (struct record_section){&masked[0], 1, l->box.made.payload};
        sections[count++] = (struct record_section){.parts = &masked[1], .part_count = 2};
    } else {
        sections[0].digest = l->box.made.payload;
    }
    outbox_path(path, l->box.fragment, l->box.round);
    return store_write(s->env, path, &form, sections, count);
}

/* False: damaged. */
static bool charged_take(const struct record *r, uint64_t *charged)
{
    uint8_t bytes[CHARGED_BYTES];
    struct file_part steps = {bytes, sizeof bytes};
    *charged = 0;
    if ((r->section_count - BOX_SECTIONS) % 2 == 0)
        return true;
    if (!record_take(r, BOX_SECTIONS, &steps, 1))
        return false;
    struct bytes_reader b = bytes_reader(bytes, sizeof bytes);
    *charged = bytes_get_u64(&b);
    return *charged > 0;
}

/* The masked bytes of a stored contribution, if it has them. False: damaged. */
static bool masked_take(struct site_slot *l, const struct record *r)
{
    struct file_part parts[3];
    bool masked = r->section_count >= BOX_SECTIONS + BOX_MASKED_SECTIONS;
    size_t at = r->section_count - BOX_MASKED_SECTIONS;
    if (!masked) /* with secure aggregation: of a round that was over, and never sent */
        return true;
    if (!l->site->o->masks.on)
        return false;
    l->box.masked_bytes = r->sections[at].size_bytes;
    if (!l->box.masked_bytes || site_masks_room(l, l->box.masked_bytes) != ERR_OK)
        return false;
    masked_parts(l, parts);
    l->box.made.payload = r->sections[at].digest;
    return record_take(r, at, &parts[0], 1) && record_take(r, at + 1, &parts[1], 2);
}

/* A stored contribution into the slot. False: another one, or damaged. */
static bool box_take(struct site_slot *l, const struct site_box *b, const struct record *r,
                     unsigned fragment, uint64_t round)
{
    size_t elements = site_fragment(l->site, fragment)->elements;
    const struct codec *c = codec_get(b->made.codec);
    struct file_part payload = {l->payload.bytes, b->made.payload_bytes}, own[2];
    uint64_t charged;
    if (b->fragment != fragment || b->round != round || !c ||
        b->made.payload_bytes > c->payload_max(c, elements) || !record_take(r, 0, &payload, 1) ||
        !record_take(r, 1, own, own_parts(l, elements, own)) || !charged_take(r, &charged))
        return false;
    l->box = *b;
    l->box.made.charged = charged;
    l->box.made.payload = r->sections[0].digest;
    l->box.valid = masked_take(l, r);
    return l->box.valid;
}

/* For what the codec may make at most: the record may name more. */
static enum err box_room(struct site_slot *l, const struct site_box *b, unsigned fragment)
{
    const struct codec *c = codec_get(b->made.codec);
    size_t most = c ? c->payload_max(c, site_fragment(l->site, fragment)->elements) : 0;
    return b->made.payload_bytes <= most ? site_payload_grow(l, b->made.payload_bytes) : ERR_OK;
}

/* A contribution to the present round counts on its parent only. */
static bool box_stands(const struct site_slot *l)
{
    const struct outer_state_fragment *state = &l->site->replica->state[l->box.fragment];
    return l->box.round != state->round || digest_equal(&l->box.made.parent, &state->manifest);
}

enum err site_outbox_load(struct site_slot *l, unsigned fragment, uint64_t round)
{
    enum { MOST = 48 }; /* bytes an element: payload, residual, discarded, masked */
    struct site *s = l->site;
    char path[PATH_BYTES];
    struct site_box b = {0};
    struct record_form form = {"outbox", box_fields, &b};
    struct record r;
    if (l->box.valid && l->box.fragment == fragment && l->box.round == round && box_stands(l))
        return ERR_OK;
    l->box.valid = false;
    outbox_path(path, fragment, round);
    if (MUTANT(RECOMPUTED) || !s->env->ops->exists(s->env, path))
        return ERR_OK;
    struct arena scratch = arena_make(0);
    enum err e =
        store_read(s->env, path, &form, site_fragment(s, fragment)->elements * MOST, &r, &scratch);
    if (e == ERR_OK)
        e = box_room(l, &b, fragment);
    if (e == ERR_CORRUPT || (e == ERR_OK && !box_take(l, &b, &r, fragment, round)))
        e = err_set(ERR_CORRUPT, "%s/%s: damaged; without it this site's work of the round is lost",
                    s->env->root, path);
    arena_free(&scratch);
    TRY(e);
    if (MUTANT(MASK_ANEW) && l->box.valid && l->box.masked_bytes) {
        TRY(site_masks_apply(l, &l->box.announced, codec_get(l->box.made.codec)));
        l->box.made.payload = digest_of(l->masked.bytes, l->box.masked_bytes);
    }
    l->box.valid = l->box.valid && box_stands(l);
    l->box.received = s->there.round[fragment] == round &&
                      digest_equal(&s->there.accepted[fragment], &l->box.made.payload);
    return ERR_OK;
}

enum err site_outbox_repair(struct site_slot *l)
{
    enum { MOST = 48 };
    struct site *s = l->site;
    char path[PATH_BYTES];
    struct site_box b = {0};
    struct record_form form = {"outbox", box_fields, &b};
    struct record r;
    struct file_part own[2];
    size_t elements = site_fragment(s, l->box.fragment)->elements;
    struct record_section kept = {.parts = own, .part_count = own_parts(l, elements, own)};
    struct digest_stream d;
    struct digest clear = digest_of(l->payload.bytes, l->box.made.payload_bytes), sent, held;
    size_t size;
    const uint8_t *bytes = box_sent(l, &size);
    size_t count = BOX_SECTIONS, at;
    count += l->box.made.charged ? 1 : 0;
    count += l->box.masked_bytes ? BOX_MASKED_SECTIONS : 0;
    at = l->box.masked_bytes ? count - BOX_MASKED_SECTIONS : 0;
    struct arena scratch = arena_make(0);
    ASSERT(l->box.valid);
    digest_open(&d);
    for (size_t i = 0; i < kept.part_count; i++)
        digest_add(&d, own[i].data, own[i].size_bytes);
    held = digest_close(&d);
    outbox_path(path, l->box.fragment, l->box.round);
    enum err e = store_read(s->env, path, &form, elements * MOST, &r, &scratch);
    sent = digest_of(bytes, size);
    bool same =
        e == ERR_OK && r.section_count == count && digest_equal(&sent, &l->box.made.payload) &&
        digest_equal(&sent, &r.sections[at].digest) &&
        digest_equal(&clear, &r.sections[0].digest) && digest_equal(&held, &r.sections[1].digest);
    arena_free(&scratch);
    if (e == ERR_OK && !same)
        e = err_set(ERR_CORRUPT, "this process holds other bytes than the file held");
    return e == ERR_OK ? box_write(l) : e;
}

/* What the delta is taken against: the eager start of the round before where there is one, else
 * theta: of the state, or, with the one-round delay, of the one before it, which is kept. After a
 * snapshot there is none before it. */
static enum err base_of(struct site_slot *l, const struct site_submission *w, const float **theta)
{
    struct site *s = l->site;
    const struct outer_state_fragment *state = &s->replica->state[w->fragment];
    float *kept = (float *)(void *)l->download.bytes; /* as large as a snapshot: theta is in one */
    bool ahead = false;
    *theta = state->theta;
    if (w->from_start)
        TRY(site_eager_load(l, w->fragment, w->round - 1, kept, &ahead));
    if (ahead)
        *theta = kept;
    if (ahead || w->base == state->round)
        return ERR_OK;
    enum err e = outer_state_load_theta(s->replica, w->fragment, w->base, kept);
    if (e == ERR_OK)
        *theta = kept;
    return e == ERR_INPUT ? ERR_OK : e;
}

struct formation { /* what a contribution is made of */
    const struct site_submission *w;
    const float *base;                            /* what the delta is taken against (host) */
    const struct site_announced_round *announced; /* with secure aggregation */
    bool again; /* of withdrawn training: base is the weighted delta itself, local is zero, and the
                   eager start of the later steps is stored already */
};
struct formed {      /* of a contribution that is being made; device: see staging.h */
    float *z;        /* takes the place of the local values */
    float *residual; /* before encode the carried residual, after it residual' */
};

/* z = weight * (theta - local) + residual, after error-feedback decay took its share of the
 * residual. */
static enum err delta_form(struct site_slot *l, const struct formation *from, float *local,
                           struct formed *out)
{
    struct site *s = l->site;
    const struct outer_state_fragment *state = &s->replica->state[from->w->fragment];
    struct staging *g = &s->replica->staging;
    struct dev *d = s->replica->dev;
    size_t n = site_fragment(s, from->w->fragment)->elements;
    const float *theta;
    memcpy(l->residual, state->residual, n * sizeof *l->residual);
    if (l->discarded)
        memcpy(l->discarded, state->discarded, n * sizeof *l->discarded);
    bool fresh = schedule_resets_residual(&s->replica->schedule, state->residual_ratio);
    codec_residual_decay(l->residual, l->discarded, fresh ? 0 : s->o->error_feedback_decay, n);
    theta = staging_in(g, STAGING_THETA, from->base, n);
    if (from->base == state->theta)
        staging_keep(g, STAGING_THETA, from->base);
    *out = (struct formed){local, staging_take(g, STAGING_DELTA, l->residual, l->residual, n)};
    d->ops->outer_delta(d, out->z,
                        &(struct dev_delta){.outer = theta,
                                            .local = local,
                                            .residual = out->residual,
                                            .weight = from->again ? 1 : from->w->weight,
                                            .count = n});
    return dev_sync(d);
}

/* Values that take no part in the round (train.stages): they are not sent, and their residual
 * waits. */
static void delta_hold(struct site_slot *l, unsigned fragment, const struct formed *f)
{
    struct outer_state *m = l->site->replica;
    size_t n = stages_held(&m->stages, &m->schedule, fragment, m->state[fragment].round);
    for (size_t i = 0; i < n; i++) {
        const struct dev_range *held = &m->stages.ranges[i];
        m->dev->ops->zero(m->dev, f->z + held->offset, held->count * sizeof *f->z);
        m->dev->ops->zero(m->dev, f->residual + held->offset, held->count * sizeof *f->z);
    }
}

static void residual_hold(struct site_slot *l, unsigned fragment)
{
    const struct outer_state *m = l->site->replica;
    const struct outer_state_fragment *state = &m->state[fragment];
    size_t n = stages_held(&m->stages, &m->schedule, fragment, state->round);
    for (size_t i = 0; i < n; i++) {
        size_t at = m->stages.ranges[i].offset, count = m->stages.ranges[i].count;
        memcpy(l->residual + at, state->residual + at, count * sizeof *l->residual);
        if (l->discarded)
            memcpy(l->discarded + at, state->discarded + at, count * sizeof *l->discarded);
    }
}

/* A full residual would carry it for hundreds of rounds, and its scale would hide 255 others. */
static enum err spike_check(const struct site_slot *l, const float *z, const struct fragment *f)
{
    struct outer_state *m = l->site->replica;
    uint8_t *codes = l->download.bytes; /* free until something is fetched */
    float value = 0;
    TRY(codec_codes(m->work, codes, z, f->elements));
    size_t n = f->elements, i = codec_spike(m->work, codes, z, n, &value);
    if (i == n || f->state != FRAGMENT_PARAMETERS) /* squares of gradients do spread so far */
        return ERR_OK;
    return err_set(
        ERR_DIVERGED,
        "value %zu of the delta is %g, at least %d times what nine in ten blocks hold: a damaged "
        "parameter; a restart repeats the steps since the last checkpoint",
        i, (double)value, CODEC_SPIKE);
}

/* Invariant I3: the sent values plus residual' are exactly the training
 * (docs/protocol.md 4). */
static enum err residual_identity_check(struct site_slot *l, const struct codec *c,
                                        unsigned fragment, const struct formed *made,
                                        size_t payload_bytes)
{
    struct outer_state *m = l->site->replica;
    struct codec_call call = outer_state_call(m, fragment, m->state[fragment].codes);
    float *sent = staging_at(&m->staging, STAGING_BESIDE, m->mean);
    bool whole;
    TRY(c->decode(c, &call, sent, l->payload.bytes, payload_bytes));
    TRY(codec_adds_up(c, &call, &whole, sent, made->residual, made->z));
    ASSERT(whole);
    return ERR_OK;
}

/* The training of this round: z minus the carried residual. */
static enum err metrics_of_delta(struct site *s, unsigned fragment, const struct formed *f,
                                 double *delta, const float *residual)
{
    struct codec_work *w = s->replica->work;
    struct outer_metrics_state *g = &s->own.metrics[fragment];
    metrics_own(g, s->replica->state[fragment].round, codec_sample(w, f->z, g->stride, g->count),
                residual);
    return codec_squares(w, delta, f->z, f->residual, site_fragment(s, fragment)->elements);
}

/* The larger of what the site's list of charges has and of what manifests name. */
static uint64_t charges_now(struct site *s, const struct site_submission *w)
{
    if (w->charged > s->charged)
        s->charged = w->charged;
    return s->charged;
}

/* S1 to S3. */
static enum err contribution_form(struct site_slot *l, const struct formation *from, float *local)
{
    struct site *s = l->site;
    const struct site_submission *w = from->w;
    unsigned fragment = w->fragment;
    const struct outer_state_fragment *state = &s->replica->state[fragment];
    const struct codec *c = codec_get(outer_state_codec(s->replica, fragment));
    size_t n = site_fragment(s, fragment)->elements;
    uint64_t start = s->env->ops->now_ms(s->env);
    struct codec_work *work = s->replica->work;
    struct formed f;
    double delta, left;
    size_t bytes, size;
    l->box.valid = false;
    TRY(delta_form(l, from, local, &f)); /* S1 */
    delta_hold(l, fragment, &f);
    TRY(metrics_of_delta(s, fragment, &f, &delta, l->residual));
    codec_seed(work, s->o->seed, s->own.index, fragment, state->round);
    struct codec_call call = outer_state_call(s->replica, fragment, state->codes);
    call.carries = true;
    TRY(site_payload_grow(l, c->payload_max(c, n)));
    enum err e = c->encode(c, &call, l->payload.bytes, &bytes, f.residual, f.z); /* S2 */
    ASSERT(e != ERR_OK || bytes <= l->payload.room);
    if (e == ERR_OK)
        e = spike_check(l, f.z, site_fragment(s, fragment));
    if (e != ERR_OK)
        return err_add(e, "fragment %u, round %" PRIu64 ": ", fragment, state->round);
    TRY(residual_identity_check(l, c, fragment, &f, bytes));
    staging_out(&s->replica->staging, l->residual, f.residual, n);
    TRY(codec_squares(work, &left, f.residual, NULL, n));
    TRY(dev_sync(s->replica->dev));
    residual_hold(l, fragment);
    metrics_residual_ratio(&s->own.metrics[fragment],
                           sqrt(left / delta)); /* NaN when nothing moved */
    l->box = (struct site_box){.fragment = fragment,
                               .round = state->round,
                               .made = {.codec = c->kind,
                                        .payload_bytes = bytes,
                                        .parent = state->manifest,
                                        .grid = outer_state_grid(s->replica, fragment),
                                        .weight = w->weight,
                                        .data_cursor = w->data_cursor,
                                        .charged = charges_now(s, w),
                                        .max_local_steps_offline = w->late,
                                        .pace = w->pace,
                                        .residual_ratio = codec_residual_ratio(left, delta)}};
    if (s->o->masks.on) {
        l->box.made.residual_ratio = 0; /* it would tell something of this site alone */
        TRY(site_masks_apply(l, from->announced, c));
    }
    const uint8_t *sent = box_sent(l, &size);
    l->box.made.payload = digest_of(sent, size);
    if (!from->again)
        TRY(site_eager_make(l, w));
    uint64_t encoded = s->env->ops->now_ms(s->env);
    if (!MUTANT(SENT_UNSTORED))
        TRY(box_write(l)); /* S3, durable before the first byte is sent */
    l->box.valid = true;
    l->times.encode_ms = (double)(encoded - start);
    l->times.store_ms = (double)(s->env->ops->now_ms(s->env) - encoded);
    return ERR_OK;
}

enum err site_outbox_make(struct site_slot *l, const struct site_submission *w,
                          const struct site_announced_round *announced, float *local)
{
    struct formation from = {.w = w, .announced = announced};
    TRY(base_of(l, w, &from.base));
    return contribution_form(l, &from, local);
}

/* Where it cannot be sent, S8 takes it over with the round's manifest. */
enum err site_outbox_make_again(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    struct dev *d = s->replica->dev;
    uint64_t round = s->replica->state[fragment].round;
    float *trained = (float *)(void *)l->download.bytes; /* as large as a snapshot */
    struct site_submission w;
    bool found;
    TRY(site_withdrawn_load(s, fragment, round, trained, &w, &found));
    if (!found)
        return ERR_OK;
    d->ops->zero(d, l->local, site_fragment(s, fragment)->elements * sizeof *l->local);
    ASSERT(!s->o->masks.on); /* then no round is given up */
    const struct formation from = {.w = &w, .base = trained, .again = true};
    enum err e = contribution_form(l, &from, l->local);
    if (e != ERR_DIVERGED)
        return e;
    log_event(LOG_ERROR, "skipped", "fragment=%u round=%" PRIu64 " why=\"a spike\"", fragment,
              round);
    return ERR_OK;
}

enum err site_outbox_trained(struct site_slot *l, unsigned fragment, float *values)
{
    struct outer_state *m = l->site->replica;
    const struct outer_state_fragment *state = &m->state[fragment];
    size_t n = site_fragment(l->site, fragment)->elements;
    ASSERT(l->box.valid && l->box.fragment == fragment && l->box.round == state->round);
    TRY(outer_state_decode(m, fragment, l->box.made.codec, m->mean,
                           &(struct codec_payload){l->payload.bytes, l->box.made.payload_bytes},
                           state->codes));
    staging_out(&m->staging, values, m->mean, n);
    TRY(dev_sync(m->dev));
    for (size_t i = 0; i < n; i++) {
        double given_up = l->discarded ? l->discarded[i] - state->discarded[i] : 0;
        values[i] = (float)((double)values[i] + (double)l->residual[i] -
                            (double)state->residual[i] + given_up);
    }
    return ERR_OK;
}

enum err site_outbox_send(struct site_slot *l)
{
    struct site *s = l->site;
    struct site_box *b = &l->box;
    uint64_t start = s->env->ops->now_ms(s->env);
    size_t size;
    const uint8_t *sent = box_sent(l, &size);
    bool may;
    ASSERT(b->valid);
    TRY(site_masks_sending(l, &may));
    b->received = b->received || !may;
    while (!b->received && !site_step_back_due(s, b->fragment)) {
        struct wire_contribution m = {.head = site_head(l, b->fragment),
                                      .fragment = b->fragment,
                                      .codec = b->made.codec,
                                      .round = b->round,
                                      .payload_bytes = size,
                                      .data_cursor = b->made.data_cursor,
                                      .charged = b->made.charged,
                                      .max_local_steps_offline = b->made.max_local_steps_offline,
                                      .residual_ratio = b->made.residual_ratio,
                                      .pace = b->made.pace,
                                      .parent = b->made.parent,
                                      .grid = b->made.grid,
                                      .payload = b->made.payload,
                                      .weight = b->made.weight};
        struct wire_answer a = {.outcome = ROUND_NONE};
        bool again;
        TRY(site_identity_sign(s, &m)); /* signed again for each term; the payload never changes */
        site_unlock(s);
        enum err e = s->own.link->ops->contribute(s->own.link, &m, sent, &a);
        site_lock(s);
        TRY(site_called(l, e, &again));
        /* A receipt of an aggregator that has ended since: the hello to the next one, by another
         * slot, has said whether that one holds the contribution. */
        bool former = a.outcome == ROUND_RECEIPT && m.head.term != s->peer[l->peer].term;
        if (again || former)
            continue;
        /* Overtaken (BEHIND, LATE): nothing more to send, the manifest says what became of it. */
        b->received =
            a.outcome == ROUND_RECEIPT || a.outcome == ROUND_BEHIND || a.outcome == ROUND_LATE;
        if (!b->received && !site_step_back_due(s, b->fragment))
            TRY(site_react(l, &a));
        if (s->there.round[b->fragment] > b->round) /* a hello in between may have said so */
            break;
    }
    l->times.send_ms += (double)(s->env->ops->now_ms(s->env) - start);
    return ERR_OK;
}

const struct manifest_entry *site_own_entry(const struct site *s, const struct manifest *m)
{
    return manifest_site(m, s->own.index);
}

void site_charges_take(struct site *s, const struct manifest *m)
{
    const struct manifest_entry *e = site_own_entry(s, m);
    if (e && e->charged > s->charged)
        s->charged = e->charged;
}

uint64_t site_charged(struct site *s)
{
    site_lock(s);
    uint64_t charged = s->charged;
    site_unlock(s);
    return charged;
}

uint64_t site_sent_bytes(const struct site *s, const struct manifest *m)
{
    const struct manifest_entry *e = site_own_entry(s, m);
    return e ? e->payload_bytes : 0;
}

static enum err round_tokens(struct site *s, unsigned fragment, uint64_t round, uint64_t *tokens)
{
    struct manifest m;
    *tokens = 0;
    if (s->replica->state[fragment].round <= round) {
        TRY(site_outbox_load(s->own.main, fragment, round));
        *tokens = s->own.main->box.valid ? s->own.main->box.made.data_cursor : 0;
    } else if (outer_state_manifest(s->replica, fragment, round, &m) == ERR_OK) {
        const struct manifest_entry *own = site_own_entry(s, &m);
        *tokens = own ? own->data_cursor : 0;
    }
    return ERR_OK;
}

enum err site_round_tokens(struct site *s, unsigned fragment, uint64_t round, uint64_t *tokens)
{
    site_lock(s);
    enum err e = round_tokens(s, fragment, round, tokens);
    site_unlock(s);
    return e;
}

/* residual' + decoded payload = z, exactly: delayed, not lost. */
static enum err residual_give_back(struct site_slot *l, unsigned fragment)
{
    struct outer_state *m = l->site->replica;
    size_t n = site_fragment(l->site, fragment)->elements;
    float *residual = staging_at(&m->staging, STAGING_BESIDE, m->next.residual);
    TRY(outer_state_decode(m, fragment, l->box.made.codec, m->mean,
                           &(struct codec_payload){l->payload.bytes, l->box.made.payload_bytes},
                           m->state[fragment].codes));
    m->dev->ops->copy(m->dev, residual, l->residual, n * sizeof *residual);
    m->dev->ops->axpy(m->dev, residual, m->mean, 1, n);
    staging_out(&m->staging, m->next.residual, residual, n);
    return dev_sync(m->dev);
}

/* The clipped part is not in the sum and does not return. It is exact where the factor is a power
 * of two (outer.clip), and is booked as discarded where that is recorded. */
static enum err book_clipped(struct site_slot *l, const struct manifest *m, float factor)
{
    struct outer_state *r = l->site->replica;
    struct outer_state_fragment *next = &r->next;
    size_t n = site_fragment(l->site, m->fragment)->elements;
    float *sent = next->residual; /* for now */
    log_event(LOG_WARN, "clipped", "fragment=%u round=%" PRIu64 " factor=%g", m->fragment, m->round,
              (double)factor);
    TRY(outer_state_decode(r, m->fragment, l->box.made.codec, r->mean,
                           &(struct codec_payload){l->payload.bytes, l->box.made.payload_bytes},
                           r->state[m->fragment].codes));
    staging_out(&r->staging, sent, r->mean, n);
    TRY(dev_sync(r->dev));
    for (size_t i = 0; next->discarded && i < n; i++)
        next->discarded[i] += (double)sent[i] - (double)(factor * sent[i]);
    memcpy(next->residual, l->residual, n * sizeof *next->residual);
    return ERR_OK;
}

/* Carries the residual over without a contribution, and adds withdrawn training of this round. */
static enum err residual_carry(struct site_slot *l, unsigned fragment)
{
    struct outer_state *m = l->site->replica;
    const struct outer_state_fragment *state = &m->state[fragment];
    float *trained = (float *)(void *)l->residual; /* no box: free */
    size_t n = site_fragment(l->site, fragment)->elements;
    struct site_submission w;
    bool found;
    memcpy(m->next.residual, state->residual, n * sizeof *state->residual);
    TRY(site_withdrawn_load(l->site, fragment, state->round, trained, &w, &found));
    for (size_t i = 0; found && !MUTANT(WITHDRAWN_LOST) && i < n; i++)
        m->next.residual[i] += trained[i];
    return ERR_OK;
}

/* Books residual and contribution as discarded: they belong to a state that was rolled back. */
static enum err book_rolled_back(struct site_slot *l, unsigned fragment, bool sent)
{
    const struct outer_state *m = l->site->replica;
    const struct outer_state_fragment *next = &m->next;
    size_t n = site_fragment(l->site, fragment)->elements;
    TRY(sent ? residual_give_back(l, fragment) : residual_carry(l, fragment));
    for (size_t i = 0; next->discarded && i < n; i++)
        next->discarded[i] += (double)next->residual[i];
    if (!MUTANT(ROLLBACK_CARRIED))
        memset(next->residual, 0, n * sizeof *next->residual);
    return ERR_OK;
}

/* Included without a stored contribution: this site's disk was lost after it had sent. */
static void book_lost(struct site_slot *l, unsigned fragment, uint64_t round)
{
    struct site *s = l->site;
    size_t n = site_fragment(s, fragment)->elements;
    log_event(LOG_WARN, "residual_lost", "fragment=%u round=%" PRIu64, fragment, round);
    memset(s->replica->next.residual, 0, n * sizeof *s->replica->next.residual);
}

enum err site_outbox_commit(struct site_slot *l, unsigned fragment, const struct manifest *m)
{
    struct site *s = l->site;
    const struct outer_state_fragment *state = &s->replica->state[fragment];
    struct outer_state_fragment *next = &s->replica->next;
    const struct manifest_entry *entry = site_own_entry(s, m);
    bool included = entry && entry->included;
    bool dropped = MUTANT(RESIDUAL_LOST) || (MUTANT(ABORT_DROPPED) && manifest_aborted(m));
    size_t n = site_fragment(s, fragment)->elements;
    TRY(site_outbox_load(l, fragment, m->round));
    /* No entry: an operator has removed this site. What it has stored meanwhile is given up, so
     * that its residual follows from the acts, and not from when it was told. */
    bool own = l->box.valid && (entry || MUTANT(REMOVED_KEPT));
    const struct site_box *b = own && !MUTANT(COMMITTED_BLIND) ? &l->box : NULL;
    if (included && b && !digest_equal(&entry->payload, &b->made.payload))
        return err_set(ERR_DISAGREE,
                       "fragment %u round %" PRIu64
                       ": the manifest includes other bytes than this site sent",
                       fragment, m->round);
    if (entry && b && digest_equal(&entry->payload, &b->made.payload) &&
        entry->charged != b->made.charged)
        return err_set(ERR_DISAGREE,
                       "fragment %u round %" PRIu64 ": the manifest has %" PRIu64
                       " charged steps of this site, it has said %" PRIu64,
                       fragment, m->round, entry->charged, b->made.charged);
    if (entry && !included && s->o->strict && !manifest_aborted(m))
        return err_set(ERR_DISAGREE,
                       "fragment %u round %" PRIu64
                       ": strict mode, but the manifest leaves this site out",
                       fragment, m->round);
    if (next->discarded)
        memcpy(next->discarded, b ? l->discarded : state->discarded, n * sizeof *next->discarded);
    if (included && !b)
        book_lost(l, fragment, m->round);
    else if (m->rolled_back)
        return book_rolled_back(l, fragment, b != NULL);
    else if (b && entry && m->scaled && entry->factor != 1 && !MUTANT(CLIPPED_UNBOOKED))
        return book_clipped(l, m, entry->factor);
    else if (b && (!included || MUTANT(RESIDUAL_DOUBLED)) && !dropped)
        return residual_give_back(l, fragment);
    else if (b)
        memcpy(next->residual, l->residual, n * sizeof *next->residual);
    else
        return residual_carry(l, fragment);
    return ERR_OK;
}

/* Files of rounds before `oldest` in DIR/fragment. */
static enum err rounds_prune(struct site *s, const char *dir, unsigned fragment, uint64_t oldest)
{
    char path[PATH_BYTES], **names = NULL;
    struct arena scratch = arena_make(0);
    size_t count = 0;
    enum err e = ERR_OK;
    snprintf(path, sizeof path, "%s/%u", dir, fragment);
    if (s->env->ops->exists(s->env, path))
        e = s->env->ops->list(s->env, path, &scratch, &names, &count);
    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        uint64_t round;
        char rest;
        if (sscanf(names[i], "%20" SCNu64 "%c", &round, &rest) != 1 || round >= oldest)
            continue;
        snprintf(path, sizeof path, "%s/%u/%" PRIu64, dir, fragment, round);
        e = s->env->ops->remove(s->env, path);
    }
    arena_free(&scratch);
    return e;
}

/* The contribution of the last committed round stays: a damaged state is rebuilt from the state
 * before and this contribution. Of eager starts, those too that a restart from the oldest inner
 * checkpoint begins at. */
enum err site_outbox_prune(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    uint64_t round = s->replica->state[fragment].round, oldest = round > 1 ? round - 1 : 0;
    uint64_t repeated = s->replica->pruned[fragment], kept = site_final_kept(s, fragment);
    TRY(rounds_prune(s, "outbox", fragment, oldest < kept ? oldest : kept));
    TRY(rounds_prune(s, "withdrawn", fragment, round));
    return rounds_prune(s, "eager", fragment, repeated < oldest ? repeated : oldest);
}
