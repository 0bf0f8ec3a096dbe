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
    X(BEFORE_UPDATE, "outer.before_update is not heeded")

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
