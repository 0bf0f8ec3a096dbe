/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/refusals/masked_scene.h"
#include <pthread.h>
#include "outer/config/identity.h"
#include "outer/masks/masked.h"
#include "outer/organ/roster/roster_organ.h"
#include "outer/site/site_own.h"
#include "tests/outer/site/exchange.h"
#include "tests/outer/toy_replica.h"

#ifdef SANITIZED
enum { PATIENCE = 4 };
#else
enum { PATIENCE = 1 };
#endif
enum { STEPS = 400, EVERY = 4, WAIT_MS = PATIENCE * 120000, SLOWER = 20, ELEMENTS_MAX = 8192 };
static const char *const names[MASKED_SITES_MAX] = {"a", "b", "c", "d"};
static const char canonical[] = "outer.every=4\nprivacy.secure=sum\n";
static const struct round_masks masks = {.on = true, .colluding = 1};

struct member { /* a site */
    unsigned index;
    char directory[96];
    struct signer *signer;
    pthread_t thread;
    bool running, leaves; /* leaves: an operator has removed it */
    atomic_bool ended;
    atomic_int stop;
    atomic_uint done; /* rounds */
    enum err e;       /* with which it has ended */
    char why[256];
    struct dev *dev;
    struct codec_work *work;
    struct arena arena;
    struct env *env;
    struct env_ops quick;
    struct outer_state replica;
    struct link *link;
    struct site *site;
    float local[ELEMENTS_MAX];
};
static struct {
    bool open;
    unsigned n, runs;
    atomic_uint let; /* rounds that the sites may make */
    struct table table;
    struct fragments fragments;
    struct schedule schedule;
    float *slab;
    struct arena arena;
    struct dev *dev;
    struct codec_work *work;
    struct env *env;
    struct outer_state replica;
    struct aggregator *aggregator;
    struct link_service truth;
    struct link_server *server;
    int port;
    struct member member[MASKED_SITES_MAX];
    _Atomic(const struct masked_lie *) lie;
    atomic_bool polled;
    atomic_bool commit_fails;
    atomic_uint_fast64_t skew; /* ms by which the sites' clocks are ahead */
} t;

/* ---- what was said ---- */

static struct {
    pthread_mutex_t mutex;
    unsigned refusals;
    char last[64];
    struct digest signed_[8], revealed[8];
    unsigned signed_count, revealed_count;
} said = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void said_clear(void)
{
    pthread_mutex_lock(&said.mutex);
    said.refusals = said.signed_count = said.revealed_count = 0;
    said.last[0] = 0;
    pthread_mutex_unlock(&said.mutex);
}

static void log_keep(void *self, enum log_level level, const char *line)
{
    (void)self, (void)level;
    const char *answer = strstr(line, " answer=");
    if (getenv("VERBOSE"))
        fprintf(stderr, "%s\n", line);
    if (!answer || (!strstr(line, "ev=seal_refused") && !strstr(line, "ev=key_refused")))
        return;
    pthread_mutex_lock(&said.mutex);
    said.refusals++;
    sscanf(answer, " answer=%63s", said.last);
    pthread_mutex_unlock(&said.mutex);
}

static void body_keep(struct digest *to, unsigned *count, const struct wire_mask *m)
{
    struct digest d = digest_of(m->body, m->body_bytes);
    pthread_mutex_lock(&said.mutex);
    bool seen = false;
    for (unsigned i = 0; i < *count; i++)
        seen = seen || digest_equal(&to[i], &d);
    assert_true(*count < 8);
    if (!seen)
        to[(*count)++] = d;
    pthread_mutex_unlock(&said.mutex);
}

static char site_of(const char *peer)
{
    return peer[strlen(peer) - 1];
}

static void bent_mask(void *self, const char *peer, const struct wire_mask *m,
                      struct wire_mask_answer *answer)
{
    const struct masked_lie *lie = atomic_load(&t.lie);
    char site = site_of(peer);
    if (site == 'a' && m->body_bytes && m->step == WIRE_MASK_SIGN)
        body_keep(said.signed_, &said.signed_count, m);
    if (site == 'a' && m->body_bytes && m->step == WIRE_MASK_REVEAL)
        body_keep(said.revealed, &said.revealed_count, m);
    if (lie && lie->holds && lie->holds(site, m)) {
        answer->answer.outcome = ROUND_PENDING;
        return;
    }
    t.truth.mask(self, peer, m, answer);
    if (lie && lie->masks && site == 'a' && !t.polled)
        lie->masks(m, answer);
}

