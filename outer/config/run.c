/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/config/run.h"
#include <math.h>
#include <string.h>
#include "inner/data/shard.h"
#include "inner/train/start.h"
#include "inner/train/train.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "outer/config/amend.h"
#include "outer/config/identity.h"

/* ---- rules ---- */

static void check_role(struct config_rules *rules, const struct run *r, enum run_role role)
{
    size_t sites = r->o.outer_sites.count;
    if (role == RUN_AGGREGATOR && !sites)
        config_broken(rules, "outer.sites is empty; list the names of all sites of the run");
    if (role == RUN_PLAN && !sites)
        config_broken(
            rules,
            "outer.sites is empty; list the names of all sites (--outer.sites a,b), or, with "
            "atoll plan and atoll sim, say how many: --sites N");
    if (role == RUN_SITE && !*r->o.site_name && *r->o.site_aggregator && sites > 1)
        config_broken(rules, "site.name is missing; say which of outer.sites this process is: "
                             "--site.name NAME (atoll doctor: --site NAME, or --serve at the "
                             "aggregator)");
    if (role == RUN_PLAN && r->o.outer_sync_interval_s > 0)
        config_broken(
            rules,
            "outer.sync_interval_s = %g: predictions are for rounds of a number of steps; give "
            "--outer.sync_interval_s 0, with outer.sync_every = the steps of the slowest site in a "
            "round",
            r->o.outer_sync_interval_s);
    if (role == RUN_PLAN && r->o.outer_sync_fraction < 1)
        config_broken(
            rules,
            "outer.sync_fraction = %g: predictions are for rounds of whole fragments; the nearest "
            "is --outer.sync_fraction 1 --outer.partition random, with outer.fragments about "
            "1 / outer.sync_fraction",
            r->o.outer_sync_fraction);
    if (role == RUN_SITE && r->o.eval_every_rounds && !*r->o.site_aggregator)
        config_broken(
            rules,
            "eval.every_rounds = %lld without site.aggregator: a site alone has no rounds; "
            "atoll eval evaluates its checkpoints, or give site.aggregator = self",
            (long long)r->o.eval_every_rounds);
    bool joined = role == RUN_AGGREGATOR || (role == RUN_SITE && *r->o.site_aggregator);
    if (joined && sites > 1 && r->s.model_classifier_heads > 1 && r->s.train_heads_drop > 0)
        config_broken(
            rules,
            "train.heads_drop = %g with %zu sites: each would drop heads by its own text; "
            "use train.heads_drop = 0",
            r->s.train_heads_drop, sites);
}

static enum err check_run(const struct run *r, enum run_role role)
{
    struct config_rules rules = {0};
    keys_check(&rules, &r->s);
    keys_outer_check(&rules, &r->o, &r->s);
    check_role(&rules, r, role);
    return config_rules_report(&rules);
}

/* ---- run.init_from ---- */

/* RUN_DIR/imported: the digest of what atoll import made step 0 of this directory. Later
 * checkpoints take the place of that step, the digest stays. */
static enum err imported_path(const char *run_dir, struct arena *a, char **path)
{
    TRY_ALLOC(*path = arena_printf(a, "%s/imported", run_dir));
    return ERR_OK;
}

enum err run_imported(const char *run_dir, struct arena *a, char hex[65])
{
    char *path;
    uint8_t *text;
    size_t n;
    *hex = 0;
    TRY(imported_path(run_dir, a, &path));
    if (!file_exists(path))
        return ERR_OK;
    TRY(file_read(path, 65, a, &text, &n));
    if (n != 65 || strspn((char *)text, "0123456789abcdef") != 64)
        return err_set(ERR_CORRUPT, "%s: damaged; it names the imported parameters by their digest",
                       path);
    memcpy(hex, text, 64);
    hex[64] = 0;
    return ERR_OK;
}

static enum err imported_write(const struct run *r, const char *hex, struct arena *a)
{
    char *path, *line;
    TRY(imported_path(r->s.run_dir, a, &path));
    TRY_ALLOC(line = arena_printf(a, "%.64s\n", hex));
    TRY(file_mkdirs(r->s.run_dir));
    return file_write(path, &(struct file_part){line, 65}, 1, 0644);
}

