#!/usr/bin/env bash
# tune: what it writes is what plans take; a run that is killed goes on; candidates that are wrong, hang, fault or take their
# process along are left out. The GPU is played by a driver that computes with the host reference (tuning_gpu.c).
. "$(dirname "$0")/lib.sh"
need_nvrtc # the stand-in for it will do, and does where CMake runs this; the pause of a compile below needs it
: "${GDN_FAKE_GPU_DIR:?is the folder of the fake libcuda.so.1 that computes}"
export LD_LIBRARY_PATH=$GDN_FAKE_GPU_DIR
unset GDN_JIT_TUNING_PATH
d=$room/cache f=$room/h200.json
cat >"$room/s.json" <<'END'
[{"op":"conv1d_qkv","num_q_heads":1,"num_k_heads":1,"num_v_heads":2,"head_dim_qk":64,"head_dim_v":64,"flags":["silu"],
  "max_tokens":300,"max_seqs":4}]
END
conv="--shapes $room/s.json -d $d -f $f"

# smem TILE THREADS: of conv1d-QKV, a width of 4, 16 bit: what tells candidates apart
smem() {
    echo $((($1 + 9) * $2 * 16))
}
params() {
    echo "{\"tile_tokens\": $1, \"cta_threads\": $2}"
}

# ---- From times to a plan ----
GDN_FAKE_TIMES=$(smem 16 64):14000 run 0 tune $conv --tokens 300 --json
json 'len(d["jobs"]), d["gpu"], d["jobs"][0]["state"], d["jobs"][0]["candidates"], d["jobs"][0]["left_out"]' \
    "(1, 'NVIDIA H200', 'tuned', 12, [])"
json 'd["jobs"][0]["params"]' "$(params 16 64)"
json 'd["jobs"][0]["heuristic_params"]' "$(params 4 128)"
json '13700 < d["jobs"][0]["ns"] < 14300 and 19600 < d["jobs"][0]["heuristic_ns"] < 20400 and d["jobs"][0]["samples"] >= 10' True
grep -q '"sm_mhz": 1980, "mem_mhz": 3201' "$f" || fail "the file does not say which clocks were seen"
[ ! -e "$f.journal" ] || fail "leaves a journal behind"
shown='[(v["params"]["tile_tokens"], v["params"]["cta_threads"], [c["by"] for c in v["chosen_by"]]) for v in d["shapes"][0]["plan"]["variants"] if 300 in v["buckets"]]'
run 0 show --shapes "$room/s.json" -d "$d" -g h200 --what json
json "$shown" "[(4, 128, ['heuristic', 'heuristic'])]"
GDN_JIT_TUNING_PATH=$f run 0 show --shapes "$room/s.json" -d "$d" -g h200 --what json
json "$shown" "[(16, 64, ['bucket', 'exact'])]"

# The same times again: the same file, but for what was measured.
cp "$f" "$room/first"
GDN_FAKE_TIMES=$(smem 16 64):14000 run 0 tune $conv --tokens 300
has "$out" "$(params 16 64)"
has "$out" "1 of NVIDIA H200 (sm_90a)"
choices() { grep -o '"params": {[^}]*}' "$1"; }
[ "$(choices "$f")" = "$(choices "$room/first")" ] || fail "chose something else"

# The table names heads as they are, though a check's depend on nothing but their ratios.
sed 's/"num_q_heads":1,"num_k_heads":1,"num_v_heads":2/"num_q_heads":2,"num_k_heads":2,"num_v_heads":4/' "$room/s.json" \
    >"$room/twice.json"
run 0 tune --shapes "$room/twice.json" -d "$d" -f "$room/twice_tuned.json" --tokens 300
has "$out" "heads 2/2/4"

# ---- --check: what is there, what lacks, what is stale ----
run 0 tune $conv --tokens 300 --check
has "$out" "has 1 of 1, of which 0 were measured with another kernel"
run 1 tune $conv --tokens 100,300 --check --json
json 'd["wanted"], d["missing"], d["stale"]' \
    "(2, ['conv1d_qkv bf16 dims 64/64 heads 1/1/2 width 4, up to 256 tokens, 0 seqs'], [])"
