#!/usr/bin/env bash
# pack, verify, prune: a bundle is all that an engine needs, moves, has the same bytes each time; damage of every kind is
# told; what is removed is what was asked for.
. "$(dirname "$0")/lib.sh"
need_nvrtc
d=$room/cache
conv="-m qwen3.5-27b --tp 1 --op conv1d_qkv --prologue conv --max-tokens 256 -g h200"
run 0 warm -m qwen3.5-27b --tp 1 --op conv1d_qkv --prologue conv --dtype bf16,fp16 -g h200 -d "$d"

# ---- pack: of a model, into a directory and an archive ----
run 0 pack $conv -d "$d" -o "$room/bundle" --tar "$room/bundle.tar" --json
json 'd["output"], d["built"], d["entries"], d["contents"]' "('$room/bundle', 0, 1, ['qwen3.5-27b tp1, NVIDIA H200 (sm_90a)'])"
[ "$(find "$room/bundle" -name '*.gdnk' | wc -l)" = 1 ] || fail "holds more than the model needs"
run 0 verify --bundle "$room/bundle"
has "$out" "1 entry, "
has "$out" ": 0 damaged, 0 missing, 0 not in the manifest"

# The same bytes from another cache, compiled anew, in an archive alone, at another place; owned by nobody, of no time.
run 0 pack $conv -d "$room/other" --tar "$room/again.tar" --json
json 'd["built"], d["output"]' "(1, '')"
cmp "$room/bundle.tar" "$room/again.tar" || fail "two builds, two archives"
[ -z "$(find "$room" -maxdepth 1 -name '*.tar.*')" ] || fail "left something beside the archive"
[ "$(stat -c %a "$room/bundle.tar")" = 644 ] || fail "an archive that others cannot read: $(stat -c %a "$room/bundle.tar")"
python3 - "$room/bundle.tar" "$room/bundle" >"$room/out" 2>&1 <<'E2' || fail "$(cat "$room/out")"
import os, sys, tarfile
tar, folder = tarfile.open(sys.argv[1]), sys.argv[2]
members = tar.getmembers()
names = [m.name.rstrip("/") for m in members]
assert names == sorted(names) and "manifest.json" in names, names
for m in members:
    assert (m.uid, m.gid, m.mtime, m.uname, m.gname) == (0, 0, 0, "", ""), m
    assert m.mode == (0o755 if m.isdir() else 0o644), m
    if m.isfile(): assert tar.extractfile(m).read() == open(os.path.join(folder, m.name), "rb").read(), m.name
there = sorted(os.path.relpath(os.path.join(at, n), folder) for at, ds, fs in os.walk(folder) for n in ds + fs)
assert names == there, (names, there)
E2

# What a pack leaves that was killed says what it is: here by a signal, of the write that passes the most that a file may have.
mkdir "$room/killed"
most=$((($(find "$room/bundle" -name '*.gdnk' -printf '%s') + 1023) / 1024))
what="pack that is killed as it writes the archive" got=0
(ulimit -c 0; ulimit -f "$most"; exec "$GDN_JIT_CACHE_TOOL" pack $conv -d "$d" --tar "$room/killed/b.tar") >"$room/out" 2>"$room/err" ||
    got=$?
out=$(cat "$room/out") err=$(cat "$room/err")
[ "$got" -gt 128 ] || fail "exit status $got: it was not killed"
[ "$(ls -A "$room/killed" | sed 's/-tmp-.*/-tmp-/' | sort | uniq -c | xargs)" = "2 .gdnk-tmp-" ] ||
    fail "left $(ls -A "$room/killed" | xargs)"

# Slashes behind the directory's name are no part of the names in the archive.
for slashes in / //; do
    rm -rf "$room/slashes"
    run 0 pack $conv -d "$d" -o "$room/slashes$slashes" --tar "$room/slashes.tar"
    cmp "$room/bundle.tar" "$room/slashes.tar" || fail "$slashes behind the directory's name, another archive"
done

