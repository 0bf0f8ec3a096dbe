/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_OWN_H
#define SIM_OWN_H
/* Shared by sim.c (the nodes), sim_steps.c (their steps) and sim_check.c (what must hold). */
#include "inner/config/keys.h"
#include "inner/model/table.h"
#include "outer/aggregator/aggregator.h"
#include "outer/config/amend.h"
#include "outer/diloco/interval.h"
#include "outer/diloco/stepper.h"
#include "tests/sim/env_faulty.h"
#include "tests/sim/link_sim.h"
#include "tests/sim/signer_sim.h"
#include "tests/sim/sim.h"
#include "outer/site/site.h"

enum { SIM_AGGREGATORS_MAX = 2, SIM_NODES_MAX = SIM_SITES_MAX + 1 }; /* with a copied one */
enum { SIM_BATCH = 100 };                                            /* tokens of a step */
enum { SIM_TENSORS_MAX = 32, SIM_ROUNDS_MAX = 208, SIM_TRIES_MAX = 16 };
/* Commits after the last fault: restarts within 20 s, half-open streams 20 s, back-off 30 s,
 * timeouts, a disk that was full 5 s; then at most this. */
enum { SIM_GAP_MAX_MS = 180000 };

__extension__ typedef __int128 sim_fixed; /* values times 2^100: sums without rounding */

