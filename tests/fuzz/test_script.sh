#!/usr/bin/env bash
# scripts/fuzz.sh says why when a target does not configure or build: with a cmake that fails it prints that cmake's errors, and
# ends with an exit status that is not 0, before it writes a result.
#
#   test_script.sh SOURCE_DIR
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
mkdir -p "$room/scripts" "$room/tests/fuzz" "$room/bin"
cp "$1/scripts/fuzz.sh" "$room/scripts/"
touch "$room/tests/fuzz/fuzz_planted.c"

# fails_at ARGUMENT SENTENCE: cmake fails where its first argument is ARGUMENT, with a compiler's sentence on stdout
fails_at() {
    cat >"$room/bin/cmake" <<END
#!/bin/sh
[ "\$1" = "$1" ] || exit 0
echo "planted.c:1:1: error: $2"
exit 1
END
    chmod +x "$room/bin/cmake"
    if PATH=$room/bin:$PATH bash "$room/scripts/fuzz.sh" 1 1 >"$room/output" 2>&1; then
        echo "FAIL: cmake $1 failed, scripts/fuzz.sh did not" >&2
        exit 1
    fi
    grep -qF "$2" "$room/output" || {
        echo "FAIL: cmake $1 failed with '$2', scripts/fuzz.sh said: $(cat "$room/output")" >&2
        exit 1
    }
    [ ! -e "$room/bench" ] || {
        echo "FAIL: cmake $1 failed, and a result was written" >&2
        exit 1
    }
}

fails_at --preset "a preset is planted"
fails_at --build "a type is planted"
echo "scripts/fuzz.sh prints what fails"
