/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RUN_H
#define RUN_H
/* One loader for all commands. run_open() reads the configuration once, checks all rules of both
 * key tables, reports every violated one in one message, and makes what follows from the settings:
 * tensor table, sync configuration, outer learning rate, identity. No command builds these itself,
 * so a wrong configuration is refused before a device, a directory or a connection is opened.
 *
 * Not here: the site's own share of the batch (run_site_settings() derives it) and what is opened
 * from the settings.
 */
#include "inner/io/portable.h"
#include "kernels/base/args.h"
#include "outer/config/keys.h"
#include "outer/config/measured.h"
#include "outer/config/sync_config.h"
#include "outer/config/tuning.h"
#include "outer/link/link.h"

enum run_role {
    RUN_SITE,       /* atoll train: needs site.name where outer.sites has several */
    RUN_AGGREGATOR, /* atoll serve: needs outer.sites */
    RUN_MODEL,      /* eval, sample, export, import: the model and where it lies */
    RUN_PLAN        /* plan, sim, probe: needs the number of sites */
};
struct run_source {
    enum run_role role;
    const char *config;      /* path; NULL: defaults and arguments */
    const char *text;        /* the configuration itself, which messages call `config`; or NULL */
    enum config_names names; /* of the text */
    const char *probe;       /* a probe file in place of site.probe; or NULL */
    bool measures;           /* atoll probe, which makes site.probe: the file is not read */
    int64_t sites; /* RUN_PLAN: this many sites instead of outer.sites; 0: as configured */
    const struct args *args; /* of the command line */
};
struct run {
    struct settings s;       /* as all processes of the run share them */
    struct outer_settings o; /* outer_lr is the rate in use, never 0 */
    struct keys_base base;   /* both, as what amends them reads them */
    struct table table;
    struct sync_config sync;
    struct tuning tuning;
    struct measured measured; /* of a probe file; RUN_PLAN: and of arguments */
    struct dial_proxy proxy;  /* site.proxy, whose text in `o` then has no password */
    bool imported;            /* a site whose run.dir began with atoll import */
    char *identity;           /* canonical text of the pinned settings: identity.h */
    int index;                /* of site.name in outer.sites; 0 without a name or a roster. From
                                 ROUND_SITES_MAX on: of no site of outer.sites, a number that follows from
                                 the name, for the order of the data */
    struct arena perm;
};

/* `r` is zeroed, or holds only an arena. ERR_CONFIG: every violated rule, one per line. */
enum err run_open(struct run *r, const struct run_source *source) MUST;
void run_close(struct run *r); /* a zeroed or partly opened run is fine */

/* The settings of this site's training: its share of the batch, and inner checkpoints where the
 * outer loop needs them. They differ from site to site, so they are no part of the identity. */
struct settings run_site_settings(const struct run *r);
/* Options of this run's outer state at a site, or at the aggregator and at readers of its
 * directory; these set `remake` themselves. */
struct outer_state_options run_outer_state(const struct run *r, bool site);
/* Of a rank of a site, with the fragments that it holds. */
struct outer_state_options run_site_state(const struct run *r, const struct shards *shards);
/* The device of the outer arithmetic, where it is not the one that trains, d: because a device
 * serves one thread at a time, and of a site on a GPU. gpu: this rank's, "cuda:N". */
struct dev_options run_beside(const struct run *r, const struct dev *d, const char *gpu);
uint64_t run_scrub_every_ms(const struct run *r); /* scrub.every_h; 0: off */
uint64_t run_scrub_bytes_per_s(const struct run *r);
/* The parameters that the run starts from: the imported ones, run.init_from's, or a function of
 * run.seed. */
enum err run_initial(const struct run *r, float *slab) MUST;
/* With run.init_from: its parameters and moments become step 0 of run.dir, unless a checkpoint is
 * there.
 */
enum err run_begin_from(const struct run *r) MUST;
/* atoll import: these parameters become step 0 of run.dir, whose inner/ is `dir`. */
enum err run_import(const struct run *r, const float *slab, const char *dir) MUST;
/* The digest of the parameters that atoll import made step 0 of a run directory; "": none. */
enum err run_imported(const char *run_dir, struct arena *a, char hex[65]) MUST;
/* atoll import --checkpoint: this checkpoint becomes that of run.dir, whose inner/ is `dir`. */
enum err run_import_checkpoint(const struct run *r, const struct portable *p, const char *dir) MUST;
/* ca.pem, NAME.pem and NAME.key in tls.dir, in `r`'s memory. */
enum err run_tls(struct run *r, const char *name, struct link_tls *tls) MUST;
/* How a site dials, of site.*; target and certificate are the caller's. */
struct link_dial run_dial(const struct run *r);
/* Adds site.proxy_credentials to the proxy; before the first connection. */
enum err run_proxy(struct run *r) MUST;
/* For struct args: the setting that is nearest to a word without a section. */
void run_nearest_setting(const char *word, char *name, size_t size, unsigned *edits);
/* The same where arguments --plan.* are taken, too. */
void run_nearest_of_plan(const char *word, char *name, size_t size, unsigned *edits);
/* The reference page of all keys, Markdown. */
enum err run_reference(struct arena *a, char **text) MUST;
/* The tables of the keys of a configuration; their values are not set. */
enum err run_tables(struct arena *a, struct config_table **tables, size_t *count) MUST;
enum err run_key_reference(struct arena *a, const char *key, char **text) MUST; /* of one key */

#endif
