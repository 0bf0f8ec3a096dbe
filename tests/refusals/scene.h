/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCENE_H
#define SCENE_H
/* The aggregator that refusals are tried on: the real one, on real files, at the real link, in
 * this process; three sites, strict, one fragment, round 0 committed. Sites are calls by hand. One
 * thread. Each file of cases has its own copy of the scratch directory's name: scene_here(). */
#include "outer/aggregator/aggregator.h"
#include "outer/identity/signed.h"
#include "tests/outer/link/link_hand.h"

enum { SCENE_SITES = 3 };
struct scene_site { /* a process of a site: what it puts into its headers */
    const char *name;
    struct signer *signer;
    unsigned index;
    uint64_t incarnation, instance, term;
};
struct scene {
    char root[64]; /* scratch directory */
    int port;
    struct outer_state replica; /* read while no call runs */
    struct scene_site site[SCENE_SITES];
    struct digest digest;  /* of the state that no refused call may change */
    struct signer *signer; /* the aggregator's */
    uint64_t term, instance;
    bool bare; /* offers go as they are */
};
extern struct scene scene;

#define scene_here() snprintf(scratch_root, sizeof scratch_root, "%s", scene.root)

int scene_prepare(void **state); /* scratch directory, certificates; before all */
int scene_finish(void **state);
/* An aggregator whose rounds have this codec, after round 0, which is in bf16. Open: left as it is.
 */
void scene_open(enum codec_kind codec);
/* Another one, with quarantine after this number of refused contributions in a row; the next
 * scene_open makes one without. */
void scene_open_strikes(unsigned strikes);
/* Another one, whose callers may make this number of calls a second each; the same. */
void scene_open_rate(uint32_t calls_per_s);
/* The aggregator has halted for good: its process ends, and its directory is not served again. The
 * next scene_open makes another one. */
void scene_halted(void);
/* An honest site still gets its answer, and nothing has changed. */
void scene_well(void);
/* Refused from now on: one URI a line. */
void scene_revoke(const char *text);

/* A new process of the site, which may offer other bytes than the one before. */
struct scene_site *scene_fresh(unsigned index);
struct wire_head scene_head(const struct scene_site *s);
/* With the site's identity and the signature of its state's manifest. */
struct wire_hello scene_hello(const struct scene_site *s);
/* The site's contribution to the present round; the caller frees it. */
uint8_t *scene_payload(unsigned index, size_t *n);
struct wire_contribution scene_offer(const struct scene_site *s, const uint8_t *payload, size_t n);

/* ---- what came back, in the words of refusals.h; the text lasts until the next one ---- */
const char *scene_status(grpc_status_code code);
const char *scene_outcome(enum round_outcome o);
const char *scene_err(enum err e);
/* One call with this certificate, on a connection of its own. */
const char *scene_call(const char *certificate, enum link_method method, const void *message);
const char *scene_call_on(struct hand *h, enum link_method method, const void *message);

/* A contribution message by message. */
struct scene_stream {
    struct hand h;
    struct link_call *c;
    struct arena arena;
};
/* An offer is signed as the site that it names, unless scene.bare. RESUME: the stream is
 * open for chunks. Else it is closed already. */
const char *scene_begin(struct scene_stream *s, const char *certificate,
                        const struct wire_contribution *m);
void scene_chunk(struct scene_stream *s, const struct wire_chunk *chunk, const uint8_t *data);
/* Its final answer; waits for it. `said_all`: ends the site's side first. */
const char *scene_end(struct scene_stream *s, bool said_all);
/* The whole: the n bytes, with the header's total size. */
const char *scene_contribute(const char *certificate, const struct wire_contribution *m,
                             const uint8_t *payload, size_t n);

#endif
