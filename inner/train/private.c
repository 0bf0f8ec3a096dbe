#include "inner/train/private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"

enum { CHARGE_MIN = 82, CHARGE_MAX = 400, CHARGES_MAX_BYTES = 1 << 30 };

/* ---- key ---- */
static enum err private_make_key(struct private_site *p, const char *path)
{
    const struct file_part part = {p->key, sizeof p->key};
    digest_random(p->key, sizeof p->key);
    return file_write(path, &part, 1, 0600);
}

static enum err private_read_key(struct private_site *p, const char *path, struct arena *perm)
{
    uint8_t *data;
    size_t size;
    TRY(file_read(path, sizeof p->key, perm, &data, &size));
    if (size != sizeof p->key)
        return err_set(ERR_CORRUPT, "%s holds %zu bytes, not the %zu of a key; restore it", path,
                       size, sizeof p->key);
    memcpy(p->key, data, sizeof p->key);
    explicit_bzero(data, size);
    return ERR_OK;
}

/* ---- charges ---- */
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
    if (c->counted)
        n += snprintf(line + n, (size_t)(CHARGE_MAX - n), " counted=%lld", (long long)c->counted);
    return n;
}

static int charge_print(char line[CHARGE_MAX], const struct private_charge *c)
{
    char tag[65];
    digest_hex(&c->tag, tag);
    int n = charge_text(line, c);
    n += snprintf(line + n, (size_t)(CHARGE_MAX - n), " tag=%s", tag);
    ASSERT(n > 0 && n < CHARGE_MAX - 16);
    uint32_t crc = digest_crc32c(0, line, (size_t)n);
    return n + snprintf(line + n, (size_t)(CHARGE_MAX - n), " crc=%08x\n", crc);
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

/* A whole line without its end. */
static bool charge_parse(const char *line, size_t n, struct private_charge *c)
{
    enum { CRC = 13 };
    char crc[CRC + 1], text[CHARGE_MAX], *rest = text;
    *c = (struct private_charge){.unit_sequences = 1};
    if (n + 1 < CHARGE_MIN || n >= CHARGE_MAX)
        return false;
    snprintf(crc, sizeof crc, " crc=%08x", digest_crc32c(0, line, n - CRC));
    if (memcmp(line + n - CRC, crc, CRC) != 0 || memchr(line, 0, n))
        return false;
    snprintf(text, sizeof text, "%.*s", (int)(n - CRC), line);
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

/* *whole: bytes of the lines that have an end. */
static enum err charges_walk(const char *path, const uint8_t *data, size_t size, size_t *whole,
                             private_visit *visit, void *self)
{
    long long line = 1;
    for (*whole = 0; *whole < size; line++) {
        const uint8_t *end = memchr(data + *whole, '\n', size - *whole);
        struct private_charge c;
        if (!end)
            break;
        if (!charge_parse((const char *)data + *whole, (size_t)(end - data) - *whole, &c))
            return err_set(ERR_CORRUPT,
                           "%s, line %lld, is no charge of this site: the budget that was spent is "
                           "not known; restore the file",
                           path, line);
        TRY(visit(self, &c));
        *whole = (size_t)(end - data) + 1;
    }
    return ERR_OK;
}

enum err private_read(const char *path, private_visit *visit, void *self)
{
    struct arena a = arena_make(0);
    uint8_t *data;
    size_t size, whole;
    enum err e = file_read(path, CHARGES_MAX_BYTES, &a, &data, &size);
    if (e == ERR_OK)
        e = charges_walk(path, data, size, &whole, visit, self);
    arena_free(&a);
    return e;
}

static enum err private_found(void *self, const struct private_charge *c)
{
    struct private_site *p = self;
    p->tags[p->found++] = c->tag;
    p->charged += c->counted ? c->counted : 1;
    return ERR_OK;
}

static enum err private_read_charges(struct private_site *p, struct arena *perm)
{
    uint8_t *data;
    size_t size, whole;
    TRY(file_read(p->charges, CHARGES_MAX_BYTES, perm, &data, &size));
    TRY_ALLOC(p->tags = arena_array(perm, size / CHARGE_MIN + 1, sizeof *p->tags));
    TRY(charges_walk(p->charges, data, size, &whole, private_found, p));
    const struct file_part kept = {data, whole};
    return whole < size ? file_write(p->charges, &kept, 1, 0600) : ERR_OK;
}

enum err private_open(struct private_site *p, const char *dir, bool begun, struct arena *perm)
{
    char *key;
    *p = (struct private_site){0};
    TRY_ALLOC(key = arena_printf(perm, "%s/privacy.key", dir));
    TRY_ALLOC(p->charges = arena_printf(perm, "%s/privacy.charges", dir));
    bool charges = file_exists(p->charges);
    if (file_exists(key)) {
        TRY(private_read_key(p, key, perm));
    } else if (begun || charges) {
        return err_set(ERR_INPUT,
                       "%s is missing, and the run of this directory has begun; restore it, or "
                       "begin a new run: noise of another key is not that of this run",
                       key);
    } else {
        TRY(file_mkdirs(dir));
        TRY(private_make_key(p, key));
    }
    if (charges)
        return private_read_charges(p, perm);
    if (begun)
        return err_set(ERR_INPUT,
                       "%s is missing, and the run of this directory has begun; restore it: the "
                       "budget that was spent is not known",
                       p->charges);
    return file_write(p->charges, NULL, 0, 0600);
}

bool private_charged(const struct private_site *p, const struct private_charge *c)
{
    for (size_t i = p->found; i-- > 0;) /* the newest first */
        if (digest_equal(&p->tags[i], &c->tag))
            return true;
    return false;
}

enum err private_charge(struct private_site *p, const struct private_charge *c)
{
    char line[CHARGE_MAX];
    if (private_charged(p, c))
        return ERR_OK;
    TRY(durable_append(disk_posix(), p->charges, line, (size_t)charge_print(line, c)));
    p->charged++;
    return ERR_OK;
}

enum err private_count(struct private_site *p, uint64_t known, const struct private_charge *like)
{
    struct private_charge c = *like;
    char line[CHARGE_MAX];
    if (known <= (uint64_t)p->charged)
        return ERR_OK;
    if (known - (uint64_t)p->charged > PRIVATE_COUNTED_MAX)
        return err_set(ERR_DISAGREE,
                       "a manifest names %llu charged steps of this site, and %s has %lld: not "
                       "credible; nothing was added to it",
                       (unsigned long long)known, p->charges, (long long)p->charged);
    c.counted = (int64_t)(known - (uint64_t)p->charged);
    c.tag = digest_of(line, (size_t)charge_text(line, &c)); /* no step has it */
    TRY(durable_append(disk_posix(), p->charges, line, (size_t)charge_print(line, &c)));
    p->charged += c.counted;
    return ERR_OK;
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
                                      const struct digest *parameters, const char *device)
{
    struct private_keys k;
    struct digest_stream s;
    char text[CHARGE_MAX];
    int n = charge_text(text, charge);
    digest_open(&s);
    digest_add(&s, p->key, sizeof p->key);
    digest_add(&s, text, (size_t)n + 1);
    digest_add(&s, parameters->bytes, sizeof parameters->bytes);
    digest_add(&s, device, strlen(device));
    struct digest of_step = digest_close(&s), one;
    one = derived(of_step.bytes, sizeof of_step.bytes, "sample");
    memcpy(k.sample, one.bytes, sizeof k.sample);
    one = derived(of_step.bytes, sizeof of_step.bytes, "noise");
    memcpy(k.noise, one.bytes, sizeof k.noise);
    k.tag = derived(of_step.bytes, sizeof of_step.bytes, "tag");
    return k;
}
