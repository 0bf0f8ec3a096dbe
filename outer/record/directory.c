/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/directory.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/file.h"
#include "kernels/base/record.h"
#include "outer/record/version.h"

enum { TEXT_MAX = 4096, PROGRAM_MAX = 128, PATH_SIZE = 4096 };

static const struct kind {
    const char *name;
    unsigned format, oldest;
} kinds[] = {
#define X(kind, name, format, oldest) {name, format, oldest},
    DIRECTORY_LIST(X)
#undef X
};
static const char form[] = "atoll %s, format %u\nbegun by %s\nwritten by %s\n",
                  form_read[] = "atoll %15[a-z], format %u\nbegun by %127[^\n]\n"
                                "written by %127[^\n]%1[\n]";

struct format { /* what FORMAT says */
    char kind[16], begun[PROGRAM_MAX], written[PROGRAM_MAX];
    unsigned number;
};

static void program_text(char out[PROGRAM_MAX])
{
    snprintf(out, PROGRAM_MAX, "atoll %s (%.40s)", version_number(), version_commit());
}

static void path_of(char out[PATH_SIZE], const char *dir, const char *name)
{
    snprintf(out, PATH_SIZE, "%s/%s", dir, name);
}

static enum err format_read(const char *path, struct format *f)
{
    struct arena scratch = arena_make(0);
    uint8_t *text = NULL;
    size_t bytes;
    char end[2];
    enum err e = file_read(path, TEXT_MAX, &scratch, &text, &bytes);
    if (e == ERR_OK &&
        sscanf((char *)text, form_read, f->kind, &f->number, f->begun, f->written, end) != 5)
        e = err_set(ERR_CORRUPT, "%s: damaged; remove it, the files next to it have versions",
                    path);
    arena_free(&scratch);
    return e;
}

static enum err refused(const char *dir, enum directory_kind kind, const char *by, unsigned format)
{
    char program[PROGRAM_MAX];
    program_text(program);
    return err_set(ERR_UNSUPPORTED,
                   "%s: written by %s, format %u; this is %s, format %u%s: use the program that "
                   "wrote it, or begin a new directory (docs/backup.md, Upgrade)",
                   dir, by, format, program, kinds[kind].format,
                   kinds[kind].oldest < kinds[kind].format ? ", which reads the one before" : "");
}

/* Before FORMAT: the records of a run say their version, which is that of the directory. */
static enum err records_check(const char *dir, enum directory_kind kind)
{
    static const char *const records[] = {"frag/0/CURRENT", "begun", "id/site"};
    static const struct record_form any = {.kind = "any"};
    struct arena scratch = arena_make(0);
    enum err e = ERR_OK;
    for (size_t i = 0; i < sizeof records / sizeof *records && e == ERR_OK; i++) {
        char path[PATH_SIZE];
        struct record r;
        uint8_t *data;
        size_t size;
        path_of(path, dir, records[i]);
        if (!file_exists(path) ||
            file_read(path, RECORD_HEAD_MAX, &scratch, &data, &size) != ERR_OK)
            continue;
        if (record_open(&r, &any, path, data, size, &scratch) == ERR_MISMATCH)
            e = refused(dir, kind, "an atoll that named no format", 1);
    }
    arena_free(&scratch);
    return e;
}

/* f->number 0: there is no FORMAT. */
static enum err look(const char *dir, enum directory_kind kind, struct format *f)
{
    char path[PATH_SIZE];
    *f = (struct format){.number = 0};
    path_of(path, dir, "FORMAT");
    if (!file_exists(path))
        return records_check(dir, kind == DIRECTORY_ANY ? DIRECTORY_RUN : kind);
    TRY(format_read(path, f));
    for (size_t i = 0; kind == DIRECTORY_ANY && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(f->kind, kinds[i].name) == 0)
            kind = (enum directory_kind)i;
    if (kind != DIRECTORY_ANY && strcmp(f->kind, kinds[kind].name) != 0 &&
        (kind == DIRECTORY_DATA || strcmp(f->kind, kinds[DIRECTORY_DATA].name) == 0)) {
        f->number = 0; /* a run may have its shards in its own directory: FORMAT names the run's */
        return ERR_OK;
    }
    if (kind == DIRECTORY_ANY || strcmp(f->kind, kinds[kind].name) != 0)
        return err_set(ERR_CONFIG, "%s: it is a directory of kind %s, wanted is one of kind %s",
                       dir, f->kind, kind == DIRECTORY_ANY ? "run or serve" : kinds[kind].name);
    if (f->number < kinds[kind].oldest || f->number > kinds[kind].format)
        return refused(dir, kind, f->written, f->number);
    return ERR_OK;
}

enum err directory_check(const char *dir, enum directory_kind kind)
{
    struct format f;
    return look(dir, kind, &f);
}

enum err directory_claim(const char *dir, enum directory_kind kind)
{
    char path[PATH_SIZE], text[TEXT_MAX], program[PROGRAM_MAX];
    struct format f;
    TRY(look(dir, kind, &f));
    if (kind == DIRECTORY_DATA && f.kind[0] && strcmp(f.kind, kinds[kind].name) != 0)
        return ERR_OK; /* shards next to a run */
    program_text(program);
    if (f.number == kinds[kind].format && strcmp(f.written, program) == 0)
        return ERR_OK;
    path_of(path, dir, "FORMAT");
    int n = snprintf(text, sizeof text, form, kinds[kind].name, kinds[kind].format,
                     f.number ? f.begun : program, program);
    struct file_part part = {text, (size_t)n};
    return file_write(path, &part, 1, 0644);
}

const char *directory_formats(void)
{
    static char text[128];
    size_t used = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %u", i ? ", " : "",
                                 kinds[i].name, kinds[i].format);
    return text;
}
