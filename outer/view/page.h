/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGE_H
#define PAGE_H
/* The live page of one or more run directories, or of records that come over the link, at its own
 * loopback: / (the page), /status.json (what it shows), /metrics (Prometheus), /healthz, /readyz.
 * The threads of the server read the records themselves, from the files: what trains or serves
 * shares no lock with them. Files of outer/view/page are in the program.
 */
#include <pthread.h>
#include "outer/view/http.h"
#include "outer/view/report_data.h"

struct page_options {
    const char *address;     /* of the page, at the loopback */
    const char *metrics;     /* any address, for /metrics, /healthz and /readyz alone; NULL: none */
    const char *const *dirs; /* dir_count 0: records come by page_row */
    size_t dir_count;
    /* Can the process do its work? why: a sentence if not. In a thread of the server; NULL: yes. */
    bool (*ready)(void *self, char *why, size_t size);
    void *self;
};
struct page {
    struct page_options o;
    pthread_mutex_t mutex; /* guards the two below */
    struct report_follow follow;
    struct arena arena;
    bool open;
    struct http *http, *scraped;
    char url[HTTP_URL_MAX], metrics_url[HTTP_URL_MAX];
};

/* p->url: where it is. */
enum err page_open(struct page *p, const struct page_options *o) MUST;
/* The same in a process that has other work: logs the address; a port in use is a warning, for
 * no run ends for its page. */
enum err page_try(struct page *p, const struct page_options *o) MUST;
enum err page_row(struct page *p, const struct jsonl_row *row) MUST;
void page_close(struct page *p); /* accepts a zeroed struct */

#endif
