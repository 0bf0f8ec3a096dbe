/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/library/site_parts.h"
#include <math.h>
#include <stdio.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/identity/tls.h"
#include "outer/link/link_many.h"

#ifdef ATOLL_NET
static enum err dial(struct site_parts *p, const struct site_parts_options *o)
{
    struct run *r = o->run;
    unsigned count = (unsigned)r->o.outer_aggregators;
    char target[256];
    struct link *links[WIRE_AGGREGATORS_MAX];
    struct link_dial d = run_dial(r);
    d.target = target;
    unsigned share = o->shards.ranks > 1 ? o->shards.ranks : 1; /* of the site's limits */
    d.rate_up /= share;
    d.rate_down /= share;
    d.book = o->book;
    d.book_self = o->book_self;
    link_tune();
    TRY(run_proxy(r));
    TRY(run_tls(r, r->o.site_name, &d.tls));
    p->tls = d.tls;
    int64_t days_left;
    TRY(tls_check(&d.tls, r->s.run_name, TLS_SITE, r->o.site_name, clock_wall_s(), &days_left));
    snprintf(target, sizeof target, "atoll://%.63s/site/%.63s", r->s.run_name, r->o.site_name);
    TRY(tls_signer_open(&p->signer, &d.tls, target));
    for (unsigned i = 0; i < count; i++) {
        bool there = keys_aggregator(r->o.site_aggregator, i, target, sizeof target);
        enum err e = there ? link_open(&links[i], &d) : ERR_CONFIG;
        for (unsigned k = 0; e != ERR_OK && k < i; k++)
            links[k]->ops->close(links[k]);
        TRY(e);
    }
    return link_many_open(&p->link, links, count);
}
#else
static enum err dial(struct site_parts *p, const struct site_parts_options *o)
{
    (void)p;
    return err_set(
        ERR_UNSUPPORTED,
        "site.aggregator = %s: this build has no network (-DNET=OFF); leave the key out to "
        "train alone",
        o->run->o.site_aggregator);
}
#endif

static enum err link_to(struct site_parts *p, const struct site_parts_options *o)
{
    if (!keys_self(&o->run->o))
        return dial(p, o);
    if (o->own)
        return o->own(o->self, &p->link);
    return err_set(ERR_UNSUPPORTED, "site.aggregator = self: this trainer has no aggregator of its "
                                    "own; give the host:port of an aggregator (atoll serve)");
}

static struct site_options site_of(const struct site_parts_options *o)
{
    const struct run *r = o->run;
    return (struct site_options){.run = r->s.run_name,
                                 .name = r->o.site_name,
                                 .index = (unsigned)r->index,
                                 .site_count = (unsigned)r->o.outer_sites.count,
                                 .aggregators = (unsigned)r->o.outer_aggregators,
                                 .canonical = r->identity,
                                 .joint = o->joint,
                                 .strict = r->o.outer_mode == OUTER_MODE_STRICT,
                                 .masks = keys_masks(&r->o),
                                 .roster = r->o.outer_sites.items,
                                 .error_feedback_decay = (float)r->o.outer_error_feedback_decay,
                                 .max_local_steps_offline = r->o.outer_max_local_steps_offline,
                                 .straggler_ms = (uint64_t)(1e3 * r->o.outer_straggler_timeout_s),
                                 .seed = (uint64_t)r->s.run_seed,
                                 .scrub_every_ms = run_scrub_every_ms(r),
                                 .scrub_bytes_per_s = run_scrub_bytes_per_s(r),
                                 .stop = o->stop,
                                 .notice = o->notice,
                                 .notice_self = o->self};
}

/* The device of the outer arithmetic, where it is not the trainer's. */
static enum err open_beside(struct site_parts *p, const struct site_parts_options *o, bool overlap)
{
    const struct dev_options d = run_beside(o->run, o->dev, o->gpu);
    return overlap || !o->dev->host_memory ? dev_open(&p->beside, &d) : ERR_OK;
}

enum err site_parts_open(struct site_parts *p, const struct site_parts_options *o)
{
    const struct outer_state_options m = run_site_state(o->run, &o->shards);
    struct site_options s = site_of(o);
    TRY(open_beside(p, o, m.schedule.overlap > 0));
    p->host = dev_arena(o->dev);
    TRY(outer_state_open(&p->replica, o->env, p->beside ? p->beside : o->dev, &m, &p->host));
    log_event(LOG_INFO, "outer_device", "kind=%s", p->replica.dev->kind);
    TRY(link_to(p, o));
    s.signer = p->signer;
    TRY(organs_open_site(&p->organs, o->run, o->env));
    s.organs = p->organs.site;
    return site_open(&p->site, o->env, p->link, &p->replica, &s, &p->host);
}

enum err site_parts_name(struct run *r)
{
    struct link_tls tls;
    if (r->index < ROUND_SITES_MAX)
        return ERR_OK;
    TRY(run_tls(r, r->o.site_name, &tls));
    if (file_exists(tls.ca) && !file_exists(tls.certificate)) /* ranks but the lead may have none */
        return err_set(ERR_CONFIG,
                       "site.name = \"%.80s\" is none of outer.sites, and there is no %s either: "
                       "correct the name; a site that joins later needs its certificate",
                       r->o.site_name, tls.certificate);
    log_event(
        LOG_INFO, "later_site",
        "text=\"this site is none of outer.sites: the aggregator says whether an operator has "
        "added it\"");
    return ERR_OK;
}

void site_parts_close(struct site_parts *p)
{
    if (p->site)
        site_close(p->site);
    organs_close(&p->organs);
    if (p->link)
        p->link->ops->close(p->link);
    if (p->signer)
        p->signer->ops->close(p->signer);
    outer_state_close(&p->replica);
    arena_free(&p->host);
    dev_close(p->beside);
    *p = (struct site_parts){0};
}

struct exchange_rules site_parts_rules(const struct run *run)
{
    const struct outer_settings *k = &run->o;
    return (struct exchange_rules){.fragments = &run->sync.fragments,
                                   .schedule = run->sync.schedule,
                                   .site_count = (unsigned)k->outer_sites.count,
                                   .strict = k->outer_mode == OUTER_MODE_STRICT,
                                   .max_local_steps_offline = k->outer_max_local_steps_offline,
                                   .every_ms = (uint64_t)llround(1e3 * k->outer_sync_interval_s),
                                   .share = k->site_batch_scale,
                                   .weights = k->outer_weights,
                                   .mix = keys_mix(k),
                                   .before_update = k->outer_before_update};
}
