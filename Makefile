# make demo            set up what it needs, rank two free videos for a question each, write demo/report.html
# make test            set up, lint, type-check, run the core tests
# make test-all        also the tests of every extra, the docs and the wheel; what CI runs
# make wheel           build sdist and wheel, check them, install the wheel and rank a video with it
# make tables          write the tables and numbers of the pages from benchmarks/results
# make docs            build the documentation site in build/site
# make test-lmms-eval  the real lmms-eval, in a separate environment of 1.9 GB
# make test-vllm       the real vLLM as far as it loads videos, in a separate environment of 2.5 GB
# make fuzz            damaged video files, with new seeds each time; MINUTES=30 for longer
# make test-newest     the core tests with the newest dependencies, ignoring the constraints
# make test-oldest     the core tests with the oldest dependencies that pyproject.toml allows
# make constraints     update constraints.txt, the versions that all other targets install
# make screenshot      the README's image, from the demo
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := -m pip install --quiet --disable-pip-version-check
# The tested versions, also when pip builds a package; pip before and after 25.3 reads different variables.
constrained = PIP_CONSTRAINT=$(1) PIP_BUILD_CONSTRAINT=$(1)
LOCKED := $(call constrained,constraints.txt)
MINUTES ?= 5

.PHONY: demo docs tables screenshot test lint types core-tests fuzz test-all test-models test-browser \
	test-server test-ask test-ray test-lmms-eval test-vllm test-newest test-oldest wheel constraints \
	models system-chromium system-espeak clean

# In an environment of its own, with the extra `tags` alone: the linters' and tests' takes 850 MB.
demo: .venv-demo/installed
	.venv-demo/bin/framenest demo

screenshot: demo $(VENV)/test-browser system-chromium
	$(BIN)/python docs/images/report.py demo/big_buck_bunny.html docs/images/report.png

test: notice lint types core-tests

notice:
	@echo "make test: linters, types and core tests, about 10 minutes on two cores; the first run also installs 850 MB"

lint: $(VENV)/installed
	$(BIN)/ruff format --check
	$(BIN)/ruff check --no-cache  # its cache does not notice moved modules

types: $(VENV)/installed
	$(BIN)/mypy

core-tests: $(VENV)/installed models
	$(BIN)/python -m pytest -n 2 -m 'not slow'

models: $(VENV)/installed
	$(BIN)/framenest models fetch tags

test-all: test docs wheel test-models test-browser test-server test-ask test-ray test-lmms-eval

# The documentation site, in build/site. A dead link or anchor fails.
docs: $(VENV)/docs
	$(BIN)/python docs/site/build.py

# The tables and numbers of the README and the docs that come from measurements, settings and estimates.
tables: $(VENV)/installed
	$(BIN)/python benchmarks/tables.py

# Damaged files of many kinds. Every seed is printed, so a failure can be repeated (tests/video/fuzz.py).
fuzz: $(VENV)/installed
	$(BIN)/python tests/video/fuzz.py --minutes $(MINUTES)

# Scorers with torch, ONNX, a reranker and OCR, and Whisper, on tiny random-weight models; a real recognizer of
# speech, which espeak-ng speaks; the commands of docs/reproduce.md.
test-models: $(VENV)/test-models models system-espeak
	$(BIN)/python -m pytest tests/scorers tests/listening tests/evaluation/test_reproduce_page.py

# The report in a real browser; writes screenshots/.
test-browser: $(VENV)/test-browser system-chromium
	$(BIN)/python -m pytest tests/report/test_report_browser.py

# The server: its page in a real browser, its API fuzzed from its OpenAPI document; the MCP server.
test-server: $(VENV)/test-browser $(VENV)/test-server models system-chromium
	$(BIN)/python -m pytest tests/server/test_server_browser.py tests/server/test_server_fuzz.py \
		tests/server/test_gateway_dialects.py tests/agents tests/test_examples.py

# A real OpenAI-compatible server and transformers models, all with random weights; the notebook.
test-ask: $(VENV)/test-lmm models
	$(BIN)/python -m pytest tests/lmm tests/test_examples.py

# A Ray cluster of two nodes, an object store and a library of vectors, all on this machine; and the slow test
# of a day of video.
test-ray: $(VENV)/test-ray
	$(BIN)/python -m pytest tests/corpus tests/cache/test_remote_store.py tests/retrieval/test_library.py

