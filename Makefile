# What there is to run. `make test` is the whole suite; it needs Go, Nix, git and a
# static busybox, which
# `e2e/install-deps` installs on Debian.

.PHONY: build test lint nix-lint unit fixture-test test-other-nix e2e kube faults demo demo-down bench update

build:
	go build -o nixbench ./cmd/nixbench

test: lint nix-lint unit fixture-test test-other-nix

lint:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted; run gofmt -w"; exit 1; }
	go vet ./...
	go tool staticcheck ./...

# Nix has no linter of its own, but its parser finds undefined variables, too.
nix-lint:
	git ls-files --cached --others --exclude-standard '*.nix' | xargs -r -n 1 nix-instantiate --parse > /dev/null

# Everything in Go: unit tests, and one script per command against the real Nix.
unit:
	go test -race ./...

# The mini NixOS that the other tests stand on.
fixture-test:
	e2e/mini-nixos/tests/run

# The same tests once more with another Nix: Debian trixie's, beside this machine's.
test-other-nix:
	PATH="$$(e2e/other-nix trixie):$$PATH" && export PATH && nix --version && \
	  go test -count=1 ./nixeval/... ./cmd/... ./e2e/flake && e2e/mini-nixos/tests/run

# Everything once more on real machines, as root, after `e2e/lab/lab install`. The tests
# mostly wait for machines, so some run side by side; not more, since some look at the clock.
e2e: kube
	NIXBENCH_E2E=1 go test -count=1 -p 2 -parallel 3 -timeout 40m ./e2e/... ./deploy/... ./cmd/nixbench

# What Kubernetes nodes need: minutes when nothing is cached. Here, because a test that
# has to wait for it may reach its time limit.
kube:
	e2e/kube/build > /dev/null
	e2e/kube/build v1.34.3 > /dev/null
	e2e/kube/build cri-o-v1.34.0 > /dev/null
	e2e/kube/build flannel-v0.28.4 > /dev/null

# Runs of nixbench that are broken on purpose, and the runs after them, as root, after
# `e2e/lab/lab install`: SEEDS of them, from SEED on, WORKERS at the same time. The report goes to OUT.
SEEDS ?= 100
SEED ?= 1
faults:
	go run ./e2e/faults -seed $(SEED) -seeds $(SEEDS) $(if $(WORKERS),-workers $(WORKERS)) $(if $(OUT),-out $(OUT))

# The reference cluster on this computer, from nothing, as root; and gone again.
demo:
	demo/up

demo-down:
	demo/down

bench:
	go run ./bench instantiate
	go run ./bench noop
	go run ./bench fleet

# Generated files, and those that scripts compare with.
update:
	go test ./e2e/house -update
	go test ./e2e/docs -update
	go test ./deploy/report -run Golden -update
	go test ./cmd/nixbench -run TestCommandReference -update
	UPDATE_SCRIPTS=1 go test -count=1 ./cmd/nixbench
