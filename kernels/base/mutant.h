/* SPDX-License-Identifier: Apache-2.0 */
#ifndef METHOD_MUTANT_H
#define METHOD_MUTANT_H
/* Methods without their mechanism, to show that the acceptances of deploy/reproduce.sh would see
 * it: each row of tests/reproduce names one (`broken:`) or a key that does the same. In the program
 * WITHOUT(x) is false and its branch is gone; tests/reproduce/CMakeLists.txt compiles these files
 * once more with ATOLL_WITHOUT, and the environment's ATOLL_MUTANT names the one that is on.
 * Bugs of the protocol, which the simulator finds, are in outer/protocol/mutant.h.
 */
#define METHOD_MUTANT_LIST(X)                                                                      \
    X(SERVER_FEEDBACK, "1-bit sums: the server keeps no error")                                    \
    X(BUCKET_CLIP, "a bucket's gradients are summed as they are")                                  \
    X(RADIAL_MERGE, "outer.merge = radial is the mean")                                            \
    X(DROP_SCALE, "a layer that may be dropped is not scaled by 1/p")                              \
    X(BEFORE_UPDATE, "outer.before_update is not heeded")                                          \
    X(CAME_DOUBT, "CAME: a step is not divided by its distance to the moment")                     \
    X(LAMB_RATIO, "LAMB: the ratio is 1")                                                          \
    X(LANS_NORM, "LANS: gradients are not divided by their norm")                                  \
    X(MERIT_RATIO, "MERIT: elements have their tensor's ratio")                                    \
    X(QH_WEIGHT, "quasi-hyperbolic Adam: the step has no part of the newest gradient")             \
    X(MUON_ORTHOGONAL, "Muon: the gradient is not made orthogonal")                                \
    X(LAMB_SCALES, "1-bit LAMB: the moments of all tensors have one scale")                        \
    X(ZEROONE_RESTORE, "0/1 Adam: a sum starts from this rank's parameters")                       \
    X(CHUNKED_SUM, "narrow sums have one level")                                                   \
    X(STOCHASTIC_ROUNDING, "stochastic rounding is to the nearest")                                \
    X(DEAL_SORTED, "sequences are dealt as they come, not by length")                              \
    X(STANDARD_TERM, "the standardization loss is left out")                                       \
    X(HEADS_APART, "heads need not be orthogonal")                                                 \
    X(STAGE_FREEZE, "in a stage all layers that run learn")                                        \
    X(STALE_GRADIENTS, "modules run one after the other, with fresh gradients")                    \
    X(ACCUMULATION, "ranks sum after each micro-batch")                                            \
    X(KNEE_EFFICIENCY, "the knee may have any efficiency")                                         \
    X(LINK_ALPHA, "a message costs its bytes alone")                                               \
    X(EXPOSED_SUMS, "the planner takes all sums for hidden")                                       \
    X(CLASS_UTILISATION, "the planner takes all classes of work to run at the peak")               \
    X(MEMORY_LIMIT, "the planner takes everything to fit")

enum method_mutant {
    METHOD_WHOLE,
#define X(name, text) WITHOUT_##name,
    METHOD_MUTANT_LIST(X)
#undef X
};

#ifdef ATOLL_WITHOUT
extern enum method_mutant method_mutant;
#define WITHOUT(name) (method_mutant == WITHOUT_##name)
#else
#define WITHOUT(name) 0
#endif

#endif
