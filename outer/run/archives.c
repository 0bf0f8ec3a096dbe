/* SPDX-License-Identifier: Apache-2.0 */
/* The archives of a run, and a replica in memory that their rounds are replayed at. */
#include "outer/run/archives.h"
#include <string.h>
#include "outer/identity/signed.h"
#include "outer/identity/tls.h"
#include "outer/site/site_identity.h"
#include "outer/store/env_files.h"

enum { SETTINGS_MAX = 1 << 20 };
struct archives_keys { /* of one aggregator: what the sites of the directories have accepted */
    struct site_seen_key *key;
    size_t count;
};

/* ---- the directories ---- */

static enum err source_add(struct archives *c, const char *path, const char *archive,
                           const char *frag)
{
    struct replay_source *s = &c->sources[c->count];
    if (c->count == ARCHIVES_MAX)
        return err_set(ERR_CONFIG, "replay: more than %d directories", ARCHIVES_MAX);
    *s = (struct replay_source){.path = path, .archive = archive, .frag = frag};
    if (archive)
        TRY(archive_head_read(&s->head, archive, &c->run.perm));
    c->count++;
    return ERR_OK;
}

static enum err path_in(struct archives *c, const char *dir, const char *file, const char **out)
{
    TRY_ALLOC(*out = arena_printf(&c->run.perm, "%s/%s", dir, file));
    return ERR_OK;
}

/* run.archive = DIRECTORY: one archive for each replica. */
static enum err several_add(struct archives *c, const char *dir)
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

static enum err directory_add(struct archives *c, const char *dir)
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

static enum err directories_open(struct archives *c, const struct args *args)
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
        if (!c->o.several && strcmp(s->head.run, first->head.run) != 0)
            return err_set(ERR_CONFIG,
                           "%s is of run %s, %s of run %s: give the archives of one run "
                           "(--bisect compares two)",
                           first->path, first->head.run, s->path, s->head.run);
    }
    return first ? ERR_OK
                 : err_set(ERR_INPUT, "%s: it has no archive: the run was without run.archive",
                           c->sources[0].path);
}

const struct replay_source *archives_first(const struct archives *c)
{
    size_t i = 0;
    while (!c->sources[i].archive)
        i++;
    return &c->sources[i];
}

/* ---- the replica ---- */

static enum err settings_open(struct archives *c, const struct args *args)
{
    struct run_source source = {.role = RUN_MODEL, .config = c->o.config, .args = args};
    const struct replay_source *from = archives_first(c);
    uint8_t *text;
    size_t n;
    if (!c->o.config) {
        TRY(path_in(c, from->archive, "config.yaml", &source.config));
        TRY(file_read(source.config, SETTINGS_MAX, &c->run.perm, &text, &n));
        source.text = (const char *)text;
        source.names = CONFIG_RECORDED;
    }
    TRY(run_open(&c->run, &source));
    struct schedule_former ends = {.count = from->head.end_count}; /* train.steps has grown */
    for (unsigned i = 0; i < ends.count; i++)
        ends.steps[i] = (int64_t)from->head.ends[i];
    schedule_ends_set(&c->run.sync.schedule, &ends);
    return ERR_OK;
}

/* Does an archive have state 0? Then the run did not start from run.seed. */
static bool start_kept(const struct archives *c)
{
    char path[ARCHIVE_PATH_MAX];
    bool kept = false;
    for (size_t i = 0; i < c->count; i++) {
        if (!c->sources[i].archive)
            continue;
        archive_path(path, c->sources[i].archive, 0, 0, "state");
        kept |= file_exists(path);
    }
    return kept || *c->run.s.run_init_from;
}

static enum err replica_open(struct archives *c)
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
static enum err keys_read(struct archives *c)
{
    static const struct env_ops reads = {.exists = env_files_exists, .read = env_files_read};
#ifdef ATOLL_NET
    TRY(tls_reader_open(&c->signer, c->o.ca));
#endif
    if (!c->signer) /* a build without TLS */
        return ERR_OK;
    c->aggregators = (unsigned)c->run.o.outer_aggregators;
    TRY_ALLOC(c->keys = arena_array(&c->run.perm, c->aggregators, sizeof *c->keys));
    for (unsigned i = 0; i < c->aggregators; i++) {
        struct archives_keys *k = &c->keys[i];
        TRY_ALLOC(k->key = arena_array(&c->run.perm, SITE_KEYS_MAX * c->count, sizeof *k->key));
        for (size_t s = 0; s < c->count; s++) {
            struct env site = {&reads, c->sources[s].path, disk_posix()};
            k->count +=
                site_seen_keys(&site, i, archives_first(c)->head.run, c->signer, &k->key[k->count]);
        }
    }
    return ERR_OK;
}

/* Is one key known that was announced in this term, and only one? Several: its files changed under
 * a process, and there may have been others. */
static bool key_known(const struct archives_keys *k, uint64_t term)
{
    const struct signer_key *one = NULL;
    for (size_t i = 0; i < k->count; i++) {
        const struct site_seen_key *x = &k->key[i];
        if (term < x->first || term > x->last)
            continue;
        if (one && memcmp(one, &x->key, sizeof *one) != 0)
            return false;
        one = &x->key;
    }
    return one;
}

/* Of every term from this one to the newest? A manifest that a site asks for after a change of
 * the key is signed again, and still names the term of its commit. */
static bool keys_known(const struct archives_keys *k, uint64_t term)
{
    uint64_t newest = 0, at = term;
    for (size_t i = 0; i < k->count; i++)
        newest = k->key[i].last > newest ? k->key[i].last : newest;
    while (at <= newest && key_known(k, at))
        at++;
    return term <= newest && at > newest;
}

enum replay_signature archives_signature(const struct archives *c, const struct manifest *m)
{
    if (!c->signer)
        return REPLAY_UNCHECKED;
    const struct archives_keys *k = &c->keys[m->fragment % c->aggregators];
    for (size_t i = 0; i < k->count; i++)
        if (signed_manifest_holds(c->signer, &k->key[i].key, m))
            return REPLAY_SIGNED;
    if (!k->count)
        return REPLAY_UNCHECKED;
    return keys_known(k, m->term) ? REPLAY_UNSIGNED : REPLAY_KEY_UNKNOWN;
}

/* ---- open, close ---- */

enum err archives_open(struct archives *c, const struct archives_options *o,
                       const struct args *args)
{
    c->o = *o;
    c->run.perm = arena_make(0);
    TRY(directories_open(c, args));
    TRY(settings_open(c, args));
    TRY(replica_open(c));
    return keys_read(c);
}

void archives_close(struct archives *c)
{
    if (c->signer)
        c->signer->ops->close(c->signer);
    outer_state_close(&c->replica);
    dev_close(c->cpu);
    run_close(&c->run);
}
