#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: one flipped bit in the MANIFEST of a site's newest state stalls a masked run for good, and the site blames
# the others ("strangers") for what its own disk has lost. The site names the file, fetches it again, and the run ends with the bits of
# an undisturbed one. The same for a manifest that is missing, and without masks.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }

part_of() { # three sites here
    case $1 in a) echo 0 ;; b) echo 1 ;; *) echo 2 ;; esac
}
steps=60 every=4 checkpoint_every=3
configure a,b,c
run() { # run SECURE HARM: site a is killed, its newest MANIFEST is harmed, it starts again
    settings="--privacy.secure $1 --outer.weights equal"
    rm -rf a b c aggregator ./*.out
    serve
    sites_start a b c
    until_rounds a 5
    [ "$2" = none ] || {
        killed "$a"
        harmed=$(ls -d a/frag/0/*/MANIFEST | sort -t/ -k4 -n | tail -n 1)
        [ -f "$harmed" ] || fail "no MANIFEST: $(ls a/frag/0)"
        case $2 in
        flip) python3 -c 'import sys
f = open(sys.argv[1], "r+b"); f.seek(0, 2); n = f.tell() // 2; f.seek(n); b = f.read(1); f.seek(n); f.write(bytes([b[0] ^ 4]))' "$harmed" ;;
        lost) rm "$harmed" ;;
        esac
        sites_start a
    }
    sites_end 0 a b c
    serve_ends
    same_state a b c
    if [ "$2" != none ]; then
        grep -q "ev=manifest_lost fragment=0 .*fetched=1 why=.*$harmed" a.out || cat a/log.txt* | grep -q "ev=manifest_lost .*fetched=1" ||
            fail "$1, $2: the site does not name $harmed"
        ! grep -q "ev=seal_refused" a.out || fail "$1, $2: the site blames its peers"
    fi
}
for secure in sum off; do
    run $secure none
    wanted=$(final b)
    for harm in flip lost; do
        run $secure $harm
        [ "$(final b)" = "$wanted" ] || fail "$secure, $harm: other bits"
    done
done
echo "a damaged MANIFEST is fetched again"
