/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/train/private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "inner/io/checkpoint.h"
#include "kernels/base/file.h"

enum { CHARGE_MAX = CHAINED_TEXT_MAX };

/* ---- key ---- */
static enum err private_make_key(struct private_site *p, const char *path)
{
    const struct file_part part = {p->key, sizeof p->key};
    digest_random(p->key, sizeof p->key);
    return file_write(path, &part, 1, 0600);
}

static enum err private_read_key(struct private_site *p, const char *path, struct arena *perm)
{
    static const uint8_t zero[sizeof p->key];
    uint8_t *data;
    size_t size;
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return err_set(ERR_INPUT, "%s: not a regular file", path);
    TRY(file_secret(path, &st, "the key of the noise"));
    TRY(file_read(path, sizeof p->key, perm, &data, &size));
    if (size != sizeof p->key)
        return err_set(ERR_CORRUPT, "%s holds %zu bytes, not the %zu of a key; restore it", path,
                       size, sizeof p->key);
    memcpy(p->key, data, sizeof p->key);
    explicit_bzero(data, size);
    if (memcmp(p->key, zero, sizeof zero) == 0)
        return err_set(ERR_CORRUPT,
                       "%s holds zeros, which can be guessed: restore it, or begin a new run",
                       path);
    return ERR_OK;
}

/* ---- charges ---- */
enum err private_charge_of(struct private_charge *c, const struct settings *s, uint64_t records)
{
    struct lot_sizes sizes = {.records = records,
                              .expected = (uint64_t)keys_expected_units(s),
                              .bands = (uint64_t)keys_bands(s)};
    TRY(lot_check(s->privacy_sampling, &sizes));
    *c = (struct private_charge){
        .records = records,
        .expected = sizes.expected,
        .noise = s->privacy_noise_multiplier,
        .clip = s->privacy_clip,
        .unit = config_choice_name(privacy_unit_choices, s->privacy_unit),
        .sampling = config_choice_name(privacy_sampling_choices, s->privacy_sampling),
        .unit_sequences = (uint64_t)keys_unit_sequences(s),
        .bands = sizes.bands,
        .bins = lot_bins(s->privacy_sampling, &sizes)};
    return ERR_OK;
}

enum privacy_sampling private_sampling(const struct private_charge *c)
{
    int i = 0;
    while (strcmp(privacy_sampling_choices[i].name, c->sampling) != 0)
        i++;
    return (enum privacy_sampling)i;
}

struct lot_sizes private_sizes(const struct private_charge *c)
{
    return (struct lot_sizes){c->records, c->expected, c->bands, c->bins};
}

/* The shortest text that reads back to the same value. */
static void charge_real(char text[32], double v)
{
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, 32, "%.*g", precision, v);
        if (strtod(text, NULL) == v)
            return;
    }
}

/* What a step spends, without its tag. */
static int charge_text(char line[CHARGE_MAX], const struct private_charge *c)
{
    char noise[32], clip[32];
    charge_real(noise, c->noise);
    charge_real(clip, c->clip);
    int n = snprintf(line, CHARGE_MAX,
                     "step=%lld unit=%s sampling=%s records=%llu expected=%llu noise=%s clip=%s",
                     (long long)c->step, c->unit, c->sampling, (unsigned long long)c->records,
                     (unsigned long long)c->expected, noise, clip);
    if (c->unit_sequences > 1)
        n += snprintf(line + n, (size_t)(CHARGE_MAX - n), " unit_sequences=%llu",
                      (unsigned long long)c->unit_sequences);
    if (c->bands > 1)
        n += snprintf(line + n, (size_t)(CHARGE_MAX - n), " bands=%llu",
                      (unsigned long long)c->bands);
    if (c->bins)
        n +=
            snprintf(line + n, (size_t)(CHARGE_MAX - n), " bins=%llu", (unsigned long long)c->bins);
    if (c->counted)
        n += snprintf(line + n, (size_t)(CHARGE_MAX - n), " counted=%lld", (long long)c->counted);
    return n;
}

/* With its tag: an entry of the list. */
void private_print(char line[CHAINED_TEXT_MAX], const struct private_charge *c)
{
    char tag[65];
    digest_hex(&c->tag, tag);
    int n = charge_text(line, c);
    n += snprintf(line + n, (size_t)(CHARGE_MAX - n), " tag=%s", tag);
    ASSERT(n > 0 && n < CHARGE_MAX);
}

/* The choice's own name; NULL: there is none of that name. */
static const char *charge_name(const struct config_choice *choices, const char *text)
{
    for (const struct config_choice *c = choices; c->name; c++)
        if (strcmp(c->name, text) == 0)
            return c->name;
    return NULL;
}

static bool charge_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= 0 && *value < 0x1p63;
}