struct sim;
struct sim_said { /* of a contribution, in its offer */
    uint64_t data_cursor, charged;
    uint8_t residual_ratio;
};
struct sim_offer {
    struct sim_offer *next;
    struct digest digest;
    struct codec_payload payload;
    struct sim_said said;
};
struct sim_made { /* a contribution, of one parent (sim_books.c) */
    struct sim_made *next;
    unsigned fragment;
    uint64_t round;
    struct digest parent;
    bool carried; /* none: what was withdrawn went into the residual */
    bool lost;    /* with the power: it was never stored */
    sim_fixed *trained;
};
struct sim_mark { /* what RESUME is told of a checkpoint */
    bool before;
    uint64_t postponed[ROUND_FRAGMENTS_MAX];
};
struct sim_node { /* a site */
    struct sim *sim;
    unsigned index; /* of the site; a copied directory is of the site that it was copied from */
    unsigned lives;
    bool copy;
    char name[12];
    struct env_faulty env;
    struct disk_faults disk;
    struct link_sim_faults net;
    struct link_sim link;
    struct signer_sim signer;
    struct outer_state replica;
    struct site *site;
    float *gradient; /* of the step under way */
    float *slab;     /* the toy's parameters, then their moments */
    float *part;     /* a fragment's local parameters */
    float *taken;    /* a recorded theta */
    float *sent;     /* all fragments as they were sent last, in fragment order */
    float *began; /* with eager starts, in fragment order: what each fragment's steps began at, kept
                     with the checkpoint; base: those of the round sent last */
    float *base;
    struct stepper stepper;
    struct stepper_update update;
    struct sim_mark mark; /* of the checkpoint about to be written */
    float weight;
    int64_t step, checkpoint_every;
    uint64_t tokens;
    struct interval interval;
    uint64_t start_ms, step_ms, away_from_ms, away_until_ms;
    bool done;
    unsigned refused;   /* times that it ended as only a person can mend, with a copy about */
    bool gave_up, over; /* over: the directory is gone, nothing starts in it again */
    bool liar;          /* sim_liar.c in place of a site */
    /* books, per element of the slab in fragment order */
    sim_fixed *trained, *included;
    bool void_books; /* took a snapshot: its residual was given up */
    bool given_up;   /* it gave a round up: with the one-round delay it may have begun steps at a
                        state of that history, and the delta is taken against the other one's */
    struct sim_made *made;                                           /* newest first */
    struct codec_payload payload[SIM_FRAGMENTS_MAX][SIM_ROUNDS_MAX]; /* as first sent */
    struct digest payload_parent[SIM_FRAGMENTS_MAX][SIM_ROUNDS_MAX]; /* of it */
    struct sim_said said[SIM_FRAGMENTS_MAX][SIM_ROUNDS_MAX];         /* and of it, too */
    struct codec_payload plain[SIM_FRAGMENTS_MAX][SIM_ROUNDS_MAX]; /* masked: what it was before */
    struct sim_offer *offers; /* of a lying site: all that it offered; else of former parents */
    uint64_t hello_term[SIM_AGGREGATORS_MAX];
    struct link_sim_server *route; /* the aggregator that this site's next call goes to */
};
struct sim_commit {
    struct manifest manifest;
    uint8_t *aggregate, *grid; /* grid: of its contributions */
};
struct sim_aggregator { /* a directory, its processes one after the other, and its history */
    struct sim *sim;
    unsigned index;
    struct env_faulty env;
    struct disk_faults disk;
    struct outer_state replica; /* its process's */
    struct link_sim_server server;
    struct link_sim_watch watch;
    struct link_service guarded; /* the service, after sim_memory.c */
    struct sim_commit *commits[SIM_FRAGMENTS_MAX][SIM_ROUNDS_MAX]; /* as far as committed */
    uint64_t committed[SIM_FRAGMENTS_MAX];
    uint64_t final[SIM_FRAGMENTS_MAX];  /* rounds before it are, as its processes have found */
    const struct aggregator *process;   /* the present one */
    uint64_t residuals_lost, lost_seen; /* lost_seen: of them, when commits were looked at last */
    bool there, over;                   /* it was started; its last process has ended */
};
struct sim_change { /* of the roster, by the operator (sim_roster.c) */
    uint8_t act;    /* enum manifest_act */
    unsigned site;
    uint64_t at;         /* as soon as fragment 0 stands before this round */
    bool made, given_up; /* answered so; refused, since no round is left */
    unsigned tries;      /* the first rounds that each may have given the fragments */
    uint64_t first[SIM_TRIES_MAX][SIM_FRAGMENTS_MAX];
    bool out[SIM_TRIES_MAX];          /* a manifest contradicts it */
    uint64_t seen[SIM_FRAGMENTS_MAX]; /* first round of it that was committed; UINT64_MAX: none */
};
struct sim_roster {
    unsigned initial, count; /* sites of outer.sites; changes that the seed has */
    struct sim_change change[SIM_CHANGES_MAX];
    bool lost; /* the journal was, before the present process */
};
enum { SIM_ACTS_MAX = 4 };
struct sim_amend {
    struct settings s; /* as a configuration of the run has them */
    struct outer_settings o;
    struct keys_base base;
    struct schedule first;  /* without amendments; sim.schedule: with those that were committed */
    struct amendments seen; /* in manifests */
    unsigned count;
    struct sim_act {
        char text[32];
        uint64_t at, round; /* asked for as soon as fragment 0 stands before round `at` */
        bool made, given_up;
    } act[SIM_ACTS_MAX];
    bool lost; /* a journal was: what no manifest carries is asked for again */
};
struct sim {
    struct sim_options o;
    struct sim_result *r;
    struct clock_sim clock;
    struct arena arena;
    struct dev *cpu;
    struct codec_work *work;
    struct tensor tensors[SIM_TENSORS_MAX];
    struct table table;
    struct fragments fragments;
    size_t first[SIM_FRAGMENTS_MAX]; /* of a fragment's elements in the books */
    struct schedule schedule;
    struct outer_opt outer;
    float *initial;
    char canonical[512];
    const char *names[SIM_SITES_MAX];
    struct sim_aggregator aggregator[SIM_AGGREGATORS_MAX]; /* the second one: sim_copies.c */
    struct signer_sim signer;                              /* the aggregator's */
    uint64_t calm_ms, progress_ms, first_done_ms, finished_ms;
    bool finished;
    struct { /* sites with a receipt for the round that the aggregator has in flight */
        uint64_t round;
        struct set sites;
    } receipts[SIM_FRAGMENTS_MAX];
    struct sim_node *stays; /* with the original aggregator; NULL: not copied yet */
    bool over;              /* a run with a copy makes no progress any more */
    unsigned nodes;         /* sites, and the copied one */
    bool acting;            /* the operator's call is under way */
    bool ordered_late;      /* an operator's act did not meet every site's contribution */
    struct sim_roster roster;
    struct sim_amend amend;
    struct sim_masked_round *masked[SIM_FRAGMENTS_MAX][SIM_ROUNDS_MAX]; /* sim_masks.c */
    struct sim_mask *masks;
    double mask_kills; /* chance that a process ends as it takes a step of secure aggregation */
    struct sim_node node[SIM_NODES_MAX]; /* last: those that a run does not have are not cleared */
};

