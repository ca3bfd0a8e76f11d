#!/usr/bin/env bash
# The rules that keep the layers apart, checked on the text:
#   1. which folder, and which part of a kernel, may include which headers (tables below);
#   2. getenv, malloc, cJSON, dlopen, printf, and what ends the process: each in the files that may;
#   3. no CUDA header anywhere; templates include nothing but their own headers;
#   4. functions of at most 60 lines (tests/lint/long_functions.txt holds the exceptions, with reasons);
#   5. lines of at most 128 columns, no tabs, no trailing blanks, a header comment that names the file;
#   6. no line that a merge left, in any text.
#
#   layers.sh [ROOT]      prints one line a violation; exit 1 when there is one
set -euo pipefail
export LC_ALL=C.UTF-8
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
violations=$room/violations
: >"$violations"

report() {
    echo "$*" >>"$violations"
}

# files FOLDER... : the C, header, table and template files below, sorted
files() {
    local folder
    for folder in "$@"; do
        [ ! -d "$folder" ] || find "$folder" -type f \( -name '*.[ch]' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' \)
    done | sort
}

# search GREP-ARGUMENT... : FILE:NUMBER:LINE of each match in the files that it reads the names of
search() {
    xargs -r -d '\n' grep -nH "$@" || true
}

for file in $(files src include templates examples bench); do
    mkdir -p "$room/text/$(dirname "$file")"
    awk -f "$here/strip.awk" "$file" >"$room/text/$file"
done

# ---- 1. Who includes whom ----------------------------------------------------------------------------------------------
# layer FOLDER QUOTED ANGLED: what an #include "..." and an #include <...> of the folder may name, as whole-name expressions
layer() {
    local file number name
    for file in $(files "$1"); do
        while IFS=: read -r number name; do
            case $name in
                '"'*) [[ ${name//\"/} =~ ^($2)$ ]] || report "$file:$number: $1 may not include $name" ;;
                *) [[ ${name//[<>]/} =~ ^($3)$ ]] || report "$file:$number: $1 may not include $name" ;;
            esac
        done < <(sed -nE '/^[ \t]*#[ \t]*include/ { s/.*include[ \t]*("[^"]*"|<[^>]*>).*/\1/; =; p }' "$file" | paste -d: - -)
    done
}

# ctype.h is missing on purpose: it follows the locale of the embedder.
libc='(stdbool|stddef|stdint|stdarg|string|limits|float|inttypes|stdalign|math)\.h'
none='nothing'
layer include/gdn_jit 'gdn_jit/[a-z_]+\.h' '(stddef|stdint)\.h'
layer src/text 'text/[a-z_0-9]+\.h' "$libc"
layer src/json '(json|text)/[a-z_0-9]+\.h' "$libc|errno\.h|stdio\.h|cjson/cJSON\.h"
layer src/env '(gdn_jit|env)/[a-z_0-9]+\.h' "$libc|errno\.h|stdio\.h|stdlib\.h"
layer src/base '(gdn_jit|base|text|json)/[a-z_0-9]+\.h' "$libc|stdio\.h|stdlib\.h|cjson/cJSON\.h"
layer src/codegen '(gdn_jit|base|codegen)/[a-z_0-9]+\.(h|def)' "$libc|stdio\.h|xxhash\.h"
layer src/tuner '(gdn_jit|base|codegen|tuner)/[a-z_0-9]+\.(h|def)' "$libc|stdio\.h"
layer src/runtime '(gdn_jit|text|env|base|codegen|tuner|runtime)/[a-z_0-9]+\.(h|def)' '.*'
layer src/reference '(gdn_jit|base|reference)/[a-z_0-9]+\.h|codegen/problem\.h' "$libc|stdlib\.h"
layer src/cli '(gdn_jit/|cli/|text/|json/|env/)?[a-z_0-9]+\.h' '.*'
layer examples '(gdn_jit/|[a-z_0-9]+/)?[a-z_0-9]+\.h' '.*'
layer bench '(gdn_jit/|support/|common/)?[a-z_0-9]+\.h' '.*'
layer templates 'gdn_[a-z_0-9]+\.cuh' "$none"

# A kernel's parts know of those that stand before them in its row of src/codegen/spec.c, and of no others.
quoted() { # FILE : the headers that it includes, by name
    sed -nE 's/^[ \t]*#[ \t]*include[ \t]*"([^"]*)".*/\1/p' "$1"
}
if [ -f src/codegen/spec.c ]; then
    mapfile -t parts < <(grep -oE '"gdn_[a-z_0-9]+\.cuh"' src/codegen/spec.c | tr -d '"')
    for i in "${!parts[@]}"; do
        file=templates/include/${parts[i]}
        [ -f "$file" ] || continue
        earlier=" ${parts[*]:0:i} " others=" ${parts[*]:i} "
        while read -r name; do
            if [[ $others == *" $name "* && $earlier != *" $name "* ]]; then
                report "$file:1: ${parts[i]} may not include $name, which comes after it in src/codegen/spec.c"
            fi
        done < <(quoted "$file")
    done
fi

# unaware PART OTHER... : the part does not come to know of the others by way of what it includes either
unaware() {
    local part=$1 file name other
    local -a todo=("$1") seen=()
    shift
    while [ ${#todo[@]} -gt 0 ]; do
        file=templates/include/${todo[0]} todo=("${todo[@]:1}")
        [ -f "$file" ] || continue
        while read -r name; do
            [[ " ${seen[*]} " != *" $name "* ]] || continue
            seen+=("$name") todo+=("$name")
            for other; do
                [ "$name" != "$other" ] || report "templates/include/$part:1: $part is not to know of $other: $file includes it"
            done
        done < <(quoted "$file")
    done
}
unaware gdn_hopper_shared.cuh gdn_hopper_items.cuh gdn_sequence.cuh
unaware gdn_hopper_forgetting.cuh gdn_hopper_items.cuh
unaware gdn_hopper_cuts.cuh gdn_hopper_queue.cuh
unaware gdn_hopper_aux.cuh gdn_hopper_items.cuh gdn_hopper_state.cuh
unaware gdn_hopper_state.cuh gdn_hopper_items.cuh gdn_hopper_aux.cuh
unaware gdn_hopper_factors.cuh gdn_hopper_rows.cuh gdn_images.cuh
unaware gdn_hopper_producer.cuh gdn_hopper_rows.cuh gdn_hopper_ring.cuh
unaware gdn_hopper_chain.cuh gdn_hopper_items.cuh gdn_hopper_factors.cuh
unaware gdn_hopper_readout.cuh gdn_hopper_items.cuh gdn_hopper_factors.cuh
unaware gdn_split_producer.cuh gdn_split_shared.cuh

# An example or a benchmark that names one of the library's own folders reaches behind the public header.
while IFS=: read -r file number _; do
    report "$file:$number: only the public header may be included here"
done < <(files examples bench | search -E '^[ \t]*#[ \t]*include[ \t]*"(\.\./|src/|base/|codegen/|runtime/|reference/|cli/)')

# ---- 2. One file each --------------------------------------------------------------------------------------------------
# only CALLS FILES REMEDY: no file of src/ but those that match FILES calls one of CALLS (a member of that name is another thing)
only() {
    local file number
    while IFS=: read -r file number _; do
        [[ $file =~ ^($2)$ ]] || report "$file:$number: calls one of $1: $3"
    done < <(cd "$room/text" && files src | search -E "(^|[^A-Za-z0-9_.>])($1)[ ]*\(")
}

only 'secure_getenv' 'src/env/variables\.c' 'the environment is read in src/env/variables.c'
only 'getenv|setenv|putenv' none 'the environment is read by secure_getenv(), which tells a program with raised privileges nothing'
only 'malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|strdup|strndup|asprintf|vasprintf' \
    'src/(base|cli)/mem\.c' 'allocate through src/base/mem.h (in the tool: src/cli/mem.c)'
only 'cJSON_[A-Za-z]+' 'src/(json/.*|base/json\.c|cli/.*)' 'JSON is read through src/base/json.h (in the tool: src/cli/json.h)'
only 'dlopen|dlmopen' 'src/runtime/(clocks|driver|nvrtc)\.c' 'libraries are opened in src/runtime/clocks.c, driver.c and nvrtc.c'
only 'printf|fprintf|vprintf|vfprintf|dprintf|vdprintf|puts|fputs|putchar|fputc|putc|perror|psignal' 'src/cli/.*' \
    'the library never prints: fail with GDN_FAIL or log with gdni_log()'
only 'abort|assert|exit|_exit|_Exit|quick_exit|raise|__builtin_trap|errx?|warnx?' 'src/cli/.*' \
    'the library never ends or interrupts the process: return a status'

# ---- 3. No CUDA header -------------------------------------------------------------------------------------------------
foreign='<(cuda|nvrtc|cub/|thrust/|cutlass|cute/|nv/|mma\.h|cooperative_groups)'
foreign+='|"(cuda|cuda_[a-z]+_api|cuda_runtime|cuda_fp16|cuda_bf16|nvrtc)\.h"|"(cutlass|cute|cub|thrust)/'
while IFS=: read -r file number _; do
    report "$file:$number: CUDA, CCCL and CUTLASS headers are not used: write the prototype or the instruction"
done < <(files src include templates examples bench tests | search -E "^[ \t]*#[ \t]*include[ \t]*($foreign)")

# ---- 4. Length of functions --------------------------------------------------------------------------------------------
for file in $(files src | grep '\.c$'); do
    while read -r where name lines; do
        if grep -Eq "^$file +$name +[^ ]" "$here/long_functions.txt"; then continue; fi
        report "$where: $name() has $lines lines: at most 60"
    done < <(awk -v limit=60 -f "$here/functions.awk" "$room/text/$file" | sed "s|^$room/text/||")
done

# ---- 5. Form -----------------------------------------------------------------------------------------------------------
# 120 columns are the rule; a few more are let pass where a break would read worse.
while IFS=: read -r file number _; do
    report "$file:$number: more than 128 columns, a tab, or blanks at the end"
done < <(files src include templates examples bench tests | search -P '^.{129}|\t|[ ]$')
for file in $(files src include templates | grep -E '\.(c|h|cu|cuh)$'); do
    head -n 2 "$file" | grep -qF "$(basename "$file") - " ||
        report "$file:1: starts without a comment '$(basename "$file") - what it owns'"
done

# ---- 6. What merges leave ----------------------------------------------------------------------------------------------
while IFS=: read -r file number _; do
    report "${file#./}:$number: a merge was not finished here"
done < <(grep -rnIE '^(<{7} |>{7} |={7}$)' --exclude-dir=.git --exclude-dir='build*' --exclude-dir=.deps . || true)

cat "$violations"
[ ! -s "$violations" ] || { echo "$(wc -l <"$violations") violations" >&2; exit 1; }
echo "layers hold: $(files src include templates examples bench tests | wc -l) files"
