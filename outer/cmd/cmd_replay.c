/* atoll replay: the committed rounds of a run made again from archives (run.archive) of any subset
 * of its replicas, compared with the manifests and the kept states. Reads only. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/cmd/cmd.h"
#include "outer/config/run.h"
#include "outer/identity/signed.h"
#include "outer/identity/tls.h"
#include "outer/record/json_write.h"
#include "outer/site/site_identity.h"
#include "outer/store/env_files.h"
#include "outer/organ/archive/replay.h"

enum { SOURCES_MAX = ROUND_SITES_MAX, SETTINGS_MAX = 1 << 20 };

struct replay_keys { /* of one aggregator: what the sites of the directories have accepted */
    struct site_seen_key *key;
    size_t count;
};
struct replay_cmd {
    struct run run;
    const char *config, *format;
    int64_t from, to;
    bool bisect;
    bool json;
    struct replay_source sources[SOURCES_MAX];
    size_t count;
    bool imported; /* the run did not start from run.seed */
    const char *ca;
    struct signer *signer;
    unsigned aggregators;
    struct replay_keys *keys; /* [aggregators] */
    struct json_write out;
    struct dev *cpu;
    struct outer_state replica;
};

/* ---- the directories ---- */

static enum err source_add(struct replay_cmd *c, const char *path, const char *archive,
                           const char *frag)
{
    struct replay_source *s = &c->sources[c->count];
    if (c->count == SOURCES_MAX)
        return err_set(ERR_CONFIG, "replay: more than %d directories", SOURCES_MAX);
    *s = (struct replay_source){.path = path, .archive = archive, .frag = frag};
    if (archive)
        TRY(archive_head_read(&s->head, archive, &c->run.perm));
    c->count++;
    return ERR_OK;
}

static enum err path_in(struct replay_cmd *c, const char *dir, const char *file, const char **out)
{
    TRY_ALLOC(*out = arena_printf(&c->run.perm, "%s/%s", dir, file));
    return ERR_OK;
}

