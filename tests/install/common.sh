# shellcheck shell=bash
# Sourced by the scripts of this folder: a folder of their own, $room, and what they fail by.
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

# quiet LOG COMMAND... : the log is shown when the command fails
quiet() {
    local log=$room/$1.log
    shift
    "$@" >"$log" 2>&1 || { cat "$log"; fail "$*"; }
}
