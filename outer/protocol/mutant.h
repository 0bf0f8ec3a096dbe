/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MUTANT_H
#define MUTANT_H
/* Deliberate protocol bugs, to show that the simulator would find them. In the program MUTANT(x) is
 * false and its branch is gone; a test compiles the outer loop once more with ATOLL_MUTANTS and
 * switches one on.
 */
#define MUTANT_LIST(X)                                                                             \
    X(RECEIPT_UNRECORDED, "receipt before the journal has the contribution")                       \
    X(RECEIPT_UNSYNCED, "receipt while the payload is not under its final, durable name")          \
    X(ADDED_TWICE, "a contribution is in the sum twice")                                           \
    X(COUNTED_UNHEARD, "a journalled contribution counts without hello in the new term")           \
    X(MAJORITY_OF_LIVE, "majority of the sites that are bound, not of the configured ones")        \
    X(TERM_KEPT, "the aggregator starts again under its old term")                                 \
    X(SENT_UNSTORED, "a contribution is sent before it is stored")                                 \
    X(RECOMPUTED, "a contribution is recomputed after a restart instead of sent again")            \
    X(RESIDUAL_LOST, "a contribution that is not included does not return to the residual")        \
    X(RESIDUAL_DOUBLED, "an included contribution returns to the residual too")                    \
    X(REPLAY_NEWEST, "a restart replays with the newest state instead of the recorded one")        \
    X(COMMITTED_BLIND, "a round is settled without a look at the outbox")                          \
    X(ACCEPTED_STALE, "an acceptance is believed to be of the next round")                         \
    X(STANDING_UNTOLD, "a site that catches up without training does not report")                  \
    X(HELLO_UNTOLD, "what a hello says about the states a site has is not taken for a report")     \
    X(SAVED_UNSTORED,                                                                              \
      "a checkpoint is written before the contributions of earlier steps are stored")              \
    X(APPLIED_EARLY, "a restart takes a round for applied one step too early")                     \
    X(START_FORGOTTEN, "an eager start is taken for the committed state when it is read again")    \
    X(SUPERSEDED_FATAL, "a late duplicate of the site's own stream ends the site")                 \
    X(RATIO_FORGOTTEN, "a restart forgets the residual ratios of the contributions that it has")   \
    X(DELTA_NEWEST, "one-round delay: a delta is taken against the newest state")                  \
    X(RESENT_NOT, "a restart forgets the round in flight")                                         \
    X(MARK_FORGOTTEN, "a checkpoint from before its step's rounds is taken for one after them")    \
    X(POSTPONED_FORGOTTEN, "a restart takes a postponed round for one that was applied")           \
    X(OVERTAKEN, "a blocking site waits for a later round while it owes an earlier one")           \
    X(OWED_FORGOTTEN, "a postponed round is never submitted")                                      \
    X(UPDATE_FIRST, "a restart before the update applies the same round twice")                    \
    X(ABORT_DROPPED, "a contribution to an aborted round does not return to the residual")         \
    X(ABORT_EARLY, "a round that an operator has closed is adopted before it is trained for")      \
    X(CLIPPED_UNBOOKED, "the clipped part of a contribution is not booked")                        \
    X(REENCODED_UNKEPT, "the residual of the aggregator's own encoding is not kept")               \
    X(UNSYNCED_CONTENTS, "a whole file gets its name without an fsync of its bytes")               \
    X(UNSYNCED_RENAMED, "a file gets its name without an fsync of the directory")                  \
    X(UNSYNCED_APPENDED, "a record is appended to the journal without fsync")                      \
    X(UNSYNCED_PART, "a payload gets its name without an fsync of its bytes")                      \
    X(UNSYNCED_ARRIVED, "a payload gets its name without an fsync of the directory")               \
    X(UNSYNCED_MADE, "a directory is made without an fsync of its parent")                         \
    X(UNSYNCED_FOUND, "a directory that is found is taken for durable")                            \
    X(UNSYNCED_FORGOTTEN, "an eager start that is not valid any more is removed without fsync")    \
    X(JOURNAL_BELIEVED, "a restart appends to the journal that it finds")                          \
    X(APPEND_BELIEVED, "a journal whose append failed is appended to again")                       \
    X(CURRENT_FIRST, "CURRENT is written before the state that it names")                          \
    X(ROLLBACK_CARRIED, "the carried residual survives a rollback")                                \
    X(WEIGHT_UNBOUNDED, "a contribution has any weight that it asks for")                          \
    X(BYTES_BELIEVED, "what arrived is not compared with its digest")                              \
    X(PARENT_BELIEVED, "a contribution to another history is accepted")                            \
    X(TWIN_SERVED, "a second process with the same incarnation is served")                         \
    X(LAST_LOSSY, "the last round is sent as any other")                                           \
    X(MEAN_UNWEIGHTED, "the sum is divided by the number of sites, not by their weights")          \
    X(CYCLE_SHIFTED, "delayed Nesterov takes the momentum's part one round late")                  \
    X(ENTRIES_KEPT, "a round begins with the contributions of the one before")                     \
    X(LENGTH_UNBOUND, "the length of the mean is not bounded (merge edit)")                        \
    X(FINAL_EARLY, "a round is final once one site has adopted it")                                \
    X(FINAL_GIVEN_UP, "rounds that an aggregator does not have are given up, final or not")        \
    X(REMOVED_KEPT, "what a removed site has stored comes back into its residual")                 \
    X(REMOVED_UNHEARD, "a process that was removed and added again continues")                     \
    X(WITHDRAWN_LOST, "what a site trained after a round that it gave up is lost")                 \
    X(INSTANCE_BELIEVED, "a site takes any aggregator of a known term for the one it knows")       \
    X(MANIFEST_UNCHAINED, "a site adopts a manifest whose parent is not its own state's")          \
    X(ROSTER_AT_ONCE, "a change of the roster is in force for the round in flight")                \
    X(ROSTER_UNRECORDED, "a change of the roster is answered before the journal has it")           \
    X(ROSTER_RESTORED, "a restart puts a change of the roster in force for the round in flight")   \
    X(ROSTER_REMOVED, "removed sites count for the majority")                                      \
    X(ROSTER_HEARD, "an eager start counts the sites that hello tells, not those of the state")    \
    X(JOURNAL_PART, "a new journal that a start has not finished is taken for whole")              \
    X(JOINED_BEFORE, "an added site adopts rounds before its first one")                           \
    X(MOVED_UNSAVED, "a site that continues at another step repeats no step after a restart")      \
    X(SEAL_UNSTORED, "a site signs a seal before it has stored that")                              \
    X(SEAL_UNRECORDED, "a seal is shown before the journal has it")                                \
    X(SEAL_ANEW, "a restart makes another seal than the one in the journal")                       \
    X(SEAL_FORGOTTEN, "a lost journal forgets the seals that sites have seen")                     \
    X(SEAL_OPEN, "a sealed round that loses a contribution is sealed without it")                  \
    X(SEAL_UNKEPT, "a site answers for a seal without keeping the evidence")                       \
    X(THRESHOLD_MAJORITY, "a majority is enough for a seal")                                       \
    X(MASK_ANEW, "a restart masks a contribution again, with another mask of its own")             \
    X(MASK_OWN_KEPT, "a site's own mask is the same in each round")                                \
    X(MASK_PAIRS_LEFT, "the masks of pairs are left out")                                          \
    X(CLEAR_SENT, "a contribution without masks, to a round that was over, is sent")               \
    X(KEYS_KEPT, "keys of final rounds are not wiped")                                             \
    X(KEYS_OWED, "a key that could not be stored is shown nevertheless")                           \
    X(KEYS_AHEAD, "the keys of a round are wiped before it is final")                              \
    X(PAIR_BEGUN, "the key of a new pair that begins before final rounds is kept")                 \
    X(PAIR_DROPPED, "the pair with a removed site is wiped while a round has both")                \
    X(PAIR_UNASKED, "a new process of the aggregator asks for no public keys")                     \
    X(PAIR_WAITED, "a round waits for the keys of sites that come later")                          \
    X(SETUP_VERSION, "a setup has the number of the newest roster, not of the roster it is for")   \
    X(SETUP_FIRST, "the pairs of a setup begin with the first rounds of the newest roster")        \
    X(JOINED_UNPAIRED, "a round has an added site before all others have pair keys with it")       \
    X(JOINED_AT_ONCE, "a round that was announced without an added site has it after all")         \
    X(ADDED_UNPAIRED, "a site is added before all others have each other's keys")                  \
    X(STOPPED_UNSTORED, "a stop request saves a checkpoint of what waits for public keys")         \
    X(SKIPPED_NEEDED, "a site skips a round that needs it")                                        \
    X(AMENDED_EARLY, "at the aggregator an amendment is in force a round early")                   \
    X(AMENDED_SWAPPED, "of two amendments of one setting for one round the first one holds")       \
    X(AMENDED_UNRECORDED, "an amendment is answered before the journal has it")                    \
    X(AMENDED_FORGOTTEN, "a restart forgets an amendment that no manifest carries yet")            \
    X(AMENDED_MISSED, "a site that joins after the manifest that brings an amendment has none")    \
    X(AMENDED_REPLAY, "a replay knows no amendments")                                              \
    X(HALF_SEALED, "a round is sealed with exactly half of its sites")                             \
    X(HALF_FINAL, "a round is final once exactly half of its sites have adopted it")               \
    X(HALF_ROSTER, "a change of the roster is final once exactly half of the sites have it")       \
    X(HALF_HALTS, "exactly half of the sites with another state stop the aggregator")              \
    X(HALF_ADOPTED, "a site adopts a quorum manifest that exactly half of the sites are in")       \
    X(HALF_SUPPLIED, "an aggregator is rebuilt from exactly half of the sites")                    \
    X(CLIP_RUNNING, "clipping takes the running median alone as its measure")

enum mutant {
    MUTANT_NONE,
#define X(name, text) MUTANT_##name,
    MUTANT_LIST(X)
#undef X
};

#ifdef ATOLL_MUTANTS
extern enum mutant mutant;
#define MUTANT(name) (mutant == MUTANT_##name)
#else
#define MUTANT(name) 0
#endif
/* Is exactly half a majority? With an odd n there is no half. */
#define MUTANT_HALF(name, have, n) (MUTANT(name) && 2 * (have) == (n))

#endif
