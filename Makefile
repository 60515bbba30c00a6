# Everything happens in .venv, made on the first call with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all test-narrow test-without-unix lint docs release bench clean

demo: .venv/demo
	$(BIN)/headway demo

# A process for each of two cores, with one thread each: more threads than cores make small models slow. A process that
# has nothing left to do takes tests from the other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal --durations=40
test: .venv/test
	scripts/install-test-system-packages.sh
	$(PYTEST)

# What depends on numbers, as processors without AVX-512 and bf16, and those without AVX2, compute it.
NUMBERS := tests/tensors tests/mixers tests/models tests/losses tests/search tests/optimizers tests/runs/test_old_runs.py \
  tests/training/test_run_arithmetic.py tests/training/test_loop.py tests/tasks/test_speech_recognition.py
test-narrow: .venv/test
	for set in "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2" "ATEN_CPU_CAPABILITY=default"; do \
	  env $$set $(PYTEST) --durations=10 -k "not check_compile" $(NUMBERS) || exit 1; \
	done

# Without what Unix alone has, with Windows' rule for files that are open, and in the C locale: what is near to the system.
test-without-unix: .venv/test
	HEADWAY_WITHOUT_UNIX=1 LC_ALL=C $(PYTEST) --durations=10 tests/core tests/parses tests/corpora tests/cli tests/test_systems.py

# The slow tests, which `make test` leaves out.
test-all: .venv/test-all .venv/argos .venv/oracles
	scripts/install-test-system-packages.sh
	$(PYTEST) -m slow --timeout=900

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	printf '%s\n' linux darwin win32 | xargs -P 2 -I {} $(BIN)/mypy --platform {} --cache-dir .mypy_cache/{}

# The site, in build/site. A broken link or anchor is an error.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# Wheel, sdist, checksums, notes and the context of the image, in dist/. PYTHONS try the wheel.
release: .venv/test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[release]'
	$(BIN)/python tools/release.py $(if $(PYTHONS),--python $(PYTHONS))

bench: .venv/test
	$(BIN)/python benchmarks/bench.py train
	$(BIN)/python benchmarks/bench.py train --size recurrent --size recurrent-small
	$(BIN)/python benchmarks/bench.py decode
	$(BIN)/python benchmarks/bench.py lengths
	$(BIN)/python benchmarks/bench.py mixers

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "headway needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

# torch comes first and by its exact version, so that an installation without a GPU can take a build without one.
.venv/demo: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

.venv/test: pyproject.toml constraints.txt | .venv/demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,lint,tensorboard]'
	touch $@

.venv/test-all: pyproject.toml constraints.txt | .venv/test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test-all]'
	touch $@

.venv/docs: pyproject.toml constraints.txt | .venv/demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

# Argos Translate wants an older sacremoses than headway, so it has a folder of its own.
.venv/argos: Makefile | .venv/test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ \
	    argostranslate==1.11.0 minisbd==0.9.0 stanza==1.10.1 emoji==2.16.0
	touch $@

# Libraries that look inside models, beside which tests/export/test_other_libraries.py puts headway's numbers.
.venv/oracles: Makefile | .venv/test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ \
	    transformer-lens==4.3.0 inseq==0.7.1 accelerate==1.15.0 beartype==0.23.1 better_abc==0.0.3 captum==0.9.0 \
	    datasets==5.2.0 dill==0.4.1 einops==0.8.2 fancy_einsum==0.0.3 jaxtyping==0.3.11 multiprocess==0.70.19 \
	    pyarrow==26.0.1 transformers_stream_generator==0.0.5 treescope==0.1.10 wadler_lindig==0.1.8 xxhash==4.1.0
	touch $@

clean:
	rm -rf .venv runs build dist
