/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest's canonical bytes: one writer and one reader, field by field in the same order,
 * little-endian. Body, then envelope. The reader refuses bytes that the writer would not have
 * written.
 */
#include "outer/protocol/manifest.h"
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "kernels/base/err.h"
#include "outer/codec/codec.h"
#include "outer/protocol/mutant.h"
#include "outer/protocol/site_name.h"

/* "5" where there is a byte that says which parts follow the entries: those of enum manifest_part.
 * "4" without any, as before there were parts. */
static const char magic[8] = "atollM4", magic_parts[8] = "atollM5";
enum manifest_part {
    PART_FACTORS = 1,
    PART_TRACKS = 2,
    PART_ORDER = 4,
    PART_ROLLBACK = 8,
    PART_ROSTER = 16,  /* the roster is not that of the beginning */
    PART_CHARGES = 32, /* a site has a privacy budget */
    PART_AMENDMENTS = 64
};

static void put_name(struct bytes_writer *w, const char *name)
{
    size_t n = strnlen(name, MANIFEST_NAME_MAX);
    ASSERT(n < MANIFEST_NAME_MAX);
    bytes_put_u16(w, (uint16_t)n);
    bytes_put(w, name, n);
}

static void get_name(struct bytes_reader *r, char name[MANIFEST_NAME_MAX])
{
    size_t n = bytes_get_u16(r);
    const uint8_t *from = n < MANIFEST_NAME_MAX ? bytes_view(r, n) : NULL;
    if (!from || memchr(from, 0, n))
        r->bad = true;
    else
        memcpy(name, from, n);
}

static void put_entry(struct bytes_writer *w, const struct manifest_entry *e)
{
    bytes_put_u32(w, e->site);
    bytes_put_u8(w, e->included);
    bytes_put_u8(w, e->reason);
    bytes_put(w, e->payload.bytes, sizeof e->payload.bytes);
    bytes_put_u64(w, e->payload_bytes);
    bytes_put_f32(w, e->weight);
    bytes_put_f32(w, e->norm);
    bytes_put_u64(w, e->data_cursor);
    bytes_put_u8(w, e->residual_ratio);
}

static void get_entry(struct bytes_reader *r, struct manifest_entry *e)
{
    e->site = bytes_get_u32(r);
    uint8_t included = bytes_get_u8(r);
    e->included = included == 1;
    e->reason = bytes_get_u8(r);
    bytes_get(r, e->payload.bytes, sizeof e->payload.bytes);
    e->payload_bytes = bytes_get_u64(r);
    e->weight = bytes_get_f32(r);
    e->norm = bytes_get_f32(r);
    e->data_cursor = bytes_get_u64(r);
    e->residual_ratio = bytes_get_u8(r);
    e->charged = 0;
    e->factor = 1;
    e->track = (struct manifest_track){.rounds = 0};
    r->bad |= included > 1;
}

static bool charges_of(const struct manifest *m)
{
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].charged)
            return true;
    return false;
}

static uint8_t manifest_parts(const struct manifest *m)
{
    return (
        uint8_t)((m->scaled ? PART_FACTORS : 0) | (m->tracks ? PART_TRACKS : 0) |
                 (digest_zero(&m->ordered_by) ? 0 : PART_ORDER) |
                 (m->rolled_back ? PART_ROLLBACK : 0) | (m->roster_version > 1 ? PART_ROSTER : 0) |
                 (charges_of(m) ? PART_CHARGES : 0) | (m->amendments.count ? PART_AMENDMENTS : 0));
}

static void put_roster(struct bytes_writer *w, const struct manifest *m)
{
    ASSERT(m->added <= MANIFEST_ADDED_MAX);
    bytes_put_u8(w, m->change.act);
    bytes_put_u32(w, m->change.site);
    bytes_put(w, m->change.by.bytes, sizeof m->change.by.bytes);
    bytes_put_u32(w, m->initial);
    bytes_put_u32(w, m->added);
    for (uint32_t i = 0; i < m->added; i++)
        put_name(w, m->names[i]);
}

static void get_roster(struct bytes_reader *r, struct manifest *m)
{
    m->change.act = bytes_get_u8(r);
    m->change.site = bytes_get_u32(r);
    bytes_get(r, m->change.by.bytes, sizeof m->change.by.bytes);
    m->initial = bytes_get_u32(r);
    uint32_t added = bytes_get_u32(r);
    r->bad |= added > MANIFEST_ADDED_MAX;
    m->added = r->bad ? 0 : added;
    for (uint32_t i = 0; i < m->added; i++) {
        memset(m->names[i], 0, sizeof m->names[i]);
        get_name(r, m->names[i]);
    }
}

