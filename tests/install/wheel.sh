#!/usr/bin/env bash
# Builds the Python package as a wheel, as python/README.md says, with the tool, installs it where nothing else is, and uses it
# from there: it finds the library that came with it, and the tool its presets. From the source too. Skipped where pip or its
# index cannot be reached.
#
#   wheel.sh SOURCE_DIR VERSION SONAME PYTHON
set -euo pipefail
source=$1 version=$2 soname=$3 python=$4
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/common.sh
. "$here/common.sh"
unset GDN_JIT_LIBRARY PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1

"$python" -m venv "$room/build" >/dev/null 2>&1 || { echo "skipped: $python has no venv"; exit 77; }
pip=$room/build/bin/pip
"$pip" download --quiet --no-deps -d "$room/backend" scikit-build-core >/dev/null 2>&1 ||
    { echo "skipped: no scikit-build-core to be had"; exit 77; }
quiet wheel "$pip" wheel --no-deps -w "$room" --config-settings cmake.define.GDN_BUILD_TOOLS=ON "$source"
wheel=$(find "$room" -maxdepth 1 -name "gdn_jit-$version-py3-none-linux_*.whl")
[ -n "$wheel" ] || fail "no wheel of any Python 3 for this machine: $(ls "$room")"

cat >"$room/use.py" <<'EOF'
import importlib.metadata
import pathlib
import sys

import gdn_jit
from gdn_jit import library

version, soname = sys.argv[1:]
own = pathlib.Path(library.candidates()[0])
assert own.name == soname and own.is_relative_to(sys.prefix), library.candidates()
number = library.load().gdn_version()
assert f"{number // 10000}.{number // 100 % 100}.{number % 100}" == version, number
assert importlib.metadata.version("gdn-jit") == version
files = {f.name for f in importlib.metadata.files("gdn-jit")}
assert {soname, "LICENSE", "THIRD_PARTY_NOTICES"} <= files, files
with gdn_jit.Context(cache_dir="", flags="no_env") as ctx:
    shape = dict(num_q_heads=1, num_k_heads=1, num_v_heads=2, head_dim_qk=128, head_dim_v=128, max_tokens=64, max_seqs=1)
    said = gdn_jit.prefill_support(ctx.target("NVIDIA H200"), **shape)
assert said["kernel"] == "gdn_prefill_hopper", said
EOF
# used KIND PIP-ARGUMENT... : installed so, in an environment of its own, and used
used() {
    local kind=$1
    shift
    quiet "venv_$kind" "$python" -m venv "$room/$kind"
    quiet "install_$kind" "$room/$kind/bin/pip" install "$@"
    (cd "$room" && quiet "use_$kind" "$room/$kind/bin/python" -I use.py "$version" "$soname")
}
used wheel_alone --no-index "$wheel"
"$room/wheel_alone/bin/gdn-jit-cache" show --model qwen3-next-80b-a3b --op gdn_prefill --gpu "NVIDIA H200" --what spec \
    >"$room/spec.txt" 2>&1 || fail "the tool in the wheel: $(cat "$room/spec.txt")"
grep -q gdn_prefill_hopper "$room/spec.txt" || fail "the tool says: $(cat "$room/spec.txt")"
used editable -e "$source"
[ ! -e "$room/editable/bin/gdn-jit-cache" ] || fail "a tool that nobody asked for"
echo "built as a wheel, installed and used, from the source too: $(basename "$wheel")"
