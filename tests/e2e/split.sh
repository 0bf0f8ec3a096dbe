#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Split brain, quorum mode. Two processes that serve copies of one directory commit the same round: the older one with sites a and b,
# which only a adopts; the newer one with b and c. Site a gives its round up (docs/protocol.md 3.4), is killed right after it, and
# continues; all three end in one history, and no directory is emptied.
. "$(dirname "$0")/lib.sh"

steps=80 every=8 mode=quorum straggler_timeout_s=${straggler_timeout_s:-6}
configure a,b,c
serve
listening
kill -9 "$serve_pid" && wait "$serve_pid" 2>/dev/null || :
cp -r aggregator copy

# accepted ROUND SITE: waits until the original has stored this contribution
accepted() {
    waited_for=aggregator/spool/0/$1/$2
    await "no contribution of site $2 to round $1" 'stored "$waited_for"'
}

# term 2 of the original: round 0 with a and b; b is gone before it is committed
serve
until_lines 2 "ev=listening" serve.out
sites_start a b
accepted 0 a
accepted 0 b
kill -9 "$b" && wait "$b" 2>/dev/null || :
until_lines 1 '"kind":"round"' a/metrics.jsonl
accepted 1 a
kill -9 "$a" "$serve_pid"
wait "$a" "$serve_pid" 2>/dev/null || :
[ "$(lines "ev=commit fragment=0 round=0" serve.out)" -eq 1 ] || fail "the original has not committed round 0"
[ "$(rounds b)" -eq 0 ] || fail "site b has adopted the original's round"
[ -e a/frag/0/1/MANIFEST ] && [ -e a/outbox/0/0 ] && [ -e a/outbox/0/1 ] || fail "site a does not stand after round 0"
sum() { sha256sum <"$1"; }
sent=$(sum a/outbox/0/0)

# terms 2 and 3 of the copy
for start in 1 2; do
    "$atoll" serve --config run.yaml --serve.dir copy >>copy.out 2>&1 &
    serve_pid=$!
    processes="$processes $serve_pid"
    until_lines $start "ev=listening" copy.out
    [ $start -eq 2 ] || { kill -9 "$serve_pid" && wait "$serve_pid" 2>/dev/null || :; }
done
sites_start b c
until_lines 1 "ev=commit fragment=0 round=0" copy.out
grep "ev=commit fragment=0 round=0" copy.out | grep -q "without=a" || fail "the copy has committed the same set"

train a
until_lines 1 "ev=step_back fragment=0 round=0" a.out
kill -9 "$pid" && wait "$pid" 2>/dev/null || :
[ ! -e a/outbox/0/0 ] || [ "$(sum a/outbox/0/0)" = "$sent" ] || fail "the contribution to the round given up is another one"
train a
a=$pid
ends_quorum "$a" "site a"
ends_quorum "$b" "site b"
ends_quorum "$c" "site c"
ends 0 "$serve_pid" "the copy"
same_state a b c
grep -q "answer=conflict" copy.out && fail "a site was answered conflict"
grep -q "snapshot_adopted.*fragment=0" a.out && fail "site a took a snapshot: its residual is lost"
grep "ev=commit fragment=0 round=9" copy.out | grep -q "sites=3/3" || fail "site a is not in the last round"
echo "one history: $(final a)"
