# The commands that the README names and that CI runs, word for word.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
LENS4 := $(VENV)/lens4
LENS4_MEASURES := $(addprefix tests/measures/test_,circuits.py head_types.py public.py ablation.py components.py edges.py interventions.py patching.py)

# What linear algebra decides: constructions, theory, forward passes, engines and solvers.
CPU_TESTS := $(addprefix tests/families/,histogram/constructions histogram/theory memorization/constructions memorization/theory \
	histogram/measures memorization/test_measures.py memorization/test_certificates.py \
	languages/test_forward.py languages/test_training.py memorization/test_training.py) \
	tests/models/architecture tests/training/engines tests/training/test_data.py tests/training/test_engines.py tests/studies/test_palindrome_orders.py \
	$(addprefix tests/measures/test_,separation.py separation_solver.py circuits.py variables.py components.py)
ON_CPU := $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not soak" $(CPU_TESTS)

# The suite starts Python a hundred times: what was compiled once stays.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install report gallery check test test-cpus test-lowest test-newest test-fast test-long soak mutants golden test-lens4 docs format models clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	touch $(STAMP)

report: $(STAMP)
	$(BIN)/interp analyze count01/paper --out report.html

gallery: $(STAMP)
	$(BIN)/interp gallery --out gallery/

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Everything that is not slow: at most two minutes on two idle cores.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not soak"

# The same numbers, ranks and refusals on CPUs that round otherwise: an old one without AVX or FMA, one without AVX-512
# and with two threads, one with AVX-512 (where this CPU has it). At most six minutes on two idle cores.
test-cpus: $(STAMP)
	OPENBLAS_CORETYPE=Nehalem ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1 $(ON_CPU)
	OPENBLAS_CORETYPE=Sandybridge ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=2 $(ON_CPU)
	if grep -qs avx512f /proc/cpuinfo; then OPENBLAS_CORETYPE=SkylakeX OMP_NUM_THREADS=1 $(ON_CPU); \
		else echo "test-cpus: this CPU has no AVX-512, so the SkylakeX setting was not run"; fi

# The inner loop: definitions, mathematics and measures, without reports, browsers, certificates and sweeps.
test-fast: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not soak" tests/tasks tests/families/*/theory tests/families/*/tasks tests/families/*/test_tasks.py tests/models/architecture tests/measures \
		tests/models/test_spec.py tests/support/test_files.py

# The rest, with shapes and types checked: whole studies, notebooks and documentation, long trainings, thousands of
# models at the edge.
test-long: $(STAMP)
	INTERP_CHECKED=all $(BIN)/python -m pytest -n 2 --dist worksteal -m "slow and not soak"

# What test-long checks on a sample, on hundreds of models: by hand.
soak: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m soak

# Do the tests notice small mistakes? N random ones: the share that is killed, with its interval, and the survivors.
N ?= 100
SEED ?= 0
mutants: $(STAMP)
	$(BIN)/python tests/mutants.py --n $(N) --seed $(SEED)

# What every shipped model, construction and engine gives, written anew after a change that moves numbers on purpose.
golden: $(STAMP)
	$(BIN)/python tests/golden.py --write

# The newest TransformerLens 4.x over the same environment: its wheel alone, in a folder that goes first on the path.
$(LENS4)/installed: $(STAMP)
	rm -rf $(LENS4)
	$(BIN)/python -m pip install --quiet --no-deps --target $(LENS4) 'transformer-lens>=4,<5'
	touch $@

# What touches the library: its stand-in, the models and their loading, measures by hooks, a whole report.
test-lens4: $(LENS4)/installed
	PYTHONPATH=$(LENS4) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not soak" tests/models/test_lens.py tests/models/architecture \
		tests/models/test_zoo.py tests/models/readers/test_bridges.py tests/test_models.py tests/report/test_analyze.py tests/report/sections/test_heads.py tests/report/test_live_model.py tests/models/test_subject.py $(LENS4_MEASURES)

# What a smoke test of other versions runs: models and their files, a construction, a section, figures, specs.
SMOKE := tests/models/test_zoo.py tests/models/test_spec.py tests/support/figures/test_theme.py tests/support/figures/test_figures.py \
	tests/families/memorization/constructions/test_capacity.py tests/report/sections/test_heads.py
# Other versions warn of other things, and that is no error here.
ON_SMOKE := -m pytest -W ignore -m "not slow" $(SMOKE)

# By hand or at night: the lowest versions of the direct dependencies that pyproject.toml allows, ...
test-lowest:
	$(PYTHON) -m venv $(VENV)/lowest
	$(VENV)/lowest/bin/python -m pip install --quiet uv
	$(VENV)/lowest/bin/uv pip install --quiet --python $(VENV)/lowest/bin/python --resolution lowest-direct --editable '.[fast]'
	$(VENV)/lowest/bin/uv pip install --quiet --python $(VENV)/lowest/bin/python 'pytest>=8.3' 'hypothesis>=6.100'
	$(VENV)/lowest/bin/python $(ON_SMOKE)

# ... and the newest, without constraints.
test-newest:
	$(PYTHON) -m venv $(VENV)/newest
	$(VENV)/newest/bin/python -m pip install --quiet --editable '.[fast]' pytest hypothesis
	$(VENV)/newest/bin/python $(ON_SMOKE)

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) report.html build dist
