#include "inner/train/evaluate.h"

uint64_t evaluate_count(const struct loader *l, int64_t tokens)
{
    uint64_t wanted = (uint64_t)tokens / l->options.sequence;
    return wanted < 1 ? 1 : wanted < l->windows ? wanted : l->windows;
}

double evaluate_loss(const struct evaluate_sums *sums)
{
    double loss = 0;
    for (size_t k = 0; k < MODEL_LOSSES; k++)
        loss += sums->count[k] > 0 ? sums->loss[k] / sums->count[k] : 0;
    return loss;
}

enum err evaluate_windows(struct model *m, const struct loader *l, struct batch *b, uint64_t first,
                          uint64_t end, struct evaluate_sums *sums)
{
    uint64_t most = b->tokens_max / l->options.sequence,
             room = b->sequences_max - l->options.objective->varies;
    most = most < room ? most : room;
    *sums = (struct evaluate_sums){0};
    for (uint64_t at = first; at < end; at += most) {
        size_t count = (size_t)(end - at < most ? end - at : most);
        struct model_loss loss;
        objective_windows(l, at, count, b);
        TRY(model_eval(m, b, &loss));
        for (size_t k = 0; k < MODEL_LOSSES; k++) {
            sums->loss[k] += loss.sum[k];
            sums->count[k] += (double)loss.count[k];
        }
    }
    return ERR_OK;
}
