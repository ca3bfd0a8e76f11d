/*
 * shape.h - a problem as the JSON object that describes it: what `gdn-jit-cache warm --shapes` takes (gdn-jit-cache(1)).
 */
#ifndef GDNI_SHAPE_H
#define GDNI_SHAPE_H

#include "base/strbuf.h"
#include "codegen/problem.h"

/* Every member that the operator has, defaults spelt out, on one line: {"op": "gdn_prefill", "io_type": "bf16", ...} */
void gdni_shape_print(struct gdni_strbuf *sb, const struct gdni_problem *p);

#endif
