#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs what tests/gpu.sh needs on a bare CUDA image without a registry: stripped programs, and the libraries that such an image
# does not have (oneDNN, gRPC, YAML ..). One archive of some 26 MB. Needs nvcc, no GPU.
#   deploy/pack-gpu.sh [--arch LIST] [--to FILE]
#     --arch   CUDA architectures, default 90a-real (H100, H200); 80-real: A100; 100-real: B200
#     --to     the archive, default build-gpu/atoll-gpu.tar.gz
# There, in a copy of this repository: tests/gpu.sh --pack FILE --budget 550
# The build folder is build-gpu, or $ATOLL_BUILD. The programs need the C library of this machine or a newer one.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=90a-real to=''
while [ $# -gt 0 ]; do
    case $1 in
    --arch | --to) [ $# -ge 2 ] || { echo "pack-gpu: $1 needs a value" >&2; exit 4; } ;;
    esac
    case $1 in
    --arch) arch=$2; shift 2 ;;
    --to) to=$2; shift 2 ;;
    -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
    *) echo "usage: deploy/pack-gpu.sh [--arch LIST] [--to FILE]" >&2; exit 4 ;;
    esac
done
build=${ATOLL_BUILD:-build-gpu}
to=${to:-$build/atoll-gpu.tar.gz}
command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || { echo "pack-gpu: no nvcc; deploy/install-cuda.sh brings it, without root" >&2; exit 4; }
tests="test_cuda_ops test_cuda_fp8 test_cuda_exact test_cuda_model test_cuda_step test_cuda_outer test_cuda_golden test_cuda_optim"
tests="$tests test_cuda_muon test_cuda_encoder test_ops test_linear test_attention bench_cuda bench_cuda_train bench_ranks ranks"
mkdir -p "$build"
# shellcheck disable=SC2086 # a list of targets
if ! cmake -B "$build" -G Ninja -DMPI=OFF -DCUDA=ON "-DCUDA_ARCHITECTURES=$arch" </dev/null >"$build/pack.log" 2>&1 ||
    ! cmake --build "$build" --target $tests atoll atoll_cuda nccl_calls </dev/null >>"$build/pack.log" 2>&1; then
    tail -n 40 "$build/pack.log" >&2
    echo "pack-gpu: the build failed; the whole log is $build/pack.log" >&2
    exit 1
fi
cmake --build "$build" --target atoll_nccl </dev/null >>"$build/pack.log" 2>&1 || echo "pack-gpu: no NCCL here: one GPU a site" >&2
pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT
mkdir -p "$pack/build/bin" "$pack/build/tests/nccl" "$pack/lib"
for f in bin/atoll bin/libatoll_cuda.so bin/libatoll_nccl.so tests/nccl/calls; do
    [ ! -e "$build/$f" ] || strip -o "$pack/build/$f" "$build/$f"
done
for f in $tests; do strip -o "$pack/build/tests/$f" "$build/tests/$f"; done
# What the loader finds here and a CUDA image does not have: all but the C library's own, the compiler's, CUDA's, MPI's.
ldd "$pack/build/bin/atoll" "$pack"/build/tests/test_cuda_ops "$pack"/build/bin/libatoll_cuda.so | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libgcc_s|libstdc\+\+|libcuda|libcudart|libcublas|libcublasLt|libcudnn|libnccl|libnvrtc)\.so' |
    while read -r library; do cp -L "$library" "$pack/lib/"; done
tar czf "$to" -C "$pack" build lib
printf 'pack     %s, %s MB: %s programs, %s libraries\n' "$to" "$(($(stat -c %s "$to") / 1000000))" \
    "$(find "$pack/build" -type f | wc -l)" "$(find "$pack/lib" -type f | wc -l)"
if [ "$(stat -c %s "$to")" -gt 60000000 ]; then
    echo "pack-gpu: WARNING: more than 60 MB; a carrier with a limit of 64 MiB may refuse it" >&2
fi
