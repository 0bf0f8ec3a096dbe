#!/usr/bin/env bash
# Everything that needs a GPU, in one command: builds with -DMPI=OFF -DCUDA=ON, and with the network where gRPC is there; runs
# each op against the CPU's, against float64 and finite differences, the exact set, the outer arithmetic, the golden losses,
# kill -9 and resume, a whole run of an aggregator and two sites that share the GPU, 200 steps beside PyTorch, compute-sanitizer
# on the kernel tests, and the register report. Tests run side by side, measurements alone and last. The last line is "N passed,
# N failed, N skipped"; every skip says why. What each test printed is in build-gpu/said.
#   tests/gpu.sh [--debs FOLDER] [--arch LIST] [--shard FILE] [--gpus N] [--parts LIST] [--bench] [--built]
#     --debs   FOLDER with Debian packages, for a machine without a registry: they are unpacked into a prefix, nothing is
#              installed. Make it where a registry is reachable:
#                mkdir debs; cd debs; apt-get download libdnnl-dev libdnnl2 libcmocka-dev libcmocka0 libyaml-dev \
#                    libyaml-0-2 libjansson-dev libjansson4 libssl-dev libssl3 libpcre2-dev libpcre2-8-0 libpcre2-16-0 libpcre2-32-0 \
#                    libpcre2-posix3 libutf8proc-dev libutf8proc2 zlib1g-dev zlib1g libzstd-dev libzstd1
#              (the names of the machine's own release: libdnnl3 from Debian 13 on). Add cmake and ninja's if the machine
#              lacks them.
#              With libgrpc-dev, libprotobuf-c-dev, protobuf-c-compiler and what they need the whole run is tested, too.
#     --shard  GPT-2 tokens (.bin of llm.c) for 200 steps of 124M beside PyTorch; without it a byte model of that size on the
#              repository's text
#     --arch   CUDA architectures, default 90a-real
#     --gpus   how many of the machine's GPUs one site uses, default all; with two or more also losses, killed ranks and rejoining
#              of such a site (gpu_ranks.sh)
#     --parts  of tests,curves,sanitizer,static: what to run, default all of them
#     --bench  then measure: bench_cuda, and train_torch_cuda.py if python3 has torch
#     --built  do not build: build-gpu (or ATOLL_BUILD) holds what this script built on another machine
# ATOLL_GPU_AT_ONCE tests run side by side, default half the cores; each ends after ATOLL_GPU_LIMIT seconds, default 300, and
# curves and sanitizers after three times as many.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
debs='' arch=90a-real bench=no shard='' gpus='' parts=tests,curves,sanitizer,static built=no
while [ $# -gt 0 ]; do
    case $1 in
    --debs | --arch | --shard | --gpus | --parts)
        [ $# -ge 2 ] || { echo "gpu.sh: $1 needs a value" >&2; exit 4; } ;;&
    --debs) debs=$(cd "${2:-}" && pwd) || exit 4; shift 2 ;;
    --arch) arch=$2; shift 2 ;;
    --shard) shard=$(readlink -f "$2"); shift 2 ;;
    --gpus) gpus=$2; shift 2 ;;
    --parts) parts=$2; shift 2 ;;
    --bench) bench=yes; shift ;;
    --built) built=yes; shift ;;
    *) echo "usage: tests/gpu.sh [--debs FOLDER] [--arch LIST] [--shard FILE] [--gpus N] [--parts LIST] [--bench] [--built]" >&2; exit 4 ;;
    esac
done
build=${ATOLL_BUILD:-$root/build-gpu}
said=$build/said
for part in $(echo "$parts" | tr , ' '); do
    case $part in
    tests | curves | sanitizer | static) ;;
    *) echo "gpu.sh: --parts $part: it is none of tests, curves, sanitizer, static" >&2; exit 4 ;;
    esac
done
if [ $built = yes ] && [ ! -x "$build/bin/atoll" ]; then
    echo "gpu.sh: --built: $build/bin/atoll is not there; copy a build folder there, or set ATOLL_BUILD" >&2
    exit 4
