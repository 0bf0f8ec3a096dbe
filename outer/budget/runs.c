/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/runs.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char FORMAT[] = "atoll-privacy-ledger format=1";
enum { SET_BYTES_MAX = 1 << 30, TRIES = 50 };

/* One start of a run, or what it has of one setting. */
struct runs_entry {
    struct digest id, set;
    bool begins;
    char run[RUNS_NAME_MAX], site[RUNS_NAME_MAX];
    int64_t charged; /* of the setting; charge.counted: with those that were ahead */
    struct private_charge charge;
};

/* ---- the list ---- */
static bool start_read(struct runs_entry *e, const char *text)
{
    char id[65], set[65];
    return sscanf(text, "run id=%64s set=%64s name=%63s site=%63s", id, set, e->run, e->site) ==
               4 &&
           strlen(id) == 64 && strlen(set) == 64 && digest_hex_read(&e->id, id) &&
           digest_hex_read(&e->set, set);
}

static bool setting_read(struct runs_entry *e, const char *text)
{
    int used = 0;
    if (sscanf(text, "charged=%" SCNd64 " %n", &e->charged, &used) != 1 || !used)
        return false;
    bool good = private_parse(text + used, strlen(text + used), &e->charge);
    e->id = e->charge.tag;
    return good && e->charged >= 0 && e->charge.counted > 0;
}

static enum err entry_visit(void *self, const char *text, size_t n, bool *good)
{
    struct runs *r = self;
    struct runs_entry e = {.begins = strncmp(text, "run ", 4) == 0};
    (void)n;
    *good = true;
    if (strcmp(text, FORMAT) == 0)
        return ERR_OK;
    if (strncmp(text, FORMAT, strlen(FORMAT) - 1) == 0)
        return err_set(ERR_MISMATCH, "%s/list is of another format (%s); this program reads 1",
                       r->dir, text);
    *good = e.begins ? start_read(&e, text) : setting_read(&e, text);
    if (!*good)
        return ERR_OK;
    struct runs_entry *entries =
        arena_grow(r->perm, r->entries, r->count, &r->room, sizeof *entries);
    TRY_ALLOC(entries);
    r->entries = entries;
    r->entries[r->count++] = e;
    return ERR_OK;
}

static enum err key_open(struct runs *r, const char *path, bool begun)
{
    struct stat st;
    uint8_t *data;
    size_t size;
    if (!begun && !file_exists(path)) {
        const struct file_part part = {r->key, sizeof r->key};
        digest_random(r->key, sizeof r->key);
        return file_write(path, &part, 1, 0600);
    }
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return err_set(ERR_INPUT,
                       "%s is missing: the owners of earlier runs are not known; restore the whole "
                       "directory of the ledger",
                       path);
    TRY(file_secret(path, &st, "the key of the owners"));
    TRY(file_read(path, sizeof r->key, r->perm, &data, &size));
    if (size != sizeof r->key)
        return err_set(ERR_CORRUPT, "%s is damaged; restore it", path);
    memcpy(r->key, data, size);
    return ERR_OK;
}

/* Another start holds the lock for some milliseconds. */
static enum err lock_take(struct runs *r)
{
    const struct timespec pause = {0, 100000000};
    enum err e = file_lock(&r->lock, r->dir);
    for (int i = 0; e == ERR_BUSY && i < TRIES; i++) {
        nanosleep(&pause, NULL);
        e = file_lock(&r->lock, r->dir);
    }
    return e;
}

