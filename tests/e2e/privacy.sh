#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: atoll privacy prints a value that is not the accountant's, or takes input that means nothing.
. "$(dirname "$0")/lib.sh"

prints() { # prints "WORDS" ARGUMENTS...: ends well and says these words
    words=$1
    shift
    "$atoll" privacy "$@" >said.out 2>&1 || fail "exit code $? from: privacy $*"
    grep -qF -- "$words" said.out || fail "\"$words\" is not said by: privacy $*"
}
refuses() { # refuses CODE "WORDS" ARGUMENTS...
    code=$1 words=$2 status=0
    shift 2
    "$atoll" privacy "$@" >said.out 2>&1 || status=$?
    [ "$status" -eq "$code" ] || fail "wanted exit code $code, got $status from: privacy $*"
    grep -qF -- "$words" said.out || fail "\"$words\" is not said by: privacy $*"
}

budget="--q 0.01 --steps 1000 --delta 1e-5"
prints "PLD            epsilon 1.51538807  <- holds" account $budget --noise-multiplier 1.1
prints "RDP            epsilon 1.72529082, order 9" account $budget --noise-multiplier 1.1
prints "noise multiplier 6.00229072, 100 steps" account --q 1 --steps 100 --delta 1e-5 --epsilon 8
prints "exact          epsilon 8  <- holds" account --q 1 --steps 100 --delta 1e-5 --epsilon 8
prints "one owner more or less" account --unit owner $budget --noise-multiplier 1.1
prints "    32       0.32       63" banded --q 0.01 --steps 2000 --delta 1e-6 --epsilon 8
prints "at least 0.8199" audit --canaries 1000 --guesses 200 --correct 150 --delta 1e-5 --claim 1
prints "account" --help

refuses 1 "above the claimed epsilon 0.5" audit --canaries 1000 --guesses 200 --correct 150 --delta 1e-5 --claim 0.5
refuses 4 "either --noise-multiplier Z" account $budget
refuses 4 "either --noise-multiplier Z" account $budget --noise-multiplier 1 --epsilon 1
refuses 4 "--q" account --q 2 --steps 1000 --delta 1e-5 --noise-multiplier 1
refuses 4 "--delta" account --q 0.1 --steps 1000 --delta 0 --noise-multiplier 1
refuses 4 "--noise-multiplier" account $budget --noise-multiplier 0.001
refuses 4 "--steps N is missing" account --q 0.1 --delta 1e-5 --noise-multiplier 1
refuses 4 "give at most 100" banded --q 0.01 --steps 2000 --delta 1e-6 --epsilon 8 --bands 200
refuses 4 "no more right ones than guesses" audit --canaries 10 --guesses 5 --correct 6 --delta 0
refuses 4 "no more guesses than canaries" audit --canaries 10 --guesses 11 --correct 6 --delta 0
refuses 4 "account, banded, ledger, canaries, verify or audit" acount
refuses 4 "give --set DIR with --run.dir" audit --delta 1e-5
echo "values and refusals of atoll privacy are as stated"
