# SPDX-License-Identifier: Apache-2.0
# A Python that has the packages of a foreign client, and the messages of proto/atoll.proto. Sourced, with the arguments of e2e/lib.sh,
# which it sources. Sets $python: the one in ATOLL_INTEROP_PYTHON, python3, or a virtual environment that is made once from PyPI. Without: 77.
. "$(dirname "$0")/../e2e/lib.sh"
export PYTHONPATH="$PWD/generated" PYTHONDONTWRITEBYTECODE=1 GRPC_VERBOSITY=ERROR

packages="grpcio==1.85.1 grpcio-tools==1.85.1 numpy cryptography" # protobuf comes with grpcio-tools
venv=${ATOLL_TEST_HOME:-$(dirname "$PWD")}/interop.venv # of all tests here
python=
for candidate in "${ATOLL_INTEROP_PYTHON:-}" python3 "$venv/bin/python"; do
    [ -n "$candidate" ] && "$candidate" -c 'import grpc, grpc_tools, numpy, cryptography' 2>/dev/null && python=$candidate && break
done
if [ -z "$python" ]; then
    if python3 -m venv "$venv" >venv.log 2>&1 &&
        timeout 240 "$venv/bin/python" -m pip install -q --retries 1 --timeout 20 $packages >>venv.log 2>&1; then
        python=$venv/bin/python
    else
        echo "SKIPPED: no Python with $packages, and PyPI cannot be reached ($PWD/venv.log)"
        exit 77
    fi
fi
mkdir -p generated
"$python" -m grpc_tools.protoc -I"$repository/proto" --python_out=generated atoll.proto || fail "protoc"
