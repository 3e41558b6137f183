#!/bin/sh
# The protocol holds in the model, and its mutants do not: see run.sh.
exec sh "$(dirname "$0")/run.sh"
