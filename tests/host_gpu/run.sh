#!/usr/bin/env bash
# Runs a program of tests/gpu on the host GPU: kernels as the templates have them, compiled for this CPU.
#
#   tests/host_gpu/run.sh BUILD_FOLDER [VARIABLE=VALUE]... PROGRAM [OPTION]...      PROGRAM: test_prefill, ..., ../../examples/minimal
#
# HOST_GPU_SEED=N: another order of events. HOST_GPU_SLOW=N: CTA N falls behind. HOST_GPU_SMS=N: of the device, 4 as a rule.
# HOST_GPU_CHECKED=1: as a checked build (GDN_CHECKED_KERNELS) has them; no cache directory that others fill.
# HOST_GPU_KEEP=1: keeps what was compiled in the folder for temporary files, and says where in it a fault was found.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tests=$(cd "$1" && pwd)/tests
shift
while [[ $1 == *=* ]]; do
    export "${1?}"
    shift
done
program=$1
shift
export LD_LIBRARY_PATH=$tests/host_gpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export GDN_JIT_NVRTC=$tests/host_gpu/libhost_gpu_nvrtc.so
exec "$tests/gpu/$program" "$@"
