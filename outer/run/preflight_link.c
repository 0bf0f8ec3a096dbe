/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "outer/run/ask.h"
#include "outer/run/preflight.h"
#include "outer/link/forward.h"
#include "outer/identity/tls.h"

enum { DAY_S = 86400, TIMEOUT_MS = 10000 };
static const double CLOCK_WARN_S = 2, CLOCK_FAIL_S = 60;

static const char *own_name(const struct preflight *p)
{
    return p->o.serve ? "aggregator" : p->j.run->o.site_name;
}

/* ---- certificates ---- */

/* Is it valid as long as the run? Where its length is unknown, for a month, or half of its life. */
static void check_until(struct preflight *p, const char *what, const char *whose,
                        const struct tls_facts *f, const char *action)
{
    double left = (double)(f->until_unix - clock_wall_s()),
           life = (double)(f->until_unix - f->from_unix);
    double need = p->run_s > 0 ? p->run_s : fmin(30.0 * DAY_S, life / 2);
    if (left <= 0)
        preflight_say(p, PREFLIGHT_FAIL, what, "%s expired %.1f days ago: %s", whose, -left / DAY_S,
                      action);
    else if (left < need)
        preflight_say(p, PREFLIGHT_WARN, what,
                      "%s is valid for %.1f more days, the run takes %s: %s", whose, left / DAY_S,
                      p->run_s > 0 ? "longer" : "an unknown time (plan.step_s)", action);
    else
        preflight_say(p, PREFLIGHT_OK, what, "%s is valid for %.1f more days", whose, left / DAY_S);
}

static void check_authority(struct preflight *p)
{
    struct tls_facts f;
    if (tls_facts(&f, p->j.o->parts.tls.ca) == ERR_OK)
        check_until(p, "authority", p->j.o->parts.tls.ca, &f, "atoll cert roll");
    else
        preflight_failed(p, "authority", "copy the run's ca.pem");
}

void preflight_certificates(struct preflight *p)
{
    enum tls_role role = p->o.serve ? TLS_AGGREGATOR : TLS_SITE;
    struct tls_facts f;
    struct signer *signer = NULL;
    int64_t days;
    char uri[TLS_URI_MAX];
    if (run_tls(p->j.run, own_name(p), &p->j.o->parts.tls) != ERR_OK) {
        preflight_failed(p, "certificate", "");
        return;
    }
    check_authority(p);
    if (tls_check(&p->j.o->parts.tls, p->j.s->run_name, role, own_name(p), clock_wall_s(), &days) !=
            ERR_OK ||
        tls_facts(&f, p->j.o->parts.tls.certificate) != ERR_OK)
        preflight_failed(p, "certificate", "");
    else
        check_until(p, "certificate", f.uri, &f,
                    "atoll cert renew, or short-lived ones (docs/certificates.md)");
    snprintf(uri, sizeof uri, "atoll://%.63s/%s/%.63s", p->j.s->run_name,
             p->o.serve ? "aggregator" : "site", own_name(p));
    if (tls_signer_open(&signer, &p->j.o->parts.tls, uri) != ERR_OK) {
        preflight_failed(p, "identity", "");
        return;
    }
    preflight_say(p, PREFLIGHT_OK, "identity", "the key that signs for %s is certified", uri);
    signer->ops->close(signer);
}

/* ---- the aggregator, seen by a site ---- */

/* clock_ms of the answer: the aggregator's wall clock at some time during the call. */
static void check_clock(struct preflight *p, const char *text, uint64_t before, uint64_t after)
{
    const char *at = strstr(text, "clock_ms=");
    if (!at) {
        preflight_say(p, PREFLIGHT_WARN, "clock",
                      "cannot check: the aggregator does not tell its time: it is of an older "
                      "version");
        return;
    }
    double offset_s = ((double)before / 2 + (double)after / 2 - strtod(at + 9, NULL)) / 1e3;
    double off = fabs(offset_s), known = (double)(after - before) / 2e3;
    preflight_say(p,
                  off > CLOCK_FAIL_S + known   ? PREFLIGHT_FAIL
                  : off > CLOCK_WARN_S + known ? PREFLIGHT_WARN
                                               : PREFLIGHT_OK,
                  "clock", "%.2f s %s the aggregator's (within %.2f s)%s", off,
                  offset_s < 0 ? "behind" : "ahead of", known,
                  off > CLOCK_WARN_S + known
                      ? ": set both by NTP; certificates are judged by this clock"
                      : "");
}

/* What the aggregator says of this site, with the site's certificate: is it in the roster, and is
 * another process of it bound? */
