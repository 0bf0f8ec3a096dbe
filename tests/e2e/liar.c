/* SPDX-License-Identifier: Apache-2.0 */
/* A site that lies, over the real link and with a certificate of the run: values of 3.3e38, weights
 * of FLT_MAX, NaN, one after the other, to every round it finds, until the last is committed or it
 * is answered `excluded`.
 *
 *   liar --config run.yaml --site.name NAME [--loud] [--calls N]
 *
 * --loud: in place of the lies contributions of 0.5 everywhere, which are accepted.
 * --calls: in place of the lies each call of a site N times, right and wrong; no contribution of
 * them is accepted.
 * outer.codec must be bf16, with one fragment. Ends with 0 when every lie was refused.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/args.h"
#include "outer/config/identity.h"
#include "outer/config/run.h"
#include "outer/identity/signed.h"
#include "outer/identity/tls.h"

enum { PAUSE_MS = 20, TRIES_MAX = 3000 };

static const struct lie {
    const char *name;
    uint16_t value; /* bf16 */
    float weight;
} lies[] = {{"values", 0x7f78, 1}, {"weight", 0x3c00, FLT_MAX}, {"bits", 0x7fc0, 1}},
  loud = {"loud", 0x3f00, 1};

struct liar {
    struct run run;
    struct link *link;
    struct signer *signer;
    uint64_t term, incarnation, round, rounds;
    struct digest manifest;
    uint8_t *snapshot, *payload;
    size_t elements, snapshot_bytes, payload_bytes;
    int64_t calls, answered;
    bool loud, excluded, heard; /* heard: the last hello had an answer */
};

static struct wire_head head_of(const struct liar *l)
{
    struct wire_head h = {.config = identity_digest(l->run.identity),
                          .roster_version = 1,
                          .term = l->term,
                          .incarnation = l->incarnation,
                          .instance = 1};
    snprintf(h.run, sizeof h.run, "%s", l->run.s.run_name);
    snprintf(h.site, sizeof h.site, "%s", l->run.o.site_name);
    return h;
}

/* As a process that was just started: it may offer other bytes than the one before. */
static bool liar_hello(struct liar *l)
{
    static struct wire_hello_answer a;
    a = (struct wire_hello_answer){.outcome = ROUND_NONE};
    l->incarnation++;
    struct wire_hello m = {
        .head = head_of(l), .major = WIRE_MAJOR, .config = l->run.identity, .fragment_count = 1};
    if (l->signer->ops->certificate(l->signer, m.identity, &m.identity_bytes) != ERR_OK)
        return false;
    l->heard = l->link->ops->hello(l->link, &m, &a) == ERR_OK;
    if (!l->heard || !a.term) {
        if (a.outcome == ROUND_EXCLUDED)
            printf("hello answer=excluded text=\"%s\"\n", a.text);
        l->excluded = a.outcome == ROUND_EXCLUDED;
        return false;
    }
    l->term = a.term;
    l->round = a.fragments[0].round;
    l->manifest = a.fragments[0].manifest;
    return true;
}

/* Of the shared scales, which lie at the end of a snapshot. False: the round continued meanwhile.
 */
static bool liar_grid(struct liar *l, struct digest *grid)
{
    size_t blocks = l->elements / 256;
    struct wire_answer a = {.outcome = ROUND_NONE};
    struct wire_fetch m = {.head = head_of(l), .what = WIRE_SNAPSHOT, .round = l->round};
    memset(l->snapshot, 0, l->snapshot_bytes);
    if (l->round &&
        (l->link->ops->fetch(l->link, &m, l->snapshot, l->snapshot_bytes, &a) != ERR_OK ||
         a.outcome != ROUND_NONE))
        return false;
    *grid = digest_of(l->snapshot + l->snapshot_bytes - blocks, blocks);
    return true;
}

static void payload_make(struct liar *l, uint16_t value)
{
    size_t blocks = l->elements / 256, bits = (blocks + 7) / 8;
    memset(l->payload, 120, blocks); /* a block code as good as any */
    memset(l->payload + blocks, 0, bits);
    for (size_t b = 0; b < blocks; b++)
        l->payload[blocks + b / 8] |= (uint8_t)(1 << b % 8);
    for (size_t i = 0; i < l->elements; i++)
        memcpy(l->payload + blocks + bits + 2 * i, &value, sizeof value);
    l->payload_bytes = blocks + bits + 2 * l->elements;
}

static bool lie_refused(struct liar *l, const struct lie *lie)
{
    struct wire_answer a = {.outcome = ROUND_NONE};
    struct wire_contribution m = {
        .round = l->round, .codec = CODEC_BF16, .parent = l->manifest, .weight = lie->weight};
    m.head = head_of(l);
    if (!liar_grid(l, &m.grid))
        return true;
    payload_make(l, lie->value);
    m.payload_bytes = l->payload_bytes;
    m.payload = digest_of(l->payload, l->payload_bytes);
    if (signed_header_sign(l->signer, &m) != ERR_OK ||
        l->link->ops->contribute(l->link, &m, l->payload, &a) != ERR_OK)
        return true;
    printf("lie=%s round=%llu answer=%s text=\"%s\"\n", lie->name, (unsigned long long)l->round,
           round_outcome_name(a.outcome), a.text);
    fflush(stdout);
    return l->loud || a.outcome != ROUND_RECEIPT;
}

/* One of each call, about rounds that are in flight, over, or made up (i of them). What is answered
 * does not matter here, and neither does what an aggregator that is rebuilt would be sent; false:
 * hello is not answered at all. */
