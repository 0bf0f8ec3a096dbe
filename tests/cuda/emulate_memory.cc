/* SPDX-License-Identifier: Apache-2.0 */
/* Shadow memory behind emulate_memory.h. For each two bytes of shared and of device memory (four of
 * large allocations): who wrote last and who has read since, with the times at which they did. A
 * record holds one writer and one reader, the rest is a flag, so a race within a word may go
 * unseen; what is reported is one.
 */
#include "tests/cuda/emulate_memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vector>

enum {
    LANES = 32,
    WORD = 2,
    WORD_LARGE = 4,
    LARGE = 64 << 10,
    SHARED_MAX = 99 << 10
}; /* 99 KiB: sm_86; others have more */

struct visit {
    uint32_t launch, block; /* launch 0: nobody */
    uint16_t block_time, warp_time, thread;
    uint8_t bytes; /* of the word, a mask */
    uint8_t atomic : 1, many_threads : 1, many_warps : 1,
        many_blocks : 1;   /* readers: others of the same times came too */
    uint8_t in_flight : 1; /* the writer's: by a cp.async */
};
struct word {
    visit writer, reader;
};

struct region {
    unsigned char *p;
    size_t bytes, mapped;
    bool device;
    size_t each; /* bytes of a word */
    word *words;
    int allowed;       /* as mprotect has it */
    int reads, writes; /* pinned: copies that are under way */
};
struct range {
    const unsigned char *p;
    size_t bytes;
};

struct emulate_now emulate_now;
static std::vector<region> regions;
static std::vector<range> own;
static range stack, arguments;
static struct region dynamic_shared, static_shared;
static size_t nearest; /* region of the last access */

/* The linker makes these around the section of all __shared__ arrays: the only variables that the
 * .cu files have; the build renames their .bss, since compilers do not let templates choose one. */
extern unsigned char first_static[] __asm__("__start_emulate_static") __attribute__((weak));
extern unsigned char last_static[] __asm__("__stop_emulate_static") __attribute__((weak));

void emulate_die(const char *what)
{
    fprintf(stderr, "emulated kernel: %s, thread %u of block %u\n", what, emulate_now.thread,
            emulate_now.block);
    abort();
}

static word *words_take(size_t bytes, size_t each)
{
    size_t size = (bytes / each + 2) * sizeof(word);
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        emulate_die("no memory");
    return (word *)p;
}

static void words_give(region *r)
{
    munmap(r->words, (r->mapped / r->each + 2) * sizeof(word));
}

/* ---- order ---- */
static unsigned warp_of(unsigned thread)
{
    return thread / LANES;
}

/* Whether `before` has surely happened when the running thread comes now. */
static bool ordered(const visit *before, bool shared)
{
    const struct emulate_now &now = ::emulate_now;
    unsigned warp = warp_of(now.thread);
    if (before->launch != now.launch)
        return true;
    if (before->block != now.block)
        return shared; /* each block has its own */
    if (before->many_blocks)
        return false;
    if (before->block_time != (uint16_t)now.block_time)
        return true;
    if (before->many_warps || warp_of(before->thread) != warp)
        return false;
    if (before->warp_time != (uint16_t)now.warp_time[warp])
        return true;
    return before->thread == now.thread && !before->many_threads;
}

static visit visit_now(uint8_t bytes, bool atomic)
{
    const struct emulate_now &now = ::emulate_now;
    visit v = {};
    v.launch = now.launch, v.block = now.block;
    v.block_time = (uint16_t)now.block_time;
    v.warp_time = (uint16_t)now.warp_time[warp_of(now.thread)];
    v.thread = (uint16_t)now.thread;
    v.bytes = bytes, v.atomic = atomic;
    return v;
}

/* One record for all readers since the last barrier. */
static void reader_add(visit *r, const visit &me, bool shared)
{
    if (r->launch != me.launch || (shared && r->block != me.block) || !(r->bytes & me.bytes)) {
        *r = me;
        return;
    }
    visit old = *r;
    if (old.block != me.block) {
        r->many_blocks = true; /* for the rest of the launch */
    } else if (old.block_time != me.block_time) {
        *r = me;
        r->many_blocks = old.many_blocks;
    } else if (warp_of(old.thread) != warp_of(me.thread)) {
        r->many_warps = true;
    } else if (old.warp_time != me.warp_time) {
        *r = me;
        r->many_blocks = old.many_blocks;
        r->many_warps = old.many_warps;
    } else if (old.thread != me.thread) {
        r->many_threads = true;
    }
    r->bytes = (uint8_t)(old.bytes | me.bytes);
}

