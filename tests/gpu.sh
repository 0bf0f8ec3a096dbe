#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU, in one command with a budget of time. Stages run in the order of their worth, so that a machine
# that is lent for ten minutes answers the important questions first. A stage for which something is missing is skipped by name and reason.
#   tests/gpu.sh [--pack FILE | --built] [--out FOLDER] [--csv FILE] [--budget SECONDS] [--stages LIST]
#                [--gpus N] [--shard FILE] [--arch LIST] [--debs FOLDER]
#     --pack    FILE of deploy/pack-gpu.sh: stripped programs and the libraries that a bare CUDA image does not have; nothing is built
#     --built   do not build: build-gpu (or ATOLL_BUILD) holds what this script built on another machine
#     --out     one folder for all results, default build-gpu/gpu-report: summary.txt, results.csv, and report.tar.gz with what
#               each command printed
#     --csv     where the rows of the benches go, default OUT/results.csv
#     --budget  seconds for all stages together, default no limit. What does not fit is listed as NOT RUN.
#     --stages  of device,tests,speed,torch,ops,counters,sanitizer,program,shards,ranks,models,curves: default all, in this order
#     --gpus    how many of the machine's GPUs one site uses, default all. Two or more: losses, killed ranks, rejoining
#     --shard   GPT-2 tokens (.bin of llm.c) for the curves; without it a byte model on the repository's text
#     --arch    CUDA architectures to build for, default 90a-real
#     --debs    FOLDER with Debian packages, for a machine without a registry: they are unpacked into a prefix, nothing is
#               installed. Make it where a registry is reachable:
#                 mkdir debs; cd debs; apt-get download libdnnl-dev libdnnl2 libcmocka-dev libcmocka0 libyaml-dev \
#                     libyaml-0-2 libjansson-dev libjansson4 libssl-dev libssl3 libpcre2-dev libpcre2-8-0 libpcre2-16-0 \
#                     libpcre2-32-0 libpcre2-posix3 libutf8proc-dev libutf8proc2 zlib1g-dev zlib1g libzstd-dev libzstd1
#               (libdnnl3 from Debian 13 on). Add cmake and ninja's if the machine does not have them. With libgrpc-dev,
#               libprotobuf-c-dev, protobuf-c-compiler and their dependencies the whole program is tested, too.
# Stages:
#   device     driver, GPU, libraries                   tests     each operation, model and optimizer on the GPU against the CPU
#   speed      GPT-2 124M, class by class                torch     the same model in PyTorch, with each attention kernel
#   ops        every operation compared with a copy    counters  time, bytes, warps and cache hits of each kernel (ncu)
#   sanitizer  memcheck and racecheck on four programs   program   two sites, kill -9, stop and resume, overlap
#   shards     parameters and outer state over ranks     ranks     NCCL, several GPUs in a site
#   models     Llama 1B, GPT-2 1.5B, LAMB, CUDA graphs   curves    60 steps compared with PyTorch
# The last line is "N passed, N failed, N skipped". ATOLL_GPU_AT_ONCE tests run side by side, default half the cores.
# What needs no GPU (contraction, registers, cuDNN's plans) is in ctest of a build with -DCUDA=ON.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd) || exit
stages=device,tests,speed,torch,ops,counters,sanitizer,program,shards,ranks,models,curves
all=$stages debs='' arch=90a-real shard='' gpus='' built=no pack='' out='' csv='' budget=''
usage() {
    echo "usage: tests/gpu.sh [--pack FILE | --built] [--out FOLDER] [--csv FILE] [--budget SECONDS] [--stages LIST]" \
        "[--gpus N] [--shard FILE] [--arch LIST] [--debs FOLDER]" >&2
    exit 4
}
bad() { echo "gpu.sh: $1" >&2; exit 4; }
while [ $# -gt 0 ]; do
    case $1 in
    --pack | --out | --csv | --budget | --stages | --gpus | --shard | --arch | --debs)
        [ $# -ge 2 ] || bad "$1 needs a value" ;;
    esac
    case $1 in
    --pack) pack=$(readlink -e "$2") || bad "--pack $2: no such file; deploy/pack-gpu.sh makes it"; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --csv) csv=$2; shift 2 ;;
    --budget) budget=$2; shift 2 ;;
    --stages) stages=$2; shift 2 ;;
    --gpus) gpus=$2; shift 2 ;;
    --shard) shard=$(readlink -e "$2") || bad "--shard $2: no such file"; shift 2 ;;
    --arch) arch=$2; shift 2 ;;
    --debs) debs=$(cd "$2" 2>/dev/null && pwd) || bad "--debs $2: no such folder"; shift 2 ;;
    --built) built=yes; shift ;;
    -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
    *) usage ;;
    esac