run 1 tune $conv --tokens 300 --check -g "NVIDIA H100 PCIe"
has "$out" "missing: conv1d_qkv"
# What others know does not count: tables of the path, built-in ones; nor need the file be there.
GDN_JIT_TUNING_PATH=$f run 1 tune --shapes "$room/s.json" -d "$d" -f "$room/none.json" --tokens 300 --check
has "$out" "$room/none.json has 0 of 1, of which 0 were measured with another kernel"
[ ! -e "$room/none.json" ] || fail "made the file"
run 1 tune -m all -d "$room/not made" -f "$room/none.json" --check -g h200
[ ! -e "$room/not made" ] || fail "a look at a tuning file made a cache directory"
[ -z "$err" ] || fail "it says something of a cache"
run 1 tune -m all -d "$d" -f "$room/none.json" --check -g h200 --json
json 'len(d["missing"]) == d["wanted"] > 0, d["stale"]' "(True, [])"
sed -i 's/"code": "[0-9a-f]*"/"code": "0123456789abcdef"/' "$f"
run 1 tune $conv --tokens 300 --check
has "$out" "stale:   conv1d_qkv bf16"
GDN_JIT_TUNING_PATH=$f run 0 show --shapes "$room/s.json" -d "$d" -g h200
has "$out" "(exact, bucket; measured before its kernel changed)"

# ---- Candidates that must not win ----
rm -f "$f"
GDN_FAKE_TIMES=$(smem 8 64):wrong,$(smem 8 256):hang,$(smem 16 256):fault,$(smem 16 128):die,$(smem 4 64):15000 \
    run 0 tune $conv --tokens 100,300 --timeout 1s --json
json '[sorted(j["left_out"]) for j in d["jobs"]]' \
    "$(python3 -c "print([sorted(['$(params 8 64)', '$(params 8 256)', '$(params 16 256)', '$(params 16 128)'])] * 2)")"
json '[j["params"] for j in d["jobs"]]' "['$(params 4 64)', '$(params 4 64)']"
has "$err" "of q is off by"
has "$err" "did not end within 1000 ms"
has "$err" "illegal memory access"
has "$err" "the process that tried it died"

# What is wrong in a process that has tried others is tried in one of its own before it is left out: they may have spoilt it.
rm -f "$f" "$f.journal"
GDN_FAKE_TIMES=$(smem 8 64):spoilt GDN_FAKE_SPOILT=$room/spoilt run 0 tune $conv --tokens 300 --json
[ -e "$room/spoilt" ] || fail "nothing was spoilt"
json 'd["jobs"][0]["state"], d["jobs"][0]["left_out"]' "('tuned', [])"

# However long the list of those that a worker is to leave out, it leaves out the last too.
rm -f "$f" "$f.journal"
worker() { # PARAMS... : one request of a tuner that has left these out
    python3 -c 'import json, sys; print(json.dumps({"job": 0, "step": "measure", "skip": sys.argv[1:]}))' "$@" |
        "$GDN_JIT_CACHE_TOOL" tune $conv --tokens 300 --worker >"$room/out" 2>"$room/err"
    what="a worker that is to leave out $# candidates" out=$(cat "$room/out") err=$(cat "$room/err")
}
worker "$(params 8 64)"
lacks "$out" '"try":"{\"tile_tokens\": 8, \"cta_threads\": 64}"'
has "$out" '"try":"{\"tile_tokens\": 8, \"cta_threads\": 256}"'
worker $(seq 95) "$(params 8 256)"
lacks "$out" '"try":"{\"tile_tokens\": 8, \"cta_threads\": 256}"'
has "$out" '"try":"{\"tile_tokens\": 8, \"cta_threads\": 64}"'
has "$out" '"status":"GDN_OK"'

