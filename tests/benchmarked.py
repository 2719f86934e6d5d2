"""The programs in benchmarks/, for the slices of them that the suite runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def benchmark(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