# Moved, with no compiler, no directory to write to and no HOME, it is enough.
mkdir "$room/elsewhere"
tar -xf "$room/again.tar" -C "$room/elsewhere"
run 0 verify -b "$room/elsewhere" --json
json 'd["entries"], d["damaged"], d["problems"]' "(1, 0, [])"
what="show out of the bundle"
env -u HOME -u XDG_CACHE_HOME GDN_JIT_BUNDLE_PATH="$room/elsewhere" GDN_JIT_DISABLE_COMPILE=1 \
    "$GDN_JIT_CACHE_TOOL" show $conv --nvrtc /nowhere/libnvrtc.so >"$room/out" 2>"$room/err" || fail "exit status $?"
out=$(cat "$room/out") err=$(cat "$room/err")
has "$out" ", compiled by nvrtc "
has "$out" "found in: bundle"

# Of every entry; of a recorded list.
run 0 pack -d "$d" -o "$room/all" --json
json 'd["entries"], d["contents"]' "($(find "$d" -name '*.gdnk' | wc -l), [])"
run 0 show $conv -d "$d" --json
key=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["shapes"][0]["plan"]["variants"][0]["key"])' "$room/out")

# What cannot be packed is not there.
FAKE_NVRTC_RESULT=6 run 1 pack $conv -d "$room/none" --nvrtc "$GDN_FAKE_NVRTC" -o "$room/half" --tar "$room/half.tar"
has "$err" "nothing was packed"
# What it built itself and the size cap took again.
GDN_JIT_CACHE_MAX_BYTES=30000 run 1 pack $conv --dtype bf16,fp16 -d "$room/capped" -o "$room/half"
has "$err" " of 2 kernels are not in $room/capped: the size cap evicted them: raise GDN_JIT_CACHE_MAX_BYTES"
lacks "$err" "gdn-jit-cache warm"
# A compiler that is named and is none: other compilers' kernels do not pass for its.
for what_of in "$conv" ""; do
    run 2 pack $what_of -d "$d" --nvrtc /nowhere/libnvrtc.so -o "$room/half" --tar "$room/half.tar"
    has "$err" "--nvrtc /nowhere/libnvrtc.so cannot be used: NVRTC cannot be opened as configured"
    GDN_JIT_NVRTC=/nowhere/libnvrtc.so run 1 pack $what_of -d "$d" -o "$room/half"
    has "$err" "GDN_JIT_NVRTC is /nowhere/libnvrtc.so, which cannot be used"
done
[ ! -e "$room/half" ] && [ ! -e "$room/half.tar" ] || fail "left a bundle that is not whole"
# What is no regular file was not put there to be replaced: nothing is built, and it stays.
mkfifo "$room/pipe" && ln -s "$room/bundle.tar" "$room/link.tar" && mkdir "$room/folder.tar"
for place in "$room/pipe" "$room/link.tar" "$room/folder.tar" -; do
    run 2 pack $conv -d "$room/unused" --tar "$place"
    has "$err" "--tar $place"
done
[ -p "$room/pipe" ] && [ -L "$room/link.tar" ] && [ -d "$room/folder.tar" ] && [ ! -e "$room/unused" ] ||
    fail "--tar took the place of something, or built"
