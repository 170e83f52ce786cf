# `make` lists the targets. CI runs nothing that is not one of them.
GO    ?= go
TIME  ?= 60s
SEEDS ?= 2000
CYCLES ?= 200
SEED  ?=
BIN   := bin/tidemark
GOLANGCI := golangci-lint

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/tidemark
	$(GO) build -trimpath -o $(BIN) ./cmd/tidemark

.PHONY: run
run: ## run one broker on localhost:9092
	$(GO) run ./cmd/tidemark start

.PHONY: check
check: fmt-check vet lint test ## what must pass before a commit

.PHONY: test
test: ## all tests, invariants compiled in
	$(GO) test -tags invariants ./...

.PHONY: race
race: ## all tests under the race detector
	$(GO) test -race ./...

.PHONY: fmt-check
fmt-check: ## fail if a file is not gofmt-ed
	@out=$$(gofmt -l cmd internal compat bench 2>/dev/null); [ -z "$$out" ] || { echo "not gofmt-ed: $$out"; exit 1; }

.PHONY: vet
vet: ## go vet, for Linux and for macOS
	$(GO) vet ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...

.PHONY: lint
lint: ## golangci-lint with .golangci.yml
	$(GOLANGCI) run ./...

.PHONY: tidy-check
tidy-check: ## fail if go.mod is not tidy
	$(GO) mod tidy -diff

.PHONY: fuzz
fuzz: ## every fuzz target for TIME (60s)
	scripts/fuzz.sh $(TIME)

.PHONY: crash
crash: ## CYCLES (200) times kill -9 under load; CRASH_SEED=n replays
	$(GO) test ./cmd/tidemark -run '^TestCrash$$' -v -count=1 -timeout 60m -args -crash.cycles=$(CYCLES) -crash.seed=$(or $(SEED),0)

.PHONY: cluster
cluster: ## three brokers on this machine, until Ctrl-C
	scripts/cluster.sh

.PHONY: cluster-crash
cluster-crash: ## CYCLES (200) times hurt one of three brokers under load: kill -9, or stand still
	$(GO) test ./cmd/tidemark -run '^TestClusterCrash$$' -v -count=1 -timeout 120m -args -cluster.cycles=$(CYCLES) -cluster.stops -crash.seed=$(or $(SEED),0)

.PHONY: cluster-scale
cluster-scale: ## PARTITIONS (10,000) of three replicas on three brokers: creation, failover, memory, idle; figures beside their aims
	$(GO) test ./cmd/tidemark -tags scale -run '^TestClusterScale$$' -v -count=1 -timeout 15m -args -scale.partitions=$(or $(PARTITIONS),10000) -scale.idle=15s

.PHONY: chaos
chaos: ## CYCLES (200) times kill, stop, cut off or slow the brokers of a cluster under load; SEED=n replays (wants root, strace)
	$(GO) test ./cmd/tidemark -tags netns -run '^TestClusterChaos$$' -v -count=1 -timeout 120m -args -cluster.cycles=$(CYCLES) -crash.seed=$(or $(SEED),0)

.PHONY: hostile
hostile: ## hostile frames and 9,000 half-open connections
	$(GO) test ./cmd/tidemark -run '^TestHostileFrames$$' -v -count=1 -args -hostile.connections=9000

.PHONY: disk-full
disk-full: ## fill a tmpfs of 512 MiB (wants root)
	$(GO) test ./cmd/tidemark -tags diskfull -run '^TestDiskFull$$' -v -count=1 -timeout 15m

.PHONY: bench-quick
bench-quick: ## benchmarks of the packages, each beside its raw limit
	@scripts/bench-quick.sh $(BENCHTIME)

.PHONY: compat
compat: ## other people's test suites on tidemark and on Apache Kafka; SUITE=a,b PEER=tidemark (wants a JDK and Maven)
	cd compat && $(GO) run ./cmd/compat $(if $(SUITE),-suite $(SUITE)) $(if $(PEER),-peer $(PEER)) $(COMPAT_FLAGS)

.PHONY: compat-tools
compat-tools: ## Apache Kafka's tools and readers against a broker (wants a JDK, Maven and kcat)
	cd compat && $(GO) test -count=1 -timeout 30m -v ./...

.PHONY: power-cut
power-cut: ## SEEDS (2,000) simulated power cuts; SEED=n replays one
	$(GO) test ./internal/commitlog -run '^TestPowerCut' -count=1 -timeout 60m -args $(if $(SEED),-seed=$(SEED),-seeds=$(SEEDS))

.PHONY: sim
sim: ## SEEDS (2,000) simulated histories of a cluster, and its scenarios; SEED=n replays one
	$(GO) test ./internal/sim -count=1 -timeout 120m -args $(if $(SEED),-seed=$(SEED),-seeds=$(SEEDS))

.PHONY: sim-mutants
sim-mutants: ## leave out one check of the replicas at a time: a history must miss it
	$(GO) test -tags mutants ./internal/sim -run Mutants -count=1 -timeout 60m

.PHONY: bench
bench: ## tidemark beside Apache Kafka and NATS in under 30 minutes: a table of ratios (wants root, a JDK and Maven)
	scripts/bench.sh $(BENCH_FLAGS)

.PHONY: bench-full
bench-full: ## the same by the whole protocol, for an idle machine: A B B A, 5 repeats, a minute each (about six hours)
	scripts/bench.sh -full $(BENCH_FLAGS)

.PHONY: bench-groups
bench-groups: ## processor time of a broker with 500 steady consumer groups of 3 (GROUPS_FLAGS)
	cd compat && $(GO) run ./cmd/groups $(GROUPS_FLAGS)
