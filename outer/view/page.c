/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/page.h"
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/view/live.h"
#include "outer/view/page_data.h"
#include "outer/view/page_files.h"

enum { WHY_MAX = 256, PAGE_ROUTES = 4 };

static double page_now(void)
{
    return (double)clock_wall_ms() / 1e3;
}

static int page_write(struct page *p, FILE *out,
                      void (*live)(FILE *, const struct report_follow *, double))
{
    pthread_mutex_lock(&p->mutex);
    enum err e = p->o.dir_count ? report_follow_read(&p->follow) : ERR_OK;
    if (e == ERR_OK)
        live(out, &p->follow, page_now());
    else
        fprintf(out, "%s\n", err_message());
    pthread_mutex_unlock(&p->mutex);
    return e == ERR_OK ? 200 : 503;
}

static int status_write(void *self, FILE *out)
{
    return page_write(self, out, page_data_live);
}

static int metrics_write(void *self, FILE *out)
{
    return page_write(self, out, live_metrics);
}

static int health_write(void *self, FILE *out)
{
    (void)self;
    fputs("ok\n", out);
    return 200;
}

static int ready_write(void *self, FILE *out)
{
    struct page *p = self;
    char why[WHY_MAX] = "";
    bool ready = !p->o.ready || p->o.ready(p->o.self, why, sizeof why);
    fprintf(out, "%s\n", ready ? "ready" : why);
    return ready ? 200 : 503;
}

#define FILE_WRITE(name)                                                                           \
    static int name##_write(void *self, FILE *out)                                                 \
    {                                                                                              \
        (void)self;                                                                                \
        fwrite(page_##name, 1, page_##name##_size, out);                                           \
        return 200;                                                                                \
    }
FILE_WRITE(html)
FILE_WRITE(css)
FILE_WRITE(js)

static const char plain_text[] = "text/plain; charset=utf-8";
static const struct http_route routes[] = {
    {"/", "text/html; charset=utf-8", html_write},
    {"/page.css", "text/css; charset=utf-8", css_write},
    {"/page.js", "text/javascript; charset=utf-8", js_write},
    {"/status.json", "application/json", status_write},
    /* And at the address for scrapers, numbers alone: */
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", metrics_write},
    {"/healthz", plain_text, health_write},
    {"/readyz", plain_text, ready_write},
};

enum err page_open(struct page *p, const struct page_options *o)
{
    *p = (struct page){.o = *o, .arena = arena_make(0)};
    pthread_mutex_init(&p->mutex, NULL);
    p->open = true;
    report_follow_open(&p->follow, o->dirs, o->dir_count, &p->arena);
    const struct http_options h = {.address = o->address,
                                   .routes = routes,
                                   .count = sizeof routes / sizeof *routes,
                                   .self = p};
    const struct http_options m = {.address = o->metrics,
                                   .anywhere = true,
                                   .routes = &routes[PAGE_ROUTES],
                                   .count = sizeof routes / sizeof *routes - PAGE_ROUTES,
                                   .self = p};
    TRY(http_open(&p->http, &h, p->url));
    return o->metrics ? http_open(&p->scraped, &m, p->metrics_url) : ERR_OK;
}

enum err page_try(struct page *p, const struct page_options *o)
{
    char quoted[512];
    enum err e = page_open(p, o);
    if (e == ERR_OK)
        log_event(LOG_INFO, "page", "url=%s", p->url);
    if (e != ERR_BUSY)
        return e;
    log_event(LOG_WARN, "page", "ok=0 why=%s", log_quote(quoted, sizeof quoted, err_message()));
    err_clear();
    return ERR_OK;
}

enum err page_row(struct page *p, const struct jsonl_row *row)
{
    pthread_mutex_lock(&p->mutex);
    enum err e = report_follow_row(&p->follow, row);
    pthread_mutex_unlock(&p->mutex);
    return e;
}

void page_close(struct page *p)
{
    if (!p->open)
        return;
    http_close(p->http);
    http_close(p->scraped);
    report_follow_close(&p->follow);
    arena_free(&p->arena);
    pthread_mutex_destroy(&p->mutex);
    *p = (struct page){0};
}
