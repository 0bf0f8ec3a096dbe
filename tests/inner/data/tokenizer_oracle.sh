#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tokenizer_oracle.py with a Python that has the packages it needs: the one in ATOLL_PYTHON, python3, or a virtual environment that is
# made once from PyPI. Without a network: skipped.
#   tokenizer_oracle.sh TOKENIZE SCRATCH [OPTIONS of tokenizer_oracle.py]
set -eu
program=$1 scratch=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
packages="tokenizers==0.23.3 Babel sentencepiece"
has() { "$1" -c 'import tokenizers, babel' 2>/dev/null; }

mkdir -p "$scratch"
python=
for candidate in "${ATOLL_PYTHON:-}" python3 "$scratch/venv/bin/python"; do
    [ -n "$candidate" ] && has "$candidate" && python=$candidate && break
done
if [ -z "$python" ]; then
    if python3 -m venv "$scratch/venv" >"$scratch/venv.log" 2>&1 &&
        timeout 120 "$scratch/venv/bin/python" -m pip install -q --retries 1 --timeout 20 $packages >>"$scratch/venv.log" 2>&1; then
        python=$scratch/venv/bin/python
    else
        echo "SKIPPED: no Python with $packages, and PyPI cannot be reached ($scratch/venv.log)"
        exit 77
    fi
fi
exec "$python" "$here/tokenizer_oracle.py" "$program" --scratch "$scratch/files" "$@"
