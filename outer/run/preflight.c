/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/preflight.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "inner/data/loader.h"
#include "inner/data/objective.h"
#include "inner/train/memory_left.h"
#include "inner/train/train.h"
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "outer/organ/archive/archive_parts.h"
#include "outer/view/secure.h"

enum { INODES_LOW = 1000, INODES_FEW = 10000, PASSES_MAX = 4 };
/* Of records and logs, measured at runs of 2 sites: bytes of a step, of a round of a fragment. */
enum { STEP_BYTES = 400, ROUND_BYTES = 2500, LOG_FILES = 4 };
static const double LOG_BYTES = 64 << 20; /* of one file of the log, then it is rotated */

/* ---- lines ---- */

static void size_text(char text[32], double bytes)
{
    progress_bytes(text, 32, bytes);
}

static const char *directory_of(const struct preflight *p)
{
    return p->o.serve ? p->j.run->o.serve_dir : p->j.s->run_dir;
}

/* ---- the directory ---- */

/* The directory, or the nearest one above it that is there: it will be made in it. */
static const char *standing(struct preflight *p, const char *path)
{
    char *at = arena_printf(&p->j.run->perm, "%s", path);
    struct stat st;
    while (at && stat(at, &st) != 0) {
        char *slash = strrchr(at, '/');
        if (!slash)
            return ".";
        slash[slash == at] = 0;
    }
    return at ? at : ".";
}