/* What Mask would answer, and the lie of it, in the place of a poll's body. */
static void bent_body(const struct masked_lie *lie, const char *peer, const struct wire_poll *m,
                      struct wire_poll_answer *answer)
{
    static struct wire_mask_answer told; /* under the lock of the service */
    const struct wire_mask ask = {
        .head = m->head, .step = answer->wants, .fragment = m->fragment, .round = m->round};
    if (answer->wants != WIRE_MASK_SIGN && answer->wants != WIRE_MASK_REVEAL)
        return;
    told.answer = (struct wire_answer){.outcome = ROUND_NONE};
    told.body_bytes = 0;
    t.truth.mask(t.truth.self, peer, &ask, &told);
    if (lie->masks)
        lie->masks(&ask, &told);
    answer->body_bytes = told.answer.outcome == ROUND_NONE ? told.body_bytes : 0;
    memcpy(answer->body, told.body, answer->body_bytes);
}

static void bent_poll(void *self, const char *peer, const struct wire_poll *m,
                      struct wire_poll_answer *answer)
{
    const struct masked_lie *lie = atomic_load(&t.lie);
    t.truth.poll(self, peer, m, answer);
    answer->body_bytes = 0; /* the site asks with Mask, where the lies are told */
    if (lie && lie->polls && site_of(peer) == 'a')
        lie->polls(m, answer);
    if (lie && t.polled && site_of(peer) == 'a')
        bent_body(lie, peer, m, answer);
}

void masked_ask(char site, const struct wire_mask *m, struct wire_mask_answer *answer)
{
    char peer[64];
    snprintf(peer, sizeof peer, "atoll://test/site/%c", site);
    memset(&answer->answer, 0, sizeof answer->answer);
    t.truth.mask(t.truth.self, peer, m, answer);
}

/* ---- a site ---- */

static uint64_t quick_now(struct env *w)
{
    (void)w;
    return clock_mono_ms() + t.skew;
}

static void quick_sleep(struct env *w, uint64_t ms)
{
    (void)w;
    uint64_t real = ms < SLOWER ? ms : ms / SLOWER;
    usleep((useconds_t)(1000 * real));
    t.skew += ms - real;
}

static enum err quick_owned(struct env *w)
{
    if (w->ops == &t.member[0].quick && atomic_exchange(&t.commit_fails, false))
        return err_set(ERR_STOPPED, "the test ends it");
    return ERR_OK;
}

static enum err member_open(struct member *s)
{
    struct outer_state_options mo = {.fragments = &t.fragments,
                                     .schedule = t.schedule,
                                     .keep = OUTER_STATES_MIN,
                                     .residuals = true};
    struct site_options o = {.run = "test",
                             .name = names[s->index],
                             .index = s->index,
                             .site_count = t.n,
                             .canonical = canonical,
                             .strict = true,
                             .error_feedback_decay = 1,
                             .straggler_ms = 10000,
                             .seed = 1,
                             .stop = &s->stop,
                             .masks = masks,
                             .roster = names,
                             .organs = {.count = 1, .at = {roster_at_site()}},
                             .signer = s->signer};
    char target[32];
    struct link_dial d = {
        .target = target, .tls = fake_tls("ca.pem", o.name), .keepalive_ms = FAKE_KEEPALIVE_MS};
    snprintf(target, sizeof target, "127.0.0.1:%d", t.port);
    mo.discards = schedule_discards(&t.schedule, 1);
    TRY(outer_opt_make(&mo.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f));
    TRY(toy_device(&s->dev, &s->work));
    TRY(env_posix_open(&s->env, s->directory));
    s->quick = *s->env->ops;
    s->quick.now_ms = quick_now;
    s->quick.sleep_ms = quick_sleep;
    s->quick.owned = quick_owned;
    s->env->ops = &s->quick;
    TRY(outer_state_open(&s->replica, s->env, s->dev, &mo, &s->arena));
    TRY(link_open(&s->link, &d));
    return site_open(&s->site, s->env, s->link, &s->replica, &o, &s->arena);
}