# Where nothing can be put nothing is built, and nothing is left.
# refuses WORDS ARGS...
refuses() {
    local words=$1
    shift
    run 2 pack $conv -d "$room/unused" "$@"
    has "$err" "$words"
    [ ! -e "$room/unused" ] || fail "made the cache directory"
}
refuses "--output $room/bundle: is not empty: name a new or empty directory" -o "$room/bundle"
refuses "--output $room/bundle/: is not empty" -o "$room/bundle/"
refuses "--output $room/bundle.tar: what has this name is no directory" -o "$room/bundle.tar"
ln -s "$room/folder.tar" "$room/linked"
refuses "--output $room/linked/: what has this name is no directory" -o "$room/linked/"
refuses "--output $room/no/bundle: its folder $room/no/ cannot be used: No such file or directory; make it first" -o "$room/no/bundle"
refuses "--output /proc/bundle: nothing can be made in /proc/" -o /proc/bundle
refuses "--output $room/..: has no name of its own" -o "$room/.."
refuses "--output /: has no name of its own" -o /
refuses "--tar $room/no/such/folder.tar: its folder $room/no/such/ cannot be used" --tar "$room/no/such/folder.tar"
refuses "--tar /proc/bundle.tar: nothing can be made in /proc/" --tar /proc/bundle.tar
refuses "--tar $room/no.tar/: names a folder: name a file" --tar "$room/no.tar/"
refuses "--output and --tar are both $room/both" -o "$room/both" --tar "$room/both"
refuses "--tar $room/no/b.tar: its folder" -o "$room/both" --tar "$room/no/b.tar"
[ ! -e "$room/both" ] || fail "left a directory"
mkdir "$room/both"
ln -s both "$room/other name"
for tar in "$room/both/b.tar" "$room/other name/b.tar"; do refuses "--tar $tar is in --output $room/both" -o "$room/both" --tar "$tar"; done
rmdir "$room/both"
refuses "--tar $room/./both is in --output $room/both, or is that" -o "$room/both" --tar "$room/./both"
name() { printf "%0$1d" 0; }
for option in --output --tar; do
    refuses "$option $room/$(name 256): the name has 256 bytes: give it at most 255" $option "$room/$(name 256)"
done
run 0 pack $conv -d "$d" -o "$room/$(name 255)"
run 0 pack $conv -d "$d" --tar "$room/1$(name 254)"
cmp "$room/bundle.tar" "$room/1$(name 254)" || fail "a long name, another archive"
[ -z "$(find "$room" -maxdepth 1 -name '.gdnk-tmp-*')" ] || fail "left what it tried with"
mkdir "$room/mount"
if unshare -rm mount -t tmpfs none "$room/mount" 2>/dev/null; then # it needs a mount, which not every container may make
    what="pack to a mount point" out=''
    unshare -rm sh -c 'mount -t tmpfs none "$0" && exec "$@"' "$room/mount" \
        "$GDN_JIT_CACHE_TOOL" pack $conv -d "$room/unused" -o "$room/mount" 2>"$room/err"
    [ $? = 2 ] || fail "exit status is not 2"
    has "$(cat "$room/err")" "--output $room/mount: is a mount point, which nothing can be moved to: name a new or empty directory"
    # A full disk, of the bundle or of the archive that is made of it: what was asked for is named, and how to go on.
    full() { # SIZE WORDS
        what="pack --tar on a disk of $1"
        unshare -rm sh -c 'mount -t tmpfs -o size="$0" none "$1" && shift && exec "$@"' "$1" "$room/mount" \
            "$GDN_JIT_CACHE_TOOL" pack $conv -d "$d" --tar "$room/mount/b.tar" 2>"$room/err"
        [ $? = 1 ] || fail "exit status is not 1"
        err=$(cat "$room/err")
        has "$err" "--tar $room/mount/b.tar$2"
        has "$err" ": No space left on device: free space in its folder"
        lacks "$err" ".gdnk-tmp-"
    }
    full 4k ": the bundle that is made beside it: v2/"
    full "$(($(find "$room/bundle" -type f -printf '%k\n' | awk '{ n += $1 } END { print n }') + 8))k" " cannot be written"
fi
mkdir "$room/full"
run 1 pack -d "$room/full" -o "$room/empty"
[ ! -e "$room/empty" ] || fail "a bundle of nothing"

# Of the whole cache what is damaged is left out, and that is no success; of what is named nothing is missing.
cp -a "$d" "$room/hurt"
printf x | dd of="$(find "$room/hurt" -name '*.gdnk' | grep -v "$key" | head -n 1)" bs=1 seek=999 conv=notrunc 2>/dev/null
whole=$(($(find "$d" -name '*.gdnk' | wc -l) - 1))
run 1 pack -d "$room/hurt" -o "$room/part"
has "$out" "$whole kernel"
has "$err" "1 damaged or refused entry was left out: gdn-jit-cache verify"
run 0 verify -b "$room/part"
run 1 pack -d "$room/hurt" --tar "$room/part.tar" --json
json 'd["entries"], d["damaged"]' "($whole, 1)"
has "$err" "1 damaged or refused entry was left out: gdn-jit-cache verify"
run 0 pack $conv -d "$room/hurt" -o "$room/named"
[ -z "$err" ] || fail "tells of an entry that was not asked for"

