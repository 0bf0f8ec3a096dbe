/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: the accuracy, F1 and MCC that atoll eval prints. Oracle:
 * accuracy_score, f1_score and matthews_corrcoef of scikit-learn 1.9.1 on the same confusion
 * matrices; zero_division = 0. */
#include "tests/inner/scratch.h"
#include <math.h>
#include "inner/eval/scores.h"

enum { CLASSES_MAX = 4 };
static double truth[CLASSES_MAX], predicted[CLASSES_MAX], right[CLASSES_MAX];

/* Rows: what is true; columns: what was predicted. */
static struct class_counts counts_of(size_t classes, const int *matrix)
{
    memset(truth, 0, sizeof truth);
    memset(predicted, 0, sizeof predicted);
    memset(right, 0, sizeof right);
    for (size_t i = 0; i < classes; i++)
        for (size_t k = 0; k < classes; k++) {
            truth[i] += matrix[i * classes + k];
            predicted[k] += matrix[i * classes + k];
            right[i] += i == k ? matrix[i * classes + k] : 0;
        }
    return (struct class_counts){classes, truth, predicted, right};
}

static void near(double x, double y)
{
    if (!(fabs(x - y) < 1e-12))
        fail_msg("%.17g, scikit-learn says %.17g", x, y);
}

static void check(size_t classes, const int *matrix, double accuracy, double f1, double mcc)
{
    struct class_counts c = counts_of(classes, matrix);
    struct scores s = scores_of(&c);
    near(s.accuracy, accuracy);
    near(s.f1_macro, f1);
    near(s.mcc, mcc);
}

static void test_four_classes(void **state)
{
    static const int matrix[] = {4, 1, 1, 0, 1, 3, 1, 0, 1, 0, 2, 0, 1, 1, 0, 0};
    static const double f1[] = {8.0 / 13, 0.6, 4.0 / 7, 0}, precision[] = {4.0 / 7, 0.6, 0.5, 0},
                        recall[] = {4.0 / 6, 0.6, 2.0 / 3, 0};
    (void)state;
    check(4, matrix, 0.5625, 0.4467032967032967, 0.3739586804238829);
    struct class_counts c = counts_of(4, matrix);
    assert_true(scores_of(&c).examples == 16);
    for (size_t i = 0; i < 4; i++) {
        struct class_score s = scores_of_class(&c, i);
        near(s.f1, f1[i]);
        near(s.precision, precision[i]);
        near(s.recall, recall[i]);
    }
}

static void test_two_classes(void **state)
{
    (void)state;
    check(2, (const int[]){7, 2, 2, 5}, 0.75, 0.746031746031746, 0.49206349206349204);
}

/* Class 1 occurs neither in truth nor in prediction: it is no part of the mean. */
static void test_absent_class(void **state)
{
    (void)state;
    check(3, (const int[]){3, 0, 1, 0, 0, 0, 1, 0, 3}, 0.75, 0.75, 0.5);
}

static void test_one_prediction_for_all(void **state)
{
    (void)state;
    check(2, (const int[]){0, 1, 0, 3}, 0.75, 0.42857142857142855, 0);
}

static void test_no_examples(void **state)
{
    (void)state;
    check(2, (const int[]){0, 0, 0, 0}, 0, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_four_classes), cmocka_unit_test(test_two_classes),
        cmocka_unit_test(test_absent_class), cmocka_unit_test(test_one_prediction_for_all),
        cmocka_unit_test(test_no_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
