# SPDX-License-Identifier: Apache-2.0
"""Of options.sh: each command's --format json against its text, and - as a standard stream.

    options.py PART ATOLL [WORD..]      in the scratch directory
"""
import json
import os
import re
import subprocess
import sys

part, atoll, *given = sys.argv[1:]


def call(*words, code=0, text=None):
    done = subprocess.run([atoll, *map(str, words)], capture_output=True, text=True, input=text, check=False)
    assert done.returncode == code, (words, done.returncode, done.stdout[-600:], done.stderr[-600:])
    return done.stdout


def both(*words, code=0):
    """The text, and the one JSON object."""
    said = call(*words, "--format", "json", code=code)
    assert said.count("\n") == 1, said
    return call(*words, code=code), json.loads(said)


def found(pattern, text):
    match = re.search(pattern, text, re.M)
    assert match, (pattern, text)
    return match.group(1)


def near(text, value, share=1e-3):
    assert abs(float(text) - value) <= share * abs(value) + 1e-12, (text, value)


def refused(words, *command):
    done = subprocess.run([atoll, *map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 4 and words in done.stderr, (command, done.returncode, done.stderr)


def failed(*words, code=4, **more):
    """The object of a command that ends with an error: its last member says which."""
    said = json.loads(call(*words, "--format", "json", code=code, **more))
    assert list(said)[-1] == "error" and said["error"]["exit_code"] == code and said["error"]["message"], said
    return said


def asks():
    """What an aggregator that runs answers: --aggregator .. --tls .. are in `given`."""
    text, said = both("operator", "status", *given)
    line = said["answers"][0]["lines"][0]
    assert found(r"quorum=(\d+)", text) == str(int(next(x for x in said["answers"][0]["lines"] if "quorum" in x)["quorum"]))
    assert line["fragment"] == 0 and said["answers"][0]["aggregator"] == given[1]
    text, said = both("operator", "metrics", *given, "--certificate", "observer")
    site = next(x for x in said["answers"][0]["lines"] if x.get("site") == "a")
    assert site["state"] == found(r"^site=a state=(\w+)", text) and site["payload_up"] > 0
    text, said = both("operator", "roster", "list", *given)
    assert int(found(r"sites=(\d+)", text)) == said["answers"][0]["lines"][0]["sites"] == 2
    text, said = both("status", *given)
    assert said["run"] == "e2e" and "e2e" in text
    text, said = both("doctor", *given, "--certificate", "a")
    assert found(r"yes: \S+ is (\S+),", text) == said["identity"] == "atoll://e2e/aggregator/aggregator" and said["took_ms"] > 0
    refused("--name is now named --certificate NAME", "operator", "status", *given, "--name", "operator")
    refused("--name is now named --certificate NAME", "status", *given, "--name", "observer")
    refused("elsewhere/ca.pem", "probe", "--config", "run.yaml", "--site.name", "a", "--tls", "elsewhere")
    call("train", "--config", "run.yaml", "--site.name", "a", "--run.dir", "x", "--tls", "elsewhere", "--dry-run", "--all")
    assert "dir: elsewhere" in call("train", "--config", "run.yaml", "--site.name", "a", "--run.dir", "x", "--tls", "elsewhere", "--dry-run")


def rest():
    """What a run has left: a, b, aggregator."""
    text, said = both("status", "aggregator")
    assert said["run"] == "e2e" and "e2e" in text
    text, said = both("ledger", "a", "b", "aggregator")
    one = said["directories"][0]
    row = re.search(r"^ +payload +(\d+) +(\d+) +(\d+) +(\d+)", text, re.M)
    assert one["replica"] == "a" and [int(x) for x in row.groups()] == [
        one["lines"][0][d][k] for d in ("up", "down") for k in ("predicted", "payload")]
    text, said = both("ledger", "a", "--by", "round")
    assert str(said["directories"][0]["lines"][0]["up"]["payload"]) in text and len(said["directories"][0]["lines"]) > 2
    text, said = both("replay", "aggregator")
    assert int(found(r"^(\d+) rounds", text)) == said["rounds"] > 0
    text, said = both("cert", "list", "--dir", "tls")
    assert text.count("\n") == len(said["certificates"]) and said["certificates"][0]["state"] == "valid"
    text, said = both("cert", "show", "tls/a.pem")
    one = said["certificates"][0]
    assert one["identity"] == "atoll://e2e/site/a" and one["sha256"] in text and f"{one['days_left']} days left" in text
    with open("tls/a.pem", encoding="ascii") as f:
        piped = json.loads(call("cert", "show", "-", "--format", "json", text=f.read()))["certificates"][0]
    assert piped["sha256"] == one["sha256"] and piped["file"] == "-"
    assert "<!doctype html>" in call("report", "a", "--out", "-") and not os.path.exists("-")


def inputs():
    """- is standard input: a configuration, a topology. data, and a run's settings before it starts."""
    with open("run.yaml", encoding="utf-8") as f:
        configuration = f.read()
    site = ["--site.name", "a", "--run.dir", "x", "--dry-run"]
    assert call("train", "--config", "-", *site, text=configuration) == call("train", "--config", "run.yaml", *site)
    refused("standard input: it is empty", "train", "--config", "-", *site)
    code = subprocess.run([atoll, "train", "--config", "-", *site], input="outer: {nosuch: 1}", text=True, capture_output=True, check=False)
    assert code.returncode == 4 and "standard input:1: " in code.stderr, code.stderr
    grown = call("train", "--config", "run.yaml", *site, "--outer.interval_schedule", "2,2,40")
    assert "    interval_schedule: {rounds: 2, factor: 2, most: 40}" in grown
    mapped = configuration.replace("\nouter:\n", "\nouter:\n  interval_schedule: {most: 40, rounds: 2, factor: 2}\n")
    assert call("train", "--config", "-", *site, text=mapped) == grown
    text, said = both("train", "--config", "run.yaml", *site)
    assert said["configuration"] in text and f"{said['parameters']} parameters" in text
    assert f"{said['rounds']} exchanges" in text and said["payload_up"] > 0
    assert found(r"activations.* ([\d.]+) MiB", text) == f"{said['memory_bytes']['activations'] / (1 << 20):.1f}"
    refused("--format json is for --dry-run", "train", "--config", "run.yaml", "--site.name", "a", "--format", "json")
    topology = call("wan", "--topology", "transatlantic", "--print")
    assert call("wan", "--topology", "-", "--print", text=topology) == topology
    refused("--format json needs --logs", "wan", "--topology", "transatlantic", "--format", "json", "--", "true")
    words = ["wan", "--topology", "transatlantic", "--mode", "relay", "--logs", "wan-logs", "--format", "json", "--"]
    network = json.loads(call(*words, "true"))["network"]
    assert network["source"] == "transatlantic" and network["relay"] is True and network["directions"] == []
    said = json.loads(call(*words, "false", code=1))
    assert "network" in said and "error" not in said
    for kind in [], ["--tokenizer", "wordpiece", "--learn", "300", "--split-sentences"]:
        words = ["data", "--out", "made", "--sites", "2", "--seq-len", "32", *kind, "--force", "text.txt"]
        text, said = both(*words)
        assert said["configuration"] in text and int(found(r"read +(\d+) tokens", text)) == said["tokens"]
        assert [int(n) for n in re.findall(r"(\d+) tokens +1 shard", text)] == [p["tokens"] for p in said["parts"]]
        assert said["parts"][2]["held_out"] is True and said["parts"][1]["site"] == 1


def errors():
    """Before anything was printed, and in the middle of an object."""
    assert list(failed("status", "nosuch")) == ["error"]
    assert failed("data", "--out", "y", "nosuch.txt")["error"]["name"] == "INPUT"
    said = failed("ledger", "a", "--by", "inside")
    assert list(said) == ["by", "directories", "error"] and said["directories"] == []
    said = failed("cert", "show", "tls/a.pem", "nosuch.pem")
    assert [c["file"] for c in said["certificates"]] == ["tls/a.pem"] and "nosuch.pem" in said["error"]["message"]


def machine():
    text, said = both("doctor")
    facts = {f["name"]: f for f in said["facts"]}
    assert said["version"] == text.splitlines()[0] and facts["network"]["available"] is True
    assert "memory " + facts["memory"]["text"].split(",")[0] in text
    assert len(said["facts"]) == len(text.splitlines()) - 1
    for line, one in zip(text.splitlines()[1:], said["facts"]):
        mark = {True: "yes: ", False: "no: ", None: ""}[one.get("available")]
        assert one["name"] == "memory" or line == f"{one['name']} {mark}{one['text']}", line
    code = subprocess.run([atoll, "doctor", "--config", "run.yaml", "--serve"], capture_output=True, check=False).returncode
    text, said = both("doctor", "--config", "run.yaml", "--serve", code=code)
    assert [c["verdict"] for c in said["checks"]] == [line.split()[0] for line in text.splitlines()]
    assert said["failed"] == sum(c["verdict"] == "FAIL" for c in said["checks"])
    text, said = both("wan", "--list")
    assert [p["name"] for p in said["presets"]] == [line.split()[0] for line in text.splitlines()]


PLAN = ["--config", "run.yaml", "--plan.step_s", "1", "--plan.up_mbit", "100", "--plan.down_mbit", "80", "--plan.rtt_ms", "20"]


def plans():
    text, said = both("plan", *PLAN, "--utilisation", "20")
    first = next(line.split() for line in text.splitlines() if line.split()[:1] == [said["options"][0]["codec"]])
    assert int(first[1]) == said["options"][0]["sync_every"] and said["down_mbit"] == 80 and said["sites"] == 2
    near(first[5], 100 * said["options"][0]["utilisation"], 1e-2)
    assert said["knee_sites"] == int(found(r"is least at (\d+) sites", text))
    pays = [r for r in said["more_sites"] if r["efficiency"] >= .7]
    assert said["knee_sites"] == min(pays, key=lambda r: r["sites"] / r["speedup"] ** 2)["sites"]
    configuration = call("plan", *PLAN, "--utilisation", "20", "--write", "-")
    assert configuration == said["configuration"] and configuration in text and not os.path.exists("-")
    refused("leave out --write -", "plan", *PLAN, "--write", "-", "--format", "json")
    refused("--json is now named --format text|json", "plan", "times", "--json", "8:5,64:0.9")
    refused("allowed are text, json", "plan", "times", "8:5,64:0.9", "--format", "xml")
    text, said = both("plan", "times", "8:5.4688,64:0.8981,3472:0.1193")
    assert [int(r["n"]) for r in said["rows"] if r["knee"]] == [int(found(r"^Knee: (\d+)", text))]
    text, said = both("plan", "inside", "--config", "run.yaml", "--ranks", "1", "--plan.gpu", "h100")
    row = re.search(r"^ +1 +(\d+) .*?([\d.e+-]+) s ", text, re.M)
    assert int(row.group(1)) == said["rows"][0]["micro_batch_tokens"]
    near(row.group(2), said["rows"][0]["step_s"])
    text, said = both("plan", "accumulator", "9", "--config", "run.yaml")
    line = next(x for x in text.splitlines() if x.split()[:1] == [str(said["sums"][0]["terms"])])
    assert int(line.split()[3]) == said["sums"][0]["one_level"]["least_bits"] and said["bits"] == 9
    text, said = both("plan", "layers", *PLAN, "--plan.layers_ms", "5,5,5,5,5,5")
    assert f"overlap_steps: {said['overlap_steps']}" in text and ", ".join(said["slices"]) in text
    private = ["plan", "private", "--config", "run.yaml", "--records", "10000", "--privacy.unit", "sequence", "--privacy.epsilon", "8"]
    text, said = both(*private, "--privacy.delta", "1e-6")
    near(found(r"^noise +([\d.]+)", text), said["noise"])
    near(found(r"^ +3 +([\d.]+)", text), said["targets"][1]["noise"])
    assert said["verdict"] in text and said["records"] == 10000
    text, said = both(*private, "--site-level", "--force")
    near(found(r"Noise norm is ([\d.e+]+)", text), said["noise_over_signal"])
    text, said = both("sim", *PLAN)
    row = re.search(r"^a +([\d.]+) %", text, re.M)
    near(row.group(1), 100 * said["sites"][0]["utilisation"])
    assert int(found(r"(\d+) calls$", text)) == said["calls"]
    call("sim", *PLAN, "--rounds", "1", "--record", "rounds.jsonl")
    lines = [json.loads(line) for line in call("sim", *PLAN, "--rounds", "1", "--record", "-").splitlines()]
    with open("rounds.jsonl", encoding="utf-8") as f:
        assert len(lines) == len(f.readlines()) > 0 and {x["site"] for x in lines} == {"a", "b"}
    assert not os.path.exists("-")


def measured():
    """probe --step: two runs measure two times, so that the file that one writes is compared with its own text."""
    words = ["probe", "--config", "run.yaml", "--site.name", "a", "--site.aggregator=", "--step", "--data.train", "data/train-0-*.bin"]
    said = json.loads(call(*words, "--format", "json", "--write", "step.yaml"))["plan"]
    with open("step.yaml", encoding="utf-8") as f:
        near(found(r"^ +step_s: ([\d.e-]+)", f.read()), said["step_s"])
    assert "step_s: " in call(*words, "--write", "-") and not os.path.exists("-")


def privacy():
    budget = ["--q", "0.01", "--steps", "1000", "--delta", "1e-5"]
    text, said = both("privacy", "account", *budget, "--noise-multiplier", "1.1")
    near(found(r"PLD +epsilon ([\d.]+)  <- holds", text), said["epsilon"], 1e-8)
    text, said = both("privacy", "banded", "--q", "0.01", "--steps", "2000", "--delta", "1e-6", "--epsilon", "8")
    assert text.splitlines()[1].split()[0] == str(said["rows"][0]["bands"])
    near(text.splitlines()[1].split()[3], said["rows"][0]["noise"])
    text, said = both("privacy", "audit", "--canaries", "1000", "--guesses", "200", "--correct", "150", "--delta", "1e-5", "--claim", "1")
    near(found(r"at least ([\d.]+)", text), said["epsilon_at_least"], 1e-8)
    refused("--noise is now named --noise-multiplier Z", "privacy", "account", *budget, "--noise", "1.1")
    refused("--cap is now named --epsilon-max EPSILON", "privacy", "ledger", "alone", "--cap", "3")
    refused("--sequence is now named --seq-len TOKENS", "data", "--out", "x", "--sequence", "8", "text.txt")
    text, said = both("privacy", "ledger", "alone")
    near(found(r"epsilon ([\d.]+)  <- holds", text), said["epsilon"], 1e-8)
    text, said = both("privacy", "ledger", "alone", "alone")
    assert said["directories"][0]["directory"] == "alone"
    near(found(r"together +\(epsilon, delta\) = \(([\d.]+)", text), said["together"]["epsilon"])
    text, said = call("report", "--privacy", "alone", "--format", "text"), json.loads(call("report", "--privacy", "alone", "--format", "json"))
    assert said["title"] == text.splitlines()[0]
    for section in said["sections"][1:]:
        assert section["heading"] in text
    cells = [c for s in said["sections"] for x in s["content"] if isinstance(x, dict) for r in x["rows"] for c in r]
    assert cells and all(c in text for c in cells)


{"asks": asks, "rest": rest, "machine": machine, "inputs": inputs, "errors": errors, "plans": plans, "measured": measured, "privacy": privacy}[part]()
