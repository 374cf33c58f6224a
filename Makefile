# Everything runs in .venv, which these targets make themselves; PYTHON may name the interpreter to make it with.
PYTHON ?= python3
BIN := .venv/bin
# Whole files, in the order of tests/conftest.py: those that take minutes begin first. One more at once than two cores: much of
# the time is spent in waiting for what is told only of what has lasted.
THREE_AT_ONCE := -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
export RAY_USAGE_STATS_ENABLED ?= 0
# What pytest makes of the tests is compiled once, and not in each run and process of it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo reference docs test test-libraries ray-versions nightly nightly-tests real-programs bench release lint types clean

.venv: .venv/installed

.venv/installed: $(BIN)/ray-snapshot
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,java,stores,web,docs,dev]'
	touch $@

# What the product itself needs, without what its tests and its site need.
$(BIN)/ray-snapshot: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,java,stores,web]'
	touch $@

# A second environment with Ray's own libraries and uvloop: two minutes to make, so only the nightly run needs it.
.venv-libraries: .venv-libraries/installed

.venv-libraries/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-libraries
	.venv-libraries/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,java,stores,web,dev,libraries]'
	touch $@

demo: $(BIN)/ray-snapshot
	$(BIN)/ray-snapshot demo

test: .venv
	$(BIN)/python -m pytest $(THREE_AT_ONCE) -m 'not nightly and not libraries'

# What pages of the reference take from the code.
reference: .venv
	$(BIN)/python docs/generated.py

# The site, in build/site, made anew, for the reference comes from the code; whatever Sphinx warns of is an error.
docs: .venv reference
	$(BIN)/python -m sphinx -E -W -n --keep-going -q -j auto -d build/site-state docs build/site

# What instruments apps, where Ray uses uvloop, and programs that use Serve, Tune, Data, Train, joblib and dask.
test-libraries: .venv-libraries
	RAY_USE_UVLOOP=1 .venv-libraries/bin/python -m pytest $(THREE_AT_ONCE) -m 'libraries or not nightly' tests/instrument tests/real tests/jobs tests/runtime/test_ray_metrics.py

# With each Ray of ray_snapshot/tested.py, in an environment of its own: four minutes each.
ray-versions: .venv
	$(BIN)/python .ci/ray_versions.py

# All parts in any case: what fails in one says nothing of the others.
nightly:
	$(MAKE) --keep-going nightly-tests test-libraries ray-versions

nightly-tests: .venv
	$(BIN)/python -m pytest $(THREE_AT_ONCE) -m 'not libraries'

# Every program of tests/real plainly and watched, and the table of what came of it; PROGRAMS="queues start" runs these anew.
real-programs: .venv-libraries
	PYTHONPATH=tests .venv-libraries/bin/python tests/real $(PROGRAMS)

bench: .venv
	$(BIN)/python -m benchmarks

# What goes to an index, in build/dist: made of what is committed, looked at, and not uploaded.
release: $(BIN)/ray-snapshot
	rm -rf build/release build/dist && mkdir -p build/release && git archive HEAD | tar -x -C build/release
	$(BIN)/pip install --quiet --disable-pip-version-check build twine
	$(BIN)/python -m build --outdir build/dist build/release
	$(BIN)/python -m twine check --strict build/dist/*
	@echo 'To upload it: $(BIN)/python -m twine upload build/dist/*'

lint: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv
	$(BIN)/python .ci/types.py

clean:
	rm -rf .venv .venv-libraries .venv-rays build *.egg-info demo-out
