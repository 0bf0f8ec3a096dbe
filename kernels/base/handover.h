/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HANDOVER_H
#define HANDOVER_H
/* Memory that goes from one thread to another under a lock of a library that is not built for
 * ThreadSanitizer (gRPC core, OpenSSL): ThreadSanitizer does not see that lock, and would take the
 * two threads' accesses for a race. `what`: any address that both threads name. GIVE after the last
 * access of the one, TAKE before the first of the other. Without ThreadSanitizer: nothing.
 */
#ifdef SANITIZED_THREADS
void __tsan_release(void *address);
void __tsan_acquire(void *address);
#define HANDOVER_GIVE(what) __tsan_release(what)
#define HANDOVER_TAKE(what) __tsan_acquire(what)
#else
#define HANDOVER_GIVE(what) ((void)(what))
#define HANDOVER_TAKE(what) ((void)(what))
#endif

#endif
