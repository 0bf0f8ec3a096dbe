#!/bin/sh
# PyTorch, Hugging Face and FSDP2 trainers as sites beside `atoll train` (tests/python/check.py). Not in the suite: PyTorch is gigabytes.
#   tests/python.sh [CASE...]      gpt gpt-overlap bert lightning fsdp fsdp-overlap grpc-before grpc-after experts; all without one
# It builds atoll and libatoll, installs the packages below into build/python, and adds what it saw to tests/python/results.csv.
# ATOLL_PYTHON: an interpreter that has the packages; nothing is installed then.
set -eu
cd "$(dirname "$0")/.."
deploy/build.sh atoll atoll_shared
python=${ATOLL_PYTHON:-$PWD/build/python/bin/python}
if [ ! -x "$python" ]; then
    python3 -m venv build/python
    build/python/bin/pip install --quiet numpy torch transformers accelerate lightning grpcio
fi
export PYTHONPATH="$PWD/outer/python" ATOLL_LIBRARY="$PWD/build/lib/libatoll.so" OMP_NUM_THREADS=1
exec "$python" tests/python/check.py build/bin/atoll build/python.dir tests/python/results.csv "$@"
