#include "outer/schedule.h"

struct schedule schedule_make(const struct settings *s, const struct outer_settings *o)
{
    const struct codec *c = codec_find(o->outer_codec);
    ASSERT(c); /* the key's choices are the codecs' names */
    ASSERT(o->outer_every % o->outer_fragments == 0);
    return (struct schedule){
        .steps = s->train_steps,
        .every = o->outer_every,
        .fragments = (unsigned)o->outer_fragments,
        .whole_rounds = (uint64_t)o->outer_whole_rounds,
        .codec = c->kind,
        .back_off = codec_backlog(o->outer_back_off * o->outer_back_off, 1),
    };
}

static int64_t offset_of(const struct schedule *s, unsigned fragment)
{
    ASSERT(fragment < s->fragments);
    return (int64_t)fragment * (s->every / (int64_t)s->fragments);
}

/* Rounds on the fragment's own beat, the one at the last step included when it falls there. */
static uint64_t beats(const struct schedule *s, unsigned fragment)
{
    int64_t left = s->steps - offset_of(s, fragment);
    return left > 0 ? (uint64_t)(left / s->every) : 0;
}

int64_t schedule_step(const struct schedule *s, unsigned fragment, uint64_t round)
{
    ASSERT(round < schedule_rounds(s, fragment));
    uint64_t regular = beats(s, fragment);
    return round < regular ? offset_of(s, fragment) + ((int64_t)round + 1) * s->every : s->steps;
}

uint64_t schedule_rounds(const struct schedule *s, unsigned fragment)
{
    uint64_t regular = beats(s, fragment);
    bool ends_on_beat = regular && offset_of(s, fragment) + (int64_t)regular * s->every == s->steps;
    return regular + !ends_on_beat;
}

bool schedule_due(const struct schedule *s, int64_t step, unsigned fragment, uint64_t *round)
{
    int64_t since = step - offset_of(s, fragment);
    if (step < 1 || step > s->steps)
        return false;
    if (since > 0 && since % s->every == 0) {
        *round = (uint64_t)(since / s->every) - 1;
        return true;
    }
    if (step < s->steps)
        return false;
    *round = schedule_rounds(s, fragment) - 1;
    return true;
}

/* A whole round empties the residual. f32 is whole as it is: narrowing it would only lose bits. */
enum codec_kind schedule_codec(const struct schedule *s, unsigned fragment, uint64_t round,
                               uint8_t backlog)
{
    bool whole = round < s->whole_rounds || round + 1 == schedule_rounds(s, fragment) ||
                 (s->back_off && backlog >= s->back_off);
    return whole && s->codec != CODEC_F32 ? CODEC_BF16 : s->codec;
}

int64_t schedule_next(const struct schedule *s, int64_t step)
{
    int64_t beat =
        s->every / (int64_t)s->fragments; /* dues fall on its multiples and on the last step */
    if (step >= s->steps)
        return 0;
    int64_t next = ((step < 0 ? 0 : step) / beat + 1) * beat;
    if (next < s->every) /* fragment 0 opens at step every */
        next = s->every;
    return next < s->steps ? next : s->steps;
}

int64_t schedule_reached(const struct schedule *s, const uint64_t *rounds)
{
    int64_t reached = 0, limit = s->steps;
    for (unsigned p = 0; p < s->fragments; p++) {
        int64_t last = rounds[p] ? schedule_step(s, p, rounds[p] - 1) : 0;
        reached = last > reached ? last : reached;
        if (rounds[p] < schedule_rounds(s, p)) {
            int64_t before = schedule_step(s, p, rounds[p]) - 1;
            limit = before < limit ? before : limit;
        }
    }
    return reached < limit ? reached : limit;
}

static const struct codec *codec_at(const struct schedule *s, unsigned fragment, uint64_t round)
{
    return codec_get(schedule_codec(s, fragment, round, 0));
}

uint64_t schedule_upload_bytes(const struct schedule *s, const size_t *elements)
{
    uint64_t sum = 0;
    for (unsigned p = 0; p < s->fragments; p++)
        for (uint64_t t = 0; t < schedule_rounds(s, p); t++) {
            const struct codec *c = codec_at(s, p, t);
            sum += c->payload_bytes(c, elements[p]);
        }
    return sum;
}

uint64_t schedule_download_bytes(const struct schedule *s, const size_t *elements, unsigned sites)
{
    uint64_t sum = 0;
    for (unsigned p = 0; p < s->fragments; p++)
        for (uint64_t t = 0; t < schedule_rounds(s, p); t++) {
            const struct codec *c = codec_at(s, p, t);
            sum += c->aggregate_bytes(c, elements[p], sites);
        }
    return sum;
}