static void check_file_system(struct preflight *p, const char *at)
{
    static const struct {
        long magic;
        const char *name, *why;
    } odd[] = {
        {NFS_SUPER_MAGIC, "NFS",
         "locks and stored files depend on its server; a local disk is safer"},
        {SMB_SUPER_MAGIC, "SMB", "locks and stored files depend on its server; use a local disk"},
        {(long)0xFF534D42, "CIFS", "locks and stored files depend on its server; use a local disk"},
        {0x65735546, "FUSE",
         "whether stored files survive a crash depends on it; use a local disk"},
        {TMPFS_MAGIC, "tmpfs", "it is memory: a restart of the machine loses the run; use a disk"},
    };
    struct statfs s;
    if (statfs(at, &s) != 0) {
        preflight_say(p, PREFLIGHT_WARN, "file system", "cannot check: %s: %s", at,
                      strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        if ((long)s.f_type == odd[i].magic) {
            preflight_say(p, PREFLIGHT_WARN, "file system", "%s is on %s: %s", at, odd[i].name,
                          odd[i].why);
            return;
        }
    preflight_say(p, PREFLIGHT_OK, "file system", "%s is on a local or parallel file system", at);
}

/* Writes, makes durable and removes a small file. */
static void check_writable(struct preflight *p, const char *at)
{
    static const double SLOW_S = 0.2;
    char *path = arena_printf(&p->j.run->perm, "%s/.doctor-XXXXXX", at);
    char block[4096] = {0};
    double begin = clock_mono_s();
    int fd = path ? mkstemp(path) : -1;
    bool stored =
        fd >= 0 && write(fd, block, sizeof block) == (ssize_t)sizeof block && fsync(fd) == 0;
    int why = errno;
    double took = clock_mono_s() - begin;
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    if (!stored)
        preflight_say(p, PREFLIGHT_FAIL, "writable", "%s: %s: %s", at, strerror(why),
                      why == EROFS    ? "mount it for writing, or give another directory"
                      : why == ENOSPC ? "make room"
                                      : "give this user the right to write, or another directory");
    else
        preflight_say(p, took > SLOW_S ? PREFLIGHT_WARN : PREFLIGHT_OK, "writable",
                      "%s: a file is durable after %.0f ms%s", at, 1e3 * took,
                      took > SLOW_S ? ": each round waits for several; use a faster disk" : "");
}

/* Who holds a lock on this inode, by /proc/locks; 0: unknown. */
static long lock_holder(const char *path)
{
    char line[256];
    struct stat st;
    long found = 0;
    FILE *f = stat(path, &st) == 0 ? fopen("/proc/locks", "r") : NULL;
    while (f && !found && fgets(line, sizeof line, f)) {
        long pid;
        unsigned major, minor;
        unsigned long long inode;
        if (sscanf(line, "%*d: %*s %*s %*s %ld %x:%x:%llu", &pid, &major, &minor, &inode) == 4 &&
            inode == st.st_ino && pid > 0)
            found = pid;
    }
    if (f)
        fclose(f);
    return found;
}

static void check_lock(struct preflight *p, const char *directory)
{
    struct file_lock lock = {-1, -1, false};
    char who[64] = "another process", *file = arena_printf(&p->j.run->perm, "%s/LOCK", directory);
    char *begun = arena_printf(&p->j.run->perm, "%s/begun", directory);
    if (!file || !begun || !file_exists(file)) {
        bool used = begun && file_exists(begun);
        preflight_say(p, used ? PREFLIGHT_WARN : PREFLIGHT_OK, "lock",
                      used
                          ? "cannot check: %s has begun, and its file LOCK is missing: see that no "
                            "process uses it; the next start makes the file again"
                          : "%s: no run has used it yet",
                      directory);
        return;
    }
    enum err e = file_lock(&lock, directory);
    file_unlock(&lock);
    long pid = e == ERR_BUSY ? lock_holder(directory) : 0;
    if (pid)
        snprintf(who, sizeof who, "process %ld", pid);
    if (e == ERR_OK)
        preflight_say(p, PREFLIGHT_OK, "lock",
                      "%s: no process uses it; the file LOCK of an ended one is no lock",
                      directory);
    else if (e == ERR_BUSY)
        preflight_say(p, PREFLIGHT_FAIL, "lock",
                      "%s is in use by %s: end it, or give another directory; it cannot be a stale "
                      "lock, since the system releases the lock when a process ends",
                      directory, who);
    else
        preflight_failed(p, "lock", "");
}

/* ---- disk ---- */

static uint64_t used_bytes;

static int used_add(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)path, (void)kind, (void)at;
    used_bytes += (uint64_t)st->st_blocks * 512;
    return 0;
}

static uint64_t used_by(const char *directory)
{
    used_bytes = 0;
    return nftw(directory, used_add, 16, FTW_PHYS) == 0 ? used_bytes : 0;
}

/* Slabs of state that the optimizer keeps, in values for each parameter. */
static double moments_of(const struct preflight *p)
{
    struct train_memory m = train_plan(p->j.s, &p->j.run->table, DTYPE_F32, 1);
    return (double)m.moments / (double)(p->j.run->table.elements * sizeof(float));
}

struct disk_need {
    double checkpoints, states, rounds, outbox, logs;
};

/* What the aggregates, and at the aggregator the contributions, of the kept rounds take, and what
 * the largest contribution has. */
static void rounds_need(struct preflight *p, struct disk_need *n)
{
    const struct schedule *s = &p->j.run->sync.schedule;
    size_t elements[ROUND_FRAGMENTS_MAX];
    unsigned sites = (unsigned)p->j.run->o.outer_sites.count;
    fragment_sizes(elements, &p->j.run->sync.fragments);
    for (unsigned f = 0; f < p->j.run->sync.fragments.count; f++) {
        struct schedule_bytes b = schedule_round_bytes(s, f, 0, elements[f], sites);
        n->rounds += (double)p->j.run->o.outer_history_rounds * (double)b.down;
        n->outbox +=
            p->o.serve ? 2.0 * sites * (double)b.up : 2 * ((double)b.up + 4 * (double)elements[f]);
        p->round_up = b.up > p->round_up ? b.up : p->round_up;
    }
}

/* At most: states that a restart from the oldest kept checkpoint repeats. */
static double states_kept(const struct preflight *p)
{
    const struct settings *s = p->j.s;
    int64_t span = s->train_checkpoint_every * (s->train_checkpoint_keep + 1);
    return p->o.serve ? (double)p->j.run->o.serve_keep_states
                      : (double)(span / p->j.run->o.outer_sync_every + 2);
}

static void need_of(struct preflight *p, struct disk_need *n)
{
    const struct settings *s = p->j.s;
    double elements = (double)p->j.run->table.elements, steps = (double)s->train_steps, rounds = 0;
    if (p->o.serve || p->j.outer) {
        rounds = (double)exchange_rounds(&p->j.run->sync.schedule, s->train_steps);
        n->states = states_kept(p) * 12 * elements;
        rounds_need(p, n);
    }
    if (!p->o.serve)
        n->checkpoints =
            4 * elements * (1 + moments_of(p)) * (double)(s->train_checkpoint_keep + 1);
    n->logs = (p->o.serve ? 0 : STEP_BYTES * steps) + ROUND_BYTES * rounds +
              fmin(LOG_FILES * LOG_BYTES, STEP_BYTES * (rounds + 1000));
}

/* Where run.archive puts this replica's rounds; NULL: it is off, or no memory. */
static const char *archive_of(struct preflight *p)
{
    const struct outer_settings *o = &p->j.run->o;
    if (!archive_parts_on(o) || !(p->o.serve || p->j.outer))
        return NULL;
    if (strcmp(o->run_archive, ARCHIVE_ON) == 0)
        return arena_printf(&p->j.run->perm, "%s/archive", directory_of(p));
    return arena_printf(&p->j.run->perm, "%s/%s", o->run_archive,
                        p->o.serve ? "aggregator" : o->site_name);
}

/* Too little room is a warning: the archive gets a gap, and the run continues. */
static void check_archive(struct preflight *p)
{
    const char *dir = archive_of(p);
    struct archive_size size = archive_parts_size(p->j.run, p->o.serve);
    char round[32], whole[32], room[32];
    uint64_t free_bytes;
    if (!dir)
        return;
    double left = fmax((double)size.run_bytes - (double)used_by(dir), 0);
    const char *at = standing(p, dir);
    bool told = file_free_bytes(at, &free_bytes) == ERR_OK;
    bool small = told && left > (double)free_bytes;
    size_text(round, (double)size.round_bytes);
    size_text(whole, (double)size.run_bytes);
    size_text(room, told ? (double)free_bytes : 0);
    if (!told) {
        preflight_say(p, PREFLIGHT_WARN, "archive",
                      "cannot check: %s takes %s a round and %s in the run, and how much is free "
                      "there is not known: %s",
                      dir, round, whole, err_message());
        err_clear();
        return;
    }
    preflight_say(
        p, small ? PREFLIGHT_WARN : PREFLIGHT_OK, "archive",
        "%s takes %s a round and %s in the run, of %s that are free%s", dir, round, whole, room,
        small ? ": it will have a gap, and the run continues; give run.archive another disk" : "");
}

static void check_disk(struct preflight *p, const char *at)
{
    struct disk_need n = {0};
    struct statvfs v;
    char need[32], room[32], part[5][32];
    need_of(p, &n);
    double all = n.checkpoints + n.states + n.rounds + n.outbox + n.logs;
    const char *archive = archive_of(p);
    double left = all - (double)used_by(directory_of(p)) + (archive ? (double)used_by(archive) : 0);
    if (statvfs(at, &v) != 0) {
        preflight_say(p, PREFLIGHT_FAIL, "disk", "%s: %s", at, strerror(errno));
        return;
    }
    double free_bytes = (double)v.f_bavail * (double)v.f_frsize;
    bool full = left > free_bytes, close_by = left > 0.8 * free_bytes;
    size_text(need, fmax(left, 0));
    size_text(room, free_bytes);
    size_text(part[0], n.checkpoints);
    size_text(part[1], n.states);
    size_text(part[2], n.rounds);
    size_text(part[3], n.outbox);
    size_text(part[4], n.logs);
    preflight_say(
        p,
        full       ? PREFLIGHT_FAIL
        : close_by ? PREFLIGHT_WARN
                   : PREFLIGHT_OK,
        "disk",
        "the run takes %s more of %s that are free in %s (checkpoints %s, outer states %s, "
        "kept rounds %s, %s %s, logs %s)%s",
        need, room, at, part[0], part[1], part[2], p->o.serve ? "contributions" : "outbox", part[3],
        part[4], full || close_by ? ": make room, or give another directory" : "");
    if (v.f_files == 0)
        return; /* a file system that makes inodes as it needs them */
    preflight_say(p,
                  v.f_favail < INODES_LOW   ? PREFLIGHT_FAIL
                  : v.f_favail < INODES_FEW ? PREFLIGHT_WARN
                                            : PREFLIGHT_OK,
                  "inodes", "%llu are free in %s%s", (unsigned long long)v.f_favail, at,
                  v.f_favail < INODES_FEW ? ": a run has a few hundred files; remove small files"
                                          : "");
}

static void check_directory(struct preflight *p)
{
    const char *directory = directory_of(p), *at = standing(p, directory);
    check_file_system(p, at);
    check_writable(p, at);
    check_lock(p, directory);
    check_disk(p, at);
    check_archive(p);
}

/* ---- this machine ---- */

static void check_shared_memory(struct preflight *p)
{
    struct statvfs v;
    double mib =
        statvfs("/dev/shm", &v) == 0 ? (double)v.f_bavail * (double)v.f_frsize / (1 << 20) : 0;
    if (p->o.ranks < 2)
        return;
    preflight_say(p, mib < 1024 ? PREFLIGHT_FAIL : PREFLIGHT_OK, "/dev/shm",
                  "%.0f MiB are free for %" PRId64 " ranks%s", mib, p->o.ranks,
                  mib < 1024 ? ": give a container --shm-size=1g, or mount it larger" : "");
}

static void check_memory(struct preflight *p)
{
    struct job *j = &p->j;
    char need[32], left[32];
    struct memory_left here;
    memory_left(&here, NULL);
    double ranks = (double)p->o.ranks, all = 0, have = (double)here.bytes;
    if (p->o.serve) {
        struct outer_state_options o = run_outer_state(j->run, false);
        all = (double)outer_state_memory(&o, true).host +
              (double)(j->run->o.serve_receive_mib ? (uint64_t)j->run->o.serve_receive_mib << 20
                                                   : 160u << 20);
    } else {
        if (j->s->device_kind == DEVICE_CPU)
            all = ranks *
                  (double)train_plan(j->s, &j->run->table, j->dev->model_type, (int)ranks).total;
        if (j->outer)
            all += (double)job_outer_memory(j, &j->run->table).host;
    }
    size_text(need, all);
    size_text(left, have);
    if (here.bytes == SIZE_MAX) {
        preflight_say(p, PREFLIGHT_WARN, "memory",
                      "cannot check: %s, and neither /proc/meminfo nor a limit says what is left",
                      need);
        return;
    }
    preflight_say(
        p,
        all > have         ? PREFLIGHT_FAIL
        : all > 0.9 * have ? PREFLIGHT_WARN
                           : PREFLIGHT_OK,
        "memory", "%s of the host's %s that are left%s%s%s", need, left,
        here.limit ? " under the limit in " : "", here.limit ? here.path : "",
        all > 0.9 * have ? ": end other programs, or see the table of atoll train --dry-run" : "");
}

static void check_device(struct preflight *p)
{
    struct job *j = &p->j;
    bool cpu = j->s->device_kind == DEVICE_CPU;
    char kind[32];
    const struct dev_options plain = {.kind = "cpu", .model_type = "f32", .threads = 1};
    for (int64_t i = 0; i < (cpu ? 1 : p->o.ranks); i++) {
        snprintf(kind, sizeof kind, cpu ? "cpu" : "cuda:%d", (int)i);
        struct dev *d = NULL;
        const struct dev_options o = {
            .kind = kind,
            .model_type = config_choice_name(device_dtype_choices, j->s->device_dtype),
            .threads = (int)j->s->device_threads,
            .emulation = model_emulation(j->s)};
        if (dev_open(&d, &o) == ERR_OK)
            preflight_say(p, PREFLIGHT_OK, "device", "%s", d->note);
        else
            preflight_failed(p, "device",
                             cpu ? "correct device.*"
                                 : "look at nvidia-smi and `atoll doctor`; a GPU that was there "
                                   "before needs its driver or a restart of the machine");
        if (i == 0 && d)
            j->dev = d;
        else
            dev_close(d);
    }
    if (!j->dev && dev_open(&j->dev, &plain) != ERR_OK) /* for the tables */
        preflight_failed(p, "device", "");
}

/* ---- data ---- */

static void check_text(struct preflight *p)
{
    struct job *j = &p->j;
    struct loader_options o = train_loader_options(j->s, (uint32_t)j->run->index, 0, 1);
    struct loader l = {.windows = 0};
    char tokens[32];
    o.mixed = j->s->data_weights.count > 0;
    for (size_t i = 0; i < j->s->data_train.count && *j->s->data_fetch; i++)
        if (hooks_absent(j->s->data_train.items[i])) {
            preflight_say(p, PREFLIGHT_WARN, "data",
                          "%.200s is not there yet: data.fetch brings it at the start, and nothing "
                          "of the text is checked before that",
                          j->s->data_train.items[i]);
            return;
        }
    if (loader_open(&l, &j->run->perm, &j->s->data_train, &o) != ERR_OK) {
        preflight_failed(p, "data", "");
        loader_close(&l);
        return;
    }
    double all = (double)l.set.tokens;
    double passes = (double)j->s->train_steps * (double)j->s->train_batch_tokens / all;
    /* Muennighoff et al. measured language models; labels are learned in many passes. */
    bool many = passes > PASSES_MAX && j->s->data_objective != DATA_OBJECTIVE_LABELS;
    snprintf(tokens, sizeof tokens, "%.4g", all);
    preflight_say(p, many ? PREFLIGHT_WARN : PREFLIGHT_OK, "data",
                  "%zu shards, %s tokens, read %.3g times in the run%s", l.set.count, tokens,
                  passes,
                  many ? ": more than 4 passes add little (Muennighoff et al. 2023); "
                         "is a part of the text missing?"
                       : "");
    loader_close(&l);
}

static void check_held_out(struct preflight *p)
{
    struct job *j = &p->j;
    struct loader_options o = train_loader_options(j->s, 0, 0, 1);
    struct loader l = {.windows = 0};
    if (!j->s->data_eval.count || !j->s->train_eval_every) {
        preflight_say(
            p, PREFLIGHT_WARN, "held-out",
            "%s: this site's records will have no eval loss, and it is not known whether it "
            "learns; give both",
            j->s->data_eval.count ? "train.eval_every is 0" : "data.eval is empty");
        return;
    }
    o.objective = objective_of(j->s);
    o.batch_tokens = o.sequence;
    if (loader_open(&l, &j->run->perm, &j->s->data_eval, &o) == ERR_OK)
        preflight_say(p, PREFLIGHT_OK, "held-out",
                      "%zu shards, %.4g tokens, every %" PRId64 " steps", l.set.count,
                      (double)l.set.tokens, j->s->train_eval_every);
    else
        preflight_failed(p, "held-out", "");
    loader_close(&l);
}

static void check_sites(struct preflight *p)
{
    const struct outer_settings *o = &p->j.run->o;
    unsigned n = (unsigned)o->outer_sites.count;
    bool strict = o->outer_mode == OUTER_MODE_STRICT;
    const struct round_masks masks = keys_masks(o);
    const struct round_leave leave = round_leave(&masks, n, strict);
    char text[SECURE_LEAVE_MAX];
    secure_leave(text, &masks, n, strict);
    preflight_say(p, !strict && !leave.away && n > 2 ? PREFLIGHT_WARN : PREFLIGHT_OK, "sites",
                  "mode %s: %s%s", strict ? "strict" : "quorum", text,
                  leave.away ? "; a run whose last round misses a site ends with exit code 6 and "
                               "names it"
                             : "");
}

/* ---- all ---- */

static enum err preflight_open(struct preflight *p, const struct args *args)
{
    struct job *j = &p->j;
    enum run_role role = p->o.serve ? RUN_AGGREGATOR : RUN_SITE;
    TRY(run_open(j->run, &(struct run_source){role, .config = p->o.config, .args = args}));
    if (p->o.site) /* checked like site.name of the file */
        ASSERT(strcmp(j->run->o.site_name, p->o.site) == 0);
    *j->s = p->o.serve ? j->run->s : run_site_settings(j->run);
    j->outer = !p->o.serve && *j->run->o.site_aggregator;
    p->run_s = j->run->measured.times.plan_step_s * (double)j->s->train_steps;
    return coll_open(&j->coll, "cpu");
}

static void preflight_all(struct preflight *p)
{
    bool remote = p->o.serve || (p->j.outer && !keys_self(&p->j.run->o));
    preflight_say(p, PREFLIGHT_OK, "configuration", "%s: run %s, %s%s", p->o.config,
                  p->j.s->run_name, p->o.serve ? "the aggregator" : "site ",
                  p->o.serve ? "" : p->j.run->o.site_name);
    if (p->o.serve || p->j.outer)
        check_sites(p);
    if (remote)
        preflight_certificates(p);
    check_directory(p);
    if (!p->o.serve) {
        check_device(p);
        check_text(p);
        check_held_out(p);
        check_shared_memory(p);
    }
    if (p->o.serve || p->j.dev)
        check_memory(p);
    if (p->o.serve)
        preflight_listen(p);
    else if (remote)
        preflight_link(p);
}

enum err preflight_run(const struct preflight_options *o, const struct args *args)
{
    struct run run = {.imported = false};
    struct settings s;
    static struct job_outer outer;
    static struct job_out out = {.lock = {-1, -1, false}};
    static struct preflight p = {.j = {.o = &outer, .out = &out}};
    p.j.run = &run;
    p.j.s = &s;
    p.o = *o;
    log_min(LOG_ERROR); /* the lines say it */
    enum err e = preflight_open(&p, args);
    if (e == ERR_OK) {
        preflight_begin(&p);
        preflight_all(&p);
        preflight_end(&p);
    }
    dev_close(p.j.dev);
    coll_close(p.j.coll);
    run_close(&run);
    TRY(e);
    unsigned bad = p.count[PREFLIGHT_FAIL], odd = p.count[PREFLIGHT_WARN];
    if (bad)
        return err_set(ERR_UNREADY, "%u checks failed, %u gave a warning", bad, odd);
    return odd ? err_set(ERR_WARNED, "%u checks gave a warning, none failed", odd) : ERR_OK;
}

#ifndef ATOLL_NET
void preflight_certificates(struct preflight *p)
{
    preflight_say(p, PREFLIGHT_FAIL, "network", "this build has none (-DNET=OFF): build with it");
}

void preflight_link(struct preflight *p)
{
    (void)p;
}

void preflight_listen(struct preflight *p)
{
    (void)p;
}
#endif
