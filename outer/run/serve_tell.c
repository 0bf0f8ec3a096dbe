/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/serve_tell.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/config/setting.h"
#include "outer/record/version.h"
#include "outer/record/health.h"

enum { NORM_SAMPLE = 1 << 16, TEXT_MAX = 2048, WAITED_MIN_MS = 2000 };

static unsigned initial_count(const struct serve_tell *t)
{
    return (unsigned)t->run->o.outer_sites.count;
}

static const char *site_name(const struct serve_tell *t, unsigned site)
{
    unsigned n = initial_count(t);
    return site < n ? t->run->o.outer_sites.items[site] : t->added[site - n];
}

/* Of all indices, removed sites too. */
static unsigned site_count(const struct serve_tell *t)
{
    return initial_count(t) + t->added_count;
}

/* ---- the roster ---- */

static void tell_name_take(struct serve_tell *t, unsigned site, const char *name)
{
    unsigned k = site - initial_count(t);
    if (site < site_count(t) || k >= MANIFEST_ADDED_MAX)
        return;
    snprintf(t->added[k], sizeof t->added[k], "%s", name);
    t->added_count = k + 1;
}

/* True: it is a later version than was known. */
static bool tell_roster_take(struct serve_tell *t, const struct manifest *m)
{
    if (m->roster_version <= t->roster_version)
        return false;
    for (uint32_t i = 0; i < m->added; i++)
        tell_name_take(t, m->initial + i, m->names[i]);
    for (unsigned i = 0; i < site_count(t); i++)
        t->site[i].in = manifest_site(m, i) != NULL;
    t->roster_version = m->roster_version;
    return true;
}

static void names_text(const struct serve_tell *t, char out[TEXT_MAX])
{
    size_t used = 0;
    *out = 0;
    for (unsigned i = 0; i < site_count(t) && used < TEXT_MAX; i++)
        used +=
            (size_t)snprintf(out + used, TEXT_MAX - used, "%s%s", used ? "," : "", site_name(t, i));
}

static void roster_say(struct serve_tell *t, const struct manifest *m)
{
    char names[TEXT_MAX];
    struct jsonl *r = &t->record;
    names_text(t, names);
    jsonl_begin(r, "roster");
    jsonl_int(r, "version", m->roster_version);
    jsonl_text(r, "act", m->change.act == MANIFEST_ADD ? "added" : "removed");
    jsonl_text(r, "site", site_name(t, m->change.site));
    jsonl_int(r, "sites", m->site_count);
    jsonl_int(r, "indices", site_count(t));
    jsonl_text(r, "site_names", names);
    jsonl_end(r);
}

static bool lone(const struct serve_tell *t)
{
    return t->run->o.outer_aggregators <= 1;
}

/* With several aggregators each serves every count-th fragment. */
static bool serves(const struct serve_tell *t, unsigned fragment)
{
    return lone(t) || (int64_t)fragment % t->run->o.outer_aggregators == t->run->o.serve_index;
}

/* As amended so far. */
static uint64_t rounds_of(const struct serve_tell *t, uint64_t *committed)
{
    uint64_t all = 0;
    *committed = 0;
    for (unsigned f = 0; f < t->run->sync.fragments.count; f++)
        if (serves(t, f)) {
            all += schedule_rounds(&t->replica->schedule, f);
            *committed += t->replica->state[f].round;
        }
    return all;
}

/* Those that this manifest is the first one to carry. */
static void amendments_say(struct serve_tell *t, const struct manifest *m)
{
    struct jsonl *r = &t->record;
    uint64_t committed;
    char hex[65], shown[SETTING_SHOWN_MAX];
    for (uint32_t i = t->amendments; i < m->amendments.count; i++) {
        t->amendments = i + 1;
        digest_hex(&m->amendments.list[i].by, hex);
        jsonl_begin(r, "amendment");
        jsonl_int(r, "number", i + 1);
        jsonl_text(r, "setting", setting_shown(m->amendments.list[i].text, shown));
        jsonl_int(r, "from_round", (int64_t)m->amendments.list[i].round);
        jsonl_text(r, "by", hex);
        jsonl_int(r, "rounds", (int64_t)rounds_of(t, &committed));
        jsonl_int(r, "steps", t->replica->schedule.steps);
        if (t->replanned.number == i + 1) {
            jsonl_real(r, "share", t->replanned.share);
            jsonl_real(r, "trained_s", t->replanned.trained_s);
            jsonl_real(r, "waited_s", t->replanned.waited_s);
        }
        jsonl_end(r);
    }
}