static void word_access(word *w, bool shared, uint8_t bytes, enum emulate_access kind)
{
    visit me = visit_now(bytes, kind == EMULATE_ATOMIC);
    if (w->writer.in_flight)
        emulate_die("race: a cp.async is still writing what is touched here");
    if (w->writer.launch && w->writer.bytes & bytes && !(me.atomic && w->writer.atomic) &&
        !ordered(&w->writer, shared))
        emulate_die(kind == EMULATE_READ
                        ? "race: reads what another thread wrote, no barrier between"
                        : "race: writes what another thread wrote, no barrier between");
    if (kind == EMULATE_READ) {
        reader_add(&w->reader, me, shared);
        return;
    }
    if (w->reader.launch && w->reader.bytes & bytes && !ordered(&w->reader, shared))
        emulate_die("race: writes what another thread reads, no barrier between");
    w->writer = me;
}

static void words_access(const region *r, const unsigned char *p, size_t bytes,
                         enum emulate_access kind)
{
    size_t from = (size_t)(p - r->p), end = from + bytes;
    while (from < end) {
        size_t in = from % r->each, count = r->each - in < end - from ? r->each - in : end - from;
        word_access(&r->words[from / r->each], r == &dynamic_shared || r == &static_shared,
                    (uint8_t)(((1u << count) - 1) << in), kind);
        from += count;
    }
}

/* ---- bounds ---- */
static bool inside(const void *p, size_t bytes, const void *begin, size_t length)
{
    uintptr_t at = (uintptr_t)p, from = (uintptr_t)begin;
    return at >= from && at - from <= length && bytes <= length - (at - from);
}

static bool touches(const void *p, const region *r)
{
    return inside(p, 1, r->p, r->mapped);
}

static const region *region_of(const void *p)
{
    if (nearest < regions.size() && touches(p, &regions[nearest]))
        return &regions[nearest];
    for (size_t i = 0; i < regions.size(); i++)
        if (touches(p, &regions[i])) {
            nearest = i;
            return &regions[i];
        }
    return NULL;
}

static bool known(const void *p, size_t bytes)
{
    if (inside(p, bytes, stack.p, stack.bytes) || inside(p, bytes, arguments.p, arguments.bytes))
        return true;
    for (const range &r : own)
        if (inside(p, bytes, r.p, r.bytes))
            return true;
    return false;
}

void emulate_access(const void *p, size_t bytes, enum emulate_access kind)
{
    if (!emulate_now.kernel || known(p, bytes))
        return;
    const region *r = touches(p, &dynamic_shared)  ? &dynamic_shared
                      : touches(p, &static_shared) ? &static_shared
                                                   : region_of(p);
    if (!r)
        emulate_die("touches what is neither device nor shared memory");
    if (r != &dynamic_shared && r != &static_shared && !r->device)
        emulate_die("touches the host's pinned memory");
    if (r == &dynamic_shared && !inside(p, bytes, r->p, r->bytes))
        emulate_die("beyond the dynamic shared memory of this launch");
    if (!inside(p, bytes, r->p, r->bytes))
        emulate_die("beyond the end of an allocation");
    words_access(r, (const unsigned char *)p, bytes, kind);
}

void emulate_private(const void *s, size_t stack_bytes, const void *a, size_t argument_bytes)
{
    stack = {(const unsigned char *)s, stack_bytes};
    arguments = {(const unsigned char *)a, argument_bytes};
}

void emulate_own(const void *p, size_t bytes)
{
    own.push_back({(const unsigned char *)p, bytes});
}

/* ---- shared memory ---- */
unsigned char *emulate_shared_begin(size_t bytes)
{
    if (!dynamic_shared.p) {
        dynamic_shared.mapped = SHARED_MAX + 1024; /* and what lies behind it is nobody's */
        dynamic_shared.p = (unsigned char *)aligned_alloc(1024, dynamic_shared.mapped);
        dynamic_shared.each = static_shared.each = WORD;
        dynamic_shared.words = words_take(dynamic_shared.mapped, WORD);
        static_shared.p = first_static;
        static_shared.bytes = static_shared.mapped = (size_t)(last_static - first_static);
        static_shared.words = words_take(static_shared.mapped, WORD);
    }
    if (bytes > SHARED_MAX)
        emulate_die("more shared memory than every GPU has");
    dynamic_shared.bytes = bytes;
    memset(dynamic_shared.p, 0xff, bytes); /* NaN: unwritten shared memory shows */
    memset(static_shared.p, 0xff, static_shared.bytes);
    return dynamic_shared.p;
}

void emulate_in_flight(const void *to, bool yes)
{
    if (!inside(to, 16, dynamic_shared.p, dynamic_shared.bytes))
        emulate_die("cp.async outside of the dynamic shared memory");
    size_t first = (size_t)((const unsigned char *)to - dynamic_shared.p) / WORD;
    for (size_t i = first; i < first + 16 / WORD; i++) {
        dynamic_shared.words[i].writer.in_flight = false;
        word_access(&dynamic_shared.words[i], true, 3, EMULATE_WRITE);
        dynamic_shared.words[i].writer.in_flight = yes;
    }
}

