#!/usr/bin/env bash
# What an embedder's loader sees of the shared library:
#   - it needs libc (libm, libpthread, libdl, the loader), what the build said it would, and nothing else: no CUDA, no libstdc++;
#   - it defines exactly the functions that the public header declares, all of them gdn_*;
#   - its SONAME carries the ABI's version, its stack is not executable, its relocations are read-only.
#
#   check_elf.sh LIBRARY HEADER SONAME [ALSO_NEEDED]
set -euo pipefail
export LC_ALL=C
library=$1 header=$2 soname=$3 also=${4:-}
failures=0

fail() {
    echo "FAIL: $*" >&2
    failures=$((failures + 1))
}

needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
[ -n "$needed" ] || fail "no NEEDED entry in $library: readelf printed something unexpected"
for name in $needed; do
    case $name in
        libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | ld-linux-*.so.* | ld64.so.*) ;;
        "${also:-none}") ;;
        *) fail "$library needs $name: only libc, libm, libpthread and libdl are allowed; open the rest with dlopen" ;;
    esac
done

[ -z "$also" ] || grep -qxF -- "$also" <<<"$needed" ||
    fail "$library does not need $also, as the build said it would: is the code that needs it gone?"

exported=$(nm -D --defined-only --format=posix "$library" |
    awk '$2 != "A" { sub(/@.*/, "", $1); print $1 }' | sort -u) # A: the version's own name
while read -r name; do
    case $name in
        gdn_*) ;;
        *) fail "$library exports '$name': only gdn_* may leave it (cmake/gdnjit.map)" ;;
    esac
done <<<"$exported"

# A declaration starts at GDN_API in column 0 and may run over several lines; the name stands before the first parenthesis.
declared=$(awk '/^GDN_API / { open = 1; text = "" }
                open { text = text " " $0 }
                open && /\(/ { sub(/ *\(.*/, "", text); sub(/.*[ *]/, "", text); print text; open = 0 }' "$header" |
    sort -u)
[ "$(wc -l <<<"$declared")" -ge 10 ] || fail "only '$declared' found in $header: the parser of this test is out of date"
for name in $(comm -23 <(echo "$declared") <(echo "$exported")); do
    fail "$name is declared GDN_API in $header but not exported: is it defined?"
done
for name in $(comm -13 <(echo "$declared") <(echo "$exported")); do
    fail "$name is exported but not declared GDN_API in $header: make it static or name it gdni_$name"
done

dynamic=$(readelf -dW "$library")
segments=$(readelf -lW "$library")
actual=$(sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p' <<<"$dynamic")
[ "$actual" = "$soname" ] || fail "SONAME is '$actual', expected '$soname'"
grep -q GNU_RELRO <<<"$segments" || fail "no GNU_RELRO segment: link with -Wl,-z,relro"
grep -Eq 'BIND_NOW|\(FLAGS_1\).*NOW' <<<"$dynamic" || fail "lazy binding: link with -Wl,-z,now"
grep -Eq 'GNU_STACK .* RW +0x' <<<"$segments" || fail "the stack is executable (or GNU_STACK is missing)"

[ "$failures" -eq 0 ] || exit 1
echo "$(wc -l <<<"$exported") functions exported, as declared; needs: $(tr '\n' ' ' <<<"$needed")"