/* The amendment's record is written when a manifest carries it. */
void serve_tell_replan(struct serve_tell *t, const struct aggregator_replanned *r)
{
    pthread_mutex_lock(&t->mutex);
    t->replanned = *r;
    pthread_mutex_unlock(&t->mutex);
}

/* ---- metrics.jsonl ---- */
/* Reads the sites' reports to earlier processes, and whose data their rounds include. */
static void record_read(struct serve_tell *t, const char *path)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    if (!jsonl_reader_open(&reader, path))
        return;
    while (jsonl_next(&reader, &row)) {
        unsigned site = 0;
        counted_record(&t->counted, &row);
        while (site < site_count(t) && strcmp(jsonl_string(&row, "site"), site_name(t, site)) != 0)
            site++;
        if (!jsonl_is(&row, "site") || site == site_count(t))
            continue;
        struct serve_site *s = &t->site[site];
        s->step = (int64_t)jsonl_number(&row, "step");
        s->loss = jsonl_number(&row, "loss");
        s->tokens_per_second = jsonl_number(&row, "tokens_per_second");
        s->up = (uint64_t)jsonl_number(&row, "up_total");
        s->down = (uint64_t)jsonl_number(&row, "down_total");
    }
    jsonl_reader_close(&reader);
}

enum err serve_tell_open(struct serve_tell *t, const struct run *run, struct env *env,
                         const char *command, struct arena *perm)
{
    const char *log, *path;
    *t = (struct serve_tell){.run = run, .env = env, .command = command, .began = clock_mono_s()};
    pthread_mutex_init(&t->mutex, NULL);
    t->private = keys_masks(&run->o).on || run->s.privacy_unit != PRIVACY_UNIT_NONE;
    for (unsigned i = 0; i < ROUND_SITES_MAX; i++)
        t->site[i].loss = t->site[i].tokens_per_second = NAN;
    for (unsigned i = 0; i < initial_count(t); i++)
        t->site[i].in = true;
    t->roster_version = 1;
    TRY_ALLOC(log = arena_printf(perm, "%s/log.txt", run->o.serve_dir));
    TRY_ALLOC(path = arena_printf(perm, "%s/%s", run->o.serve_dir, RECORD_FILE));
    TRY(progress_open(&t->progress, config_choice_name(log_progress_choices, run->o.log_progress),
                      site_count(t), log));
    if (run->o.log_progress == LOG_PROGRESS_AUTO)
        progress_live_only(&t->progress); /* the log line of each commit holds the same */
    return jsonl_open(&t->record, path, perm);
}

/* "a,b,c": the sites that a manifest includes, or the excluded ones. */
static void names_of(const struct serve_tell *t, const struct manifest *m, bool included, char *out,
                     size_t size)
{
    size_t used = 0;
    *out = 0;
    for (uint32_t i = 0; i < m->site_count && used < size; i++)
        if (m->sites[i].included == included)
            used +=
                (size_t)snprintf(out + used, size - used, "%s%s", used ? "," : "",
                                 manifest_name(m, (const char *const *)t->run->o.outer_sites.items,
                                               m->sites[i].site));
}

/* What the directory says of the time before this process. */
static void before_read(struct serve_tell *t, const char *path)
{
    struct manifest m;
    for (unsigned f = 0; f < t->replica->fragments->count; f++)
        if (t->replica->state[f].round &&
            outer_state_manifest(t->replica, f, t->replica->state[f].round - 1, &m) == ERR_OK) {
            (void)tell_roster_take(t, &m);
            if (m.amendments.count > t->amendments)
                t->amendments = m.amendments.count;
        }
    err_clear();
    progress_grow(&t->progress, site_count(t));
    record_read(t, path);
}

