#!/bin/bash
# `make check`: every gate that needs no running process.  All of them run, then the verdict.
#   dev/check.sh [--but-tidy]     without tests/test_tidy.py, for who runs that among others
set -uo pipefail
cd "$(dirname "$0")/.."
failed=()
gate() { local name=$1; shift; local t=$SECONDS; if "$@"; then echo "ok    $name ($((SECONDS - t)) s)"; else echo "FAIL  $name"; failed+=("$name"); fi; }
gate "format" .venv/bin/ruff format --quiet --check .
gate "lint" .venv/bin/ruff check --quiet .
gate "types" .venv/bin/mypy --no-error-summary
gate "imports" .venv/bin/lint-imports --no-logo
[ "${1:-}" = --but-tidy ] || gate "tidy" .venv/bin/python -m pytest -q --no-header tests/test_tidy.py
[ ${#failed[@]} -eq 0 ] || { echo "make check: ${failed[*]}" >&2; exit 1; }
