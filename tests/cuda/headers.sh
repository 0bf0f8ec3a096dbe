#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Third-party headers of the GPU's libraries stay where they belong: CUDA's in the .cu files, dev_cuda.c and coll_nccl.c;
# NCCL's in coll_nccl.c; cuDNN's in one file. And each of these is found at all, or this test looks for nothing.
set -eu
failed=0
# expect PATTERN ALLOWED..: files of the program that include a header like PATTERN
expect() {
    pattern=$1
    shift
    found=$(grep -lEr --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' "^ *# *include *<($pattern)[a-zA-Z_0-9]*\.h>" \
        kernels inner outer | grep -vE "$1" || true)
    [ -z "$found" ] || { echo "FAILED: $pattern is included by: $found"; failed=1; }
    grep -lEr "^ *# *include *<($pattern)[a-zA-Z_0-9]*\.h>" kernels inner >/dev/null ||
        { echo "FAILED: no file includes $pattern"; failed=1; }
}
expect 'cuda|cublas' '\.cuh?$|^kernels/cuda/dev_cuda\.c$|^inner/coll/coll_nccl\.c$'
expect 'nccl' '^inner/coll/coll_nccl\.c$'
if [ -e kernels/cuda/cudnn.c ]; then expect 'cudnn' '^kernels/cuda/cudnn\.c$'; fi
exit $failed