struct outer_state_options sim_member_options(const struct sim *s, bool site);
void sim_violate(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool sim_parted(const struct sim *s); /* is a copied directory among the faults? */

/* sim.c: a site's task, an aggregator's */
void sim_site_task(void *node);
void sim_aggregator_task(void *aggregator);
enum err sim_node_make(struct sim *s, unsigned place, unsigned index) MUST;
void sim_node_end(struct sim_node *n); /* its process is killed, and none follows */
void sim_aggregator_make(struct sim *s, unsigned index);

void sim_damage(struct sim_node *n, float *part); /* what the site trained, now and then */

/* Does the aggregator's outer step of this round fail? Of the seed alone: the run without faults
 * aborts the same rounds (I1). */
bool sim_aborts(const struct sim *s, unsigned f, uint64_t round);

enum err sim_save(struct sim_node *n) MUST; /* a checkpoint, with n->mark */
/* What STEPPER_MARK records of a checkpoint that is written at this event. */
void sim_mark(struct sim_node *n, const struct stepper_event *e);

/* sim_steps.c: carries out what the stepper says of this event; a stop request too */
enum err sim_event(struct sim_node *n, enum stepper_phase phase) MUST;
/* The checkpoint is loaded, the site started. */
enum err sim_resume(struct sim_node *n, const struct sim_mark *mark) MUST;

/* Rounds by time: what is trained from here on is for the round after those that end by `step`. */
enum err sim_interval(struct sim_node *n, int64_t step) MUST;

/* sim_liar.c */
struct sim_liar {
    uint64_t term, incarnation, instance;
    unsigned in_a_row; /* lies refused since the last receipt */
    bool excluded;     /* the answer to the last hello */
};
void sim_liar_run(struct sim_node *n); /* until all others are done */

/* sim_operator.c */
void sim_operator_start(struct sim *s);
/* After each work(): closes the rounds that the seed says, once a contribution is there. */
void sim_operator_acts(struct sim_aggregator *a);
/* Is this round to be closed, as the seed says? */
bool sim_operator_orders(const struct sim *s, unsigned f, uint64_t round);

/* sim_amend.c */
enum err sim_amend_open(struct sim *s) MUST;
void sim_amend_acts(struct sim_aggregator *a);
/* A manifest that was committed: its amendments are those asked for; the schedule follows. */
void sim_amend_saw(struct sim *s, const struct manifest *m);
void sim_amend_end(struct sim *s); /* of a run that has ended */
/* outer.codec in force at the step that ends a round, by the texts. */
enum codec_kind sim_amend_codec(const struct sim *s, int64_t step);

/* sim_roster.c */
void sim_roster_open(struct sim *s);
/* After each work(): makes the change that is next, once its moment has come. */
void sim_roster_acts(struct sim_aggregator *a);
/* A manifest that was committed: is its roster what the acts make it? */
void sim_roster_saw(struct sim *s, const struct manifest *m);
void sim_roster_lost(struct sim_aggregator *a); /* the journal; all commits so far were seen */
void sim_roster_receipt(struct sim_node *n, unsigned f, uint64_t round); /* leaning.silent */
/* Sites of a round whose manifest was seen, in order; returns how many. */
unsigned sim_roster_members(const struct sim *s, unsigned f, uint64_t round,
                            unsigned members[SIM_SITES_MAX]);
/* What a site's process says of itself: its number in outer.sites; else ROUND_SITES_MAX. */
unsigned sim_roster_index(const struct sim_node *n);
void sim_roster_wait(const struct sim_node *n); /* before a site's first start: until it is added */
bool sim_roster_denies(const struct sim_node *n); /* may the aggregator refuse the site? */
bool sim_roster_left(const struct sim_node *n); /* removed: all fragments have continued without */
bool sim_roster_back(const struct sim_node *n); /* removed, and added again */
bool sim_roster_waits(const struct sim *s, const struct set *members, const struct set *u);
bool sim_roster_never(const struct sim_node *n); /* the run is over before it could be added */
void sim_roster_end(const struct sim *s);        /* into the result */

/* sim_masks.c */
struct sim_box { /* the sections of a masked contribution's file; made: whom for, and its own mask
                  */
    struct codec_payload payload, masked, made;
};
bool sim_box_read(const uint8_t *file, size_t size, struct sim_box *b); /* false: it is none */
/* The first time that a contribution leaves its site. */
void sim_masks_sent(struct sim_node *n, const struct wire_contribution *m, const struct sim_box *b);
/* Do files of the aggregator hold values of this site? */
void sim_masks_seek(struct sim_aggregator *at, const struct sim_node *n, unsigned f,
                    uint64_t round);
void sim_masks_masking(void *aggregator, void *site, const struct wire_mask *m);
void sim_masks_masked(void *aggregator, void *site, const struct wire_mask *m,
                      const struct wire_mask_answer *a);
void sim_masks_committed(struct sim_aggregator *at, unsigned f, const struct manifest *m);
void sim_masks_end(struct sim *s);
unsigned sim_masks_least(const struct sim *s, unsigned n); /* sites of a round without order */

/* sim_copies.c */
void sim_copies_start(struct sim *s);
void sim_copies_receipt(struct sim_aggregator *at, struct sim_node *n, unsigned f, uint64_t round);
void sim_copies_given_up(struct sim_node *n, unsigned f); /* the round that made its state */
void sim_copies_check_end(struct sim *s);

/* sim_memory.c */
void sim_memory_begin(struct sim *s);
void sim_memory_end(void);
struct link_service sim_memory_guard(struct sim_aggregator *a, const struct link_service *service);

/* sim_books.c: contributions that a node has made and not lost; NULL: none */
struct sim_made *sim_made_newest(const struct sim_node *n, unsigned f, uint64_t round);
struct sim_made *sim_made(const struct sim_node *n, unsigned f, uint64_t round,
                          const struct digest *parent);
struct sim_made *sim_made_add(struct sim_node *n, unsigned f, uint64_t round,
                              const struct digest *parent, bool carried);
void sim_made_compare(struct sim_node *n, const struct sim_made *before,
                      const struct sim_made *after);
void sim_made_carried(struct sim_node *n, unsigned f, uint64_t round, const uint8_t *state,
                      size_t size);
void sim_made_count(struct sim_node *n, const struct sim_aggregator *a, unsigned f,
                    uint64_t rounds);
/* What these rounds count of this directory, onto `included`; false: also of another one of the
 * same site. */
bool sim_made_included(struct sim_node *n, struct sim_aggregator *a, unsigned f, uint64_t rounds,
                       sim_fixed *included);

/* sim_check.c */
void sim_watch(struct sim_aggregator *a);
void sim_wrote(void *self, struct env_faulty *w, const char *path, const uint8_t *data, size_t n);
void sim_site_restart(struct sim_node *n); /* env_sim_restart of a site */
void sim_check_end(struct sim *s);
/* A replica as its disk holds it. */
bool sim_disk_load(struct sim *s, struct env_faulty *w, bool site, struct outer_state *m,
                   struct arena *a);
/* I2: the manifests and aggregates of a history alone lead to `state`. */
void sim_check_replay(struct sim_aggregator *a, const struct digest *state);
/* I3 of a site whose directory holds m: trained = included + residual + discarded. */
void sim_check_books(struct sim_node *n, const struct outer_state *m, const sim_fixed *included);
sim_fixed sim_fixed_of(struct sim *s, double x);
/* Values of a payload on a grid, in the simulator's own memory. */
float *sim_decoded(struct sim *s, const struct sim_aggregator *history, unsigned f, uint64_t round,
                   struct codec_payload payload, const uint8_t *grid, struct arena *a);
/* What a directory of this site sent first, where its digest is this one; else no data. */
struct codec_payload sim_sent(const struct sim *s, unsigned site, unsigned f, uint64_t round,
                              const struct digest *payload);

#endif
