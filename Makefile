# What a person types. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
PYTHON := $(VENV)/bin/python
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1

# Long tests mostly wait, for packets that were lost and ranks that died. With four at once on two cores, some that count seconds failed.
TESTS_AT_ONCE := 2
# Those of Python need the cores as well: with three at once on slow ones, ranks had not met after a minute.
PYTHON_TESTS_AT_ONCE := 2

CARGO_TEST := cargo test --locked --workspace --quiet
BENCHES := --bench switches --bench switchml
PHASE := scripts/phase

# What the tests of the PyTorch backend need.
TORCH := 'torch>=2.14' 'scikit-learn>=1.3' 'expecttest>=0.2' 'pytorch-lightning==2.6.6'

.PHONY: help build test test-build test-installed test-rust test-network test-checks test-long test-tools quick check without-protocol docs site page-picture demo bench bench-sim torch train ddp-step fsdp-step test-torch test-torch-oldest conformance explore mutants handlers rtl soak static wheel clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: $(VENV)/.plots ## Build into .venv: .venv/bin/tributary and .venv/bin/python with the package
	$(VENV)/bin/maturin develop --release --quiet
	@echo "ready: $(VENV)/bin/tributary and $(PYTHON)"

# The virtual environment with what the build needs. Debian splits venv off python3.
$(VENV)/.tools: pyproject.toml
	@command -v cargo >/dev/null || { echo "make: cargo is missing; install Rust 1.95 or newer (rustup)" >&2; exit 1; }
	@python3 -c 'import venv, ensurepip' 2>/dev/null || scripts/apt-install python3-venv
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet 'maturin>=1.9.4,<2' 'numpy>=1.24'
	@touch $@

# What draws pictures; `make demo` has none to draw.
$(VENV)/.plots: $(VENV)/.tools pyproject.toml
	$(PYTHON) -m pip install --quiet 'matplotlib>=3.7'
	@touch $@

# What pip fetches and unpacks leaves a core to the compiler most of the time. Tests on networks of namespaces mostly wait, so
# that the others and the checks have the cores meanwhile, at a lower priority.
test: ## Everything that must hold, phase by phase with its time; where PyTorch cannot be installed, all but its tests
	@rm -f target/phases
	@$(PHASE) "compile and install" $(MAKE) --no-print-directory --jobs=2 test-build test-installed
	@$(PHASE) "Rust's tests and the checks" $(MAKE) --no-print-directory --jobs=3 test-network test-rust test-checks
	@if [ -s $(VENV)/.without-torch ]; then \
	    trap 'echo "left out: the tests of the PyTorch backend, of its conformance and of the examples. $$(cat $(VENV)/.without-torch)"' EXIT; \
	fi; \
	$(PHASE) "Python's tests" $(PYTHON) -m pytest -n $(PYTHON_TESTS_AT_ONCE) --dist loadfile; \
	cat target/phases

# With the profile of the tests, whose dependencies are compiled anyway: a build with --release takes five minutes more. Without
# make's flags, for cargo would share the two jobs of `make test` with pip.
test-build: $(VENV)/.tools
	@MAKEFLAGS= $(PHASE) "  compile the tests" $(CARGO_TEST) --no-run --lib --bins --examples --tests $(BENCHES)
	@MAKEFLAGS= $(PHASE) "  compile the package" $(VENV)/bin/maturin develop --quiet
	@echo "built for tests into $(VENV); make build makes the fast program"

# cargo lets go of the target folder when the tests start, so that the others can have it.
test-rust:
	@MAKEFLAGS= RUST_TEST_THREADS=$(TESTS_AT_ONCE) $(PHASE) "  machines, drivers, simulator" nice -n 5 $(CARGO_TEST) -- --skip namespaces::
	@# Each of the machines' benches once, so that none stands still unseen.
	@MAKEFLAGS= nice -n 5 $(CARGO_TEST) $(BENCHES) > /dev/null

test-network:
	@MAKEFLAGS= RUST_TEST_THREADS=$(TESTS_AT_ONCE) $(PHASE) "  networks of namespaces" $(CARGO_TEST) --test cli namespaces::

