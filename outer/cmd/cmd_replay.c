/* SPDX-License-Identifier: Apache-2.0 */
/* atoll replay: the committed rounds of a run, recomputed from archives (run.archive) of any subset
 * of its replicas, compared with the manifests and the kept states. Reads only. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/record/json_write.h"
#include "outer/run/archives.h"

struct replay_cmd {
    struct archives a;
    struct archives_options o;
    const char *format;
    int64_t from, to;
    bool json;
    struct json_write out;
};

static enum replay_signature signature(void *self, const struct manifest *m)
{
    const struct replay_cmd *c = self;
    return archives_signature(&c->a, m);
}

/* ---- what is found ---- */

static const char *const kind_names[] = {
    [REPLAY_DAMAGED] = "damaged", [REPLAY_DIFFERS] = "differs", [REPLAY_MISSING] = "missing"};

static void place_text(const struct replay_place *p, char *out, size_t size)
{
    const char *tensor = *p->tensor ? p->tensor : "the fragment";
    *out = 0;
    if (p->known && p->last - p->first == 1)
        snprintf(out, size, " at %s of %s, value %zu", p->array, tensor, p->first);
    else if (p->known)
        snprintf(out, size, " at %s of %s, values %zu to %zu", p->array, tensor, p->first,
                 p->last - 1);
}

static void found_text(const struct replay_finding *f)
{
    char place[256], rounds[64];
    place_text(&f->place, place, sizeof place);
    if (f->last > f->round)
        snprintf(rounds, sizeof rounds, "rounds %" PRIu64 " to %" PRIu64, f->round, f->last);
    else
        snprintf(rounds, sizeof rounds, "round %" PRIu64, f->round);
    printf("%s: fragment %u %s: %s%s%s%s: %s%s%s%s\n", kind_names[f->kind], f->fragment, rounds,
           f->what, *f->site ? " of site " : "", f->site, place, f->text, *f->file ? " (" : "",
           f->file, *f->file ? ")" : "");
}

static void found_json(struct json_write *w, const struct replay_finding *f)
{
    json_object(w, NULL);
    json_text(w, "kind", kind_names[f->kind]);
    json_text(w, "what", f->what);
    json_real(w, "fragment", f->fragment);
    json_real(w, "round", (double)f->round);
    json_real(w, "last_round", (double)f->last);
    if (*f->site)
        json_text(w, "site", f->site);
    if (*f->file)
        json_text(w, "file", f->file);
    if (f->place.known) {
        json_object(w, "leaf");
        json_text(w, "array", f->place.array);
        json_text(w, "tensor", f->place.tensor);
        json_real(w, "first", (double)f->place.first);
        json_real(w, "last", (double)f->place.last - 1);
        json_end(w);
    }
    json_text(w, "text", f->text);
    json_end(w);
}

static void found(void *self, const struct replay_finding *f)
{
    struct replay_cmd *c = self;
    if (c->json)
        found_json(&c->out, f);
    else
        found_text(f);
}

/* ---- the verdict ---- */

static bool masked(const struct replay_cmd *c)
{
    return archives_first(&c->a)->head.masked;
}

static void print_sources(const struct replay_cmd *c)
{
    printf("run %s, archives of", archives_first(&c->a)->head.run);
    for (size_t i = 0; i < c->a.count; i++)
        if (c->a.sources[i].archive)
            printf(" %s (%s)", c->a.sources[i].path, c->a.sources[i].head.replica);
    puts("");
    if (masked(c))
        puts("secure aggregation: the contributions are masked and not kept. Checked: the chain of "
             "the manifests, the digests\nof the sums that they name, and every outer step from "
             "these sums. Not checked: that a sum is that of its contributions;\nthe sum of every "
             "round that is made from the kept sum is taken as given.");
}

static void print_result(const struct replay_cmd *c, const struct replay_result *r, double seconds)
{
    char hex[65];
    if (c->o.several)
        printf("%" PRIu64 " rounds, found by %" PRIu64 " looks at manifests: ", r->rounds,
               r->looks);
    else
        printf("%" PRIu64 " rounds: %" PRIu64 " recomputed from the contributions, %" PRIu64
               " from the kept sum, %" PRIu64 " not; %" PRIu64 " kept states compared; %.2f s\n",
               r->rounds, r->made, r->by_aggregate, r->rounds - r->made - r->by_aggregate,
               r->states, seconds);
    if (!c->o.several)
        printf("signatures of the aggregator: %" PRIu64 " manifests checked%s, %" PRIu64
               " not checked%s\n",
               r->signatures,
               c->o.ca ? ", by its certificate" : ", by a key that a site has accepted",
               r->rounds - r->signatures,
               r->signatures + r->keys_unknown >= r->rounds
                   ? ""
                   : " (keys are in the run directories of sites, not in archives alone)");
    if (!c->o.several && r->keys_unknown)
        printf("signature not checked: key unknown: %" PRIu64 " manifests; the given sites do not "
               "have every key since the terms of these: give the run directories of other sites, "
               "too\n",
               r->keys_unknown);
    if (r->whole && !c->o.several) {
        digest_hex(&r->outer, hex);
        printf("outer state at the end: %s\n", hex);
    }
    if (!r->damaged && !r->differs && !r->missing)
        puts("no difference");
    else
        printf("%u damaged, %u different, %u missing\n", r->damaged, r->differs, r->missing);
}

