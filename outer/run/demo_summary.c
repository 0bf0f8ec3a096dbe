/* SPDX-License-Identifier: Apache-2.0 */
/* What atoll demo says at its end: losses, bytes, times, and what would hide the waiting. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "outer/run/demo.h"
#include "outer/view/progress.h"

enum { ROUNDS_ENOUGH = 60 }; /* from here on two sites end better than one, on the demo's model */

static unsigned long long rounds_of(const struct demo_result *r)
{
    return (unsigned long long)r->site[0].now.rounds;
}

/* Steps between rounds. */
static double every_of(const struct demo_result *r)
{
    return r->site[0].training.steps / r->site[0].now.rounds_all;
}

/* Two sites that end worse than one are no error: they need rounds. */
static void print_why_worse(const struct demo_result *r)
{
    unsigned long long rounds = rounds_of(r);
    printf(
        "  Two sites end worse than one here: %llu round%s are too few. In the first rounds the\n"
        "  outer momentum builds up and each merge costs some progress; with more rounds the\n"
        "  second site's text pays off.",
        rounds, rounds == 1 ? "" : "s");
    if (rounds < ROUNDS_ENOUGH && every_of(r) > 0)
        printf(" Try --steps %.0f (%d rounds).", ceil(every_of(r) * ROUNDS_ENOUGH), ROUNDS_ENOUGH);
    printf("\n");
}

struct losses {
    double first, together, alone;
};

static struct losses losses_of(const struct demo_result *r)
{
    const struct report_points *site = &r->site[0].series[REPORT_EVAL];
    return (struct losses){site->count ? site->y[0] : NAN, report_last(site),
                           report_last(&r->alone->series[REPORT_EVAL])};
}

static void print_losses(const struct demo_result *r)
{
    const struct losses l = losses_of(r);
    double first = l.first, together = l.together, alone = l.alone;
    printf("\nEval loss, nats per byte (perplexity)\n");
    printf("  before training            %.4f (%.1f)\n", first, exp(first));
    printf("  one site alone             %.4f (%.2f)\n", alone, exp(alone));
    printf(
        "  two sites together         %.4f (%.2f)   same tokens per site, same number of steps\n",
        together, exp(together));
    if (together < alone)
        printf("  gained by the second site  %.4f (%.1f %% lower perplexity)\n", alone - together,
               100 * (1 - exp(together - alone)));
    else
        print_why_worse(r);
}

static void print_bytes(const struct demo_result *r)
{
    printf("\nOn the link                  predicted    counted    with TLS and framing\n");
    for (int i = 0; i < DEMO_SITES; i++) {
        char text[6][32];
        const struct report_round w = report_totals(&r->site[i]);
        const double bytes[] = {w.up_predicted,   w.up,   w.wire_up,
                                w.down_predicted, w.down, w.wire_down};
        for (int k = 0; k < 6; k++)
            progress_bytes(text[k], sizeof text[k], bytes[k]);
        printf("  site %s up                  %10s %10s    %s\n", demo_site_name[i], text[0],
               text[1], text[2]);
        printf("  site %s down                %10s %10s    %s\n", demo_site_name[i], text[3],
               text[4], text[5]);
    }
    printf("  %llu rounds\n", rounds_of(r));
}

/* Shares of the time since a site's first record (report_compute_share). */
static void print_times(const struct report_cost cost[DEMO_SITES])
{
    static const char *const what[REPORT_COSTS] = {"computing",
                                                   "sending",
                                                   "waiting for the other site and the commit",
                                                   "receiving",
                                                   "encode, store, apply",
                                                   "start, evaluation, checkpoints, rest"};
    printf("\nWhere the time goes                              site a    site b\n");
    for (int k = 0; k < REPORT_COSTS; k++)
        printf("  %-43s %7.1f %% %7.1f %%\n", what[k], 100 * cost[0].share[k],
               100 * cost[1].share[k]);
    if (cost[0].hidden_s > 0)
        printf("  %-43s %7.1f s %7.1f s\n", "rounds during training (overlapped)", cost[0].hidden_s,
               cost[1].hidden_s);
}

static double standing(const struct report_cost *c)
{
    return 1 - c->share[REPORT_COMPUTING] - c->share[REPORT_BESIDES];
}

/* Settings that let training continue during a round, where it stands still for much of the time.
 */
struct advice {
    int fragments; /* 0: none is needed */
    double overlap_steps, waits;
    bool all; /* all of the wait is hidden then */
};

static struct advice advice_of(const struct demo_result *r,
                               const struct report_cost cost[DEMO_SITES])
{
    enum { FRAGMENTS = 4 };
    const double much = 0.10;
    double step_s = fmax(cost[0].step_s, cost[1].step_s);
    double round_s = fmax(cost[0].round_s, cost[1].round_s);
    double waits = fmax(standing(&cost[0]), standing(&cost[1]));
    if (waits < much || cost[0].hidden_s > 0 || !(step_s > 0))
        return (struct advice){0};
    double every = every_of(r), steps = fmax(5, ceil(round_s / FRAGMENTS / step_s) + 1);
    return (struct advice){FRAGMENTS, fmin(steps, every - 1), waits, steps < every};
}

