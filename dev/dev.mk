# The local Kubernetes node and its images.

.PHONY: node-install
node-install: ## Packages and binaries of the local Kubernetes node (minutes when cold)
	@dev/node.sh install

.PHONY: node-up
node-up: ## Start the local node; use it with: eval "$(dev/node.sh env)"
	@dev/node.sh up

.PHONY: node-down
node-down: ## Stop the local node; what it stores stays (dev/node.sh destroy forgets that too)
	@dev/node.sh down

# With VERSION or REGISTRY: for installing elsewhere, by docker, podman or buildah (BUILDER=…).
published = $(if $(VERSION),--version '$(VERSION)') $(if $(REGISTRY),--registry '$(REGISTRY)')

.PHONY: images
images: $(if $(VERSION)$(REGISTRY),setup,node-up) ## Build the images into the local node, or for REGISTRY=… VERSION=…
	@$(if $(VERSION)$(REGISTRY),$(PY) -m dev.publish images $(published),dev/images.sh)

.PHONY: chart
chart: setup ## Package the chart into dist/ (VERSION=…), and push it (REGISTRY=oci://…)
	@eval "$$(dev/node.sh env)" && $(PY) -m dev.publish chart $(published)

.PHONY: wheel
wheel: setup ## Build the wheel into dist/
	@$(PY) -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist .
