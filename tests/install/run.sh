#!/usr/bin/env bash
# Installs the build into a DESTDIR, and uses it from there as an embedder would: through find_package, through pkg-config,
# as C and as C++11, shared and static; runs the installed tool. Then builds as the README says, by Make.
#
#   run.sh BUILD_DIR VERSION CMAKE GENERATOR CC CXX CJSON_LIBRARY
set -euo pipefail
build=$1 version=$2 cmake=$3 generator=$4 cc=$5 cxx=$6 cjson=$7
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/common.sh
. "$here/common.sh"

DESTDIR=$room/dest quiet install "$cmake" --install "$build"
header=$(find "$room/dest" -name gdn_jit.h)
pc=$(find "$room/dest" -name gdn-jit.pc)
library=$(find "$room/dest" -name libgdnjit.so)
static_library=$(find "$room/dest" -name libgdnjit.a)
[ -n "$header" ] && [ -n "$pc" ] && [ -n "$library" ] && [ -n "$static_library" ] ||
    fail "not installed: header '$header', pkg-config file '$pc', library '$library', static library '$static_library'"
prefix=$(dirname "$(dirname "$(dirname "$header")")")
# What the loader looks for changes with what find_package tells apart: below 1.0 with the minor version.
abi=${version%%.*}
[ "$abi" != 0 ] || abi=${version%.*}
[ "$(readlink "$(dirname "$library")/libgdnjit.so.$abi")" = "libgdnjit.so.$version" ] ||
    fail "libgdnjit.so.$abi is no link to libgdnjit.so.$version"

# ---- components: licences come with the library, the page of the interface with the header, not with the tool ----
DESTDIR=$room/runtime quiet install_runtime "$cmake" --install "$build" --component runtime
notices=$(find "$room/runtime" -name THIRD_PARTY_NOTICES)
[ -n "$notices" ] && [ -f "$(dirname "$notices")/LICENSE" ] ||
    fail "LICENSE and THIRD_PARTY_NOTICES are not in the component runtime"
DESTDIR=$room/dev quiet install_dev "$cmake" --install "$build" --component dev
DESTDIR=$room/tools quiet install_tools "$cmake" --install "$build" --component tools
if [ -n "$(find "$room/dest" -name gdn_jit.3)" ]; then
    [ -n "$(find "$room/dev" -name gdn_jit.3)" ] || fail "gdn_jit.3 is not in the component dev"
    [ -z "$(find "$room/dev" -name '*.1')" ] || fail "a page of the tool is in the component dev"
fi
if [ -n "$(find "$room/tools" -name gdn-jit-cache)" ] && [ -n "$(find "$room/dest" -name '*.1')" ]; then
    [ -n "$(find "$room/tools" -name gdn-jit-cache.1)" ] || fail "gdn-jit-cache.1 is not in the component tools"
fi