# ---- verify: of a bundle ----
file=$(find "$room/bundle" -name '*.gdnk')
cp -a "$room/bundle" "$room/bad"
printf x | dd of="$room/bad${file#"$room/bundle"}" bs=1 seek=999 conv=notrunc 2>/dev/null
run 1 verify -b "$room/bad" --json
json 'd["damaged"], d["missing"], d["unlisted"], len(d["problems"]), d["problems"][0]["problem"] != ""' "(1, 0, 0, 1, True)"
rm "$room/bad${file#"$room/bundle"}"
run 1 verify -b "$room/bad"
has "$out" "1 missing"
has "$err" "is not what was packed"
cp -a "$room/all" "$room/more"
cp "$room/all/manifest.json" "$room/all.json"
cp "$room/bundle/manifest.json" "$room/more/manifest.json"
run 1 verify -b "$room/more" --json
json 'd["unlisted"] > 0 and d["missing"] == 0 and d["damaged"] == 0' True
echo '{' >"$room/more/manifest.json"
run 1 verify -b "$room/more"
has "$err" "manifest.json"
run 1 verify -b "$room/nowhere"
has "$err" "$room/nowhere"

# ---- verify: of the cache directory ----
run 0 verify -d "$d"
has "$out" ": 0 damaged"
file=$(find "$d" -name "$key.*.gdnk")
printf x | dd of="$file" bs=1 seek=999 conv=notrunc 2>/dev/null
run 1 verify -d "$d" --json
json 'd["damaged"], d["removed"], [p["key"] for p in d["problems"]]' "(1, 0, ['$key'])"
run 1 verify -d "$d"
has "$out" "$file"
has "$err" "--remove"
[ -e "$file" ] || fail "removed without being asked"
run 0 verify -d "$d" --remove
has "$out" "1 damaged; 1 removed"
[ ! -e "$file" ] || fail "not removed"
run 0 verify -d "$d" --json
json 'd["damaged"]' 0
# Damage that cannot be removed is told, however many temporary files went.
k=$room/stuck
for target in "-a sm_80" "-g h200"; do # one entry each
    run 0 warm -m qwen3.5-27b --tp 1 --op conv1d_qkv --prologue conv --max-tokens 256 --x-alignment 16 $target -d "$k"
done
file=$(find "$k/v2/sm_90a" -name '*.gdnk' | head -n 1)
chmod g+w "$k/v2/sm_90a"
for n in 1 2 3 4 5 6 7 8 9; do
    old=$(dirname "$(find "$k/v2/sm_80" -name '*.gdnk' | head -n 1)")/.gdnk-tmp-$n
    touch -d '2 hours ago' "$old"
