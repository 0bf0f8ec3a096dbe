/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/page_report.h"
#include <stdlib.h>
#include <string.h>
#include "outer/view/live.h"
#include "outer/view/page_data.h"
#include "outer/view/page_files.h"
#include "outer/view/sheet.h"

/* Nothing is fetched, with any names of a run. */
static const char policy[] =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n";

/* The template from *at up to `mark`, which is passed over. */
static void template_write(FILE *out, size_t *at, const char *mark)
{
    const unsigned char *from = page_html + *at;
    const unsigned char *found = memmem(from, page_html_size - *at, mark, strlen(mark));
    ASSERT(found);
    fwrite(from, 1, (size_t)(found - from), out);
    *at += (size_t)(found - from) + strlen(mark);
}

/* What a reader without scripts sees. False: no memory. */
static bool summary_write(FILE *out, const struct report_follow *f)
{
    char *text = NULL;
    size_t size = 0;
    FILE *plain = open_memstream(&text, &size);
    if (!plain)
        return false;
    live_text(plain, f, page_data_now(f));
    for (size_t i = 0; i < f->count; i++) {
        const struct report_points *e = &f->runs[i].series[REPORT_EVAL];
        if (e->count)
            fprintf(plain, "%s: eval loss %.4f at start, %.4f at the end\n", f->runs[i].name,
                    e->y[0], report_last(e));
    }
    bool good = !ferror(plain);
    good = fclose(plain) == 0 && good;
    if (good)
        sheet_escape(out, text);
    free(text);
    return good;
}

static enum err page_write(FILE *out, const struct report_follow *f, const char *wan)
{
    struct json_write w = {.out = out, .html = true};
    size_t at = 0;
    template_write(out, &at, "<link rel=\"stylesheet\" href=\"page.css\">\n");
    fprintf(out, "%s<style>\n", policy);
    fwrite(page_css, 1, page_css_size, out);
    fputs("</style>\n", out);
    template_write(out, &at, "<noscript>");
    fputs("<noscript><pre>", out);
    if (!summary_write(out, f))
        return err_set(ERR_MEMORY, "no memory for the report");
    fputs("</pre>", out);
    template_write(out, &at, "<script src=\"page.js\"></script>\n");
    fputs("<script type=\"application/json\" id=\"data\">", out);
    TRY(page_data_whole(&w, f, wan));
    fputs("</script>\n<script>\n", out);
    fwrite(page_js, 1, page_js_size, out);
    fputs("</script>\n", out);
    fwrite(page_html + at, 1, page_html_size - at, out);
    return ERR_OK;
}

enum err page_report_write(const char *path, struct report_run *runs, size_t count, const char *wan)
{
    const struct report_follow f = {.runs = runs, .count = count};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return err_set(ERR_MEMORY, "no memory for the report");
    enum err e = page_write(out, &f, wan);
    bool bad = ferror(out);
    bad = fclose(out) != 0 || bad;
    if (e == ERR_OK && bad)
        e = err_set(ERR_MEMORY, "no memory for the report");
    if (e == ERR_OK && strcmp(path, "-") == 0)
        fwrite(text, 1, size, stdout); /* the command's end says whether it arrived */
    else if (e == ERR_OK)
        e = file_write(path, &(struct file_part){text, size}, 1, 0644);
    free(text);
    return e;
}
