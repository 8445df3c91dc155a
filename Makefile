# make demo            set up, rank a real-content video for a question, write a report of it
# make test            set up, lint, type-check, run the core tests
# make test-all        everything behind every extra as well; what CI runs
# make test-lmms-eval  the real lmms-eval, in an environment of 6 GB of its own
# make fuzz            damaged video files, with new seeds each time; MINUTES=30 for longer
# make screenshot      the README's picture of the report
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip install --quiet --disable-pip-version-check --editable
MINUTES ?= 5
QUESTION ?= Where is the cup of coffee?

.PHONY: demo screenshot test lint types core-tests fuzz test-all test-torchcodec test-models test-browser test-server \
	test-ask test-ray test-lmms-eval models system-ffmpeg system-chromium clean

demo: $(VENV)/installed models demo/photos.mp4
	$(BIN)/framenest rank demo/photos.mp4 "$(QUESTION)" -k 8 -o demo/ranking.json
	$(BIN)/framenest extract demo/ranking.json -k 8 --to demo/frames --sheet demo/sheet.png
	$(BIN)/framenest report demo/ranking.json -o demo/report.html

demo/photos.mp4: examples/demo_video.py | $(VENV)/installed
	$(BIN)/python examples/demo_video.py $@

screenshot: demo $(VENV)/test-browser system-chromium
	$(BIN)/python docs/images/report.py demo/report.html docs/images/report.png

test: lint types core-tests

lint: $(VENV)/installed
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(VENV)/installed
	$(BIN)/mypy

core-tests: $(VENV)/installed models
	$(BIN)/python -m pytest

models: $(VENV)/installed
	$(BIN)/framenest models fetch tags

test-all: test test-torchcodec test-models test-browser test-server test-ask test-ray

# Damaged files of many kinds; every seed is printed, and a failing one can be run again (tests/video/fuzz.py).
fuzz: $(VENV)/installed
	$(BIN)/python tests/video/fuzz.py --minutes $(MINUTES)

# Another decoder behind the same protocol. Its wheel brings no FFmpeg: the system's is needed.
test-torchcodec: $(VENV)/test-torch system-ffmpeg
	$(BIN)/python -m pytest tests/video/test_conformance.py

# Scorers with torch, ONNX, a reranker and OCR, on tiny random-weight models.
test-models: $(VENV)/test-models models
	$(BIN)/python -m pytest tests/scorers

# The report in a real browser; screenshots lie in screenshots/ afterwards.
test-browser: $(VENV)/test-browser system-chromium
	$(BIN)/python -m pytest tests/report/test_report_browser.py

# The service: its page in a real browser, its API fuzzed from its own OpenAPI document.
test-server: $(VENV)/test-browser $(VENV)/test-server system-chromium
	$(BIN)/python -m pytest tests/server/test_server_browser.py tests/server/test_server_fuzz.py

# A real OpenAI-compatible server and models in process, all with random weights; the notebook.
test-ask: $(VENV)/test-lmm models
	$(BIN)/python -m pytest tests/lmm tests/test_examples.py

# A Ray cluster of two nodes and a server of objects, both on this machine.
test-ray: $(VENV)/test-ray
	$(BIN)/python -m pytest tests/corpus tests/cache/test_remote_store.py

# The real lmms-eval on a CPU, with a random-weight Qwen3-VL, and the whole processors of Qwen3-VL and
# Qwen3.5. They need torchvision, and it a CUDA build of torch: 6 GB, so test-all leaves this out.
test-lmms-eval: .venv-lmms-eval/installed
	.venv-lmms-eval/bin/python -m pytest -rA tests/evaluation/test_lmms_eval_run.py tests/lmm/test_video_processors.py

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) '.[test]'
	touch $@

$(VENV)/test-%: $(VENV)/installed
	$(BIN)/python $(PIP) '.[test-$*]'
	touch $@

.venv-lmms-eval/installed: pyproject.toml
	test -x .venv-lmms-eval/bin/python || $(PYTHON) -m venv .venv-lmms-eval
	.venv-lmms-eval/bin/python $(PIP) '.[test-lmms-eval]'
	touch $@

# System packages, only where they are missing and apt can install them.
system-ffmpeg:
	ldconfig -p | grep -q libavcodec.so || (apt-get update -q && apt-get install -y -q ffmpeg)

system-chromium:
	command -v chromium || command -v chromium-browser || command -v google-chrome || (apt-get update -q && apt-get install -y -q --no-install-recommends chromium)

clean:
	rm -rf $(VENV) .venv-lmms-eval demo screenshots build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
