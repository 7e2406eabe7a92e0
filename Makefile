# make          what there is to make
# make demo     the main job: Spark -> engine -> embedded broker -> Arrow, and a stream, from a fresh clone
# make check    formatting, lints, Rust unit tests and the fast Python tests, for daily work
# make test     all that needs no broker on a JVM: Rust, lints, types, Python on the embedded broker and Mosquitto, Spark, docs, wheel
# make test-brokers  contract and interop with Pulsar, TubeMQ, HiveMQ and official clients; kills and bad networks
# make test-spark    the rest of Spark, with all versions of PySpark
# make test-deep     2,000 seeds of the simulators, fuzzing, crates that are licensed and known to be safe
# make test-one T=FILE::NAME  one test, file or folder, in Python or Rust: T=tests/contract/pulsar, T=src/mqtt/session.rs
# make bench    measures Pulsar and Spark against pulsar-client; BENCH="--rounds 3 --scale 1.0 --broker NAME --only REGEX"
# make bench-mqtt    measures MQTT against other clients, with the same options
# make bench-tubemq  measures TubeMQ against its Java client, with the same options
# make bench-operating  measures what page, permissions and log of the embedded broker cost, with the same options
# make bench-curves  costs that grow, with the same options and --limit SECONDS; --scale is that of the largest points
# make bench-footprint  imports, sizes, idle clients and brokers beside others, with the same options
# make bench-quick  a few ratios to bare floors in some minutes; kept in benches/history, fails if one is below that of before
# make bench-all  all of these but bench-quick, about an hour on an idle machine; the page Performance is made of the results
# make bench-compare BENCH="OTHER --only REGEX"  this build and the one in the checkout OTHER, interleaved
# make wheel    the abi3 wheel, in dist/; on Linux one for glibc 2.17 and newer
# make sdist    the source distribution, in dist/; tools/release VERSION checks and builds all of a release, and publishes nothing
# make fuzz     SECONDS=60 per target
# make crashes  SCRIPTS=10 of each protocol, each with thousands of crashes, full and failing disks, and flipped bits
# make soak     MINUTES=30: kills, bad networks before the embedded and the real brokers, faults of Spark; SOAK="kills pulsar" for parts
# make mutants  the tests against defects that once were possible; FILE=src/broker/auth.rs, FILE=all: against all of a file
# make simulate SEEDS=10000    clients and broker on a simulated network, disk and clock
# make docs     the docs as a site, in site/; make docs-serve shows them while they are edited
# make audit    known vulnerabilities of the crates; fetches the RustSec database
# make build    .venv with the engine in it
# make clean    removes what was built

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Nothing of the caller's Python leaks in.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX PYTHONSTARTUP
# ... nor of the caller's cargo.
unexport CARGO_TARGET_DIR RUSTFLAGS CARGO_BUILD_TARGET

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STEP := tools/step
SECONDS ?= 60
SCRIPTS ?= 10
SEEDS ?= 10000
MINUTES ?= 30
WORDS_CHECKED := src python docs examples benches README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md \
	tests/docs tests/support tests/conftest.py tools/docs_pages.py
FUZZ_SECONDS_IN_TEST := 5
WHEEL_PROFILE ?= dist
LINUX := $(filter Linux,$(shell uname -s))
ENGINE_SOURCES := Cargo.toml Cargo.lock pyproject.toml $(shell find src proto -type f)
PYTEST := tools/in-memory $(PY) -m pytest -q
# Marks of tests that need a broker, or a client, on a JVM.
JVM := real_pulsar or real_hivemq or real_tubemq
# Most tests mainly wait for a broker, those with real ones even more so.
TWO := --numprocesses 2
THREE := --numprocesses 3
SIDE_BY_SIDE = $(MAKE) --no-print-directory --jobs 2 --output-sync=target
# Only files whose hashes are in tools/locks/, which tools/lock-requirements writes. PySpark comes as sources: pip makes a wheel of
# 400 MB from them, which need not be compressed for the moment until it is unpacked. Modules are compiled when they are imported.
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --no-compile \
	--config-settings=--build-option=--compression=stored

