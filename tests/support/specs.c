/* specs.c - see specs.h. */
#include "specs.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

static void must(gdn_status status, const char *what)
{
    if (status == GDN_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, gdn_status_name(status), gdni_error_text());
    abort();
}

gdn_prefill_desc test_prefill_desc(void)
{
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    d.num_q_heads = d.num_k_heads = 16;
    d.num_v_heads = 32;
    d.head_dim_qk = d.head_dim_v = 128;
    d.max_tokens = 32768;
    d.max_seqs = 8;
    return d;
}

gdn_conv1d_desc test_conv1d_desc(void)
{
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    d.num_q_heads = d.num_k_heads = 16;
    d.num_v_heads = 32;
    d.head_dim_qk = d.head_dim_v = 128;
    d.max_tokens = 32768;
    d.max_seqs = 8;
    return d;
}

static struct gdni_spec spec_of(const struct gdni_problem *problem, const char *arch_name, int bucket)
{
    const struct gdni_arch *arch = NULL;
    struct gdni_params params;
    struct gdni_spec spec;
    must(gdni_arch_find(arch_name, &arch), arch_name);
    gdni_params_heuristic(&params, problem, arch, 0, bucket);
    must(gdni_spec_build(&spec, problem, arch, &params), "spec");
    return spec;
}

struct gdni_spec test_prefill_spec(const gdn_prefill_desc *desc, const char *arch, int bucket)
{
    struct gdni_problem problem;
    must(gdni_problem_from_prefill(&problem, desc), "desc");
    return spec_of(&problem, arch, bucket);
}

struct gdni_spec test_conv1d_spec(const gdn_conv1d_desc *desc, const char *arch, int bucket)
{
    struct gdni_problem problem;
    must(gdni_problem_from_conv1d(&problem, desc), "desc");
    return spec_of(&problem, arch, bucket);
}