# What compiles and runs nothing that counts seconds, beside the tests that do: these have the cores whenever they want them.
test-checks:
	@MAKEFLAGS= $(PHASE) "  lints, types, pages" nice -n 19 $(MAKE) --no-print-directory check without-protocol site

quick: test-tools ## While you work: lints, tidy, and the units and machines of the crates that differ from main
	scripts/quick $(VENV)

test-long: build test-tools torch ## What is long and rare, hours of it; CONTRIBUTING.md says what each part covers
	scripts/mutants
	for name in $$(scripts/without-protocol --list); do scripts/without-protocol $$name; done
	$(VENV)/bin/tributary sim swarm --seeds 0..10000
	$(PYTHON) tests/conformance/c10d.py --protocol all
	cargo test -p tributary-local --test local -- --ignored deaths::nothing_is_left_of_ten_thousand_groups
	$(MAKE) explore static wheel soak

# All that tests need besides. .without-torch holds the reason where PyTorch is not there, and is empty where it is.
test-installed: test-tools
	@$(MAKE) --no-print-directory $(VENV)/.docs-tools
	@scripts/install-torch $(PYTHON) $(TORCH) > $(VENV)/.without-torch 2>&1 || true

check: test-tools ## Formatting, lints and types only
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS='-D rustdoc::broken_intra_doc_links' cargo doc --locked --workspace --no-deps --quiet
	$(VENV)/bin/ruff check python tests benches examples experiments scripts
	$(VENV)/bin/ruff format --check python tests benches examples experiments scripts
	$(VENV)/bin/mypy

# After clippy, which leaves the dependencies checked.
without-protocol: check ## That a protocol is a folder: without NAME's (canary's if left out), the rest builds
	scripts/without-protocol $(or $(NAME),canary)

test-tools: $(VENV)/.test-tools

$(VENV)/.test-tools: $(VENV)/.plots pyproject.toml
	scripts/apt-install iproute2 nftables tshark systemd prometheus curl openssl
	@scripts/apt-install chromium || echo "left out: the tests of the switch's page, as chromium cannot be installed here"
	$(PYTHON) -m pip install --quiet 'pytest>=8' 'pytest-xdist>=3.6' 'ruff>=0.12' 'mypy>=1.16' 'ml_dtypes>=0.4' \
	    'pandas>=2.0' 'pyarrow>=15' 'distributed>=2024.1' 'PyYAML>=6'
	@touch $@

docs: build site ## The site: target/site/index.html; a dead link is an error

# Of the program and the package that are in the virtual environment.
site: $(VENV)/.docs-tools
	scripts/site $(VENV)
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict --quiet
	@echo "ready: target/site/index.html"

# In a virtual environment of its own: nothing of ours needs them.
$(VENV)/.docs-tools: $(VENV)/.plots pyproject.toml
	test -x $(VENV)-docs/bin/python || python3 -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet 'mkdocs==1.6.1' 'mkdocs-material==9.8.1' 'mkdocstrings-python==2.0.11'
	@touch $@

page-picture: build test-tools ## docs/page.png: the switch's page with three jobs, as a browser shows it
	$(PYTHON) tests/programs/page_picture.py docs/page.png

demo: $(VENV)/.tools ## Watch a switch and four workers sum real tensors, as root on links of 1 Gbit/s
	@scripts/apt-install iproute2 nftables
	@echo "compiling a program for the demo; make build makes the fast one"
	@$(VENV)/bin/maturin develop --profile demo --quiet
	$(VENV)/bin/tributary lab demo

bench: build ## Measure ours against host-based allreduce over the same links
	$(VENV)/bin/tributary lab bench

bench-sim: build ## Workload W on ours and on ns-3 (installed with apt): packet-hops/s of both; TINY=1 for small inputs
	scripts/apt-install g++ libns3-dev
	$(PYTHON) benches/ns3/compare.py $(if $(TINY),--tiny)

torch: $(VENV)/.torch ## Install PyTorch into .venv (5 GB): for training, and for Gloo as the peer in the bench

$(VENV)/.torch: $(VENV)/.tools
	scripts/install-torch $(PYTHON) $(TORCH)
	@touch $@

