# The commands that the README names and that CI runs, word for word.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
LENS4 := $(VENV)/lens4
LENS4_MEASURES := $(addprefix tests/measures/test_,subject.py any_model.py ablation.py components.py edges.py interventions.py patching.py)

# The suite starts Python a hundred times: what was compiled once stays.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install report gallery check test test-fast test-long mutants test-lens4 docs format models clean

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

# Everything that is not slow: at most five minutes on two idle cores.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# The inner loop: definitions, mathematics and measures, without reports, browsers, certificates and sweeps.
test-fast: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" tests/tasks tests/theory tests/architecture tests/measures \
		tests/test_spec.py tests/test_files.py

# The rest: whole studies, notebooks and documentation, long trainings, thousands of models at the edge.
test-long: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

# Do the tests notice small mistakes? By hand or at night: an hour and a half on one core, less where much is known.
mutants: $(STAMP)
	$(BIN)/python tests/mutants.py

# The newest TransformerLens 4.x over the same environment: its wheel alone, in a folder that goes first on the path.
$(LENS4)/installed: $(STAMP)
	rm -rf $(LENS4)
	$(BIN)/python -m pip install --quiet --no-deps --target $(LENS4) 'transformer-lens>=4,<5'
	touch $@

# What touches the library: its stand-in, the models and their loading, measures by hooks, a whole report.
test-lens4: $(LENS4)/installed
	PYTHONPATH=$(LENS4) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" tests/test_lens.py tests/architecture \
		tests/test_zoo.py tests/test_models.py tests/test_analyze.py tests/sections/test_heads.py $(LENS4_MEASURES)

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) report.html build dist