static enum err no_checkpoints(const char *dir, struct arena *a)
{
    char *current;
    TRY_ALLOC(current = arena_printf(a, "%s/CURRENT", dir));
    return file_exists(current)
               ? err_set(ERR_CONFIG, "%s holds checkpoints of a run already; use another run.dir",
                         dir)
               : ERR_OK;
}

static enum err import_slab(const struct run *r, const float *slab, const char *dir,
                            struct arena *a)
{
    struct digest d = digest_of(slab, r->table.elements * sizeof *slab);
    char hex[65];
    digest_hex(&d, hex);
    TRY(no_checkpoints(dir, a));
    TRY(imported_write(r, hex, a));
    const struct start from = start_of(slab);
    return train_begin_from(&r->s, &r->table, &from, dir, a);
}

enum err run_import(const struct run *r, const float *slab, const char *dir)
{
    struct arena a = arena_make(0);
    enum err e = import_slab(r, slab, dir, &a);
    arena_free(&a);
    return e;
}

/* What train would refuse at its start is said here. */
static enum err check_settings(const struct run *r, const struct portable *p, struct arena *a)
{
    struct config_table keys = keys_inner((struct settings *)(uintptr_t)&r->s);
    char *pinned, *ours, *theirs, *difference;
    if (p->meta.seed != (uint64_t)r->s.run_seed)
        return err_set(ERR_MISMATCH,
                       "the checkpoint is of another run: run.seed: %lld here, %llu "
                       "there",
                       (long long)r->s.run_seed, (unsigned long long)p->meta.seed);
    TRY(config_canonical(&keys, 1, a, &pinned));
    TRY(config_without(pinned, "train.steps", a, &ours));
    TRY(config_without(p->meta.settings, "train.steps", a, &theirs));
    TRY(config_difference(&keys, 1, ours, theirs, a, &difference));
    return *difference ? err_set(ERR_MISMATCH, "the checkpoint is of another run: %s", difference)
                       : ERR_OK;
}

static enum err import_checkpoint(const struct run *r, const struct portable *p, const char *dir,
                                  struct arena *a)
{
    TRY(check_settings(r, p, a));
    TRY(no_checkpoints(dir, a));
    if (*p->initial)
        TRY(imported_write(r, p->initial, a));
    TRY(file_mkdirs(dir));
    return checkpoint_save(dir, &p->meta, p->parts, p->count, 1);
}

enum err run_import_checkpoint(const struct run *r, const struct portable *p, const char *dir)
{
    struct arena a = arena_make(0);
    enum err e = import_checkpoint(r, p, dir, &a);
    arena_free(&a);
    return e;
}

/* Every rank does this at every start: in pieces. */
static enum err start_digest(const struct start *from, size_t elements, struct arena *a,
                             char hex[65])
{
    struct digest_stream d;
    float *piece;
    enum err e = ERR_OK;
    TRY_ALLOC(piece = arena_array(a, START_PIECE, sizeof *piece));
    digest_open(&d);
    for (size_t at = 0, n; e == ERR_OK && at < elements; at += n) {
        n = elements - at < START_PIECE ? elements - at : START_PIECE;
        e = start_read(from, 0, at, piece, n);
        digest_add(&d, piece, n * sizeof *piece);
    }
    const struct digest all = digest_close(&d);
    digest_hex(&all, hex);
    return e;
}

static enum err from_digest(const struct run *r, struct arena *a, char hex[65])
{
    struct start from;
    enum err e = start_open(&from, &r->s, &r->table, r->s.run_init_from, a);
    if (e == ERR_OK)
        e = start_digest(&from, r->table.elements, a, hex);
    start_close(&from);
    return e;
}

