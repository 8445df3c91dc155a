# make demo        set up, rank a real-content video for a question, write a report of it
# make screenshot  the README's picture of that report
# make test        set up, lint, type-check, run the core tests
# make test-all    everything, behind every extra
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
QUESTION ?= Where is the cup of coffee?

.PHONY: demo screenshot test test-all test-torchcodec test-models test-ask test-browser test-server system-ffmpeg system-chromium lint types core-tests models clean

demo: $(VENV)/installed models demo/photos.mp4
	$(BIN)/framenest rank demo/photos.mp4 "$(QUESTION)" -k 8 -o demo/ranking.json
	$(BIN)/framenest extract demo/ranking.json -k 8 --to demo/frames --sheet demo/sheet.png
	$(BIN)/framenest report demo/ranking.json -o demo/report.html

screenshot: demo $(VENV)/browser-installed system-chromium
	$(BIN)/python docs/images/report.py demo/report.html docs/images/report.png

demo/photos.mp4: examples/demo_video.py | $(VENV)/installed
	$(BIN)/python examples/demo_video.py $@

test: lint types core-tests

test-all: test test-torchcodec test-models test-browser test-server test-ask

# Another decoder behind the same protocol. Its wheel brings no FFmpeg: the system's is needed.
test-torchcodec: $(VENV)/torch-installed system-ffmpeg
	$(BIN)/python -m pytest tests/video/test_conformance.py

# Scorers with torch, ONNX, a reranker and OCR, on tiny random-weight models.
test-models: $(VENV)/models-installed models
	$(BIN)/python -m pytest tests/scorers

$(VENV)/models-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test-models]'
	touch $@

$(VENV)/torch-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test-torch]'
	touch $@

# A real OpenAI-compatible server and models in process, all with random weights; the notebook. An
# environment of its own keeps torch out of the core's.
test-ask: .venv-lmm/installed models
	.venv-lmm/bin/python -m pytest tests/lmm tests/test_examples.py

.venv-lmm/installed: pyproject.toml
	test -x .venv-lmm/bin/python || $(PYTHON) -m venv .venv-lmm
	.venv-lmm/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test-lmm]'
	touch $@

# A system package, only where FFmpeg's shared libraries are missing and apt can install them.
system-ffmpeg:
	ldconfig -p | grep -q libavcodec.so || (apt-get update -q && apt-get install -y -q ffmpeg)

# The pages in a real browser; screenshots lie in screenshots/ afterwards.
test-browser: $(VENV)/browser-installed system-chromium
	$(BIN)/python -m pytest tests/report/test_report_browser.py

$(VENV)/browser-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test-browser]'
	touch $@

# The service: its page in a real browser, its API fuzzed from its own OpenAPI document.
test-server: $(VENV)/server-installed system-chromium
	$(BIN)/python -m pytest tests/server/test_server_browser.py tests/server/test_server_fuzz.py

$(VENV)/server-installed: $(VENV)/browser-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test-server]'
	touch $@

# A system package, only where no Chromium is found and apt can install it.
system-chromium:
	command -v chromium || command -v chromium-browser || command -v google-chrome || (apt-get update -q && apt-get install -y -q --no-install-recommends chromium)

lint: $(VENV)/installed
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(VENV)/installed
	$(BIN)/mypy

core-tests: $(VENV)/installed models
	$(BIN)/python -m pytest

models: $(VENV)/installed
	$(BIN)/framenest models fetch tags

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .venv-lmm demo screenshots build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