static void put_parts(struct bytes_writer *w, const struct manifest *m)
{
    bytes_put_u8(w, manifest_parts(m));
    for (uint32_t i = 0; m->scaled && i < m->site_count; i++)
        bytes_put_f32(w, m->sites[i].factor);
    for (uint32_t i = 0; m->tracks && i < m->site_count; i++) {
        bytes_put_f32(w, m->sites[i].track.mean);
        bytes_put_f32(w, m->sites[i].track.variance);
        bytes_put_u32(w, m->sites[i].track.rounds);
    }
    if (!digest_zero(&m->ordered_by))
        bytes_put(w, m->ordered_by.bytes, sizeof m->ordered_by.bytes);
    if (m->rolled_back)
        bytes_put_u64(w, m->rolled_to);
    if (m->roster_version > 1)
        put_roster(w, m);
    bool charges = charges_of(m);
    for (uint32_t i = 0; charges && i < m->site_count; i++)
        bytes_put_u64(w, m->sites[i].charged);
    if (m->amendments.count)
        amendments_put(w, &m->amendments);
}

static void get_parts(struct bytes_reader *r, struct manifest *m)
{
    uint8_t parts = bytes_get_u8(r);
    m->scaled = parts & PART_FACTORS;
    for (uint32_t i = 0; m->scaled && i < m->site_count; i++)
        m->sites[i].factor = bytes_get_f32(r);
    m->tracks = parts & PART_TRACKS;
    for (uint32_t i = 0; m->tracks && i < m->site_count; i++) {
        m->sites[i].track.mean = bytes_get_f32(r);
        m->sites[i].track.variance = bytes_get_f32(r);
        m->sites[i].track.rounds = bytes_get_u32(r);
    }
    if (parts & PART_ORDER)
        bytes_get(r, m->ordered_by.bytes, sizeof m->ordered_by.bytes);
    m->rolled_back = parts & PART_ROLLBACK;
    if (m->rolled_back)
        m->rolled_to = bytes_get_u64(r);
    if (parts & PART_ROSTER)
        get_roster(r, m);
    for (uint32_t i = 0; parts & PART_CHARGES && i < m->site_count; i++)
        m->sites[i].charged = bytes_get_u64(r);
    if (parts & PART_AMENDMENTS)
        amendments_get(r, &m->amendments);
    r->bad |= !parts || parts != manifest_parts(m);
}

static void put_body(struct bytes_writer *w, const struct manifest *m)
{
    ASSERT(m->site_count <= ROUND_SITES_MAX);
    bytes_put(w, manifest_parts(m) ? magic_parts : magic, sizeof magic);
    put_name(w, m->run);
    bytes_put(w, m->config.bytes, sizeof m->config.bytes);
    bytes_put_u32(w, m->roster_version);
    bytes_put_u32(w, m->fragment);
    bytes_put_u64(w, m->round);
    bytes_put(w, m->parent.bytes, sizeof m->parent.bytes);
    bytes_put(w, m->state_before.bytes, sizeof m->state_before.bytes);
    bytes_put(w, m->state_after.bytes, sizeof m->state_after.bytes);
    bytes_put_u32(w, m->codec);
    bytes_put(w, m->grid.bytes, sizeof m->grid.bytes);
    bytes_put(w, m->aggregate.bytes, sizeof m->aggregate.bytes);
    bytes_put_u64(w, m->aggregate_bytes);
    bytes_put_u8(w, m->residual_ratio);
    bytes_put_u32(w, m->site_count);
    for (uint32_t i = 0; i < m->site_count; i++)
        put_entry(w, &m->sites[i]);
    if (manifest_parts(m))
        put_parts(w, m);
}

