# make check   seconds: format, vet, staticcheck, unit and virtual-time tests; before every commit
# make test    minutes: installs what it needs, then everything, with real Kafka and compose
# make torture FAULTS=200   real processes and real Kafka under faults drawn from a seed; as root

# make power   the power of a node's disk cut off ROUNDS times, 200 by default; as root, a second each
# make bench   the figures of docs/performance.md that need processes and real Kafka
# make sim     an hour: plays SEEDS random scripts against a cluster in virtual time
# make mutants hours: puts each planted bug into a copy of the source and plays SEEDS seeds at most until one finds it

SHELL       := /bin/bash
# Debian keeps dockerd, debootstrap and mkfs.ext4 where users other than root do not look.
export PATH := $(PATH):/usr/sbin:/sbin

GOTESTSUM   := go run gotest.tools/gotestsum@v1.13.0
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
E2E         := ./cmd/carillon/e2e
UNIT         = $$(go list ./... | grep -v '/cmd/carillon/e2e$$')
SEARCHES    := ./broker/brokertest ./broker/kafka ./broker/schedule ./raftfsm ./storage/...
RACED        = $$(go list ./... | grep -vE '/cmd/carillon/e2e$$|/broker/(brokertest|kafka|schedule)$$|/raftfsm$$|/storage(/|$$)')

# Programs that the tests start, each with the Debian package that brings it.
PROGRAMS := gcc:build-essential git:git kcat:kcat javac:default-jdk-headless mvn:maven python3:python3 mkfs.ext4:e2fsprogs \
            dockerd:docker.io docker-compose:docker-compose iptables:iptables ip:iproute2 nsenter:util-linux debootstrap:debootstrap nginx:nginx-light

.PHONY: build check lint needs test searches torture power bench sim mutants

build:
	CGO_ENABLED=0 go build -trimpath -o carillon ./cmd/carillon

# Four packages at a time, although two cores may be all there are: much of it waits for the disk or a process.
check: lint
	go test -short -p 4 $(UNIT)

lint:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt these: $$unformatted"; exit 1; }
	go vet ./...
	$(STATICCHECK) ./...

needs:
	@missing=; \
	for pair in $(PROGRAMS); do command -v $${pair%:*} >/dev/null || missing+=" $${pair#*:}"; done; \
	python3 -c 'import ensurepip' 2>/dev/null || missing+=" python3-venv"; \
	[ -z "$$missing" ] && exit; \
	command -v apt-get >/dev/null || { echo "install what these Debian packages bring:$$missing"; exit 1; }; \
	sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	$$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q $$missing

# The parts are counted together, so that the last line speaks of all. When nothing but the lint or
# a build fails, that counts as one failure. Under CI a skipped test fails the run. Lint has vetted all of it.
# The packages of SEARCHES spend their time on clusters in virtual time and on random tests against models,
# which take the race detector five times the processor. So all of these tests run without it, and under it the
# short ones, which are of every kind.
# In a bubble of synctest, timers that are due at once and are set on two processors at the same time share one
# context of the race detector, in Go 1.26, which crashes. So what runs in bubbles most has one processor under it.
# None of these notices how long it waits for a processor. So they run beside all others, of which those with real
# processes leave processors idle, and yield to them: that is what nice is for.
test: needs
	@results=$$(mktemp -d); trap 'rm -rf $$results' EXIT; status=0; \
	$(MAKE) --no-print-directory lint || status=1; \
	nice -n 19 $(MAKE) --no-print-directory searches RESULTS=$$results & searches=$$!; \
	$(GOTESTSUM) --format pkgname --jsonfile $$results/unit -- -race -vet=off -count=1 -timeout 20m $(RACED) || status=1; \
	$(GOTESTSUM) --format standard-verbose --jsonfile $$results/e2e -- -count=1 -parallel 3 -timeout 30m $(E2E) || status=1; \
	wait $$searches || status=1; \
	count() { cat $$results/* | grep -cE "\"Action\":\"$$1\",\"Package\":\"[^\"]*\",\"Test\":"; }; \
	passed=$$(count pass); failed=$$(count fail); skipped=$$(count skip); \
	[ $$failed -gt 0 ] || failed=$$status; \
	[ "$$CI" != true ] || [ $$skipped = 0 ] || status=1; \
	echo "$$passed passed, $$failed failed, $$skipped skipped"; \
	exit $$status

# A part of test, which counts what it leaves in RESULTS.
searches:
	@status=0; \
	$(GOTESTSUM) --format pkgname --jsonfile $(RESULTS)/searches -- -vet=off -count=1 -timeout 30m $(SEARCHES) || status=1; \
	RAPID_CHECKS=20 $(GOTESTSUM) --format pkgname --jsonfile $(RESULTS)/raced -- -race -short -cpu 1 -vet=off -count=1 -timeout 30m $(SEARCHES) || status=1; \
	exit $$status

# Half of the faults with one Kafka broker, half with three. SEED=0: another one each time.
FAULTS  ?= 200
SEED    ?= 0
BROKERS ?= 1,3
torture: needs
	go test -run '^TestTorture$$' -count=1 -timeout 12h -v $(E2E) -faults $(FAULTS) -seed $(SEED) -brokers $(BROKERS)

ROUNDS ?= 200
power: needs
	CARILLON_POWER_ROUNDS=$(ROUNDS) go test -count=1 -timeout 60m -run TestPowerLoss_leavesAConsistentPrefix -v $(E2E)

bench: needs
	go test -run '^$$' -bench . -benchtime 1x -timeout 20m -v $(E2E)

# What is known is kept: a second run goes on where the first one ended.
SEEDS ?= 1000
sim:
	go run ./broker/brokertest/sim run -seeds $(SEEDS)

mutants:
	go run ./broker/brokertest/sim histories
	go run ./broker/brokertest/sim mutants -seeds $(SEEDS)
