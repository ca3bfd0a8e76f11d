#!/usr/bin/env bash
# Commands that only read the cache directory make none, whoever names it, and fail with who did, which one, and the remedy.
. "$(dirname "$0")/lib.sh"

# refused WORDS: each of them, with the environment as it is and the options of $named
refused() {
    local command
    for command in list verify "verify --remove" prune "prune --dry-run" "show --key 1234" "pack -o $room/bundle"; do
        run 1 $command $named
        has "$err" "$1"
        lacks "$err" "warning"
        [ -z "$out" ] || fail "prints on standard output"
        [ -z "$(find "$room" -mindepth 1 ! -path "$room/out" ! -path "$room/err" ! -path "$HOME")" ] || fail "made something"
    done
}

mkdir "$HOME"
named="--cache-dir $room/typo"
refused "--cache-dir $room/typo cannot be read: No such file or directory; name a directory that is there, or let gdn-jit-cache warm"
named=
GDN_JIT_CACHE_DIR=$room/x/typo refused \
    "no cache directory: GDN_JIT_CACHE_DIR names $room/x/typo, which is not there: correct it, or let gdn-jit-cache warm make it"
refused "no cache directory: XDG_CACHE_HOME has it at $XDG_CACHE_HOME/gdn-jit, and there is none yet: gdn-jit-cache warm makes it"
unset XDG_CACHE_HOME
refused "no cache directory: HOME has it at $HOME/.cache/gdn-jit, and there is none yet: gdn-jit-cache warm makes it"

# One that is there is read, and left as it is.
mkdir -m 700 "$room/empty"
run 0 list -d "$room/empty"
has "$out" "0 kernels, 0 B in $room/empty"
export GDN_JIT_CACHE_DIR=$room/empty
run 0 verify
has "$out" "0 entries, 0 B in $room/empty: 0 damaged"
run 0 prune
has "$out" "removed 0 of 0 entries, 0 B, in $room/empty"
run 1 show --key 1234
has "$err" "--key 1234: no such entry in $room/empty"
[ -z "$(ls -A "$room/empty")" ] || fail "made something"

finish
