/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/config/measured.h"
#include <stddef.h>
#include <string.h>
#include "kernels/base/number.h"
#include "outer/link/line.h"

CHOICES_MEASURED(CONFIG_CHOICES)

static const struct config_key keys[] = {
#define X(...) CONFIG_ROW(struct measured, __VA_ARGS__)
    KEYS_MEASURED(X)
#undef X
};
static const struct config_key times_keys[] = {
#define X(...) CONFIG_ROW(struct measured_times, __VA_ARGS__)
    KEYS_MEASURED_TIMES(X)
#undef X
};
static const struct config_key ranks_keys[] = {
#define X(...) CONFIG_ROW(struct measured_ranks, __VA_ARGS__)
    KEYS_MEASURED_RANKS(X)
#undef X
};

void measured_tables(struct measured *m, struct config_table tables[MEASURED_TABLES])
{
    const struct config_table all[MEASURED_TABLES] = {
        {keys, sizeof keys / sizeof *keys, .values = m},
        {times_keys, sizeof times_keys / sizeof *times_keys, .values = &m->times},
        {ranks_keys, sizeof ranks_keys / sizeof *ranks_keys, .values = &m->ranks}};
    memcpy(tables, all, sizeof all);
}

enum err measured_default(struct measured *m, struct arena *a)
{
    struct config_table tables[MEASURED_TABLES];
    measured_tables(m, tables);
    return config_load(tables, MEASURED_TABLES, NULL, 0, NULL, a);
}

enum err measured_text(struct measured *m, struct arena *a, char **text)
{
    struct config_table tables[MEASURED_TABLES];
    measured_tables(m, tables);
    return config_print_differing(tables, MEASURED_TABLES, a, text);
}

/* Times measured by atoll probe must not decrease with the payload. */
static void check_times(struct config_rules *r, const char *key, const struct config_list *times)
{
    double before = 0;
    if (times->count > LINE_TIMES_MAX)
        config_broken(r, "%s has %zu entries, at most %d", key, times->count, LINE_TIMES_MAX);
    for (size_t i = 0; i < times->count; i++) {
        double seconds;
        if (!number_good(times->items[i], &seconds) || !(seconds > 0) || seconds > 1e6)
            config_broken(r, "%s: \"%.40s\" is no time in seconds", key, times->items[i]);
        else if (seconds < before)
            config_broken(r,
                          "%s: %g s after %g s, but the payloads grow; measure again: atoll probe",
                          key, seconds, before);
        else
            before = seconds;
    }
}

enum err measured_arguments(const struct args *args, bool of_plan, struct args *out,
                            struct arena *a)
{
    bool plan = false;
    *out = (struct args){0};
    TRY_ALLOC(out->setting = arena_array(a, (size_t)args->setting_count + 1, sizeof *out->setting));
    for (int i = 0; i < args->setting_count; i++) {
        if (!strncmp(args->setting[i], "--", 2))
            plan = !strncmp(args->setting[i], "--plan.", 7);
        if (plan == of_plan)
            out->setting[out->setting_count++] = args->setting[i];
    }
    return ERR_OK;
}

/* Times belong to the rate that they were measured with: a source that names another rate, and no
 * times, drops them. */
static void drop_times(struct config_list *times, const struct config_list *before, bool other_rate)
{
    if (other_rate && times->items == before->items)
        *times = (struct config_list){0};
}

static enum err take(struct measured *m, const char *path, const struct args *given,
                     struct arena *a)
{
    const struct measured before = *m;
    struct config_table tables[MEASURED_TABLES];
    measured_tables(m, tables);
    for (unsigned i = 0; i < MEASURED_TABLES; i++)
        tables[i].keep = tables[i].written = true;
    TRY(config_load(tables, MEASURED_TABLES, path, given->setting_count, given->setting, a));
    drop_times(&m->plan_up_s, &before.plan_up_s, m->plan_up_mbit != before.plan_up_mbit);
    drop_times(&m->plan_down_s, &before.plan_down_s, m->plan_down_mbit != before.plan_down_mbit);
    return ERR_OK;
}

enum err measured_read(struct measured *m, const char *path, const struct args *args,
                       struct arena *a)
{
    struct config_rules rules = {0};
    struct args given = {0};
    TRY(take(m, path, &given, a));
    if (args)
        TRY(measured_arguments(args, true, &given, a));
    TRY(take(m, NULL, &given, a));
    check_times(&rules, "plan.up_s", &m->plan_up_s);
    check_times(&rules, "plan.down_s", &m->plan_down_s);
    return config_rules_report(&rules);
}
