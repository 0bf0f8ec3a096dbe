#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bits of stored files flip while a run continues, at the aggregator and at a site. The scrub finds each file, says its name and has it
# rebuilt, byte for byte where the file has no time in it; what cannot be rebuilt is an alarm, and stays where it is. The run
# ends with the SHA-256 (parameters, momentum, residuals) of the undisturbed run.
. "$(dirname "$0")/lib.sh"

steps=160 every=4 codec=int4 fragments=2 checkpoint_every=13
configure a,b
undisturbed
wanted_a=$(final a) wanted_b=$(final b)
rm -rf a b aggregator ./*.out

flip() { # flip FILE: one bit, in the middle
    at=$(($(wc -c <"$1") / 2))
    byte=$(od -An -tu1 -j $at -N 1 "$1" | tr -d ' ')
    printf "$(printf '\\%03o' $((byte ^ 4)))" | dd of="$1" bs=1 seek=$at conv=notrunc 2>/dev/null
}

newest() { # newest DIRECTORY N: the n-th newest round in it
    ls "$1" | grep '^[0-9]*$' | sort -n | tail -n "$2" | head -n 1
}

repaired() { # repaired LOG FILE: the scrub says so, and the file is what it was
    until_lines "${3:-1}" "ev=scrub file=$PWD/$2 damaged=1 repaired=1" "$1"
    [ ! -e "$2.before" ] || cmp "$2" "$2.before" || fail "$2 was rebuilt, and is another file"
    rm -f "$2.before"
}

spoil() { # spoil FILE
    [ -s "$1" ] || fail "$1 is not there to be damaged"
    cp "$1" "$1.before"
    flip "$1"
    cmp -s "$1" "$1.before" && fail "$1 was not damaged"
    :
}

settings="--scrub.every_h 0.0003 --scrub.mib_s 1000 --serve.keep_states 4"
serve
sites_start a b
until_rounds b 9
kill -STOP "$b" # the round stands still, with site a's contribution stored
await_stands a b

# The aggregator: the current state, an earlier one, what names it, its records, the journal, a contribution.
now=$(newest aggregator/frag/0 1) before=$(newest aggregator/frag/0 2)
for file in frag/0/$now/state frag/1/CURRENT epoch begun identities; do
    spoil aggregator/$file
    repaired serve.out aggregator/$file
done
spoil "aggregator/frag/0/$before/state"
repaired serve.out "aggregator/frag/0/$before/state"
flip aggregator/journal
repaired serve.out aggregator/journal
payload=$(ls aggregator/spool/*/*/a.* | grep '[.][0-9a-f]*$' | head -n 1)
spoil "$payload"
until_lines 1 "ev=payload_lost" serve.out
await "site a did not send its contribution again" 'cmp -s "$payload" "$payload.before"'
rm -f "$payload.before"

# The site: the same, its outbox and its identity; manifest and aggregate of an earlier round come from the aggregator.
now=$(newest a/frag/0 1) before=$(newest a/frag/0 2)
box=$(ls -d a/outbox/*/* | head -n 1)
waits=$(echo "$payload" | cut -d/ -f3,4)
for file in frag/0/$now/state frag/1/CURRENT id/site id/announced.0 begun frag/0/$before/MANIFEST frag/0/$before/aggregate \
    "outbox/$waits"; do
    spoil "a/$file"
    repaired a.out "a/$file"
done
[ -s "$box" ] || fail "$box is gone"

# An inner checkpoint has no other copy: an alarm, the file stays, and the next checkpoint is a new file.
checkpoint=$(ls -d a/inner/[0-9]*/state | head -n 1)
flip "$checkpoint"
until_lines 1 "ev=scrub file=$PWD/$checkpoint damaged=1 repaired=0" a.out
[ -s "$checkpoint" ] || fail "$checkpoint was removed"

# An earlier state of the site is made from the one before, by the thread that waits for the round.
before=$(newest a/frag/0 2)
spoil "a/frag/0/$before/state"
repaired a.out "a/frag/0/$before/state"
kill -CONT "$b"
kill -USR2 "$serve_pid" "$a"
until_lines 1 "repaired, 0 alarms" serve.out
until_lines 1 "scrub: " a.out
sites_end 0 a b
serve_ends
[ "$(final a)" = "$wanted_a" ] || fail "site a ended at $(final a), undisturbed $wanted_a"
[ "$(final b)" = "$wanted_b" ] || fail "site b ended at $(final b), undisturbed $wanted_b"
[ "$(lines "ev=scrub pass=" serve.out)" -ge 1 ] || fail "no pass of the scrub is in the aggregator's log"
echo "same digests: $wanted_a"