/* A line of the identity, so that a process that starts from other parameters is refused. */
static enum err make_pin(struct run *r, bool site, struct arena *a)
{
    char imported[65] = "", from[65] = "";
    if (site)
        TRY(run_imported(r->s.run_dir, a, imported));
    if (*r->s.run_init_from)
        TRY(from_digest(r, a, from));
    if (*imported && *from && strcmp(imported, from) != 0)
        return err_set(
            ERR_MISMATCH,
            "run.dir = %s holds the imported parameters %.16s, run.init_from = %s others, "
            "%.16s; leave run.init_from out, or use another run.dir",
            r->s.run_dir, imported, r->s.run_init_from, from);
    r->imported = *imported != 0;
    const char *hex = *imported ? imported : from;
    if (*hex)
        TRY_ALLOC(r->identity = arena_printf(&r->perm, "%srun.initial=%s\n", r->identity, hex));
    return ERR_OK;
}

static enum err pin_initial(struct run *r, bool site)
{
    struct arena scratch = arena_make(0);
    enum err e = make_pin(r, site, &scratch);
    arena_free(&scratch);
    return e;
}

enum err run_initial(const struct run *r, float *slab)
{
    struct arena scratch = arena_make(0);
    struct start start = {0};
    const char *from = r->imported ? r->s.run_dir : r->s.run_init_from;
    enum err e = ERR_OK;
    if (!*from)
        table_init(&r->table, (uint64_t)r->s.run_seed, slab);
    else if ((e = start_open(&start, &r->s, &r->table, from, &scratch)) == ERR_OK)
        e = start_read(&start, 0, 0, slab, r->table.elements);
    start_close(&start);
    arena_free(&scratch);
    return e;
}

static enum err begin_from(const struct run *r, struct arena *a)
{
    struct start from;
    const char *dir, *current;
    TRY_ALLOC(dir = arena_printf(a, "%s/inner", r->s.run_dir));
    TRY_ALLOC(current = arena_printf(a, "%s/CURRENT", dir));
    if (!*r->s.run_init_from || file_exists(current))
        return ERR_OK;
    enum err e = start_open(&from, &r->s, &r->table, r->s.run_init_from, a);
    if (e == ERR_OK && *from.fresh)
        log_event(LOG_INFO, "start", "from=\"%s\" seed=\"%s\"", r->s.run_init_from, from.fresh);
    if (e == ERR_OK)
        e = train_begin_from(&r->s, &r->table, &from, dir, a);
    start_close(&from);
    return e;
}

enum err run_begin_from(const struct run *r)
{
    struct arena scratch = arena_make(0);
    enum err e = begin_from(r, &scratch);
    arena_free(&scratch);
    return e;
}

/* ---- open ---- */

/* s0, s1, ...: the names do not matter before a run. */
static enum err make_roster(struct run *r, int64_t sites)
{
    struct config_list *list = &r->o.outer_sites;
    TRY_ALLOC(list->items = arena_array(&r->perm, (size_t)sites, sizeof *list->items));
    list->count = (size_t)sites;
    for (int64_t i = 0; i < sites; i++)
        TRY_ALLOC(list->items[i] = arena_printf(&r->perm, "s%lld", (long long)i));
    return ERR_OK;
}

/* A probe file, and the arguments that a plan has in addition. */
static enum err read_measured(struct run *r, const struct run_source *source)
{
    bool used = source->role == RUN_SITE || source->role == RUN_PLAN;
    const char *own = used && !source->measures && *r->o.site_probe ? r->o.site_probe : NULL;
    const char *path = source->probe ? source->probe : own;
    TRY(measured_default(&r->measured, &r->perm));
    return measured_read(&r->measured, path, source->role == RUN_PLAN ? source->args : NULL,
                         &r->perm);
}

