#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: what a reader sees of a run. The page's script, which no C test runs, fails, draws no number, leaves out
# what the report's data say, lets a name become markup, or needs a server. page.js runs it over a small document.
. "$(dirname "$0")/lib.sh"
for name in a b aggregator; do
    mkdir $name
    cp "$repository/tests/golden/runs/2/$name"/*.jsonl $name/
done
show() { # show FILE [STATUS.json]: what the page shows, in shown.out
    node "$here/page.js" text "$@" >shown.out 2>&1 || fail "the page of $1"
}
shows() { # shows WORDS...: as they stand
    for words; do grep -qF -- "$words" shown.out || fail "the page does not show: $words"; done
}

# Every section of a report, with the records' own numbers.
"$atoll" report a b aggregator --out report.html >report.out 2>&1 || fail "atoll report"
show report.html
shows "Atoll run “e2e”" "3 directories" "site a stopped 80 / 80 5.2825" "Initial drop clipped." "site a and site b 5.5398 at 0" "Gradient norm" "Learning rate" \
    "Tokens per second" "site a, up 11.8" "goodput" "round 0: up 11,802 B counted, 11,802 B predicted" "round 0: outage 262.0 ms" \
    "payload 11,802 11,802 23,620 23,620" "Sum of the layers, compared with the kernel's sockets: -4.680 % up, -3.190 % down." "round 0: 0.1 s, 2 of 2 sites" \
    "Norm of the outer momentum" "Agreement:" "Gain:" "Residual ratio:" "site a 1 100.0 % 5,120 50.0 % all of its data counted" \
    "up with TLS and framing" "time computing 10.9 %" "aggregator unreachable" "site a 0.1.0 " "atoll train --config run.yaml" "# default: atoll" "that is not the default:" "All settings of site a"
grep -qx "name: e2e" shown.out || fail "the settings that are not the default"
grep -q "Final state" shown.out && fail "a run that has not ended has a final state"
! sed -n '/<noscript>/,/<.noscript>/p' report.html | grep -q "site a: eval loss 5.5398 at start" && fail "the page has no text without its script"

# The same records while the run continues: the live page, over the object that it is served.
"$atoll" status a b aggregator --format json >status.json || fail "atoll status"
show "$repository/outer/view/page/page.html" status.json
shows "rounds committed" "payload up" "Site a, kB by round" "Aggregator: seconds from the first contribution to the commit" "status.json"
for words in "Bytes on the link, by layer" "Training" "In numbers" "Configuration"; do
    grep -q "^$words$" shown.out && fail "the live page shows a section of reports: $words"
done

# Names, probes and a configuration that a careless page would run; a baseline without rounds; fragments; a run that has ended.
mkdir hostile alone
digest=$(printf %064d 7)
cat >hostile/metrics.jsonl <<END
{"v":1,"kind":"start","t":100,"run":"</script><img src=x onerror=alert(1)>","site":"a","aggregator":"h:1","step":0,"steps":8,"rounds":4,"parameters":1000,"version":"<b>1</b>","command":"atoll \"'&<!--","config":"a: </pre><script>"}
{"v":1,"kind":"health","t":100,"certificate_days":-1}
{"v":1,"kind":"eval","t":100,"step":0,"loss":5.5}
{"v":1,"kind":"step","t":101,"step":1,"loss":5,"norm":1,"lr":0.00001,"tokens":8,"tokens_per_second":8,"step_ms":1000}
{"v":1,"kind":"step","t":102,"step":2,"loss":null,"norm":null,"lr":0.00001,"tokens":16,"tokens_per_second":8,"step_ms":1000}
{"v":1,"kind":"task","t":102,"of":"<u>arc","round":0,"questions":4,"chance":0.25,"accuracy":0.5,"accuracy_norm":0.75,"ms":1}
{"v":1,"kind":"probe","t":102,"number":0,"round":0,"prompt":"</b>","text":"<script>alert(1)</script>","ms":1}
{"v":1,"kind":"round","t":103,"step":2,"fragment":0,"round":0,"included":1,"sites":2,"up":70,"up_predicted":70,"down":30,"down_predicted":30,"send_ms":3000,"hidden_ms":2000,"exposed_ms":1000,"rho":null,"gain":1.5}
{"v":1,"kind":"round","t":104,"step":4,"fragment":1,"round":0,"included":2,"sites":2,"up":70,"up_predicted":70,"down":30,"down_predicted":30,"rho":0.5,"gain":null}
{"v":1,"kind":"eval","t":105,"step":8,"loss":2.5}
{"v":1,"kind":"final","t":105,"parameters":"$digest","momentum":"-","residual":"","outer":"$digest"}
END
cat >alone/metrics.jsonl <<END
{"v":1,"kind":"start","t":100,"run":"x","site":"","aggregator":"","step":0,"steps":8,"parameters":1000}
{"v":1,"kind":"step","t":101,"step":1,"loss":5,"tokens":8,"tokens_per_second":8}
{"v":1,"kind":"eval","t":105,"step":8,"loss":3.25}
END
cat >wan.jsonl <<END
{"v":1,"kind":"network","t":1,"source":"<oce>an","seed":7,"relay":0}
{"v":1,"kind":"direction","t":1,"from":"a","to":"<b>","packets":1001,"bytes":1002,"arrived":1003,"queue":1004,"lost":1005,"outage":1006,"twice":1007,"late":1008,"queue_peak":1009}
{"v":1,"kind":"missed","t":1,"place":"a","packets":31}
END
"$atoll" report hostile alone --wan wan.jsonl --out hostile.html >report.out 2>&1 || fail "atoll report of hostile names"
show hostile.html
shows "Atoll run “</script><img src=x onerror=alert(1)>”" "2.500" "(5.500 at start)" "3.250" "eval loss of one site alone" "<u>arc" "75.0 %" \
    "</b> <script>alert(1)</script>" "site a, B by round" "round 0 of fragment 0: up 70 B counted" "round 0 of fragment 1: up" "accuracy 0.5000 at 0" "rounds of all fragments, in order" "1.0e-5" "site a 2.5000 at 8" \
    "of 3.0 s of exchanges 2.0 s (66.7 %) ran during training; training waited for the other 1.0 s" "<oce>an, seed 7" "a <b> 1,001 1,002 1,003 1,004 1,005 1,006 1,007 1,008 1,009" \
    "31 packets of a were missed" "site a parameters $digest" "site a outer state $digest" "a: </pre><script>" "<b>1</b>" "site a done"
[ "$(grep -c "^site a .*EXPIRED" shown.out)" = 2 ] || fail "an expired certificate is not said among the sites and the machines"
[ "$(grep -o "<script" hostile.html | wc -l)" = 2 ] || fail "a name of the run is a script"
[ "$(grep -oE "<(img |u>|b>)" hostile.html | wc -l)" = 0 ] || fail "a name of the run is markup"

# The aggregator alone, and two of them, each with its own fragments.
"$atoll" report aggregator --out seen.html >report.out 2>&1 || fail "atoll report of the aggregator alone"
show seen.html
shows "1 directory" "site a trains" "site b, kB by round" "round 0: 0.1 s, 2 of 2 sites" "site b 1 100.0 % 5,120 50.0 % all of its data counted"
for k in 0 1; do
    mkdir two-$k
    for r in 0 1; do
        [ $r = 1 ] || echo '{"v":1,"kind":"start","t":1,"run":"two","role":"aggregator","aggregators":2,"index":'$k',"sites":2,"site_names":"a,b","rounds":4,"steps":8}'
        echo '{"v":1,"kind":"round","t":2,"fragment":'$k',"round":'$r',"included":'$((r + 1))',"sites":2,"waited_ms":2500,"up":9,"down":9,"momentum_norm":1.5,"cursors":"0:7"}'
    done >two-$k/metrics.jsonl
done
"$atoll" report two-0 two-1 --out two.html >report.out 2>&1 || fail "atoll report of two aggregators"
show two.html
shows "Aggregator 0: seconds from the first contribution to the commit" "Aggregator 1: norm of the outer momentum" "round 0 of fragment 1: 2.5 s, 1 of 2 sites" \
    "site b 0 0.0 % 0 0.0 % none of its data counted"

# A call takes some ten thousand arguments, and three hundred sites have more points: no list becomes arguments of a call.
grep -nE 'Math\.(min|max)\([^)]*\.\.\.' "$repository/outer/view/page/page.js" && fail "the page of many sites would fail"

# One chart as a file: the README's picture is made so.
node "$here/page.js" svg hostile.html eval eval.svg >svg.out 2>&1 || fail "page.js svg"
grep -q '^<svg xmlns=.*<title>Eval loss: site a 2.5000, alone 3.2500</title>' eval.svg && grep -q 'class="line s0"' eval.svg || fail "the chart in a file of its own"

# The check sees a script that fails, and one that draws no number.
sed 's/^function show(s) {/&\n  s.nothing.of = 1;/' report.html >broken.html
node "$here/page.js" text broken.html >broken.out 2>&1 && fail "a script that fails passes"
sed 's/(v - box.x0)/(v - box.nothing)/' report.html >broken.html
node "$here/page.js" text broken.html >broken.out 2>&1 && fail "a chart without numbers passes"
echo "the page: $(wc -l <shown.out) lines, and no name is markup"