# When all of them fail there is nothing to write, and the other shape is tuned all the same.
rm -f "$f" "$f.journal"
times=
for tile in 4 8 12 16; do for threads in 64 128 256; do times=$times$(smem $tile $threads):wrong,; done; done
GDN_FAKE_TIMES=$times run 1 tune $conv --tokens 300 --json
json 'd["jobs"][0]["state"], d["jobs"][0]["message"], len(d["jobs"][0]["left_out"])' "('failed', 'every candidate failed', 12)"
has "$err" "1 of 1 are not tuned"
[ ! -e "$f" ] || fail "wrote a file without a decision"

# What is no candidate's fault leaves none out, neither in this run nor in the next: the driver's, the GPU's memory, the worker's.
rm -f "$f" "$f.journal"
nobodys() { # WORDS : what the last run says of its job
    json 'd["jobs"][0]["state"], d["jobs"][0]["left_out"]' "('failed', [])"
    has "$err" "not tuned: $1"
    lacks "$(cat "$f.journal")" '"failed"'
}
for failing in "cuDevicePrimaryCtxRetain:2 cuDevicePrimaryCtxRetain failed" \
    "cuDevicePrimaryCtxRetain:46 cuDevicePrimaryCtxRetain failed" "cuMemAlloc:2 the GPU has no "; do
    GDN_FAKE_FAIL=${failing%% *} run 1 tune $conv --tokens 300 --json
    nobodys "${failing#* }"
    has "$err" "1 of 1 are not tuned"
done

# A GPU that goes away while a candidate is tried, whichever it is, the first one of its process too. It comes back.
for tile in 4 8 12 16; do
    for threads in 64 128 256; do
        rm -f "$f.journal"
        GDN_FAKE_TIMES=$(smem $tile $threads):gone GDN_FAKE_GONE=$room/gone run 1 tune $conv --tokens 300 --json
        nobodys "cuDevicePrimaryCtxRetain failed"
        rm "$room/gone"
    done
done
run 0 tune $conv --tokens 300 --json
json 'd["jobs"][0]["state"], d["jobs"][0]["left_out"]' "('tuned', [])"
rm -f "$f" "$f.journal"

cp "$room/s.json" "$room/goes.json"
GDN_FAKE_NVRTC_DELAY_MS=100 "$GDN_JIT_CACHE_TOOL" tune --shapes "$room/goes.json" -d "$room/slow" -f "$f" --tokens 300 --json \
    >"$room/out" 2>"$room/err" </dev/null &
pid=$!
for _ in $(seq 600); do [ -e "$f.journal" ] && break; sleep 0.05; done
rm "$room/goes.json" # before there is a worker, which reads it too
wait $pid
what="tune, whose worker lacks its list" out=$(cat "$room/out") err=$(cat "$room/err")
nobodys 'the process that was to try candidates ended before it tried one'
has "$err" "cannot open $room/goes.json"
run 0 tune $conv --tokens 300 --json
json 'd["jobs"][0]["state"], d["jobs"][0]["left_out"]' "('tuned', [])"

# ---- Killed, again and again, it loses one candidate each time ----
rm -f "$f" "$f.journal"
lines() { if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi; }
for least in 4 14 24 40; do
    GDN_FAKE_PAUSE_US=100000 "$GDN_JIT_CACHE_TOOL" tune $conv --tokens 100,300 >"$room/out" 2>"$room/err" </dev/null &
    pid=$!
    what="tune, killed after $least lines of its journal" out='' err=''
    for _ in $(seq 600); do
        [ "$(lines "$f.journal")" -ge "$least" ] && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    if [ -e "$f" ]; then run 0 tune $conv --tokens 100 --check; fi
done
what="the journal of runs that were killed"
python3 - "$f.journal" >"$room/out" <<'END' || fail "$(cat "$room/out")"
import collections, json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
runs = sum(line["what"] == "run" for line in lines)
ok = collections.Counter((line["of"], line["params"]) for line in lines if line["what"] == "ok")
tried = collections.Counter((line["of"], line["params"]) for line in lines if line["what"] == "try" and ", up to" not in line["of"])
again = sum(n - 1 for n in tried.values())
if not ok or max(ok.values()) > 1 or again > runs - 1:
    sys.exit(print(f"{runs} runs; checked twice: {[k for k, n in ok.items() if n > 1]}; tried again: {again}") or 1)
