#include "inner/model/depth.h"
#include <math.h>
#include "kernels/base/rng.h"

bool depth_drops(const struct settings *s)
{
    return s->train_layer_drop > 0;
}

double depth_keep(const struct settings *s, uint64_t step, size_t layer)
{
    double keep = 1 - s->train_layer_drop, rate = s->train_layer_drop_rate;
    double theta = (1 - keep) * exp(-rate * (double)step) + keep;
    return 1 - (double)layer / (double)s->model_layers * (1 - theta);
}

bool depth_runs(const struct settings *s, uint64_t step, size_t layer)
{
    /* Place 0 of the stream of dropout, which no mask has. */
    return rng_unit((uint64_t)s->run_seed, RNG_DROPOUT | step << 32, layer) <
           depth_keep(s, step, layer);
}

/* With model.shared the tensors of layer 0 are all layers', and layer 0 always runs. */
bool depth_learns(const struct settings *s, uint64_t step, int layer)
{
    bool block = layer >= 0 && layer < s->model_layers && !s->model_shared;
    return !block || !depth_drops(s) || depth_runs(s, step, (size_t)layer);
}

float depth_scale(const struct settings *s, uint64_t step, size_t layer)
{
    return (float)(1 / depth_keep(s, step, layer));
}
