#include "inner/train/private.h"
#include <stdio.h>
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
static int charge_print(char line[CHARGE_MAX], const struct private_charge *c)
{
    char tag[65];
    digest_hex(&c->tag, tag);
    int n = snprintf(line, CHARGE_MAX,
                     "step=%lld unit=%s sampling=%s records=%llu expected=%llu noise=%.17g "
                     "clip=%.17g tag=%s",
                     (long long)c->step, c->unit, c->sampling, (unsigned long long)c->records,
                     (unsigned long long)c->expected, c->noise, c->clip, tag);
    ASSERT(n > 0 && n < CHARGE_MAX - 16);
    uint32_t crc = digest_crc32c(0, line, (size_t)n);
    return n + snprintf(line + n, (size_t)(CHARGE_MAX - n), " crc=%08x\n", crc);
}

/* A whole line without its end: its checksum and its tag. */
static bool charge_parse(const char *line, size_t n, struct digest *tag)
{
    enum { CRC = 13, TAG = 64 };
    char crc[CRC + 1];
    if (n + 1 < CHARGE_MIN || n >= CHARGE_MAX)
        return false;
    snprintf(crc, sizeof crc, " crc=%08x", digest_crc32c(0, line, n - CRC));
    const char *hex = line + n - CRC - TAG;
    return memcmp(line + n - CRC, crc, CRC) == 0 && memcmp(hex - 5, " tag=", 5) == 0 &&
           digest_hex_read(tag, hex);
}

static enum err private_read_charges(struct private_site *p, struct arena *perm)
{
    uint8_t *data;
    size_t size, at = 0;
    TRY(file_read(p->charges, CHARGES_MAX_BYTES, perm, &data, &size));
    TRY_ALLOC(p->tags = arena_array(perm, size / CHARGE_MIN + 1, sizeof *p->tags));
    while (at < size) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        struct digest tag = {{0}};
        if (!end)
            break;
        if (!charge_parse((const char *)data + at, (size_t)(end - data) - at, &tag))
            return err_set(ERR_CORRUPT,
                           "%s, line %lld, is no charge of this site: the budget that was spent is "
                           "not known; restore the file",
                           p->charges, (long long)p->charged + 1);
        p->tags[p->found++] = tag;
        p->charged++;
        at = (size_t)(end - data) + 1;
    }
    const struct file_part whole = {data, at};
    return at < size ? file_write(p->charges, &whole, 1, 0600) : ERR_OK;
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

/* ---- keys of a step ---- */
static struct digest derived(const void *key, size_t key_bytes, const char *use)
{
    struct digest_stream s;
    digest_open(&s);
    digest_add(&s, key, key_bytes);
    digest_add(&s, use, strlen(use) + 1);
    return digest_close(&s);
}

struct private_keys private_step_keys(const struct private_site *p, int64_t step,
                                      const struct digest *parameters, const char *device)
{
    struct private_keys k;
    struct digest_stream s;
    uint8_t number[8];
    for (int i = 0; i < 8; i++)
        number[i] = (uint8_t)((uint64_t)step >> 8 * i);
    digest_open(&s);
    digest_add(&s, p->key, sizeof p->key);
    digest_add(&s, number, sizeof number);
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