done
for stage in ${stages//,/ }; do
    case ,$all, in *",$stage,"*) ;; *) bad "--stages $stage: it is none of $all" ;; esac
done
case $budget in '' | *[!0-9]*) [ -z "$budget" ] || bad "--budget $budget: give whole seconds" ;; esac
[ -z "$gpus" ] || [ "$gpus" -ge 1 ] 2>/dev/null || bad "--gpus $gpus: give a number of GPUs"
end=$((SECONDS + ${budget:-1000000}))
build=$(readlink -m "${ATOLL_BUILD:-$root/build-gpu}")
out=${out:-$build/gpu-report}
mkdir -p "$out" || exit 4
out=$(cd "$out" && pwd)
csv=$(readlink -m "${csv:-$out/results.csv}")
unpacked=''
if [ -n "$pack" ]; then
    unpacked=$(mktemp -d) built=yes
    tar xzf "$pack" -C "$unpacked" || bad "--pack $pack: not an archive of deploy/pack-gpu.sh"
    build=$unpacked/build
    export LD_LIBRARY_PATH=$unpacked/lib:${LD_LIBRARY_PATH:-}
fi
if [ $built = yes ] && [ ! -x "$build/bin/atoll" ]; then
    bad "$build/bin/atoll is not there; make it with deploy/pack-gpu.sh and give --pack, or copy a build folder and set ATOLL_BUILD"
fi
cd "$root" || exit
export PATH=$PATH:/usr/local/cuda/bin PYTHONUNBUFFERED=1
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
at_once=${ATOLL_GPU_AT_ONCE:-$((($(nproc) + 1) / 2))}
[ "$at_once" -ge 1 ] || at_once=1
said=$out/said
rm -rf "$said"
mkdir -p "$said" || exit 4
: >"$out/summary.txt"

# Each command is a process group of its own (timeout makes it one), so that an end by any signal leaves nothing running.
groups=()
# shellcheck disable=SC2317 # called by the trap
leave() {
    local g
    for g in "${groups[@]}"; do kill -TERM -- "-$g" 2>/dev/null; done
    sleep 0.2
    for g in "${groups[@]}"; do kill -KILL -- "-$g" 2>/dev/null; done
    [ -z "$unpacked" ] || rm -rf "$unpacked"
    tar czf "$out/report.tar.gz" -C "$out" said summary.txt 2>/dev/null
    rm -rf "$said"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
tell() { echo "$1" | tee -a "$out/summary.txt"; }
left() { echo $((end - SECONDS)); }
part() { case ,$stages, in *",$1,"*) ;; *) return 1 ;; esac; }

