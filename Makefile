# leaderd. `make` alone lists the targets.
# `run`, `build` and `test` need Go, make and git; everything else builds its
# tools from tools/go.mod on first use.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

GO        ?= go
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TESTFLAGS ?=
TESTPKGS  ?= ./...
FUZZTIME  ?= 30s
SEEDS     ?= 100
HOURS     ?= 1
JOBS      ?= 6
WITHOUT   ?=
WILD      ?= false
AGAIN      ?= false
MINUTES   ?= 10
SEED      ?= 1

# The race detector needs cgo; `go env` answers 0 where no C compiler is found.
RACE ?= $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

# Tools are linked once for each Go version and again when their pins change.
TOOLS := .cache/tools/$(shell $(GO) env GOVERSION)
BUF   := PATH="$(CURDIR)/$(TOOLS):$$PATH" buf

##@ Use

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-22s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\nVariables: VERSION IMAGE IMAGE_ARCH TESTFLAGS TESTPKGS BENCHFLAGS FUZZTIME MINUTES SEED CHAOSFLAGS MUTANTFLAGS ARGS\n'

.PHONY: run
run: ## Run three nodes over their own etcd, with sample jobs and a live view (ARGS="...")
	$(GO) run ./cmd/leaderd dev $(ARGS)

.PHONY: build
build: ## Build a static bin/leaderd
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/leaderd ./cmd/leaderd

# Each binary is a function of the sources, the version and the Go toolchain, and
# the archive one of the binaries and the commit's date, so that anybody can make
# the same image again.
IMAGE      ?= leaderd/leaderd
IMAGE_ARCH ?= amd64 arm64
IMAGE_FILE ?= bin/leaderd-image.tar

.PHONY: image
image: ## Write IMAGE_FILE (bin/leaderd-image.tar), an OCI archive for IMAGE_ARCH, without a container engine
	@for arch in $(IMAGE_ARCH); do \
	  echo "building leaderd $(VERSION) for linux/$$arch"; \
	  CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false \
	    -ldflags '-s -w -X main.version=$(VERSION)' -o bin/image/leaderd-$$arch ./cmd/leaderd || exit 1; \
	done
	@$(GO) -C deploy run ./image -o '../$(IMAGE_FILE)' -name '$(IMAGE)' -version '$(VERSION)' -licence ../LICENSE \
	  -revision "$$(git rev-parse HEAD 2>/dev/null)" -created "$$(git log -1 --format=%ct 2>/dev/null || echo 0)" \
	  $(foreach arch,$(IMAGE_ARCH),$(arch)=../bin/image/leaderd-$(arch))

##@ Check

.PHONY: test
test: ## Run all tests, with the race detector where a C compiler exists
	$(GO) test $(RACE) -timeout 15m $(TESTFLAGS) $(TESTPKGS)

.PHONY: sim
sim: ## Run SEEDS seeds (from SEED on) of HOURS virtual hours each of the simulated cluster
	$(GO) run ./test/sim/run -seeds $(SEEDS) -seed $(SEED) -hours $(HOURS) -jobs $(JOBS) -without "$(WITHOUT)" -wild=$(WILD) -again=$(AGAIN)

.PHONY: mutants
mutants: ## Turn off each guard that an invariant rests on, and see the simulation catch it (MUTANTFLAGS="...")
	$(GO) run ./test/mutants $(MUTANTFLAGS)

.PHONY: bench
bench: ## Run the benchmark program (BENCHFLAGS="...")
	$(GO) run ./test/bench $(BENCHFLAGS)

.PHONY: chaos
chaos: ## Break real processes at random for MINUTES from SEED, and check the history (CHAOSFLAGS="...")
	$(GO) test ./test/e2e -run '^TestChaos$$' -count 1 -v -timeout $$(($(MINUTES) + 20))m -chaos.minutes=$(MINUTES) -chaos.seed=$(SEED) $(CHAOSFLAGS)

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
	    echo "$(GO) test -run '^$$' -fuzz '^$$name$$' $$(dirname "$$file")"; \
	    $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	  done; \
	done

.PHONY: vet
vet: ## Run go vet
	$(GO) vet ./...

