#!/bin/sh
# Build the wheel and the sdist, and show that both install and work in fresh environments, with
# each Python from 3.11 to 3.13 that is installed here. `make release` runs this; it uploads nothing.
set -eu
cd "$(dirname "$0")/.."
bin=${1:-.venv/bin}

rm -rf dist
"$bin/python" -m build --no-isolation --outdir dist .
"$bin/pip" install --quiet twine==7.0.0
"$bin/twine" check --strict dist/*

# Print a Python 3.$1 that starts: the one on the path, or one that pyenv has and did not choose.
find_python() {
    for python in "python3.$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$1".*/bin/python; do
        if "$python" -c '' 2> /dev/null; then
            echo "$python"
            return
        fi
    done
}

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
tried=
for minor in 11 12 13; do
    python=$(find_python "$minor")
    [ -n "$python" ] || continue
    for archive in dist/*.whl dist/*.tar.gz; do
        environment="$place/$minor-$(basename "$archive")"
        "$python" -m venv "$environment"
        "$environment/bin/pip" install --quiet "$archive"
        # In a folder of its own: the sources here must not be what is imported.
        mkdir "$environment/work"
        (cd "$environment/work" && ../bin/wids --version && ../bin/python - << 'END'
import wids

with wids.ShardWriter("train-%06d.tar", maxcount=30, spec="train.json") as writer:
    for number in range(100):
        writer.write({"__key__": f"{number:06d}", ".txt": f"number {number}"})
dataset = wids.ShardListDataset("train.json")
if dataset[78][".txt"] != "number 78":
    raise SystemExit("the release reads wrong samples")
END
        )
    done
    tried="$tried 3.$minor"
done
[ -n "$tried" ] || { echo 'release: no Python from 3.11 to 3.13 is installed' >&2; exit 1; }
echo "built, checked and installed with Python$tried; dist/ holds:"
ls dist
