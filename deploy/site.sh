#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The documents as a website with search, which needs no server and no network: build/site/index.html.
#   deploy/site.sh [--installed] [OUT]      --installed: without pip; exit code 77 where Sphinx is not installed
# Sphinx, MyST and Furo come into build/site-tools by pip, unless python3 or $ATOLL_PYTHON has them. What is on the site, and in which
# order, is the table of docs/README.md. A link that leads nowhere ends it with exit code 1.
set -eu
repository=$(cd "$(dirname "$0")/.." && pwd)
pip=yes
[ "${1:-}" != --installed ] || { pip=no && shift; }
out=${1:-$repository/build/site}
tools=$repository/build/site-tools
python=""
for candidate in ${ATOLL_PYTHON:+"$ATOLL_PYTHON"} python3 "$tools/bin/python"; do
    if "$candidate" -c 'import furo, myst_parser, sphinx' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ] && [ $pip = no ]; then
    echo "site: SKIPPED, the pages were not built: no Python with sphinx, myst-parser and furo; deploy/site.sh installs them" >&2
    exit 77
fi
if [ -z "$python" ]; then
    mkdir -p "$repository/build"
    if ! { python3 -m venv "$tools" && "$tools/bin/pip" install -q --retries 1 --timeout 20 sphinx myst-parser furo; } >"$tools.log" 2>&1; then
        tail -n 3 "$tools.log" >&2
        echo "site: SKIPPED: no Python with sphinx, myst-parser and furo, and pip could not install them ($tools.log)" >&2
        exit 77
    fi
    python=$tools/bin/python
fi
exec "$python" "$repository/deploy/site.py" "$repository" "$out"
