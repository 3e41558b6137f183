#!/bin/sh
# Model-checks the core's protocol: breaker.pml and panel.pml in a set of sizes that takes about a minute, and their mutants,
# each of which must fail.  The numbers in brackets are those of docs/design-rules.md.
#
#   run.sh           the set below
#   run.sh --large   bigger sizes too: some minutes, 4 GB
#
# One line each:  ok|caught  title  states  seconds.  Exit status 1 if anything is not as it should be.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/neap-model.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT INT TERM
failures=0

for tool in spin gcc; do
  command -v $tool >/dev/null || { echo "run.sh: $tool is needed (Debian: apt-get install spin gcc)" >&2; exit 1; }
done

model=breaker

# check EXPECTED TITLE FLAGS...: EXPECTED is ok or caught.
check() {
  expected=$1 title=$2
  shift 2
  cd "$work" || exit 1
  rm -f pan* ./*.trail
  start=$(date +%s)
  optimize=-O1
  [ "$expected" = ok ] || optimize=-O0 # a mutant is found sooner than a faster search compiles
  if ! spin -a "$@" "$here/$model.pml" >spin.log 2>&1 || ! gcc $optimize -w -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -o pan pan.c 2>cc.log; then
    cat spin.log cc.log
    echo "broken   $title"
    failures=$((failures + 1))
    return
  fi
  ./pan -m1000000 >pan.log 2>&1
  seconds=$(($(date +%s) - start))
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored$/\1/p' pan.log)
  if grep -q "errors: 0" pan.log && ! grep -q -e "search was not completed" -e "max search depth too small" -e "out of memory" pan.log; then
    got=ok
  elif grep -q -e "assertion violated" -e "invalid end state" pan.log; then
    got=caught
  else
    got=incomplete
  fi
  if [ $got = "$expected" ]; then
    printf "%-8s %-70s %10s states %3s s\n" $got "$title" "$states" "$seconds"
  else
    printf "%-8s %-70s expected: %s\n" $got "$title" "$expected"
    grep -e "violated" -e "invalid" -e "too small" -e "memory" pan.log
    failures=$((failures + 1))
  fi
}

small="-DNW=2 -DK=1 -DCRASH=1"
check ok     "machine: two callers, one dies"                       $small -DCONC=2
check ok     "machine: two calls each, one dies"                    -DNW=2 -DK=2 -DCRASH=1 -DPROBES=1 -DSUCC=1 -DTMAX=2
check ok     "machine: different rules"                             $small -DMIXED -DCONC=2
check ok     "machine: different rules and modes, one dies"         $small -DMIXED -DMODES
check ok     "machine: a reset at any time"                         -DNW=2 -DK=1 -DCRASH=0 -DRESETS=1
check ok     "machine: auto, shadow, forced_open at random"         $small -DMODES
check ok     "machine: the clock goes back"                         -DNW=2 -DK=1 -DCRASH=0 -DSTEPBACK -DCONC=2
check caught "machine: mutant without a lease"                      $small -DNOLEASE
check caught "machine: mutant without a verdict at acquire"         -DNW=2 -DK=1 -DCRASH=0 -DMIXED -DNOVERDICT
check caught "machine: mutant without the epoch in a report"        -DNW=2 -DK=2 -DCRASH=0 -DPROBES=1 -DSUCC=1 -DNOEPOCH
check caught "machine: mutant without a limit on probes at once"    $small -DNOCONC
check caught "machine: a copied permit, reported twice"             -DNW=2 -DK=1 -DCRASH=0 -DCONC=2 -DDUP
check caught "machine: two words, wedged by a death"                $small -DTWOWORD
check caught "machine: two words that help, two rounds of an epoch" -DNW=2 -DK=2 -DCRASH=0 -DPROBES=1 -DSUCC=1 -DTWOWORD -DHELP

window="-DWINDOW -DNR=2 -DNB=2"
rate="$window -DRATE -DMIN=2"
check ok     "window: a threshold of failures, one dies"            $window -DNC=1 -DTH=2 -DCRASH=1
check ok     "window: slices expire"                                $window -DNC=0 -DTH=9 -DCYCLES=2 -DTMAX=3
check ok     "window: the clock goes back by more than two laps"    $window -DNC=0 -DTH=9 -DTMAX=5 -DSTEPBACK
check ok     "window: another geometry at any time"                 $window -DNC=1 -DTH=2 -DGEOM=1
check ok     "window: to another geometry and back, one dies"       $window -DNC=1 -DTH=2 -DGEOM=2 -DCRASH=1
check ok     "window: a rate, successes look only when they must"   $rate -DNC=1 -DCRASH=1
check ok     "window: a rate, over two epochs"                      $rate -DNC=1 -DCYCLES=2 -DTMAX=0
check ok     "window: a rate and another geometry at any time"      $rate -DNC=0 -DCYCLES=2 -DTMAX=0 -DGEOM=1
check caught "window: mutant that wipes, then closes"               $window -DNC=1 -DTH=2 -DWIPE=1
check caught "window: mutant that closes, then wipes"               $window -DNC=1 -DTH=2 -DWIPE=2
check caught "window: mutant that keeps sums of older slices"       -DWINDOW -DNR=3 -DNC=0 -DNB=3 -DTH=3 -DCACHE=1
check caught "window: ... of all but the last two"                  -DWINDOW -DNR=3 -DNC=0 -DNB=3 -DTH=3 -DTMAX=2 -DCACHE=2
check caught "window: mutant that sums up to its own clock"         $window -DNC=1 -DTH=2 -DOWNT
check caught "window: mutant whose successes never look"            $rate -DNC=0 -DBLIND
check caught "window: mutant that marks after it has summed"        $rate -DNC=0 -DLATEMARK
check caught "window: mutant that replaces a newer mark"            $rate -DNC=1 -DCYCLES=2 -DTMAX=0 -DOLDMARK

check ok     "ring: two outcomes, one is lost with its process"     -DRING -DNR=2 -DCYCLES=1 -DCRASH=1
check ok     "ring: four outcomes"                                  -DRING -DNR=2 -DCYCLES=2
check caught "ring: mutant that keeps slots of an older epoch"      -DRING -DNR=2 -DCYCLES=2 -DDIRTY
check caught "ring: mutant that claims no position"                 -DRING -DNR=2 -DCYCLES=1 -DALONE

model=panel
open="-DOPENING -DNP=2"
check ok     "rows: two claim, one dies"                            -DNP=2 -DCRASH=1
check caught "rows: mutant that stores the hash"                    -DNP=2 -DNOSWAP
check caught "rows: mutant that goes on after a lost swap"          -DNP=2 -DSKIP
check caught "rows: mutant whose makers alone write names"          -DNP=2 -DOWNNAME -DCRASH=1
check caught "rows: mutant that tells of a name before it is there" -DNP=2 -DEARLY
check ok     "file: three open it, one dies"                        -DOPENING -DNP=3 -DCRASH=1
check ok     "file: three open one of no use, two die"              -DOPENING -DNP=3 -DCRASH=2 -DBAD
check caught "file: mutant that makes it under its name"            $open -DINPLACE
check caught "file: mutant that does not look again"                $open -DONELOOK
check caught "file: mutant without a lock"                          $open -DNOLOCK
check caught "file: mutant that mends one in place"                 $open -DCUT -DBAD
model=breaker

if [ "${1:-}" = --large ]; then
  check ok   "machine: two calls each, two die, two at once"        -DNW=2 -DK=2 -DCRASH=2 -DCONC=2
  check ok   "machine: three callers, three die"                    -DNW=3 -DK=1 -DCRASH=3 -DPROBES=3 -DCONC=2 -DTMAX=2
  check ok   "machine: two calls each and a reset"                  -DNW=2 -DK=2 -DCRASH=1 -DRESETS=1
  check ok   "machine: different rules and a reset, one dies"       $small -DMIXED -DRESETS=1
  check ok   "window: two reporters, two closers, one dies"         $window -DNC=2 -DTH=2 -DCYCLES=2 -DCRASH=1
  check ok   "window: a rate of three reporters"                    -DWINDOW -DNR=3 -DNB=2 -DRATE -DMIN=3 -DNC=0
  check ok   "window: a rate over two epochs and two slices"        $rate -DNC=1 -DCYCLES=2
  check ok   "window: the clock goes back, two reports each"        $window -DNC=0 -DTH=9 -DCYCLES=2 -DTMAX=5 -DSTEPBACK
  check ok   "window: a rate, to another geometry and back"         $rate -DNC=0 -DCYCLES=2 -DTMAX=0 -DGEOM=2 -DCRASH=1
  check ok   "ring: three reporters, one dies"                      -DRING -DNR=3 -DCYCLES=1 -DCRASH=1
  model=panel
  check ok   "rows: three names for two rows, two claims each"      -DNP=2 -DK=2 -DNN=3 -DCRASH=1
  check ok   "rows: three claim, one dies"                          -DNP=3 -DCRASH=1
fi

if [ $failures -gt 0 ]; then
  echo "$failures not as expected"
  exit 1
fi