.PHONY: lint
lint: $(TOOLS)/golangci-lint proto-lint ## Lint Go and proto files
	$(TOOLS)/golangci-lint run

.PHONY: proto-lint
proto-lint: $(TOOLS)/buf
	$(BUF) lint
	$(BUF) format --diff --exit-code

.PHONY: breaking
breaking: $(TOOLS)/buf ## Compare the API with the last release
	@base=$$(git describe --tags --abbrev=0 2>/dev/null) || { echo 'breaking: no release to compare with'; exit 0; }; \
	$(BUF) breaking --against ".git#tag=$$base"

.PHONY: vuln
vuln: $(TOOLS)/govulncheck ## Look for known vulnerabilities (needs the Go vulnerability database)
	$(TOOLS)/govulncheck ./...

.PHONY: ci
ci: ## All that a change must pass
	$(MAKE) check-generated
	$(MAKE) lint
	$(MAKE) breaking
	$(MAKE) vet
	$(MAKE) test

# Programs that tests of the chart run, and what they keep between runs.
KUBERNETES_TOOLS   := $(TOOLS)/kubernetes
KUBERNETES_CACHE   := .cache/kubernetes
KUBERNETES_VERSION := 1.37.2
# Another Kubernetes is another file, so that a change of version builds it anew.
KUBERNETES         := $(KUBERNETES_TOOLS)/kubernetes-$(KUBERNETES_VERSION)

# Everything is built with the flags of the tools, so that the packages of
# Kubernetes are compiled once.
kubernetes_flags = CGO_ENABLED=0 GOFLAGS="$$($(GO) env GOFLAGS) -trimpath"
kubernetes_test = $(kubernetes_flags) KUBERNETES_TOOLS='$(CURDIR)/$(KUBERNETES_TOOLS)' \
  KUBERNETES_CACHE='$(CURDIR)/$(KUBERNETES_CACHE)' KUBERNETES='$(CURDIR)/$(KUBERNETES)' \
  LEADERD_IMAGE='$(CURDIR)/$(KUBERNETES_CACHE)/leaderd.tar' LEADERD='$(CURDIR)/bin/image/leaderd-$(shell $(GO) env GOARCH)' \
  $(GO) -C test/kubernetes test -count 1

.PHONY: kubernetes-tools
kubernetes-tools: $(KUBERNETES) $(addprefix $(KUBERNETES_TOOLS)/,helm kubeconform coredns kube-router etcd pause) ## Build Kubernetes and what tests run of it, some ten minutes the first time

# The image under the name that the documentation gives it.
.PHONY: kubernetes-image
kubernetes-image:
	@mkdir -p $(KUBERNETES_CACHE)
	@$(MAKE) --no-print-directory image IMAGE=registry.example.com/leaderd/leaderd VERSION=test \
	  IMAGE_ARCH="$$($(GO) env GOARCH)" IMAGE_FILE=$(KUBERNETES_CACHE)/leaderd.tar

.PHONY: test-kubernetes
test-kubernetes: kubernetes-tools kubernetes-image $(TOOLS)/golangci-lint ## Test the image's builder and the Helm chart: alone, with a real API server, with real pods
	cd deploy && $(kubernetes_flags) "$(CURDIR)/$(TOOLS)/golangci-lint" run --allow-serial-runners ./...
	$(kubernetes_flags) $(GO) -C deploy test ./...
	cd test/kubernetes && $(kubernetes_flags) "$(CURDIR)/$(TOOLS)/golangci-lint" run --allow-serial-runners ./...
	$(kubernetes_test) ./schemas ./static ./apiserver
	$(kubernetes_test) -timeout 20m -v ./pods

.PHONY: test-kubernetes-nodes
test-kubernetes-nodes: kubernetes-tools kubernetes-image ## Run leaderd on three real nodes of Kubernetes, and cut the leader's off
	KUBERNETES_REQUIRED=1 $(kubernetes_test) -timeout 20m -v ./pods -run '^TestPartition$$' -nodes 3

##@ Change

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint $(TOOLS)/buf ## Format Go and proto files
	$(TOOLS)/golangci-lint fmt
	$(BUF) format --write

.PHONY: generate
generate: generated ## Regenerate the Go code of the proto files
	find proto -name '*.pb.go' -delete
	cp -R .cache/generated/proto/. proto/

