/* SPDX-License-Identifier: Apache-2.0 */
/* atoll sim: the whole run of a configuration in virtual time, through the code that real runs use
 * (outer/run/simulation.h).
 */
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/cmd/cmd.h"
#include "outer/cmd/cmd_plan.h"
#include "outer/config/setting.h"
#include "outer/record/json_write.h"
#include "outer/run/simulation.h"
#include "outer/view/progress.h"

struct sim_cmd {
    struct run *p;
    struct simulation_options o;
    struct simulation_result out;
    const char *format;
    bool json;
    double began_s, told_s; /* on the wall's clock: the simulation, the last line about it */
};

/* A line on stderr every PROGRESS_SPARSE_S seconds. */
static void tell(void *self, int64_t step, int64_t steps)
{
    struct sim_cmd *c = self;
    double now = clock_mono_s(), share = (double)step / (double)steps;
    char left[32];
    if (c->began_s <= 0)
        c->began_s = c->told_s = now;
    if (now - c->told_s < PROGRESS_SPARSE_S)
        return;
    c->told_s = now;
    progress_duration(left, sizeof left, (now - c->began_s) * (1 - share) / share);
    fprintf(stderr, "simulated %.1f %%, about %s left; Ctrl-C ends it with what it has so far\n",
            100 * share, left);
}

static void print_site(const struct simulate_site *s, const struct simulate_site_result *r)
{
    char up[32], down[32];
    progress_bytes(up, sizeof up, (double)r->up_bytes);
    progress_bytes(down, sizeof down, (double)r->down_bytes);
    printf("%-16s %6.2f %% %10s %10s %8llu %7llu %9.2f %6lld\n", s->name,
           100 * r->train_s / r->total_s, up, down, (unsigned long long)r->merged,
           (unsigned long long)r->missed, r->stale_steps, (long long)r->stale_max);
}

static void print_sites(const struct sim_cmd *c)
{
    const struct simulate_result *r = &c->out.r;
    enum { SHOWN = 20 };
    unsigned worst = 0;
    printf("\n%-16s %8s %10s %10s %8s %7s %9s %6s\n", "site", "trains", "up", "down", "rounds",
           "missed", "staleness", "most");
    for (unsigned i = 0; i < c->out.count; i++) {
        if (i < SHOWN)
            print_site(&c->out.site[i], &r->site[i]);
        if (r->site[i].train_s / r->site[i].total_s <
            r->site[worst].train_s / r->site[worst].total_s)
            worst = i;
    }
    if (c->out.count > SHOWN) {
        printf("... and %u more; the one that trains least:\n", c->out.count - SHOWN);
        print_site(&c->out.site[worst], &r->site[worst]);
    }
}

/* Strict mode: exactly what atoll train predicts, or the simulation is wrong. */
static void print_bytes(const struct sim_cmd *c)
{
    const struct simulate_result *r = &c->out.r;
    struct schedule s = c->p->sync.schedule;
    size_t elements[ROUND_FRAGMENTS_MAX];
    fragment_sizes(elements, &c->p->sync.fragments);
    s.steps = r->steps;
    uint64_t up = schedule_upload_bytes(&s, elements),
             down = schedule_download_bytes(&s, elements, c->out.count);
    unsigned same = 0;
    for (unsigned i = 0; i < c->out.count; i++)
        same += r->site[i].up_bytes == up && r->site[i].down_bytes == down;
    printf("\nPayload as the schedule predicts, %llu bytes up and %llu down a site: at %u of %u "
           "sites.\n",
           (unsigned long long)up, (unsigned long long)down, same, c->out.count);
}

static void print_result(const struct sim_cmd *c)
{
    const struct simulate_result *r = &c->out.r;
    char total[32], wall[32];
    progress_duration(total, sizeof total, r->total_s);
    progress_duration(wall, sizeof wall, r->wall_s);
    printf("%u sites, %lld aggregator%s, %lld steps, %llu rounds of %u fragments, %llu calls\n",
           c->out.count, (long long)c->p->o.outer_aggregators,
           c->p->o.outer_aggregators > 1 ? "s" : "", (long long)r->steps,
           (unsigned long long)r->rounds, c->p->sync.schedule.fragments,
           (unsigned long long)r->calls);
    if (r->ended)
        printf("The first %g days of the run, in which all sites made %lld steps.\n", c->o.days,
               (long long)r->steps);
    else if (r->stopped)
        printf("Stopped: of %lld steps all sites had made the first %lld. What follows is of "
               "these; nothing is stored.\n",
               (long long)c->p->sync.schedule.steps, (long long)r->steps);
    else if (r->steps < c->p->sync.schedule.steps)
        printf("Only the first %lld of %lld steps (--rounds); the last round of what was simulated "
               "is a full-precision round.\n",
               (long long)r->steps, (long long)c->p->sync.schedule.steps);
    printf("time %s (%.1f s), of it training %.2f %%; a round takes %.3f s from its send to its "
           "commit\n",
           total, r->total_s, 100 * r->utilisation, r->exchange_s);
    print_sites(c);
    char shown[SETTING_SHOWN_MAX];
    for (uint32_t i = 0; i < r->last.amendments.count; i++)
        printf("%samendment %u of outer.replan: %s from round %llu on\n", i ? "" : "\n", i + 1,
               setting_shown(r->last.amendments.list[i].text, shown),
               (unsigned long long)r->last.amendments.list[i].round);
    if (!r->stopped && !r->last.amendments.count && c->p->o.outer_mode == OUTER_MODE_STRICT)
        print_bytes(c);
    printf("Simulated in %s (%.1f s), %.3g times as fast as the run.\n", wall, r->wall_s,
           r->total_s / r->wall_s);
}