enum err serve_tell_start(struct serve_tell *t, struct outer_state *replica, const char *note,
                          struct arena *perm)
{
    const struct run *run = t->run;
    const struct config_table tables[] = {keys_inner((struct settings *)(uintptr_t)&run->s),
                                          keys_outer((struct outer_settings *)(uintptr_t)&run->o)};
    struct jsonl *r = &t->record;
    uint64_t committed;
    char *config, *path, names[TEXT_MAX];
    t->replica = replica;
    TRY_ALLOC(path = arena_printf(perm, "%s/%s", run->o.serve_dir, RECORD_FILE));
    before_read(t, path);
    TRY(config_print(tables, 2, CONFIG_RECORDED, perm, &config));
    names_text(t, names);
    jsonl_begin(r, "start");
    jsonl_text(r, "run", run->s.run_name);
    jsonl_text(r, "role", "aggregator");
    jsonl_int(r, "index", run->o.serve_index);
    jsonl_int(r, "aggregators", run->o.outer_aggregators);
    jsonl_int(r, "sites", site_count(t));
    jsonl_text(r, "site_names", names);
    jsonl_text(r, "version", version_number());
    jsonl_text(r, "commit", version_commit());
    jsonl_text(r, "compiler", version_compiler());
    jsonl_text(r, "device", note);
    jsonl_int(r, "threads", run->s.device_threads);
    jsonl_int(r, "parameters", (int64_t)run->table.parameters);
    jsonl_int(r, "steps", t->replica->schedule.steps);
    jsonl_int(r, "tokens_per_step", run->s.train_batch_tokens);
    jsonl_int(r, "rounds", (int64_t)rounds_of(t, &committed));
    jsonl_int(r, "committed", (int64_t)committed);
    jsonl_text(r, "command", t->command);
    jsonl_text(r, "config", config);
    jsonl_end(r);
    return ERR_OK;
}

void serve_tell_close(struct serve_tell *t)
{
    if (!t->run)
        return;
    progress_close(&t->progress);
    jsonl_close(&t->record);
    pthread_mutex_destroy(&t->mutex);
}

/* Estimate from at most NORM_SAMPLE values in even steps: reading all values would delay the
 * commit. */
static double norm_of(const float *x, size_t elements)
{
    size_t stride = elements / NORM_SAMPLE + 1, count = 0;
    double sum = 0;
    for (size_t i = 0; x && i < elements; i += stride, count++)
        sum += (double)x[i] * (double)x[i];
    return count ? sqrt(sum * (double)elements / (double)count) : NAN;
}

void serve_tell_commit(struct serve_tell *t, const struct manifest *m, uint64_t waited_ms)
{
    const struct outer_state_fragment *s = &t->replica->state[m->fragment];
    const struct outer_opt o = outer_state_optimizer(t->replica, m->fragment, m->round);
    size_t elements = t->run->sync.fragments.f[m->fragment].elements;
    struct jsonl *r = &t->record;
    char hex[65], with[TEXT_MAX], without[TEXT_MAX], cursors[COUNTED_TEXT_MAX];
    uint64_t up = 0;
    digest_hex(&m->state_after, hex);
    names_of(t, m, true, with, sizeof with);
    names_of(t, m, false, without, sizeof without);
    counted_text(m, cursors);
    pthread_mutex_lock(&t->mutex);
    if (tell_roster_take(t, m))
        roster_say(t, m);
    amendments_say(t, m);
    counted_add(&t->counted, m->fragment, m->round, cursors);
    for (uint32_t i = 0; i < m->site_count; i++) {
        uint64_t bytes = m->sites[i].included ? m->sites[i].payload_bytes : 0;
        t->site[m->sites[i].site].up += bytes;
        up += bytes;
    }
    jsonl_begin(r, "round");
    jsonl_int(r, "fragment", m->fragment);
    jsonl_int(r, "round", (int64_t)m->round);
    jsonl_int(r, "of", (int64_t)schedule_rounds(&t->replica->schedule, m->fragment));
    jsonl_int(r, "included", manifest_included(m));
    jsonl_int(r, "sites", m->site_count);
    jsonl_text(r, "with", with);
    jsonl_text(r, "without", without);
    jsonl_text(r, "cursors", cursors);
    jsonl_int(r, "waited_ms", (int64_t)waited_ms);
    jsonl_real(r, "weight", (double)manifest_weight(m));
    jsonl_real(r, "outer_lr", (double)o.lr);
    jsonl_real(r, "outer_momentum", (double)o.mu);
    jsonl_int(r, "up", (int64_t)up);
    jsonl_int(r, "down", (int64_t)m->aggregate_bytes);
    jsonl_real(r, "parameter_norm", norm_of(s->theta, elements));
    jsonl_real(r, "momentum_norm", norm_of(s->slab[0], elements));
    jsonl_text(r, "state", hex);
    jsonl_end(r);
    pthread_mutex_unlock(&t->mutex);
}

