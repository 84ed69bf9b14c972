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

.PHONY: images
images: node-up ## Build the three images and load them into the local node
	@dev/images.sh
