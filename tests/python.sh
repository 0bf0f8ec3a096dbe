#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch, Hugging Face and FSDP2 trainers as sites next to `atoll train` (tests/python/check.py). Not in the suite: PyTorch is gigabytes.
#   tests/python.sh [CASE...]      gpt gpt-overlap ddp bert lightning fsdp fsdp-overlap grpc-before grpc-after experts data; all without one
# It builds atoll and libatoll, installs the packages below into build/python, and adds what it saw to tests/python/results.csv.
# ATOLL_PYTHON: an interpreter that has the packages; nothing is installed then.
set -eu
cd "$(dirname "$0")/.."
deploy/build.sh atoll atoll_shared
python=${ATOLL_PYTHON:-$PWD/build/python/bin/python}
[ -x "$python" ] || python3 -m venv build/python
install() { [ -n "${ATOLL_PYTHON:-}" ] || "$python" -m pip install --quiet "$@"; }
export PYTHONPATH="$PWD/outer/python" ATOLL_LIBRARY="$PWD/build/lib/libatoll.so" OMP_NUM_THREADS=1
trainers="" data=$([ $# -gt 0 ] || echo data)
for case in "$@"; do
    if [ "$case" = data ]; then data=data; else trainers="$trainers $case"; fi
done
if [ $# = 0 ] || [ -n "$trainers" ]; then
    install numpy torch transformers accelerate lightning grpcio
    "$python" tests/python/check_torch.py
    "$python" tests/python/check.py build/bin/atoll build/python.dir tests/python/results.csv $trainers
fi
if [ -n "$data" ]; then # datasets, Parquet, chats, frames: no site
    install datasets pyarrow pandas transformers jinja2
    "$python" tests/python/check_data.py build/bin/atoll build/python.dir/data tests/python/results.csv
fi
