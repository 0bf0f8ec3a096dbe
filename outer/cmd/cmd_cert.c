/* SPDX-License-Identifier: Apache-2.0 */
/* `atoll cert`: the certificate authority of one run, for its operator. All certificates depend on
 * ca.key, which stays on the machine that created it. A site gets ca.pem and its own two files.
 */
#include <stdio.h>
#include <string.h>
#include "kernels/base/args.h"
#include "kernels/base/clock.h"
#include "outer/cmd/cert.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/identity/authority.h"
#include "outer/record/json_write.h"

enum { HOSTS_MAX = 16 };

static enum err cert_authority(int argc, char **argv, struct arena *arena)
{
    const char *run = NULL, *dir = "tls";
    int64_t days = 3650;
    bool ed25519 = false;
    const struct args_option options[] = {
        {"run", ARGS_TEXT, &run, .value = "NAME", .required = true,
         .help = "The run's name, as run.name in the configuration."},
        {"dir", ARGS_TEXT, &dir, .value = "DIR", .help = "Directory for ca.pem and ca.key."},
        {"days", ARGS_INT, &days, .value = "N", .min = 1, .max = 36500,
         .help = "How long the authority is valid."},
        {"ed25519", ARGS_FLAG, &ed25519,
         .help = "An Ed25519 key instead of P-256; programs built on BoringSSL cannot verify it."},
    };
    struct args a = {
        .command = "cert authority",
        .summary =
            "Makes the certificate authority of one run. Keep ca.key on this machine, and safe.",
        .example = "atoll cert authority --run demo --dir tls",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&a, argc, argv, arena));
    if (a.help)
        return ERR_OK;
    struct tls_validity v = cert_validity((double)days);
    char until[TLS_DATE_MAX];
    TRY(tls_authority(dir, run, ed25519, v));
    printf("%s/ca.pem  authority of run %s, until %s\n%s/ca.key  its key: everyone who has it can "
           "join "
           "the run; never copy it to a site\n",
           dir, run, tls_date(until, v.until_unix), dir);
    return ERR_OK;
}

static enum err cert_roll(int argc, char **argv, struct arena *arena)
{
    const char *dir = "tls";
    int64_t days = 3650;
    bool finish = false;
    const struct args_option options[] = {
        {"dir", ARGS_TEXT, &dir, .value = "DIR", .help = "Directory of ca.pem and ca.key."},
        {"days", ARGS_INT, &days, .value = "N", .min = 1, .max = 36500,
         .help = "How long the new authority is valid."},
        {"finish", ARGS_FLAG, &finish,
         .help = "Take the former authorities out of ca.pem: their certificates no longer verify."},
    };
    struct args a = {
        .command = "cert roll",
        .summary = "Gives the run a second authority for a change of authorities. Copy ca.pem "
                   "to every process, renew every certificate (atoll cert renew), "
                   "copy those, then run it with --finish and copy ca.pem again. No "
                   "process is restarted.",
        .example = "atoll cert roll --dir tls",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&a, argc, argv, arena));
    if (a.help)
        return ERR_OK;
    TRY(finish ? tls_authority_retire(dir) : tls_authority_roll(dir, cert_validity((double)days)));
    if (finish)
        printf("%s/ca.pem  only the present authority: copy it to every process\n", dir);
    else
        printf("%s/ca.pem  the new authority and the former ones: copy it to every process\n"
               "%s/ca.key  the new key; the former one is gone\n",
               dir, dir);
    return ERR_OK;
}

/* Splits "a,b,c" in place into list[count]. */
static enum err hosts_split(char *text, const char **list, size_t *count)
{
    char *rest = text;
    for (char *host; (host = strsep(&rest, ","));) {
        if (*count == HOSTS_MAX)
            return err_set(ERR_CONFIG, "--host: at most %d names and addresses", HOSTS_MAX);
        list[(*count)++] = host;
    }
    return ERR_OK;
}

