#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The records of a run directory as a run of MLflow: to_mlflow.py DIR. Each call logs what has come since the last one."""
import sys

import mlflow
from atoll.metrics import records

start = next(records(sys.argv[1], "start"))
name = start["site"] or "alone"
mlflow.set_experiment(start["run"])
found = mlflow.search_runs(filter_string=f"tags.`mlflow.runName` = '{name}'", output_format="list")
with mlflow.start_run(run_id=found[0].info.run_id if found else None, run_name=name) as run:
    last = float(run.data.tags.get("atoll.t", 0))
    for r in records(sys.argv[1]):
        if r["kind"] in ("step", "round", "eval") and r["t"] > last:
            numbers = {f"{r['kind']}/{key}": x for key, x in r.items() if isinstance(x, (int, float))}
            mlflow.log_metrics(numbers, step=r["step"], timestamp=int(1000 * r["t"]))
    mlflow.set_tag("atoll.t", r["t"])