static void check_roster(struct preflight *p, const struct link_dial *d)
{
    struct wire_operate m = {.act = WIRE_METRICS};
    struct wire_answer answer;
    uint64_t before = clock_wall_ms();
    enum err e = link_operate(d, &m, &answer, TIMEOUT_MS + DIAL_TIMEOUT_MS);
    uint64_t after = clock_wall_ms();
    if (e != ERR_OK) {
        preflight_failed(p, "roster", "");
        return;
    }
    if (answer.outcome != ROUND_CURRENT) {
        preflight_say(p, PREFLIGHT_FAIL, "roster",
                      "%s: an operator adds a site with atoll operator "
                      "roster add %s",
                      answer.text, p->j.run->o.site_name);
        return;
    }
    char state[32] = "";
    const char *at = strstr(answer.text, "state="), *heard = strstr(answer.text, "heard_s=");
    if (at)
        snprintf(state, sizeof state, "%.*s", (int)strcspn(at + 6, " \n"), at + 6);
    if (!*state) {
        preflight_say(p, PREFLIGHT_FAIL, "roster",
                      "cannot check: %s does not say how it has site %s (\"%.60s\"): is it of an "
                      "older version?",
                      d->target, p->j.run->o.site_name, answer.text);
        return;
    }
    bool out = strcmp(state, "removed") == 0 || strcmp(state, "quarantine") == 0;
    preflight_say(p, out ? PREFLIGHT_FAIL : PREFLIGHT_OK, "roster", "%s has site %s, state %s%s",
                  d->target, p->j.run->o.site_name, state,
                  out ? ": an operator takes it in again (roster add, readmit)" : "");
    if (heard && strtod(heard + 8, NULL) < 60)
        preflight_say(p, PREFLIGHT_WARN, "other process",
                      "the aggregator heard from a process of this site %.0f s ago: end it before "
                      "another one starts",
                      strtod(heard + 8, NULL));
    check_clock(p, answer.text, before, after);
}

static void check_rate(struct preflight *p, const struct link_dial *d)
{
    const struct outer_settings *o = &p->j.run->o;
    const struct measured *m = &p->j.run->measured;
    double bytes_per_s, rtt_s;
    struct path chosen;
    char text[192];
    if (link_probe_rate(d, TIMEOUT_MS + DIAL_TIMEOUT_MS, &bytes_per_s, &rtt_s, &chosen) != ERR_OK) {
        preflight_failed(p, "rate", "");
        return;
    }
    double mbit = bytes_per_s * 8e-6, contribution_s = (double)p->round_up / bytes_per_s;
    double planned = m->plan_up_mbit, limit = o->site_rate_up;
    double period_s = m->times.plan_step_s * (double)o->outer_sync_every;
    bool slow =
        planned > 0 && mbit<0.7 * planned, long_round = period_s> 0 && contribution_s > period_s;
    char plan[160] = "; plan.up_mbit is not set, `atoll probe` measures both directions";
    if (planned > 0)
        snprintf(plan, sizeof plan, ", planned %.4g Mbit/s", planned);
    preflight_say(
        p, slow || long_round ? PREFLIGHT_WARN : PREFLIGHT_OK, "rate",
        "%.4g Mbit/s up, round trip %.1f ms%s; a contribution takes %.3g s%s%s", mbit, 1e3 * rtt_s,
        plan, limit > 0 && limit < mbit ? (double)p->round_up * 8e-6 / limit : contribution_s,
        slow ? ": the link is slower than the plan: measure it with atoll probe, and plan "
               "again"
             : "",
        long_round ? ": longer than the steps between two rounds: raise outer.sync_every" : "");
    path_text(&chosen, text, sizeof text);
    preflight_say(p, PREFLIGHT_OK, "streams", "up: %s", text);
}

static void check_target(struct preflight *p, const struct link_dial *d)
{
    struct tls_facts f;
    double took_s;
    const char *through = *p->j.run->proxy.shown ? " through " : "";
    if (ask_dialled(d, TIMEOUT_MS, TIMEOUT_MS + DIAL_TIMEOUT_MS, &f, &took_s) != ERR_OK) {
        preflight_failed(p, "aggregator", "");
        return;
    }
    preflight_say(p, PREFLIGHT_OK, "aggregator", "%s%s%s answers as %s after %.0f ms", d->target,
                  through, p->j.run->proxy.shown, f.uri, 1e3 * took_s);
    check_until(p, "aggregator", f.uri, &f, "tell who runs it");
    check_roster(p, d);
    check_rate(p, d);
}

void preflight_link(struct preflight *p)
{
    const struct outer_settings *o = &p->j.run->o;
    char target[256];
    struct link_dial d = run_dial(p->j.run);
    d.target = target;
    d.tls = p->j.o->parts.tls;
    d.rate_up = d.rate_down = 0; /* the line's own rate is measured */
    signal(SIGPIPE, SIG_IGN);
    link_tune();
    if (run_proxy(p->j.run) != ERR_OK || tls_force13() != ERR_OK) {
        preflight_failed(p, "aggregator", "");
        return;
    }
    for (unsigned i = 0; i < (unsigned)o->outer_aggregators; i++)
        if (keys_aggregator(o->site_aggregator, i, target, sizeof target))
            check_target(p, &d);
}

/* ---- the aggregator itself ---- */

void preflight_listen(struct preflight *p)
{
    int fd, port;
    struct timex t = {.modes = 0};
    if (forward_listen(&fd, p->j.run->o.serve_listen, &port) == ERR_OK) {
        close(fd);
        preflight_say(p, PREFLIGHT_OK, "port", "%s is free", p->j.run->o.serve_listen);
    } else {
        preflight_failed(p, "port",
                         "is an aggregator running already? Else give another serve.listen");
    }
    if (adjtimex(&t) == TIME_ERROR)
        preflight_say(
            p, PREFLIGHT_WARN, "clock",
            "the system does not know that this clock is set by NTP: sites compare theirs "
            "with it");
    else
        preflight_say(p, PREFLIGHT_OK, "clock", "it is set by NTP");
}
