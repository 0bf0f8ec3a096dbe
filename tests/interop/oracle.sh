#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: an aggregator that answers otherwise than docs/protocol.md 3.2 says. A Python program (oracle.py) that holds
# the certificates of both sites of a run makes every fault of an offer, alone and in pairs, and compares with that table.
. "$(dirname "$0")/python.sh"

codec=int8
configure a,b
"$atoll" cert issue --role site --name z --dir tls >>cert.out 2>&1 || fail "atoll cert issue z"
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
serve
listening
code=0
"$python" "$repository/tests/interop/oracle.py" --aggregator "127.0.0.1:$port" --server-name localhost --tls tls \
    --settings aggregator/run.cfg >oracle.out 2>&1 || code=$?
cat oracle.out
[ "$code" -eq 0 ] || fail "the oracle disagrees"
ends 4 "$serve_pid" "the aggregator, shown that another one has begun a later term"
