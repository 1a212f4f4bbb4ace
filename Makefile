# make without a target lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# The linters' versions are those of tools/go.mod.
TOOL := go tool -modfile=tools/go.mod

FUZZTIME ?= 20s
STEPS    ?= 100000
MUTANT   ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: test
test: ## run all tests
	go test ./...

.PHONY: short
short: ## run the tests without the long ones
	go test -short ./...

.PHONY: race
race: ## run all tests under the race detector
	go test -race -timeout 15m ./...

.PHONY: lint
lint: ## check the format and the workflows, vet and staticcheck
	tools/lint.sh

.PHONY: fmt
fmt: ## format all Go files
	$(TOOL) gofumpt -w .

.PHONY: bench
bench: ## measure against its peers: five interleaved runs of every case
	cd bench && go run .

.PHONY: bench-quick
bench-quick: ## the same within three minutes (RUNS=1 for one run of each case)
	cd bench && go run . -quick -runs $(or $(RUNS),3)

.PHONY: mutants
mutants: ## check that the tests find every seeded bug (MUTANT=part of a name for some; MUTANT_SHARE=8 for those that changes concern and an eighth of the others, MUTANT_MOST=330 for so many of these, as CI does)
	testdata/mutants/run.sh $(MUTANT)

.PHONY: engines
engines: ## run the suite on Redis and on Valkey, which is installed from Debian's backports if it is missing
	tools/engines.sh

.PHONY: chaos
chaos: ## 100,000 jobs through worker processes that are killed every second
	go test ./worker -run 'TestChaos' -chaos.jobs=100000 -chaos.duration=60s -timeout 20m -count=1 -v

.PHONY: batches
batches: ## batches of 100,000 jobs through worker processes of which one is killed every second (STEPS=n for n jobs)
	set -o pipefail; go test ./worker -run 'TestBatchesUnderKills' -flows.members=$(STEPS) -flows.size=1000 -timeout 60m -count=1 -v | grep -aEv '^ *(=== |child_test|time=)'

.PHONY: suspects
suspects: ## 200 jobs whose processes are killed twice, and 200 jobs and a bomb; three minutes
	set -o pipefail; go test ./worker -run 'TestTwoKills|TestBombAmongInnocents' -suspects.jobs=200 -suspects.length=15s -suspects.ttl=4s -timeout 20m -count=1 -v | grep -aEv '^ *(=== |child_test|time=)'

.PHONY: lines
lines: ## 100,000 jobs of 1,000 serial groups through processes of which one is killed each second, on one Redis and on a Cluster; what is used of a rate, also of one that changes
	set -o pipefail; go test ./worker -run 'TestLinesUnderKills|TestRatesAreUsed|TestRatesThatChange|TestRunningLimitsAreUsed' -proof.jobs=100000 -proof.lines=1000 -proof.rate=2000 -parallel 1 -timeout 30m -count=1 -v | grep -aEv '^ *(=== |child_test|time=)'

.PHONY: walk
walk: ## 100,000 random transitions of queues with groups, as many with unique keys, and as many with batches, 10,000 walks of moves and 2,000 of copies of dead jobs with failovers, and what they leave checked (STEPS=n for n)
	set -o pipefail; go test ./internal/store -run 'TestGroupWalk$$|TestUniqueWalk$$|TestFlowWalk$$|TestMoveWalk$$|TestCopyWalk$$' -walk.steps=$(STEPS) -parallel 4 -timeout 170m -count=1 -v | grep -aEv '^ *(=== |--- PASS)'

.PHONY: lock-proof
lock-proof: ## model, scenarios and histories under faults of the locks, ten minutes, kept in docs/internals/reliability (QUICK=1: three, more on a busy machine, not kept)
	cd tests/proof && go run . $(if $(QUICK),-quick,-out ../../docs/internals/reliability/lock-proof.txt)

.PHONY: effects
effects: ## 1,000 guarded increments on each of five lockers under SIGSTOPs and SIGKILLs, and a twin without a guard that loses some; three minutes (QUICK=1: half a minute)
	cd tests/effects && go run . $(if $(QUICK),-quick)

