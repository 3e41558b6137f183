# The core builds and works as plain C11 wherever it promises to: 32-bit words, and one thread without atomics.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
flags="-std=c11 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Werror -Icore/include -Icore/src"

build_and_run() {
  name=$1
  shift
  echo "$name: $*"
  "$@" $flags core/src/*.c tests/repo/smoke.c -o "$tmp/$name" -lpthread
  "$tmp/$name"
}

build_and_run gcc_m32 gcc -m32
build_and_run gcc_m32_single gcc -m32 -DNEAP_ATOMICS=0
build_and_run gcc_single gcc -DNEAP_ATOMICS=0
build_and_run clang_single clang -DNEAP_ATOMICS=0

# libc only: no allocation, no threads, no files; and no call into libatomic in a build without atomics.  What maps the file
# of a shared panel is a library of its own.
for file in $(ls core/src/*.c | grep -v panel_shared); do
  gcc -DNEAP_ATOMICS=0 $flags -c "$file" -o "$tmp/$(basename "$file").o"
done
forbidden=$(nm -u "$tmp"/*.o | awk '$2 ~ /^(malloc|calloc|realloc|free|pthread_.*|__atomic_.*|printf|abort|f?open.*|read|write|mmap.*|stat)$/ { print $2 }' | sort -u)
if [ -n "$forbidden" ]; then
  echo "the core must not call:" $forbidden
  exit 1
fi