fi
limit=${ATOLL_GPU_LIMIT:-300}
at_once=${ATOLL_GPU_AT_ONCE:-$((($(nproc) + 1) / 2))}
[ "$at_once" -ge 1 ] || at_once=1
trap 'kill $(jobs -p) 2>/dev/null' EXIT
passed=0 failed=0 skipped=0
verdict() { # name, exit status, reason of a skip
    case $2 in
    0) passed=$((passed + 1)); echo "PASSED   $1" ;;
    77) skipped=$((skipped + 1)); echo "SKIPPED  $1: ${3:-see above}" ;;
    *) failed=$((failed + 1)); echo "FAILED   $1 (exit $2)" ;;
    esac
}
# start NAME SKIPPED COMMAND...: COMMAND in the background; `collect` gives its verdict. SKIPPED: the reason when it ends with 77.
names=() skips=()
start() {
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
    names+=("$1") skips+=("$2")
    rm -f "$said/${1// /_}.status"
    (
        timeout -k 10 "$limit" "${@:3}" >"$said/${1// /_}.txt" 2>&1
        echo $? >"$said/${1// /_}.status"
    ) &
}
collect() {
    local i file status
    wait
    for i in "${!names[@]}"; do
        file=$said/${names[$i]// /_}
        status=$(cat "$file.status" || echo 1)
        tail -n "$([ "$status" = 0 ] && echo 1 || echo 40)" "$file.txt"
        verdict "${names[$i]}" "$status" "${skips[$i]}"
    done
    names=() skips=()
}
part() {
    case ,$parts, in *",$1,"*) ;; *) return 1 ;; esac
}
finish() {
    local p
    for p in tests curves sanitizer static; do
        part $p || echo "NOT RUN  $p (--parts $parts)"
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

if [ -n "$debs" ]; then
    prefix=$build-prefix
    mkdir -p "$prefix"
    for deb in "$debs"/*.deb; do
        dpkg -x "$deb" "$prefix" || { verdict "unpack $deb" 1; finish; }
    done
    lib=$(dirname "$(find "$prefix" -name 'libdnnl.so*' | head -n 1)")
    export CMAKE_PREFIX_PATH=$prefix/usr PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$prefix
    export C_INCLUDE_PATH=$prefix/usr/include:$prefix/usr/include/$(basename "$lib") CPLUS_INCLUDE_PATH=$prefix/usr/include
    # Behind what the image has set: there its driver's libcuda.so.1 may lie.
    export LIBRARY_PATH=${LIBRARY_PATH:+$LIBRARY_PATH:}$lib CMAKE_LIBRARY_PATH=$lib
    export PATH=$PATH:$prefix/usr/bin LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$lib # protoc-c and its libraries
fi
export PATH=$PATH:/usr/local/cuda/bin
on_gpu="test_cuda_ops test_cuda_fp8 test_cuda_exact test_cuda_model test_cuda_step test_cuda_outer test_cuda_golden"
on_gpu="$on_gpu test_cuda_optim test_cuda_muon test_cuda_encoder"
references="test_ops test_linear test_attention"
targets="$on_gpu $references atoll_cuda bench_cuda bench_cuda_train bench_ranks ranks nccl_calls atoll"
net=OFF
pkg-config --exists grpc libprotobuf-c libssl 2>/dev/null && command -v protoc-c >/dev/null && net=ON
if [ $built = no ]; then
    command -v nvcc >/dev/null || { echo "CUDA: no nvcc, not compiled"; verdict build 77 "no nvcc"; finish; }
    generator=$(command -v ninja >/dev/null && echo Ninja || echo "Unix Makefiles")
    mkdir -p "$build"
    if cmake -S . -B "$build" -G "$generator" -DNET=$net -DMPI=OFF -DCUDA=ON "-DCUDA_ARCHITECTURES=$arch" >"$build/build.log" 2>&1 &&
        cmake --build "$build" -j "$(nproc)" --target $targets >>"$build/build.log" 2>&1; then
        verdict build 0
    else
        tail -n 40 "$build/build.log"
        verdict build 1
        finish
    fi
    for optional in atoll_nccl test_cudnn_plans; do cmake --build "$build" --target $optional >>"$build/build.log" 2>&1; done
fi
[ -e "$build/bin/libatoll_nccl.so" ]
verdict "NCCL module" $(($? ? 77 : 0)) "no NCCL here; one GPU per site"
"$build/bin/atoll" doctor | tee "$build/doctor.txt"
grep -q '^network yes' "$build/doctor.txt" && net=ON || net=OFF
gpu=no
nvidia-smi >/dev/null 2>&1 && gpu=yes
torch=no
[ $gpu = yes ] && python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null && torch=yes
mkdir -p "$said"

if part tests; then
    for t in $on_gpu; do start $t "no GPU" "$build/tests/$t"; done
    if [ -x "$build/tests/test_cudnn_plans" ]; then
        start "cuDNN's plans for an H200" "no libcudnn.so.9" "$build/tests/test_cudnn_plans" --all
    else
        verdict "cuDNN's plans for an H200" 77 "no header cudnn_graph.h"
    fi
    for t in $references; do
        if [ $gpu = yes ]; then
            start "$t on the GPU" "see above" env ATOLL_TEST_DEVICE=cuda "$build/tests/$t"
        else
            verdict "$t on the GPU" 77 "no GPU"
        fi
    done
    # The whole program: killed and resumed, alone and in a run of two sites, all on this GPU.
    for t in two_sites kill stop_resume overlap; do
        if [ $gpu = yes ] && [ $net = ON ]; then
            start "$t on the GPU" "see above" env ATOLL_E2E_DEVICE=cuda tests/e2e/$t.sh "$build/bin/atoll" "$build/tests/$t.dir"
        else
            verdict "$t on the GPU" 77 "no GPU, or no gRPC and protoc-c"
        fi
    done
    collect
fi
[ -n "$gpus" ] || gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
if part tests || [ $bench = yes ]; then . tests/gpu_ranks.sh; fi
limit=$((3 * limit))
if ! part curves; then
    :
elif [ $torch = yes ]; then
    vocab=50257
    if [ -z "$shard" ]; then
        vocab=256 shard=$build/text/train-0-0000.bin
        for i in $(seq 40); do cat LICENSE docs/*.md; done >"$build/text.txt"
        "$build/bin/atoll" data --out "$build/text" --sequence 1024 --force "$build/text.txt"
    fi
    for curve in "tiny f32" "llama_tiny f32" "124m bf16" "llama_60m bf16"; do
        start "200 steps beside PyTorch, $curve" "see above" python3 tests/bench/curve_torch.py "$build/bin/atoll" "$shard" \
            --size ${curve% *} --device cuda --dtype ${curve#* } --vocab $vocab
    done
    collect
else
    verdict "200 steps of 124M beside PyTorch" 77 "no GPU, or python3 has no torch with a GPU"
fi
if ! part sanitizer; then
    :
elif command -v compute-sanitizer >/dev/null && [ $gpu = yes ]; then
    for tool in memcheck racecheck; do
        for t in $on_gpu; do
            start "$tool $t" "see above" env CUDA_TEST_SMALL=1 compute-sanitizer --tool $tool --error-exitcode 9 "$build/tests/$t"
        done
    done
    collect
else
    verdict "compute-sanitizer" 77 "no compute-sanitizer or no GPU"
fi
if part static; then
    if command -v nvcc >/dev/null; then
        start "exact set has no contraction" "see above" tests/cuda/fma.sh
        start "registers: no spills" "see above" tests/bench/cuda_registers.sh "${arch%%-*}"
        collect
    else
        verdict "exact set and registers" 77 "no nvcc"
    fi
fi
if [ $bench = yes ]; then
    "$build/tests/bench_cuda"
    verdict bench_cuda $? "no GPU"
    for size in "124m 32" "124m 64" "1558m 16" "1b 8" "1b 16"; do
        "$build/tests/bench_cuda_train" $size
        verdict "bench_cuda_train $size" $? "no GPU"
    done
    if [ $torch = yes ]; then
        python3 tests/bench/train_torch_cuda.py attention
        verdict "PyTorch's attention beside it" $?
        for size in "124m 32,64,128" "1558m 8,16,32" "1b 4,8,16"; do
            python3 tests/bench/train_torch_cuda.py $size
            verdict "PyTorch beside it, $size" $?
        done
    else
        verdict "PyTorch beside it" 77 "python3 has no torch with a GPU"
    fi
fi
finish
