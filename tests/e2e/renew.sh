#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Certificates that live for seconds are renewed again and again under calls, on machines without the authority's key: no process is
# restarted, and the run ends as it would have. A forged, foreign, old or revoked request gets no certificate.
. "$(dirname "$0")/lib.sh"
renew=$repository/deploy/renew.sh
ATOLL=$atoll
export ATOLL
echo 3600 >life # of new certificates, in seconds

steps=200 every=4
configure a,b
for who in a b aggregator; do # each process has its own copies, as on its own machine; the authority's key is in tls alone
    mkdir tls-$who
    cp tls/ca.pem tls/$who.pem tls/$who.key tls/$who.identity.* tls-$who/
done
cat >sign.sh <<END
#!/bin/sh
exec "$atoll" cert sign - --dir tls --days \$(awk -v s="\$(cat "$PWD/life")" 'BEGIN { print s / 86400 }')
END
chmod +x sign.sh
renewed() { # renewed WHO
    "$renew" "$1" "tls-$1" ./sign.sh >>renew.out 2>&1 || fail "renew.sh $1"
    ! ls "tls-$1" | grep -q "request\|answer\|next" || fail "renew.sh leaves $(ls "tls-$1")"
}

# What gets no certificate.
refused() { # refused CODE WORDS COMMAND...
    exit_code=$1 words=$2 code=0
    shift 2
    "$@" >refused.out 2>&1 || code=$?
    [ "$code" -eq "$exit_code" ] && grep -q -- "$words" refused.out || fail "exit code $code without \"$words\": $*: $(cat refused.out)"
    ! grep -q "BEGIN CERT" refused.out || fail "a certificate for: $*"
}
sign() { refused "$1" "$2" "$atoll" cert sign "$3" --dir tls; }
"$atoll" cert request a --dir tls-a >request.out 2>&1 || fail "cert request"
"$atoll" cert request b --dir tls-b >request.out 2>&1 || fail "cert request"
[ "$(stat -c %a tls-a/a.next.key)" = 600 ] || fail "others can read the next key"
{ sed '/BEGIN CERTIFICATE REQUEST/,$d' tls-a/a.request; sed -n '/BEGIN CERTIFICATE REQUEST/,$p' tls-b/b.request; } >forged # b asks as a
sign 2 "not signed by the key of its certificate" forged
sed 's/^Time: .*/Time: 1700000000/' tls-a/a.request >old
sign 2 "not signed by the key of its certificate" old # the time is signed, too
sign 4 "is no request" tls-a/a.pem
mkdir foreign
"$atoll" cert authority --run e2e --dir foreign >>cert.out 2>&1
"$atoll" cert issue --role site --name a --dir foreign >>cert.out 2>&1
"$atoll" cert request a --dir foreign >>cert.out 2>&1
sign 2 "not certified by the authority" foreign/a.request
issued=$(lines "site/b " tls/issued.txt)
"$atoll" cert sign - --dir tls <tls-b/b.request >b.answer 2>sign.err || fail "cert sign: $(cat sign.err)"
refused 2 "is for atoll://e2e/site/b" "$atoll" cert install a --answer b.answer --dir tls-a
"$atoll" cert sign - --dir foreign <foreign/a.request >foreign.answer 2>sign.err || fail "cert sign"
refused 2 "not certified by the authority" "$atoll" cert install a --answer foreign.answer --dir tls-a
"$atoll" cert request b --dir tls-b >request.out 2>&1 # another next key than that of the answer
refused 2 "does not belong" "$atoll" cert install b --answer b.answer --dir tls-b
cp -r tls revoking
"$atoll" cert revoke tls-a/a.pem --dir revoking >revoke.out 2>&1 || fail "cert revoke"
refused 2 "this certificate is revoked" "$atoll" cert sign tls-a/a.request --dir revoking
[ "$(lines "site/b " tls/issued.txt)" -eq $((issued + 1)) ] || fail "issued.txt does not have the answer"
rm -f tls-?/*.request tls-?/*.next.key

undisturbed
wanted=$(final a)
rm -rf a b aggregator ./?.out serve.out

# They live as long as renewing all of them takes, several times over: here seconds, on a busy machine more.
began=$(date +%s)
for who in a b aggregator; do renewed $who; done
life_s=$((6 * ($(date +%s) - began + 1)))
[ $life_s -ge 12 ] || life_s=12
echo $life_s >life
for who in a b aggregator; do renewed $who; done
cp -r tls-a first
serve --tls.dir tls-aggregator
train a --tls.dir tls-a
a=$pid
train b --tls.dir tls-b
b=$pid
listening
until_lines 1 "ev=site_bound site=b" serve.out # not within its first handshake, whose certificate would be over afterwards
kill -STOP "$b" # the run waits for it, so it outlives three certificates
began=$(date +%s)
turns=0
while [ $turns -lt 3 ]; do
    until [ $(($(date +%s) - began)) -ge $((turns * life_s / 2 + life_s / 2)) ]; do sleep 0.1; done
    for who in a b aggregator; do renewed $who; done
    "$atoll" doctor --aggregator "127.0.0.1:$port" --tls tls-a --certificate a --aggregator-name localhost >doctor.out 2>&1 ||
        fail "a renewed certificate is not accepted: $(cat doctor.out)"
    turns=$((turns + 1))
done
code=0
"$atoll" doctor --aggregator "127.0.0.1:$port" --tls first --certificate a --aggregator-name localhost >first.out 2>&1 || code=$?
[ $code -eq 2 ] || fail "the first certificate has expired and is accepted"
refused 2 "expired" "$atoll" cert request a --dir first
kill -CONT "$b"
sites_end 0 a b
serve_ends
[ "$(final a)" = "$wanted" ] || fail "the run ended at $(final a), undisturbed $wanted"
[ "$(lines "ev=start " a.out)$(lines "ev=start " b.out)$(lines "ev=listening" serve.out)" = 111 ] || fail "a process was restarted"