END
run 0 tune $conv --tokens 100,300 --json
json '[j["state"] in ("tuned", "known") and j["left_out"] == [] for j in d["jobs"]]' "[True, True]"
[ ! -e "$f.journal" ] || fail "leaves a journal behind"

# What was being tried when two runs ended is not tried a third time.
rm -f "$f"
run_line='{"what":"run","of":"NVIDIA H200, libgdnjit '$(python3 - "$("$GDN_JIT_CACHE_TOOL" --version)" <<'END'
import re, sys
a, b, c = map(int, re.search(r"libgdnjit (\d+)\.(\d+)\.(\d+)", sys.argv[1]).groups())
print(a * 10000 + b * 100 + c, end="")
END
)'"}'
try_line='{"what":"try","of":"conv1d_qkv bf16 dims 64/64 heads 1/1/2 width 4","params":"{\"tile_tokens\": 8, \"cta_threads\": 64}"}'
printf '%s\n%s\n%s\n%s\n{"what":"tr' "$run_line" "$try_line" "$run_line" "$try_line" >"$f.journal"
run 0 tune $conv --tokens 300 --json
json 'd["jobs"][0]["left_out"]' "['$(params 8 64)']"
printf '%s\n%s\n{"what":"end","of":""}\n%s\n%s\n' "$run_line" "$try_line" "$run_line" "$try_line" >"$f.journal"
rm -f "$f"
run 0 tune $conv --tokens 300 --json
json 'd["jobs"][0]["left_out"]' "[]"

# ---- A second tuner keeps off the file of the first one ----
rm -f "$f" "$f.journal"
GDN_FAKE_PAUSE_US=100000 "$GDN_JIT_CACHE_TOOL" tune $conv --tokens 100,300 >"$room/first.out" 2>"$room/first.err" </dev/null &
pid=$!
for _ in $(seq 600); do [ "$(lines "$f.journal")" -ge 2 ] && break; sleep 0.05; done
run 1 tune $conv --tokens 300
has "$err" "--file $f is being tuned by another process"
has "$err" "wait for it, or name another FILE"
run 1 tune $conv --tokens 100 --check # which only reads
lacks "$err" "another process"
kill -0 $pid 2>/dev/null || fail "the first one has ended before the second one began"
wait $pid || fail "the first one failed: $(cat "$room/first.err")"
run 0 tune $conv --tokens 100,300 --check
# The lock ends with the process that has it, however it ends.
rm -f "$f"
GDN_FAKE_PAUSE_US=100000 "$GDN_JIT_CACHE_TOOL" tune $conv --tokens 100 >/dev/null 2>&1 </dev/null &
pid=$!
for _ in $(seq 600); do [ "$(lines "$f.journal")" -ge 2 ] && break; sleep 0.05; done
kill -9 $pid
wait $pid 2>/dev/null
run 0 tune $conv --tokens 100

# ---- A budget ----
rm -f "$f"
start=$(date +%s)
GDN_FAKE_PAUSE_US=300000 run 1 tune $conv --tokens 100,300 --budget 2s --json
[ $(($(date +%s) - start)) -le 20 ] || fail "took $(($(date +%s) - start)) s of a budget of 2"
has "$err" "the budget is over; run it again to go on"
[ -e "$f.journal" ] || fail "leaves no journal to go on with"
run 0 tune $conv --tokens 100,300 --json
json '[j["state"] for j in d["jobs"]]' "['tuned', 'tuned']"

# It is over for what compiles too: of 24 kernels those are made that were begun in time, and the one that is being made.
export GDN_FAKE_NVRTC_DELAY_MS=100
run 1 tune --shapes "$room/s.json" -d "$room/cold" -f "$room/cold.json" --tokens 300 --budget 1s -j 1
has "$err" "the budget is over; run it again to go on"
[ "$(find "$room/cold" -name '*.gdnk' | wc -l)" -le 12 ] || fail "compiled all the same: $(find "$room/cold" -name '*.gdnk' | wc -l)"
run 1 tune --shapes "$room/s.json" -d "$room/colder" --tokens 300 --budget 1s -j 1 --compile -g h200
has "$err" "are not: the budget is over; run it again to go on"
unset GDN_FAKE_NVRTC_DELAY_MS

