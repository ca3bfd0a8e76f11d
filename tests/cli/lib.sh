# lib.sh - what the scripts of this folder share: a room of their own, and checks that say what they saw.
set -u
: "${GDN_JIT_CACHE_TOOL:?is the path of gdn-jit-cache}"
unset GDN_JIT_CACHE_DIR GDN_JIT_BUNDLE_PATH GDN_JIT_CACHE_MAX_BYTES GDN_JIT_DISABLE_COMPILE GDN_JIT_DISABLE_CACHE GDN_JIT_LOG
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export XDG_CACHE_HOME=$room/xdg HOME=$room/home
failures=0

# run RC ARGS...: runs the tool; standard output in $out, standard error in $err, without what it says of a built-in table that
# waits to be measured anew (tests/support/shipped.h)
run() {
    local want=$1 got=0
    shift
    what="gdn-jit-cache $*"
    "$GDN_JIT_CACHE_TOOL" "$@" >"$room/out" 2>"$room/err" </dev/null || got=$?
    out=$(tr -d '\0' <"$room/out") err=$(sed "/tuning: a built-in table is ignored: .*its winners have not met this version's candidates/d" "$room/err")
    [ "$got" = "$want" ] || fail "exit status $got, not $want"
}

fail() {
    failures=$((failures + 1))
    printf 'FAIL %s: %s\n--- standard output\n%s\n--- standard error\n%s\n---\n' "$what" "$1" "$out" "$err"
}

# has TEXT WORDS; lacks TEXT WORDS
has() {
    case $1 in *"$2"*) ;; *) fail "lacks \"$2\"" ;; esac
}
lacks() {
    case $1 in *"$2"*) fail "has \"$2\"" ;; esac
}

# json EXPRESSION VALUE: what a Python expression over the output, d, gives
json() {
    local got
    got=$(python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$room/out" "$1" 2>&1)
    [ "$got" = "$2" ] || fail "$1 is $got, not $2"
}

# Skips the script where no kernel can be compiled.
need_nvrtc() {
    echo '[{"op":"conv1d_qkv","num_q_heads":1,"num_k_heads":1,"num_v_heads":1,"head_dim_qk":16,"head_dim_v":16,"width":2,
            "max_tokens":1}]' >"$room/smallest.json"
    "$GDN_JIT_CACHE_TOOL" warm --shapes "$room/smallest.json" -a sm_90a -d "$room/smallest" >"$room/out" 2>&1 ||
        { cat "$room/out"; exit 77; }
}

finish() {
    [ "$failures" = 0 ] && exit 0
    echo "$failures checks failed"
    exit 1
}
