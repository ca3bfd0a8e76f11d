/*
 * trial.c - owns the check of candidates: an awkward call on the device, its results against the host reference.
 * Must not know: times, decisions.
 */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/tune.h"

/* What all candidates of a tuning share. */
struct trial {
    struct gdni_work work;
    struct gdni_problem problem;
    void *want[GDNI_WORK_MAX_TENSORS];
    gdn_devptr addresses[GDNI_WORK_MAX_TENSORS];
    union gdni_args args;
};

static gdn_status take_problem(struct trial *trial, const struct gdni_tune *t)
{
    if (t->problem.op == GDNI_OP_PREFILL)
        GDN_TRY(gdni_problem_from_prefill(&trial->problem, &trial->work.desc.prefill));
    else
        GDN_TRY(gdni_problem_from_conv1d(&trial->problem, &trial->work.desc.conv1d));
    trial->problem.generic = t->problem.generic;
    return GDN_OK;
}

static gdn_status place(struct trial *trial, struct gdni_lab *lab)
{
    for (int i = 0; i < trial->work.num_tensors; ++i)
        GDN_TRY(gdni_lab_take(lab, trial->work.tensors[i].bytes, &trial->addresses[i]));
    gdni_work_bind(&trial->args, &trial->work, trial->addresses);
    return GDN_OK;
}

static gdn_status set_up(struct trial *trial, struct gdni_tune *t)
{
    GDN_TRY(gdni_work_trial(&trial->work, t->problem.op, &t->desc));
    GDN_TRY(take_problem(trial, t));
    GDN_TRY(gdni_work_reference(&trial->work, trial->want));
    return place(trial, &t->lab);
}

static void tear_down(struct trial *trial, struct gdni_tune *t)
{
    gdni_lab_give_back(&t->lab, 0);
    for (int i = 0; i < trial->work.num_tensors; ++i)
        gdni_free(trial->want[i]);
    gdni_work_free(&trial->work);
    gdni_free(trial);
}

/* The tensors' contents as they were before any candidate ran; a workspace of NaN, since its contents may be anything. */
static gdn_status run(struct trial *trial, struct gdni_tune *t, const gdn_plan *plan)
{
    unsigned char nan_bytes[256];
    const size_t size = gdn_plan_workspace_size(plan);
    gdn_devptr workspace = 0;
    memset(nan_bytes, 0xff, sizeof nan_bytes);
    for (int i = 0; i < trial->work.num_tensors; ++i) {
        const struct gdni_tensor *tensor = &trial->work.tensors[i];
        GDN_TRY(gdni_lab_upload(&t->lab, trial->addresses[i], tensor->bytes, tensor->host, tensor->host_bytes));
    }
    if (size) GDN_TRY(gdni_lab_take(&t->lab, size, &workspace));
    GDN_TRY(gdni_lab_upload(&t->lab, workspace, size, nan_bytes, sizeof nan_bytes));
    GDN_TRY(gdni_tune_execute(t, plan, &trial->args, workspace, size));
    return gdni_lab_wait(&t->lab);
}

static gdn_status compare(const struct trial *trial, struct gdni_lab *lab, int i)
{
    const struct gdni_tensor *tensor = &trial->work.tensors[i];
    void *got = gdni_alloc(tensor->bytes);
    if (!got) return GDN_FAIL(GDN_E_NOMEM, "out of memory for the results of a trial call");
    gdn_status status = gdni_lab_download(lab, got, trial->addresses[i], tensor->bytes);
    /* Inputs are looked at too: a kernel writes to its outputs and nowhere else. */
    if (status == GDN_OK && tensor->output) status = gdni_tensor_check(tensor, got, trial->want[i], tensor->rows);
    if (status == GDN_OK && !tensor->output && memcmp(got, tensor->host, tensor->bytes) != 0)
        status = GDN_FAIL(GDN_E_WRONG_RESULT, "the kernel wrote to %s, which is an input", tensor->name);
    gdni_free(got);
    return status;
}

static gdn_status try_plan(struct trial *trial, struct gdni_tune *t, const gdn_plan *plan)
{
    GDN_TRY(run(trial, t, plan));
    for (int i = 0; i < trial->work.num_tensors; ++i)
        GDN_TRY(compare(trial, &t->lab, i));
    return GDN_OK;
}

static gdn_status try_candidate(struct trial *trial, struct gdni_tune *t, int candidate)
{
    gdn_plan *plan = NULL;
    GDN_TRY(gdni_tune_plan(t, candidate, &trial->problem, &plan));
    const gdn_status status = try_plan(trial, t, plan);
    gdni_lab_give_back(&t->lab, trial->work.num_tensors); /* the workspace */
    gdni_tune_drop_plan(t, plan);
    return status;
}

/* The same cubin under other run-time parameters is another launch: every candidate is tried. */
static gdn_status try_all(struct trial *trial, struct gdni_tune *t)
{
    for (int i = 0; i < t->num_candidates; ++i) {
        if (!gdni_candidate_runs(&t->candidates[i])) continue;
        GDN_TRY(gdni_tune_begin(t, GDN_TUNE_CHECK, i));
        GDN_TRY(gdni_tune_end(t, GDN_TUNE_CHECK, i, try_candidate(trial, t, i)));
    }
    return GDN_OK;
}

gdn_status gdni_tune_check(struct gdni_tune *t)
{
    struct trial *trial = gdni_calloc(1, sizeof *trial);
    if (!trial) return GDN_FAIL(GDN_E_NOMEM, "out of memory for a trial call");
    gdn_status status = set_up(trial, t);
    if (status == GDN_OK) status = try_all(trial, t);
    tear_down(trial, t);
    return status;
}
