#!/usr/bin/env bash
# warm --tuning: builds what an engine with the user's table plans, and nothing for one without; a bad table is an error.
. "$(dirname "$0")/lib.sh"
: "${GDN_MAKE_TUNING:?is the path of make_tuning}"
need_nvrtc
d=$room/cache
table=$room/table.json
conv="-m qwen3.5-27b --tp 1 --op conv1d_qkv --prologue conv --max-tokens 256 --x-alignment 16 -g h200"
"$GDN_MAKE_TUNING" "$table" || exit 1

run 0 show $conv --tuning "$table" -d "$d" --json
json 'd["shapes"][0]["plan"]["variants"][0]["params"]["tile_tokens"], d["shapes"][0]["plan"]["variants"][0]["params_origin"]' "(16, 'exact')"
key=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["shapes"][0]["plan"]["variants"][0]["key"])' "$room/out")
run 0 warm $conv --tuning "$table" -d "$room/tuned" --json
json '[k["key"] for k in d["kernels"]]' "['$key']"
run 0 warm $conv -d "$room/plain" --json
json "len(d['kernels']), d['kernels'][0]['key'] != '$key'" "(1, True)"

# An engine that has the table finds its kernel in the one, and one without in the other.
export GDN_JIT_DISABLE_COMPILE=1
GDN_JIT_TUNING_PATH=$table run 0 show $conv -d "$room/tuned"
GDN_JIT_TUNING_PATH=$table run 1 show $conv -d "$room/plain"
has "$err" "key $key"
run 0 show $conv -d "$room/plain"
run 1 show $conv -d "$room/tuned"
unset GDN_JIT_DISABLE_COMPILE

# The union of an arch holds the one of the table, and the model's choice for who plans with GDN_PLAN_HEURISTIC.
run 0 warm ${conv/-g h200/-a sm_90a} --tuning "$table" -d "$room/union" --json
json "'$key' in [k['key'] for k in d['kernels']]" True
run 0 warm $conv -d "$room/union" --json
json 'd["built"]' 0

# A bundle of it.
run 0 pack $conv --tuning "$table" -d "$d" -o "$room/bundle"
[ -n "$(find "$room/bundle" -name "$key.*")" ] || fail "lacks $key"

# A file that is named is taken in, or nothing is built.
run 2 warm $conv --tuning "$room/nowhere.json" -d "$room/bad"
has "$err" "--tuning $room/nowhere.json: "
echo '{"schema": 9}' >"$room/bad.json"
run 2 warm $conv --tuning "$table" --tuning "$room/bad.json" -d "$room/bad"
has "$err" "bad.json"
[ -z "$(find "$room/bad" -name '*.gdnk' 2>/dev/null)" ] || fail "built something"
run 2 pack --tuning "$table" -o "$room/none"
run 2 show --key 12345678 --tuning "$table"

finish
