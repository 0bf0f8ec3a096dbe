/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/cmd/cert.h"
#include <stdio.h>
#include "kernels/base/args.h"
#include "kernels/base/clock.h"
#include "outer/identity/authority.h"

struct tls_validity cert_validity(double days)
{
    int64_t now = clock_wall_s();
    return (struct tls_validity){now - CERT_SKEW_S, now + (int64_t)(days * CERT_DAY_S)};
}

static void print_entry(void *dir, const char *entry, const char *note, bool was_there)
{
    printf("%s%s%s%s  %s in %s/revoked.txt\n", entry, note ? " (" : "", note ? note : "",
           note ? ")" : "", was_there ? "was already" : "is now", (const char *)dir);
}

static enum err revoke(const char *dir, const char *what, bool issued, struct arena *arena)
{
    const struct authority_told told = {print_entry, (void *)(uintptr_t)dir};
    bool unseen;
    TRY(authority_revoke(dir, what, issued, &told, &unseen, arena));
    if (unseen)
        fprintf(stderr,
                "atoll: no certificate in %s has this identity, so check the spelling; "
                "atoll cert list prints the identities\n",
                dir);
    return ERR_OK;
}

enum err cert_revoke(int argc, char **argv, struct arena *arena)
{
    const char *dir = "tls";
    bool issued = false;
    const struct args_option options[] = {
        {"dir", ARGS_TEXT, &dir, .value = "DIR",
         .help = "Directory of revoked.txt: the aggregator's tls.dir; the aggregator rereads it "
                 "after a change."},
        {"issued", ARGS_FLAG, &issued,
         .help = "With a name: revoke every certificate issued for it so far, not the name. A new "
                 "certificate of the name is accepted."},
    };
    struct args a = {.command = "cert revoke",
                     .summary = "Revokes a name (atoll://RUN/ROLE/NAME), or one certificate (its "
                                "file, sha256:HEX or serial:HEX) whose name then may get a new "
                                "one. The aggregator ends its open calls and refuses the next.",
                     .example = "atoll cert revoke tls/b.pem --dir tls",
                     .operands = "WHAT...",
                     ARGS_OPTIONS(options)};
    TRY(args_parse(&a, argc, argv, arena));
    if (a.help)
        return ERR_OK;
    if (a.operand_count < 1)
        return err_set(ERR_CONFIG, "what? atoll cert revoke atoll://RUN/ROLE/NAME, or a "
                                   "certificate's file");
    for (int i = 0; i < a.operand_count; i++)
        TRY(revoke(dir, a.operand[i], issued, arena));
    return ERR_OK;
}

static enum err renew(struct authority_renewal *r)
{
    const struct authority_told told = {print_entry, (void *)(uintptr_t)r->directory};
    struct tls_facts f;
    char until[TLS_DATE_MAX];
    const char *out = r->out, *name = r->id.name;
    TRY(authority_renew(r, &f));
    printf("%s/%s.pem  %s, until %s\n%s/%s.key  its new key\n", out, name, f.uri,
           tls_date(until, f.until_unix), out, name);
    if (tls_role_signs(r->id.role))
        printf("%s/%s.identity.pem  its identity key's certificate\n", out, name);
    puts("Copy the files to the process; it uses them without a restart.");
    if (r->identity.uri_count)
        TRY(authority_revoke_certificate(r->directory, &r->identity, &told));
    return r->replace ? authority_revoke_certificate(r->directory, &r->old, &told) : ERR_OK;
}

enum err cert_renew(int argc, char **argv, struct arena *arena)
{
    const char *dir = "tls", *out = NULL;
    double days = 90;
    bool revoke_old = false;
    const struct args_option options[] = {
        {"dir", ARGS_TEXT, &dir, .value = "DIR", .help = "Directory of ca.pem and ca.key."},
        {"out", ARGS_TEXT, &out, .value = "DIR",
         .help = "Directory for NAME.pem, NAME.key, NAME.identity.pem and a copy of ca.pem; "
                 "default: --dir."},
        {"days", ARGS_REAL, &days, .value = "N", .min = CERT_DAYS_MIN, .max = CERT_DAYS_MAX,
         .help = "Validity of the certificate."},
        {"revoke", ARGS_FLAG, &revoke_old,
         .help = "Also revoke the old certificate, as atoll cert revoke FILE does, and replace the "
                 "identity key: its certificate is revoked, too. For use after a theft. Until "
                 "the new files are in place, the process is refused."},
    };
    struct args a = {.command = "cert renew",
                     .summary = "Makes a new key and certificate with the name, role and hosts of "
                                "an old certificate. The identity key next to it stays, with a new "
                                "certificate.",
                     .example = "atoll cert renew tls/b.pem --dir tls",
                     .operands = "FILE",
                     ARGS_OPTIONS(options)};
    TRY(args_parse(&a, argc, argv, arena));
    if (a.help)
        return ERR_OK;
    if (a.operand_count != 1)
        return err_set(ERR_CONFIG, "which certificate? atoll cert renew tls/b.pem");
    struct authority_renewal r = {.directory = dir,
                                  .out = out ? out : dir,
                                  .file = a.operand[0],
                                  .validity = cert_validity(days),
                                  .replace = revoke_old};
    return renew(&r);
}