passed=0 failed=0 skipped=0
verdict() { # NAME STATUS [REASON OF A SKIP]
    case $2 in
    0) passed=$((passed + 1)); tell "PASSED   $1" ;;
    77) skipped=$((skipped + 1)); tell "SKIPPED  $1: ${3:-see said/${1// /_}.txt}" ;;
    78) skipped=$((skipped + 1)); tell "NOT RUN  $1: ${3:-the budget of $budget s is spent}" ;;
    *) failed=$((failed + 1)); tell "FAILED   $1 (exit $2)" ;;
    esac
}
finish() {
    local stage
    for stage in ${all//,/ }; do part "$stage" || tell "NOT RUN  $stage (--stages $stages)"; done
    tell "results  $out"
    tell "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

# begin NAME LIMIT COMMAND...: in the background, for at most LIMIT seconds and never beyond the budget. Sets $pid.
begin() {
    local file=$said/${1// /_} limit=$2 most
    shift 2
    most=$(left)
    [ "$limit" -lt "$most" ] || limit=$most
    ( exec timeout -k 5 "$limit" "$@" ) >"$file.txt" 2>&1 &
    pid=$!
    groups+=("$pid")
}
# ended NAME STATUS LINES REASON: the verdict; a command that the budget ended is not a failure.
ended() {
    local status=$2
    case $status in 124 | 137) [ "$(left)" -gt 1 ] || status=78 ;; esac
    tail -n "$([ "$status" = 0 ] && echo "$3" || echo 40)" "$said/${1// /_}.txt"
    verdict "$1" "$status" "$4"
}
# run NAME LIMIT LINES REASON COMMAND...: alone, and the last LINES of what it says are shown. REASON: of exit code 77.
run() {
    local name=$1 limit=$2 lines=$3 reason=$4 status=0
    shift 4
    [ "$(left)" -gt 5 ] || { verdict "$name" 78; return; }
    begin "$name" "$limit" "$@"
    wait "$pid" || status=$?
    ended "$name" $status "$lines" "$reason"
}
# together NAME LIMIT REASON COMMAND...: at the same time as others; `collect` gives the verdicts.
names=() pids=() reasons=()
together() {
    local name=$1 limit=$2 reason=$3
    shift 3
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
    [ "$(left)" -gt 5 ] || { verdict "$name" 78; return; }
    begin "$name" "$limit" "$@"
    names+=("$name") pids+=("$pid") reasons+=("$reason")
}
collect() {
    local i status
    for i in "${!names[@]}"; do
        status=0
        wait "${pids[$i]}" || status=$?
        ended "${names[$i]}" $status 1 "${reasons[$i]}"
    done
    names=() pids=() reasons=()
}
# skip REASON NAME...
skip() {
    local reason=$1 name
    shift
    for name in "$@"; do verdict "$name" 77 "$reason"; done
}

on_gpu="test_cuda_fp8 test_cuda_golden test_cuda_ops test_cuda_model test_cuda_exact test_cuda_step test_cuda_outer"
on_gpu="$on_gpu test_cuda_optim test_cuda_muon test_cuda_encoder"
references="test_ops test_linear test_attention"
if [ -n "$debs" ]; then
    prefix=$build-prefix
    mkdir -p "$prefix"
    for deb in "$debs"/*.deb; do
        dpkg -x "$deb" "$prefix" || { verdict "unpack $deb" 1; finish; }
    done
    lib=$(dirname "$(find "$prefix" -name 'libdnnl.so*' | head -n 1)")
    export CMAKE_PREFIX_PATH=$prefix/usr PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$prefix
    export C_INCLUDE_PATH="$prefix/usr/include:$prefix/usr/include/${lib##*/}" CPLUS_INCLUDE_PATH=$prefix/usr/include
    # After what the image has set: its driver's libcuda.so.1 may be there.
    export LIBRARY_PATH=${LIBRARY_PATH:+$LIBRARY_PATH:}$lib CMAKE_LIBRARY_PATH=$lib
    export PATH=$PATH:$prefix/usr/bin LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$lib # protoc-c and its libraries
fi
if [ $built = no ]; then
    net=OFF
    pkg-config --exists grpc libprotobuf-c libssl 2>/dev/null && command -v protoc-c >/dev/null && net=ON
    command -v nvcc >/dev/null || { skip "no nvcc; on another machine: deploy/pack-gpu.sh" build; finish; }
    generator=$(command -v ninja >/dev/null && echo Ninja || echo "Unix Makefiles")
    mkdir -p "$build"
    # shellcheck disable=SC2086 # lists of targets
    if cmake -S . -B "$build" -G "$generator" -DNET=$net -DMPI=OFF -DCUDA=ON "-DCUDA_ARCHITECTURES=$arch" >"$said/build.txt" 2>&1 &&
        cmake --build "$build" -j "$(nproc)" --target $on_gpu $references atoll_cuda bench_cuda bench_cuda_train bench_ranks ranks \
            nccl_calls atoll >>"$said/build.txt" 2>&1; then
        verdict build 0
    else
        tail -n 40 "$said/build.txt"
        verdict build 1
        finish
    fi
    cmake --build "$build" --target atoll_nccl >>"$said/build.txt" 2>&1 # where NCCL's header is
fi

gpu=no torch=no net=OFF
nvidia-smi >/dev/null 2>&1 && gpu=yes
[ $gpu = yes ] && python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null && torch=yes
"$build/bin/atoll" doctor >"$said/doctor.txt" 2>&1
grep -q '^network yes' "$said/doctor.txt" && net=ON
[ -n "$gpus" ] || gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')

if part device; then
    cat "$said/doctor.txt"
    if [ $gpu = yes ]; then
        run device 20 14 '' nvidia-smi
    else
        skip "no GPU" device
    fi
fi

if part tests; then
    for t in $on_gpu; do
        if [ $gpu = yes ]; then together "$t" 120 "no GPU" "$build/tests/$t"; else skip "no GPU" "$t"; fi
    done
    for t in $references; do
        if [ $gpu = yes ]; then
            together "$t on the GPU" 120 '' env ATOLL_TEST_DEVICE=cuda "$build/tests/$t"
        else
            skip "no GPU" "$t on the GPU"
        fi
    done
    collect
fi

# train SIZE SEQUENCES VARIANT LIMIT
train() {
    if [ $gpu = yes ]; then
        run "train $1 x $2 $3" "$4" 22 "no GPU" "$build/tests/bench_cuda_train" "$1" "$2" cuda "$3" --csv "$csv"
    else
        skip "no GPU" "train $1 x $2 $3"
    fi
}
if part speed; then train 124m 64 adamw 90; fi

# torch_train SIZE SEQUENCES ATTENTION LIMIT [MODE OF torch.compile]
torch_train() {
    if [ $torch = yes ]; then
        run "PyTorch $1 x $2 $3 ${5:-}" "$4" 3 '' python3 tests/bench/train_torch_cuda.py "$1" "$2" 20 --attention "$3" \
            --mode "${5:-default}" --csv "$csv"
    else
        skip "no GPU, or python3 has no torch with a GPU" "PyTorch $1 x $2 $3"
    fi
}
if part torch; then
    for kernel in default cudnn flash; do torch_train 124m 64 $kernel 110; done
fi

if part ops; then
    if [ $gpu = yes ]; then run ops 120 14 "no GPU" "$build/tests/bench_cuda" --csv "$csv"; else skip "no GPU" ops; fi
fi

if part counters; then
    if [ $gpu = no ]; then
        skip "no GPU" counters
    elif ! command -v ncu >/dev/null; then
        skip "no ncu (Nsight Compute)" counters
    else
        metrics=gpu__time_duration.sum,dram__bytes.sum,sm__warps_active.avg.pct_of_peak_sustained_active
        metrics=$metrics,lts__t_sector_hit_rate.pct,sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active
        metrics=$metrics,launch__occupancy_limit_registers
        run counters 120 2 "no GPU" ncu --clock-control none --metrics $metrics --launch-skip 1200 --launch-count 330 --csv \
            --log-file "$said/ncu.csv" "$build/tests/bench_cuda_train" 124m 64
    fi
fi

if part sanitizer; then
    for tool in memcheck racecheck; do
        for t in ops fp8 model outer; do
            if [ $gpu = yes ] && command -v compute-sanitizer >/dev/null; then
                together "$tool $t" 150 '' env CUDA_TEST_SMALL=1 compute-sanitizer --tool $tool --error-exitcode 9 \
                    "$build/tests/test_cuda_$t"
            else
                skip "no GPU, or no compute-sanitizer" "$tool $t"
            fi
        done
    done
    collect
fi

if part program; then
    for t in two_sites kill stop_resume overlap; do
        if [ $gpu = yes ] && [ $net = ON ]; then
            together "$t on the GPU" 240 '' env ATOLL_E2E_DEVICE=cuda tests/e2e/$t.sh "$build/bin/atoll" "$build/tests/$t.dir"
        else
            skip "no GPU, or a build without the network" "$t on the GPU"
        fi
    done
    collect
fi

# shards NAME RANKS: on as many GPUs, or on the only one, which NCCL takes from 2.30.3 on, as an experiment.
shards() {
    run "$1" 240 8 "this NCCL takes one rank for each GPU" env ATOLL_E2E_GPUS="$2" NCCL_MULTI_RANK_GPU_ENABLE=1 \
        tests/e2e/gpu_shards.sh "$build/bin/atoll" "$build/tests/gpu_shards.dir"
}
if part shards; then
    if [ $gpu = no ] || [ $net = OFF ]; then
        skip "no GPU, or a build without the network" "shards on two ranks" "shards on one rank"
    else
        if [ -e "$build/bin/libatoll_nccl.so" ]; then shards "shards on two ranks" 2; else skip "no NCCL" "shards on two ranks"; fi
        shards "shards on one rank" 1
    fi
fi

if part ranks; then . tests/gpu_ranks.sh; fi

if part models; then
    train 1b 16 adamw 120
    torch_train 1b 16 default 180
    train 1558m 16 adamw 120
    torch_train 1558m 16 default 180
    train 124m 64 lamb 60
    train 124m 64 graphs 60
    train 124m 32 adamw 60
    torch_train 124m 32,128 default 150
    torch_train 124m 64 default 240 max-autotune
fi

if part curves; then
    if [ $torch = yes ]; then
        vocab=50257
        if [ -z "$shard" ]; then
            vocab=256 shard=$build/text/train-0-0000.bin
            for _ in $(seq 120); do cat tests/golden/text/*.txt; done >"$build/text.txt"
            "$build/bin/atoll" data --out "$build/text" --seq-len 1024 --force "$build/text.txt" >"$said/text.txt" 2>&1
        fi
        for curve in "tiny f32" "llama_tiny f32" "124m bf16" "llama_60m bf16"; do
            together "60 steps against PyTorch $curve" 300 '' python3 tests/bench/curve_torch.py "$build/bin/atoll" "$shard" \
                --size "${curve% *}" --device cuda --dtype "${curve#* }" --vocab $vocab --steps 60
        done
        collect
    else
        skip "no GPU, or python3 has no torch with a GPU" "60 steps against PyTorch"
    fi
fi
finish
