#include "outer/cmd/cert_revoke.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "kernels/base/args.h"
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "outer/identity/revocation.h"

enum { ISSUED_BYTES_MAX = 16 << 20 };

struct tls_validity cert_validity(double days)
{
    int64_t now = clock_wall_s();
    return (struct tls_validity){now - CERT_SKEW_S, now + (int64_t)(days * CERT_DAY_S)};
}

const char *cert_date(char out[32], int64_t unix_s)
{
    time_t t = (time_t)unix_s;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm) == 0)
        snprintf(out, 32, "?");
    return out;
}

/* ---- what was issued ---- */

static void sha256_entry(char out[REVOCATION_ENTRY_MAX], const struct tls_facts *f)
{
    char hex[65];
    digest_hex(&f->sha256, hex);
    snprintf(out, REVOCATION_ENTRY_MAX, "sha256:%s", hex);
}

static enum err issued_read(const char *dir, struct arena *a, char **text, char path[4096])
{
    static char none[] = "";
    uint8_t *data;
    size_t n;
    *text = none;
    snprintf(path, 4096, "%s/issued.txt", dir);
    if (!file_exists(path))
        return ERR_OK;
    TRY(file_read(path, ISSUED_BYTES_MAX, a, &data, &n));
    *text = (char *)data;
    return ERR_OK;
}

enum err cert_issued_add(const char *dir, const struct tls_facts *f)
{
    char path[4096], entry[REVOCATION_ENTRY_MAX], line[1024], date[32], *text;
    struct arena a = arena_make(0);
    sha256_entry(entry, f);
    int n = snprintf(line, sizeof line, "%s %s serial:%s until %s\n", f->uri, entry, f->serial,
                     cert_date(date, f->until_unix));
    enum err e = issued_read(dir, &a, &text, path);
    struct file_part parts[] = {{text, strlen(text)}, {line, (size_t)n}};
    if (e == ERR_OK)
        e = file_write(path, parts, 2, 0644);
    arena_free(&a);
    return e;
}

enum err cert_issued(const struct tls_request *r, struct tls_facts *leaf)
{
    char path[4096];
    struct tls_facts f;
    snprintf(path, sizeof path, "%s/%s.pem", r->out, r->name);
    TRY(tls_facts(leaf, path));
    TRY(cert_issued_add(r->directory, leaf));
    if (!tls_role_signs(r->role))
        return ERR_OK;
    snprintf(path, sizeof path, "%s/%s.identity.pem", r->out, r->name);
    TRY(tls_facts(&f, path));
    return cert_issued_add(r->directory, &f);
}

bool cert_is_revoked(const char *dir, const struct tls_facts *f)
{
    char entries[3][REVOCATION_ENTRY_MAX];
    bool listed = false;
    snprintf(entries[0], sizeof entries[0], "%s", f->uri);
    sha256_entry(entries[1], f);
    snprintf(entries[2], sizeof entries[2], "serial:%s", f->serial);
    for (int i = 0; i < 3 && !listed; i++)
        listed = revocation_entry(entries[i], entries[i]) &&
                 revocation_listed(dir, entries[i], &listed) == ERR_OK && listed;
    return listed;
}

/* ---- revoke ---- */

struct revoking {
    const char *dir, *uri;
    unsigned count; /* certificates of the name that were found */
};

static enum err entry_add(const struct revoking *r, const char *entry, const char *note)
{
    bool was_there;
    TRY(revocation_add(r->dir, entry, note, &was_there));
    printf("%s%s%s%s  %s in %s/revoked.txt\n", entry, note ? " (" : "", note ? note : "",
           note ? ")" : "", was_there ? "was already" : "is now", r->dir);
    return ERR_OK;
}

static enum err certificate_add(struct revoking *r, const struct tls_facts *f)
{
    char entry[REVOCATION_ENTRY_MAX];
    sha256_entry(entry, f);
    r->count++;
    return entry_add(r, entry, f->uri);
}

/* Calls add, or counts when add is NULL, for each certificate in the directory that has the name.
 */
