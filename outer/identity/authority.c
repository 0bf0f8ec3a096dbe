/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/identity/authority.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/file.h"
#include "outer/identity/revocation.h"

enum { ISSUED_BYTES_MAX = 16 << 20 };

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

static enum err issued_add(const char *dir, const struct tls_facts *f)
{
    char path[4096], entry[REVOCATION_ENTRY_MAX], line[1024], date[TLS_DATE_MAX], *text;
    struct arena a = arena_make(0);
    sha256_entry(entry, f);
    int n = snprintf(line, sizeof line, "%s %s serial:%s until %s\n", f->uri, entry, f->serial,
                     tls_date(date, f->until_unix));
    enum err e = issued_read(dir, &a, &text, path);
    struct file_part parts[] = {{text, strlen(text)}, {line, (size_t)n}};
    if (e == ERR_OK)
        e = file_write(path, parts, 2, 0644);
    arena_free(&a);
    return e;
}

enum err authority_issue(const struct tls_request *r, struct tls_facts *leaf)
{
    char path[4096];
    struct tls_facts f;
    TRY(tls_issue(r));
    snprintf(path, sizeof path, "%s/%s.pem", r->out, r->name);
    TRY(tls_facts(leaf, path));
    TRY(issued_add(r->directory, leaf));
    if (!tls_role_signs(r->role))
        return ERR_OK;
    snprintf(path, sizeof path, "%s/%s.identity.pem", r->out, r->name);
    TRY(tls_facts(&f, path));
    return issued_add(r->directory, &f);
}

/* ---- revoke ---- */

struct revoking {
    const char *dir, *uri;
    const struct authority_told *told;
    bool add;       /* each certificate that is found; else they are counted */
    unsigned count; /* certificates of the name that were found */
};

static enum err entry_add(const struct revoking *r, const char *entry, const char *note)
{
    bool was_there;
    TRY(revocation_add(r->dir, entry, note, &was_there));
    r->told->entry(r->told->self, entry, note, was_there);
    return ERR_OK;
}

static enum err certificate_add(const struct revoking *r, const struct tls_facts *f)
{
    char entry[REVOCATION_ENTRY_MAX];
    sha256_entry(entry, f);
    return entry_add(r, entry, f->uri);
}

enum err authority_certificates(const char *directory, struct arena *arena,
                                enum err (*each)(void *self, const char *file,
                                                 const struct tls_facts *f),
                                void *self)
{
    char **names, path[4096];
    size_t count;
    TRY(file_list(directory, arena, &names, &count));
    for (size_t i = 0; i < count; i++) {
        struct tls_facts f;
        size_t n = strlen(names[i]);
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        if (n > 4 && strcmp(names[i] + n - 4, ".pem") == 0 && tls_facts(&f, path) == ERR_OK)
            TRY(each(self, names[i], &f));
    }
    err_clear();
    return ERR_OK;
}

static enum err name_match(void *self, const char *file, const struct tls_facts *f)
{
    struct revoking *r = self;
    (void)file;
    if (strcmp(f->uri, r->uri) != 0)
        return ERR_OK;
    r->count++;
    return r->add ? certificate_add(r, f) : ERR_OK;
}

/* Those on record, and those whose files are here. */
static enum err issued_revoke(struct revoking *r, struct arena *arena)
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
    r->add = true;
    TRY(authority_certificates(r->dir, arena, name_match, r));
    return r->count
               ? ERR_OK
               : err_set(ERR_INPUT,
                         "%s knows no certificate of %s: give its file, its sha256: or its serial:",
                         r->dir, r->uri);
}

static enum err name_revoke(struct revoking *r, bool issued, bool *unseen, struct arena *arena)
{
    struct tls_identity id;
    if (!tls_uri_parse(&id, r->uri))
        return err_set(ERR_CONFIG,
                       "'%s' is no identity: atoll://RUN/ROLE/NAME, as atoll cert show prints it",
                       r->uri);
    if (issued)
        return issued_revoke(r, arena);
    TRY(authority_certificates(r->dir, arena, name_match, r));
    TRY(entry_add(r, r->uri, NULL));
    *unseen = r->count == 0;
    return ERR_OK;
}

enum err authority_revoke(const char *directory, const char *what, bool issued,
                          const struct authority_told *told, bool *unseen, struct arena *arena)
{
    char entry[REVOCATION_ENTRY_MAX];
    struct tls_facts f;
    struct revoking r = {.dir = directory, .uri = what, .told = told};
    bool uri = strncmp(what, "atoll://", 8) == 0;
    *unseen = false;
    if (issued && !uri)
        return err_set(ERR_CONFIG, "--issued needs a name: atoll://RUN/ROLE/NAME");
    if (uri)
        return name_revoke(&r, issued, unseen, arena);
    if (revocation_entry(entry, what))
        return entry_add(&r, entry, NULL);
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
    return certificate_add(&r, &f);
}

