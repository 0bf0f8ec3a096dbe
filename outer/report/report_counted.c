/* The report's table of whose data counted: by site, rounds and tokens, as the aggregators
 * committed them. */
#include <string.h>
#include "outer/report/report_own.h"

static bool is_counting(const struct report_run *r)
{
    return r->counted && r->counted->rounds;
}

static bool any_counting(const struct report_runs *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (is_counting(&r->run[i]))
            return true;
    return false;
}

/* The next name of "a,b,c"; the site's number where names end, as with very many sites. */
static const char *name_next(const char *names, unsigned site, char out[64])
{
    size_t n = strcspn(names, ",");
    if (n)
        snprintf(out, 64, "site %.*s", (int)(n < 50 ? n : 50), names);
    else
        snprintf(out, 64, "site number %u", site);
    return names + n + (names[n] == ',');
}

static void share_row(struct report_table *t, const struct report_run *r, unsigned site,
                      const char *name)
{
    struct counted_site s = counted_of(r->counted, site);
    double all = (double)counted_tokens(r->counted);
    char text[64];
    table_name(t, name);
    snprintf(text, sizeof text, "%.1f %%", 100.0 * (double)s.rounds / (double)r->counted->rounds);
    table_count(t, (double)s.rounds);
    table_number(t, text);
    snprintf(text, sizeof text, "%.1f %%", all > 0 ? 100.0 * (double)s.tokens / all : 0);
    table_count(t, (double)s.tokens);
    table_number(t, text);
    table_text(t, s.ends     ? "all of its data counted"
                  : s.rounds ? "its last work is missing"
                             : "none of its data counted");
}

void report_counted(FILE *out, const struct report_runs *r)
{
    static const char *const head[] = {"",       "rounds",        "of all rounds",
                                       "tokens", "of all tokens", ""};
    if (!any_counting(r))
        return;
    fputs("<section><h2>Whose data counted</h2><p class=\"note\">Rounds that include the site, and "
          "its tokens when it was last included. Work that misses a round goes with the next "
          "contribution; after the last one it is lost.</p>",
          out);
    for (size_t i = 0; i < r->count; i++) {
        const struct report_run *run = &r->run[i];
        struct report_table t;
        char name[64];
        if (!is_counting(run))
            continue;
        const char *names = run->site_names;
        table_begin(&t, out, head, 6, 1);
        for (unsigned s = 0; s < run->sites; s++) {
            names = name_next(names, s, name);
            share_row(&t, run, s, name);
        }
        table_end(&t);
    }
    for (size_t i = 0; i < r->count; i++)
        if (r->run[i].ended_short && *r->run[i].ended_short) {
            fputs("<p class=\"note\">", out);
            plot_escape(out, r->run[i].name);
            fputs(": ", out);
            plot_escape(out, r->run[i].ended_short);
            fputs("</p>", out);
        }
    fputs("</section>\n", out);
}
