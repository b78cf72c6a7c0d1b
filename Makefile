GORELEASER = go run github.com/goreleaser/goreleaser/v2@v2.16.0
GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.8.0
CRANE = go run github.com/google/go-containerregistry/cmd/crane@v0.22.1
GREMLINS = github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0

# GOVULNDB may name a copy of the database: file:///path.
GOVULNDB ?= https://vuln.go.dev
FUZZ ?= .
FUZZTIME ?= 2m
MUTATE ?= internal/stock internal/config internal/buyer internal/admintoken internal/handler internal/queue internal/rate internal/service internal/service/strategy \
	internal/service/background internal/lock internal/lock/process internal/pause internal/telemetry internal/telemetry/metrics \
	internal/lab/history internal/lab/checker internal/lab/bench internal/lab/failpoint internal/load internal/load/verdict pkg/client

# Proofs that take minutes, and planted bugs, which are tried before a change lands.
PARTS = TestProveRoundTrips$$|TestProveTokensGrow|TestProveFiveThousandIdleConnections|TestProveAReplicaThatDiesTakesItsUnits
BUGS = audit-forgives-overselling|last-unit-unsold|late-holder-deletes|lost-commit-is-a-failure|lost-request-is-sent-again

# Where the programs of Vitess are built: they do not run as root, and another user must find them.
VITESS ?= /var/tmp/stockd-vitess
VITESS_PROGRAMS = $(addprefix vitess.io/vitess/go/cmd/,vtctld vtctldclient vtgate vttablet)

.PHONY: build release test prove prove-parts vitess prove-vitess helm fuzz mutate bench lint vuln images demo

build: ## bin/stockd, which a shop runs, and bin/stocklab, which shows and measures
	go build -tags nomsgpack -o bin/ ./cmd/stockd ./cmd/stocklab

release: ## bin/release, by .goreleaser.yaml: archives and packages for six systems, bills of materials, checksums
	@git ls-remote --get-url >/dev/null # without a remote goreleaser knows no commit, and says nothing
	$(GORELEASER) release --clean --snapshot --timeout 3h

test: ## every test, on real servers; with TESTFLAGS=-race under the race detector
	go run ./tools/test $(TESTFLAGS)

prove: ## the long proofs: many repetitions, planted bugs, kills
	go run ./tools/test -race -tags prove -timeout 90m -run Prove $(TESTFLAGS)

prove-parts: ## those of them that take minutes, which run before a change lands
	go run ./tools/test -race -tags prove -timeout 30m $(TESTFLAGS) \
		-run '$(PARTS)|TestProvePlantedBugsAreCaught/^($(BUGS))$$' \
		./cmd/stockd ./cmd/stocklab ./internal/lock/... ./internal/service/strategy ./internal/planted

vitess: ## the programs of Vitess, for the tests that sell on its shards: ten minutes the first time, 430 MB
	mkdir -p '$(VITESS)/module'
	cd '$(VITESS)/module' && { test -f go.mod || go mod init programs; } && go get $(VITESS_PROGRAMS:=@v0.24.4) && go build -o .. $(VITESS_PROGRAMS)

prove-vitess: vitess ## what is sold on its shards
	STOCKD_VITESS='$(VITESS)' go run ./tools/test -tags prove -timeout 60m -run Vitess ./cmd/stocklab ./internal/service ./internal/service/strategy

helm: ## the chart, held to what Helm and Kubernetes say of it
	cd deploy/helm && go test -count=1 ./...

fuzz: ## every parser of external input, FUZZTIME each; FUZZ=Deduct takes those whose name matches
	@targets=$$(git grep -oE '^func Fuzz\w+' -- '*_test.go' | sed -E 's|/[^/]*:func |:|' | grep -E ':.*$(FUZZ)') || { echo "fuzz: no target matches $(FUZZ)"; exit 1; }; \
	failed=; \
	for target in $$targets; do \
		echo "$$target"; \
		go test -run '^$$' -fuzz "^$${target#*:}\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s -parallel 1 "./$${target%:*}" || failed="$$failed $$target"; \
	done; \
	test -z "$$failed" || { echo "fuzz: failed:$$failed"; exit 1; }

mutate: ## small changes of the code of MUTATE, and how many of them the tests notice that need no server
	GOBIN=$(CURDIR)/bin go install $(GREMLINS)
	@failed=; \
	for package in $(MUTATE); do \
		echo "$$package"; \
		PATH="$$(go env GOROOT)/bin" GOFLAGS="$$GOFLAGS -skip=/^(mariadb|mysql)$$" bin/gremlins unleash "./$$package" || failed="$$failed $$package"; \
	done; \
	test -z "$$failed" || { echo "mutate: below the bound of .gremlins.yaml:$$failed"; exit 1; }

bench: build ## the strategies beside their limits, within 20 minutes
	bin/stocklab bench --json bin/benchmark.json --chart docs/benchmark.svg --markdown > docs/figures/benchmark.md

demo: build ## the first look
	bin/stocklab demo

lint:
	$(GOLANGCI) run ./...

vuln: ## known vulnerabilities in what is called; without their database a failure where VULN_REQUIRED is set
	@if curl -fsS --max-time 10 -o /dev/null $(GOVULNDB)/index/db.json; then \
		$(GOVULNCHECK) -db $(GOVULNDB) ./...; \
	else \
		echo "vuln: not checked: $(GOVULNDB) cannot be reached"; test -z "$(VULN_REQUIRED)"; \
	fi

images: ## asks the registries for the digests of all images, and writes them down
	@cp images.lock.yml images.lock.new; trap 'rm -f images.lock.new' EXIT; \
	for image in $$(grep -oE '"[a-z0-9./-]+:[A-Za-z0-9._-]+' images.lock.yml | tr -d '"'); do \
		digest=$$($(CRANE) digest "$$image") || exit 1; \
		sed -i -E "s|\"$$image(@sha256:[0-9a-f]+)?\"|\"$$image@$$digest\"|" images.lock.new || exit 1; \
	done; \
	cp images.lock.new images.lock.yml
