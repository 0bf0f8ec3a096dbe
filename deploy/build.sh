#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Configures and builds into build/ (or $ATOLL_BUILD), quietly: the whole output is in BUILD/build.log.
#   deploy/build.sh [target...]
# The GPU module is built, for this machine's GPUs, where there are an NVIDIA driver and nvcc (PATH, $CUDA_HOME, cuda/ of
# the repository, /usr/local/cuda*). ATOLL_CUDA=ON: also without a GPU, for all generations; ATOLL_CUDA=OFF: never.
# ATOLL_WERROR=ON or OFF: whether a warning of the compiler ends the build; without it a new folder has OFF, another stays as it was.
set -eu
cd "$(dirname "$0")/.."
build=${ATOLL_BUILD:-build}
mkdir -p "$build"
log=$build/build.log

fail() {
    echo "build: $1" >&2
    exit 4
}
find_nvcc() {
    for nvcc in "${CUDACXX:-}" "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc || :)" "$PWD/cuda/bin/nvcc" /usr/local/cuda/bin/nvcc \
        /usr/local/cuda-*/bin/nvcc; do
        if [ -x "$nvcc" ]; then echo "$nvcc"; return; fi
    done
}
# For the GPUs that are here only: a third of the time. 90a: with Hopper's own instructions. Older than 8.0: not supported.
architectures() {
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | sort -un |
        sed -n 's/^90$/90a/; s/^\([89][0-9]a\{0,1\}\|1[0-9][0-9]\)$/\1-real/p' | paste -sd ';' -
}

if ! command -v cmake >/dev/null || ! command -v ninja >/dev/null; then
    fail "cmake or ninja is missing; deploy/install.sh installs all that is needed (Debian)"
fi
gpu=no
[ ! -e "${ATOLL_DRIVER:-/proc/driver/nvidia/version}" ] || gpu=yes
nvcc=$(find_nvcc)
options="" # of cmake; without a word about CUDA a build folder stays as it was
case ${ATOLL_CUDA:-auto}:$gpu:${nvcc:+nvcc} in
ON:*:nvcc) options="-DCUDA=ON" ;;
ON:*) fail "ATOLL_CUDA=ON, but there is no nvcc: deploy/install-cuda.sh brings it, without root" ;;
auto:yes:nvcc)
    list=$(architectures)
    options="-DCUDA=ON ${list:+-DCUDA_ARCHITECTURES=$list}"
    ;;
auto:yes:) echo "gpu      no nvcc, so for the CPU only; deploy/install-cuda.sh brings it, then this once more" >&2 ;;
auto:no:nvcc) echo "gpu      nvcc, but no NVIDIA driver, so for the CPU only; ATOLL_CUDA=ON builds the GPU module anyway" >&2 ;;
auto:no:) ;;
OFF:*) options="-DCUDA=OFF" ;;
*) fail "ATOLL_CUDA is $ATOLL_CUDA; it may be ON, OFF or auto" ;;
esac
case $options in
*=ON*)
    export CUDACXX="$nvcc"
    echo "gpu      $nvcc, ${list:-all} architectures" >&2
    ;;
esac
[ -e "$build/CMakeCache.txt" ] || : "${ATOLL_WERROR:=OFF}"
[ -z "${ATOLL_WERROR:-}" ] || options="$options -DWERROR=$ATOLL_WERROR"
echo "build    ${*:-everything} in $build: some minutes; what the compiler says is in $build/build.log" >&2
# shellcheck disable=SC2086 # options holds several words, none with a space in it
if ! cmake -B "$build" -G Ninja $options </dev/null >"$log" 2>&1 ||
    ! cmake --build "$build" ${1:+--target "$@"} </dev/null >>"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "build: failed; the whole log is $log" >&2
    exit 1
fi