static void get_body(struct bytes_reader *r, struct manifest *m)
{
    char start[sizeof magic];
    bytes_get(r, start, sizeof start);
    bool parts = memcmp(start, magic_parts, sizeof magic) == 0;
    r->bad |= !parts && memcmp(start, magic, sizeof magic) != 0;
    get_name(r, m->run);
    bytes_get(r, m->config.bytes, sizeof m->config.bytes);
    m->roster_version = bytes_get_u32(r);
    m->fragment = bytes_get_u32(r);
    m->round = bytes_get_u64(r);
    bytes_get(r, m->parent.bytes, sizeof m->parent.bytes);
    bytes_get(r, m->state_before.bytes, sizeof m->state_before.bytes);
    bytes_get(r, m->state_after.bytes, sizeof m->state_after.bytes);
    m->codec = bytes_get_u32(r);
    bytes_get(r, m->grid.bytes, sizeof m->grid.bytes);
    bytes_get(r, m->aggregate.bytes, sizeof m->aggregate.bytes);
    m->aggregate_bytes = bytes_get_u64(r);
    m->residual_ratio = bytes_get_u8(r);
    uint32_t count = bytes_get_u32(r);
    r->bad |= count > ROUND_SITES_MAX;
    m->site_count = r->bad ? 0 : count;
    for (uint32_t i = 0; i < m->site_count; i++)
        get_entry(r, &m->sites[i]);
    if (parts)
        get_parts(r, m);
}

static void put_envelope(struct bytes_writer *w, const struct manifest *m)
{
    bytes_put_u64(w, m->term);
    bytes_put_u64(w, m->instance);
    bytes_put_u64(w, m->unix_ms);
    bytes_put(w, m->signature, sizeof m->signature);
}

static void get_envelope(struct bytes_reader *r, struct manifest *m)
{
    m->term = bytes_get_u64(r);
    m->instance = bytes_get_u64(r);
    m->unix_ms = bytes_get_u64(r);
    bytes_get(r, m->signature, sizeof m->signature);
}

size_t manifest_encode(const struct manifest *m, uint8_t out[MANIFEST_BYTES_MAX])
{
    struct bytes_writer w = bytes_writer(out, MANIFEST_BYTES_MAX);
    put_body(&w, m);
    put_envelope(&w, m);
    ASSERT(!w.bad);
    return bytes_size(&w);
}

/* One site's line says one thing only: included with bytes and a weight, or not included and why.
 */
static bool entry_sane(const struct manifest_entry *e)
{
    if (!isfinite(e->weight) || signbit(e->weight) || !isfinite(e->norm) || signbit(e->norm) ||
        e->residual_ratio > CODEC_RATIO_MAX || digest_zero(&e->payload) != (e->payload_bytes == 0))
        return false;
    if (e->included)
        return e->reason == ROUND_NONE && e->weight > 0 && !digest_zero(&e->payload);
    bool absent = digest_zero(&e->payload);
    if (e->reason == ROUND_EXCLUDED && !absent)
        return false;
    return (e->reason == ROUND_NONE || e->reason == ROUND_LATE || e->reason == ROUND_ABORTED ||
            e->reason == ROUND_EXCLUDED) &&
           (!absent || (e->weight == 0 && e->norm == 0 && e->residual_ratio == 0));
}

/* Finite, not negative, and one line says more than "as sent"; who is not included has 1, or 0 in
 * an aborted round. */
static bool factors_sane(const struct manifest *m)
{
    bool counts = manifest_aborted(m), changes = false;
    for (uint32_t i = 0; i < m->site_count; i++) {
        const struct manifest_entry *e = &m->sites[i];
        bool dropped = e->reason == ROUND_ABORTED && e->factor == 0;
        if (!isfinite(e->factor) || signbit(e->factor) ||
            (!e->included && e->factor != 1 && !dropped))
            return false;
        counts |= e->included && e->factor > 0;
        changes |= e->factor != 1;
    }
    return counts && changes;
}

static bool tracks_sane(const struct manifest *m)
{
    for (uint32_t i = 0; i < m->site_count; i++) {
        const struct manifest_track *t = &m->sites[i].track;
        if (!isfinite(t->mean) || signbit(t->mean) || !isfinite(t->variance) ||
            signbit(t->variance) || (!t->rounds && (t->mean > 0 || t->variance > 0)))
            return false;
    }
    return true;
}

/* Ordered by an operator, to an earlier state, whose bytes are the aggregate. */
static bool rollback_sane(const struct manifest *m)
{
    return manifest_aborted(m) && !digest_zero(&m->ordered_by) && m->rolled_to < m->round;
}