train: build torch ## Train on real images over four processes, through the switch and over Gloo: is the accuracy the same? (BITS=8: codes against float32, also of a language model; TOPK=0.01: top-k against all)
	$(PYTHON) experiments/train_accuracy.py $(if $(BITS),--bits $(BITS) --epochs 20) $(if $(TOPK),--topk $(TOPK) --epochs 20)
	@if [ "$$(id -u)" != 0 ]; then echo "as root, make train also trains on links of 1 Gbit/s"; exit; fi; \
	echo "on four hosts with links of 1 Gbit/s (network namespaces):"; \
	for backend in tributary gloo; do \
	    $(VENV)/bin/tributary lab star --hosts 4 --rate 1Gbit/s -- $(PYTHON) examples/ddp.py --backend $$backend; \
	done

ddp-step: build torch ## Time a DDP step of 25 MB on 8 hosts with links of 1 Gbit/s, ours and Gloo (root)
	$(PYTHON) experiments/ddp_step.py

fsdp-step: build torch ## The same of a step with FSDP2: parameters gathered, gradients reduced and scattered (root)
	$(PYTHON) experiments/ddp_step.py --sharded

test-torch: build test-tools torch ## The tests of the PyTorch backend alone
	$(PYTHON) -m pytest $(wildcard tests/test_torch*.py)

test-torch-oldest: ## The same with the oldest PyTorch that works, in a virtual environment of its own (.venv-oldest)
	$(MAKE) test-torch VENV=.venv-oldest TORCH="'torch==2.14.0' 'scikit-learn>=1.3' 'expecttest>=0.2'"

conformance: build torch ## All of PyTorch's conformance suite against our backend, under PROTOCOL (all) or the default; make test runs a fast part
	$(PYTHON) tests/conformance/c10d.py $(if $(PROTOCOL),--protocol $(PROTOCOL))

explore: ## All runs of longer scenarios of every protocol: an hour or two; make test takes shorter ones
	cargo run --locked --release --quiet --package tributary-explore --example long

mutants: ## Plant the faults of tests/mutants.txt, one at a time, and see that the tests notice each
	scripts/mutants

handlers: ## Build the handlers of dataplanes/pspin again, which are committed, with Debian's compiler for their cores
	scripts/apt-install gcc-riscv64-unknown-elf
	$(MAKE) -C dataplanes/pspin/handlers

rtl: .venv-rtl/.tools ## The hardware design of dataplanes/panama: lint, adder, tests against the software switch, as a simulated switch, mutants, synthesis
	cargo build --locked --quiet --package tributary-proto --example panama_switch
	.venv-rtl/bin/python dataplanes/panama/tests/all.py
	cargo test --locked --quiet --package tributary-sim panama_accelerator

.venv-rtl/.tools: dataplanes/panama/requirements.txt
	scripts/apt-install iverilog yosys g++ ccache
	test -x .venv-rtl/bin/python || python3 -m venv .venv-rtl
	.venv-rtl/bin/python -m pip install --quiet --requirement dataplanes/panama/requirements.txt
	@touch $@

soak: build ## Hours (HOURS=1) of loss, churn, killed ranks, restarts, reloads, hand-overs and hostile clients on a star: is all of it flat? target/soak.png (root)
	scripts/apt-install iproute2 nftables
	$(PYTHON) experiments/soak --hours $(or $(HOURS),1) --out target/soak

static: ## dist/tributary, one file without dependencies, tried in an empty folder as its root
	scripts/static dist

wheel: $(VENV)/.tools ## dist/*.whl and the source distribution; as root the wheel is tried in a fresh Debian
	scripts/wheel dist $(PYTHON)
	@if [ "$$(id -u)" != 0 ]; then echo "as root, make wheel also tries it in a fresh Debian"; exit; fi; \
	scripts/try-wheel dist/tributary_ina-*.whl

clean: ## Remove what was built
	rm -rf target $(VENV) $(VENV)-docs .venv-oldest dist python/tributary/*.so
	find python tests -name __pycache__ -prune -exec rm -rf {} +
	rm -rf .pytest_cache .ruff_cache .mypy_cache
