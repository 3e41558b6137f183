# make help says what there is.

PRESET ?= dev
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: help run test build bench gates gates-quick fuzz soak format install uninstall packages docs clean

help:
	@echo "neap: a circuit breaker engine."
	@echo
	@echo "  make run      build, then watch a failing dependency behind neap: an upstream on :8016,"
	@echo "                the sidecar on :8080, its metrics on :9464.  Ctrl-C stops all of it."
	@echo "                Other ports: make run UPSTREAM_PORT=9016 LISTEN_PORT=9080 ADMIN_PORT=9465"
	@echo "  make test     everything that can be checked, as CI does it (some minutes)"
	@echo
	@echo "While working:"
	@echo "  make build    one preset (PRESET=dev, release, asan, tsan, clang) into build/PRESET"
	@echo "                then: ctest --preset dev, ctest --preset dev -R breaker, ctest --preset dev -L lua"
	@echo "  make format   lay out the C sources as CI wants them"
	@echo "  make docs     write again the tables of docs/policies.md, from neap.schema, and docs/neap.1,"
	@echo "                from neap --help"
	@echo "  make clean    remove build/"
	@echo
	@echo "Measuring:"
	@echo "  make bench    a table of what each operation costs on this machine; JSON=1: as JSON;"
	@echo "                PEERS=1: beside other breakers, which it installs into build/peers"
	@echo "  make gates    the limits neap keeps: one line each, fails if one is short"
	@echo "                (gates-quick: only what does not depend on time)"
	@echo "  make fuzz     random inputs, for SECONDS=60 per fuzzer"
	@echo "  make soak     the random, threaded and killed tests with ever new seeds, for SECONDS=600"
	@echo
	@echo "Installing:"
	@echo "  make install PREFIX=/usr/local   what others use, no tests built; DESTDIR=... as usual"
	@echo "  make uninstall                   what make install has put in place, and no more"
	@echo "  make packages                    Debian packages, into build/packages"
	@echo
	@echo "run, test, bench, gates and packages install with apt-get what is missing, as root or with"
	@echo "sudo, and print a list elsewhere.  Before make build: scripts/deps.sh test."

run:
	@scripts/deps.sh run
	@exec scripts/run.sh

test:
	@scripts/deps.sh test
	@scripts/test.sh

# Says what the compiler says, and no more: make's own lines and Ninja's are left out, but on a
# terminal how far they are.
NEEDS = $(or $(filter packages,$(PRESET)),$(if $(filter install,$(PRESET)),run,test))
build:
	@cmake --preset $(PRESET) >/dev/null || { \
	echo "make build: if something is missing, scripts/deps.sh $(NEEDS) installs it" >&2; exit 1; }
	@log=$$(mktemp) && trap 'rm -f "$$log" "$$log.failed"' EXIT && status=0; \
	{ env -u MAKELEVEL -u MAKEFLAGS cmake --build --preset $(PRESET) --parallel $(JOBS) || : >"$$log.failed"; } | \
	tee "$$log" | if [ -t 1 ]; then \
	  while read -r line; do case $$line in "["*"]"*) printf '\r%s]' "$${line%%]*}";; esac; done; printf '\r           \r'; \
	else cat >/dev/null; fi; \
	[ ! -e "$$log.failed" ] || status=1; \
	grep -v '^\[\|^-- \|^Consolidate compiler\|^Scanning dep\|^Re-checking\|^ninja: no work' "$$log"; \
	[ $$status -eq 0 ] && echo "built: build/$(PRESET)"

bench:
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build PRESET=release
	@sh tests/bench/bench.sh build/release $(if $(JSON),--json) $(if $(PEERS),--peers)

gates:
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build PRESET=release
	@sh tests/bench/gates.sh build/release

gates-quick:
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build PRESET=release
	@sh tests/bench/gates.sh build/release --quick

fuzz:
	@scripts/deps.sh test
	@scripts/fuzz.sh $(or $(SECONDS),60)

soak:
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build PRESET=release
	@sh tests/bench/gates.sh build/release --soak
	@scripts/soak.sh $(or $(SECONDS),600)

format:
	@find . -path ./build -prune -o -name '*.[ch]' -print | xargs clang-format -i

docs: build
	@LUA_PATH="lua/?.lua;lua/?/init.lua;;" lua5.4 scripts/reference.lua docs/policies.md
	@LUA_PATH="lua/?.lua;lua/?/init.lua;;" lua5.4 scripts/reference.lua docs/simulate.md
	@page=$$(lua5.4 scripts/man.lua build/$(PRESET)/bin/neap) && printf "%s\n" "$$page" >docs/neap.1

install: PRESET = install
install: build
	@umask 022; DESTDIR="$(DESTDIR)" cmake --install build/install $(if $(PREFIX),--prefix "$(PREFIX)") >/dev/null
	@echo "installed: $(DESTDIR)$(or $(PREFIX),/usr/local)"

uninstall:
	@cmake -DBUILD=build/install -P cmake/NeapUninstall.cmake

packages:
	@scripts/deps.sh packages
	@$(MAKE) --no-print-directory build PRESET=packages
	@rm -f build/packages/*.deb
	@umask 022; cd build/packages && cpack -G DEB >cpack.log 2>&1 || { cat cpack.log; exit 1; }
	@ls build/packages/*.deb

clean:
	@rm -rf build