static enum err cert_issue(int argc, char **argv, struct arena *arena)
{
    const char *role = NULL, *name = NULL, *hosts = NULL, *dir = "tls", *out = NULL;
    double days = 90;
    bool ed25519 = false;
    const struct args_option options[] = {
        {"role", ARGS_TEXT, &role, .value = "ROLE", .required = true,
         .help = "site, aggregator, operator or observer. An operator's certificate has power over "
                 "the run: "
                 "it aborts rounds, rolls back, puts sites in quarantine, changes the roster and "
                 "amends "
                 "settings (atoll operator). It contributes nothing and fetches no parameters. An "
                 "observer's only reads the metrics."},
        {"name", ARGS_TEXT, &name, .value = "NAME",
         .help = "The site's name, as in outer.sites; default: the role's name."},
        {"host", ARGS_TEXT, &hosts, .value = "LIST",
         .help = "Aggregator: DNS names and addresses that sites dial, separated by commas."},
        {"dir", ARGS_TEXT, &dir, .value = "DIR", .help = "Directory of ca.pem and ca.key."},
        {"out", ARGS_TEXT, &out, .value = "DIR",
         .help =
             "Directory for NAME.pem, NAME.key, NAME.identity.pem, NAME.identity.key and a copy "
             "of ca.pem; default: --dir."},
        {"days", ARGS_REAL, &days, .value = "N", .min = CERT_DAYS_MIN, .max = CERT_DAYS_MAX,
         .help = "Validity of the certificate; a process warns in the last 30 days."},
        {"ed25519", ARGS_FLAG, &ed25519,
         .help = "An Ed25519 key instead of P-256; programs built on BoringSSL cannot verify it."},
    };
    struct args a = {.command = "cert issue",
                     .summary = "Makes the certificate and key of one process, or replaces them: "
                                "running processes use the new files without a restart.",
                     .example = "atoll cert issue --role aggregator --host "
                                "aggregator.example.org,203.0.113.7 --dir tls",
                     ARGS_OPTIONS(options)};
    TRY(args_parse(&a, argc, argv, arena));
    if (a.help)
        return ERR_OK;
    const char *list[HOSTS_MAX];
    struct tls_request r = {.directory = dir,
                            .out = out ? out : dir,
                            .hosts = list,
                            .ed25519 = ed25519,
                            .validity = cert_validity(days)};
    if (!tls_role_parse(&r.role, role))
        return err_set(ERR_CONFIG, "--role %s: site, aggregator, operator or observer", role);
    if (!name && r.role == TLS_SITE)
        return err_set(ERR_CONFIG, "a site needs --name, as in outer.sites");
    r.name = name ? name : role;
    if (hosts) {
        char *text = arena_string(arena, hosts, strlen(hosts));
        TRY_ALLOC(text);
        TRY(hosts_split(text, list, &r.host_count));
    }
    char until[TLS_DATE_MAX];
    struct tls_facts f;
    TRY(authority_issue(&r, &f));
    printf("%s/%s.pem  %s, until %s\n%s/%s.key  its key\n", r.out, r.name, f.uri,
           tls_date(until, f.until_unix), r.out, r.name);
    if (tls_role_signs(r.role))
        printf("%s/%s.identity.pem, %s/%s.identity.key  its identity, with which it signs\n", r.out,
               r.name, r.out, r.name);
    puts("This process needs these files and ca.pem only.");
    return ERR_OK;
}

static const char *state_of(const struct tls_facts *f, const char *dir, int64_t now)
{
    if (dir && authority_revoked(dir, f))
        return "revoked";
    return now < f->from_unix ? "not yet valid" : now >= f->until_unix ? "expired" : "valid";
}

static void certificate_json(struct json_write *w, const char *file, const struct tls_facts *f,
                             const char *dir)
{
    char from[TLS_DATE_MAX], until[TLS_DATE_MAX], hex[65];
    int64_t now = clock_wall_s();
    digest_hex(&f->sha256, hex);
    json_object(w, NULL);
    json_text(w, "file", file);
    json_text(w, "identity", f->uri);
    json_text(w, "hosts", f->hosts);
    json_bool(w, "authority", f->authority);
    json_bool(w, "signs", f->identity);
    json_bool(w, "client", !f->authority && f->client);
    json_bool(w, "server", !f->authority && f->server);
    json_text(w, "from", tls_date(from, f->from_unix));
    json_text(w, "until", tls_date(until, f->until_unix));
    json_text(w, "state", state_of(f, dir, now));
    json_int(w, "days_left", (f->until_unix - now) / CERT_DAY_S);
    json_text(w, "key", f->key);
    json_text(w, "serial", f->serial);
    json_text(w, "sha256", hex);
    json_end(w);
}

static void certificates_begin(struct json_write *w)
{
    *w = (struct json_write){.out = stdout};
    json_object(w, NULL);
    json_array(w, "certificates");
}

static void certificate_text(const char *file, const struct tls_facts *f)
{
    char from[TLS_DATE_MAX], until[TLS_DATE_MAX], hex[65];
    int64_t now = clock_wall_s();
    digest_hex(&f->sha256, hex);
    printf("%s\n  identity  %s%s\n  hosts     %s\n  may be    %s%s%s%s\n  valid     %s to %s: "
           "%s, %lld days left\n"
           "  key       %s\n  subject   %s\n  issuer    %s\n  serial    %s\n"
           "  sha256    %s\n",
           file, f->uri, f->uri_count == 1 ? "" : "  (not exactly one URI: refused)",
           *f->hosts ? f->hosts : "-", f->authority ? "authority" : "",
           f->identity ? "identity (signs headers or manifests)" : "",
           !f->authority && f->client ? "client" : "",
           !f->authority && f->server ? (f->client ? ", server" : "server") : "",
           tls_date(from, f->from_unix), tls_date(until, f->until_unix), state_of(f, NULL, now),
           (long long)((f->until_unix - now) / CERT_DAY_S), f->key, f->subject, f->issuer,
           f->serial, hex);
}

