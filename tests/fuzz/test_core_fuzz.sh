#!/bin/sh
# Ten seconds of random inputs find nothing; more: tests/fuzz/core_fuzz.sh SECONDS.
exec sh "$(dirname "$0")/core_fuzz.sh" 10
