#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: the folder of a published model (GPT-2, BERT, DistilBERT, T5, Llama 2 and 3, Mistral, SmolLM, ModernBERT,
# ALBERT) is refused, or gives other ids or another function than with its authors' programs.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }
python3 "$here/published.py" "$atoll" "$here/../golden/published" || fail "a published folder"