enum err authority_revoke_certificate(const char *directory, const struct tls_facts *f,
                                      const struct authority_told *told)
{
    return certificate_add(&(struct revoking){.dir = directory, .told = told}, f);
}

bool authority_revoked(const char *directory, const struct tls_facts *f)
{
    char entries[3][REVOCATION_ENTRY_MAX];
    bool listed = false;
    snprintf(entries[0], sizeof entries[0], "%s", f->uri);
    sha256_entry(entries[1], f);
    snprintf(entries[2], sizeof entries[2], "serial:%s", f->serial);
    for (int i = 0; i < 3 && !listed; i++)
        listed = revocation_entry(entries[i], entries[i]) &&
                 revocation_listed(directory, entries[i], &listed) == ERR_OK && listed;
    return listed;
}

/* ---- renew ---- */

/* Splits tls_facts.hosts at its blanks, in place. */
static size_t hosts_split(char *text, const char *list[AUTHORITY_HOSTS_MAX])
{
    size_t count = 0;
    char *rest;
    for (char *host = strtok_r(text, " ", &rest); host && count < AUTHORITY_HOSTS_MAX;
         host = strtok_r(NULL, " ", &rest))
        list[count++] = host;
    return count;
}

/* The old certificate names one identity, and this authority is of its run. */
static enum err renewal_look(struct authority_renewal *r)
{
    struct tls_facts ca;
    char path[4096], uri[TLS_URI_MAX];
    TRY(tls_facts(&r->old, r->file));
    if (r->old.uri_count != 1 || !tls_uri_parse(&r->id, r->old.uri))
        return err_set(ERR_CONFIG, "%s: names no identity atoll://RUN/ROLE/NAME", r->file);
    snprintf(path, sizeof path, "%s/ca.pem", r->directory);
    snprintf(uri, sizeof uri, "atoll://%s/authority", r->id.run);
    TRY(tls_facts(&ca, path));
    if (strcmp(ca.uri, uri) != 0)
        return err_set(ERR_CONFIG, "%s is of run %s, and %s is the authority %s", r->file,
                       r->id.run, path, ca.uri);
    return ERR_OK;
}

/* Where the identity certificate lies: next to the old certificate, or else in the directory. */
static enum err identity_find(struct authority_renewal *r, char beside[4096], const char **dir)
{
    char path[4096 + TLS_NAME_MAX + 32];
    snprintf(beside, 4096, "%s", r->file);
    char *slash = strrchr(beside, '/');
    snprintf(slash ? slash : beside, slash ? 1 : 2, "%s", slash ? "" : ".");
    snprintf(path, sizeof path, "%s/%s.identity.pem", beside, r->id.name);
    *dir = file_exists(path) ? beside : r->directory;
    snprintf(path, sizeof path, "%s/%s.identity.pem", *dir, r->id.name);
    r->identity.uri_count = 0;
    return r->replace && file_exists(path) ? tls_facts(&r->identity, path) : ERR_OK;
}

enum err authority_renew(struct authority_renewal *r, struct tls_facts *leaf)
{
    const char *hosts[AUTHORITY_HOSTS_MAX];
    char beside[4096], text[sizeof r->old.hosts];
    TRY(renewal_look(r));
    struct tls_request q = {.directory = r->directory,
                            .out = r->out,
                            .role = r->id.role,
                            .name = r->id.name,
                            .hosts = hosts,
                            .ed25519 = strcmp(r->old.key, "ED25519") == 0,
                            .validity = r->validity,
                            .identity_new = r->replace};
    memcpy(text, r->old.hosts, sizeof text);
    q.host_count = hosts_split(text, hosts);
    TRY(identity_find(r, beside, &q.identity));
    return authority_issue(&q, leaf);
}

/* What the present certificate says; of the request, the key alone. */
static enum err renewal_issue(char answer[TLS_PEM_MAX], struct tls_renewal *w, const char *dir,
                              struct tls_validity v)
{
    const char *hosts[AUTHORITY_HOSTS_MAX];
    struct tls_request r = {.directory = dir,
                            .out = dir,
                            .role = w->id.role,
                            .name = w->id.name,
                            .hosts = hosts,
                            .validity = v,
                            .renewal = w,
                            .answer = answer};
    struct tls_facts f;
    if (authority_revoked(dir, &w->present))
        return err_set(ERR_DENIED, "%s: this certificate is revoked", w->present.uri);
    r.host_count = hosts_split(w->present.hosts, hosts);
    TRY(tls_issue(&r));
    TRY(tls_facts_of(&f, answer, "the answer"));
    return issued_add(dir, &f);
}

enum err authority_answer(char answer[TLS_PEM_MAX], const char *request, const char *directory,
                          struct tls_validity v, int64_t now_unix)
{
    struct tls_renewal w = {0};
    enum err e = tls_renewal_open(&w, request, directory, now_unix);
    if (e == ERR_OK)
        e = renewal_issue(answer, &w, directory, v);
    tls_renewal_close(&w);
    return e;
}
