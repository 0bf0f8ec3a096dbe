#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: one site of three ends the recovery of a lost aggregator with a file that is garbage, another site's, or
# rotten. With any fault of c's directory it is left out by name, and a and b are enough; without a majority the command
# ends with exit code 2. Both for directories (--rebuild) and for what running sites send (--rebuild-from-sites).
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }

mode=quorum steps=100000 every=4 codec=int4 fragments=2 straggler_timeout_s=1 history_rounds=8 checkpoint_every=50
configure a,b,c
serve
sites_start a b c
until_rounds a 8
until_rounds c 8
killed "$serve_pid"
for s in a b c; do eval "killed \$$s"; done
mkdir kept
mv a b c kept/
rm -rf aggregator serve.out

flip() { # flip FILE: one bit in its middle
    python3 -c 'import sys
f = open(sys.argv[1], "r+b"); f.seek(0, 2); n = f.tell() // 2; f.seek(n); b = f.read(1); f.seek(n); f.write(bytes([b[0] ^ 4]))' "$1"
}
fresh() { # the three directories as they were
    rm -rf a b c aggregator
    cp -r kept/a kept/b kept/c .
}
left_out() { # left_out WHAT WORDS [DIRECTORIES]: the rebuild continues without c, and says why
    rm -f serve.out
    serve --rebuild "${3:-c,a,b}"
    listening
    grep -qE "ev=left_out directory=c .*$2" serve.out || fail "$1: not left out for \"$2\": $(grep left_out serve.out)"
    [ "$(lines "ev=left_out" serve.out)" -eq 1 ] || fail "$1: others than c are left out"
    [ "$(lines "ev=rebuilt" serve.out)" -ge 2 ] || fail "$1: nothing was rebuilt"
    killed "$serve_pid"
}
newest() { # newest NAME: that file of c's newest state of fragment 0
    ls -d c/frag/0/*/"$1" | sort -t/ -k4 -n | tail -n 1
}

fresh
head -c 300 /dev/urandom >c/id/site
left_out "garbage as id/site" "id/site"
fresh
cp a/id/site c/id/site
left_out "the file of another site" "both of site a" a,b,c
for file in MANIFEST aggregate state; do
    fresh
    at=$(newest $file)
    [ -f "$at" ] || fail "c has no file $file: $(ls c/frag/0/*)"
    flip "$at"
    rm -f serve.out
    serve --rebuild c,a,b # a state may be rebuilt from the one before: then nothing is left out
    listening
    if grep -q "ev=left_out" serve.out; then
        grep -q "ev=left_out directory=c " serve.out || fail "$file: another directory is left out"
    fi
    [ "$(lines "ev=left_out" serve.out)" -le 1 ] || fail "$file: others than c are left out"
    killed "$serve_pid"
done

# Without a majority: exit code 2, with what is wrong with each.
fresh
for s in b c; do head -c 300 /dev/urandom >$s/id/site; done
code=0
"$atoll" serve --config run.yaml --rebuild a,b,c >refused.out 2>&1 || code=$?
[ $code -eq 2 ] && grep -q "1 directories of 3 sites.*left out: b: .*left out: c: " refused.out || fail "no majority: exit code $code"

# The same from running sites: what c has on its disk is what it sends.
from_sites() { # from_sites WHAT
    rm -rf aggregator serve.out
    serve --rebuild-from-sites
    listening
    grep -qE "ev=left_out directory=[^ ]*/c/run " serve.out || fail "$1: c is not left out: $(grep -E 'left_out|supplied' serve.out)"
    [ "$(lines "ev=left_out" serve.out)" -eq 1 ] || fail "$1: others than c are left out"
    killed "$serve_pid"
}
fresh
rm -f serve.out
serve --rebuild a,b,c
listening
sites_start a b c
rounds_before=$(rounds a)
until_rounds a $((rounds_before + 2))
killed "$serve_pid"
cp c/id/site site.c
head -c 300 /dev/urandom >c/id/site
from_sites "garbage as id/site"
cp a/id/site c/id/site
from_sites "the file of another site"
cp site.c c/id/site
echo "one directory of three decides nothing"
