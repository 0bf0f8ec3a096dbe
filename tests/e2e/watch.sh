#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: the live page. It would say other numbers than the ledger and the journal, let a slow or hostile browser
# stop a step, show words of a site's data, key or paths, answer to another site's script, or be ugly: where chromium is, three
# screenshots lie in the scratch directory afterwards.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }
"$atoll" doctor 2>/dev/null | grep -q "^page yes" || { echo "SKIPPED: this build is without civetweb (libcivetweb-dev)"; exit 77; }

for i in 1 2 3 4 5 6 7 8; do echo "the PLANTEDTEXT of a record number $i"; done >>text.txt
steps=1000000 configure a,b # it continues until it is stopped
mkdir PLANTEDPATH
mv data PLANTEDPATH/data
ln -s PLANTEDPATH/data data

# An address that others reach is refused, with the reason.
"$atoll" serve --config run.yaml --serve.http 0.0.0.0:8080 >refused.out 2>&1 && fail "serve.http on every address is taken"
grep -q 'serve.http = "0.0.0.0:8080" is no loopback address' refused.out || fail "the refusal of serve.http"
"$atoll" train --config run.yaml --site.name a --site.http 192.0.2.7:80 --dry-run >refused.out 2>&1 && fail "site.http elsewhere is taken"

NOTIFY_SOCKET=$PWD/notify
export NOTIFY_SOCKET
python3 "$here/watch.py" notify >notify.out 2>&1 &
notify=$!
processes="$processes $notify"
until_lines 1 "listening" notify.out
settings="--serve.http 127.0.0.1:0 --site.http 127.0.0.1:0 --train.eval_every 100 --run.tensorboard true"
serve
listening
python3 "$here/choices.py" write
site_a() { # it evaluates, with a prompt that a careless page would run
    train a --eval.every_rounds 2 --eval.tasks arc=arc.jsonl,query=query.jsonl --eval.prompts "The ,<img src=x onerror=alert(1)>" --data.train "PLANTEDPATH/data/train-0-*.bin" --train.checkpoint_every 1000
    a=$pid
}
site_a
until_lines 1 '"text":"waiting for b"' a/metrics.jsonl
until_lines 1 '"waited":1' aggregator/metrics.jsonl
url() { sed -n 's/.*ev=page url=\([^ ]*\).*/\1/p' "$1" | tail -n 1; }
python3 "$here/watch.py" waiting "$(url serve.out)" "$(url a.out)" || fail "the page while a waits for b"

# From afar, with an observer's certificate: the same; a site may not.
"$atoll" cert issue --role observer --name observer --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role observer"
far="--aggregator 127.0.0.1:$port --aggregator-name localhost"
"$atoll" status $far --format json >far.json || fail "atoll status --aggregator"
python3 -c 'import json
assert [s["name"] for s in json.load(open("far.json"))["sites"] if s["waited_for"]] == ["b"]' 2>far.err || fail "from afar no site waits for b"
code=0
"$atoll" status $far --certificate a >refused.out 2>&1 || code=$?
[ $code -eq 2 ] && grep -q "an operator's or an observer's" refused.out || fail "a site's certificate reads the records"
"$atoll" watch $far --http 127.0.0.1:0 --metrics 127.0.0.1:0 >far.out 2>&1 &
far_watch=$!
processes="$processes $far_watch"
until_lines 2 "http://" far.out
train b --site.http "$(url serve.out | sed 's#http://\(.*\)/#\1#')" # in use: a warning, and it trains
b=$pid
until_lines 1 'ev=page ok=0 why="the page cannot be served at' b.out
until_rounds b 3
python3 "$here/watch.py" running "$(url serve.out)" "$(url a.out)" a/metrics.jsonl || fail "the page of a run that continues"
python3 "$here/watch.py" far "$(head -n 1 far.out)" aggregator || fail "the page from afar"
python3 "$here/watch.py" listeners 1 "$a" || fail "a site listens at more than its page's loopback address"
python3 "$here/watch.py" listeners 0 "$b" || fail "a site without a page listens"
python3 "$here/watch.py" listeners 2 "$serve_pid" || fail "the aggregator listens at more than serve.listen and its page"
python3 "$here/watch.py" listeners 2 "$far_watch" || fail "atoll watch listens at more than its page's and its metrics' address"
python3 "$here/watch.py" get "http://127.0.0.1:$(sed -n '2s#.*:\([0-9]*\)/metrics#\1#p' far.out)/metrics" >scraped.out || fail "the metrics from afar"
grep -q 'atoll_step{.*site="a"' scraped.out || fail "the metrics from afar know no site"
if command -v promtool >/dev/null; then
    python3 "$here/watch.py" get "$(url serve.out)metrics" | promtool check metrics >promtool.out 2>&1 || fail "promtool: /metrics"
else
    echo "NOT CHECKED: no promtool (apt-get install prometheus)"
fi
if command -v chromium >/dev/null; then
    python3 "$here/watch.py" look "$(url a.out)" || fail "the page in a browser"
else
    echo "NOT CHECKED: no chromium, so no browser has seen the page"
