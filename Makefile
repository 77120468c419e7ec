# `make test` runs all tests that need no machines. As root on Debian it installs what they need: Nix, git, shellcheck and so on.

.PHONY: build test deps lint nix-lint shell-lint unit race fuzz fixture-test test-other-nix test-newest-nix e2e e2e-all kube kube-all faults real demo demo-down bench update

# Without the users that build for Nix, root builds, and without a sandbox.
ifeq ($(shell [ "$$(id -u)" = 0 ] && ! getent group nixbld > /dev/null && echo yes),yes)
define NIX_CONFIG ?=
build-users-group =
sandbox = false
substituters =
endef
export NIX_CONFIG
endif

build:
	go build -o nixbench ./cmd/nixbench

test: deps lint nix-lint shell-lint unit fixture-test

deps:
	e2e/install-deps

lint:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted; run gofmt -w"; exit 1; }
	go vet ./...
	go tool staticcheck ./...

# Nix has no linter, but its parser also finds undefined variables.
nix-lint:
	git ls-files --cached --others --exclude-standard '*.nix' | xargs -r -n 1 nix-instantiate --parse > /dev/null

# Programs of the repository and the files that they source. Scripts that are built from several files are checked by
# tests in Go, as they are built: TestShellcheck. Excluded: SC2015, since in `A && B || C` C reports an error or exits;
# SC2016, since variables in single quotes are for other programs.
shell-lint:
	git grep -lE --untracked '^#(!.*\b(ba|da)?sh\b| shellcheck shell=)' -- . ':!deploy/activate/sh' ':!deploy/secrets' \
	  ':!e2e/mini-nixos/nixos' ':!*.go' ':!*.md' ':!*.nix' ':!*.txtar' ':!Makefile' | xargs shellcheck -x -e SC2015,SC2016

# All tests in Go: unit tests, and one script per command with the real Nix. Many tests wait, for example for time limits, so more of them run
# at the same time than there are processors. The packages that take longest begin first.
unit:
	go test -vet=off -p 4 -parallel 5 ./deploy/stages ./cmd/nixbench ./deploy/activate ./...

# The packages with goroutines, with the race detector. Two slow tests are left out, because other tests start the same goroutines:
# TestHostileNode, which sends megabytes of lines, and TestScript, which tests the shell script of nodes. Each program would wait for a
# second when it ends; GORACE prevents this.
race:
	GORACE=atexit_sleep_ms=0 go test -race -vet=off -p 3 -parallel 5 -skip '^Test(HostileNode|Script)$$' ./deploy/stages ./deploy/... ./bench/... ./nixeval/...

# Try random inputs with each fuzz test, for FUZZTIME each. An input that fails is kept in testdata/fuzz of the package.
FUZZTIME ?= 1m
fuzz:
	@git grep -E '^func Fuzz' -- '*_test.go' | sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z]*).*|./\1 \2|' | while read -r package name; do \
	  echo "$$package $$name"; out=$$(go test "$$package" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x 2>&1) || { echo "$$out"; exit 1; }; \
	done

# Tests of the mini NixOS, which other tests use.
fixture-test:
	e2e/mini-nixos/tests/run

# The tests that depend on the version of Nix, with the Nix of another Debian release. They are no part of `make test`, whose results Go caches.
SUITE ?= trixie
test-other-nix:
	PATH="$$(e2e/other-nix $(SUITE)):$$PATH" && export PATH && nix --version && \
	  go test -count=1 -parallel 5 -skip '^TestHostileNode$$' ./nixeval/... ./deploy/closure/... ./cmd/... ./e2e/flake && e2e/mini-nixos/tests/run

# The same with the newest Nix of Debian. If the mirror is not kept up to date: OTHER_NIX_EXPIRED=1
test-newest-nix:
	$(MAKE) test-other-nix SUITE=sid

# The core end-to-end tests on real machines, as root, after `e2e/lab/lab install`: those of e2e/core.txt, two packages at a time.
e2e: kube
	awk '!/^#/ && NF { t[$$1] = t[$$1] "|" $$2 } END { for (p in t) print p, "^(" substr(t[p], 2) ")$$" }' e2e/core.txt | sort | \
	  NIXBENCH_E2E=1 xargs -P 2 -L 1 sh -c 'go test -count=1 -parallel 2 -timeout 30m -run "$$1" "./$$0"'

# All end-to-end tests, which take hours on two processors. A change of a subject ends with its package: make e2e-all PACKAGES=./e2e/kubernetes
PACKAGES ?= ./e2e/... ./deploy/activate ./deploy/closure ./deploy/secrets ./cmd/nixbench ./internal/bench
e2e-all: fuzz test-newest-nix kube kube-all
	NIXBENCH_E2E=1 go test -v -count=1 -p 2 -parallel 2 -timeout 150m $(PACKAGES)

# Build the programs of Kubernetes nodes, which takes minutes if they are not cached: a test
# that has to wait for the build may exceed its time limit. Only `make e2e-all` needs the second part.
kube:
	e2e/kube/build > /dev/null

kube-all:
	e2e/kube/build v1.34.3 > /dev/null
	e2e/kube/build cri-o-v1.34.0 > /dev/null
	e2e/kube/build flannel-v0.28.4 > /dev/null
	e2e/kube/build scheduler-plugins-v0.34.7 > /dev/null

# Inject faults into runs of nixbench, and check that the next run repairs everything; as root,
# after `e2e/lab/lab install`. It runs SEEDS seeds, beginning with SEED, WORKERS of them at the same
# time, and writes the report to OUT.
SEEDS ?= 100
SEED ?= 1
faults:
	go run ./e2e/faults -seed $(SEED) -seeds $(SEEDS) $(if $(WORKERS),-workers $(WORKERS)) $(if $(OUT),-out $(OUT))

# Test nixbench on machines that run a real NixOS, as root, after `e2e/lab/lab install`: NIXPKGS is the
# folder of a nixpkgs, SWITCH its program switch-to-configuration.
real:
	@[ -n "$(NIXPKGS)" ] && [ -n "$(SWITCH)" ] || { echo "usage: make real NIXPKGS=folder SWITCH=program"; exit 2; }
	@command -v xsltproc > /dev/null || { echo "NixOS' dbus module needs xsltproc: apt-get install xsltproc"; exit 2; }
	e2e/kube/build > /dev/null
	PATH="$$(e2e/other-nix trixie):$$PATH" NIXBENCH_E2E=1 NIXBENCH_NIXPKGS="$(abspath $(NIXPKGS))" NIXBENCH_SWITCH="$(abspath $(SWITCH))" \
	  go test -v -count=1 -timeout 40m ./e2e/real

# Create the reference cluster on this computer, as root, and remove it again.
demo:
	demo/up

demo-down:
	demo/down

# Measurements of nixbench's own speed, as root, after `e2e/lab/lab install`.
bench:
	go run ./internal/bench
	go test ./internal/bench -run '^$$' -bench . -benchtime 1x

# Write generated files, and the files that test scripts compare with.
update:
	go test ./e2e/docs -update
	go test ./cmd/nixbench -run TestCommandReference -update
	UPDATE_SCRIPTS=1 go test -count=1 ./cmd/nixbench
