/* SPDX-License-Identifier: Apache-2.0 */
/* atoll privacy verify: a site proves what left it, from the records that it made at the time. */
#include <inttypes.h>
#include <stdio.h>
#include "kernels/base/args.h"
#include "kernels/base/file.h"
#include "outer/cmd/privacy_verify.h"
#include "outer/identity/tls.h"
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

static enum err verify_all(const struct args *args, struct arena *a)
{
    static struct released r[SITES_MAX];
    size_t failed = 0;
    size_t count = (size_t)args->operand_count;
    for (size_t i = 0; i < count; i++) {
        TRY(released_read(&r[i], args->operand[i], tls_signature_holds, a));
        for (size_t k = 0; k < i; k++)
            TRY(released_compare(&r[k], &r[i], a));
    }
    for (size_t i = 0; i < count; i++) {
        TRY(released_finish(&r[i], a));
        print_rounds(&r[i]);
        TRY(verify_budget(&r[i], a, &failed));
        print_why(&r[i]);
        failed += r[i].failed;
    }
    puts(
        "proves         which masked bytes left each site, with which others they were summed, and "
        "that all of these sites agreed to that one sum");
    puts("does not prove what the values were, or that others masked theirs rightly: the keys are "
         "wiped round by round, so no mask can be made a second time");
    if (failed)
        return err_set(ERR_DIFFERS, "privacy verify: %zu statements are not proved", failed);
    return ERR_OK;
}

enum err privacy_verify(int argc, char **argv, struct arena *arena)
{
    struct args args = {
        .command = "privacy verify",
        .summary = "Proves from a site's records what left it under secure aggregation: each seal "
                   "with the signatures of the aggregator and of all sites of the sum, the "
                   "manifests that name the same bytes, charges and cap; and that no record is "
                   "missing: a round in which a manifest or another site's seal has the site needs "
                   "one. Several directories of a run: also that all answered for the same seals. "
                   "Reads only.",
        .example = "atoll privacy verify run-a run-b",
        .operands = "DIR..."};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    if (!args.operand_count || args.operand_count > SITES_MAX)
        return err_set(ERR_CONFIG, "privacy verify: give the run.dir of 1 to %d sites", SITES_MAX);
    return verify_all(&args, arena);
}