static void json_result(struct replay_cmd *c, const struct replay_result *r, double seconds)
{
    struct json_write *w = &c->out;
    char hex[65];
    json_end(w); /* findings */
    json_real(w, "rounds", (double)r->rounds);
    json_real(w, "made", (double)r->made);
    json_real(w, "by_aggregate", (double)r->by_aggregate);
    json_real(w, "signatures", (double)r->signatures);
    json_real(w, "signatures_key_unknown", (double)r->keys_unknown);
    json_real(w, "states", (double)r->states);
    json_real(w, "looks", (double)r->looks);
    json_real(w, "bytes", (double)r->bytes);
    json_real(w, "damaged", r->damaged);
    json_real(w, "differs", r->differs);
    json_real(w, "missing", r->missing);
    json_real(w, "seconds", seconds);
    digest_hex(&r->outer, hex);
    json_text(w, "outer_state", r->whole && !c->o.several ? hex : "");
    json_close(w);
}

static enum err verdict(const struct replay_result *r)
{
    if (r->differs || r->damaged)
        return err_set(ERR_UNLIKE, "%u damaged, %u different, %u missing", r->damaged, r->differs,
                       r->missing);
    return r->missing ? err_set(ERR_GAPS, "%u missing", r->missing) : ERR_OK;
}

static enum err replay(struct replay_cmd *c, const struct args *args)
{
    struct replay_result r;
    TRY(cmd_format(c->format, &c->json));
    TRY(archives_open(&c->a, &c->o, args));
    const struct replay_options o = {.sources = c->a.sources,
                                     .count = c->a.count,
                                     .sites = (const char *const *)c->a.run.o.outer_sites.items,
                                     .table = &c->a.run.table,
                                     .placed = !c->a.imported,
                                     .from = (uint64_t)c->from,
                                     .to = c->to < 0 ? UINT64_MAX : (uint64_t)c->to + 1,
                                     .signature = signature,
                                     .found = found,
                                     .self = c};
    if (c->json) {
        c->out = (struct json_write){.out = stdout};
        json_object(&c->out, NULL);
        json_text(&c->out, "run", archives_first(&c->a)->head.run);
        json_bool(&c->out, "masked", masked(c));
        json_array(&c->out, "findings");
    } else {
        print_sources(c);
    }
    uint64_t start = clock_mono_ms();
    TRY(c->o.several ? replay_bisect(&c->a.replica, &o, &r) : replay_run(&c->a.replica, &o, &r));
    double seconds = (double)(clock_mono_ms() - start) / 1000;
    if (c->json)
        json_result(c, &r, seconds);
    else
        print_result(c, &r, seconds);
    return verdict(&r);
}

enum err cmd_replay(int argc, char **argv, struct arena *arena)
{
    static struct replay_cmd c;
    c = (struct replay_cmd){.format = "text", .to = -1};
    const struct args_option options[] = {
        {"from-round", ARGS_INT, &c.from, .min = 0, .max = 1e15, .value = "N",
         .help = "First round of each fragment; it begins at the newest kept state before it."},
        {"to-round", ARGS_INT, &c.to, .min = -1, .max = 1e15, .value = "N",
         .help = "Last round of each fragment; -1: the newest on record."},
        {"bisect", ARGS_FLAG, &c.o.several,
         .help = "Of two directories: the first round in which they differ, by binary search over "
                 "their manifests, and what differs in it. They may be of two runs. Of one: the "
                 "first kept state that is not the manifest's, and the rounds before it."},
        {"config", ARGS_TEXT, &c.o.config, .value = "FILE",
         .help = "Configuration of the run; without it the one in the archive."},
        {"ca", ARGS_TEXT, &c.o.ca, .value = "FILE",
         .help = "ca.pem: the aggregator's certificate, which a site keeps, must be of this "
                 "authority; without it the key that the site has accepted is believed."},
        FORMAT_ROW(&c.format, ": findings, rounds by how they were recomputed, outer_state"),
    };
    struct args args = {
        .command = "replay",
        .summary =
            "Recomputes every committed round from archives (run.archive) of the aggregator, of "
            "sites, or of both, in memory, and compares contributions, manifests, states. Names "
            "what is damaged, different or missing, with round, site, tensor and value. Ends with "
            "0: all is as on record; 1: something is not; 9: rounds cannot be recomputed, since "
            "files are missing.",
        .example = "atoll replay aggregator run-a run-b",
        .operands = "DIR...",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    enum err e = replay(&c, &args);
    archives_close(&c.a);
    return e;
}
