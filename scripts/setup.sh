# shellcheck shell=bash disable=SC2154 # top: set by the script that sources this
#
# setup.sh - sourced by demo.sh and test.sh: what the machine must have, and how it gets it.
#
# Everything is looked for by use (does the command run, does the header compile), not by package, so that any system that
# has it will do. On Debian and Ubuntu as root, what is missing is installed by apt-get; elsewhere the list is printed and
# the script ends. Must not know: what is built with it.

setup_log=$top/build/setup.log

die() {
    echo "$*" >&2
    exit 1
}

# logged COMMAND... : silent unless it fails
logged() {
    mkdir -p "$(dirname "$setup_log")"
    echo "+ $*" >>"$setup_log"
    "$@" >>"$setup_log" 2>&1 || {
        tail -n 20 "$setup_log" >&2
        die "failed: $* (whole log: $setup_log)"
    }
}

has_command() { command -v "$1" >/dev/null 2>&1; }
has_module() { has_command pkg-config && pkg-config --exists "$1"; }
has_header() { has_command gcc && echo "#include <$1>" | gcc -E -x c - >/dev/null 2>&1; }
has_cmake() {
    has_command cmake || return 1
    [ "$(printf '%s\n' 3.22 "$(cmake --version | sed -n '1s/.* //p')" | sort -V | head -n 1)" = 3.22 ]
}
has_venv() { python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }
has_fuzzer() { has_command clang && [ -e "$(clang -print-file-name="libclang_rt.fuzzer-$(uname -m).a" 2>/dev/null)" ]; }

# name | how it is looked for | Debian packages | what to look for elsewhere
needs=(
    "compiler|has_command gcc|gcc libc6-dev|a C11 compiler (gcc 12 or newer)"
    "cxx|has_command g++|g++|a C++ compiler (g++ 12 or newer), for the tests of the header"
    "cmake|has_cmake|cmake|CMake 3.22 or newer"
    "make|has_command make|make|Make, for the test of a build by CMake's default generator"
    "ninja|has_command ninja|ninja-build|Ninja"
    "pkg-config|has_command pkg-config|pkg-config|pkg-config"
    "xxhash|has_header xxhash.h|libxxhash-dev|the headers of xxHash 0.8 or newer"
    "cjson|has_module libcjson|libcjson-dev|cJSON 1.7 with its headers"
    "smartcols|has_module smartcols|libsmartcols-dev|libsmartcols (util-linux) with its headers"
    "archive|has_module libarchive|libarchive-dev|libarchive 3 with its headers"
    "criterion|has_module criterion|libcriterion-dev|Criterion 2.4 with its headers"
    "scdoc|has_command scdoc|scdoc|scdoc, for the man pages"
    "python|has_command python3|python3|Python 3, for the tests of the tool"
    "rust|has_command cargo|cargo|Rust 1.63 or newer with cargo, for the tests of the crate"
    "venv|has_venv|python3 python3-venv python3-pip|Python 3 with venv and pip, for the NVRTC wheel"
    "fuzzer|has_fuzzer|clang-14 clang libclang-rt-14-dev|clang with libFuzzer"
)

# missing COLUMN NAME... : that column of those needs that are not met
missing() {
    local column=$1 need name probe packages words
    shift
    for need in "${needs[@]}"; do
        IFS='|' read -r name probe packages words <<<"$need"
        case " $* " in *" $name "*) ;; *) continue ;; esac
        if ! $probe; then
            [ "$column" = packages ] && echo "$packages" || echo "  - $words"
        fi
    done
}

# require NAME... : all of these needs are met when it returns
require() {
    local packages
    packages=$(missing packages "$@" | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    if [ "$(id -u)" = 0 ] && has_command apt-get; then
        echo "installing: $packages"
        [ -n "${apt_updated:-}" ] || logged apt-get update -qq
        apt_updated=1
        # shellcheck disable=SC2086 # a list
        logged env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages
        packages=$(missing packages "$@")
        [ -z "$packages" ] || die "installed, but still not usable: $packages (log: $setup_log)"
        return 0
    fi
    echo "Not found on this machine:" >&2
    missing words "$@" >&2
    if has_command apt-get; then
        die "Install it as root: apt-get install --no-install-recommends $packages"
    fi
    die "Install it with your system's package manager. (Debian's packages are called: $packages)"
}

# wheel FOLDER REQUIREMENT LIBRARY: prints the path of LIBRARY from a PyPI wheel, in a virtual environment under .deps/
wheel() {
    local folder=$top/.deps/$1 found
    found=$(find "$folder" -name "$3" 2>/dev/null | head -n 1)
    if [ -z "$found" ]; then
        require venv >&2
        rm -rf "$folder"
        logged python3 -m venv "$folder"
        logged "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$2"
        found=$(find "$folder" -name "$3" | head -n 1)
        [ -n "$found" ] || die "the wheel $2 has no $3: remove $folder and try again"
    fi
    echo "$found"
}

# driver_major: of CUDA, which the driver here is of; nothing where there is none
driver_major() {
    nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\)\..*/\1/p' | head -n 1
}

# is_new_enough LIBRARY: is there, and, of CUDA 12, of 12.8 or newer, by the name of the file that it is a link to
is_new_enough() {
    local file
    [ -e "$1" ] || return 1
    file=$(basename "$(readlink -f "$1")")
    case $file in
    libnvrtc.so.12.[0-7].*) return 1 ;;
    esac
}

# find_nvrtc: sets and exports GDN_JIT_NVRTC: the caller's own, the CUDA toolkit's, else NVIDIA's wheel. A driver of CUDA 12
# loads nothing that NVRTC 13 makes.
find_nvrtc() {
    local folder major=13 package='nvidia-cuda-nvrtc==13.0.*'
    if [ "$(driver_major)" = 12 ]; then
        major=12 package='nvidia-cuda-nvrtc-cu12==12.8.*'
    fi
    if [ -n "${GDN_JIT_NVRTC:-}" ]; then
        [ -e "$GDN_JIT_NVRTC" ] || die "GDN_JIT_NVRTC is $GDN_JIT_NVRTC, which does not exist: unset it or name a libnvrtc.so"
        return 0
    fi
    for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda/lib64; do
        is_new_enough "$folder/libnvrtc.so.$major" && GDN_JIT_NVRTC=$folder/libnvrtc.so.$major && break
    done
    [ -n "${GDN_JIT_NVRTC:-}" ] || GDN_JIT_NVRTC=$(wheel "nvrtc-$major" "$package" "libnvrtc.so.$major")
    export GDN_JIT_NVRTC
}