static enum err member_round(struct member *s, uint64_t round)
{
    struct site_submission w = {.round = round,
                                .base = round,
                                .weight = 1,
                                .data_cursor = 1000 * (round + 1),
                                .step = (int64_t)(EVERY * (round + 1))};
    for (size_t i = 0; i < t.fragments.f[0].elements; i++)
        s->local[i] = s->replica.state[0].theta[i] -
                      (float)((int)((i * 7 + s->index * 13 + round * 5) % 97) - 48) / 1024;
    return exchange(s->site, &s->replica, &w, s->local);
}

static enum err member_run(struct member *s)
{
    TRY(member_open(s));
    TRY(site_start(s->site, t.slab));
    for (;;) {
        uint64_t round = s->replica.state[0].round;
        atomic_store(&s->done, (unsigned)round);
        while (round >= t.let && !s->stop)
            usleep(1000);
        if (s->stop)
            return ERR_STOPPED;
        TRY(member_round(s, round));
    }
}

static void *member_main(void *self)
{
    struct member *s = self;
    s->e = member_run(s);
    snprintf(s->why, sizeof s->why, "%s", err_message());
    site_close(s->site);
    s->site = NULL;
    if (s->link)
        s->link->ops->close(s->link);
    s->link = NULL;
    outer_state_close(&s->replica);
    env_posix_close(s->env);
    s->env = NULL;
    codec_close(s->work);
    dev_close(s->dev);
    arena_free(&s->arena);
    atomic_store(&s->ended, true);
    return NULL;
}

static void member_starts(struct member *s)
{
    s->arena = arena_make(0);
    s->e = ERR_OK;
    s->dev = NULL;
    s->work = NULL;
    memset(&s->replica, 0, sizeof s->replica);
    atomic_store(&s->stop, 0);
    atomic_store(&s->ended, false);
    atomic_store(&s->done, 0);
    assert_int_equal(pthread_create(&s->thread, NULL, member_main, s), 0);
    s->running = true;
}

static void member_joins(struct member *s)
{
    if (s->running)
        pthread_join(s->thread, NULL);
    s->running = false;
}

/* ---- the run ---- */

static void aggregator_begins(void)
{
    char root[96];
    struct outer_state_options mo = {
        .fragments = &t.fragments, .schedule = t.schedule, .keep = OUTER_STATES_MIN};
    struct aggregator_options o = {.run = "test",
                                   .sites = {.names = names, .count = t.n, .room = 8},
                                   .canonical = canonical,
                                   .strict = true,
                                   .bounds = {.share_max = 100},
                                   .masks = masks,
                                   .signer = scene.signer};
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = MASKED_SITES_MAX,
                                 .calls_per_s = 1000,
                                 .tls = fake_tls("ca.pem", "aggregator"),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS};
    snprintf(root, sizeof root, "%s/masked.%u", scene.root, t.runs);
    assert_int_equal(toy_device(&t.dev, &t.work), ERR_OK);
    assert_int_equal(env_posix_open(&t.env, root), ERR_OK);
    assert_int_equal(toy_replica(&t.replica, t.env, t.dev, mo, t.slab, &t.arena), ERR_OK);
    assert_int_equal(roster_at_aggregator(&o.organs.at[o.organs.count++], &t.arena), ERR_OK);
    assert_int_equal(aggregator_open(&t.aggregator, t.env, &t.replica, &o, &t.arena), ERR_OK);
    struct link_service service = t.truth = aggregator_service(t.aggregator);
    service.mask = bent_mask;
    service.poll = bent_poll;
    assert_int_equal(link_serve(&t.server, &listen, &service, &t.port), ERR_OK);
}

