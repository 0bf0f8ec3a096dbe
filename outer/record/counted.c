/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/counted.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void counted_text(const struct manifest *m, char out[COUNTED_TEXT_MAX])
{
    size_t n = 0;
    *out = 0;
    for (uint32_t i = 0; i < m->site_count && n < COUNTED_TEXT_MAX; i++)
        if (m->sites[i].included)
            n += (size_t)snprintf(out + n, COUNTED_TEXT_MAX - n, "%s%" PRIu32 ":%" PRIu64,
                                  n ? "," : "", m->sites[i].site, m->sites[i].data_cursor);
}

void counted_add(struct counted *s, unsigned fragment, uint64_t round, const char *text)
{
    if (fragment >= ROUND_FRAGMENTS_MAX || round < s->next[fragment])
        return;
    s->next[fragment] = round + 1;
    s->newest[fragment] = (struct set){0};
    s->rounds++;
    for (const char *at = text; *at;) {
        char *end;
        unsigned long site = strtoul(at, &end, 10);
        if (*end != ':' || site >= ROUND_SITES_MAX)
            return;
        uint64_t tokens = strtoull(end + 1, &end, 10);
        set_put(&s->newest[fragment], (unsigned)site, true);
        s->site_rounds[site]++;
        if (tokens > s->site_tokens[site])
            s->site_tokens[site] = tokens;
        at = *end == ',' ? end + 1 : end + strlen(end);
    }
}

void counted_record(struct counted *s, const struct jsonl_row *row)
{
    double fragment = jsonl_number(row, "fragment"), round = jsonl_number(row, "round");
    const char *text = jsonl_string(row, "cursors");
    if (!*text && jsonl_number(row, "included") > 0)
        return; /* by a version that did not write them */
    if (jsonl_is(row, "round") && fragment >= 0 && fragment < ROUND_FRAGMENTS_MAX && round >= 0)
        counted_add(s, (unsigned)fragment, (uint64_t)jsonl_whole(round), text);
}

struct counted_site counted_of(const struct counted *s, unsigned site)
{
    struct counted_site x = {s->site_rounds[site], s->site_tokens[site], true};
    for (unsigned f = 0; f < ROUND_FRAGMENTS_MAX; f++)
        x.ends = x.ends && (!s->next[f] || set_has(&s->newest[f], site));
    return x;
}

uint64_t counted_tokens(const struct counted *s)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < ROUND_SITES_MAX; i++)
        sum += s->site_tokens[i];
    return sum;
}

static void newest_take(struct counted_last *c, const struct manifest *m)
{
    if (!c->newest.site_count || m->roster_version > c->newest.roster_version)
        c->newest = *m;
}

enum err counted_last(struct counted_last *c, struct outer_state *m, unsigned index, unsigned count)
{
    struct manifest last;
    for (unsigned f = index; f < m->fragments->count; f += count) {
        if (!m->state[f].round)
            continue;
        TRY(outer_state_manifest(m, f, m->state[f].round - 1, &last));
        newest_take(c, &last);
        for (uint32_t i = 0; i < last.site_count; i++)
            if (!last.sites[i].included)
                set_put(&c->missing, last.sites[i].site, true);
    }
    return ERR_OK;
}

void counted_join(struct counted_last *c, const struct counted_last *other)
{
    if (other->newest.site_count)
        newest_take(c, &other->newest);
    for (unsigned i = 0; i < ROUND_SITES_MAX; i++)
        if (set_has(&other->missing, i))
            set_put(&c->missing, i, true);
}

enum err counted_short(const struct counted_last *c, const char *const *names)
{
    char text[512] = "";
    size_t n = 0;
    for (unsigned i = 0; i < ROUND_SITES_MAX && n < sizeof text; i++)
        if (set_has(&c->missing, i))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "",
                                  manifest_name(&c->newest, names, i));
    if (!n)
        return ERR_OK;
    return err_set(ERR_SHORT,
                   "the run has all its rounds, and its last one is without %u of %u sites (%s): "
                   "what they trained since they were last included is not in the result",
                   set_count(&c->missing), c->newest.site_count, text);
}