static enum err read_settings(struct run *r, const struct run_source *source)
{
    const struct config_table tables[] = {keys_inner(&r->s), keys_outer(&r->o)};
    struct args args = *source->args;
    const struct config_text text = {source->config, source->text,
                                     source->text ? strlen(source->text) : 0, source->names};
    if (source->role == RUN_PLAN)
        TRY(measured_arguments(source->args, false, &args, &r->perm));
    if (source->text)
        TRY(config_load_text(tables, 2, &text, args.setting_count, args.setting, &r->perm));
    else
        TRY(config_load(tables, 2, source->config, args.setting_count, args.setting, &r->perm));
    TRY(read_measured(r, source));
    if (r->s.data_objective != DATA_OBJECTIVE_LABELS) /* no tasks: no names */
        TRY(shard_items_plain(&r->s.data_train, &r->perm));
    return source->sites ? make_roster(r, source->sites) : ERR_OK;
}

/* Of sites that the run did not begin with: far more than such sites, and what the data's order
 * takes (inner/data/loader.c). */
enum { NUMBERS = 1 << 22 };

static void find_site(struct run *r)
{
    if (!*r->o.site_name && r->o.outer_sites.count == 1)
        r->o.site_name = r->o.outer_sites.items[0];
    r->index = *r->o.site_name && r->o.outer_sites.count ? identity_site(&r->o, r->o.site_name) : 0;
    if (r->index < 0) /* an operator has added it, or the aggregator refuses it */
        r->index = (int)(ROUND_SITES_MAX +
                         digest_crc32c(0, r->o.site_name, strlen(r->o.site_name)) % NUMBERS);
}

enum err run_open(struct run *r, const struct run_source *source)
{
    TRY(read_settings(r, source));
    TRY(dial_proxy_parse(&r->proxy, r->o.site_proxy));
    r->o.site_proxy = r->proxy.shown; /* what is printed and recorded */
    TRY(check_run(r, source->role));
    r->base = (struct keys_base){&r->s, &r->o};
    if (keys_masks(&r->o).on)
        r->o.outer_full_precision = CODEC_FIXED; /* contributions in bf16 do not add */
    r->tuning = tuning_resolve(&r->o); /* before the identity: the value in use is pinned */
    find_site(r);
    TRY(table_make(&r->table, &r->s, &r->perm));
    TRY(sync_config_make(&r->sync, &r->s, &r->o, &r->table, &r->perm));
    struct digest digest = table_digest(&r->table);
    TRY(identity_text(&r->s, &r->o, &digest, &r->perm, &r->identity));
    bool starts = source->role == RUN_SITE || source->role == RUN_AGGREGATOR;
    return starts ? pin_initial(r, source->role == RUN_SITE) : ERR_OK;
}

void run_close(struct run *r)
{
    arena_free(&r->perm);
    dial_proxy_forget(&r->proxy);
    *r = (struct run){0};
}

/* ---- what follows from a run ---- */

struct settings run_site_settings(const struct run *r)
{
    struct settings s = r->s;
    s.train_batch_tokens = llround(r->o.site_batch_scale * (double)s.train_batch_tokens);
    /* Without inner checkpoints a killed site would need every outer state since the first step. */
    if (*r->o.site_aggregator && s.train_checkpoint_every == 0)
        s.train_checkpoint_every = 8 * r->o.outer_sync_every;
    return s;
}

struct dev_options run_beside(const struct run *r, const struct dev *d, const char *gpu)
{
    struct dev_options o = {.kind = "cpu", .model_type = "f32"};
    if (d->host_memory)
        o.threads = r->sync.schedule.overlap > 0 ? (d->threads + 3) / 4 : d->threads;
    else if (r->o.outer_device != OUTER_DEVICE_CPU)
        o = (struct dev_options){
            .kind = gpu, .model_type = "f32", .threads = dev_threads(), .low_priority = true};
    return o;
}

struct outer_state_options run_outer_state(const struct run *r, bool site)
{
    const struct sync_config_replica replica = {.site = site,
                                                .sites = (unsigned)r->o.outer_sites.count,
                                                .error_feedback_decay =
                                                    (float)r->o.outer_error_feedback_decay,
                                                .digest = r->sync.digest,
                                                .keep = (uint64_t)r->o.outer_history_rounds,
                                                .stages = {.settings = &r->s, .table = &r->table}};
    struct outer_state_options o =
        sync_config_state(&r->sync.fragments, &r->sync.schedule, &r->sync.outer, &replica);
    o.remake_self = r->o.outer_sites.items;
    o.amend = amend_schedule;
    o.amend_self = &r->base;
    return o;
}

