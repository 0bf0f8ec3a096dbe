/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/cmd/cert.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/args.h"
#include "kernels/base/clock.h"
#include "outer/identity/authority.h"

/* The only operand; words: what to say where there is none. */
static enum err operand_parse(struct args *a, int argc, char **argv, struct arena *arena,
                              const char *words)
{
    TRY(args_parse(a, argc, argv, arena));
    if (!a->help && a->operand_count != 1)
        return err_set(ERR_CONFIG, "%s", words);
    return ERR_OK;
}

enum err cert_text_read(char out[TLS_PEM_MAX], const char *path)
{
    bool input = strcmp(path, "-") == 0;
    FILE *f = input ? stdin : fopen(path, "rbe");
    if (!f)
        return err_set(ERR_INPUT, "%s: cannot open", path);
    size_t n = fread(out, 1, TLS_PEM_MAX, f);
    bool bad = ferror(f) != 0 || n == TLS_PEM_MAX || memchr(out, 0, n);
    if (!input)
        fclose(f);
    if (bad || n == 0)
        return err_set(ERR_INPUT, "%s: %zu bytes are not a PEM text",
                       input ? "standard input" : path, n);
    out[n] = 0;
    return ERR_OK;
}

enum err cert_request(int argc, char **argv, struct arena *arena)
{
    const char *dir = "tls";
    const struct args_option options[] = {
        {"dir", ARGS_TEXT, &dir, .value = "DIR",
         .help = "Directory of ca.pem, NAME.pem and NAME.key."},
    };
    struct args a = {.command = "cert request",
                     .summary = "Makes the next key of a process and NAME.request, which the "
                                "present key signs. Send the request to the machine of the "
                                "authority (atoll cert sign).",
                     .example = "atoll cert request east --dir /etc/atoll/tls",
                     .operands = "NAME",
                     ARGS_OPTIONS(options)};
    TRY(operand_parse(&a, argc, argv, arena, "whose? atoll cert request NAME"));
    if (a.help)
        return ERR_OK;
    TRY(tls_renewal_request(dir, a.operand[0], clock_wall_s()));
    printf("%s/%s.request  its answer goes to atoll cert install\n%s/%s.next.key  the next key: it "
           "stays here\n",
           dir, a.operand[0], dir, a.operand[0]);
    return ERR_OK;
}

enum err cert_sign(int argc, char **argv, struct arena *arena)
{
    static char text[TLS_PEM_MAX], reply[TLS_PEM_MAX];
    const char *dir = "tls";
    double days = 7;
    const struct args_option options[] = {
        {"dir", ARGS_TEXT, &dir, .value = "DIR",
         .help = "Directory of ca.pem, ca.key, revoked.txt and issued.txt."},
        {"days", ARGS_REAL, &days, .value = "N", .min = CERT_DAYS_MIN, .max = CERT_DAYS_MAX,
         .help = "Validity of the certificate; 0.25 is six hours."},
    };
    struct args a = {.command = "cert sign",
                     .summary = "Answers a request: prints a certificate of the next key with the "
                                "name, role and hosts of the present certificate. That one must "
                                "be of this authority, valid and not revoked. - reads standard "
                                "input, so that ssh can run it.",
                     .example = "atoll cert sign - --dir tls <east.request >east.answer",
                     .operands = "FILE",
                     ARGS_OPTIONS(options)};
    TRY(operand_parse(&a, argc, argv, arena, "which request? atoll cert sign FILE, or -"));
    if (a.help)
        return ERR_OK;
    TRY(cert_text_read(text, a.operand[0]));
    TRY(authority_answer(reply, text, dir, cert_validity(days), clock_wall_s()));
    fputs(reply, stdout);
    return fflush(stdout) == 0 ? ERR_OK : err_set(ERR_IO, "the answer cannot be written");
}

enum err cert_install(int argc, char **argv, struct arena *arena)
{
    static char text[TLS_PEM_MAX];
    const char *dir = "tls", *answer = NULL;
    const struct args_option options[] = {
        {"dir", ARGS_TEXT, &dir, .value = "DIR",
         .help = "Directory of ca.pem, NAME.pem and NAME.key."},
        {"answer", ARGS_TEXT, &answer, .value = "FILE", .required = true,
         .help = "What atoll cert sign printed; - is standard input."},
    };
    struct args a = {.command = "cert install",
                     .summary = "Checks the answer to a request, and replaces NAME.key and "
                                "NAME.pem. Running processes use them without a restart.",
                     .example = "atoll cert install east --answer east.answer --dir /etc/atoll/tls",
                     .operands = "NAME",
                     ARGS_OPTIONS(options)};
    TRY(operand_parse(&a, argc, argv, arena, "whose? atoll cert install NAME --answer FILE"));
    if (a.help)
        return ERR_OK;
    struct tls_facts f;
    char until[TLS_DATE_MAX];
    TRY(cert_text_read(text, answer));
    TRY(tls_renewal_install(dir, a.operand[0], text, clock_wall_s()));
    TRY(tls_facts_of(&f, text, "the answer"));
    printf("%s/%s.pem  %s, until %s\n", dir, a.operand[0], f.uri, tls_date(until, f.until_unix));
    return ERR_OK;
}
