/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/config/textfile.h"
#include <string.h>

#define MAGIC(text) text, sizeof text - 1

/* By their first bytes; the first row that fits. A text may begin with PAR1 or BZh, but it has no
 * zero byte. */
static const struct kind {
    const char *magic;
    size_t bytes;
    const char *what, *action;
} kinds[] = {
    {MAGIC("\xff\xfe\0\0"), "UTF-32", "convert it: iconv -f UTF-32 -t UTF-8"},
    {MAGIC("\0\0\xfe\xff"), "UTF-32", "convert it: iconv -f UTF-32 -t UTF-8"},
    {MAGIC("\xff\xfe"), "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
    {MAGIC("\xfe\xff"), "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
    {MAGIC("PAR1"), "a Parquet file", "docs/data.md 1.3 converts it to JSON lines"},
    {MAGIC("ARROW1\0\0"), "an Arrow file", "docs/data.md 1.3 converts it to JSON lines"},
    {MAGIC("\xff\xff\xff\xff"), "an Arrow stream", "docs/data.md 1.3 converts it to JSON lines"},
    {MAGIC("\x1f\x8b"), "compressed (gzip)", "unpack it first: gzip -d"},
    {MAGIC("\x28\xb5\x2f\xfd"), "compressed (zstd)", "unpack it first: zstd -d"},
    {MAGIC("BZh"), "compressed (bzip2)", "unpack it first: bzip2 -d"},
    {MAGIC("\xfd"
           "7zXZ\0"),
     "compressed (xz)", "unpack it first: xz -d"},
    {MAGIC("PK\3\4"), "a ZIP archive (.xlsx and .docx are such too)",
     "unpack it, or save the table as CSV in UTF-8"},
    {MAGIC("\xd0\xcf\x11\xe0"), "an old Office document", "save it as text or as CSV in UTF-8"},
    {MAGIC("%PDF-"), "a PDF document", "convert it to text first: pdftotext"},
    {MAGIC("SQLite format 3\0"), "an SQLite database", "export its table as CSV"},
    {MAGIC("\x93NUMPY"), "a NumPy array", "token ids of another program go with --tokens npy"},
    {MAGIC("\x89HDF"), "an HDF5 file", "convert it to JSON lines first"},
    {MAGIC("MMIDIDX\0\0"), "the index of a Megatron data set", "name its .bin in data.train"},
    {MAGIC("\x7f"
           "ELF"),
     "a program", "give a file with text in it"},
    {MAGIC("\x89PNG"), "a picture", "give a file with text in it"},
    {MAGIC("\xff\xd8\xff"), "a picture", "give a file with text in it"},
};

static bool is_word(const struct kind *k)
{
    bool word = *k->magic != '%';
    for (size_t i = 0; i < k->bytes; i++)
        word = word && k->magic[i] >= ' ' && k->magic[i] < 127;
    return word;
}

static const struct kind *kind_of(const uint8_t *s, size_t n, bool zero)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n >= kinds[i].bytes && memcmp(s, kinds[i].magic, kinds[i].bytes) == 0)
            return zero || !is_word(&kinds[i]) ? &kinds[i] : NULL;
    return NULL;
}

/* Without a mark: most characters of most texts have a zero byte in UTF-16, all on one side. */
static bool is_utf16(const uint8_t *s, size_t n)
{
    size_t zeros[2] = {0}, pairs = (n < 512 ? n : 512) / 2;
    for (size_t i = 0; i < 2 * pairs; i++)
        zeros[i % 2] += s[i] == 0;
    size_t most = zeros[0] > zeros[1] ? zeros[0] : zeros[1], least = zeros[0] + zeros[1] - most;
    return pairs > 0 && 2 * most > pairs && 16 * least <= pairs;
}

static enum err refuse(const char *path, const char *what, const char *action,
                       const char *otherwise)
{
    return err_set(ERR_INPUT, "%s: %s, and text in UTF-8 is expected; %s%s%s", path, what, action,
                   otherwise ? "; " : "", otherwise ? otherwise : "");
}

static enum err refuse_zero(const char *path, const uint8_t *s, size_t at, const char *otherwise)
{
    uint64_t line = 1;
    for (size_t i = 0; i < at; i++)
        line += s[i] == '\n';
    return err_set(ERR_INPUT, "%s: line %llu: byte %zu of the file is zero: this is no text%s%s",
                   path, (unsigned long long)line, at + 1, otherwise ? "; " : "",
                   otherwise ? otherwise : "");
}

enum err textfile_open(struct textfile *t, const char *path, const void *data, size_t size_bytes,
                       const char *otherwise)
{
    static const char mark[] = "\xef\xbb\xbf";
    const uint8_t *s = data;
    size_t marked = size_bytes >= 3 && memcmp(s, mark, 3) == 0 ? 3 : 0;
    const uint8_t *zero = size_bytes ? memchr(s, 0, size_bytes) : NULL;
    const struct kind *kind = kind_of(s, size_bytes, zero);
    *t = (struct textfile){(const char *)data + marked, size_bytes - marked};
    if (kind)
        return refuse(path, kind->what, kind->action, otherwise);
    if (!zero)
        return ERR_OK;
    return is_utf16(s, size_bytes) ? refuse(path, "UTF-16 without a mark",
                                            "convert it: iconv -f UTF-16LE -t UTF-8", otherwise)
                                   : refuse_zero(path, s, (size_t)(zero - s), otherwise);
}

bool textfile_line(const struct textfile *t, size_t *at, struct textfile_line *line)
{
    if (*at >= t->size_bytes)
        return false;
    const char *text = t->text + *at, *end = memchr(text, '\n', t->size_bytes - *at);
    size_t bytes = end ? (size_t)(end - text) : t->size_bytes - *at;
    *at += bytes + 1;
    *line =
        (struct textfile_line){text, bytes - (bytes && text[bytes - 1] == '\r'), line->number + 1};
    return true;
}
