#!/bin/sh
# Five seconds of random inputs find nothing; more: tests/fuzz/lab_fuzz.sh SECONDS.
exec sh "$(dirname "$0")/lab_fuzz.sh" 5
