#!/usr/bin/env bash
# Builds the library as a part of another project, whose -Werror and _GNU_SOURCE hold for the library's files too, and runs that
# project's programs. The project installs what is its own, and the library only when it is asked to.
#
#   subproject.sh SOURCE_DIR CMAKE GENERATOR CC CJSON_LIBRARY
set -euo pipefail
source=$1 cmake=$2 generator=$3 cc=$4 cjson=$5
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/common.sh
. "$here/common.sh"

quiet configure "$cmake" -G "$generator" -S "$here/subproject" -B "$room/build" -D GDN_SOURCE_DIR="$source" \
    -D CMAKE_C_COMPILER="$cc"
quiet compile "$cmake" --build "$room/build"
for kind in shared static; do
    quiet "run_$kind" "$room/build/parent_$kind"
done
quiet install "$cmake" --install "$room/build" --prefix "$room/parent"
installed=$(cd "$room/parent" && find . -type f)
[ "$installed" = ./share/doc/GdnJitParent/LICENSE ] || fail "installed besides the parent's LICENSE: $installed"

# ---- with its installation: in components, into folders that are full paths, with a cJSON where no linker looks, and without
# the pages of a tool that is not there ----
mkdir -p "$room/cjson"
cp "$cjson"* "$room/cjson/"
cjson_kind=CJSON_SHARED
[ "${cjson%.a}" = "$cjson" ] || cjson_kind=CJSON_ARCHIVE
quiet configure_install "$cmake" -D GDN_INSTALL=ON -D CMAKE_INSTALL_LIBDIR="$room/a/lib" \
    -D CMAKE_INSTALL_INCLUDEDIR="$room/b/include" -D "$cjson_kind=$room/cjson/$(basename "$cjson")" "$room/build"
quiet compile_install "$cmake" --build "$room/build"
quiet install_all "$cmake" --install "$room/build" --prefix "$room/all"
quiet install_dev "$cmake" --install "$room/build" --prefix "$room/dev" --component dev
cmp "$here/subproject/CMakeLists.txt" "$room/all/share/doc/GdnJitParent/LICENSE" ||
    fail "the parent's LICENSE was installed over"
for file in b/include/gdn_jit/gdn_jit.h all/share/doc/GdnJit/{LICENSE,THIRD_PARTY_NOTICES}; do
    [ -f "$room/$file" ] || fail "not installed with GDN_INSTALL: $file"
done
if command -v scdoc >/dev/null; then
    pages=$(cd "$room/dev/share/man" && find . -type f | sort | tr '\n' ' ')
    [ "$pages" = "./man3/gdn_jit.3 ./man5/gdn-jit-tuning.5 " ] || fail "man pages of the component dev without the tool: $pages"
    pages=$(find "$room/all" -name '*.1')
    [ -z "$pages" ] || fail "pages of a tool that is not installed: $pages"
fi

export PKG_CONFIG_PATH=$room/a/lib/pkgconfig
# shellcheck disable=SC2046 # a list of options
quiet full_paths "$cc" -std=c11 "$here/consumer.c" -o "$room/full_paths" $(pkg-config --cflags --libs gdn-jit)
LD_LIBRARY_PATH=$room/a/lib quiet run_full_paths "$room/full_paths"

[[ $(pkg-config --static --libs gdn-jit) = *"-L$room/cjson "* ]] ||
    fail "gdn-jit.pc does not say where cJSON is: $(pkg-config --static --libs gdn-jit)"

echo "built and installed as a part of another project, shared and static"
