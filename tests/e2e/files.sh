#!/usr/bin/env bash
# What breaks if this fails: a call makes a file of serve.dir or run.dir grow without a bound, or there is a file whose bound nobody
# has said. While a strict round waits for site c, c, an observer, an operator, connections without a certificate and readers of the
# page make all their calls; then each file is held against the table of docs/formats.md 12.3.
. "$(dirname "$0")/lib.sh"
liar=$(cd "$(dirname "$atoll")/.." && pwd)/tests/liar
calls=${ATOLL_E2E_CALLS:-1500}

every=10
codec=bf16
configure a,b,c
for role in operator observer; do
    "$atoll" cert issue --role $role --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role $role"
done
"$atoll" doctor 2>/dev/null | grep -q "^page yes" && settings="--serve.http 127.0.0.1:0"
serve
listening
settings=""
sites_start a b
until_status "missing=c$"
page=$(sed -n 's#.*http://127\.0\.0\.1:\([0-9]*\)/.*#\1#p' serve.out | head -n 1)

sizes() { find a b aggregator -type f -printf '%p %s\n' | LC_ALL=C sort; }

member() {
    "$liar" --config run.yaml --site.name c --calls "$calls" >liar.out 2>&1 || fail "the calls of site c"
    grep -q "answered=[1-9]" liar.out || fail "site c had no answer"
}
people() { # each act of an operator, also wrong ones; of an observer, who may read the metrics alone; of a site's certificate
    for i in $(seq $((calls / 150))); do
        for name in operator observer a; do
            for act in status metrics "metrics nobody" "quarantine nobody" "readmit b" "set --list" "set outer.nothing $i" \
                "roster list" "roster remove nobody" "abort --fragment 7" "rollback --to 99"; do
                operator $act --name $name || :
            done
        done
        operator quarantine c && operator readmit c || fail "quarantine and readmit"
    done
}
strangers() { # no certificate: silence, noise, plain HTTP
    for i in $(seq $((calls / 5))); do
        for said in "" "GET / HTTP/1.1" "noise $i"; do
            { exec {fd}<>"/dev/tcp/127.0.0.1/$port" && printf '%s\r\n\r\n' "$said" >&$fd && exec {fd}>&-; } 2>/dev/null || :
        done
        [ -z "$page" ] || for path in / /metrics /status.json /nosuch$i /readyz; do
            { exec {fd}<>"/dev/tcp/127.0.0.1/$page" && printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$path" >&$fd &&
                cat <&$fd >/dev/null && exec {fd}>&-; } 2>/dev/null || :
        done
    done
}

began=$(date +%s)
sizes >before.out
member &
flood_c=$!
strangers &
flood_strangers=$!
people
wait $flood_c || exit 1
wait $flood_strangers || exit 1
kill -0 "$serve_pid" || fail "the aggregator ended"
until_status "missing=c$"
sleep 6 # rows that wait are written (WRITE_S)
operator status
sizes >after.out
seconds=$(($(date +%s) - began))

# The table: names with F, N (numbers) and ... as patterns, and the bytes that calls may add.
sed -n '/^### 12.3/,$p' "$repository/docs/formats.md" >table.out
awk -F'|' -v seconds=$seconds '
    FILENAME == "table.out" && /^\| / && !/^\| file / {
        bytes = $6
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
            bound["^" pattern "(\\.tmp)?$"] = bytes * per
        }
        next
    }
    FILENAME == "before.out" { split($0, p, " "); before[p[1]] = p[2] }
    FILENAME == "after.out" {
        split($0, p, " ")
        path = p[1]
        sub(/^[^\/]*\//, "", path)
        most = -1
        for (b in bound) if (path ~ b && bound[b] > most) most = bound[b]
        grown = p[2] - before[p[1]]
        if (most < 0) { print p[1] ": is not in the table of docs/formats.md 12.3"; bad = 1 }
        else if (grown > most) { print p[1] ": " grown " bytes more in " seconds " s, bound " most; bad = 1 }
        else if (grown) print "within: " p[1] " " grown " of " most
        seen++
    }
    END { exit bad || seen < 30 }' table.out before.out after.out >verdict.out || { cat verdict.out; fail "files beyond their bounds"; }
cat verdict.out
