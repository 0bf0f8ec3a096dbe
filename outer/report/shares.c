#include "outer/report/shares.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void shares_text(const struct manifest *m, char out[SHARES_TEXT_MAX])
{
    size_t n = 0;
    *out = 0;
    for (uint32_t i = 0; i < m->site_count && n < SHARES_TEXT_MAX; i++)
        if (m->sites[i].included)
            n += (size_t)snprintf(out + n, SHARES_TEXT_MAX - n, "%s%" PRIu32 ":%" PRIu64,
                                  n ? "," : "", m->sites[i].site, m->sites[i].data_cursor);
}

void shares_add(struct shares *s, unsigned fragment, uint64_t round, const char *text)
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

void shares_record(struct shares *s, const struct jsonl_row *row)
{
    double fragment = jsonl_number(row, "fragment"), round = jsonl_number(row, "round");
    const char *text = jsonl_string(row, "cursors");
    if (!*text && jsonl_number(row, "included") > 0)
        return; /* by a version that did not write them */
    if (jsonl_is(row, "round") && fragment >= 0 && fragment < ROUND_FRAGMENTS_MAX && round >= 0)
        shares_add(s, (unsigned)fragment, (uint64_t)round, text);
}

struct share shares_of(const struct shares *s, unsigned site)
{
    struct share x = {s->site_rounds[site], s->site_tokens[site], true};
    for (unsigned f = 0; f < ROUND_FRAGMENTS_MAX; f++)
        x.ends = x.ends && (!s->next[f] || set_has(&s->newest[f], site));
    return x;
}

uint64_t shares_tokens(const struct shares *s)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < ROUND_SITES_MAX; i++)
        sum += s->site_tokens[i];
    return sum;
}

enum err shares_short(struct outer_state *m, const char *const *names, unsigned index,
                      unsigned count)
{
    struct set missing = {0};
    char text[512] = "";
    size_t n = 0;
    unsigned sites = 0;
    for (unsigned f = index; f < m->fragments->count; f += count) {
        struct manifest last;
        if (!m->state[f].round)
            continue;
        TRY(outer_state_manifest(m, f, m->state[f].round - 1, &last));
        sites = last.site_count;
        for (uint32_t i = 0; i < sites; i++)
            if (!last.sites[i].included)
                set_put(&missing, last.sites[i].site, true);
    }
    for (unsigned i = 0; i < sites && n < sizeof text; i++)
        if (set_has(&missing, i))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", names[i]);
    if (!n)
        return ERR_OK;
    return err_set(ERR_SHORT,
                   "the run has all its rounds, and its last one is without %u of %u sites (%s): "
                   "what they trained since they were last included is not in the result",
                   set_count(&missing), sites, text);
}