struct outer_state_options run_site_state(const struct run *r, const struct shards *shards)
{
    struct outer_state_options o = run_outer_state(r, true);
    o.shards = *shards;
    return o;
}

uint64_t run_scrub_every_ms(const struct run *r)
{
    double ms = 3600e3 * r->o.scrub_every_h;
    return ms > 0 && ms < 1 ? 1 : (uint64_t)llround(ms);
}

uint64_t run_scrub_bytes_per_s(const struct run *r)
{
    return (uint64_t)llround(r->o.scrub_mib_s * (1 << 20));
}

enum err run_proxy(struct run *r)
{
    return dial_proxy_credentials(&r->proxy, r->o.site_proxy_credentials);
}

struct link_dial run_dial(const struct run *r)
{
    const struct outer_settings *o = &r->o;
    return (struct link_dial){.server_name =
                                  *o->site_aggregator_name ? o->site_aggregator_name : NULL,
                              .proxy = &r->proxy,
                              .streams = (unsigned)o->site_streams,
                              .automatic = o->site_streams == SITE_STREAMS_AUTO,
                              .bbr = o->site_congestion == SITE_CONGESTION_BBR,
                              .rate_up = (uint64_t)(1e6 / 8 * o->site_rate_up),
                              .rate_down = (uint64_t)(1e6 / 8 * o->site_rate_down)};
}

enum err run_tls(struct run *r, const char *name, struct link_tls *tls)
{
    TRY_ALLOC(tls->ca = arena_printf(&r->perm, "%s/ca.pem", r->o.tls_dir));
    TRY_ALLOC(tls->certificate = arena_printf(&r->perm, "%s/%s.pem", r->o.tls_dir, name));
    TRY_ALLOC(tls->key = arena_printf(&r->perm, "%s/%s.key", r->o.tls_dir, name));
    return ERR_OK;
}

/* All keys: of a configuration, and of a probe file. */
struct all_keys {
    struct settings s;
    struct outer_settings o;
    struct measured m;
};
enum { ALL_TABLES = 2 + MEASURED_TABLES };

static void all_tables(struct all_keys *k, struct config_table tables[ALL_TABLES])
{
    tables[0] = keys_inner(&k->s);
    tables[1] = keys_outer(&k->o);
    measured_tables(&k->m, tables + 2);
}

enum err run_tables(struct arena *a, struct config_table **tables, size_t *count)
{
    struct all_keys *k;
    TRY_ALLOC(k = arena_alloc(a, sizeof *k));
    TRY_ALLOC(*tables = arena_array(a, ALL_TABLES, sizeof **tables));
    all_tables(k, *tables);
    *count = ALL_TABLES - MEASURED_TABLES;
    return ERR_OK;
}

enum err run_reference(struct arena *a, char **text)
{
    struct all_keys k;
    struct config_table tables[ALL_TABLES];
    all_tables(&k, tables);
    return config_reference(tables, ALL_TABLES, amend_allowed, a, text);
}

enum err run_key_reference(struct arena *a, const char *key, char **text)
{
    struct all_keys k;
    struct config_table tables[ALL_TABLES];
    all_tables(&k, tables);
    return config_explain(tables, ALL_TABLES, amend_allowed, key, a, text);
}

static void nearest_of(size_t count, const char *word, char *name, size_t size, unsigned *edits)
{
    struct all_keys k;
    struct config_table tables[ALL_TABLES];
    all_tables(&k, tables);
    config_nearest(tables, count, word, name, size, edits);
}

void run_nearest_setting(const char *word, char *name, size_t size, unsigned *edits)
{
    nearest_of(ALL_TABLES - MEASURED_TABLES, word, name, size, edits);
}

void run_nearest_of_plan(const char *word, char *name, size_t size, unsigned *edits)
{
    nearest_of(ALL_TABLES, word, name, size, edits);
}
