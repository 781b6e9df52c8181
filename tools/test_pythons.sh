#!/bin/sh
# Run the tests with other versions of Python, each in a virtual environment of its own
# (.venv-3.12 and so on, made on first use), without torch: not every version has a build of it.
# Usage: tools/test_pythons.sh [PYTHON ...]; by default python3.12, python3.13 and the free-threaded
# python3.13t and python3.14t, those that are on the path or that pyenv has.
set -eu
cd "$(dirname "$0")/.."
failed=
for wanted in ${*:-python3.12 python3.13 python3.13t python3.14t}; do
    python=
    for each in "$wanted" "${PYENV_ROOT:-$HOME/.pyenv}/versions/"*"/bin/$wanted"; do
        if "$each" -c '' 2> /dev/null; then
            python=$each
            break
        fi
    done
    if [ -z "$python" ]; then
        echo "$wanted: not installed"
        continue
    fi
    name=$("$python" -c 'import sys, sysconfig
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
print("{}.{}".format(*sys.version_info) + free)')
    venv=.venv-$name
    if [ ! -e "$venv/ready" ]; then
        "$python" -m venv "$venv"
        # Without what needs torch, drives a browser, or has no such build.
        grep -vE '^(#|$|torch|axe-|datasets|ipykernel|lmdb|mypy|nbclient|playwright)' \
            requirements-dev.txt > "$venv/requirements.txt"
        "$venv/bin/pip" install --quiet --prefer-binary -r "$venv/requirements.txt"
        touch "$venv/ready"
    fi
    echo "== Python $name"
    env PYTHONPATH="$PWD" "$venv/bin/python" -m pytest -n "${JOBS:-2}" -q -p no:cacheprovider tests \
        || failed="$failed $name"
done
if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
