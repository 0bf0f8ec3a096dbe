/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/env_faulty.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "outer/store/env_files.h"

enum {
    START_OPERATIONS = 8, /* from a new journal to the term in it */
    BROKEN_LIVES = 3 /* then a person puts another disk in, with a copy of what is on the old */
};
static const char KEYS_PATH[] = "id/maskkeys";

static struct env_faulty *faulty(struct env *w)
{
    return (struct env_faulty *)w;
}

static const char *full_path(char out[PATH_MAX], const char *path)
{
    snprintf(out, PATH_MAX, "%s/%s", env_sim_root, path);
    return out;
}

/* ---- what differs from an environment without faults ---- */

static void faulty_sleep_ms(struct env *w, uint64_t ms)
{
    if (!faulty(w)->disk.dead)
        env_sim_ops.sleep_ms(w, ms);
}

static enum err faulty_write(struct env *w, const char *path, const struct file_part *parts,
                             size_t n)
{
    struct env_faulty *s = faulty(w);
    char full[PATH_MAX];
    size_t size;
    full_path(full, path);
    if (s->disk.faults && s->disk.faults->keys_full > 0 && !strcmp(path, KEYS_PATH) &&
        !s->disk.dead &&
        sim_strikes(s->sim.clock, s->disk.faults->keys_full, "no space for the keys", s->name))
        return err_set(ERR_FULL, "%s: no space", full);
    uint64_t before = disk_sim_inode(&s->disk, full);
    enum err e = env_files_write(w, path, parts, n);
    bool begins = s->disk.faults && s->disk.faults->power > 0 && !strncmp(path, "eager/", 6);
    if (begins && sim_strikes(s->sim.clock, 0.4, "it will end after an eager start", s->name))
        s->disk.ends_at = s->disk.operations + 1 + sim_below(s->sim.clock, START_OPERATIONS);
    if (s->ends_in_start && !strcmp(path, "journal")) {
        s->ends_in_start = false;
        s->disk.ends_at = s->disk.operations + 1 + sim_below(s->sim.clock, START_OPERATIONS);
    }
    uint64_t after = disk_sim_inode(&s->disk, full);
    if (s->wrote && after && after != before) {
        const uint8_t *data = disk_sim_look(&s->disk, full, &size);
        unsigned process = s->sim.clock->process;
        s->sim.clock->process = 0;
        s->wrote(s->watch_self, s, path, data, size);
        s->sim.clock->process = process;
    }
    return e;
}

static enum err faulty_map(struct env *w, const char *path, struct file_map *m)
{
    struct env_faulty *s = faulty(w);
    if (s->mapping)
        s->mapping(s->watch_self, path);
    return env_sim_ops.map(w, path, m);
}

/* Each directory of the simulation has one process at a time. */
static enum err faulty_owned(struct env *w)
{
    return faulty(w)->disk.dead ? err_set(ERR_IO, "%s: dead", faulty(w)->name) : ERR_OK;
}

static void died(void *self)
{
    struct env_faulty *s = self;
    s->sim.stop = 1;
}

void env_faulty_open(struct env_faulty *w, struct clock_sim *c, const char *name, uint64_t seed)
{
    static struct env_ops ops;
    *w = (struct env_faulty){.name = name};
    ops = env_sim_ops;
    ops.sleep_ms = faulty_sleep_ms;
    ops.write = faulty_write;
    ops.map = faulty_map;
    ops.owned = faulty_owned;
    env_sim_open(&w->sim, c, &w->disk.disk, seed);
    w->sim.env.ops = &ops;
    disk_sim_open(&w->disk, c, name, env_sim_root);
    w->disk.died = died;
    w->disk.died_self = w;
}

void env_faulty_close(struct env_faulty *w)
{
    disk_sim_close(&w->disk);
    env_sim_close(&w->sim);
}

/* ---- processes end and begin ---- */

void env_faulty_crash(struct env_faulty *s)
{
    s->disk.dead = true;
    died(s);
}

enum err env_faulty_begin(struct env_faulty *w)
{
    return env_files_found(&w->sim.env);
}

/* ---- rot ---- */

enum { VICTIM_MAX = 300 };
static const double SEAL_ROTS = 0.5;
struct victim { /* found on the disk */
    char path[VICTIM_MAX];
    uint64_t round;
    bool seal; /* wanted: the seal of a round, or a contribution */
};

static bool in_spool(const char *path)
{
    return !strncmp(path, "sim/spool/", 10);
}

static bool is_seal(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && strcmp(name, "/seal") == 0;
}

