#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a call makes a file of serve.dir or run.dir grow without a bound, or there is a file whose bound is not
# said. While a round waits, a site of the run, an observer, an operator, connections without a certificate and readers of the
# pages make all their calls; then each file is held against the table of docs/formats.md 12.3, by the directory that the table says.
# Three times: plain, with masks, and while the aggregator is rebuilt from its sites. A run without an aggregator, and doctor, have
# no other files.
. "$(dirname "$0")/lib.sh"
liar=$(cd "$(dirname "$atoll")/.." && pwd)/tests/liar
calls=${ATOLL_E2E_CALLS:-1500}
pages=0
"$atoll" doctor 2>/dev/null | grep -q "^page yes" && pages=1

part_of() { echo "$1" | tr a-c 0-2; }
sizes() { find "$@" -type f -printf '%p %s\n' | LC_ALL=C sort; }

# rests DIRECTORIES: what the round before has left to write is written; files that calls may make grow are not waited for
rests() {
    sizes "$@" | grep -v 'log\.txt\|jsonl' >rest.out
    sleep 1
    sizes "$@" | grep -v 'log\.txt\|jsonl' | cmp -s - rest.out
}
member() { # as site c
    # shellcheck disable=SC2086
    "$liar" --config run.yaml --site.name c --calls "$1" $settings >liar.out 2>&1 || fail "the calls of site c"
    grep -q "answered=[1-9]" liar.out || fail "site c had no answer"
}
people() { # each act of an operator, also wrong ones; of an observer, who may read the metrics alone; of a site's certificate
    for i in $(seq $((calls / 150))); do
        for name in operator observer a; do
            for act in status metrics "metrics nobody" "quarantine nobody" "readmit b" "set --list" "set outer.nothing $i" \
                "roster list" "roster remove nobody" "abort --fragment 7" "rollback --to 99"; do
                operator $act --certificate $name || :
            done
        done
        # accepted ones
        operator quarantine c && operator readmit c || fail "quarantine and readmit"
        operator set outer.lr "0.$((100 + i))" || fail "set"
    done
}
strangers() { # no certificate: silence, noise, plain HTTP, and a whole TLS handshake; the pages of the aggregator and of site a
    for i in $(seq $((calls / 5))); do
        for said in "" "GET / HTTP/1.1" "noise $i"; do
            { exec {fd}<>"/dev/tcp/127.0.0.1/$port" && printf '%s\r\n\r\n' "$said" >&$fd && exec {fd}>&-; } 2>/dev/null || :
        done
        for page in $1; do
            for path in / /metrics /status.json /nosuch$i /readyz; do
                { exec {fd}<>"/dev/tcp/127.0.0.1/$page" && printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$path" >&$fd &&
                    cat <&$fd >/dev/null && exec {fd}>&-; } 2>/dev/null || :
            done
        done
    done
    python3 - "$port" $((calls / 5)) <<'END' >strangers.out 2>&1 || fail "handshakes without a certificate"
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols(["h2"])
shaken = 0
for i in range(int(sys.argv[2])):
    try:
        with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) as plain, context.wrap_socket(plain) as s:
            shaken += 1  # TLS 1.3: the client is done before the server misses its certificate
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            s.recv(1)
    except OSError:
        pass
print(shaken)
sys.exit(0 if shaken else 1)
END
}

