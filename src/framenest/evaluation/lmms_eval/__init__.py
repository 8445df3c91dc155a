"""Selectors inside lmms-eval: `hook` is its plug-in, and task files name functions of `tasks`."""
