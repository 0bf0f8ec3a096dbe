#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a list that stands for a promise lost lines, unnoticed. One table over every durable chain
# and numbered sequence (seals, archive, manifests, charges, the ledger of a site's people, journal with an operator's acts, terms):
# of each the first, a middle, the last and all elements are removed, and an older copy is put in its place. The program that reads
# it says what is missing, and does not end with 0.
. "$(dirname "$0")/lib.sh"

part_of() { echo "$1" | tr a-c 0-2; }
steps=60 every=4 checkpoint_every=8 history_rounds=4 fragments=1
configure a,b,c
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
settings="--privacy.secure sum --outer.weights equal --outer.full_precision fixed --run.archive on --privacy.unit sequence --privacy.noise_multiplier 1"
people() { echo "--privacy.ledger $PWD/people-$1"; }
sites_go() { # each with the ledger of its people
    for s in a b c; do
        train $s $(people $s)
        eval "$s=\$pid"
    done
}

# A run of fifteen rounds, with an operator's act in each half; between them all is killed and copied.
serve
sites_go
until_rounds c 6
operator set outer.lr 0.6 || fail "operator set"
until_rounds a 7
kill -9 "$a" "$b" "$c" "$serve_pid" 2>/dev/null || :
wait "$a" "$b" "$c" "$serve_pid" 2>/dev/null || :
mkdir older
cp -r a b c aggregator people-a older/
rm c/seals/0/2 # of c, and its next start misses it
serve
sites_go
sites_end 0 a b c

serve_ends
until_lines 1 "/c/seals/0 here=" c.out
[ "$(lines "ev=seals_missing" a.out)" -eq 0 ] || fail "site a misses seals that are there"

# fresh OF: x is a copy of it, of which something is then removed.
fresh() { rm -rf x && cp -r "$1" x; }
# says CODES WORDS COMMAND...: it ends with one of the codes (a pattern), and says that.
says() {
    codes=$1 words=$2 code=0
    shift 2
    bounded "$atoll" "$@" >said.out 2>&1 || code=$?
    case " $codes " in *" $code "*) ;; *) fail "$what: exit code $code of atoll $1 $2, wanted one of $codes" ;; esac
    grep -qE -- "$words" said.out || fail "$what: atoll $1 $2 does not say \"$words\""
    cases=$((cases + 1))
}
# table CODES OF COMMAND...: rows "what|how it is removed, in x|words" from the standard input
table() {
    codes=$1 of=$2
    shift 2
    while IFS='|' read -r what remove words; do
        fresh "$of"
        (cd x && eval "$remove") || fail "$what: $remove"
        says "$codes" "$words" "$@"
    done
}
cases=0