.PHONY: check-generated
check-generated: generated ## Fail when generated code is not current
	@diff -r -x '*.proto' .cache/generated/proto proto || { echo 'generated code is not current: make generate'; exit 1; }

# Generating aside first leaves the tree alone when it fails, and tells files
# whose proto file is gone.
.PHONY: generated
generated: $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc
	@rm -rf .cache/generated
	$(BUF) generate --output .cache/generated

.PHONY: generate-chart
generate-chart: ## Make the chart's schema and README from its values.yaml
	$(GO) -C deploy run ./chartgen helm/leaderd

.PHONY: golden-chart
golden-chart: $(KUBERNETES_TOOLS)/helm ## Write the chart's renders that the tests compare with
	$(kubernetes_test) ./static -run '^TestGolden$$' -update

.PHONY: tidy
tidy: ## Bring go.mod in line with the imports
	$(GO) mod tidy

.PHONY: clean
clean: ## Remove what make built
	rm -rf bin .cache

# build_tool links package $(1) of the tools module.
build_tool = $(GO) -C tools build -trimpath -o "$(CURDIR)/$@" $(1)

$(TOOLS)/golangci-lint: tools/go.mod tools/go.sum
	$(call build_tool,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

$(TOOLS)/buf: tools/go.mod tools/go.sum
	$(call build_tool,github.com/bufbuild/buf/cmd/buf)

$(TOOLS)/protoc-gen-go-grpc: tools/go.mod tools/go.sum
	$(call build_tool,google.golang.org/grpc/cmd/protoc-gen-go-grpc)

$(TOOLS)/govulncheck: tools/go.mod tools/go.sum
	$(call build_tool,golang.org/x/vuln/cmd/govulncheck)

# build_kubernetes links package $(2) of the module $(1) below test/kubernetes.
build_kubernetes = $(kubernetes_flags) $(GO) -C test/kubernetes/$(1) build -ldflags '-s -w $(3)' -o "$(CURDIR)/$@" $(2)

$(KUBERNETES_TOOLS)/helm: test/kubernetes/tools/go.mod test/kubernetes/tools/go.sum
	$(call build_kubernetes,tools,helm.sh/helm/v4/cmd/helm)

$(KUBERNETES_TOOLS)/kubeconform: test/kubernetes/tools/go.mod test/kubernetes/tools/go.sum
	$(call build_kubernetes,tools,github.com/yannh/kubeconform/cmd/kubeconform)

# Kubernetes takes its version from the linker.
version_package := k8s.io/component-base/version
$(KUBERNETES): test/kubernetes/programs/kubernetes/go.mod test/kubernetes/programs/kubernetes/go.sum test/kubernetes/programs/kubernetes/main.go
	$(call build_kubernetes,programs/kubernetes,.,-X $(version_package).gitVersion=v$(KUBERNETES_VERSION) \
	  -X $(version_package).gitMajor=$(word 1,$(subst ., ,$(KUBERNETES_VERSION))) -X $(version_package).gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION))))

$(KUBERNETES_TOOLS)/coredns: test/kubernetes/programs/dns/go.mod test/kubernetes/programs/dns/go.sum test/kubernetes/programs/dns/main.go
	$(call build_kubernetes,programs/dns,.)

$(KUBERNETES_TOOLS)/kube-router: test/kubernetes/programs/policy/go.mod test/kubernetes/programs/policy/go.sum
	$(call build_kubernetes,programs/policy,github.com/cloudnativelabs/kube-router/v2/cmd/kube-router)

$(KUBERNETES_TOOLS)/etcd: test/kubernetes/go.mod test/kubernetes/go.sum test/kubernetes/programs/etcd/main.go
	$(call build_kubernetes,.,./programs/etcd)

$(KUBERNETES_TOOLS)/pause: test/kubernetes/programs/pause/main.go
	$(call build_kubernetes,.,./programs/pause)

# The generator comes from our own go.mod, so that generated code and the
# protobuf runtime are always of one version.
$(TOOLS)/protoc-gen-go: go.mod go.sum
	$(GO) build -trimpath -o "$@" google.golang.org/protobuf/cmd/protoc-gen-go