/* run.archive = DIRECTORY: one archive for each replica. */
static enum err several_add(struct replay_cmd *c, const char *dir)
{
    char **names;
    size_t count, before = c->count;
    TRY(file_list(dir, &c->run.perm, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const char *sub, *head;
        TRY(path_in(c, dir, names[i], &sub));
        TRY(path_in(c, sub, "HEAD", &head));
        if (file_exists(head))
            TRY(source_add(c, sub, sub, NULL));
    }
    return c->count > before
               ? ERR_OK
               : err_set(ERR_INPUT,
                         "%s: neither an archive (run.archive) nor a run directory or serve.dir",
                         dir);
}

static enum err directory_add(struct replay_cmd *c, const char *dir)
{
    const char *head, *inside, *inside_head, *frag;
    TRY(path_in(c, dir, "HEAD", &head));
    TRY(path_in(c, dir, "archive", &inside));
    TRY(path_in(c, inside, "HEAD", &inside_head));
    TRY(path_in(c, dir, "frag", &frag));
    if (!file_exists(dir))
        return err_set(ERR_INPUT, "%s: there is no such directory", dir);
    if (file_exists(head))
        return source_add(c, dir, dir, NULL);
    bool archived = file_exists(inside_head), kept = file_exists(frag);
    if (archived || kept)
        return source_add(c, dir, archived ? inside : NULL, kept ? frag : NULL);
    return several_add(c, dir);
}

static enum err directories_open(struct replay_cmd *c, const struct args *args)
{
    const struct replay_source *first = NULL;
    if (!args->operand_count)
        return err_set(ERR_CONFIG, "replay: give the archives, or the directories of sites or of "
                                   "the aggregator: atoll replay aggregator run-a");
    for (int i = 0; i < args->operand_count; i++)
        TRY(directory_add(c, args->operand[i]));
    for (size_t i = 0; i < c->count; i++) {
        const struct replay_source *s = &c->sources[i];
        if (!s->archive)
            continue;
        first = first ? first : s;
        if (!c->bisect && strcmp(s->head.run, first->head.run) != 0)
            return err_set(ERR_CONFIG,
                           "%s is of run %s, %s of run %s: give the archives of one run "
                           "(--bisect compares two)",
                           first->path, first->head.run, s->path, s->head.run);
    }
    return first ? ERR_OK
                 : err_set(ERR_INPUT, "%s: it has no archive: the run was without run.archive",
                           c->sources[0].path);
}

static const struct replay_source *first_archive(const struct replay_cmd *c)
{
    size_t i = 0;
    while (!c->sources[i].archive)
        i++;
    return &c->sources[i];
}

/* ---- the replica ---- */

static enum err settings_open(struct replay_cmd *c, const struct args *args)
{
    struct run_source source = {.role = RUN_MODEL, .config = c->config, .args = args};
    const struct replay_source *from = first_archive(c);
    uint8_t *text;
    size_t n;
    if (!c->config) {
        TRY(path_in(c, from->archive, "config.yaml", &source.config));
        TRY(file_read(source.config, SETTINGS_MAX, &c->run.perm, &text, &n));
        source.text = (const char *)text;
    }
    TRY(run_open(&c->run, &source));
    for (uint32_t i = 0; i < from->head.end_count; i++) /* train.steps has grown */
        c->run.sync.schedule.ends[i] = (int64_t)from->head.ends[i];
    c->run.sync.schedule.end_count = from->head.end_count;
    return ERR_OK;
}

/* Does an archive have state 0? Then the run did not start from run.seed. */
static bool start_kept(const struct replay_cmd *c)
{
    char path[ARCHIVE_PATH_MAX];
    bool kept = false;
    for (size_t i = 0; i < c->count; i++) {
        if (!c->sources[i].archive)
            continue;
        archive_path(path, c->sources[i].archive, 0, 0, "state");
        kept |= file_exists(path);
    }
    return kept || *c->run.s.run_from;
}

static enum err replica_open(struct replay_cmd *c)
{
    struct outer_state_options o = run_outer_state(&c->run, false);
    const struct dev_options device = {
        .kind = "cpu", .model_type = "f32", .threads = (int)c->run.s.device_threads};
    struct arena scratch = arena_make(0);
    TRY(dev_open(&c->cpu, &device));
    TRY(outer_state_open(&c->replica, NULL, c->cpu, &o, &c->run.perm));
    c->imported = start_kept(c);
    if (c->imported)
        return ERR_OK;
    float *slab = arena_array(&scratch, c->run.table.elements, sizeof *slab);
    enum err e = ERR_MEMORY;
    if (slab) {
        table_init(&c->run.table, (uint64_t)c->run.s.run_seed, slab);
        e = outer_state_place(&c->replica, slab);
    }
    arena_free(&scratch);
    return e;
}

/* ---- signatures ---- */

/* Of the announcements that sites keep; a run without identities has none. */
static enum err keys_read(struct replay_cmd *c)
{
    static const struct env_ops reads = {.exists = env_files_exists, .read = env_files_read};
#ifdef ATOLL_NET
    TRY(tls_reader_open(&c->signer, c->ca));
#endif
    if (!c->signer) /* a build without TLS */
        return ERR_OK;
    c->aggregators = (unsigned)c->run.o.outer_aggregators;
    TRY_ALLOC(c->keys = arena_array(&c->run.perm, c->aggregators, sizeof *c->keys));
    for (unsigned i = 0; i < c->aggregators; i++) {
        struct replay_keys *k = &c->keys[i];
        TRY_ALLOC(k->key = arena_array(&c->run.perm, SITE_KEYS_MAX * c->count, sizeof *k->key));
        for (size_t s = 0; s < c->count; s++) {
            struct env site = {&reads, c->sources[s].path, disk_posix()};
            k->count +=
                site_seen_keys(&site, i, first_archive(c)->head.run, c->signer, &k->key[k->count]);
        }
    }
    return ERR_OK;
}

/* Is one key known that was announced in this epoch, and only one? Several: its files changed under
 * a process, and there may have been others. */
static bool key_known(const struct replay_keys *k, uint64_t epoch)
{
    const struct signer_key *one = NULL;
    for (size_t i = 0; i < k->count; i++) {
        const struct site_seen_key *x = &k->key[i];
        if (epoch < x->first || epoch > x->last)
            continue;
        if (one && memcmp(one, &x->key, sizeof *one) != 0)
            return false;
        one = &x->key;
    }
    return one;
}

/* Of every epoch from this one to the newest? A manifest that a site asks for behind a change of
 * the key is signed anew, and names the epoch of its commit all the same. */
static bool keys_known(const struct replay_keys *k, uint64_t epoch)
{
    uint64_t newest = 0, at = epoch;
    for (size_t i = 0; i < k->count; i++)
        newest = k->key[i].last > newest ? k->key[i].last : newest;
    while (at <= newest && key_known(k, at))
        at++;
    return epoch <= newest && at > newest;
}

static enum replay_signature signature(void *self, const struct manifest *m)
{
    const struct replay_cmd *c = self;
    if (!c->signer)
        return REPLAY_UNCHECKED;
    const struct replay_keys *k = &c->keys[m->fragment % c->aggregators];
    for (size_t i = 0; i < k->count; i++)
        if (signed_manifest_holds(c->signer, &k->key[i].key, m))
            return REPLAY_SIGNED;
    if (!k->count)
        return REPLAY_UNCHECKED;
    return keys_known(k, m->epoch) ? REPLAY_UNSIGNED : REPLAY_KEY_UNKNOWN;
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
    return first_archive(c)->head.masked;
}

static void print_sources(const struct replay_cmd *c)
{
    printf("run %s, archives of", first_archive(c)->head.run);
    for (size_t i = 0; i < c->count; i++)
        if (c->sources[i].archive)
            printf(" %s (%s)", c->sources[i].path, c->sources[i].head.replica);
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
    if (c->bisect)
        printf("%" PRIu64 " rounds, found by %" PRIu64 " looks at manifests: ", r->rounds,
               r->looks);
    else
        printf("%" PRIu64 " rounds: %" PRIu64 " made again from the contributions, %" PRIu64
               " from the kept sum, %" PRIu64 " not; %" PRIu64 " kept states compared; %.2f s\n",
               r->rounds, r->made, r->by_aggregate, r->rounds - r->made - r->by_aggregate,
               r->states, seconds);
    if (!c->bisect)
        printf("signatures of the aggregator: %" PRIu64 " manifests checked%s, %" PRIu64
               " not checked%s\n",
               r->signatures,
               c->ca ? ", by its certificate" : ", by a key that a site has accepted",
               r->rounds - r->signatures,
               r->signatures + r->keys_unknown >= r->rounds
                   ? ""
                   : " (keys are in the run directories of sites, not in archives alone)");
    if (!c->bisect && r->keys_unknown)
        printf("signature not checked: key unknown: %" PRIu64 " manifests; the given sites do not "
               "have every key since the epochs of these: give the run directories of other sites, "
               "too\n",
               r->keys_unknown);
    if (r->whole && !c->bisect) {
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
    json_text(w, "outer_state", r->whole && !c->bisect ? hex : "");
    json_end(w);
    putchar('\n');
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
    c->json = strcmp(c->format, "json") == 0;
    if (!c->json && strcmp(c->format, "text") != 0)
        return err_set(ERR_CONFIG, "replay: --format is text or json, not %s", c->format);
    TRY(directories_open(c, args));
    TRY(settings_open(c, args));
    TRY(replica_open(c));
    TRY(keys_read(c));
    const struct replay_options o = {.sources = c->sources,
                                     .count = c->count,
                                     .sites = (const char *const *)c->run.o.outer_sites.items,
                                     .table = &c->run.table,
                                     .placed = !c->imported,
                                     .from = (uint64_t)c->from,
                                     .to = c->to < 0 ? UINT64_MAX : (uint64_t)c->to + 1,
                                     .signature = signature,
                                     .found = found,
                                     .self = c};
    if (c->json) {
        c->out = (struct json_write){.out = stdout};
        json_object(&c->out, NULL);
        json_text(&c->out, "run", first_archive(c)->head.run);
        json_bool(&c->out, "masked", masked(c));
        json_array(&c->out, "findings");
    } else {
        print_sources(c);
    }
    uint64_t start = clock_mono_ms();
    TRY(c->bisect ? replay_bisect(&c->replica, &o, &r) : replay_run(&c->replica, &o, &r));
    double seconds = (double)(clock_mono_ms() - start) / 1000;
    if (c->json)
        json_result(c, &r, seconds);
    else
        print_result(c, &r, seconds);
    return verdict(&r);
}

enum err cmd_replay(int argc, char **argv)
{
    static struct replay_cmd c;
    c = (struct replay_cmd){.format = "text", .to = -1, .run.perm = arena_make(0)};
    const struct args_option options[] = {
        {"from-round", ARGS_INT, &c.from, .min = 0, .max = 1e15, .value = "N",
         .help = "First round of each fragment; it begins at the newest kept state before it."},
        {"to-round", ARGS_INT, &c.to, .min = -1, .max = 1e15, .value = "N",
         .help = "Last round of each fragment; -1: the newest on record."},
        {"bisect", ARGS_FLAG, &c.bisect,
         .help = "Of two directories: the first round in which they differ, by binary search over "
                 "their manifests, and what differs in it. They may be of two runs. Of one: the "
                 "first kept state that is not the manifest's, and the rounds before it."},
        {"config", ARGS_TEXT, &c.config, .value = "FILE",
         .help = "Configuration of the run; without it the one in the archive."},
        {"ca", ARGS_TEXT, &c.ca, .value = "FILE",
         .help = "ca.pem: the aggregator's certificate, which a site keeps, must be of this "
                 "authority; without it the key that the site has accepted is believed."},
        {"format", ARGS_TEXT, &c.format, .value = "text|json", .help = "Of the output."},
    };
    struct args args = {
        .command = "replay",
        .summary =
            "Makes every committed round again from archives (run.archive) of the aggregator, of "
            "sites, or of both, in memory, and compares contributions, manifests, states. Names "
            "what is damaged, different or missing, with round, site, tensor and value. Ends with "
            "0: all is as on record; 1: something is not; 9: rounds cannot be made again, for lack "
            "of files.",
        .example = "atoll replay aggregator run-a run-b",
        .operands = "DIR...",
        .options = options,
        .count = sizeof options / sizeof *options};
    enum err e = args_parse(&args, argc, argv, &c.run.perm);
    if (e == ERR_OK && !args.help)
        e = replay(&c, &args);
    if (c.signer)
        c.signer->ops->close(c.signer);
    outer_state_close(&c.replica);
    dev_close(c.cpu);
    run_close(&c.run);
    return e;
}
