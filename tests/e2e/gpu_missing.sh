#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A machine without CUDA's libraries, or without a GPU: the program starts there, everything on the CPU works, no library of
# CUDA is loaded for it, and a user who asks for a GPU is told what is missing and what to do. Without -DCUDA=ON there is no
# module to look at: exit code 77.
. "$(dirname "$0")/lib.sh"

modules=$(dirname "$atoll")
refused() { # refused "WORDS|WORDS" PROGRAM: asked for a GPU, it ends with exit code 4 and says all these words
    code=0
    "$2" train $settings --device.kind cuda --run.dir gpu >refused.out 2>&1 || code=$?
    [ "$code" = 4 ] || fail "exit code $code where a GPU was asked for"
    rest=$1
    while [ -n "$rest" ]; do
        grep -qF -- "${rest%%|*}" refused.out || fail "\"${rest%%|*}\" is not said"
        case $rest in *"|"*) rest=${rest#*|} ;; *) rest="" ;; esac
    done
    grep -qF -- "--device.kind cpu" refused.out || fail "no word about what to do"
}

"$atoll" data --out data text.txt >data.out 2>&1 || fail "atoll data"
settings="--data.train data/train-0-0000.bin --train.steps 2 --train.warmup_steps 0 --train.batch_tokens 256 --model.layers 1
          --model.d_model 32 --log.progress none"

# The program alone, as on a machine where no module was installed. LD_DEBUG shows what the loader opens.
mkdir alone empty
cp "$atoll" alone/atoll
LD_DEBUG=files LD_DEBUG_OUTPUT="$PWD/opened" alone/atoll train $settings --run.dir run >train.out 2>&1 || fail "training on the CPU"
ls opened.* >/dev/null 2>&1 || fail "the loader told nothing"
if grep -E "file=lib(cuda|cublas|cudnn|nccl|nv|atoll_)" opened.*; then fail "the CPU needs a library of CUDA"; fi
refused "no GPU module|libatoll_cuda.so|-DCUDA=ON" alone/atoll
alone/atoll train $settings --device.kind cuda --run.dir dry --dry-run >dry.out 2>&1 || fail "no dry run without a GPU"
grep -q "^# No GPU here" dry.out && grep -q "^# *activations" dry.out || fail "the dry run without a GPU"
alone/atoll doctor >doctor.out 2>&1 || fail "atoll doctor without modules"
grep -q "^cuda no: .*-DCUDA=ON" doctor.out || fail "atoll doctor says nothing about the missing module"
grep -q "^driver " doctor.out || fail "atoll doctor says nothing about the driver"
WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=29500
export WORLD_SIZE RANK LOCAL_RANK MASTER_ADDR MASTER_PORT
refused "no GPU module|libatoll_nccl.so|NCCL" alone/atoll
unset WORLD_SIZE RANK LOCAL_RANK MASTER_ADDR MASTER_PORT

if [ ! -e "$modules/libatoll_cuda.so" ]; then
    echo "SKIPPED: built without -DCUDA=ON; what the GPU module says where libraries or a GPU are missing was not tested"
    exit 77
fi

# The module is there and not loaded for the CPU; then without cuBLASLt, then without NCCL, then without a GPU.
rm -f opened.*
LD_DEBUG=files LD_DEBUG_OUTPUT="$PWD/opened" "$atoll" train $settings --run.dir run2 >train2.out 2>&1 || fail "training in spite of the module"
if grep -E "file=lib(cuda|cublas|cudnn|nccl|nv|atoll_)" opened.*; then fail "the CPU loads a library of CUDA"; fi
: >empty/libcublasLt.so.13
: >empty/libnccl.so.2
LD_LIBRARY_PATH=$PWD/empty
export LD_LIBRARY_PATH
refused "cannot be loaded|libcublasLt|LD_LIBRARY_PATH" "$atoll"
"$atoll" doctor >doctor.out 2>&1 || fail "atoll doctor without cuBLASLt"
grep -q "^cuda no: .*libcublasLt" doctor.out || fail "atoll doctor does not name cuBLASLt"
rm empty/libcublasLt.so.13
: >empty/libcudnn.so.9
"$atoll" doctor >doctor.out 2>&1 || fail "atoll doctor without NCCL"
grep -q "^cuda.cudnn no: .*own" doctor.out || fail "atoll doctor does not say that cuDNN is missing"
if [ -e "$modules/libatoll_nccl.so" ]; then
    grep -q "^nccl no: .*libnccl" doctor.out || fail "atoll doctor does not name NCCL"
fi
# A driver of CUDA 12 and no GPU, in two functions, as far as the runtime asks it.
if cc -shared -fPIC -o empty/libcuda.so.1 -x c - <<END 2>cc.out; then
int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
END
    refused "too old|CUDA 12.4|newer driver" "$atoll"
    "$atoll" doctor >doctor.out 2>&1 || fail "atoll doctor with an old driver"
    grep -q "^cuda no: .*too old" doctor.out || fail "atoll doctor says nothing about the old driver"
fi
unset LD_LIBRARY_PATH
CUDA_VISIBLE_DEVICES=
export CUDA_VISIBLE_DEVICES
refused "driver" "$atoll"
"$atoll" doctor >doctor.out 2>&1 || fail "atoll doctor without a GPU"
grep -q "^cuda.toolkit" doctor.out && grep -q "^cuda no: " doctor.out || fail "atoll doctor without a GPU"
grep -q "^cuda.cudnn [0-9]" doctor.out || grep -q "^cuda.cudnn no: " doctor.out || fail "atoll doctor says nothing about cuDNN"