static void print_hint(const struct advice *a)
{
    if (a->fragments)
        printf("  Training stands still for %.0f %% of the time. fragments %d, overlap %.0f would "
               "hide%s it:\n  --outer.fragments %d --outer.overlap_steps %.0f\n",
               100 * a->waits, a->fragments, a->overlap_steps, a->all ? "" : " most of",
               a->fragments, a->overlap_steps);
}

enum { SAMPLE_BYTES = 4096 };
static const char prompt[] = "The ";

/* Without the lines of the log. */
static enum err sample_read(struct demo *d, char text[SAMPLE_BYTES])
{
    const char *log;
    char line[400];
    size_t n = 0;
    TRY(demo_sample(d, prompt, &log));
    FILE *f = fopen(log, "re");
    *text = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "ts=", 3) != 0 && n + strlen(line) < SAMPLE_BYTES)
            n += (size_t)sprintf(text + n, "%s", line);
    if (f)
        fclose(f);
    return ERR_OK;
}

static void print_sample(const char *text)
{
    printf("\nWhat the model writes after \"%s\"\n", prompt);
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        printf("  | %.*s\n", (int)n, text);
    }
    printf("\n");
}

static void json_losses(struct json_write *w, const struct demo_result *r)
{
    const struct losses l = losses_of(r);
    json_object(w, "eval_loss");
    json_real(w, "before", l.first);
    json_real(w, "alone", l.alone);
    json_real(w, "together", l.together);
    json_end(w);
}

static void json_bytes(struct json_write *w, const char *key, double predicted, double counted,
                       double wire)
{
    json_object(w, key);
    json_real(w, "predicted", predicted);
    json_real(w, "payload", counted);
    json_real(w, "wire", wire);
    json_end(w);
}

static void json_site(struct json_write *w, const char *name, const struct report_run *site,
                      const struct report_cost *cost)
{
    static const char *const what[REPORT_COSTS] = {"computing", "sending",  "waiting",
                                                   "receiving", "applying", "rest"};
    const struct report_round b = report_totals(site);
    json_object(w, NULL);
    json_text(w, "site", name);
    json_bytes(w, "up", b.up_predicted, b.up, b.wire_up);
    json_bytes(w, "down", b.down_predicted, b.down, b.wire_down);
    json_object(w, "time_shares");
    for (int k = 0; k < REPORT_COSTS; k++)
        json_real(w, what[k], cost->share[k]);
    json_end(w);
    json_real(w, "hidden_s", cost->hidden_s);
    json_end(w);
}

static void summary_json(struct demo *d, const struct demo_result *r,
                         const struct report_cost cost[DEMO_SITES], const char *sample)
{
    struct json_write w = {.out = stdout, .digits = 9};
    const struct advice advice = advice_of(r, cost);
    json_object(&w, NULL);
    json_losses(&w, r);
    json_int(&w, "rounds", (int64_t)rounds_of(r));
    json_array(&w, "sites");
    for (int i = 0; i < DEMO_SITES; i++)
        json_site(&w, demo_site_name[i], &r->site[i], &cost[i]);
    json_end(&w);
    if (advice.fragments) {
        json_object(&w, "advice");
        json_int(&w, "outer.fragments", advice.fragments);
        json_real(&w, "outer.overlap_steps", advice.overlap_steps);
        json_end(&w);
    }
    demo_network_print(d, &w);
    json_text(&w, "sample", sample);
    json_text(&w, "report", r->report);
    json_close(&w);
}

static void summary_text(struct demo *d, const struct demo_result *r,
                         const struct report_cost cost[DEMO_SITES], const char *sample,
                         const char *dir, struct arena *a)
{
    const char *program = demo_program(a);
    const struct advice advice = advice_of(r, cost);
    print_losses(r);
    print_bytes(r);
    print_times(cost);
    print_hint(&advice);
    demo_network_print(d, NULL);
    print_sample(sample);
    printf("\nReport  %s (opens offline)\nLogs    %s/*.log, %s/*/log.txt\n", r->report, dir, dir);
    printf("Bytes   %s ledger %s/a %s/b %s/aggregator\n", program, dir, dir, dir);
    printf("Next    %s export --config %s/demo.yaml --run.dir %s/a --out %s/gpt2\n", program, dir,
           dir, dir);
}

enum err demo_summary(struct demo *d, const struct demo_result *r, const char *dir, bool json,
                      struct arena *a)
{
    char sample[SAMPLE_BYTES];
    TRY(sample_read(d, sample));
    const struct report_cost cost[] = {report_cost(&r->site[0]), report_cost(&r->site[1])};
    if (json)
        summary_json(d, r, cost, sample);
    else
        summary_text(d, r, cost, sample, dir, a);
    return ERR_OK;
}