static bool charge_field(struct private_charge *c, const char *key, const char *value)
{
    double number = 0;
    bool good = charge_number(value, &number);
    if (strcmp(key, "unit") == 0)
        return (c->unit = charge_name(privacy_unit_choices, value)) != NULL;
    if (strcmp(key, "sampling") == 0)
        return (c->sampling = charge_name(privacy_sampling_choices, value)) != NULL;
    if (strcmp(key, "tag") == 0)
        return strlen(value) == 64 && digest_hex_read(&c->tag, value);
    if (strcmp(key, "step") == 0)
        c->step = (int64_t)number;
    else if (strcmp(key, "records") == 0)
        c->records = (uint64_t)number;
    else if (strcmp(key, "expected") == 0)
        c->expected = (uint64_t)number;
    else if (strcmp(key, "unit_sequences") == 0)
        c->unit_sequences = (uint64_t)number;
    else if (strcmp(key, "bands") == 0)
        c->bands = (uint64_t)number;
    else if (strcmp(key, "bins") == 0)
        c->bins = (uint64_t)number;
    else if (strcmp(key, "counted") == 0)
        c->counted = (int64_t)number;
    else if (strcmp(key, "noise") == 0)
        c->noise = number;
    else if (strcmp(key, "clip") == 0)
        c->clip = number;
    else
        return false;
    return good;
}

bool private_parse(const char *line, size_t n, struct private_charge *c)
{
    char text[CHARGE_MAX], *rest = text;
    *c = (struct private_charge){.unit_sequences = 1, .bands = 1};
    if (n >= CHARGE_MAX)
        return false;
    memcpy(text, line, n);
    text[n] = 0;
    for (char *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        if (!value)
            return false;
        *value++ = '\0';
        if (!charge_field(c, word, value))
            return false;
    }
    return c->unit && c->sampling && !digest_zero(&c->tag) && c->records && c->expected &&
           c->noise > 0;
}

/* ---- the list ---- */
struct charges_reader {
    private_visit *visit;
    void *self;
};

static enum err charges_visit(void *self, const char *text, size_t n, bool *good)
{
    const struct charges_reader *r = self;
    struct private_charge c;
    *good = private_parse(text, n, &c);
    return *good ? r->visit(r->self, &c) : ERR_OK;
}

static struct chained_options charges_options(struct charges_reader *r)
{
    return (struct chained_options){.what = "charge of this site",
                                    .lost = "the budget that was spent is not known",
                                    .visit = charges_visit,
                                    .self = r};
}

enum err private_known(const char *dir, struct chained_at *known)
{
    bool found;
    *known = (struct chained_at){.number = 0};
    return checkpoint_part_read(dir, PRIVATE_PART, known, sizeof *known, &found);
}

enum err private_read(const char *path, const struct chained_at *known, private_visit *visit,
                      void *self)
{
    struct charges_reader r = {visit, self};
    struct chained_options o = charges_options(&r);
    struct chained_at last;
    if (known)
        o.known = *known;
    o.known_by = "the checkpoint";
    return chained_read(&last, disk_posix(), path, &o);
}

bool private_same(const struct private_charge *a, const struct private_charge *b)
{
    return a->records == b->records && a->expected == b->expected && a->noise == b->noise &&
           a->clip == b->clip && a->unit_sequences == b->unit_sequences && a->bands == b->bands &&
           a->bins == b->bins && strcmp(a->unit, b->unit) == 0 &&
           strcmp(a->sampling, b->sampling) == 0;
}

static struct digest history_with(const struct digest *before, const struct digest *tag)
{
    const struct digest both[2] = {*before, *tag};
    return digest_of(both, sizeof both);
}

/* The file has this line now. */
static enum err private_listed(struct private_site *p, const struct private_charge *c)
{
    uint64_t number = (uint64_t)p->charged;
    if (p->last.unit && !private_same(&p->last, c))
        p->chain = number;
    p->last = *c;
    p->history = history_with(&p->history, &c->tag);
    p->charged += c->counted ? c->counted : 1;
    if (c->counted) {
        p->chain = (uint64_t)p->charged;
        return ERR_OK;
    }
    struct private_line *lines = arena_grow(p->perm, p->lines, p->count, &p->room, sizeof *lines);
    TRY_ALLOC(lines);
    p->lines = lines;
    p->lines[p->count++] = (struct private_line){c->tag, p->history, number, p->chain};
    return ERR_OK;
}

static enum err private_found(void *self, const struct private_charge *c)
{
    return private_listed(self, c);
}

static enum err private_open_list(struct private_site *p, const char *dir,
                                  const struct private_begun *begun, struct arena *perm)
{
    struct charges_reader r = {private_found, p};
    struct chained_options o = charges_options(&r);
    const char *path = arena_printf(perm, "%s/privacy.charges", dir);
    TRY_ALLOC(path);
    o.known = begun->list;
    o.known_by = "the checkpoint";
    return chained_open(&p->list, disk_posix(), path, begun->steps, &o, perm);
}