static enum err files_of_name(struct revoking *r, struct arena *arena,
                              enum err (*add)(struct revoking *r, const struct tls_facts *f))
{
    char **names, path[4096];
    size_t count;
    TRY(file_list(r->dir, arena, &names, &count));
    for (size_t i = 0; i < count; i++) {
        struct tls_facts f;
        size_t n = strlen(names[i]);
        snprintf(path, sizeof path, "%s/%s", r->dir, names[i]);
        if (n <= 4 || strcmp(names[i] + n - 4, ".pem") != 0 || tls_facts(&f, path) != ERR_OK ||
            strcmp(f.uri, r->uri) != 0)
            continue;
        if (add)
            TRY(add(r, &f));
        else
            r->count++;
    }
    err_clear();
    return ERR_OK;
}

static enum err issued_of_name(struct revoking *r, struct arena *arena)
{
    char path[4096], *text, *rest;
    TRY(issued_read(r->dir, arena, &text, path));
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char uri[256], word[256], entry[REVOCATION_ENTRY_MAX];
        if (sscanf(line, "%255s %255s", uri, word) != 2 || strcmp(uri, r->uri) != 0 ||
            !revocation_entry(entry, word))
            continue;
        TRY(entry_add(r, entry, r->uri));
        r->count++;
    }
    return files_of_name(r, arena, certificate_add);
}

static enum err name_revoke(struct revoking *r, bool issued, struct arena *arena)
{
    struct tls_identity id;
    if (!tls_uri_parse(&id, r->uri))
        return err_set(ERR_CONFIG,
                       "'%s' is no identity: atoll://RUN/ROLE/NAME, as atoll cert show prints it",
                       r->uri);
    TRY(issued ? issued_of_name(r, arena) : files_of_name(r, arena, NULL));
    if (issued && !r->count)
        return err_set(ERR_INPUT,
                       "%s knows no certificate of %s: give its file, its sha256: or its serial:",
                       r->dir, r->uri);
    if (!issued)
        TRY(entry_add(r, r->uri, NULL));
    if (!r->count)
        fprintf(stderr,
                "atoll: no certificate in %s has this identity, so check the spelling; "
                "atoll cert list prints the identities\n",
                r->dir);
    return ERR_OK;
}

static enum err operand_revoke(struct revoking *r, const char *what, bool issued,
                               struct arena *arena)
{
    char entry[REVOCATION_ENTRY_MAX];
    struct tls_facts f;
    bool uri = strncmp(what, "atoll://", 8) == 0;
    if (issued && !uri)
        return err_set(ERR_CONFIG, "--issued needs a name: atoll://RUN/ROLE/NAME");
    if (uri) {
        r->uri = what;
        return name_revoke(r, issued, arena);
    }
    if (revocation_entry(entry, what))
        return entry_add(r, entry, NULL);
    if (!file_exists(what))
        return err_set(ERR_CONFIG,
                       "'%s' is no identity (atoll://RUN/ROLE/NAME), certificate file, sha256: of "
                       "64 digits or serial:",
                       what);
    TRY(tls_facts(&f, what));
    if (f.authority)
        return err_set(ERR_CONFIG,
                       "%s is an authority: it is withdrawn by removing it from ca.pem everywhere",
                       what);
    return certificate_add(r, &f);
}