static enum err input_facts(struct tls_facts *f)
{
    static char text[TLS_PEM_MAX];
    TRY(cert_text_read(text, "-"));
    return tls_facts_of(f, text, "standard input");
}

static enum err cert_show(int argc, char **argv, struct arena *arena)
{
    const char *format = "text";
    bool json;
    struct json_write w;
    const struct args_option options[] = {FORMAT_ROW(&format, ": certificates")};
    struct args a = {
        .command = "cert show",
        .summary = "Prints a certificate's identity, purpose and validity; - is standard input.",
        .example = "atoll cert show tls/a.pem",
        .operands = "FILE...",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&a, argc, argv, arena));
    if (a.help)
        return ERR_OK;
    TRY(cmd_format(format, &json));
    if (a.operand_count == 0)
        return err_set(ERR_CONFIG, "which file? atoll cert show tls/a.pem");
    if (json)
        certificates_begin(&w);
    for (int i = 0; i < a.operand_count; i++) {
        struct tls_facts f;
        if (strcmp(a.operand[i], "-") != 0)
            TRY(tls_facts(&f, a.operand[i]));
        else
            TRY(input_facts(&f));
        if (json)
            certificate_json(&w, a.operand[i], &f, NULL);
        else
            certificate_text(a.operand[i], &f);
    }
    if (json)
        json_close(&w);
    return ERR_OK;
}

struct certificate_list {
    const char *dir;
    bool json;
    struct json_write w; /* of json */
};

static enum err list_print(void *self, const char *file, const struct tls_facts *f)
{
    struct certificate_list *l = self;
    char until[TLS_DATE_MAX];
    if (l->json)
        certificate_json(&l->w, file, f, l->dir);
    else
        printf("%-24s %-48s until %s  %s\n", file, f->uri, tls_date(until, f->until_unix),
               state_of(f, l->dir, clock_wall_s()));
    return ERR_OK;
}

static enum err cert_list(int argc, char **argv, struct arena *arena)
{
    struct certificate_list l = {.dir = "tls"};
    const char *format = "text";
    const struct args_option options[] = {
        {"dir", ARGS_TEXT, &l.dir, .value = "DIR", .help = "Directory with the certificates."},
        FORMAT_ROW(&format, ": certificates"),
    };
    struct args a = {.command = "cert list",
                     .summary = "All certificates of a directory, one line each.",
                     .example = "atoll cert list --dir tls",
                     ARGS_OPTIONS(options)};
    TRY(args_parse(&a, argc, argv, arena));
    if (a.help)
        return ERR_OK;
    TRY(cmd_format(format, &l.json));
    if (l.json)
        certificates_begin(&l.w);
    TRY(authority_certificates(l.dir, arena, list_print, &l));
    if (l.json)
        json_close(&l.w);
    return ERR_OK;
}

static const struct cmd_act acts[] = {
    {"authority", "make the authority of a run: ca.pem and ca.key", cert_authority},
    {"roll", "give the run a new authority while it runs", cert_roll},
    {"issue", "make or replace the certificate of a site, an aggregator or an operator",
     cert_issue},
    {"show", "print a certificate's identity, purpose and validity", cert_show},
    {"renew", "make a new key and certificate for the identity of an old one", cert_renew},
    {"request", "ask for the next certificate, where the authority's key is elsewhere",
     cert_request},
    {"sign", "answer a request, where the authority's key is", cert_sign},
    {"install", "check the answer to a request and put it in place", cert_install},
    {"revoke", "refuse a name or one certificate from now on", cert_revoke},
    {"list", "all certificates of a directory", cert_list},
};

enum err cmd_cert(int argc, char **argv, struct arena *arena)
{
    static const struct cmd_acts cert = {
        "cert",
        "atoll cert COMMAND: the certificates of a run. Both sides of every connection show one.",
        "  atoll cert authority --run demo --dir tls\n"
        "  atoll cert issue --role aggregator --host localhost --dir tls\n"
        "  atoll cert issue --role site --name a --dir tls",
        acts, sizeof acts / sizeof *acts};
    return cmd_acts_run(&cert, argc, argv, arena);
}
