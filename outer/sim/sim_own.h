#ifndef SIM_OWN_H
#define SIM_OWN_H
/* Shared by sim.c (the nodes), sim_steps.c (their steps) and sim_check.c (what must hold). */
#include "inner/model/table.h"
#include "outer/aggregator/aggregator.h"
#include "outer/diloco/interval.h"
#include "outer/diloco/stepper.h"
#include "outer/sim/link_sim.h"
#include "outer/sim/sim.h"
#include "outer/site/site.h"

enum { SIM_BATCH = 100 }; /* tokens of a step */
enum { SIM_TENSORS_MAX = 32, SIM_FRAGMENTS_MAX = 4, SIM_ROUNDS_MAX = 16 };
/* Commits after the last fault: restarts within 20 s, half-open streams 20 s, back-off 30 s,
 * timeouts, a disk that was full 5 s; then at most this. */
enum { SIM_GAP_MAX_MS = 180000 };

__extension__ typedef __int128 sim_fixed; /* values times 2^100: sums without rounding */

struct sim;
struct sim_node { /* a site */
    struct sim *sim;
    unsigned index, lives;
    char name[12];
    struct env_sim env;
    struct disk_faults disk;
    struct link_sim_faults net;
    struct link_sim link;
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
    bool marked; /* the checkpoint about to be written is from before the rounds of its step */
    float weight;
    int64_t step, checkpoint_every;
    uint64_t tokens;
    struct interval interval;
    uint64_t start_ms, step_ms, away_from_ms, away_until_ms;
    bool done;
    bool liar; /* sim_liar.c in place of a site */
    /* books, per element of the slab in fragment order */
    sim_fixed *trained, *included;
    sim_fixed *booked; /* of them, for the contribution of each fragment that was made last */
    bool void_books;   /* took a snapshot: its residual was given up */
    bool made[SIM_FRAGMENTS_MAX][SIM_ROUNDS_MAX];
    struct codec_payload payload[SIM_FRAGMENTS_MAX][SIM_ROUNDS_MAX]; /* as first sent */
    uint64_t hello_epoch;
};
struct sim_commit {
    struct manifest manifest;
    uint8_t *aggregate;
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
    struct sim_node node[SIM_SITES_MAX];
    struct env_sim disk; /* the aggregator's */
    struct disk_faults disk_faults;
    struct outer_state replica; /* its process's */
    struct link_sim_server server;
    struct link_sim_watch watch;
    uint64_t calm_ms, progress_ms, first_done_ms;
    bool finished;
    struct sim_commit commits[SIM_FRAGMENTS_MAX][SIM_ROUNDS_MAX];
    uint64_t committed[SIM_FRAGMENTS_MAX];
    uint64_t lost_seen; /* of residuals_lost, when commits were looked at last */
};

struct outer_state_options sim_member_options(const struct sim *s, bool site);
void sim_violate(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

void sim_damage(struct sim_node *n, float *part); /* what the site trained, now and then */

/* Does the aggregator's outer step of this round fail? Of the seed alone: the run without faults
 * aborts the same rounds (I1). */
bool sim_aborts(const struct sim *s, unsigned f, uint64_t round);

enum err sim_save(struct sim_node *n, bool before) MUST; /* a checkpoint */

/* sim_steps.c: carries out what the stepper says of this event; a stop request too */
enum err sim_event(struct sim_node *n, enum stepper_phase phase) MUST;
/* The checkpoint is loaded, the site started. */
enum err sim_resume(struct sim_node *n, bool before) MUST;

/* Rounds by time: what is trained from here on is for the round after those that end by `step`. */
enum err sim_interval(struct sim_node *n, int64_t step) MUST;

/* sim_liar.c */
struct sim_liar {
    uint64_t epoch, incarnation;
    bool excluded; /* the answer to the last hello */
};
void sim_liar_run(struct sim_node *n); /* until all others are done */

/* sim_check.c */
void sim_watch(struct sim *s);
void sim_wrote(void *self, struct env_sim *w, const char *path, const uint8_t *data, size_t n);
void sim_site_restart(struct sim_node *n); /* env_sim_restart of a site */
void sim_check_end(struct sim *s);

#endif
