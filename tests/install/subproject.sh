#!/usr/bin/env bash
# Builds the library as a part of another project, whose -Werror and _GNU_SOURCE hold for the library's files too, and runs that
# project's programs.
#
#   subproject.sh SOURCE_DIR CMAKE GENERATOR CC
set -euo pipefail
source=$1 cmake=$2 generator=$3 cc=$4
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/common.sh
. "$here/common.sh"

quiet configure "$cmake" -G "$generator" -S "$here/subproject" -B "$room/build" -D GDN_SOURCE_DIR="$source" \
    -D CMAKE_C_COMPILER="$cc"
quiet compile "$cmake" --build "$room/build"
for kind in shared static; do
    quiet "run_$kind" "$room/build/parent_$kind"
done

echo "built as a part of another project, shared and static"