done
# They may be good: to remove them is no remedy.
run 1 verify -d "$k"
has "$out" "in a folder that others may write to (v2/sm_90a, mode 0720)"
has "$err" "$k has entries that others could have written: "
has "$err" "chmod go-w, or use --shared-cache"
lacks "$err" "--remove"
run 0 verify -d "$k" --shared-cache
run 1 verify -d "$k" --remove
has "$out" ": 0 damaged, 1 refused, 9 old temporary files; 9 removed"
has "$err" "of the entries in $k could not be removed, the first of them $file"
has "$err" "--shared-cache"
[ -e "$file" ] || fail "removed it"
chmod g-w "$k/v2/sm_90a"
chmod g+w "$file"
run 1 verify -d "$k"
has "$out" "writable for others (mode 0620)"
has "$out" ": 0 damaged, 1 refused"
run 1 verify -d "$k" --json
json 'd["damaged"], len(d["problems"])' "(1, 1)"
run 0 list -d "$k"
has "$out" "refused: $file: writable for others (mode 0620)"
lacks "$out" "damaged"
run 1 verify -d "$k"
has "$err" "chmod go-w, or use --shared-cache"
lacks "$err" "--remove"
run 0 show --key "$(basename "$file" | cut -d. -f1)" -d "$k"
has "$out" "refused    writable for others (mode 0620); folders and entries below the cache directory must"
printf x | dd of="$(find "$k/v2/sm_80" -name '*.gdnk' | head -n 1)" bs=1 seek=999 conv=notrunc 2>/dev/null
run 1 verify -d "$k"
has "$out" "1 damaged, 1 refused"
has "$err" "; and damaged ones: the library ignores them; take them away with --remove"
run 0 verify -d "$k" --remove

run 1 verify -d "$room/typo"
[ ! -e "$room/typo" ] || fail "made the directory"

# ---- prune ----
total=$(find "$d" -name '*.gdnk' | wc -l)
run 0 prune -d "$d" --json
json 'd["entries"], d["removed"], d["entries_removed"]' "($total, 0, [])"
run 0 prune -d "$d" --max-bytes 0 --dry-run
has "$out" "would remove $total of $total entries"
[ "$(find "$d" -name '*.gdnk' | wc -l)" = "$total" ] || fail "a dry run removed something"
run 0 prune -d "$d" --max-bytes 0 --arch sm_80 --json
json 'd["removed"]' 0
find "$d" -name '*.gdnk' | sort | head -n 1 | xargs touch -d '40 days ago'
run 0 prune -d "$d" --max-age 30d --json
json 'd["removed"], len(d["entries_removed"])' "(1, 1)"
run 0 prune -d "$d" --other-compilers --json
json 'd["removed"]' 0
run 1 prune -d "$d" --other-compilers --nvrtc /nowhere/libnvrtc.so
has "$err" "/nowhere/libnvrtc.so"
run 0 prune -d "$d" --max-bytes 0
has "$out" "removed $((total - 1)) of $((total - 1)) entries"
[ -z "$(find "$d" -name '*.gdnk')" ] || fail "entries are left"
# What could not be removed is not told as removed, and is no success: here the library trusts no folder of the arch.
k=$room/kept
run 0 warm -m qwen3.5-27b --tp 1 --op conv1d_qkv --prologue conv --max-tokens 256 -g h200 -d "$k"
run 0 warm -m qwen3.5-27b --tp 1 --op conv1d_qkv --prologue conv --max-tokens 256 -a sm_80 -d "$k"
others=$(find "$k/v2/sm_80" -name '*.gdnk' | wc -l)
stuck=$(find "$k/v2/sm_90a" -name '*.gdnk')
chmod g+w "$k/v2/sm_90a"
run 0 prune -d "$k" --max-bytes 0 --dry-run
run 1 prune -d "$k" --max-bytes 0 --json
json 'd["removed"], len(d["entries_removed"]), [e["path"] for e in d["entries_left"]]' "($others, $others, ['$stuck'])"
run 1 prune -d "$k" --max-bytes 0
has "$out" "removed 0 of 1 entries"
has "$err" "1 of the entries in $k could not be removed, the first of them $stuck: its folder must belong to this user"
old=$(dirname "$stuck")/.gdnk-tmp-abandoned
touch -d '2 hours ago' "$old"
rm "$stuck"
run 1 prune -d "$k" --json
json 'd["temporaries"], d["temporaries_left"]' "(1, 1)"
run 1 prune -d "$k"
has "$out" "removed 0 of 0 entries, "
has "$err" "1 of the temporary files in $k could not be removed"
chmod g-w "$k/v2/sm_90a"
run 0 prune -d "$k"
has "$out" "removed 0 of 0 entries and 1 temporary files, "

run 1 prune -d "$room/typo"
[ ! -e "$room/typo" ] || fail "made the directory"

finish
