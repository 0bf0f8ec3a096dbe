/* SPDX-License-Identifier: Apache-2.0 */
/* atoll privacy verify: a site proves what left it, from the records that it made at the time. */
#include <stdio.h>
#include "kernels/base/args.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/privacy.h"
#include "outer/identity/tls.h"
#include "outer/view/released.h"

enum { SITES_MAX = 64 };

static enum err verify_print(struct released *r, size_t count, bool json, struct arena *a,
                             size_t *failed)
{
    struct json_write w = {.out = stdout, .digits = 9};
    if (json) {
        json_object(&w, NULL);
        json_array(&w, "sites");
    }
    for (size_t i = 0; i < count; i++) {
        TRY(released_finish(&r[i], a));
        TRY(released_print(&r[i], json ? &w : NULL, a, failed));
    }
    if (json) {
        json_end(&w);
        json_int(&w, "failed", (int64_t)*failed);
        json_close(&w);
        return ERR_OK;
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
    TRY(verify_print(r, count, json, a, &failed));
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
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    TRY(cmd_format(format, &json));
    if (!args.operand_count || args.operand_count > SITES_MAX)
        return err_set(ERR_CONFIG, "privacy verify: give the run.dir of 1 to %d sites", SITES_MAX);
    return verify_all(&args, json, arena);
}