static void signers_open(void)
{
    char uri[64];
    for (unsigned i = 0; i < t.n; i++) {
        struct link_tls files = fake_tls("ca.pem", names[i]);
        if (i == 3 && access(scratch("d.pem"), F_OK) != 0)
            fake_issue(TLS_SITE, "d");
        snprintf(uri, sizeof uri, "atoll://test/site/%s", names[i]);
        assert_int_equal(tls_signer_open(&t.member[i].signer, &files, uri), ERR_OK);
    }
}

void masked_open(unsigned sites, const struct masked_lie *lie)
{
    static struct tensor tensors[TOY_TENSORS_MAX];
    snprintf(scratch_root, sizeof scratch_root, "%s", scene.root);
    if (t.open && t.n == sites && !lie)
        return;
    masked_close();
    t.open = true;
    t.n = sites;
    t.runs++;
    t.arena = arena_make(0);
    t.table = toy_table(tensors, 4);
    assert_in_range(t.table.elements, 1, ELEMENTS_MAX);
    assert_non_null(t.slab = toy_slab(&t.table, &t.arena));
    assert_int_equal(
        fragment_make(&t.fragments, &t.table, &(struct fragment_plan){.count = 1}, &t.arena),
        ERR_OK);
    t.schedule = schedule_streaming(STEPS, EVERY, 1, 1, CODEC_INT4);
    t.schedule.full_precision = CODEC_FIXED;
    t.schedule.masked_sites = sites;
    atomic_store(&t.let, 0);
    signers_open();
    log_to(log_keep, NULL);
    masked_lies(lie);
    aggregator_begins();
    for (unsigned i = 0; i < t.n; i++) {
        struct member *s = &t.member[i];
        s->index = i;
        s->leaves = false;
        snprintf(s->directory, sizeof s->directory, "%s/masked.%u.%s", scene.root, t.runs,
                 names[i]);
        member_starts(s);
    }
}

void masked_close(void)
{
    if (!t.open)
        return;
    t.open = false;
    for (unsigned i = 0; i < t.n; i++)
        atomic_store(&t.member[i].stop, 1);
    for (unsigned i = 0; i < t.n; i++) {
        member_joins(&t.member[i]);
        t.member[i].signer->ops->close(t.member[i].signer);
        t.member[i].signer = NULL;
    }
    link_shutdown(t.server, 1000);
    assert_int_equal(aggregator_failed(t.aggregator), ERR_OK);
    aggregator_close(t.aggregator);
    outer_state_close(&t.replica);
    env_posix_close(t.env);
    codec_close(t.work);
    dev_close(t.dev);
    arena_free(&t.arena);
}

void masked_lies(const struct masked_lie *lie)
{
    atomic_store(&t.lie, lie);
    said_clear();
}

void masked_polled(bool on)
{
    atomic_store(&t.polled, on);
}

void masked_let(void)
{
    t.let++;
}

/* ---- what became of it ---- */

static unsigned refusals(void)
{
    pthread_mutex_lock(&said.mutex);
    unsigned n = said.refusals;
    pthread_mutex_unlock(&said.mutex);
    return n;
}

const char *masked_refusal(unsigned times)
{
    static char text[80];
    for (int i = 0; i < WAIT_MS && refusals() < times; i += 2) {
        if (t.member[0].ended) {
            fprintf(stderr, "site a ended: %s\n", t.member[0].why);
            return "ended";
        }
        usleep(2000);
    }
    if (refusals() < times)
        return "nothing";
    snprintf(text, sizeof text, "waits %s", said.last);
    return text;
}

unsigned masked_signed(void)
{
    return said.signed_count;
}

unsigned masked_revealed(void)
{
    return said.revealed_count;
}

uint64_t masked_version(void)
{
    struct manifest m;
    uint64_t round = t.replica.state[0].round;
    if (round == 0)
        return 1;
    assert_int_equal(outer_state_manifest(&t.replica, 0, round - 1, &m), ERR_OK);
    return m.roster_version;
}

uint64_t masked_round(void)
{
    return t.replica.state[0].round;
}