enum err private_open(struct private_site *p, const char *dir, const struct private_begun *begun,
                      struct arena *perm)
{
    char *key, *charges;
    *p = (struct private_site){.perm = perm};
    TRY_ALLOC(key = arena_printf(perm, "%s/privacy.key", dir));
    TRY_ALLOC(charges = arena_printf(perm, "%s/privacy.charges", dir));
    if (file_exists(key)) {
        TRY(private_read_key(p, key, perm));
    } else if (begun->steps || file_exists(charges)) {
        return err_set(ERR_INPUT,
                       "%s is missing, and the run of this directory has begun; restore it, or "
                       "begin a new run: noise of another key is not that of this run",
                       key);
    } else {
        TRY(file_mkdirs(dir));
        TRY(private_make_key(p, key));
    }
    return private_open_list(p, dir, begun, perm);
}

/* The newest first. */
const struct private_line *private_charged(const struct private_site *p, const struct digest *tag)
{
    for (size_t i = p->count; i-- > 0;)
        if (digest_equal(&p->lines[i].tag, tag))
            return &p->lines[i];
    return NULL;
}

/* Lines are in the order of their numbers. */
const struct private_line *private_step(const struct private_site *p, uint64_t number)
{
    size_t low = 0, high = p->count;
    ASSERT(p->count);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (p->lines[middle].number <= number)
            low = middle;
        else
            high = middle;
    }
    ASSERT(p->lines[low].number == number);
    return &p->lines[low];
}

enum err private_charge(struct private_site *p, const struct private_charge *c)
{
    char line[CHARGE_MAX];
    if (private_charged(p, &c->tag))
        return ERR_OK;
    private_print(line, c);
    TRY(chained_append(&p->list, line));
    return private_listed(p, c);
}

enum err private_missing(uint64_t *missing, const struct private_site *p, uint64_t known)
{
    uint64_t charged = (uint64_t)p->charged;
    *missing = known > charged ? known - charged : 0;
    if (*missing <= PRIVATE_COUNTED_MAX)
        return ERR_OK;
    return err_set(ERR_DISAGREE,
                   "a manifest names %llu charged steps of this site, and %s has %lld: not "
                   "credible; nothing was added to it",
                   (unsigned long long)known, p->list.path, (long long)p->charged);
}

enum err private_count(struct private_site *p, uint64_t known, const struct private_charge *like)
{
    struct private_charge c = *like;
    char line[CHARGE_MAX];
    uint64_t missing;
    TRY(private_missing(&missing, p, known));
    if (!missing)
        return ERR_OK;
    c.counted = (int64_t)missing;
    c.tag = digest_of(line, (size_t)charge_text(line, &c)); /* no step has it */
    private_print(line, &c);
    TRY(chained_append(&p->list, line));
    return private_listed(p, &c);
}

/* ---- keys of a step ---- */
static struct digest derived(const void *key, size_t key_bytes, const char *use)
{
    struct digest_stream s;
    digest_open(&s);
    digest_add(&s, key, key_bytes);
    digest_add(&s, use, strlen(use) + 1);
    return digest_close(&s);
}

struct private_keys private_step_keys(const struct private_site *p,
                                      const struct private_charge *charge,
                                      const struct private_basis *basis)
{
    struct private_keys k;
    struct digest_stream s;
    char text[CHARGE_MAX];
    int n = charge_text(text, charge);
    digest_open(&s);
    digest_add(&s, p->key, sizeof p->key);
    digest_add(&s, text, (size_t)n + 1);
    digest_add(&s, basis->parameters.bytes, sizeof basis->parameters.bytes);
    digest_add(&s, basis->records.bytes, sizeof basis->records.bytes);
    digest_add(&s, basis->device, strlen(basis->device));
    struct digest of_step = digest_close(&s), one;
    one = derived(of_step.bytes, sizeof of_step.bytes, "sample");
    memcpy(k.sample, one.bytes, sizeof k.sample);
    one = derived(of_step.bytes, sizeof of_step.bytes, "noise");
    memcpy(k.noise, one.bytes, sizeof k.noise);
    k.tag = derived(of_step.bytes, sizeof of_step.bytes, "tag");
    return k;
}

void private_noise_key(const struct private_site *p, const struct private_line *line,
                       uint8_t key[CHACHA_KEY_BYTES])
{
    struct digest_stream s;
    digest_open(&s);
    digest_add(&s, p->key, sizeof p->key);
    digest_add(&s, line->history.bytes, sizeof line->history.bytes);
    struct digest both = digest_close(&s), one = derived(both.bytes, sizeof both.bytes, "banded");
    memcpy(key, one.bytes, sizeof one.bytes);
}

struct digest private_run_id(const struct private_site *p)
{
    return derived(p->key, sizeof p->key, "run");
}

void private_bin_key(const struct private_site *p, uint8_t key[CHACHA_KEY_BYTES])
{
    struct digest one = derived(p->key, sizeof p->key, "bins");
    memcpy(key, one.bytes, sizeof one.bytes);
}