enum err runs_open(struct runs *r, const char *dir, const struct chained_at *known,
                   struct arena *perm)
{
    const struct chained_options o = {
        .what = "entry of a privacy ledger",
        .lost = "what earlier runs have charged to the same people is not known",
        .visit = entry_visit,
        .self = r,
        .known = *known,
        .known_by = "this run directory"};
    *r = (struct runs){.dir = dir, .perm = perm, .lock = {-1, -1, false}};
    const char *path = arena_printf(perm, "%s/list", dir),
               *sets = arena_printf(perm, "%s/sets", dir), *key = arena_printf(perm, "%s/key", dir);
    TRY_ALLOC(path);
    TRY_ALLOC(sets);
    TRY_ALLOC(key);
    TRY(file_mkdirs(sets));
    TRY(lock_take(r));
    /* The key is made after the first line: where it is, there has been a list. */
    enum err e = chained_open(&r->list, disk_posix(), path, file_exists(key), &o, perm);
    if (e == ERR_OK && !r->list.last.number)
        e = chained_append(&r->list, FORMAT);
    if (e == ERR_OK)
        e = key_open(r, key, r->list.last.number > 1);
    if (e != ERR_OK)
        runs_close(r);
    return e;
}

void runs_close(struct runs *r)
{
    explicit_bzero(r->key, sizeof r->key);
    file_unlock(&r->lock);
    r->lock = (struct file_lock){-1, -1, false};
}

/* ---- owners ---- */
static int by_id(const void *a, const void *b)
{
    return memcmp(a, b, RUNS_OWNER_BYTES);
}

/* Ids to keyed digests, sorted, each once; stored under their digest. */
static enum err set_make(struct runs *r, struct runs_self *self)
{
    uint8_t both[sizeof r->key + RUNS_OWNER_BYTES], *at = self->owners;
    uint64_t count = 0;
    char hex[65];
    memcpy(both, r->key, sizeof r->key);
    for (uint64_t i = 0; i < self->owner_count; i++) {
        uint8_t *id = at + i * RUNS_OWNER_BYTES;
        memcpy(both + sizeof r->key, id, RUNS_OWNER_BYTES);
        const struct digest d = digest_of(both, sizeof both);
        memcpy(id, d.bytes, RUNS_OWNER_BYTES);
    }
    explicit_bzero(both, sizeof both);
    qsort(at, self->owner_count, RUNS_OWNER_BYTES, by_id);
    for (uint64_t i = 0; i < self->owner_count; i++)
        if (!count || by_id(at + (count - 1) * RUNS_OWNER_BYTES, at + i * RUNS_OWNER_BYTES) != 0)
            memmove(at + count++ * RUNS_OWNER_BYTES, at + i * RUNS_OWNER_BYTES, RUNS_OWNER_BYTES);
    self->owner_count = count;
    const struct file_part part = {at, count * RUNS_OWNER_BYTES};
    r->set = digest_of(part.data, part.size_bytes);
    digest_hex(&r->set, hex);
    const char *path = arena_printf(r->perm, "%s/sets/%s", r->dir, hex);
    TRY_ALLOC(path);
    return file_exists(path) ? ERR_OK : file_write(path, &part, 1, 0600);
}

static bool sets_meet(const uint8_t *a, uint64_t an, const uint8_t *b, uint64_t bn)
{
    for (uint64_t i = 0, k = 0; i < an && k < bn;) {
        int c = by_id(a + i * RUNS_OWNER_BYTES, b + k * RUNS_OWNER_BYTES);
        if (c == 0)
            return true;
        i += c < 0;
        k += c > 0;
    }
    return false;
}

static enum err shares(bool *yes, struct runs *r, const struct runs_self *self,
                       const struct runs_entry *other)
{
    struct arena a = arena_make(0);
    uint8_t *data;
    size_t size;
    char hex[65];
    *yes = strcmp(self->site, other->site) == 0;
    if (digest_zero(&r->set) || digest_zero(&other->set))
        return ERR_OK;
    digest_hex(&other->set, hex);
    const char *path = arena_printf(r->perm, "%s/sets/%s", r->dir, hex);
    TRY_ALLOC(path);
    enum err e = file_read(path, SET_BYTES_MAX, &a, &data, &size);
    if (e == ERR_OK) {
        const struct digest d = digest_of(data, size);
        if (!digest_equal(&d, &other->set))
            e = err_set(ERR_CORRUPT,
                        "%s is damaged: whose runs shared owners is not known; restore it", path);
        else
            *yes = sets_meet(self->owners, self->owner_count, data, size / RUNS_OWNER_BYTES);
    }
    arena_free(&a);
    return e;
}

