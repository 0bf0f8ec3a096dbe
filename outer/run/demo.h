/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEMO_H
#define DEMO_H
/* What `atoll demo` runs, all on this machine and all as processes of this program: certificates,
 * shards, an aggregator, two sites over mutual TLS on loopback or over an emulated network, then
 * one site alone on the same tokens per site. It reads the sites' records and shows live lines;
 * nothing here trains. One demo a process (SIGINT and SIGTERM are taken), one thread.
 *
 *     demo_make -> demo_run -> demo_summary -> demo_close
 *
 * Errors: ERR_STOPPED after a signal; ERR_CONFIG for a directory that no demo made, a topology
 * without one of the places, an address that is not loopback; what a process reports otherwise,
 * with its log.
 */
#include "kernels/base/arena.h"
#include "outer/record/json_write.h"
#include "outer/view/report_data.h"

enum { DEMO_SITES = 2, DEMO_SETTINGS_MAX = 48 };

struct demo_options { /* borrowed until demo_close */
    const char *dir, *text;
    const char *topology; /* file or preset; NULL: loopback */
    const char *http;     /* where the live page is served; "": nowhere */
    int64_t steps;
    int settings; /* count of --section.key arguments, passed on to every process; at most
                     DEMO_SETTINGS_MAX */
    char **setting;
};
struct demo_result {                       /* in the demo's arena */
    const struct report_run *site, *alone; /* [DEMO_SITES] */
    const char *report;                    /* the file */
};

struct demo; /* opaque */

extern const char *const demo_site_name[DEMO_SITES];

/* NULL: no memory. */
struct demo *demo_make(const struct demo_options *o);
/* Prepares, trains, and writes the report and, of an emulated network, wan.jsonl. */
enum err demo_run(struct demo *d, struct demo_result *r) MUST;
/* What the network carried, as a table or, w, a member "network"; nothing on loopback. */
void demo_network_print(const struct demo *d, struct json_write *w);
/* A text that site a's model writes after `prompt`: `log` is the file with it. */
enum err demo_sample(struct demo *d, const char *prompt, const char **log) MUST;
/* On standard output, as text or as one JSON object. */
enum err demo_summary(struct demo *d, const struct demo_result *r, const char *dir, bool json,
                      struct arena *a) MUST;
/* Ends what still runs. Returns e; its text stays. */
enum err demo_close(struct demo *d, enum err e) MUST;

/* This program, as it can be typed. */
const char *demo_program(struct arena *a);
/* Where *text is NULL: the text that deploy/run-demo.sh prepares next to the program, in its build
 * directory. ERR_CONFIG: there is none. */
enum err demo_text(const char **text, struct arena *a) MUST;

#endif