/* Bytes of the aggregate that led to this state. */
static uint64_t aggregate_bytes(const struct serve_tell *t, unsigned fragment, uint64_t round)
{
    struct manifest m;
    if (outer_state_manifest(t->replica, fragment, round, &m) == ERR_OK)
        return m.aggregate_bytes;
    err_clear();
    return 0; /* no longer in the kept history */
}

void serve_tell_adopt(struct serve_tell *t, unsigned site, const struct wire_report *m)
{
    struct serve_site *s = &t->site[site];
    struct jsonl *r = &t->record;
    uint64_t round = m->round ? m->round - 1 : 0, down = aggregate_bytes(t, m->fragment, round);
    pthread_mutex_lock(&t->mutex);
    tell_name_take(t, site, m->head.site);
    s->step = m->step;
    s->loss = t->private ? NAN : m->loss;
    s->tokens_per_second = m->tokens_per_second;
    s->down += down;
    jsonl_begin(r, "site");
    jsonl_text(r, "site", site_name(t, site));
    jsonl_int(r, "fragment", m->fragment);
    jsonl_int(r, "round", (int64_t)round);
    jsonl_int(r, "step", m->step);
    jsonl_real(r, "loss", s->loss);
    jsonl_real(r, "tokens_per_second", m->tokens_per_second);
    jsonl_int(r, "tokens", (int64_t)m->tokens);
    jsonl_int(r, "up_total", (int64_t)s->up);
    jsonl_int(r, "down_total", (int64_t)s->down);
    jsonl_end(r);
    pthread_mutex_unlock(&t->mutex);
}

void serve_tell_stop(struct serve_tell *t, const char *reason)
{
    pthread_mutex_lock(&t->mutex);
    jsonl_begin(&t->record, "stop");
    jsonl_text(&t->record, "reason", reason);
    jsonl_end(&t->record);
    pthread_mutex_unlock(&t->mutex);
}

/* ---- text for the operator ---- */
static const char waited_text[] = "the others wait for it";

/* A round waits for it, for longer than rounds take. */
static bool site_waited(const struct aggregator_site_status *s, uint64_t now_ms)
{
    return s->missing_ms && now_ms - s->missing_ms > WAITED_MIN_MS;
}

/* "": it is connected, and no round waits for it. */
static const char *site_words(const struct aggregator_site_status *s, bool done, uint64_t now_ms)
{
    return done                     ? "done"
           : s->removed             ? "removed"
           : s->quarantined         ? "in quarantine"
           : s->left                ? "left"
           : !s->heard_ms           ? "not heard from yet"
           : site_waited(s, now_ms) ? waited_text
           : !s->bound              ? "connection lost"
                                    : "";
}

static void site_state(const struct aggregator_site_status *s, bool done, uint64_t now_ms,
                       char *out, size_t size)
{
    const char *words = site_words(s, done, now_ms);
    if (words == waited_text)
        snprintf(out, size, "%s for %" PRIu64 " s", words, (now_ms - s->missing_ms) / 1000);
    else
        snprintf(out, size, "%s", words);
}

static void row_make(struct serve_tell *t, struct progress_line *line,
                     const struct aggregator_status *now, unsigned i)
{
    const struct serve_site *s = &t->site[i];
    *line = (struct progress_line){.step = s->step,
                                   .steps = t->replica->schedule.steps,
                                   .loss = s->loss,
                                   .tokens_per_second = s->tokens_per_second,
                                   .bytes_up = s->up,
                                   .bytes_down = s->down,
                                   .sync_seconds = -1,
                                   .eta_seconds = -1};
    for (unsigned f = 0; f < now->fragments; f++) {
        line->round += now->round[f];
        line->rounds += now->rounds[f];
    }
    snprintf(line->site, sizeof line->site, "%s",
             now->site[i].name ? now->site[i].name : site_name(t, i));
    site_state(&now->site[i], now->done, t->env->ops->now_ms(t->env), line->state,
               sizeof line->state);
}