/* ---- what others have charged ---- */
/* Of entry `i`, a setting of a run: the most that was charged, or what its last start had ahead. */
static int64_t steps_of_setting(const struct runs *r, size_t i, size_t last_start)
{
    int64_t steps = 0;
    for (size_t k = 0; k < r->count; k++) {
        const struct runs_entry *e = &r->entries[k];
        if (e->begins || !digest_equal(&e->id, &r->entries[i].id) ||
            !private_same(&e->charge, &r->entries[i].charge))
            continue;
        int64_t counts = k > last_start ? e->charge.counted : e->charged;
        steps = counts > steps ? counts : steps;
    }
    return steps;
}

/* The same setting of the run stands earlier in the list. */
static bool setting_again(const struct runs *r, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!r->entries[k].begins && digest_equal(&r->entries[k].id, &r->entries[i].id) &&
            private_same(&r->entries[k].charge, &r->entries[i].charge))
            return true;
    return false;
}

static enum err run_add(struct runs_shared *out, const struct runs *r, size_t start)
{
    const struct runs_entry *s = &r->entries[start];
    size_t used = strlen(out->names);
    snprintf(out->names + used, sizeof out->names - used, "%s%s of site %s", used ? ", " : "",
             s->run, s->site);
    out->runs++;
    for (size_t i = 0; i < r->count; i++) {
        if (r->entries[i].begins || !digest_equal(&r->entries[i].id, &s->id) || setting_again(r, i))
            continue;
        struct private_charge c = r->entries[i].charge;
        c.counted = steps_of_setting(r, i, start);
        if (c.counted)
            TRY(budget_join(&out->spent, &c, c.counted));
    }
    return ERR_OK;
}

enum err runs_shared(struct runs_shared *out, struct runs *r, struct runs_self *self)
{
    *out = (struct runs_shared){.runs = 0};
    r->set = (struct digest){{0}};
    if (self->owners)
        TRY(set_make(r, self));
    for (size_t i = 0; i < r->count; i++) {
        const struct runs_entry *e = &r->entries[i];
        bool yes = false, last = e->begins && !digest_equal(&e->id, &self->id);
        for (size_t k = i + 1; k < r->count && last; k++)
            last = !(r->entries[k].begins && digest_equal(&r->entries[k].id, &e->id));
        for (size_t k = 0; last && !yes && k <= i; k++) /* of any of its starts */
            if (r->entries[k].begins && digest_equal(&r->entries[k].id, &e->id))
                TRY(shares(&yes, r, self, &r->entries[k]));
        if (last && yes)
            TRY(run_add(out, r, i));
    }
    return ERR_OK;
}

/* ---- a start ---- */
enum err runs_book(struct runs *r, const struct runs_self *self, const struct budget *b,
                   const struct private_charge *next, int64_t ahead)
{
    char text[CHAINED_TEXT_MAX + 1], id[65], set[65], charge[CHAINED_TEXT_MAX];
    bool found = false;
    digest_hex(&self->id, id);
    digest_hex(&r->set, set);
    snprintf(text, sizeof text, "run id=%s set=%s name=%.63s site=%.63s", id, set, self->run,
             *self->site ? self->site : "alone");
    TRY(chained_append(&r->list, text));
    for (size_t i = 0; i <= b->count; i++) {
        bool own = i < b->count;
        struct private_charge c = own ? b->settings[i].charge : *next;
        bool same = own && private_same(&c, next) && !found;
        int64_t charged = own ? b->settings[i].steps : 0;
        found |= same;
        c.counted = charged + (same || (!own && !found) ? ahead : 0);
        c.tag = self->id;
        c.step = 0;
        if (!c.counted)
            continue;
        private_print(charge, &c);
        snprintf(text, sizeof text, "charged=%" PRId64 " %.370s", charged, charge);
        TRY(chained_append(&r->list, text));
    }
    return ERR_OK;
}