# ---- the notices are those of the headers that were built with ----
# licence FILE FIRST LAST : from FIRST to LAST in one line, without what makes it a comment or breaks its lines
licence() {
    sed 's/^[ *]*//' "$1" | tr -s '\n ' ' ' | grep -o "$2.*$3" || fail "$1 has no licence from '$2' to '$3'"
}
# same_licence CACHE-VARIABLE HEADER FIRST LAST : the words of the header, below the folder of the variable, are in the notices
same_licence() {
    local header_text
    header_text=$(licence "$(sed -n "s/^$1:PATH=//p" "$build/CMakeCache.txt")/$2" "$3" "$4")
    [ "$(licence "$notices" "$3" "$4")" = "$header_text" ] || fail "THIRD_PARTY_NOTICES has not the licence of $2: $header_text"
}
same_licence XXHASH_INCLUDE_DIR xxhash.h "Redistribution and use" "OF SUCH DAMAGE\."
same_licence CJSON_INCLUDE_DIR cjson/cJSON.h "Permission is hereby" "DEALINGS IN THE SOFTWARE\."

# ---- find_package; the static library takes the cJSON that the project's prefixes have ----
mkdir -p "$room/cjson/lib"
cp "$cjson"* "$room/cjson/lib/"
quiet configure "$cmake" -G "$generator" -S "$here" -B "$room/project" -D CMAKE_PREFIX_PATH="$prefix;$room/cjson" \
    -D GDN_EXPECTED_VERSION="$version" -D CMAKE_C_COMPILER="$cc" -D CMAKE_CXX_COMPILER="$cxx" \
    -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
quiet compile "$cmake" --build "$room/project" --verbose
grep -qF "$room/cjson/lib/$(basename "$cjson")" "$room/compile.log" ||
    fail "no consumer was linked with the cJSON of its CMAKE_PREFIX_PATH: $(cat "$room/compile.log")"
for language in c cxx; do
    for kind in shared static; do
        quiet "find_package_${language}_$kind" "$room/project/consumer_${language}_$kind"
    done
done
ldd "$room/project/consumer_c_static" >"$room/static.ldd"
! grep -q gdnjit "$room/static.ldd" || fail "the static consumer needs the shared library"
! "$cmake" -G "$generator" -S "$here" -B "$room/refused" -D CMAKE_PREFIX_PATH="$prefix" -D GDN_EXPECTED_VERSION=99.0 \
    >"$room/refused.log" 2>&1 ||
    fail "find_package(GdnJit 99.0) was satisfied by $version"
grep -q 'considered but not accepted' "$room/refused.log" || {
    cat "$room/refused.log"
    fail "find_package(GdnJit 99.0) was refused for another reason than its version"
}

# ---- pkg-config ----
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$pc")
[ "$(pkg-config --modversion gdn-jit)" = "$version" ] || fail "gdn-jit.pc has version $(pkg-config --modversion gdn-jit)"
strict="-Wall -Wextra -Wpedantic -Werror"
# shellcheck disable=SC2046,SC2086 # lists of options
{
    quiet pc_c "$cc" -std=c11 $strict "$here/consumer.c" -o "$room/pc_c" $(pkg-config --cflags --libs gdn-jit)
    quiet pc_cxx "$cxx" -std=c++11 $strict "$here/consumer.cpp" -o "$room/pc_cxx" $(pkg-config --cflags --libs gdn-jit)
    quiet pc_static "$cc" -std=c11 $strict -DGDN_STATIC "$here/consumer.c" -o "$room/pc_static" \
        $(pkg-config --cflags gdn-jit) "$static_library" $(pkg-config --static --libs gdn-jit | sed 's/-lgdnjit//')
    # The README's way, as a plug-in, which must not hand the library on to what is loaded beside it.
    quiet plug_in "$cc" -std=c11 $strict -fPIC -shared -Dmain=run -DGDN_STATIC "$here/consumer.c" -o "$room/plug_in.so" \
        $(pkg-config --cflags gdn-jit) "$(pkg-config --variable=libdir gdn-jit)/libgdnjit.a" \
        -Wl,--exclude-libs,libgdnjit.a -L"$room/cjson/lib" -lcjson -lm -ldl -lpthread
}
nm -D --defined-only "$room/plug_in.so" >"$room/plug_in.nm"
grep -q ' T run$' "$room/plug_in.nm" || fail "the plug-in has no run(): $(cat "$room/plug_in.nm")"
! grep -E ' gdn(i)?_' "$room/plug_in.nm" || fail "the plug-in exports the library's functions"
for program in pc_c pc_cxx; do
    LD_LIBRARY_PATH=$(dirname "$library") quiet "run_$program" "$room/$program"
done
quiet run_pc_static "$room/pc_static"

# ---- the README's example, its two pieces, in a function that has what it leaves to the reader ----
{
    echo '#include <stdio.h>'
    sed -n 's/^    \(#include <gdn_jit.*\)/\1/p' "$here/../../README.md"
    echo 'int failed(void); gdn_devptr allocate(size_t size);'
    embed='int embed(int device, int64_t tokens, int64_t seqs, gdn_devptr q, gdn_devptr k, gdn_devptr v, gdn_devptr g,
        gdn_devptr beta, gdn_devptr o, gdn_devptr states, gdn_devptr cu_seqlens, int64_t longest, gdn_stream stream)'
    echo "$embed; $embed {"
    sed -n '/^    #include <gdn_jit/,/^[^ ]/s/^    \([^#.].*\)/\1/p; s/^    gdn_prefill(ctx.*/&/p' "$here/../../README.md"
    echo 'return 0; }'
} >"$room/readme.c"
cp "$room/readme.c" "$room/readme.cpp"
grep -q gdn_execute_prefill "$room/readme.c" && grep -q '^ *gdn_prefill(' "$room/readme.c" ||
    fail "README.md's example is not where it was: $(cat "$room/readme.c")"
# shellcheck disable=SC2046,SC2086 # lists of options
{
    quiet readme_c "$cc" -std=c11 $strict -c "$room/readme.c" -o "$room/readme.o" $(pkg-config --cflags gdn-jit)
    quiet readme_cxx "$cxx" -std=c++11 $strict -c "$room/readme.cpp" -o "$room/readme.o" $(pkg-config --cflags gdn-jit)
}

# ---- the tool: finds the library and its presets from where it was moved to ----
tool=$(find "$room/dest" -path '*/bin/gdn-jit-cache')
if [ -n "$tool" ]; then
    quiet tool_version "$tool" --version
    grep -qF "$version" "$room/tool_version.log" || fail "gdn-jit-cache --version says '$(cat "$room/tool_version.log")'"
    quiet tool_help "$tool" --help
    "$tool" warm --model no-such-model --gpu "NVIDIA H200" >"$room/models.log" 2>&1 || true
    grep -qF qwen3-next-80b-a3b "$room/models.log" || fail "the tool does not find its presets: '$(cat "$room/models.log")'"
fi

# ---- what was linked holds no path of its build folder: its build ID is the source's (debug information has paths) ----
if [ "$(grep -cxE 'CMAKE_BUILD_TYPE:STRING=Release|CMAKE_C_FLAGS:STRING=' "$build/CMakeCache.txt")" = 2 ]; then
    for file in "$build/libgdnjit.so" "$build/bin/gdn-jit-cache"; do
        [ ! -e "$file" ] || ! grep -qF "$build" "$file" || fail "$file holds the path of its build folder"
    done
fi

# ---- the README's commands, from nothing, with the generator that CMake takes by itself; unoptimized, which is quicker ----
source=$(cd "$here/../.." && pwd)
quiet readme_configure "$cmake" -G "Unix Makefiles" -S "$source" -B "$room/build" -D GDN_BUILD_TESTS=OFF \
    -D CMAKE_BUILD_TYPE=Debug -D CMAKE_C_COMPILER="$cc" -D CMAKE_CXX_COMPILER="$cxx"
quiet readme_build "$cmake" --build "$room/build"
quiet readme_install "$cmake" --install "$room/build" --prefix "$room/made"
quiet readme_tool "$room/made/bin/gdn-jit-cache" --version
if [ -n "$(find "$room/dest" -name gdn-jit-cache.1)" ]; then
    [ -n "$(find "$room/made" -name gdn-jit-cache.1)" ] || fail "a build by Make installs no man page"
fi

echo "installed, found, compiled and run as C11 and C++11, shared and static"
