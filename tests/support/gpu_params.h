/*
 * gpu_params.h - plans of the GPU tests with parameters that are not the model's: every value of the space has to compute what
 * the oracle computes before a table may name it.
 */
#ifndef GPU_PARAMS_H
#define GPU_PARAMS_H

#include "codegen/problem.h"
#include "gdn_jit/gdn_jit.h"

/*
 * --params "stages=4,block_dv=16": what plans made from here on take, in each slot where there is a usable choice with these
 * values, the first of gdni_params_choices(). NULL: the plans' own. Exits on a text that is no such list.
 */
void gpu_force_params(const char *text);

/* Before a plan of this problem is made for this target: puts the choices where the plan will find them. Thread-safe. */
void gpu_force_for(gdn_ctx *ctx, const gdn_target *target, const struct gdni_problem *problem);

/* Whether --params says so of this one. */
bool gpu_forces(const char *name, int value);

/* False when --params was given and no slot of any plan had such a choice: nothing was tested. */
bool gpu_force_met(void);

#endif
