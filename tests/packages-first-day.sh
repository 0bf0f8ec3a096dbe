#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs inside the empty system of tests/packages.sh, with the packages in /root/packages.
set -euo pipefail
stop() { for p in $(jobs -p); do kill "$p" 2>/dev/null || :; done; } # the shell's own kill: a small system has no other
trap stop EXIT
! command -v cc gcc clang nvcc || { echo "a compiler is here" && exit 1; }
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends /root/packages/*.deb >/root/apt.log 2>&1 || { tail -n 20 /root/apt.log && exit 1; }
! command -v cc gcc clang || { echo "the packages bring a compiler" && exit 1; }
atoll --version
getent passwd atoll
[ "$(stat -c '%U %a' /etc/atoll/tls)" = "atoll 700" ]

# What the packages hold. (An empty system of a container may leave manual pages out.)
for page in atoll atoll-serve atoll-cert-issue atoll-operator-roster-add; do
    dpkg -L atoll | grep -q "/man1/$page.1" || { echo "no manual page $page" && exit 1; }
done
for file in /usr/share/atoll/config.schema.json /usr/share/bash-completion/completions/atoll /usr/lib/systemd/system/atoll-serve.service \
    /usr/share/doc/atoll/copyright; do
    [ -s $file ] || { echo "no $file" && exit 1; }
done
compgen -G "/usr/lib/*/libatoll.so.0" >/dev/null && [ -s /usr/include/atoll.h ]
systemd-analyze verify /usr/lib/systemd/system/atoll-*.service /usr/lib/systemd/system/atoll-*.timer
if dpkg -s atoll-cuda >/dev/null 2>&1; then # without a GPU and CUDA it says what is missing
    atoll train --device.kind cuda --dry-run 2>&1 | grep -E 'libcu[a-z]*|GPU' || { echo "the GPU module says nothing" && exit 1; }
fi

grep -qs localhost /etc/hosts || echo "127.0.0.1 localhost" >>/etc/hosts # an empty system has none

# The operator's first day. start UNIT INSTANCE VARIABLE=VALUE...: the unit's command, as its user, in the background
start() {
    unit=$1 instance=$2
    shift 2
    line=$(sed -n 's/^ExecStart=//p' "/usr/lib/systemd/system/$unit.service" | sed "s/%i/$instance/g; s/\${\([A-Z]*\)}/\$\1/g")
    setpriv --reuid atoll --regid atoll --init-groups env HOME=/var/lib/atoll PATH=/usr/local/bin:/usr/bin:/bin "$@" sh -c "exec $line" >"/root/$unit$instance.log" 2>&1 &
}
said() { # said FILE PATTERN: waits until the log has it
    for _ in $(seq 1200); do
        grep -qs "$2" "$1" && return
        [ -n "$(jobs -r)" ] || break
        sleep 0.5
    done
    echo "$1 does not say \"$2\":" && tail -n 20 "$1" && exit 1
}
sed 's/^  steps: .*/  steps: 60/; s/^  batch_tokens: .*/  batch_tokens: 512/; s/^  eval_every: .*/  eval_every: 60/; s|data/eval|/var/lib/atoll/&|
    s|^\( *dir: *\)tls\>|\1/etc/atoll/tls|' /usr/share/doc/atoll/examples/minute.yaml >/etc/atoll/run.yaml
port=$(sed -n 's/.*listen: *"\{0,1\}[^ ]*:\([0-9]*\).*/\1/p' /etc/atoll/run.yaml)
grep -q 'dir: */etc/atoll/tls' /etc/atoll/run.yaml && [ -n "$port" ] || { echo "the example has other lines" && exit 1; }
install -d -o atoll -g atoll -m 0700 /var/lib/atoll
cat /usr/share/common-licenses/* /usr/share/doc/*/copyright >/tmp/text.txt
runuser -u atoll -- atoll data /tmp/text.txt --out /var/lib/atoll/data --sites 2
atoll cert authority --run minute --dir /etc/atoll/authority
atoll cert issue --role aggregator --host localhost --dir /etc/atoll/authority --out /etc/atoll/tls
for site in a b; do atoll cert issue --role site --name $site --dir /etc/atoll/authority --out /etc/atoll/tls; done
atoll cert issue --role observer --dir /etc/atoll/authority --out /etc/atoll/observer
chown -R atoll: /etc/atoll/tls /etc/atoll/observer

start atoll-serve ""
start atoll-relay "" LISTEN=127.0.0.1:7500 TO=127.0.0.1:$port NAME=localhost MORE="--allow 127.0.0.0/8"
sleep 1; kill -0 $! || { cat /root/atoll-relay.log && exit 1; }
start atoll-metrics "" AGGREGATOR=localhost:$port LISTEN=127.0.0.1:9464
said /root/atoll-serve.log listening
sed -i 's|^  eval: .*|&\n  train: ["/var/lib/atoll/data/train-0-*.bin"]|' /etc/atoll/run.yaml
declare -A site_of
start atoll-train@ a
site_of[a]=$!
said /root/atoll-train@a.log 'site=a\|"a"\|step'
sed -i "s|train-0|train-1|; s|^\( *aggregator: *\).*|\1127.0.0.1:7500|" /etc/atoll/run.yaml # b, over the relay
start atoll-train@ b
site_of[b]=$!
said /root/atoll-train@b.log step
for _ in $(seq 1200); do
    curl -sf http://127.0.0.1:9464/metrics >/tmp/metrics && grep -q '^atoll_rounds_total{.*} [1-9]' /tmp/metrics && break
    sleep 0.5
done
grep -m 1 '^atoll_rounds_total{.*} [1-9]' /tmp/metrics

# The authority is elsewhere: ssh is what reaches it.
cat >/usr/local/bin/ssh <<'END'
#!/bin/sh
exec /usr/bin/atoll cert sign - --dir /root/authority-of-another-machine --days 7
END
chmod 755 /usr/local/bin/ssh
cp -r /etc/atoll/authority /root/authority-of-another-machine
chmod 711 /root && chown -R atoll: /root/authority-of-another-machine
before=$(sha256sum </etc/atoll/tls/a.pem)
start atoll-renew@ a AUTHORITY=authority
wait $! || { cat /root/atoll-renew@a.log && exit 1; }
[ "$before" != "$(sha256sum </etc/atoll/tls/a.pem)" ] || { echo "the certificate was not renewed" && exit 1; }

for site in a b; do
    wait "${site_of[$site]}" || { tail -n 20 "/root/atoll-train@$site.log" && exit 1; }
done
state() { sed -n 's/.* ev=final .*parameters=\([0-9a-f]*\) momentum=\([0-9a-f]*\) .*/\1 \2/p' "/root/atoll-train@$1.log"; }
[ -n "$(state a)" ] && [ "$(state a)" = "$(state b)" ] || { tail -n 12 /root/atoll-train@?.log && exit 1; }
runuser -u atoll -- atoll status /var/lib/atoll/a | head -n 12
stop
wait || :

apt-get -qq purge -y atoll >/root/purge.log 2>&1 || { cat /root/purge.log && exit 1; }
[ -d /var/lib/atoll/a ] && [ -s /etc/atoll/tls/a.key ] || { echo "a purge removed the run" && exit 1; }
echo "first day: passed; both sites end in $(state a | cut -c 1-16)"
