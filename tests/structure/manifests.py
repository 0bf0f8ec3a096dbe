#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What breaks if this fails: the Kubernetes API server refuses a manifest, a service manager starts a process again for ever, or a
document says other exit codes than the program has.

  manifests.py REPOSITORY

Rules of the schemas of Kubernetes 1.31 (io.k8s.api.batch.v1, apps.v1, core.v1) for the objects that deploy/kubernetes uses: which
fields an object must have, and which of them are strings. Exit codes: those of kernels/base/err.h."""
import pathlib
import re
import sys

try:
    import yaml
except ImportError:
    print("SKIPPED: no PyYAML")
    sys.exit(77)

try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

# Where the object is (the key that holds it, or a list of it): (required fields, fields that are strings where they are given).
RULES = {
    "": (("apiVersion", "kind", "metadata"), ("apiVersion", "kind")),
    "onPodConditions": (("type", "status"), ("type", "status")),
    "onExitCodes": (("operator", "values"), ("operator", "containerName")),
    "rules": (("action",), ("action",)),
    "containers": (("name", "image"), ("name", "image", "restartPolicy")),
    "initContainers": (("name", "image"), ("name", "image", "restartPolicy")),
    "env": (("name",), ("name", "value")),
    "fieldRef": (("fieldPath",), ("fieldPath",)),
    "volumeMounts": (("name", "mountPath"), ("name", "mountPath", "subPath")),
    "volumes": (("name",), ("name",)),
    "persistentVolumeClaim": (("claimName",), ("claimName",)),
    "ports": ((), ("name", "protocol")),
    "matchLabels": ((), ("app",)),
    "labels": ((), ("app",)),
    "annotations": ((), ("prometheus.io/scrape", "prometheus.io/port")),
}
SPECS = {"Job": ("template",), "StatefulSet": ("selector", "serviceName", "template"), "NetworkPolicy": ("podSelector",)}
# Errors after which the same start ends the same way: configuration or input, the last round is committed, the budget is spent.
FINAL = ("CONFIG", "SHORT", "BUDGET")
STATUS = ("True", "False", "Unknown")


def walk(value, key, where, wrong):
    if isinstance(value, list):
        for i, item in enumerate(value):
            walk(item, key, f"{where}[{i}]", wrong)
        return
    if not isinstance(value, dict):
        return
    required, strings = RULES.get(key, ((), ()))
    wrong += [f"{where}: '{name}' is a required property" for name in required if name not in value]
    wrong += [f"{where}.{name}: {value[name]!r} is no string" for name in strings if not isinstance(value.get(name, ""), str)]
    if key == "onPodConditions" and value.get("status") not in STATUS:
        wrong.append(f"{where}.status: none of {', '.join(STATUS)}")
    if key in ("command", "args"):
        wrong.append(f"{where}: a list is needed")
    for name, item in value.items():
        if name in ("command", "args") and not all(isinstance(x, str) for x in item):
            wrong.append(f"{where}.{name}: an item is no string")
        walk(item, name, f"{where}.{name}", wrong)


def whole_check(value, where, wrong):
    try:
        kubernetes_validate.validate(value, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as e:
        wrong.append(f"{where}: {'.'.join(map(str, e.path))}: {e.message}")


def exits_final(repository):
    text = (repository / "kernels/base/err.h").read_text()
    return sorted(int(re.search(rf'X\(\d+, {name}, "[^"]*", (\d+),', text).group(1)) for name in FINAL)


def exits_check(value, where, final, wrong):
    rules = value["spec"].get("podFailurePolicy", {}).get("rules", [])
    codes = [sorted(r["onExitCodes"]["values"]) for r in rules if r["action"] == "FailJob" and "onExitCodes" in r]
    if codes != [final]:
        wrong.append(f"{where}: FailJob at {codes}, not at the exit codes {final} of err.h")


def units_check(repository, final, wrong):
    for path in sorted((repository / "deploy/systemd").glob("*.service")):
        text = path.read_text()
        if "ExecStart=/usr/bin/atoll " not in text: # a script has exit codes of its own
            continue
        line = re.search(r"^RestartPreventExitStatus=(.*)$", text, re.M)
        if not line or sorted(int(x) for x in line.group(1).split()) != final:
            wrong.append(f"{path.name}: RestartPreventExitStatus is not {final} of err.h")


def documents_check(repository, final, wrong):
    runbook = (repository / "docs/runbook.md").read_text()
    words = f"everything but the exit codes 0, {', '.join(map(str, final[:-1]))} and {final[-1]}"
    if words not in " ".join((repository / "docs/launchers.md").read_text().split()):
        wrong.append(f"docs/launchers.md: does not say that service managers restart on {words}")
    errors = (repository / "kernels/base/err.h").read_text()
    codes = set(re.findall(r"X\(\d+, [A-Z]+, \"[^\"]*\", (\d+),", errors))
    rows = set(re.findall(r"^\| (\d+) \|", runbook[runbook.index("## 1. Exit codes"):runbook.index("## 2.")], re.M))
    if codes != rows:
        wrong.append(f"docs/runbook.md 1: the exit codes {sorted(codes ^ rows)} are in one of err.h and the table")
    line = re.search(r"^ +([0-9 |]+)\) break", (repository / "deploy/slurm/atoll.sbatch").read_text(), re.M)
    if not line or not set(map(str, final)) <= set(line.group(1).replace(" ", "").split("|")):
        wrong.append(f"atoll.sbatch: runs again after one of {final}")


def main():
    repository = pathlib.Path(sys.argv[1])
    final, wrong, count = exits_final(repository), [], 0
    for path in sorted((repository / "deploy/kubernetes").glob("*.yaml")):
        for value in yaml.safe_load_all(path.read_text()):
            where = f"{path.name} {value.get('kind')} {value.get('metadata', {}).get('name')}"
            count += 1
            walk(value, "", where, wrong)
            if kubernetes_validate:
                whole_check(value, where, wrong)
            wrong += [f"{where}.spec: '{n}' is a required property" for n in SPECS.get(value["kind"], ()) if n not in value["spec"]]
            if value["kind"] == "Job":
                exits_check(value, where, final, wrong)
    units_check(repository, final, wrong)
    documents_check(repository, final, wrong)
    for line in wrong:
        print(line)
    print(f"{count} objects, by {'whole schemas' if kubernetes_validate else 'the rules above: no kubernetes-validate'}")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
