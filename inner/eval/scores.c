/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/eval/scores.h"
#include <math.h>

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

struct class_score scores_of_class(const struct class_counts *c, size_t class)
{
    double truth = c->truth[class], predicted = c->predicted[class], right = c->right[class];
    return (struct class_score){share(right, predicted), share(right, truth),
                                share(2 * right, truth + predicted)};
}

/* Matthews' correlation of several classes: Gorodkin 2004. */
struct scores scores_of(const struct class_counts *c)
{
    double n = 0, right = 0, product = 0, truth = 0, predicted = 0, f1 = 0, occur = 0;
    for (size_t i = 0; i < c->classes; i++) {
        n += c->truth[i];
        right += c->right[i];
        product += c->truth[i] * c->predicted[i];
        truth += c->truth[i] * c->truth[i];
        predicted += c->predicted[i] * c->predicted[i];
        f1 += scores_of_class(c, i).f1;
        occur += c->truth[i] + c->predicted[i] > 0;
    }
    double spread = (n * n - truth) * (n * n - predicted);
    return (struct scores){.examples = n,
                           .accuracy = share(right, n),
                           .f1_macro = share(f1, occur),
                           .mcc = spread > 0 ? (n * right - product) / sqrt(spread) : 0};
}
