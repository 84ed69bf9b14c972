#!/bin/bash
# `make check`: every gate that needs no running process.  All of them run, then the verdict.
#   dev/check.sh [--but-tidy]     without what is about the tests, for who runs all of them
set -uo pipefail
cd "$(dirname "$0")/.."
failed=()
gate() { local name=$1; shift; local t=$SECONDS; if "$@"; then echo "ok    $name ($((SECONDS - t)) s)"; else echo "FAIL  $name"; failed+=("$name"); fi; }
tests_import() { local out; out=$(.venv/bin/python -m pytest -q --no-header --collect-only) || { tail -n 40 <<<"$out"; return 1; }; }
gate "format" .venv/bin/ruff format --quiet --check .
gate "lint" .venv/bin/ruff check --quiet .
gate "types" .venv/bin/mypy --no-error-summary
gate "imports" .venv/bin/lint-imports --no-logo
gate "commit subjects" .venv/bin/python -m dev.commit_subjects
if [ "${1:-}" != --but-tidy ]; then
  gate "tidy" .venv/bin/python -m pytest -q --no-header tests/test_tidy.py tests/test_import_contracts.py
  gate "mutants apply" .venv/bin/python -m plimsoll_sim.mutants --apply
  gate "tests import" tests_import
fi
[ ${#failed[@]} -eq 0 ] || { echo "make check: ${failed[*]}" >&2; exit 1; }