# What a journal says was done is not, when the file lacks it and another table has it.
other="--shapes $room/s.json -d $d -f $room/other.json"
run 0 tune $other --tokens 100
printf '%s\n%s\n' "$run_line" \
    '{"what":"done","of":"conv1d_qkv bf16 dims 64/64 heads 1/1/2 width 4, up to 1024 tokens, 0 seqs"}' >"$room/other.json.journal"
GDN_JIT_TUNING_PATH=$room/first run 0 tune $other --tokens 300 --json
json 'd["jobs"][0]["state"]' tuned
run 0 tune $other --tokens 100,300 --check

# What a journal says was done is not, when the file is gone: what other files know does not stand in for it.
gone="--shapes $room/s.json -d $d -f $room/gone.json"
done_line='{"what":"done","of":"conv1d_qkv bf16 dims 64/64 heads 1/1/2 width 4, up to 1024 tokens, 0 seqs"}'
printf '%s\n%s\n' "$run_line" "$done_line" >"$room/gone.json.journal"
GDN_JIT_TUNING_PATH=$room/first run 0 tune $gone --tokens 300 --json
json 'd["jobs"][0]["state"]' tuned
run 0 tune $gone --tokens 300 --check
printf '%s\n%s\n' "$run_line" "$done_line" >"$room/gone.json.journal"
run 0 tune $gone --tokens 300 --json
json 'd["jobs"][0]["state"]' known

# ---- Prefill of few sequences: both kernels ----
cat >"$room/p.json" <<'END'
[{"op":"gdn_prefill","num_q_heads":1,"num_k_heads":1,"num_v_heads":2,"head_dim_qk":64,"head_dim_v":64,"max_tokens":200,
  "max_seqs":2}]
END
run 0 tune --shapes "$room/p.json" -d "$d" -f "$f" --tokens 128 --seqs 1,2 --json
json '[(j["state"], j["candidates"], j["left_out"]) for j in d["jobs"]]' "[('tuned', 9, []), ('tuned', 9, [])]"
run 0 tune --shapes "$room/p.json" -d "$d" -f "$f" --tokens 128 --seqs 1,2 --check
run 0 tune $conv --tokens 100,300 --check # which the same file kept

# ---- Compiled on a machine without a GPU, tuned on one without a compiler ----
LD_LIBRARY_PATH=/nowhere run 0 tune --shapes "$room/s.json" -d "$room/ahead" --tokens 100,300 --compile -g h200
has "$out" "24 candidates of 2 slots are in $room/ahead"
GDN_JIT_DISABLE_COMPILE=1 run 0 tune --shapes "$room/s.json" -d "$room/ahead" -f "$room/ahead.json" --tokens 100,300 \
    --nvrtc /nowhere/libnvrtc.so --json
json '[(j["state"], j["candidates"], j["left_out"]) for j in d["jobs"]]' "[('tuned', 12, []), ('tuned', 12, [])]"
# Also what a winner has to prove itself on: the call with gates.
GDN_JIT_DISABLE_COMPILE=1 GDN_FAKE_TIMES=$(smem 16 64):14000 run 0 tune --shapes "$room/s.json" -d "$room/ahead" \
    -f "$room/proof.json" --tokens 300 --nvrtc /nowhere/libnvrtc.so --json
json '[(j["state"], j["params"], j["left_out"]) for j in d["jobs"]]' "[('tuned', '$(params 16 64)', [])]"
GDN_JIT_DISABLE_COMPILE=1 run 1 tune --shapes "$room/s.json" -d "$room/nothing" --tokens 100 --compile -g h200
has "$err" "GDN_JIT_DISABLE_COMPILE"

