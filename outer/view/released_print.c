/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "outer/view/released.h"
#include "outer/view/spent.h"

enum { SHOWN_MAX = 20 };

/* ---- text ---- */
static void rounds_text(const struct released *r, const struct released_sum *sum)
{
    char from[SPENT_TIME_MAX], to[SPENT_TIME_MAX];
    printf("site %s of run %s (%s)\n", r->site, r->run, r->dir);
    spent_time(from, (double)(sum->first_ms / 1000));
    spent_time(to, (double)(sum->last_ms / 1000));
    printf("  left the site  %zu masked payloads, %" PRIu64 " bytes, from %s to %s\n", r->count,
           r->bytes, from, to);
    printf(
        "  each one       in a sum over %u to %u sites; the seal is signed by the aggregator and "
        "by every site of the sum\n",
        sum->least, sum->most);
    printf(
        "  manifests      %zu are still here and name these very bytes; %zu rounds were aborted: "
        "their masks were never used again\n",
        sum->manifests, r->aborted);
}

/* Charged before it was sent, and within the cap. */
static void budget_text(const struct released_budget *b)
{
    if (b->none) {
        puts("  budget         none: no record-level privacy inside this site (privacy.unit = "
             "none)");
        return;
    }
    if (b->unproved) {
        printf("  budget         NOT PROVED: payloads name at most %" PRIu64 " charged steps; %s\n",
               b->named, err_message());
        return;
    }
    printf("  budget         %" PRId64 " steps charged; payloads name at most %" PRIu64 "%s\n",
           b->steps, b->named, b->charged ? "" : ": MORE THAN WERE CHARGED");
    if (b->unclaimed)
        printf("                 no epsilon can be claimed: %s\n", b->unclaimed);
    else
        printf("                 (epsilon, delta) = (%.6g, %g)%s\n", b->epsilon, b->delta,
               b->cap == 0 ? "; no cap"
               : b->within ? ", within its cap"
                           : ": ABOVE ITS CAP");
}

static void why_text(const struct released *r)
{
    if (r->unknown)
        printf("  not known      %zu rounds before this site's first record: nothing here says "
               "whether it was in them; the directories of the other sites do\n",
               r->unknown);
    if (r->former)
        printf("  not numbered   %zu records are of a program before 28 November 2026: manifests "
               "and the directories of the other sites alone say whether one is missing\n",
               r->former);
    for (size_t i = 0; i < r->failed && i < SHOWN_MAX; i++)
        printf("  NOT PROVED     %s\n", r->why[i]);
    if (r->failed > SHOWN_MAX)
        printf("  NOT PROVED     and %zu more\n", r->failed - SHOWN_MAX);
}

/* ---- JSON ---- */
static void budget_json(struct json_write *w, const struct released_budget *b)
{
    if (b->none)
        return;
    json_object(w, "budget");
    json_int(w, "named_steps", (int64_t)b->named);
    json_bool(w, "proved", !b->unproved && b->charged && b->within);
    if (b->unproved) {
        json_text(w, "why", err_message());
    } else {
        json_int(w, "charged_steps", b->steps);
        json_real(w, "epsilon", b->unclaimed ? NAN : b->epsilon);
        json_real(w, "delta", b->delta);
        json_real(w, "epsilon_max", b->cap > 0 ? b->cap : NAN);
        if (b->unclaimed)
            json_text(w, "unclaimed", b->unclaimed);
    }
    json_end(w);
}

static void rounds_json(struct json_write *w, const struct released *r,
                        const struct released_sum *sum)
{
    json_text(w, "site", r->site);
    json_text(w, "run", r->run);
    json_text(w, "directory", r->dir);
    json_int(w, "payloads", (int64_t)r->count);
    json_int(w, "bytes", (int64_t)r->bytes);
    json_int(w, "first_unix_ms", (int64_t)sum->first_ms);
    json_int(w, "last_unix_ms", (int64_t)sum->last_ms);
    json_int(w, "sites_least", sum->least);
    json_int(w, "sites_most", sum->most);
    json_int(w, "manifests", (int64_t)sum->manifests);
    json_int(w, "aborted", (int64_t)r->aborted);
    json_int(w, "rounds_unknown", (int64_t)r->unknown);
    json_int(w, "not_numbered", (int64_t)r->former);
    json_array(w, "not_proved");
    for (size_t i = 0; i < r->failed; i++)
        json_text(w, NULL, r->why[i]);
    json_end(w);
}

enum err released_print(const struct released *r, struct json_write *w, struct arena *a,
                        size_t *failed)
{
    struct released_sum sum;
    struct released_budget b;
    released_sum(&sum, r);
    if (w) {
        json_object(w, NULL);
        rounds_json(w, r, &sum);
    } else {
        rounds_text(r, &sum);
    }
    TRY(released_budget(&b, r, a));
    *failed += r->failed;
    if (!b.none)
        *failed += b.unproved ? 1 : (size_t)(!b.charged) + (size_t)(!b.within);
    if (!w) {
        budget_text(&b);
        why_text(r);
        return ERR_OK;
    }
    budget_json(w, &b);
    json_end(w);
    return ERR_OK;
}