fi
# A process whose certificate is not valid (any more) is not ready, and says so, though the connections that there are continue.
mkdir kept
cp tls/aggregator.* kept/
cp tls/observer.pem tls/aggregator.pem
kill -USR2 "$serve_pid"
python3 "$here/watch.py" uncertified "$(url serve.out)" || fail "/readyz of an aggregator whose certificate has expired"
grep -q 'ev=status .*certificate: expired, or not valid' aggregator/log.txt || fail "the status does not tell of the expired certificate"
cp kept/aggregator.* tls/
kill -USR2 "$serve_pid"
kill -INT "$a" "$b"
sites_end 75 a b
kill -INT "$serve_pid"
ends 75 "$serve_pid" "the aggregator after Ctrl-C"
python3 "$here/watch.py" gone "$(head -n 1 far.out)" || fail "the page from afar does not say that the aggregator is gone"
kill -INT "$far_watch"
ends 0 "$far_watch" "atoll watch --aggregator after Ctrl-C"
kill "$notify" 2>/dev/null || :
for word in READY=1 WATCHDOG=1 "STATUS=step " "STATUS=.* rounds committed, " STOPPING=1; do
    grep -q "^$word" notify.out || fail "the service manager was not told $word"
done

# TensorBoard reads what a site wrote for it.
if python3 -c "import tensorboard" 2>/dev/null; then
    python3 "$here/watch.py" events a/tensorboard a/metrics.jsonl 2>events.out || fail "TensorBoard reads other numbers"
else
    echo "NOT CHECKED: no tensorboard (pip install tensorboard)"
fi
python3 "$here/watch.py" frames a/tensorboard || fail "the event files are not whole"

# Afterwards: the page's numbers are the ledger's and the journal's.
"$atoll" status a b aggregator --format json >status.json || fail "atoll status"
python3 "$here/watch.py" compare status.json a b aggregator || fail "other numbers than the ledger and the journal"
if command -v node >/dev/null; then # the page's own script over what it was served
    for object in far.json status.json; do
        node "$here/page.js" text "$repository/outer/view/page/page.html" $object >page.out 2>&1 || fail "the page of $object"
    done
    grep -q "^a .*[0-9] / 1000000 " page.out && grep -qF "<img src=x onerror=alert(1)>" page.out || fail "the page shows no step, or no probe"
else
    echo "NOT CHECKED: no node (apt-get install nodejs), so the page's script has not run"
fi
"$atoll" status aggregator >status.out || fail "atoll status"
grep -q "^b .*/1000000 " status.out || fail "atoll status of the aggregator's directory: $(cat status.out)"
"$atoll" report aggregator a b --follow --out report.html >report.out 2>&1 &
report=$!
processes="$processes $report"
until_lines 1 report.html report.out
echo '{"v":1,"kind":"notice","t":1,"text":"WRITTEN LATER"}' >>a/metrics.jsonl
until_lines 1 "WRITTEN LATER" report.html
kill "$report"

# The same page by atoll watch, of the directories.
"$atoll" watch a b aggregator --http 127.0.0.1:0 >watch.out 2>&1 &
watch=$!
processes="$processes $watch"
until_lines 1 "http://" watch.out
python3 "$here/watch.py" get "$(head -n 1 watch.out)status.json" >watched.json || fail "atoll watch"
python3 "$here/watch.py" compare watched.json a b aggregator || fail "atoll watch says other numbers"
python3 "$here/watch.py" get "$(head -n 1 watch.out)metrics" >watched.prom || fail "atoll watch: /metrics"

# Planted words: of the data nowhere; of a key nowhere; of a site's paths on no page and not at the aggregator.
for word in PLANTEDTEXT "$(sed -n 2p tls/a.key)" "$(sed -n 2p tls/a.identity.key)"; do
    [ "${#word}" -gt 8 ] || fail "no word of a key"
    ! grep -rqaF "$word" served ./*.out ./*.json watched.prom report.html a/*.jsonl a/log.txt aggregator/*.jsonl aggregator/log.txt ||
        fail "a planted word is shown: $(grep -rlaF "$word" served ./*.out ./*.json watched.prom report.html a/*.jsonl aggregator)"
done
! grep -rqaF PLANTEDPATH served far.json status.json watched.json watched.prom aggregator/*.jsonl aggregator/log.txt ||
    fail "a path of a site is shown: $(grep -rlaF PLANTEDPATH served ./*.json watched.prom aggregator)"
kill -INT "$watch"
ends 0 "$watch" "atoll watch after Ctrl-C"

# A run that ends is seen to end, from afar too.
settings="--train.steps 64"
serve --serve.dir short_aggregator
until_lines 2 "ev=listening" serve.out
"$atoll" watch $far --http 127.0.0.1:0 >short.out 2>&1 &
far_watch=$!
processes="$processes $far_watch"
until_lines 1 "http://" short.out
python3 "$here/watch.py" begun "$(head -n 1 short.out)" || fail "the page of a short run"
train a --run.dir short_a
a=$pid
train b --run.dir short_b
ends 0 "$pid" "site b of the short run"
ends 0 "$a" "site a of the short run"
serve_ends
python3 "$here/watch.py" done "$(head -n 1 short.out)" || fail "the page from afar does not say that the run is done"
"$atoll" report short_aggregator short_a short_b --follow --out short.html >report.out 2>&1 || fail "report --follow of a run that has ended"
"$atoll" status short_aggregator >status.out && grep -q "^aggregator done, 8 of 8 rounds" status.out || fail "atoll status of a run that has ended"

# The table of /metrics is the one in the documentation.
"$atoll" watch --help-metrics >table.md
awk '/^\| name \| type/ { on = 1 } on && !/^\|/ { exit } on' "$repository/docs/operations.md" | diff -u - table.md ||
    fail "docs/operations.md: its table of metrics is not the program's: atoll watch --help-metrics"
echo "page, metrics, status: the ledger's numbers, and no word of a site"