static void see_spool(void *self, const char *path)
{
    struct victim *v = self;
    if (in_spool(path) && is_seal(path) == v->seal && strcmp(path, v->path) > 0)
        snprintf(v->path, sizeof v->path, "%s", path);
}

/* The newest state of fragment 0, but for the first one. */
static void see_state(void *self, const char *path)
{
    struct victim *v = self;
    uint64_t round;
    int end = 0;
    if (sscanf(path, "sim/frag/0/%20" SCNu64 "/state%n", &round, &end) != 1 || !end || path[end] ||
        round <= v->round)
        return;
    v->round = round;
    snprintf(v->path, sizeof v->path, "%s", path);
}

/* Only what the protocol can have again: a contribution in the spool, the newest state of a
 * fragment, and what a directory that has begun finds again; or can do without: the seal of a
 * round, which is aborted then. The state that a site has gone back to is not damaged before it has
 * caught up: each state that rots is of a later round than the last. CURRENT and the newest state
 * are not both damaged: a later round may have been begun, and then nothing tells which of the
 * states that are left was committed.
 */
static void rot(struct env_faulty *w)
{
    struct env_rot *r = &w->rot;
    static const char *const found_again[] = {"sim/frag/0/CURRENT", "sim/journal"};
    struct victim v = {.round = 0}, newest = {.round = 0};
    uint64_t what = sim_below(w->sim.clock, 4), how = sim_below(w->sim.clock, 3);
    size_t size;
    disk_sim_each(&w->disk, see_state, &newest);
    bool mended = newest.round > r->rotten; /* there is a newer one than the last that has rotted */
    if (what == 0) {
        if (!mended || !disk_sim_inode(&w->disk, "sim/frag/0/CURRENT"))
            return;
        v = newest;
        r->rotten = v.round;
    }
    v.seal = what > 1 && r->seals && sim_chance(w->sim.clock, SEAL_ROTS);
    if (what > 1) {
        disk_sim_each(&w->disk, see_spool, &v);
    } else if (what == 1 && disk_sim_inode(&w->disk, "sim/begun")) {
        bool journal = !r->seals && sim_below(w->sim.clock, 2);
        if (journal || mended || !r->rotten)
            snprintf(v.path, sizeof v.path, "%s", found_again[journal]);
    }
    if (!*v.path || !disk_sim_look(&w->disk, v.path, &size) || !size)
        return;
    r->seals_rotten += v.seal;
    r->rots++;
    bool whole = what == 1; /* a damaged journal is for a person, a missing one is not */
    if (whole || what == 3)
        disk_sim_lose(&w->disk, v.path);
    else if (how == 0)
        disk_sim_spoil(&w->disk, v.path);
    else
        disk_sim_flip(&w->disk, v.path, sim_below(w->sim.clock, 8 * size));
}

static void journal_lose(struct env_faulty *w)
{
    struct env_rot *r = &w->rot;
    if (r->seals || !disk_sim_inode(&w->disk, "sim/begun") ||
        !disk_sim_inode(&w->disk, "sim/journal") ||
        !sim_strikes(w->sim.clock, r->loses_journal, "the journal is lost", w->name))
        return;
    disk_sim_lose(&w->disk, "sim/journal");
    r->rots++;
    w->ends_in_start = sim_strikes(w->sim.clock, 0.5, "it will end in its start", w->name);
}

void env_faulty_restart(struct env_faulty *w)
{
    struct env_rot *r = &w->rot;
    bool power = w->disk.power ||
                 (w->disk.faults && sim_strikes(w->sim.clock, 0.5, "power is lost", w->name));
    if (w->disk.broken && ++r->broken_lives >= BROKEN_LIVES) {
        w->disk.broken = false;
        power = true;
    }
    disk_sim_restart(&w->disk, power);
    if (w->disk.faults &&
        sim_strikes(w->sim.clock, w->disk.faults->rot, "a file rots, if there is one", w->name))
        rot(w);
    if (w->disk.faults && r->loses_journal > 0)
        journal_lose(w);
    w->sim.stop = 0;
}

const uint8_t *env_faulty_look(const struct env_faulty *w, const char *path, size_t *size_bytes)
{
    char full[PATH_MAX];
    return disk_sim_look(&w->disk, full_path(full, path), size_bytes);
}

const uint8_t *env_faulty_medium(const struct env_faulty *w, const char *path, size_t *size_bytes)
{
    char full[PATH_MAX];
    return disk_sim_medium(&w->disk, full_path(full, path), size_bytes);
}