/* Once for each change, so that a page, a report and a person far away see who is waited for. */
static void states_record(struct serve_tell *t, const struct aggregator_status *now)
{
    uint64_t now_ms = t->env->ops->now_ms(t->env);
    for (unsigned i = 0; i < now->sites; i++) {
        const struct aggregator_site_status *s = &now->site[i];
        const char *words = site_words(s, now->done, now_ms);
        bool waited = !now->done && !s->removed && site_waited(s, now_ms);
        if (t->said[i] && strcmp(words, t->said[i]) == 0 && waited == t->waited[i])
            continue;
        t->said[i] = words;
        t->waited[i] = waited;
        pthread_mutex_lock(&t->mutex);
        jsonl_begin(&t->record, "state");
        jsonl_text(&t->record, "site", s->name ? s->name : site_name(t, i));
        jsonl_text(&t->record, "text", words);
        jsonl_int(&t->record, "waited", waited);
        jsonl_end(&t->record);
        pthread_mutex_unlock(&t->mutex);
    }
}

void serve_tell_certificate(struct serve_tell *t, int64_t days_left)
{
    t->days_left = days_left;
}

void serve_tell_say(struct serve_tell *t, const char *text)
{
    progress_say(&t->progress, text);
}

bool serve_tell_health_due(struct serve_tell *t)
{
    return health_due(&t->health_s, clock_mono_s());
}

void serve_tell_health(struct serve_tell *t, const struct aggregator_status *now)
{
    pthread_mutex_lock(&t->mutex);
    health_record(&t->record, &(struct health){.dir = t->run->o.serve_dir,
                                               .certificate_days = (double)t->days_left,
                                               .term = now->term});
    pthread_mutex_unlock(&t->mutex);
}

void serve_tell_show(struct serve_tell *t, const struct aggregator_status *now)
{
    states_record(t, now);
    progress_grow(&t->progress, now->sites);
    for (unsigned i = 0; i < now->sites && i < PROGRESS_LINES_MAX; i++) {
        struct progress_line line;
        struct progress_pace *p = &t->pace[i];
        pthread_mutex_lock(&t->mutex);
        row_make(t, &line, now, i);
        if (now->site[i].heard_ms && line.step != p->last)
            progress_pace_step(p, line.step, 1, clock_mono_s());
        pthread_mutex_unlock(&t->mutex);
        if (p->count && line.step < line.steps)
            line.eta_seconds = progress_pace_eta(p, line.steps);
        progress_update(&t->progress, i, &line);
    }
}

static const char *committed_text(const struct serve_tell *t, char out[96])
{
    uint64_t committed, rounds = rounds_of(t, &committed);
    snprintf(out, 96, "%" PRIu64 " of %" PRIu64 " rounds committed", committed, rounds);
    return out;
}

void serve_tell_status(struct serve_tell *t, const struct aggregator_status *now)
{
    char rounds[96], quoted[400], text[400], valid[64] = "certificate: expired, or not valid";
    uint64_t now_ms = t->env->ops->now_ms(t->env);
    if (t->days_left >= 0)
        snprintf(valid, sizeof valid, "certificate valid for %lld days", (long long)t->days_left);
    snprintf(text, sizeof text, "aggregator of run %s: %s, %u of %u sites connected, %s",
             t->run->s.run_name, committed_text(t, rounds), now->bound, now->sites, valid);
    progress_say(&t->progress, text);
    log_event(LOG_INFO, "status", "text=%s", log_quote(quoted, sizeof quoted, text));
    for (unsigned f = 0; f < now->fragments; f++)
        log_event(LOG_INFO, "status", "fragment=%u committed=%" PRIu64 " of=%" PRIu64, f,
                  now->round[f], now->rounds[f]);
    for (unsigned i = 0; i < now->sites; i++) {
        struct progress_line line;
        const struct aggregator_site_status *s = &now->site[i];
        pthread_mutex_lock(&t->mutex);
        row_make(t, &line, now, i);
        pthread_mutex_unlock(&t->mutex);
        size_t n = (size_t)snprintf(text, sizeof text, "  site %s: %s, step %lld of %lld",
                                    line.site, *line.state ? line.state : "training",
                                    (long long)line.step, (long long)line.steps);
        if (isfinite(line.loss))
            n += (size_t)snprintf(text + n, sizeof text - n, ", loss %.4f", line.loss);
        if (s->heard_ms)
            snprintf(text + n, sizeof text - n, ", last heard from %" PRIu64 " s ago",
                     (now_ms - s->heard_ms) / 1000);
        progress_say(&t->progress, text);
        log_event(LOG_INFO, "status", "text=%s", log_quote(quoted, sizeof quoted, text + 2));
    }
}

