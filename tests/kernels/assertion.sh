#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: the runbook promises exit code 5 of a failed assertion, with file, line and condition.
#   tests/kernels/assertion.sh BUG
for way in plain sealed; do
    status=0
    said=$("$1" $way 2>&1) || status=$?
    [ "$status" -eq 5 ] || { echo "$way: wanted exit code 5, got $status: $said"; exit 1; }
    case $way in plain) words="bug.c:15: this must hold: !p" ;; *) words="this must hold: !a->sealed" ;; esac
    case $said in *"$words"*"exit code: 5"*) ;; *) echo "$way: $said"; exit 1 ;; esac
done
