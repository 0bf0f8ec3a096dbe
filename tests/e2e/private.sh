#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a run leaves on disk is its user's alone, with any umask; keys are in locked memory of processes that no other process of
# the user may attach to.
. "$(dirname "$0")/lib.sh"

umask 0022
steps=60 every=4 codec=int4 fragments=2
configure a,b
serve
train a
a=$pid
train b
b=$pid
until_rounds b 2
locked() { # locked PROCESS LOG: it has locked memory, or says that the limit is too small for it
    [ "$(awk '/^VmLck:/ { print $2 }' "/proc/$1/status")" -gt 0 ] || grep -q "ev=keys_not_locked" "$2" || fail "no locked memory, $2"
}
locked "$serve_pid" serve.out
locked "$a" a.out
# /proc/PID of a process that is not dumpable belongs to root; seen where the process has another user
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    mkdir other && cp tls/ca.pem tls/aggregator.pem tls/aggregator.key tls/aggregator.identity.* other && chown -R 12345 other
    setpriv --reuid 12345 --clear-groups "$atoll" serve --config run.yaml --tls.dir other --serve.dir other/serve \
        --serve.listen 127.0.0.1:0 >other.out 2>&1 &
    other=$!
    processes="$processes $other"
    await "a process of another user neither listens nor ends" 'grep -q "ev=listening" other.out || ! kill -0 $other 2>/dev/null'
    if grep -q "ev=listening" other.out; then
        [ "$(stat -c %u "/proc/$other/environ")" = 0 ] || fail "a process with a key may be attached to"
        kill "$other"
    else
        echo "skipped here: another user cannot run the program"
    fi
fi
ends 0 "$a" "site a"
ends 0 "$b" "site b"
serve_ends
for dir in aggregator a b data; do
    open=$(find $dir -perm /077 | head -n 3)
    [ -z "$open" ] || fail "other users can read $open"
done
[ "$(lines "ev=directory_open" serve.out)" = 0 ] || fail "a directory of its own is called open"
chmod 755 aggregator
serve
serve_ends # all rounds are there
[ "$(lines "ev=directory_open" serve.out)" = 1 ] || fail "an open directory is not named"