# The real lmms-eval on a CPU: two ranks that ask a scripted server, random-weight models, a whole plan of
# benchmarks/reproduce.py; and the whole processors of Qwen3-VL and Qwen3.5.
test-lmms-eval: .venv-lmms-eval/installed
	.venv-lmms-eval/bin/python -m pytest -n 2 --dist loadfile tests/evaluation/test_lmms_eval_run.py \
		tests/evaluation/test_plan_run.py tests/evaluation/test_lmms_eval_conventions.py \
		tests/lmm/test_video_processors.py tests/lmm/test_frame_pixels.py

# The real vLLM loads videos in process, with the plug-in; it runs no model.
test-vllm: .venv-vllm/installed
	.venv-vllm/bin/python -m pytest -rA tests/test_vllm_loader.py

# What a user of a release gets. Builds the wheel from the sdist.
wheel: .venv-tools/installed
	$(LOCKED) .venv-tools/bin/python .ci/wheel.py

# uv asks PyPI, or what UV_INDEX_URL and the like name. lmms-eval needs an older PyAV, so it has a separate file.
COMPILE := .venv-tools/bin/uv pip compile --quiet --upgrade --universal --fork-strategy fewest \
	--python-version 3.11 --no-annotate --custom-compile-command "make constraints" pyproject.toml

constraints: .venv-tools/installed
	$(COMPILE) -o constraints.txt --group tools --extra test --extra test-models --extra test-browser \
		--extra test-server --extra docs --extra test-lmm --extra test-ray --extra test-vllm --extra bench \
		--extra bench-server
	$(COMPILE) -o constraints-lmms-eval.txt --group tools --extra test-lmms-eval

test-newest:
	test -x .venv-newest/bin/python || $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python $(INSTALL) --upgrade --upgrade-strategy eager --editable '.[test]'
	.venv-newest/bin/framenest models fetch tags
	.venv-newest/bin/python -m pytest

test-oldest: .venv-tools/installed
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-tools/bin/uv pip compile --quiet --upgrade --resolution lowest-direct --python .venv-oldest/bin/python \
		--no-annotate --extra test -o .venv-oldest/requirements.txt pyproject.toml
	.venv-oldest/bin/python $(INSTALL) --requirement .venv-oldest/requirements.txt --editable '.[test]'
	.venv-oldest/bin/framenest models fetch tags
	.venv-oldest/bin/python -m pytest

.venv-demo/installed: pyproject.toml constraints.txt
	test -x .venv-demo/bin/python || $(PYTHON) -m venv .venv-demo
	$(LOCKED) .venv-demo/bin/python -m pip install --disable-pip-version-check --editable '.[tags]'
	touch $@

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(LOCKED) $(BIN)/python $(INSTALL) --editable '.[test]'
	touch $@

$(VENV)/docs: $(VENV)/installed
	$(LOCKED) $(BIN)/python $(INSTALL) --editable '.[docs]'
	touch $@

$(VENV)/test-%: $(VENV)/installed
	$(LOCKED) $(BIN)/python $(INSTALL) --editable '.[test-$*]'
	touch $@

.venv-lmms-eval/installed: pyproject.toml constraints-lmms-eval.txt
	test -x .venv-lmms-eval/bin/python || $(PYTHON) -m venv .venv-lmms-eval
	$(call constrained,constraints-lmms-eval.txt) .venv-lmms-eval/bin/python $(INSTALL) --editable '.[test-lmms-eval]'
	.venv-lmms-eval/bin/python $(INSTALL) --no-deps lmms-eval==0.7.3 qwen-vl-utils==0.0.14 torchvision==0.28.0
	touch $@

.venv-vllm/installed: pyproject.toml constraints.txt
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	$(LOCKED) .venv-vllm/bin/python $(INSTALL) --editable '.[test-vllm]'
	.venv-vllm/bin/python $(INSTALL) --no-deps vllm==0.33.0
	touch $@

.venv-tools/installed: pyproject.toml constraints.txt
	test -x .venv-tools/bin/python || $(PYTHON) -m venv .venv-tools
	$(LOCKED) .venv-tools/bin/python $(INSTALL) build twine uv
	touch $@

# System packages, if they are missing and apt can install them.
system-chromium:  # and what playwright's driver needs
	ldconfig -p | grep -q libatomic.so.1 || (apt-get update -q && apt-get install -y -q libatomic1)
	command -v chromium || command -v chromium-browser || command -v google-chrome || (apt-get update -q && apt-get install -y -q --no-install-recommends chromium)

system-espeak:
	command -v espeak-ng || (apt-get update -q && apt-get install -y -q --no-install-recommends espeak-ng)

clean:
	rm -rf $(VENV) .venv-* demo screenshots build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