.PHONY: help demo test test-steps test-brokers test-brokers-steps test-spark test-spark-steps test-deep test-deep-steps compiled check test-one bench bench-compare bench-mqtt bench-tubemq bench-operating bench-curves bench-footprint bench-quick bench-all wheel wheel-test sdist fuzz crashes simulate build clean prerequisites test-prerequisites \
	fmt clippy rust-test fuzz-test schedules lint types python-test contract-test fast-test brokers-test campaign-test spark-core-test spark-rest-test simulate-test nets-test docs docs-serve docs-test deny audit rustdoc \
	soak mutants

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

# ---------------------------------------------------------------------------- building

prerequisites:
	@PYTHON=$(PYTHON) tools/prerequisites

test-prerequisites:
	@PYTHON=$(PYTHON) tools/prerequisites test

$(VENV)/.made: | prerequisites
	@$(STEP) "virtual environment" $(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The build tool comes first and alone: the engine is built while pip fetches the rest.
$(VENV)/.maturin: tools/locks/demo.txt $(VENV)/.made
	@sed -n '/^maturin==/,/[^\\]$$/p' tools/locks/demo.txt > $(VENV)/maturin.txt
	@$(STEP) "build tool" $(PIP) -r $(VENV)/maturin.txt
	@touch $@

$(VENV)/.demo: tools/locks/demo.txt tools/compile_pyspark.py $(VENV)/.maturin
	@$(STEP) "Python packages of the demo" $(PIP) -r tools/locks/demo.txt
	@$(PY) tools/compile_pyspark.py
	@touch $@

$(VENV)/.dev: tools/locks/dev.txt $(VENV)/.demo
	@$(STEP) "Python packages of the tests" $(PIP) -r tools/locks/dev.txt
	@touch $@

# An engine goes into python/forebay/, which the environment refers to: Python files need no new build. There is room for one. That
# of the demo and the tests is quick to build, shares its build with the Rust tests, and checks more; that of the benches is optimised.
# PIP_QUIET: maturin hands pip every optional dependency, and pip would list those that it ignores.
MATURIN := env VIRTUAL_ENV=$(CURDIR)/$(VENV) PIP_QUIET=1 $(VENV)/bin/maturin
$(VENV)/.engine: $(ENGINE_SOURCES) $(VENV)/.maturin
	@rm -f $(VENV)/.bench-engine
	@$(STEP) "engine" $(MATURIN) develop --profile dev --features tests --quiet
	@touch $@

# Loading classes takes half of the time of a short Spark job.
$(VENV)/.spark.jsa: tests/support/jvm.py $(VENV)/.dev | $(VENV)/.engine
	@$(STEP) "classes of Spark" env PYTHONPATH=tests $(PY) -m support.jvm

$(VENV)/.bench-engine: $(ENGINE_SOURCES) $(VENV)/.maturin
	@rm -f $(VENV)/.engine
	@$(STEP) "engine, release build" $(MATURIN) develop --release --quiet
	@touch $@

build: $(VENV)/.engine $(VENV)/.demo

# ---------------------------------------------------------------------------- the main job

demo:
	@$(MAKE) --no-print-directory --jobs 2 build
	@$(PY) examples/demo.py

# ---------------------------------------------------------------------------- tests

# Each prints how many CPU minutes its steps took. A step that fails does not keep the others from running: one run shows all
# that is wrong.
test test-brokers test-spark test-deep: test-prerequisites
	@tools/timed "make $@" $(MAKE) --no-print-directory --keep-going $@-steps

# The engine has both cores, but for what pip fetches. What else only compiles is compiled behind all that waits for brokers: it
# takes the time that they leave.
test-steps:
	@failed=; \
	$(SIDE_BY_SIDE) --keep-going $(VENV)/.engine fmt lint || failed=yes; \
	tools/behind $(MAKE) --no-print-directory compiled -- $(MAKE) --no-print-directory --keep-going \
		types python-test contract-test || failed=yes; \
	$(MAKE) --no-print-directory --keep-going rust-test spark-and-docs || failed=yes; \
	[ -z "$$failed" ]

# Each of the docs' steps keeps one core busy at most: others run beside them.
spark-and-docs:
	@$(SIDE_BY_SIDE) --keep-going spark-core-test docs docs-test wheel-test

# The campaigns mainly wait.
test-brokers-steps:
	@$(SIDE_BY_SIDE) --keep-going campaign-test brokers-test

test-spark-steps: spark-rest-test

test-deep-steps: deny simulate-test fuzz-test schedules nets-test

compiled: clippy rustdoc
	@$(STEP) "Rust tests, built" cargo test --quiet --workspace --no-run

check: test-prerequisites
	@tools/timed "make check" $(MAKE) --no-print-directory --keep-going fmt clippy rust-check lint types fast-test

fast-test: $(VENV)/.dev $(VENV)/.engine
	@$(STEP) "pytest, fast half" $(PYTEST) tests/python tests/contract -m "not slow and not real_mqtt and not ($(JVM)) and not spark"

# A Rust test needs no Python environment.
test-one: $(if $(filter src% tests/rust%,$(T)),,$(VENV)/.dev $(VENV)/.engine)
	@PYTHON=$(PY) tools/test-one "$(T)"

fmt:
	@$(STEP) "cargo fmt" cargo fmt --check
	@$(STEP) "cargo fmt of the fuzz targets" cargo fmt --check --manifest-path fuzz/Cargo.toml

clippy:
	@$(STEP) "clippy" cargo clippy --quiet --workspace --all-targets -- -D warnings
	@$(STEP) "clippy, as published: without what simulators need" cargo clippy --quiet --workspace --exclude forebay-tests -- -D warnings

# After clippy, which has checked the dependencies.
rustdoc:
	@$(STEP) "cargo doc, warnings denied" env RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --workspace

rust-test:
	@$(STEP) "Rust tests, 200 seeds" env SIMULATOR_SHARE=10 tools/in-memory cargo test --quiet --workspace --no-fail-fast

# The seeds that `make test` plays are the first of these. The simulators of state machines stay with those.
simulate-test:
	@$(STEP) "simulator of the engine, 2,000 seeds" tools/in-memory cargo test --quiet --workspace --test simulator engine::

rust-check:
	@$(STEP) "Rust tests of the library" cargo test --quiet --workspace --lib

# The clients and the broker on a simulated network, disk and clock: more seeds than `make test` plays.
simulate:
	@SIMULATOR_SEEDS=$(SEEDS) cargo test --workspace --test simulator engine:: -- --show-output

# What mutation by coverage finds is for `make fuzz`.
fuzz-test:
	@$(STEP) "fuzz targets, $(FUZZ_SECONDS_IN_TEST) s each" env FUZZ_SECONDS=$(FUZZ_SECONDS_IN_TEST) \
		tools/in-memory cargo test --quiet --workspace --test fuzz

# More shapes than `make test` plays, which are the first of these.
nets-test: $(VENV)/.dev $(VENV)/.engine
	@$(STEP) "pytest: verbs that take many, 40 shapes" env NET_SEEDS=40 $(PYTEST) $(TWO) \
		tests/contract/*/test_thresholds.py -m "not ($(JVM))"

# What threads hand to each other, under the schedules of shuttle.
schedules:
	@$(STEP) "schedules of threads" cargo test --quiet -p forebay-base --features shuttle --lib handoff

# Licences and sources of the crates, and their known vulnerabilities where the RustSec database can be reached: where not,
# it says so loudly and goes on.
deny: $(VENV)/.dev
	@$(STEP) "licences, bans and sources of the crates" tools/deny
	@$(STEP) "advisories, if they can be fetched" tools/deny advisories-if-reachable

# Fails if the RustSec database is out of reach.
audit: $(VENV)/.dev
	@$(STEP) "advisories" tools/deny advisories

lint: $(VENV)/.dev
	@$(STEP) "ruff check" $(VENV)/bin/ruff check .
	@$(STEP) "ruff format" $(VENV)/bin/ruff format --check .
	@$(STEP) "imports: layers, no circles" env PYTHONPATH=python $(VENV)/bin/lint-imports --no-cache
	@$(STEP) "blocking face is generated from the asyncio one" $(PY) tools/generate_blocking.py --check
	@$(STEP) "spelling" $(VENV)/bin/typos
	@$(STEP) "words to avoid" $(PY) tools/check_words.py $(WORDS_CHECKED)
	@$(STEP) "comments: at most 100 columns" tools/check-comments
	@$(STEP) "workflows" $(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(STEP) "updates of dependencies" $(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(STEP) "workflows: what they open" $(VENV)/bin/zizmor --quiet --offline .github
	@$(STEP) "engine and Rust tests share one build" tools/check-shared-build

types: $(VENV)/.dev $(VENV)/.engine
	@$(STEP) "tables of options are generated from the engine" $(PY) tools/generate_options.py --check
	@$(STEP) "pyright, strict" $(VENV)/bin/pyright --pythonpath $(PY)
	@$(STEP) "mypy: the types that users see" $(PY) -m mypy --warn-unused-ignores tests/typing
	@$(STEP) "stubs against the module" $(PY) -m mypy.stubtest forebay._engine

# With the embedded broker and Mosquitto: brokers on a JVM are for `make test-brokers`.
python-test: $(VENV)/.dev $(VENV)/.engine
	@$(STEP) "pytest: the Python face" $(PYTEST) $(THREE) tests/python -m "not ($(JVM))"

contract-test: $(VENV)/.dev $(VENV)/.engine
	@$(STEP) "pytest: contract, embedded broker and Mosquitto" $(PYTEST) $(THREE) tests/contract -m "not ($(JVM))"

brokers-test: $(VENV)/.dev $(VENV)/.engine
	@$(STEP) "pytest: contract on brokers on a JVM" $(PYTEST) $(THREE) tests/python tests/contract -m "$(JVM)"
	@$(STEP) "pytest: interop with real brokers and other clients" $(PYTEST) $(THREE) tests/interop

# The kills in one process, bad networks in the other: worksteal halves the list.
campaign-test: $(VENV)/.dev $(VENV)/.engine
	@$(STEP) "pytest: kills and bad networks" $(PYTEST) $(TWO) --dist worksteal tests/campaign

# A session of Spark for each file. tests/spark/conftest.py orders them.
SPARK_TEST := $(PYTEST) $(TWO) --dist loadfile --no-loadscope-reorder tests/spark
spark-core-test: $(VENV)/.dev $(VENV)/.engine $(VENV)/.spark.jsa
	@$(STEP) "pytest: Spark, core" $(SPARK_TEST) -m "core and not ($(JVM))"

spark-rest-test: $(VENV)/.dev $(VENV)/.engine $(VENV)/.spark.jsa
	@$(STEP) "pytest: Spark, the rest" $(SPARK_TEST) -m "not core or $(JVM)"

wheel-test: $(VENV)/.dev
	@$(STEP) "wheel, with the engine of the tests" \
		$(VENV)/bin/maturin build --quiet --profile dev --features tests --out target/wheel-test --interpreter $(PY)
	@$(STEP) "wheel in a clean environment: README's examples" $(PYTHON) tests/wheel/check_wheel.py target/wheel-test

# ---------------------------------------------------------------------------- docs

$(VENV)/.docs: tools/locks/docs.txt $(VENV)/.dev
	@$(STEP) "Python packages of the docs" $(PIP) -r tools/locks/docs.txt
	@touch $@

# Warnings are errors: a broken link, a page that is not in the navigation, an option without a text. With --quiet
# mkdocs would not count them.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.docs $(VENV)/.engine
	@$(STEP) "generated pages" $(PY) tools/docs_pages.py
	@$(STEP) "site" $(PY) -m mkdocs build --strict

docs-serve: $(VENV)/.docs $(VENV)/.engine
	@$(PY) tools/docs_pages.py
	@$(PY) -m mkdocs serve

docs-test: $(VENV)/.dev $(VENV)/.engine $(VENV)/.spark.jsa
	@$(STEP) "pytest: code blocks of the docs, examples" $(PYTEST) $(TWO) tests/docs

# ---------------------------------------------------------------------------- the rest

bench: $(VENV)/.dev $(VENV)/.bench-engine
	@cargo bench --quiet -p forebay-tests --bench codec
	@$(PY) -m benches.run pulsar $(BENCH)

bench-mqtt: $(VENV)/.dev $(VENV)/.bench-engine
	@$(PY) -m benches.run mqtt $(BENCH)

bench-compare: $(VENV)/.dev $(VENV)/.bench-engine
	@$(PY) -m benches.compare $(BENCH)

bench-tubemq: $(VENV)/.dev $(VENV)/.bench-engine
	@$(PY) -m benches.run tubemq $(BENCH)

bench-operating: $(VENV)/.dev $(VENV)/.bench-engine
	@$(PY) -m benches.run operating $(BENCH)

bench-curves: $(VENV)/.dev $(VENV)/.bench-engine
	@$(PY) -m benches.run curves $(BENCH)

bench-footprint: $(VENV)/.dev $(VENV)/.bench-engine
	@$(PY) -m benches.run footprint $(BENCH)

bench-all: $(VENV)/.dev $(VENV)/.bench-engine
	@for suite in tubemq mqtt pulsar operating curves footprint; do \
		$(PY) -m benches.run $$suite $(BENCH) --json benches/results/$$suite.json; done

bench-quick: $(VENV)/.dev $(VENV)/.bench-engine
	@$(PY) -m benches.run quick $(BENCH)
	@$(PY) -m benches.history

$(VENV)/.wheel: tools/locks/wheel.txt $(VENV)/.dev
	@$(STEP) "Python packages of the wheel" $(PIP) -r tools/locks/wheel.txt
	@touch $@

# On Linux for glibc 2.17, whatever this machine has: zig is its compiler of C and its linker.
wheel: $(if $(LINUX),$(VENV)/.wheel,$(VENV)/.demo)
	@$(STEP) "wheel, $(WHEEL_PROFILE) profile" env PATH="$(CURDIR)/$(VENV)/bin:$$PATH" \
		$(VENV)/bin/maturin build --quiet --profile $(WHEEL_PROFILE) --out dist --interpreter $(PY) $(if $(LINUX),--zig --compatibility manylinux2014)
	@$(if $(LINUX),$(STEP) "wheel: glibc and stable ABI" tools/check-wheel dist)
	@ls -l dist/*.whl

sdist: $(VENV)/.demo
	@$(STEP) "source distribution" $(VENV)/bin/maturin sdist --out dist
	@$(PY) tests/wheel/check_sdist.py dist

fuzz:
	@tools/in-memory tools/fuzz $(SECONDS)

# Without a file each mutant is built: a quarter of an hour. All files: hours; AGAIN=1 repeats only what survived.
mutants:
	@$(PYTHON) $(if $(FILE),tools/schemata.py $(if $(AGAIN),--again) $(filter-out all,$(FILE)),tools/mutants.py)

crashes:
	@SIMDISK_SCRIPTS=$(SCRIPTS) cargo test --workspace --test simdisk -- --nocapture

soak: $(VENV)/.dev $(VENV)/.bench-engine
	@PYTHONPATH=tests $(PY) tests/campaign/soak.py $(MINUTES) $(SOAK)

clean:
	rm -rf target fuzz/target $(VENV) dist build site python/forebay/*.so .pytest_cache .ruff_cache .mypy_cache
