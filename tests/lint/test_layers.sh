#!/usr/bin/env bash
# layers.sh must see what it is there for. A small tree that keeps every rule has to pass; each violation planted into a
# copy of it has to be refused, with the file's name and the rule's words.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
planted=0

# file PATH LINE... : a file of the clean tree, with its header comment
file() {
    local path=$room/clean/$1
    mkdir -p "$(dirname "$path")"
    { echo "/* $(basename "$1") - a file of the test. */"; shift; [ $# -eq 0 ] || printf '%s\n' "$@"; } >"$path"
}

file include/gdn_jit/gdn_jit.h '#include <stdint.h>' '#include "gdn_jit/version.h"'
file src/base/mem.c '#include <stdlib.h>' '#include "base/mem.h"' 'void *take(void)' '{' '    return malloc(1);' '}'
file src/codegen/spec.c '#include <stdio.h>' '#include "base/error.h"' '#include "codegen/params.def"' \
    '/* malloc(1), getenv("X") and printf() in a comment' ' * are words. */' \
    'const char *rows[] = { "gdn_hopper_shared.cuh", "gdn_hopper_items.cuh", "gdn_hopper_links.cuh", "gdn_hopper_state.cuh" };' \
    'const char *words = "abort(), free(), /* dlopen() */";' 'int x = s->free(1); // exit(1)'
file src/env/variables.c '#include <stdlib.h>' 'const char *home = secure_getenv("HOME");'
file src/runtime/env.c '#include "env/variables.h"'
file src/runtime/driver.c '#include <dlfcn.h>' '#include "codegen/unit.h"' 'void *cuda = dlopen("libcuda.so.1", 2);'
file src/reference/prefill.c '#include <math.h>' '#include "base/half.h"' '#include "codegen/problem.h"'
file src/text/printable.c '#include "text/printable.h"'
file src/json/value.c '#include "json/value.h"' '#include <cjson/cJSON.h>' 'bool is = cJSON_IsNull(item);'
file src/cli/cmd_list.c '#include <stdio.h>' '#include "gdn_jit/gdn_jit.h"' '#include "cli/table.h"' '#include "json/value.h"' \
    '#include "text/printable.h"' 'int n = printf("x");'
file examples/minimal.c '#include "cuda_mini.h"' '#include "gdn_jit/gdn_jit.h"'
file bench/gdn_bench.c '#include "support/rng.h"'
file templates/conv1d_qkv.cu '#include "gdn_spec.cuh"'
file templates/include/gdn_hopper_shared.cuh
file templates/include/gdn_hopper_items.cuh '#include "gdn_hopper_shared.cuh"'
file templates/include/gdn_hopper_state.cuh '#include "gdn_hopper_shared.cuh"'
{
    echo 'static const int table[] = {'
    for i in $(seq 80); do echo "    $i,"; done
    printf '};\n\nint long_enough(int a,\n                int b)\n{\n'
    for i in $(seq 55); do echo "    a += b;"; done
    printf '    return a;\n}\n'
} >>"$room/clean/src/codegen/spec.c"

bash "$here/layers.sh" "$room/clean" || { echo "FAIL: the clean tree was refused"; exit 1; }

# refuses PATH WORDS LINE...: appends the lines to the file, and layers.sh names the file and says WORDS
refuses() {
    local path=$1 words=$2 output
    shift 2
    rm -rf "$room/copy"
    cp -r "$room/clean" "$room/copy"
    mkdir -p "$room/copy/$(dirname "$path")"
    [ -e "$room/copy/$path" ] || echo "/* $(basename "$path") - new. */" >"$room/copy/$path"
    printf '%s\n' "$@" >>"$room/copy/$path"
    if output=$(bash "$here/layers.sh" "$room/copy" 2>&1); then
        echo "FAIL: planted in $path and not seen: $*"
        exit 1
    fi
    grep -F -- "$path:" <<<"$output" | grep -qF -- "$words" || {
        printf 'FAIL: planted in %s: %s\nexpected words: %s\nprinted:\n%s\n' "$path" "$*" "$words" "$output"
        exit 1
    }
    planted=$((planted + 1))
}

refuses src/base/mem.c 'src/base may not include "codegen/spec.h"' '#include "codegen/spec.h"'
refuses src/text/printable.c 'src/text may not include "json/value.h"' '#include "json/value.h"'
refuses src/env/variables.c 'src/env may not include "base/mem.h"' '#include "base/mem.h"'
refuses src/cli/env.c 'environment is read in' 'const char *x = secure_getenv("X");'
refuses src/json/value.c 'src/json may not include "base/error.h"' '#include "base/error.h"'
refuses src/codegen/spec.c 'may not include "runtime/log.h"' '#include "runtime/log.h"'
refuses src/codegen/spec.c 'may not include <pthread.h>' '#  include <pthread.h>'
refuses src/codegen/spec.c 'may not include <ctype.h>' '#include <ctype.h>'
refuses src/codegen/spec.c 'may not include "spec.h"' '#include "spec.h"'
refuses src/reference/prefill.c 'may not include "codegen/spec.h"' '#include "codegen/spec.h"'
refuses src/runtime/plan.c 'may not include "cli/table.h"' '#include "cli/table.h"'
refuses src/cli/cmd_list.c 'may not include "base/error.h"' '#include "base/error.h"'
refuses examples/minimal.c 'only the public header' '#include "runtime/context.h"'
refuses bench/gdn_bench.c 'may not include "codegen/spec.h"' '#include "codegen/spec.h"'
refuses include/gdn_jit/gdn_jit.h 'may not include <stdio.h>' '#include <stdio.h>'
refuses templates/conv1d_qkv.cu 'may not include <cuda_fp16.h>' '#include <cuda_fp16.h>'
refuses templates/include/gdn_hopper_shared.cuh 'comes after it' '#include "gdn_hopper_items.cuh"'
refuses templates/include/gdn_hopper_state.cuh 'is not to know of gdn_hopper_items.cuh' '#include "gdn_hopper_items.cuh"'
refuses templates/include/gdn_tile.cuh 'may not include "cute/tensor.hpp"' '#include "cute/tensor.hpp"'
refuses src/runtime/driver.c 'CUDA, CCCL and CUTLASS' '#include <cuda.h>'
refuses tests/gpu/test_host.c 'CUDA, CCCL and CUTLASS' '#include "cuda_runtime.h"'
refuses src/runtime/driver.c 'environment is read in' 'const char *x = secure_getenv("X");'
refuses src/runtime/env.c 'read by secure_getenv' 'const char *x = getenv("X");'
refuses src/codegen/spec.c 'src/base/mem.h' 'void *p = calloc(1, 2);'
refuses src/runtime/plan.c 'src/base/mem.h' '/* */ int f(void) { free(p); return 0; }'
refuses src/runtime/plan.c 'driver.c and nvrtc.c' 'void *p = dlopen(path, 2);'
refuses src/runtime/plan.c 'src/base/json.h' 'void *p = cJSON_Parse(text);'
refuses src/runtime/plan.c 'never prints' 'int n = fprintf(stderr, "x");'
refuses src/base/mem.c 'never prints' 'int n = (puts("x"));'
refuses src/runtime/plan.c 'never ends' 'int f(void) { abort(); }'
refuses src/codegen/spec.c 'never ends' 'void g(int a) { assert (a); }'
long_body=$(for i in $(seq 60); do echo '    x();'; done)
refuses src/runtime/plan.c 'f() has 63 lines' 'int f(void)' '{' "$long_body" '}'
refuses src/cli/cmd_list.c 'pointer() has 63 lines' 'static const char *pointer(int a) {' '/*' '*/' \
    "${long_body#*$'\n'}" '}'
refuses src/runtime/plan.c 'more than 128 columns' "/* $(printf 'x%.0s' $(seq 130)) */"
refuses src/runtime/plan.c 'a tab' $'int\tx;'
refuses src/runtime/plan.c 'blanks at the end' 'int x; '

refuses docs/architecture.md 'a merge was not finished' "<<<""<<<< HEAD"
refuses CMakeLists.txt 'a merge was not finished' "===""===="

echo 'int x;' >"$room/clean/src/runtime/plan.c"
refuses src/runtime/plan.c "starts without a comment 'plan.c - " 'int y;'

echo "$planted planted violations refused"
