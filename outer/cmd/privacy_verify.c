/* SPDX-License-Identifier: Apache-2.0 */
/* atoll privacy verify: a site proves what left it, from the records that it made at the time. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "kernels/base/args.h"
#include "kernels/base/file.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/privacy_verify.h"
#include "outer/identity/tls.h"
#include "outer/record/json_write.h"
#include "outer/view/released.h"
#include "outer/view/spent.h"

enum { SITES_MAX = 64, SHOWN_MAX = 20 };

static void print_rounds(const struct released *r)
{
    struct released_sum sum;
    char from[SPENT_TIME_MAX], to[SPENT_TIME_MAX];
    released_sum(&sum, r);
    printf("site %s of run %s (%s)\n", r->site, r->run, r->dir);
    spent_time(from, (double)(sum.first_ms / 1000));
    spent_time(to, (double)(sum.last_ms / 1000));
    printf("  left the site  %zu masked payloads, %" PRIu64 " bytes, from %s to %s\n", r->count,
           r->bytes, from, to);
    printf(
        "  each one       in a sum over %u to %u sites; the seal is signed by the aggregator and "
        "by every site of the sum\n",
        sum.least, sum.most);
    printf(
        "  manifests      %zu are still here and name these very bytes; %zu rounds were aborted: "
        "their masks were never used again\n",
        sum.manifests, r->aborted);
}

/* Charged before it was sent, and within the cap. */
static enum err verify_budget(const struct released *r, struct arena *a, size_t *failed)
{
    struct released_budget b;
    TRY(released_budget(&b, r, a));
    if (b.none) {
        puts("  budget         none: no record-level privacy inside this site (privacy.unit = "
             "none)");
        return ERR_OK;
    }
    if (b.unproved) {
        printf("  budget         NOT PROVED: payloads name at most %" PRIu64 " charged steps; %s\n",
               b.named, err_message());
        (*failed)++;
        return ERR_OK;
    }
    *failed += (size_t)(!b.charged) + (size_t)(!b.within);
    printf("  budget         %" PRId64 " steps charged; payloads name at most %" PRIu64 "%s\n",
           b.steps, b.named, b.charged ? "" : ": MORE THAN WERE CHARGED");
    if (b.unclaimed)
        printf("                 no epsilon can be claimed: %s\n", b.unclaimed);
    else
        printf("                 (epsilon, delta) = (%.6g, %g)%s\n", b.epsilon, b.delta,
               b.cap == 0 ? "; no cap"
               : b.within ? ", within its cap"
                          : ": ABOVE ITS CAP");
    return ERR_OK;
}

static void print_why(const struct released *r)
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
static enum err budget_json(struct json_write *w, const struct released *r, struct arena *a,
                            size_t *failed)
{
    struct released_budget b;
    TRY(released_budget(&b, r, a));
    if (b.none)
        return ERR_OK;
    json_object(w, "budget");
    json_int(w, "named_steps", (int64_t)b.named);
    json_bool(w, "proved", !b.unproved && b.charged && b.within);
    *failed += b.unproved ? 1 : (size_t)(!b.charged) + (size_t)(!b.within);
    if (b.unproved) {
        json_text(w, "why", err_message());
    } else {
        json_int(w, "charged_steps", b.steps);
        json_real(w, "epsilon", b.unclaimed ? NAN : b.epsilon);
        json_real(w, "delta", b.delta);
        json_real(w, "epsilon_max", b.cap > 0 ? b.cap : NAN);
        if (b.unclaimed)
            json_text(w, "unclaimed", b.unclaimed);
    }
    json_end(w);
    return ERR_OK;
}

static void rounds_json(struct json_write *w, const struct released *r)
{
    struct released_sum sum;
    released_sum(&sum, r);
    json_text(w, "site", r->site);
    json_text(w, "run", r->run);
    json_text(w, "directory", r->dir);
    json_int(w, "payloads", (int64_t)r->count);
    json_int(w, "bytes", (int64_t)r->bytes);
    json_int(w, "first_unix_ms", (int64_t)sum.first_ms);
    json_int(w, "last_unix_ms", (int64_t)sum.last_ms);
    json_int(w, "sites_least", sum.least);
    json_int(w, "sites_most", sum.most);
    json_int(w, "manifests", (int64_t)sum.manifests);
    json_int(w, "aborted", (int64_t)r->aborted);
    json_int(w, "rounds_unknown", (int64_t)r->unknown);
    json_int(w, "not_numbered", (int64_t)r->former);
    json_array(w, "not_proved");
    for (size_t i = 0; i < r->failed; i++)
        json_text(w, NULL, r->why[i]);
    json_end(w);
}

static enum err verify_json(struct released *r, size_t count, struct arena *a, size_t *failed)
{
    struct json_write w = {.out = stdout, .digits = 9};
    json_object(&w, NULL);
    json_array(&w, "sites");
    for (size_t i = 0; i < count; i++) {
        TRY(released_finish(&r[i], a));
        json_object(&w, NULL);
        rounds_json(&w, &r[i]);
        TRY(budget_json(&w, &r[i], a, failed));
        json_end(&w);
        *failed += r[i].failed;
    }
    json_end(&w);
    json_int(&w, "failed", (int64_t)*failed);
    json_close(&w);
    return ERR_OK;
}

static enum err verify_text(struct released *r, size_t count, struct arena *a, size_t *failed)
{
    for (size_t i = 0; i < count; i++) {
        TRY(released_finish(&r[i], a));
        print_rounds(&r[i]);
        TRY(verify_budget(&r[i], a, failed));
        print_why(&r[i]);
        *failed += r[i].failed;
    }
    puts(
        "proves         which masked bytes left each site, with which others they were summed, and "
        "that all of these sites agreed to that one sum");
    puts("does not prove what the values were, or that others masked theirs rightly: the keys are "
         "wiped round by round, so no mask can be made a second time");
    return ERR_OK;
}

static enum err verify_all(const struct args *args, bool json, struct arena *a)
{
    static struct released r[SITES_MAX];
    size_t failed = 0;
    size_t count = (size_t)args->operand_count;
    for (size_t i = 0; i < count; i++) {
        TRY(released_read(&r[i], args->operand[i], tls_signature_holds, a));
        for (size_t k = 0; k < i; k++)
            TRY(released_compare(&r[k], &r[i], a));
    }
    TRY(json ? verify_json(r, count, a, &failed) : verify_text(r, count, a, &failed));
    if (failed)
        return err_set(ERR_DIFFERS, "privacy verify: %zu statements are not proved", failed);
    return ERR_OK;
}

enum err privacy_verify(int argc, char **argv, struct arena *arena)
{
    const char *format = "text";
    bool json;
    const struct args_option options[] = {
        FORMAT_ROW(&format, ": sites, each with its payloads, budget and what is not_proved")};
    struct args args = {
        .command = "privacy verify",
        .summary = "Proves from a site's records what left it under secure aggregation: each seal "
                   "with the signatures of the aggregator and of all sites of the sum, the "
                   "manifests that name the same bytes, charges and cap; and that no record is "
                   "missing: a round in which a manifest or another site's seal has the site needs "
                   "one. Several directories of a run: also that all answered for the same seals. "
                   "Reads only.",
        .example = "atoll privacy verify run-a run-b",
        .operands = "DIR...",
        .options = options,
        .count = 1};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    TRY(cmd_format(format, &json));
    if (!args.operand_count || args.operand_count > SITES_MAX)
        return err_set(ERR_CONFIG, "privacy verify: give the run.dir of 1 to %d sites", SITES_MAX);
    return verify_all(&args, json, arena);
}