# held BEFORE AFTER SECONDS LEAST: each file within its bound; names with F, N (numbers) and ... are patterns.
sed -n '/^### 12.3/,/^### 12.4/p' "$repository/docs/formats.md" >table.out
held() {
    awk -F'|' -v seconds="$3" -v least="$4" '
    FILENAME == "table.out" && (!/^\| / || /^\| file /) { next }
    FILENAME == "table.out" {
        bytes = $6
        of = $3
        gsub(/ /, "", of)
        if (of != "both" && of != "run.dir" && of != "serve.dir") { print "of what directory: " $0; bad = 1 }
        per = bytes ~ /\/s/ ? seconds : 1
        bytes *= bytes ~ /KiB/ ? 1024 : bytes ~ /MiB/ ? 1048576 : 1
        count = split($2, name, ",")
        for (i = 1; i <= count; i++) {
            pattern = name[i]
            gsub(/ /, "", pattern)
            sub(/\.\.\.$/, "*", pattern)
            gsub(/\./, "\\.", pattern)
            sub(/\*$/, ".*", pattern)
            while (match(pattern, /(\/|\.)[FN](\/|$)/))
                pattern = substr(pattern, 1, RSTART) "[0-9]+" substr(pattern, RSTART + 2)
            pattern = "^" pattern "(\\.tmp)?$"
            if (of != "serve.dir") bound["run.dir", pattern] = bytes * per
            if (of != "run.dir") bound["serve.dir", pattern] = bytes * per
        }
        next
    }
    FILENAME == ARGV[2] { split($0, p, " "); before[p[1]] = p[2]; next }
    {
        split($0, p, " ")
        path = p[1]
        sub(/^[^\/]*\//, "", path)
        most = -1
        for (b in bound) {
            split(b, part, SUBSEP)
            if (part[1] == (p[1] ~ /^aggregator\// ? "serve.dir" : "run.dir") && path ~ part[2] && bound[b] > most) most = bound[b]
        }
        grown = p[2] - before[p[1]]
        if (most < 0) { print p[1] ": is not in the table of docs/formats.md 12.3"; bad = 1 }
        else if (grown > most) { print p[1] ": " grown " bytes more in " seconds " s, bound " most; bad = 1 }
        else if (grown) print "within: " p[1] " " grown " of " most
        seen++
    }
    END { if (seen < least) print seen " files, wanted " least; exit bad || seen < least }' \
        table.out "$1" "$2" >verdict.out || { cat verdict.out; fail "files beyond their bounds"; }
    cat verdict.out
}
page_of() { sed -n 's#.*http://127\.0\.0\.1:\([0-9]*\)/.*#\1#p' "$1" | head -n 1; }

# ---- plain: site c never contributes ----
every=10
codec=bf16
configure a,b,c
for role in operator observer; do
    "$atoll" cert issue --role $role --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role $role"
done
[ $pages = 0 ] || settings="--serve.http 127.0.0.1:0"
serve
listening
[ $pages = 0 ] || settings="--site.http 127.0.0.1:0"
sites_start a
settings=""
sites_start b
until_status " in=2 .*missing=c$"
[ $pages = 0 ] || until_lines 1 "http://127.0.0.1:" a.out
began=$(date +%s)
sizes a b aggregator >before.out
member "$calls" &
flood_c=$!
strangers "$(page_of serve.out) $(page_of a.out)" &
flood_strangers=$!
people
wait $flood_c || exit 1
wait $flood_strangers || exit 1
kill -0 "$serve_pid" || fail "the aggregator ended"
until_status "missing=c$"
sleep 6 # rows that wait are written (WRITE_S)
operator status
sizes a b aggregator >after.out
held before.out after.out $(($(date +%s) - began)) 30
killed "$a"
killed "$b"

# ---- the aggregator is lost, and site a has sent its parts: one of three is no majority ----
killed "$serve_pid"
rm -rf aggregator
serve --rebuild-from-sites
sites_start a
until_lines 1 "ev=supplied site=a" serve.out
began=$(date +%s)
sizes a aggregator >before.out
member $((calls / 5))
kill -0 "$serve_pid" || fail "the aggregator that is rebuilt ended"
sleep 6
sizes a aggregator >after.out
grep -q "aggregator/supply/a/" after.out || fail "nothing of site a is there"
held before.out after.out $(($(date +%s) - began)) 15
killed "$a"
killed "$serve_pid"
rm -rf a b aggregator serve.out a.out b.out

# ---- masks: site c has taken part, and its place is taken by who knows its keys of TLS and no others ----
settings="--privacy.secure sum --outer.codec int8 --outer.weights equal --outer.full_precision fixed --run.archive on --run.tensorboard true"
for _ in 1 2 3 4 5 6 7 8; do
    serve
    sites_start a b c
    until_rounds c 2
    killed "$c"
    until_status "missing=c$"
    grep -q " in=2 " operator.out && break
    echo "site c has contributed before its end: again"
    killed "$a"
    killed "$b"
    killed "$serve_pid"
    rm -rf a b c aggregator
done
grep -q " in=2 " operator.out || fail "site c has contributed before its end, eight times"
await "sites a and b do not rest" "rests a b aggregator"
began=$(date +%s)
sizes a b aggregator >before.out
member $((calls / 2))
kill -0 "$serve_pid" || fail "the aggregator of masked rounds ended"
sleep 6
sizes a b aggregator >after.out
grep -q "^a/seals/0/0 " after.out || fail "no round was sealed"
held before.out after.out $(($(date +%s) - began)) 40
killed "$a"
killed "$b"
killed "$serve_pid"

# ---- a site that is its own aggregator, after doctor has looked at its directory ----
settings=""
bounded "$atoll" doctor --config run.yaml --site a --run.dir self --site.aggregator self --outer.sites a \
    --data.train "data/train-0-*.bin" >doctor.out 2>&1 || [ $? -eq 8 ] || fail "doctor"
bounded "$atoll" train --config run.yaml --site.name a --run.dir self --site.aggregator self --outer.sites a \
    --data.train "data/train-0-*.bin" --log.progress none >self.out 2>&1 || fail "a site that is its own aggregator"
: >self/audit.jsonl # as atoll privacy audit writes it
sizes self >after.out && cp after.out before.out
grep -q "^self/aggregator/journal " after.out || fail "it has no aggregator"
held before.out after.out 0 20
echo "every file has its bound"