void masked_well(void)
{
    struct manifest m;
    unsigned let = t.let;
    for (unsigned i = 0; i < t.n; i++) {
        struct member *s = &t.member[i];
        if (s->leaves)
            continue;
        for (int waited = 0; waited < WAIT_MS && s->done < let && !s->ended && s->running;
             waited += 2)
            usleep(2000);
        if (s->running && (s->ended || s->done != let))
            fail_msg("site %s: %s after round %u of %u: %s", names[i], s->ended ? "ended" : "waits",
                     s->done, let, s->ended ? s->why : said.last);
    }
    assert_int_equal(t.replica.state[0].round, let);
    assert_int_equal(outer_state_manifest(&t.replica, 0, let - 1, &m), ERR_OK);
    assert_false(manifest_aborted(&m));
    assert_int_equal(manifest_included(&m), m.site_count);
    for (unsigned i = 0; i < t.n; i++)
        if (t.member[i].running && !t.member[i].leaves)
            assert_memory_equal(&t.member[i].replica.state[0].digest, &t.replica.state[0].digest,
                                sizeof(struct digest));
}

/* ---- for lies ---- */

struct signer *masked_signer(char site)
{
    return site == '-' ? scene.signer : t.member[site - 'a'].signer;
}

struct wire_head masked_head(char site)
{
    const struct site *volatile *at = (const struct site *volatile *)&t.member[site - 'a'].site;
    for (int i = 0; i < WAIT_MS && !(*at && (*at)->call.heard); i++)
        usleep(1000);
    const struct site *s = *at;
    assert_non_null(s);
    struct wire_head h = {.config = s->own.config,
                          .roster_version = s->members.version[0],
                          .term = s->peer[0].term,
                          .incarnation = s->call.incarnation,
                          .instance = s->call.instance};
    snprintf(h.run, sizeof h.run, "test");
    snprintf(h.site, sizeof h.site, "%c", site);
    return h;
}

struct seal_context masked_context(void)
{
    struct seal_context c = {.run = "test",
                             .config = identity_digest(canonical),
                             .roster_version = 1,
                             .sites = t.n,
                             .colluding = masks.colluding};
    for (unsigned i = 0; i < t.n; i++)
        set_put(&c.members, i, true);
    return c;
}

int masked_port(void)
{
    return t.port;
}

enum round_outcome masked_operate(enum wire_act act, const char *site)
{
    char target[32];
    struct link_dial d = {
        .target = target, .tls = fake_tls("ca.pem", "operator"), .keepalive_ms = FAKE_KEEPALIVE_MS};
    struct wire_operate m = {.act = act, .round = masked_round(), .version = masked_version() + 1};
    struct wire_answer answer;
    snprintf(target, sizeof target, "127.0.0.1:%d", t.port);
    snprintf(m.site, sizeof m.site, "%s", site);
    assert_int_equal(link_operate(&d, &m, &answer, WAIT_MS), ERR_OK);
    if (act == WIRE_ROSTER_REMOVE)
        t.member[site[0] - 'a'].leaves = true;
    return answer.outcome;
}

void masked_site_ends(char site)
{
    member_joins(&t.member[site - 'a']);
}

void masked_site_stops(char site)
{
    atomic_store(&t.member[site - 'a'].stop, 1);
    member_joins(&t.member[site - 'a']);
}

void masked_site_starts(char site)
{
    member_starts(&t.member[site - 'a']);
}

void masked_commit_fails(void)
{
    atomic_store(&t.commit_fails, true);
}

static const struct codec *codec_now(void)
{
    return codec_get(outer_state_codec(&t.replica, 0));
}

uint64_t masked_clear_bytes(void)
{
    return codec_now()->payload_max(codec_now(), t.fragments.f[0].elements);
}

struct wire_contribution masked_offer(void)
{
    const struct outer_state_fragment *state = &t.replica.state[0];
    struct mask_layout l;
    assert_int_equal(masked_layout(&l, codec_now(), t.fragments.f[0].elements, t.n), ERR_OK);
    return (struct wire_contribution){.head = masked_head('a'),
                                      .round = state->round,
                                      .payload_bytes = l.size_bytes,
                                      .codec = (uint32_t)codec_now()->kind,
                                      .data_cursor = 1000 * state->round,
                                      .parent = state->manifest,
                                      .grid = outer_state_grid(&t.replica, 0),
                                      .payload = digest_of("y", 1),
                                      .weight = 1};
}
