#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a command asks for a key's pass phrase at the terminal and waits for ever; a wrong key, a certificate chain
# in the wrong order or an encrypted key is an "internal error"; a careless umask lets every user write the keys' directory, or such a
# directory is believed.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null && command -v openssl >/dev/null || { echo "SKIPPED: no python3 or no openssl"; exit 77; }

configure a
for role in operator observer; do "$atoll" cert issue --role $role --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role $role"; done
cp -r tls good

# With a terminal, as a person has one, without an answer.
cat >terminal.py <<'END'
import os, pty, select, signal, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said, end = b"", time.monotonic() + 60
while time.monotonic() < end:
    if select.select([fd], [], [], 0.2)[0]:
        try:
            piece = os.read(fd, 4096)
        except OSError:
            piece = b""
        if not piece:
            break
        said += piece
else:
    os.kill(pid, signal.SIGKILL)
    said += b"\nIT WAITS"
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(said.decode(errors="replace"), f"\ncode={code}")
END
says() { # says WORDS CODE ARGUMENTS...: at once, on a terminal
    words=$1 wanted=$2
    shift 2
    python3 terminal.py "$atoll" "$@" >said.out 2>&1
    grep -qE -- "$words" said.out && grep -q "^code=$wanted\$" said.out || fail "atoll $*: wanted \"$words\" and $wanted: $(cat said.out)"
}
each() { # each WORDS CODE: every command that loads the keys of tls/
    far="--aggregator 127.0.0.1:$port --tls tls"
    says "$1" "$2" train --config run.yaml --site.name a --run.dir a --data.train "data/train-0-*.bin"
    says "$1" "$2" serve --config run.yaml
    says "$1" "$2" doctor --aggregator "127.0.0.1:$port" --tls tls --certificate a
    says "$1" "$2" operator status $far --certificate operator
    says "$1" "$2" status $far --certificate observer
    says "$1" "$2" watch $far --certificate observer --http 127.0.0.1:0
}
for n in a aggregator operator observer; do
    openssl pkey -in good/$n.key -aes256 -passout pass:secret -out tls/$n.key 2>openssl.out || fail "openssl: $(cat openssl.out)"
    chmod 600 tls/$n.key
done
each "key: the key is encrypted with a pass phrase" 4
cp good/ca.key plain.key
openssl pkey -in good/ca.key -aes256 -passout pass:secret -out tls/ca.key && chmod 600 tls/ca.key
says "key is encrypted" 4 cert issue --role site --name x --dir tls
rm -rf tls && cp -r good tls

for n in a aggregator operator observer; do openssl genpkey -algorithm ED25519 -out tls/$n.key 2>/dev/null && chmod 600 tls/$n.key; done
each "this key does not belong to" 2
rm -rf tls && cp -r good tls

for n in a aggregator operator observer; do cat good/ca.pem good/$n.pem >tls/$n.pem; done # the chain in the wrong order
each "the certificate names 0 URIs|the certificate is for|this key does not belong to" 2
rm -rf tls && cp -r good tls

# A directory or a file that every user can write is no place for an authority's certificate or a key.
chmod 777 tls
each "any user can write in the directory" 2
chmod 700 tls
chmod 666 tls/ca.pem
each "ca.pem: any user can write it" 2
rm -rf tls && cp -r good tls

# umask 000: the keys' directory is its owner's alone, and nothing that is made can be written by every user.
(
    umask 000
    "$atoll" cert authority --run e2e --dir made/tls >>cert.out 2>&1
    "$atoll" cert issue --role aggregator --host localhost --dir made/tls --out made/far >>cert.out 2>&1 ||
        "$atoll" cert issue --role aggregator --host localhost --dir made/tls >>cert.out 2>&1
    "$atoll" data --out made/data --seq-len 32 text.txt >>data.out 2>&1
    "$atoll" train --data.train "made/data/train-0-0000.bin" --train.steps 4 --train.warmup_steps 1 --train.batch_tokens 128 \
        --train.seq_len 32 --model.max_seq_len 32 --model.layers 1 --model.d_model 32 --model.heads 2 --log.progress none \
        --device.kind cpu --run.dir made/run >made.out 2>&1 || fail "a run with umask 000"
    "$atoll" report made/run --out made/report.html >>made.out 2>&1 || fail "a report with umask 000: $(cat made.out)"
    "$atoll" export --from made/run --out made/model >>made.out 2>&1 || fail "an export with umask 000: $(cat made.out)"
) || exit 1
[ "$(stat -c %a made/tls)" = 700 ] || fail "umask 000: the keys' directory has mode $(stat -c %a made/tls)"
open=$(find made -perm -o+w ! -type l)
[ -z "$open" ] || fail "umask 000: every user can write $open"

# A process with a certificate of the run's authority and another role at the aggregator's address: the site says what it met, and ends.
printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=URI:atoll://e2e/site/a,DNS:localhost,IP:127.0.0.1\n' >role.ext
openssl req -new -key tls/a.key -subj /CN=a -out role.csr 2>openssl.out &&
    openssl x509 -req -in role.csr -CA tls/ca.pem -CAkey tls/ca.key -CAcreateserial -days 3 -extfile role.ext -out role.pem 2>>openssl.out ||
    fail "openssl: $(cat openssl.out)"
mkfifo typed && exec 9<>typed # it ends with its input
openssl s_server -accept "127.0.0.1:$port" -cert role.pem -key tls/a.key -CAfile tls/ca.pem -alpn h2 -tls1_3 <&9 >server.out 2>&1 &
processes="$processes $!"
until_lines 1 ACCEPT server.out
says "certificate of atoll://e2e/site/a, which is no aggregator's" 2 train --config run.yaml --site.name a --run.dir a --data.train "data/train-0-*.bin"
says "certificate of atoll://e2e/site/a, which is no aggregator's" 2 doctor --aggregator "127.0.0.1:$port" --tls tls --certificate a
echo "keys are named, never asked for"
