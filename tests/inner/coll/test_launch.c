/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: ranks of one site that a launcher started do not find each other,
 * or each trains alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "inner/coll/coll.h"
#include "inner/coll/launch.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE",
                                        "PMIX_RANK",
                                        "WORLD_SIZE",
                                        "RANK",
                                        "LOCAL_RANK",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "SLURM_NTASKS",
                                        "SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEP_NODELIST"};

static int forget(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return 0;
}

static void tell(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static void refused(const char *words)
{
    struct launch_place p = {0};
    assert_int_equal(launch_place(launch_find(true), &p), ERR_CONFIG);
    assert_non_null(strstr(err_message(), words));
}

static struct launch_place place(void)
{
    struct launch_place p = {0};
    assert_int_equal(launch_place(launch_find(true), &p), ERR_OK);
    return p;
}

static void meets_at(const char *host, int port)
{
    struct launch_place p = place();
    assert_string_equal(p.host, host);
    assert_int_equal(p.port, port);
}

static void torchrun(void)
{
    tell("WORLD_SIZE", "2");
    tell("RANK", "1");
    tell("LOCAL_RANK", "0");
    tell("MASTER_ADDR", "node1");
    tell("MASTER_PORT", "29500");
}

static void test_where_ranks_meet(void **state)
{
    (void)state;
    torchrun();
    meets_at("node1", 29500);
    tell("TORCHELASTIC_USE_AGENT_STORE", "False");
    meets_at("node1", 29500);
    tell("TORCHELASTIC_USE_AGENT_STORE", "True"); /* torchrun itself listens at that port */
    meets_at("node1", 19500);
    tell("MASTER_PORT", "42505");
    meets_at("node1", 12505);
}

static void test_numbers(void **state)
{
    (void)state;
    torchrun();
    assert_int_equal(launch_size(launch_find(true)), 2);
    assert_int_equal(place().rank, 1);
    assert_int_equal(place().local_rank, 0);
    tell("RANK", "2"); /* of 2 */
    refused("RANK is '2'");
    tell("RANK", "one");
    refused("RANK is 'one'");
    tell("RANK", "1");
    tell("MASTER_PORT", "http");
    refused("MASTER_PORT is 'http'");
    tell("WORLD_SIZE", "0");
    refused("WORLD_SIZE is '0'");
}

/* A rank of the attempt before must not join the new one. */
static void test_jobs_are_told_apart(void **state)
{
    (void)state;
    torchrun();
    tell("TORCHELASTIC_RUN_ID", "none");
    tell("TORCHELASTIC_RESTART_COUNT", "0");
    struct launch_place first = place(), again = place();
    assert_string_equal(first.job, again.job);
    tell("TORCHELASTIC_RESTART_COUNT", "1");
    assert_string_not_equal(first.job, place().job);
}

static void test_slurm(void **state)
{
    struct coll *c;
    (void)state;
    tell("SLURM_NTASKS", "16");
    refused("SLURM_PROCID");
    tell("SLURM_PROCID", "9");
    tell("SLURM_LOCALID", "1");
    refused("MASTER_ADDR"); /* no list of nodes either */
    tell("SLURM_JOB_ID", "3000");
    tell("SLURM_STEP_ID", "2");
    tell("SLURM_STEP_NODELIST", "gpu-a[03-07,12],login");
    meets_at("gpu-a03", 10000 + 1002);
    tell("SLURM_STEP_NODELIST", "node9,node10");
    meets_at("node9", 11002);
    tell("SLURM_STEP_NODELIST", "n[9,11]");
    meets_at("n9", 11002);
    tell("SLURM_STEP_NODELIST", "one");
    meets_at("one", 11002);
    tell("MASTER_ADDR", "node1"); /* half of it is a mistake */
    refused("MASTER_PORT");
    tell("MASTER_PORT", "7001");
    meets_at("node1", 7001);
    assert_int_equal(place().rank, 9);
    assert_int_equal(coll_open(&c, "cpu"), ERR_UNSUPPORTED);
    assert_null(c);
    assert_non_null(strstr(err_message(), "srun --mpi=pmix"));
    assert_non_null(strstr(err_message(), "unset SLURM_NTASKS")); /* of an allocation's shell */
}

static void test_pmix_beside_slurm(void **state)
{
    (void)state;
    tell("PMIX_RANK", "0");
    assert_string_equal(launch_find(true)->name, "PMIx");
    assert_string_equal(launch_find(false)->name,
                        "PMIx"); /* no other launcher says how many there are */
    tell("SLURM_NTASKS", "16");
    assert_string_equal(launch_find(true)->name, "PMIx");
    assert_string_equal(launch_find(false)->name, "Slurm");
}

static void test_one_rank_needs_nobody(void **state)
{
    struct coll *c;
    (void)state;
    torchrun();
    tell("WORLD_SIZE", "1");
    assert_int_equal(coll_open(&c, "cuda"), ERR_OK);
    assert_int_equal(c->size, 1);
    coll_close(c);
    assert_int_equal(coll_open(&c, "cpu"), ERR_OK);
    assert_string_equal(c->found, "torchrun");
    coll_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_where_ranks_meet, forget),
        cmocka_unit_test_setup(test_numbers, forget),
        cmocka_unit_test_setup(test_jobs_are_told_apart, forget),
        cmocka_unit_test_setup(test_slurm, forget),
        cmocka_unit_test_setup(test_pmix_beside_slurm, forget),
        cmocka_unit_test_setup(test_one_rank_needs_nobody, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