static bool calls_make(struct liar *l, uint64_t i)
{
    static struct wire_poll_answer poll_answer;
    static struct wire_mask_answer mask_answer;
    struct wire_answer a = {.outcome = ROUND_NONE};
    struct wire_head h = head_of(l);
    struct wire_poll poll = {.head = h, .fragment = (uint32_t)(i % 3), .round = i};
    struct wire_report report = {.head = h, .round = i, .step = (int64_t)i, .loss = NAN};
    struct wire_fetch fetch = {.head = h, .what = WIRE_AGGREGATE, .round = i};
    uint8_t body[64] = {0};
    struct wire_mask mask = {.head = h,
                             .step = (enum wire_mask_step)(1 + i % WIRE_MASK_LAST),
                             .round = i,
                             .body = body,
                             .body_bytes = sizeof body};
    struct wire_contribution part = {.head = h,
                                     .supply = (enum wire_supply)(i % (WIRE_SUPPLY_LAST + 1)),
                                     .round = i,
                                     .payload = digest_of(body, sizeof body),
                                     .payload_bytes = sizeof body};
    struct wire_leave leave = {.head = h};
    snprintf(leave.text, sizeof leave.text, "%llu goes", (unsigned long long)i);
    memset(&report.state, (int)i, sizeof report.state);
    if (l->link->ops->poll(l->link, &poll, 0, &poll_answer) == ERR_OK)
        l->answered++;
    if (l->link->ops->report(l->link, &report, &a) == ERR_OK)
        l->answered++;
    if (l->link->ops->fetch(l->link, &fetch, l->snapshot, l->snapshot_bytes, &a) == ERR_OK)
        l->answered++;
    if (l->link->ops->mask(l->link, &mask, &mask_answer) == ERR_OK)
        l->answered++;
    if (part.supply && signed_header_sign(l->signer, &part) == ERR_OK &&
        l->link->ops->contribute(l->link, &part, body, &a) == ERR_OK)
        l->answered++;
    if (l->link->ops->leave(l->link, &leave, &a) == ERR_OK)
        l->answered++;
    liar_hello(l);
    return l->heard;
}

static bool calls_run(struct liar *l)
{
    l->incarnation = 1000; /* after any process of the site whose place this one takes */
    liar_hello(l);
    bool good = l->heard;
    for (int64_t i = 0; good && i < l->calls; i++) {
        good = calls_make(l, (uint64_t)i) &&
               (i < l->calls / 2 || i % 16 ||
                !l->term || /* lies bring quarantine: in the second half */
                lie_refused(l, &lies[(size_t)i / 16 % (sizeof lies / sizeof *lies)]));
        l->manifest.bytes[0] ^= (uint8_t)(i % 2); /* an offer with another parent */
    }
    printf("calls=%lld answered=%lld\n", (long long)l->calls, (long long)l->answered);
    return good && l->answered > l->calls;
}

static enum err liar_open(struct liar *l, const struct args *args, const char *config)
{
    const struct run_source source = {.role = RUN_SITE, .config = config, .args = args};
    struct link_dial d = {.server_name = "localhost"};
    TRY(run_open(&l->run, &source));
    l->elements = l->run.sync.fragments.f[0].elements;
    l->rounds = schedule_rounds(&l->run.sync.schedule, 0);
    l->snapshot_bytes = outer_opt_bytes(&l->run.sync.outer) * l->elements + l->elements / 256;
    TRY_ALLOC(l->snapshot = arena_alloc(&l->run.perm, l->snapshot_bytes));
    TRY_ALLOC(l->payload = arena_alloc(&l->run.perm, 4 * l->elements));
    TRY(run_tls(&l->run, l->run.o.site_name, &d.tls));
    d.target = l->run.o.site_aggregator;
    char uri[TLS_URI_MAX];
    snprintf(uri, sizeof uri, "atoll://%.63s/site/%.63s", l->run.s.run_name, l->run.o.site_name);
    TRY(tls_signer_open(&l->signer, &d.tls, uri));
    return link_open(&l->link, &d);
}

static bool liar_run(struct liar *l)
{
    bool refused = true;
    struct wire_answer a;
    for (unsigned i = 0; refused && i < TRIES_MAX; i++) {
        nanosleep(&(struct timespec){0, PAUSE_MS * 1000000L}, NULL);
        bool bound = liar_hello(l);
        if (l->excluded)
            return refused;
        if (!bound)
            continue;
        if (l->round == l->rounds)
            break;
        refused = lie_refused(l, l->loud ? &loud : &lies[i % (sizeof lies / sizeof *lies)]);
    }
    struct wire_leave m = {.head = head_of(l)};
    return refused && l->link->ops->leave(l->link, &m, &a) == ERR_OK;
}

int main(int argc, char **argv)
{
    static struct liar l;
    const char *config = NULL;
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &config, .value = "FILE", .required = true, .help = "Configuration."},
        {"calls", ARGS_INT, &l.calls, .max = 1e9, .value = "N", .help = "Each call, N times."},
        {"loud", ARGS_FLAG, &l.loud, .help = "Contributions that are only too loud."},
    };
    struct args args = {
        .command = "liar", .settings = run_nearest_setting, .options = options, .count = 3};
    link_tune();
    l.run.perm = arena_make(0);
    enum err e = args_parse(&args, argc, argv, &l.run.perm);
    if (e == ERR_OK)
        e = liar_open(&l, &args, config);
    bool refused = e == ERR_OK && (l.calls ? calls_run(&l) : liar_run(&l));
    if (e != ERR_OK)
        fprintf(stderr, "%s\n", err_message());
    if (l.link)
        l.link->ops->close(l.link);
    if (l.signer)
        l.signer->ops->close(l.signer);
    run_close(&l.run);
    return refused ? 0 : 1;
}