.PHONY: outbox
outbox: ## 100,000 rows from 8 writers, relays killed each second, on each database; a million rows of backlog on PostgreSQL
	cd tests/outboxsql && go test -count=1 -timeout 60m -run 'TestRelaysAreKilled' -v . -kill.rows 100000
	cd tests/outboxsql && go test -count=1 -timeout 60m -run 'TestDrain/postgresql' -v . -drain.rows 1000000

.PHONY: come-over
come-over: ## move 20,000 tasks of a service on asynq while it goes on and movers fail at each call, and each of its processes is killed in turn, every 2 s; on two Redis servers, one, and a Cluster (TASKS=600: the short form, as in CI)
	set -o pipefail; cd tests/comeover && go test -run 'TestComeOver' -comeover.tasks=$(or $(TASKS),20000) -comeover.every=$(if $(TASKS),500ms,2s) -parallel 1 -timeout 30m -count=1 -v . | grep -o 'come-over: .*\|^---.*\|^ok.*\|^FAIL.*\|_test.go.*'

.PHONY: transfer
transfer: ## move money by jobs from an outbox, while every process is killed
	cd examples/more/transfer && go run .

.PHONY: restarts
restarts: ## 1,000 restarts of Redlock's servers with older memories (snapshots, append-only files): tokens only rise; four minutes
	set -o pipefail; go test ./lock/redlock -run 'TestTokensRiseOverRestarts$$' -restarts.count=1040 -timeout 15m -count=1 -v | tee /dev/stderr | grep -o 'restarts: .*' | tail -n 1

.PHONY: rolling
rolling: ## 3 and 5 nodes of Redlock restarted one after the other, ten times, under a holder that extends and a contender: never lost, never two holders; four minutes
	set -o pipefail; go test ./lock/redlock -run 'TestHolderOutlivesARollingRestart$$' -rolling.rounds=10 -timeout 15m -count=1 -v | tee /dev/stderr | grep -o 'rolling: .*' | tail -n 2

.PHONY: cron
cron: ## ten scheduler processes run one entry for 30 s, one killed and one started on the way; 20,000 entries due at once; ten run 200 for a minute, with kills, stops and restarts of Redis
	go test ./scheduler -run TestTenProcesses -cron.duration=30s -count=1 -v
	go test ./scheduler -run TestCrowdOnRedis -cron.entries=20000 -count=1 -v
	go test ./scheduler -run TestEveryTickOnce -cron.proof=60s -count=1 -v

.PHONY: model
model: ## check the models of the lock, the token and the outbox with spin (LONG=1: larger bounds too, up to ten minutes, kept in docs/internals/reliability)
	lock/model/run.sh $(if $(LONG),-out docs/internals/reliability/model.txt -long)
	outbox/model/run.sh $(if $(LONG),-long)
	$(if $(LONG),lock/model/quote.sh docs/internals/reliability/model.txt docs/internals/reliability.md)

.PHONY: web
web: ## look at the web pages in a real Chromium, with axe, over a real Redis with workers: all pages, widths and colours (QUICK=1: 360 and 1,440 px, two minutes at most; PICTURES=folder for pictures)
	cd tests && go run ./browser $(if $(QUICK),-quick) $(if $(PICTURES),-pictures $(abspath $(PICTURES)))

.PHONY: jaeger
jaeger: ## run examples/more/tracing against a real Jaeger and assert on what its API says (builds Jaeger once, seven minutes)
	examples/more/tracing/check.sh

.PHONY: quickstart
quickstart: ## run the example of the README
	go run ./examples/quickstart

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	tools/fuzz.sh $(FUZZTIME)

.PHONY: wire
wire: ## write docs/enqueue.lua, the script that producers in other languages send
	go test ./internal/store -run 'TestWireDocHasTheScript$$' -count=1 -update

.PHONY: docs
docs: ## run the commands that README.md and docs/ tell to run
	tools/docs.sh

.PHONY: release-check
release-check: ## fetch, build and run the public modules of this tree as a stranger would, and those of the version before with this root
	cd tools && go run ./release -check

.PHONY: release
release: ## commit and tag a release of all public modules, if CI passes; pushes nothing (VERSION=v0.2.0)
	cd tools && go run ./release $(VERSION)

.PHONY: tools
tools: ## build the linters into go's cache
	$(TOOL) staticcheck -version
	$(TOOL) gofumpt -version
	$(TOOL) actionlint -version

.PHONY: ci
ci: ## what must pass before a change lands; installs what it needs
	.ci/run
