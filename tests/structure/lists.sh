#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a build without the network, say, in which a test is missing, unsaid. A test is one line of
# one list: its NEEDS say which builds skip it (tests/CMakeLists.txt). So no test stands inside if(NET) and the like, and time limits
# have one factor, PATIENCE, which add_test() next to atoll_command() does not know.
cd "$(dirname "$0")/.." || exit 1
find . -name CMakeLists.txt | sort | xargs awk '
    FNR == 1 { depth = 0 }
    { sub(/#.*/, "") }
    /^ *if\((NOT )?(NET|PYTHON|NODE|CUDA|MPI|HAVE_MPI)[ )]/ && !inside { inside = 1; depth = 0 }
    inside && /^ *if\(/ { depth++ }
    inside && /atoll_(test|script|command|fuzz|skip)\(/ { print FILENAME ":" FNR ": a test inside if(..); give it NEEDS"; bad = 1 }
    inside && /^ *endif\(/ && --depth == 0 { inside = 0 }
    /^ *add_test\(/ && FILENAME != "./CMakeLists.txt" { print FILENAME ":" FNR ": add_test(); use atoll_command()"; bad = 1 }
    END { exit bad }'