# ---- What is asked wrongly ----
run 2 tune --shapes "$room/s.json"
has "$err" "no tuning file: name it with --file"
run 2 tune --shapes - -f "$f"
has "$err" "standard input"
for list in "--shapes $room/list" "-m $room/list"; do
    rm -f "$room/list" && mkfifo "$room/list"
    run 2 tune $list -f "$f"
    has "$err" " $room/list is no regular file: tune reads it in several processes, name a file"
done
rm -f "$f"
run 0 tune $conv --tokens 300 --
run 2 tune $conv --tokens 0
has "$err" '--tokens has "0": must be a number from 1'
run 2 tune $conv --tokens 100000
has "$err" "leave nothing to tune"
run 2 tune $conv --budget 5
has "$err" '--budget is "5"'
run 2 tune $conv -g h100
has "$err" "--gpu is for --check and --compile"
run 1 tune $conv --device 3
has "$err" "--device 3"
echo '{"schema": 99}' >"$room/bad.json"
run 2 tune --shapes "$room/s.json" -d "$d" -f "$room/bad.json"
has "$err" '"schema" is 99'
# The table of another GPU in the file, or of another part of the same one, stays as it is.
for other in 's/"gpu": "[^"]*"/"gpu": "NVIDIA H100 PCIe"/' 's/"num_sms": 132/"num_sms": 114/'; do
    sed "$other" "$room/first" >"$room/other.json"
    cp "$room/other.json" "$room/other"
    run 2 tune --shapes "$room/s.json" -d "$d" -f "$room/other.json" --tokens 300
    has "$err" "--file $room/other.json is of NVIDIA H"
    has "$err" "SMs, and what is tuned is NVIDIA H200 (sm_90a), 132 SMs: a file is of one GPU, name another FILE"
    cmp "$room/other.json" "$room/other" || fail "wrote over the table of another GPU"
    [ ! -e "$room/other.json.journal" ] || fail "begins a journal"
done
# Where nothing could be written nothing is measured.
refuses() { # FILE WORDS
    run 2 tune --shapes "$room/s.json" -d "$room/unused" -f "$1" --tokens 300
    has "$err" "$2"
    [ -z "$out" ] || fail "prints a result"
    [ -z "$(find "$room/unused" -name '*.gdnk' 2>/dev/null)" ] || fail "compiled"
}
refuses "$room/nowhere/t.json" "--file $room/nowhere/t.json: its folder $room/nowhere/ cannot be used: No such file"
refuses /proc/t.json "--file /proc/t.json: nothing can be made in /proc/"
ln -s "$room/first" "$room/link.json"
refuses "$room/link.json" "--file $room/link.json: what has this name is no regular file: name another FILE"
[ ! -e "$room/link.json.journal" ] || fail "begins a journal"
run 0 tune --shapes "$room/s.json" -f "$room/link.json" --tokens 300 --check # which only reads
# What has the journal's name and is none stays as it is.
echo "my diary" >"$room/diary"
cp "$room/diary" "$room/t.json.journal"
refuses "$room/t.json" "$room/t.json.journal, where the journal of --file goes, is none and would be emptied: take it away"
cmp "$room/diary" "$room/t.json.journal" || fail "emptied it"
ln -sf "$room/diary" "$room/t.json.journal"
refuses "$room/t.json" "$room/t.json.journal, where the journal of --file goes, is no regular file: take it away"
[ "$(cat "$room/diary")" = "my diary" ] || fail "emptied what a link leads to"
rm "$room/t.json.journal" && mkfifo "$room/t.json.journal"
refuses "$room/t.json" "$room/t.json.journal, where the journal of --file goes, is no regular file"
rm "$room/t.json.journal" && : >"$room/t.json.journal"
run 0 tune --shapes "$room/s.json" -d "$d" -f "$room/t.json" --tokens 300
# --check: a file that cannot be read is not one that is not there.
mkdir "$room/folder.json"
ln -s loop.json "$room/loop.json"
for file in "$room/first/t.json" "$room/loop.json" "$room/folder.json"; do
    run 2 tune --shapes "$room/s.json" -f "$file" --tokens 300 --check
    has "$err" "--file: tuning file $file cannot be read: "
done

finish