void serve_tell_standing(struct serve_tell *t, const struct aggregator_status *now)
{
    char text[256], quoted[300], rounds[96];
    uint64_t committed, all = rounds_of(t, &committed);
    if (!committed)
        return;
    snprintf(text, sizeof text, "run %s continues: %s", t->run->s.run_name,
             committed_text(t, rounds));
    if (committed == all)
        snprintf(text, sizeof text, "run %s has all its %" PRIu64 " rounds; %s", t->run->s.run_name,
                 all,
                 now->done ? "every site has the last one: nothing is left to do"
                           : "waiting for the sites that have not confirmed the last one");
    progress_say(&t->progress, text);
    log_event(LOG_INFO, "standing", "text=%s", log_quote(quoted, sizeof quoted, text));
}

/* Whose data is in the outer state, site by site; of many sites those whose last work is missing.
 */
static void counted_say(struct serve_tell *t)
{
    enum { SITES_SHOWN = 64 };
    double all = (double)counted_tokens(&t->counted);
    for (unsigned i = 0; i < site_count(t); i++) {
        struct counted_site s = counted_of(&t->counted, i);
        double rounds =
                   t->counted.rounds ? 100.0 * (double)s.rounds / (double)t->counted.rounds : 0,
               tokens = all > 0 ? 100.0 * (double)s.tokens / all : 0;
        char text[256];
        bool removed = !t->site[i].in;
        s.ends = s.ends || removed;
        log_event(s.ends ? LOG_INFO : LOG_WARN, "share",
                  "site=%s rounds=%" PRIu64 " of=%" PRIu64 " tokens=%" PRIu64
                  " rounds_pct=%.1f tokens_pct=%.1f ends=%d",
                  site_name(t, i), s.rounds, t->counted.rounds, s.tokens, rounds, tokens, s.ends);
        if (s.ends && site_count(t) > SITES_SHOWN)
            continue;
        snprintf(text, sizeof text,
                 "  site %-15s in %" PRIu64 " of %" PRIu64 " rounds (%.0f %%), %" PRIu64
                 " tokens (%.0f %% of all)%s",
                 site_name(t, i), s.rounds, t->counted.rounds, rounds, s.tokens, tokens,
                 removed    ? ": removed from the roster"
                 : s.ends   ? ""
                 : s.rounds ? ": its last work is missing"
                            : ": none of its data counted");
        progress_say(&t->progress, text);
    }
}

/* Text for the operator, above the last rows. */
static void final_say(struct serve_tell *t, const char *hex)
{
    char rounds[96], time[32], text[400];
    progress_duration(time, sizeof time, clock_mono_s() - t->began);
    snprintf(text, sizeof text, "run %s is finished: %s; this process ran %s", t->run->s.run_name,
             committed_text(t, rounds), time);
    progress_say(&t->progress, text);
    counted_say(t);
    if (*hex) {
        snprintf(text, sizeof text, "  outer state SHA-256  %s", hex);
        progress_say(&t->progress, text);
    }
    snprintf(text, sizeof text, "  next                 atoll report %s --out report.html",
             t->run->o.serve_dir);
    progress_say(&t->progress, text);
}

enum err serve_tell_final(struct serve_tell *t)
{
    char hex[65] = "";
    struct counted_last last = {0};
    enum err e = counted_last(&last, t->replica, lone(t) ? 0 : (unsigned)t->run->o.serve_index,
                              lone(t) ? 1 : (unsigned)t->run->o.outer_aggregators);
    if (e == ERR_OK)
        e = counted_short(&last, (const char *const *)t->run->o.outer_sites.items);
    for (unsigned f = 0; !lone(t) && f < t->replica->fragments->count; f++) {
        if (!serves(t, f))
            continue;
        digest_hex(&t->replica->state[f].digest, hex);
        log_event(LOG_INFO, "final", "fragment=%u state=%s", f, hex);
        hex[0] = 0;
    }
    if (lone(t)) {
        struct digest d = outer_state_digest(t->replica, false);
        digest_hex(&d, hex);
        log_event(LOG_INFO, "final", "outer_state=%s", hex);
    }
    pthread_mutex_lock(&t->mutex);
    jsonl_begin(&t->record, "final");
    jsonl_text(&t->record, "outer", *hex ? hex : "-");
    jsonl_text(&t->record, "short", e == ERR_SHORT ? err_message() : "");
    jsonl_end(&t->record);
    pthread_mutex_unlock(&t->mutex);
    final_say(t, hex);
    return e;
}