# ---- seals of a site: numbered, chained, counted in id/maskseals; the manifests of rounds 0 to 10 are gone ----
what="nothing is missing"
says 0 "left the site  15 masked payloads" privacy verify a
[ ! -e a/frag/0/9/MANIFEST ] || fail "the manifests of the first rounds are still there"
table 1 a privacy verify x <<'END'
first seal|rm seals/0/0|NOT PROVED +fragment 0: 1 record is missing before round 1:
first seals|rm seals/0/[0-2]|NOT PROVED +fragment 0: 3 records are missing before round 3:
middle seal|rm seals/0/7|NOT PROVED +fragment 0: 1 record is missing between round 6 and round 8:
last seal|rm seals/0/14|NOT PROVED +fragment 0: 1 record is missing after round 13:
all seals|rm seals/0/*|NOT PROVED +fragment 0: 15 records are missing from first to last:
the folder of seals|rm -r seals|NOT PROVED +fragment 0: 15 records are missing from first to last:
older seals|rm -r seals; cp -r ../older/a/seals .|NOT PROVED +fragment 0: [0-9]+ records are missing after round
an older count|cp ../older/a/id/maskseals id|NOT PROVED +fragment 0: id/maskseals counts [0-9]+ records, and seals/0 has 15
no count|rm id/maskseals|NOT PROVED +id/maskseals: missing: how many records this site has made is not known
another seal in its place|cp seals/0/3 seals/0/4|NOT PROVED +seals/0/4: the record of another round
END

# ---- charges: numbered, chained, with a head, and the position in each checkpoint; also as verify and the officer's page read them ----
charges() {
    table 1 a "$@" <<'END'
first charge|sed -i 1d inner/privacy.charges|privacy.charges, line 1, is no charge of this site that follows the line before
middle charge|sed -i 30d inner/privacy.charges|privacy.charges, line 30, is no charge
last charge|sed -i '$d' inner/privacy.charges|privacy.charges has 59 lines, and its file .head says that there were 60
all charges|: >inner/privacy.charges|privacy.charges has 0 lines
the list of charges|rm inner/privacy.charges|privacy.charges is missing, and this directory has charged steps
list and head|rm inner/privacy.charges*|privacy.charges is missing, and this directory has charged steps
list, head and key|rm inner/privacy.charges* inner/privacy.key|privacy.charges is missing, and this directory has charged steps
the head|rm inner/privacy.charges.head|privacy.charges.head is missing
older charges|cp ../older/a/inner/privacy.charges inner|privacy.charges has [0-9]+ lines, and its file .head says that there were 60
older charges and head|cp ../older/a/inner/privacy.charges* inner|privacy.charges has [0-9]+ lines, and the checkpoint says that there were 60
END
}
charges privacy ledger x
charges privacy verify x
charges report --privacy x --format text

# ---- the ledger of a site's people: the next start of the run reads it ----
table "1 4" a train --config run.yaml $settings --site.name a --run.dir x --data.train 'data/train-0-*.bin' --log.progress none \
    --privacy.ledger people <<'END'
first line|rm -rf ../people; cp -r ../people-a ../people; sed -i 1d ../people/list|people/list, line 1, is no
middle line|rm -rf ../people; cp -r ../people-a ../people; sed -i 2d ../people/list|people/list, line 2, is no
last line|rm -rf ../people; cp -r ../people-a ../people; sed -i '$d' ../people/list|people/list has [0-9]+ lines, and its file .head says
all lines|rm -rf ../people; cp -r ../people-a ../people; : >../people/list|people/list has 0 lines
the whole ledger|rm -rf ../people; mkdir -m 700 ../people|people/list is missing, and it has begun
an older ledger|rm -rf ../people; cp -r ../older/people-a ../people|people/list has [0-9]+ lines, and this run directory says
END

# ---- archive: of the aggregator, with its kept states and alone ----
archives() {
    table 9 aggregator replay "$1" <<END
first round|rm -r archive/0/0|missing: fragment 0 round 0: manifest: in none of the directories
middle round|rm -r archive/0/7|missing: fragment 0 round 7: manifest: in none of the directories
last round|rm -r archive/0/14|missing: fragment 0 round 14: rounds: not $2
all rounds|rm -r archive/0|missing: fragment 0 rounds 0 to 14: rounds: not $2
an older archive|rm -r archive; cp -r ../older/aggregator/archive .|missing: fragment 0 rounds [0-9]+ to 14: rounds: not $2
END
}
archives x "in this archive, though its replica has state 15"
archives x/archive "on record, and archives alone do not say whether the run had them"
table 4 aggregator replay x <<'END'
the archive|rm -r archive|it has no archive
END

# ---- journal, with an operator's act, and term: of an aggregator that ended in order; its next start ----
cat >records.py <<'END'
import struct, sys
which, data, at, records = sys.argv[1], open("journal", "rb").read(), 0, []
while at < len(data): # docs/protocol.md 2: length, CRC, sequence, digest before, kind, body
    n = 4 + 4 + 8 + 32 + 1 + struct.unpack_from("<I", data, at)[0]
    records.append(data[at:at + n])
    at += n
amendment = [i for i, r in enumerate(records) if r[48] == 10]
del records[{"first": 0, "act": amendment[0], "middle": len(records) // 2, "last": -1}[which]]
open("journal", "wb").write(b"".join(records))
END
table "1 4" aggregator serve --config run.yaml $settings --serve.dir x <<'END'
first record|python3 ../records.py first|record 1 is missing
the act's record|python3 ../records.py act|journal: record [0-9]+ at byte [0-9]+: does not follow the one before it
middle record|python3 ../records.py middle|journal: record [0-9]+ at byte [0-9]+: does not follow the one before it
all records|: >journal|journal: record 1 at byte 0: damaged
journal and term|rm journal epoch|epoch and journal: both missing or damaged
older states|rm -r frag; cp -r ../older/aggregator/frag .|frag/0 is at round [0-9]+, but round [0-9]+ was committed: restored from an older copy
newest manifest|rm frag/0/15/MANIFEST|frag/0/15/MANIFEST: missing
END
table 0 aggregator serve --config run.yaml $settings --serve.dir x <<'END'
last record|python3 ../records.py last|ev=journal_older .*records [0-9]+ to [0-9]+ are missing
older journal|cp ../older/aggregator/journal .|ev=journal_older .*records [0-9]+ to [0-9]+ are missing
older journal, of a process that was killed|cp ../older/aggregator/journal .; rm ended|ev=journal_older .*it ends in term 1, and the last start was term 2
the journal|rm journal|ev=journal_lost
term|rm epoch|ev=term_lost
an older CURRENT|rm frag/0/CURRENT|ev=current_found fragment=0 round=15
a middle manifest|rm frag/0/14/MANIFEST|ev=manifests_missing .*fragment=0 .*round 13
identities|rm identities|ev=identities_lost
setup of the masks|rm setup|ev=setup_lost
END
# ---- checks without their own input say so, and do not pass without a word ----
table "1 2 4 8" a doctor --config run.yaml --site a --run.dir x --data.train "data/train-0-*.bin" <<'END'
the lock of a directory that has begun|rm LOCK|^WARN +lock +cannot check: .*x has begun, and its file LOCK is missing
END
table 0 aggregator ledger a x <<'END'
rows of the aggregator's ledger|sed -i '/"contribution"/d' ledger.jsonl|^cannot check +[0-9]+ transfers of .*a.* with x, which has no row of them
END
table 4 aggregator ledger a x <<'END'
the aggregator's ledger|rm ledger.jsonl|ledger.jsonl
END
table 4 a report --privacy x --format text <<'END'
the site's record|rm metrics.jsonl|metrics.jsonl
END
table "1 4" a replay x --ca nothing.pem <<'END'
the authority's certificate|true|nothing.pem
END
echo "absence: $cases cases"
