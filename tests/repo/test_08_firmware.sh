# The firmware of examples/08_firmware without a libc, at -Os: it runs, takes nothing from elsewhere
# but what is listed here, and the part of the core that it uses is within 12 KiB of code and
# constants.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
example=examples/08_firmware/firmware.c
flags="-std=c11 -Os -ffreestanding -ffunction-sections -fdata-sections -fno-pic -fno-stack-protector
  -fno-asynchronous-unwind-tables -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
  -Werror -DNDEBUG -DNEAP_ATOMICS=0 -Icore/include"
sources=$(ls core/src/*.c | grep -v -e /clock.c -e /panel_shared.c) # what needs a system

# firmware NAME BYTES COMPILER...: builds, runs, and holds the core's part of it against the limit
firmware() {
  name=$1
  limit=$2
  shift 2
  dir=$tmp/$name
  mkdir "$dir"
  for file in $sources $example; do
    "$@" $flags -c "$file" -o "$dir/$(basename "$file" .c).o"
  done
  "$@" $flags -O0 -c tests/repo/bare.c -o "$tmp/bare.o"
  "$@" -static -no-pie -nostdlib -Wl,--gc-sections "$dir"/*.o "$tmp/bare.o" -lgcc -o "$dir/firmware"
  "${LUA:-lua5.4}" tests/support/example.lua "$example" "$dir/firmware"

  # The part of the core that it uses, linked by itself.
  used=$(nm -u "$dir/firmware.o" | awk '$2 ~ /^neap_/ { print "-Wl,-u," $2 }')
  mv "$dir/firmware.o" "$tmp/"
  "$@" -r -nostdlib -Wl,--gc-sections -Wl,-e,neap_breaker_acquire $used "$dir"/*.o -o "$tmp/core.o"
  text=$(size "$tmp/core.o" | awk 'END { print $1 + $2 }')
  all=$(size -t "$dir"/*.o | awk 'END { print $1 + $2 }')
  echo "$name: the core takes $text bytes of at most $limit ($all with what this one does not use)"
  [ "$text" -le "$limit" ]

  foreign=$(nm -u "$dir"/*.o | awk '$1 == "U" && $2 !~ /^neap_/ { print $2 }' | sort -u)
  echo "$name: takes from libc and libgcc:" $foreign
  for symbol in $foreign; do
    case $symbol in
      memcpy | memset) ;;
      memchr) ;; # panels only
      __popcountdi2 | __udivdi3 | __divdi3) ;; # libgcc
      *) echo "not in the list of what a firmware must provide: $symbol"; exit 1 ;;
    esac
  done
}

firmware x86-64 12288 gcc
firmware i386 19456 gcc -m32 # which spells 64-bit arithmetic at length, other than ARM
