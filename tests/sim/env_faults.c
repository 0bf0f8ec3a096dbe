#include "tests/sim/env_faults.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "outer/store/env_files.h"

enum {
    BROKEN_LIVES = 3
}; /* then a person puts another disk in, with a copy of what is on the old */

static const char *full_path(const struct env_sim *w, char out[PATH_MAX], const char *path)
{
    snprintf(out, PATH_MAX, "%s/%s", w->env.root, path);
    return out;
}

void env_sim_crash(struct env_sim *s)
{
    s->disk.dead = true;
    s->stop = 1;
}

enum err env_sim_begin(struct env_sim *w)
{
    return env_files_found(&w->env);
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
static void rot(struct env_sim *w, struct env_rot *r)
{
    static const char *const found_again[] = {"sim/frag/0/CURRENT", "sim/journal"};
    struct victim v = {.round = 0}, newest = {.round = 0};
    uint64_t what = sim_below(w->clock, 4), how = sim_below(w->clock, 3);
    size_t size;
    disk_sim_each(&w->disk, see_state, &newest);
    bool mended = newest.round > r->rotten; /* there is a newer one than the last that has rotted */
    if (what == 0) {
        if (!mended || !disk_sim_inode(&w->disk, "sim/frag/0/CURRENT"))
            return;
        v = newest;
        r->rotten = v.round;
    }
    v.seal = what > 1 && r->seals && sim_chance(w->clock, SEAL_ROTS);
    if (what > 1) {
        disk_sim_each(&w->disk, see_spool, &v);
    } else if (what == 1 && disk_sim_inode(&w->disk, "sim/begun")) {
        bool journal = !r->seals && sim_below(w->clock, 2);
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
        disk_sim_flip(&w->disk, v.path, sim_below(w->clock, 8 * size));
}

static void journal_lose(struct env_sim *w, struct env_rot *r)
{
    if (r->seals || !disk_sim_inode(&w->disk, "sim/begun") ||
        !disk_sim_inode(&w->disk, "sim/journal") ||
        !sim_strikes(w->clock, r->loses_journal, "the journal is lost", w->name))
        return;
    disk_sim_lose(&w->disk, "sim/journal");
    r->rots++;
    w->ends_in_start = sim_strikes(w->clock, 0.5, "it will end in its start", w->name);
}

void env_sim_restart(struct env_sim *w, struct env_rot *r)
{
    bool power =
        w->disk.power || (w->disk.faults && sim_strikes(w->clock, 0.5, "power is lost", w->name));
    if (w->disk.broken && ++r->broken_lives >= BROKEN_LIVES) {
        w->disk.broken = false;
        power = true;
    }
    disk_sim_restart(&w->disk, power);
    if (w->disk.faults &&
        sim_strikes(w->clock, w->disk.faults->rot, "a file rots, if there is one", w->name))
        rot(w, r);
    if (w->disk.faults && r->loses_journal > 0)
        journal_lose(w, r);
    w->stop = 0;
}

const uint8_t *env_sim_look(const struct env_sim *w, const char *path, size_t *size_bytes)
{
    char full[PATH_MAX];
    return disk_sim_look(&w->disk, full_path(w, full, path), size_bytes);
}

const uint8_t *env_sim_medium(const struct env_sim *w, const char *path, size_t *size_bytes)
{
    char full[PATH_MAX];
    return disk_sim_medium(&w->disk, full_path(w, full, path), size_bytes);
}