enum err cert_revoke(int argc, char **argv, struct arena *arena)
{
    struct revoking r = {.dir = "tls"};
    bool issued = false;
    const struct args_option options[] = {
        {"dir", ARGS_TEXT, &r.dir, .value = "DIR",
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
                     .operands = "WHAT..."};
    a.options = options;
    a.count = sizeof options / sizeof *options;
    TRY(args_parse(&a, argc, argv, arena));
    if (a.help)
        return ERR_OK;
    if (a.operand_count < 1)
        return err_set(ERR_CONFIG, "what? atoll cert revoke atoll://RUN/ROLE/NAME, or a "
                                   "certificate's file");
    for (int i = 0; i < a.operand_count; i++)
        TRY(operand_revoke(&r, a.operand[i], issued, arena));
    return ERR_OK;
}

/* ---- renew ---- */

size_t cert_hosts(char *text, const char **list)
{
    size_t count = 0;
    char *rest;
    for (char *host = strtok_r(text, " ", &rest); host && count < CERT_HOSTS_MAX;
         host = strtok_r(NULL, " ", &rest))
        list[count++] = host;
    return count;
}

static enum err renewal_make(struct tls_request *r, const char *file, struct tls_facts *old)
{
    static struct tls_identity id; /* the request borrows it */
    static const char *hosts[CERT_HOSTS_MAX];
    struct tls_facts ca;
    char path[4096], uri[TLS_URI_MAX];
    TRY(tls_facts(old, file));
    if (old->uri_count != 1 || !tls_uri_parse(&id, old->uri))
        return err_set(ERR_CONFIG, "%s: names no identity atoll://RUN/ROLE/NAME", file);
    snprintf(path, sizeof path, "%s/ca.pem", r->directory);
    snprintf(uri, sizeof uri, "atoll://%s/authority", id.run);
    TRY(tls_facts(&ca, path));
    if (strcmp(ca.uri, uri) != 0)
        return err_set(ERR_CONFIG, "%s is of run %s, and %s is the authority %s", file, id.run,
                       path, ca.uri);
    r->role = id.role;
    r->name = id.name;
    r->hosts = hosts;
    r->host_count = cert_hosts(old->hosts, hosts);
    r->ed25519 = strcmp(old->key, "ED25519") == 0;
    return ERR_OK;
}

static enum err renewed(const struct tls_request *r, struct tls_facts *f)
{
    char until[32];
    TRY(tls_issue(r));
    TRY(cert_issued(r, f));
    printf("%s/%s.pem  %s, until %s\n%s/%s.key  its new key\n", r->out, r->name, f->uri,
           cert_date(until, f->until_unix), r->out, r->name);
    if (tls_role_signs(r->role))
        printf("%s/%s.identity.pem  its identity key's certificate\n", r->out, r->name);
    puts("Copy the files to the process; it uses them without a restart.");
    return ERR_OK;
}

/* The identity certificate before this renewal, where its file is at hand. */
static enum err identity_revoke(struct revoking *v, const struct tls_facts *identity)
{
    return identity->uri_count ? certificate_add(v, identity) : ERR_OK;
}

enum err cert_renew(int argc, char **argv, struct arena *arena)
{
    const char *dir = "tls", *out = NULL;
    double days = 90;
    bool revoke = false;
    const struct args_option options[] = {
        {"dir", ARGS_TEXT, &dir, .value = "DIR", .help = "Directory of ca.pem and ca.key."},
        {"out", ARGS_TEXT, &out, .value = "DIR",
         .help = "Directory for NAME.pem, NAME.key, NAME.identity.pem and a copy of ca.pem; "
                 "default: --dir."},
        {"days", ARGS_REAL, &days, .value = "N", .min = CERT_DAYS_MIN, .max = CERT_DAYS_MAX,
         .help = "Validity of the certificate."},
        {"revoke", ARGS_FLAG, &revoke,
         .help = "Also revoke the old certificate, as atoll cert revoke FILE does, and replace the "
                 "identity key: its certificate is revoked, too. For use after a theft. Until "
                 "the new files are in place, the process is refused."},
    };
    struct args a = {.command = "cert renew",
                     .summary = "Makes a new key and certificate with the name, role and hosts of "
                                "an old certificate. The identity key beside it stays, with a new "
                                "certificate.",
                     .example = "atoll cert renew tls/b.pem --dir tls",
                     .operands = "FILE",
                     .options = options,
                     .count = sizeof options / sizeof *options};
    TRY(args_parse(&a, argc, argv, arena));
    if (a.help)
        return ERR_OK;
    if (a.operand_count != 1)
        return err_set(ERR_CONFIG, "which certificate? atoll cert renew tls/b.pem");
    struct tls_request r = {
        .directory = dir, .out = out ? out : dir, .validity = cert_validity(days)};
    struct tls_facts old, f;
    struct revoking v = {.dir = dir};
    struct tls_facts identity = {.uri_count = 0};
    char beside[4096], path[4096 + TLS_NAME_MAX + 32];
    snprintf(beside, sizeof beside, "%s", a.operand[0]);
    char *slash = strrchr(beside, '/');
    snprintf(slash ? slash : beside, slash ? 1 : 2, "%s", slash ? "" : ".");
    TRY(renewal_make(&r, a.operand[0], &old));
    snprintf(path, sizeof path, "%s/%s.identity.pem", beside, r.name);
    r.identity = file_exists(path) ? beside : dir;
    r.identity_new = revoke;
    snprintf(path, sizeof path, "%s/%s.identity.pem", r.identity, r.name);
    if (revoke && file_exists(path))
        TRY(tls_facts(&identity, path));
    TRY(renewed(&r, &f));
    TRY(identity_revoke(&v, &identity));
    return revoke ? certificate_add(&v, &old) : ERR_OK;
}
