#!/usr/bin/env bash
# check_elf.sh must see what it is there for: each planted fault below has to be refused, with its own words.
#
#   test_check_elf.sh C_COMPILER
set -euo pipefail
cc=$1
here=$(cd "$(dirname "$0")" && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

for i in $(seq 12); do echo "GDN_API int gdn_f$i(void);"; done >"$room/api.h"
printf 'GDN_API const char *\n        gdn_long(int a,\n                 int b);\n' >>"$room/api.h"
{
    echo '#define GDN_API __attribute__((visibility("default")))'
    cat "$room/api.h"
    for i in $(seq 12); do echo "int gdn_f$i(void) { return $i; }"; done
    echo '#include <stdlib.h>'
    echo 'const char *gdn_long(int a, int b) { return a < b ? getenv("A") : "b"; }'
} >"$room/good.c"

# build NAME [LINK OPTION...] < source
build() {
    local name=$1
    shift
    "$cc" -shared -fPIC -fvisibility=hidden -x c - -x none -o "$room/$name.so" -Wl,-soname,libx.so.0 \
        -Wl,-z,relro -Wl,-z,now "$@"
}

# refuses NAME WORDS: check_elf.sh fails on it and says WORDS
refuses() {
    local output
    if output=$(bash "$here/check_elf.sh" "$room/$1.so" "$room/api.h" libx.so.0 2>&1); then
        echo "FAIL: $1 passed check_elf.sh" && exit 1
    fi
    grep -qF -- "$2" <<<"$output" || { printf "FAIL: %s was refused, but not for '%s':\n%s\n" "$1" "$2" "$output"; exit 1; }
}

build good <"$room/good.c"
bash "$here/check_elf.sh" "$room/good.so" "$room/api.h" libx.so.0

{ cat "$room/good.c"; echo '__attribute__((visibility("default"))) int helper(void) { return 1; }'; } | build leak
refuses leak "exports 'helper'"
{ cat "$room/good.c"; echo 'GDN_API int gdn_extra(void) { return 1; }'; } | build extra
refuses extra "gdn_extra is exported but not declared"
sed '/^int gdn_f7(/d' "$room/good.c" | build missing
refuses missing "gdn_f7 is declared GDN_API"
echo 'int cuInit(unsigned f) { return (int)f; }' |
    "$cc" -shared -fPIC -x c - -o "$room/libcuda.so.1" -Wl,-soname,libcuda.so.1
build cuda -Wl,--no-as-needed "$room/libcuda.so.1" <"$room/good.c"
refuses cuda "needs libcuda.so.1"
bash "$here/check_elf.sh" "$room/cuda.so" "$room/api.h" libx.so.0 libcuda.so.1
! bash "$here/check_elf.sh" "$room/good.so" "$room/api.h" libx.so.0 libcuda.so.1 2>"$room/unneeded" ||
    { echo "FAIL: a library that should need libcuda.so.1 and does not passed check_elf.sh" && exit 1; }
grep -qF "does not need libcuda.so.1" "$room/unneeded" || { cat "$room/unneeded" && exit 1; }
build soname -Wl,-soname,libx.so <"$room/good.c"
refuses soname "SONAME is 'libx.so'"
build stack -Wl,-z,execstack <"$room/good.c"
refuses stack "stack is executable"
build lazy -Wl,-z,lazy <"$room/good.c"
refuses lazy "lazy binding"
echo "8 planted faults refused"