/* ---- device and pinned memory ---- */
static void protect(region &r, int how)
{
    if (r.allowed != how && mprotect(r.p, r.mapped, how))
        emulate_die("memory cannot be protected");
    r.allowed = how;
}

static bool open; /* the device works */

void fake_open(bool yes)
{
    open = yes;
    for (region &r : regions) {
        int busy = r.writes ? PROT_NONE : r.reads ? PROT_READ : PROT_READ | PROT_WRITE;
        protect(r, yes ? PROT_READ | PROT_WRITE : r.device ? PROT_NONE : busy);
    }
}

enum fake_place fake_where(const void *p)
{
    const region *r = region_of(p);
    return !r ? FAKE_PAGEABLE : r->device ? FAKE_DEVICE : FAKE_PINNED;
}

void *fake_at(const void *p, size_t bytes)
{
    const region *r = region_of(p);
    if (r && !inside(p, bytes, r->p, r->bytes))
        emulate_die("a copy goes beyond the end of an allocation");
    return (void *)p;
}

void fake_copying(const void *from, const void *to, int more)
{
    for (region &r : regions) {
        r.reads += !r.device && touches(from, &r) ? more : 0;
        r.writes += !r.device && touches(to, &r) ? more : 0;
    }
    fake_open(open);
}

void *fake_take(size_t bytes, bool device)
{
    size_t rounded = (bytes + 4095) / 4096 * 4096, word = bytes < LARGE ? WORD : WORD_LARGE;
    int allowed = PROT_READ | PROT_WRITE;
    void *p = mmap(NULL, rounded, allowed, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    memset(p, 0xff, bytes);
    regions.push_back({(unsigned char *)p, bytes, rounded, device, word, words_take(rounded, word),
                       allowed, 0, 0});
    fake_open(open);
    return p;
}

void fake_give(void *p)
{
    for (size_t i = 0; p && i < regions.size(); i++)
        if (regions[i].p == p) {
            munmap(p, regions[i].mapped);
            words_give(&regions[i]);
            regions.erase(regions.begin() + (long)i);
            return;
        }
    if (p)
        emulate_die("frees what was never allocated");
}

void emulate_limit(void *p, size_t bytes)
{
    for (region &r : regions)
        if (r.p == p)
            r.bytes = bytes;
}

/* ---- what the compiler calls ---- */
extern "C" {
#define ACCESS(n)                                                                                  \
    void __tsan_read##n(const void *p);                                                            \
    void __tsan_write##n(const void *p);                                                           \
    void __tsan_unaligned_read##n(const void *p);                                                  \
    void __tsan_unaligned_write##n(const void *p);                                                 \
    void __tsan_read##n(const void *p)                                                             \
    {                                                                                              \
        if (emulate_now.kernel && (uintptr_t)p % n)                                                \
            emulate_die("a load is not aligned");                                                  \
        emulate_access(p, n, EMULATE_READ);                                                        \
    }                                                                                              \
    void __tsan_write##n(const void *p)                                                            \
    {                                                                                              \
        if (emulate_now.kernel && (uintptr_t)p % n)                                                \
            emulate_die("a store is not aligned");                                                 \
        emulate_access(p, n, EMULATE_WRITE);                                                       \
    }                                                                                              \
    void __tsan_unaligned_read##n(const void *p)                                                   \
    {                                                                                              \
        emulate_access(p, n, EMULATE_READ);                                                        \
    }                                                                                              \
    void __tsan_unaligned_write##n(const void *p)                                                  \
    {                                                                                              \
        emulate_access(p, n, EMULATE_WRITE);                                                       \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(const void *p, size_t bytes);
void __tsan_write_range(const void *p, size_t bytes);
void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memset(void *to, int byte, size_t bytes);

void __tsan_read_range(const void *p, size_t bytes)
{
    emulate_access(p, bytes, EMULATE_READ);
}
void __tsan_write_range(const void *p, size_t bytes)
{
    emulate_access(p, bytes, EMULATE_WRITE);
}
void __tsan_init(void)
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
/* clang's names for these. */
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    emulate_access(from, bytes, EMULATE_READ);
    emulate_access(to, bytes, EMULATE_WRITE);
    return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
    emulate_access(from, bytes, EMULATE_READ);
    emulate_access(to, bytes, EMULATE_WRITE);
    return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int byte, size_t bytes)
{
    emulate_access(to, bytes, EMULATE_WRITE);
    return memset(to, byte, bytes);
}
}
