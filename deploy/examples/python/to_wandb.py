#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The records of a run directory as a run of Weights & Biases: to_wandb.py DIR. Once after the run; each call makes a new run."""
import sys

import wandb
from atoll.metrics import records

start = next(records(sys.argv[1], "start"))
with wandb.init(project=start["run"], name=start["site"] or "alone", config={"atoll": start["config"]}) as run:
    for kind in ("step", "round", "eval"):
        run.define_metric(f"{kind}/*", step_metric=f"{kind}/step")
    for r in records(sys.argv[1]):
        if r["kind"] in ("step", "round", "eval"):
            run.log({f"{r['kind']}/{key}": x for key, x in r.items() if isinstance(x, (int, float))})