static void site_json(struct json_write *w, const struct simulate_site *s,
                      const struct simulate_site_result *r)
{
    json_object(w, NULL);
    json_text(w, "site", s->name);
    json_real(w, "utilisation", r->train_s / r->total_s);
    json_int(w, "up_bytes", (int64_t)r->up_bytes);
    json_int(w, "down_bytes", (int64_t)r->down_bytes);
    json_int(w, "rounds", (int64_t)r->merged);
    json_int(w, "missed", (int64_t)r->missed);
    json_real(w, "stale_steps", r->stale_steps);
    json_int(w, "stale_steps_most", r->stale_max);
    json_end(w);
}

static void amendments_json(struct json_write *w, const struct simulate_result *r)
{
    char shown[SETTING_SHOWN_MAX];
    json_array(w, "amendments");
    for (uint32_t i = 0; i < r->last.amendments.count; i++) {
        json_object(w, NULL);
        json_text(w, "setting", setting_shown(r->last.amendments.list[i].text, shown));
        json_int(w, "round", (int64_t)r->last.amendments.list[i].round);
        json_end(w);
    }
    json_end(w);
}

static void result_json(const struct sim_cmd *c)
{
    const struct simulate_result *r = &c->out.r;
    struct json_write w = {.out = stdout, .digits = 10};
    json_object(&w, NULL);
    json_int(&w, "aggregators", c->p->o.outer_aggregators);
    json_int(&w, "steps", r->steps);
    json_int(&w, "steps_of_the_run", c->p->sync.schedule.steps);
    json_bool(&w, "stopped", r->stopped && !r->ended);
    json_int(&w, "rounds", (int64_t)r->rounds);
    json_int(&w, "fragments", c->p->sync.schedule.fragments);
    json_int(&w, "calls", (int64_t)r->calls);
    json_real(&w, "total_s", r->total_s);
    json_real(&w, "utilisation", r->utilisation);
    json_real(&w, "exchange_s", r->exchange_s);
    json_real(&w, "wall_s", r->wall_s);
    json_array(&w, "sites");
    for (unsigned i = 0; i < c->out.count; i++)
        site_json(&w, &c->out.site[i], &r->site[i]);
    json_end(&w);
    amendments_json(&w, r);
    json_close(&w);
}

static enum err sim(struct run *p, void *self)
{
    struct sim_cmd *c = self;
    c->p = p;
    bool alone = c->o.record && strcmp(c->o.record, "-") == 0; /* the record, and nothing else */
    TRY(cmd_format(c->format, &c->json));
    TRY(simulation_run(p, &c->o, &c->out));
    if (alone)
        fflush(stdout);
    else if (c->json)
        result_json(c);
    else
        print_result(c);
    if (c->out.r.stopped && !c->out.r.ended)
        return err_set(
            ERR_STOPPED,
            "stopped on request; a simulation stores nothing, the next one begins again");
    return ERR_OK;
}

enum err cmd_sim(int argc, char **argv, struct arena *arena)
{
    struct run_source source = {.role = RUN_PLAN};
    struct sim_cmd c = {.format = "text", .o = {.seed = 1, .progress = tell, .self = &c}};
    const struct args_option options[] = {
        PLAN_ROWS(&source),
        {"topology", ARGS_TEXT, &c.o.topology, .value = "FILE",
         .help = "Links from a topology or preset of atoll wan, one of whose places is the "
                 "aggregator."},
        {"days", ARGS_REAL, &c.o.days, .max = 36500, .value = "DAYS",
         .help = "Simulate the first N days of the run instead of train.steps; 0: train.steps."},
        {"rounds", ARGS_INT, &c.o.rounds, .max = 1e9, .value = "N",
         .help = "Only the first N rounds of a fragment; 0: all."},
        {"record", ARGS_TEXT, &c.o.record, .value = "FILE",
         .help = "Write every round of every site there, in a new file, as lines of metrics.jsonl "
                 "with site and run_s; - is standard output, without the result."},
        {"force", ARGS_FLAG, &c.o.force, .help = "Replace the file of --record."},
        {"seed", ARGS_INT, &c.o.seed, .max = 9e15, .value = "N",
         .help = "Order of what happens in the same millisecond."},
        FORMAT_ROW(&c.format, ": time, rounds, calls, and sites"),
    };
    struct args args = {
        .command = "sim",
        .summary = "Runs the exchange of a configuration in virtual time: the real protocol, "
                   "aggregator and codecs on "
                   "links with a rate and a delay, the payloads of the real model, training as a "
                   "wait. Says how "
                   "much of the time trains, bytes by site, staleness. No faults. A round takes "
                   "about 0.05 ms of processor time for each site, memory is about 0.5 MiB a site, "
                   "0.1 more for each "
                   "further fragment; --rounds, --days or a larger outer.sync_every make it short.",
        .example =
            "atoll sim --sites 8 --days 30 --outer.sync_every 500 --plan.step_s 1 --plan.up_mbit "
            "100 --plan.down_mbit 100 "
            "--plan.rtt_ms 80 s3:step_s=1.2,up_mbit=20",
        .operands = "[NAME:probe=FILE,step_s=S,up_mbit=R,down_mbit=R,rtt_ms=T,loss_percent=L ...]",
        .settings = run_nearest_of_plan,
        ARGS_OPTIONS(options)};
    c.o.args = &args;
    TRY(args_parse(&args, argc, argv, arena));
    return cmd_run(&args, &source, sim, &c);
}
