/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_RUN_H
#define TEST_RUN_H
/* One process that trains on "text.bin" of the scratch directory. */
#include "inner/coll/coll.h"
#include "inner/train/train.h"
#include "tests/inner/setup.h"

struct run {
    struct settings *s;
    struct dev *d;
    struct coll *c;
    struct train t;
};

/* s: of setup_settings; its texts become the shard, but for those that it names. dir: of
 * checkpoints, in the scratch directory.
 */
static inline enum err run_open(struct run *r, struct settings *s, const char *dir, struct arena *a)
{
    const char **items = arena_array(a, 1, sizeof *items);
    items[0] = arena_printf(a, "%s/text.bin", scratch_root);
    const struct config_list text = {items, 1};
    if (!s->data_eval.count)
        s->data_eval = text;
    if (!s->data_train.count)
        s->data_train = text;
    r->s = s;
    const struct dev_options o = {.kind = "cpu",
                                  .model_type =
                                      config_choice_name(device_dtype_choices, s->device_dtype),
                                  .threads = 2,
                                  .emulation = model_emulation(s)};
    assert_int_equal(dev_open(&r->d, &o), ERR_OK);
    assert_int_equal(coll_open(&r->c, "cpu"), ERR_OK);
    return train_open(
        &r->t,
        &(struct train_options){s, r->d, r->c, 0, arena_printf(a, "%s/%s", scratch_root, dir)}, a);
}

static inline void run_close(struct run *r)
{
    train_close(&r->t);
    coll_close(r->c);
    dev_close(r->d);
}

#endif
