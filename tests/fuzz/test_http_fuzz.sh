#!/bin/sh
# Ten seconds of random inputs find nothing; more: tests/fuzz/http_fuzz.sh SECONDS.
exec sh "$(dirname "$0")/http_fuzz.sh" 10
