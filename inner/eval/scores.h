/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCORES_H
#define SCORES_H
/* Accuracy, F1 and Matthews' correlation of predicted classes, as scikit-learn computes them
 * (accuracy_score, f1_score, matthews_corrcoef). What they need of the confusion matrix is three
 * counts for each class. Pure.
 */
#include <stddef.h>

struct class_counts {
    size_t classes;
    double *truth, *predicted, *right; /* (classes) examples of the class; predicted as it; both */
};
struct class_score {
    double precision, recall, f1; /* 0 where there is nothing to divide by */
};
struct scores {
    double examples, accuracy;
    double f1_macro; /* mean of f1 over the classes that occur, in truth or in prediction */
    double mcc;      /* -1 .. 1; 0 where all examples, or all predictions, are of one class */
};

struct class_score scores_of_class(const struct class_counts *c, size_t class);
struct scores scores_of(const struct class_counts *c);

#endif
