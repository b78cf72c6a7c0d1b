SYFT = go run github.com/anchore/syft/cmd/syft@v1.57.0
GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: build test race prove prove-parts helm fuzz mutate bench lint vuln sbom images demo

build: ## bin/stockd, which a shop runs, and bin/stocklab, which shows and measures
	go build -tags nomsgpack -o bin/ ./cmd/stockd ./cmd/stocklab

test: ## every test, on real servers
	go run ./tools/test $(TESTFLAGS)

race: ## the same with the race detector, in twice the time
	go run ./tools/test -race $(TESTFLAGS)

prove: ## the long proofs: many repetitions, planted bugs, kills
	go run ./tools/test -race -tags prove -timeout 90m -run Prove $(TESTFLAGS)

prove-parts: ## those of them that take minutes, which run before a change lands
	go run ./tools/test -race -tags prove -timeout 30m $(TESTFLAGS) \
		-run 'TestProve(RoundTrips|TokensGrow|FiveThousandIdleConnections|AReplicaThatDiesTakesItsUnits)$$' \
		./cmd/stockd ./cmd/stocklab ./internal/lock/... ./internal/service/strategy
	go run ./tools/test -race -tags prove -timeout 30m $(TESTFLAGS) \
		-run 'TestProvePlantedBugsAreCaught/(one_unit_too_many|a_late_holder_deletes|a_lost_commit|the_audit_forgives|a_layer)' \
		./internal/planted

helm: ## the chart, held to what Helm and Kubernetes say of it
	cd deploy/helm && go test -count=1 ./...

fuzz: ## every parser of what comes from outside, two minutes each
	go run ./tools/fuzz $(FUZZFLAGS)

mutate: ## small changes of the code, and which of them the quick tests notice
	mkdir -p bin
	go run ./tools/mutate --json bin/mutants.json $(MUTATEFLAGS)

bench: build ## the strategies beside their limits, within 20 minutes
	bin/stocklab bench --json docs/benchmark.json --chart docs/benchmark.svg
	go run ./tools/figures

demo: build ## the first look
	bin/stocklab demo

lint:
	$(GOLANGCI) run ./...

vuln: ## known vulnerabilities in what is called, where their database can be reached
	go run ./tools/vuln $(VULNFLAGS)

sbom: build ## what both programs are made of, in CycloneDX: bin/*.cdx.json
	$(SYFT) scan file:bin/stockd -q -o cyclonedx-json=bin/stockd.cdx.json
	$(SYFT) scan file:bin/stocklab -q -o cyclonedx-json=bin/stocklab.cdx.json

images: ## asks the registries for the digests of all images, and writes them down
	go run ./tools/images
