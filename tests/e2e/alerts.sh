#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: an operator is not warned. The rules of deploy/grafana are no rules, fire on a run in order, stay silent
# on one in trouble (promtool), or they and the dashboard name metrics that there are not.
. "$(dirname "$0")/lib.sh"
grafana=$repository/deploy/grafana
"$atoll" watch --help-metrics | sed -n 's/^| `\(atoll_[a-z_]*\)`.*/\1/p' | sort >known
[ "$(wc -l <known)" -gt 30 ] || fail "atoll watch --help-metrics"
for file in alerts.yaml dashboard.json; do
    grep -v 'uid": "atoll' "$grafana/$file" | grep -oE 'atoll_[a-z_]+' | sort -u >named
    [ "$(wc -l <named)" -gt 8 ] || fail "$file names no metrics"
    comm -23 named known >unknown
    [ ! -s unknown ] || fail "$file names what /metrics does not have: $(cat unknown)"
done
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
ids = [p["id"] for p in d["panels"]]
assert len(ids) == len(set(ids)) and all(p["targets"] for p in d["panels"])' "$grafana/dashboard.json" || fail "dashboard.json"
fi
if ! command -v promtool >/dev/null; then
    echo "SKIPPED: no promtool, so no rule was evaluated (apt-get install prometheus)"
    exit 77
fi
promtool check rules "$grafana/alerts.yaml" >rules.out 2>&1 || fail "promtool check rules"
sed -n '/^    config:/,/^[a-z]/p' "$grafana/otel-collector.yaml" | sed '1d; $d; s/^      //' >scrape.yaml
grep -q job_name scrape.yaml && promtool check config scrape.yaml >scrape.out 2>&1 || fail "the scrape configuration of otel-collector.yaml"
promtool test rules "$grafana/alerts_test.yaml" >rules.out 2>&1 || fail "promtool test rules"
sed 's/for: 10m/for: 60m/' "$grafana/alerts.yaml" >alerts.yaml
cp "$grafana/alerts_test.yaml" .
promtool test rules alerts_test.yaml >broken.out 2>&1 && fail "the tests of the rules do not see a changed rule"
echo "alerts: rules and their tests hold"
