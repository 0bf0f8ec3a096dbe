/* What breaks if this is wrong: ranks of one site that a launcher started do not find each other, or each trains alone.
 * Without a GPU opening always fails, behind the point where the ranks' meeting place is in the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "inner/coll/coll.h"

static const char *const variables[] = {
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "NCCL_COMM_ID"};

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

static void refused(const char *kind, const char *words)
{
    struct coll *c;
    assert_int_not_equal(coll_open(&c, kind), ERR_OK);
    assert_null(c);
    if (words)
        assert_non_null(strstr(err_message(), words));
}

static void meets_at(const char *address)
{
    tell("NCCL_COMM_ID", "elsewhere:1"); /* left in a shell by another job */
    refused("cuda", NULL);
    assert_string_equal(getenv("NCCL_COMM_ID"), address);
}

static void torchrun(void)
{
    tell("WORLD_SIZE", "2");
    tell("RANK", "1");
    tell("LOCAL_RANK", "63"); /* no machine has this GPU: nobody is waited for */
    tell("MASTER_ADDR", "node1");
    tell("MASTER_PORT", "29500");
}

static void test_where_ranks_meet(void **state)
{
    (void)state;
    torchrun();
    meets_at("node1:29500");
    tell("TORCHELASTIC_USE_AGENT_STORE", "False");
    meets_at("node1:29500");
    tell("TORCHELASTIC_USE_AGENT_STORE", "True"); /* torchrun itself listens at that port */
    meets_at("node1:19500");
    tell("MASTER_PORT", "42505");
    meets_at("node1:12505");
}

static void test_slurm(void **state)
{
    (void)state;
    tell("SLURM_NTASKS", "16");
    refused("cuda", "SLURM_PROCID");
    tell("SLURM_PROCID", "9");
    tell("SLURM_LOCALID", "63");
    refused("cuda", "MASTER_ADDR");
    tell("MASTER_ADDR", "node1");
    tell("MASTER_PORT", "7001");
    meets_at("node1:7001");
    refused("cpu", "srun --mpi=pmix");
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
        cmocka_unit_test_setup(test_slurm, forget),
        cmocka_unit_test_setup(test_one_rank_needs_nobody, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