/* A version after the first says what made it, and the entries are what the act leaves. */
static bool roster_sane(const struct manifest *m)
{
    const struct manifest_change *c = &m->change;
    uint32_t indices = m->initial + m->added;
    if (m->roster_version < 2)
        return c->act == 0 && m->added == 0;
    if (m->initial < 1 || m->initial > ROUND_SITES_MAX || indices > ROUND_SITES_MAX ||
        m->site_count < 1 || m->sites[m->site_count - 1].site >= indices || c->site >= indices ||
        digest_zero(&c->by) || (c->act != MANIFEST_ADD && c->act != MANIFEST_REMOVE) ||
        (manifest_site(m, c->site) != NULL) != (c->act == MANIFEST_ADD))
        return false;
    for (uint32_t i = 0; i < m->added; i++) {
        if (!site_name_good(m->names[i]))
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(m->names[i], m->names[k]) == 0)
                return false;
    }
    return true;
}

static bool manifest_sane(const struct manifest *m)
{
    bool empty = manifest_empty(m);
    if (m->fragment >= ROUND_FRAGMENTS_MAX || m->residual_ratio > CODEC_RATIO_MAX ||
        digest_zero(&m->parent) != (m->round == 0) || empty != digest_zero(&m->aggregate) ||
        empty != (m->aggregate_bytes == 0) || (m->rolled_back && !rollback_sane(m)) ||
        (m->scaled && !factors_sane(m)) || (m->tracks && !tracks_sane(m)) ||
        (!digest_zero(&m->ordered_by) && !manifest_aborted(m)))
        return false;
    for (uint32_t i = 0; i < m->site_count; i++)
        if (!entry_sane(&m->sites[i]) || (i && m->sites[i].site <= m->sites[i - 1].site) ||
            m->sites[i].site >= ROUND_SITES_MAX)
            return false;
    return roster_sane(m);
}

void manifest_clear(struct manifest *m)
{
    memset(m, 0, offsetof(struct manifest, amendments));
    m->amendments.count = 0;
}

bool manifest_decode(struct manifest *m, const uint8_t *data, size_t size_bytes)
{
    manifest_clear(m);
    struct bytes_reader r = bytes_reader(data, size_bytes);
    get_body(&r, m);
    get_envelope(&r, m);
    if (bytes_done(&r) && manifest_sane(m))
        return true;
    manifest_clear(m);
    return false;
}

struct digest manifest_digest(const struct manifest *m)
{
    uint8_t body[MANIFEST_BYTES_MAX];
    struct bytes_writer w = bytes_writer(body, sizeof body);
    put_body(&w, m);
    ASSERT(!w.bad);
    return digest_of(body, bytes_size(&w));
}

const struct manifest_entry *manifest_site(const struct manifest *m, uint32_t site)
{
    uint32_t low = 0, high = m->site_count;
    while (low < high) {
        uint32_t i = (low + high) / 2;
        if (m->sites[i].site == site)
            return &m->sites[i];
        if (m->sites[i].site < site)
            low = i + 1;
        else
            high = i;
    }
    return NULL;
}

const char *manifest_name(const struct manifest *m, const char *const *first, uint32_t site)
{
    bool later = m->roster_version > 1 && site >= m->initial;
    ASSERT(!later || site - m->initial < m->added);
    return later ? m->names[site - m->initial] : first[site];
}

void manifest_weights(const struct manifest *m, float weights[ROUND_SITES_MAX])
{
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].included)
            *weights++ = m->sites[i].weight;
}

bool manifest_factors(const struct manifest *m, float factors[ROUND_SITES_MAX])
{
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].included)
            *factors++ = m->scaled ? m->sites[i].factor : 1;
    return m->scaled;
}

float manifest_weight(const struct manifest *m)
{
    float sum = 0;
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].included)
            sum += MUTANT(MEAN_UNWEIGHTED) ? 1 : m->sites[i].weight;
    return sum;
}

unsigned manifest_included(const struct manifest *m)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < m->site_count; i++)
        n += m->sites[i].included;
    return n;
}

bool manifest_aborted(const struct manifest *m)
{
    return manifest_included(m) == 0;
}

bool manifest_empty(const struct manifest *m)
{
    return manifest_aborted(m) && !m->rolled_back;
}

uint8_t manifest_residual_ratio(const struct manifest *m)
{
    uint8_t most = m->residual_ratio;
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].included && m->sites[i].residual_ratio > most)
            most = m->sites[i].residual_ratio;
    return most;
}
