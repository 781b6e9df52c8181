#!/bin/sh
# Run the recipes of docs/frameworks.md inside Lightning, Accelerate, the Hugging
# Face Trainer and Ray Train, two gloo ranks each, and hand datasets over to data engines, in a
# virtual environment of their own (.venv-frameworks, made on first use and for other constraints).
# Usage: tools/test_frameworks.sh [NAME ...]; by default all of: lightning accelerate trainer ray
#   files mount raydata dask datasets grain lance openclip ffcv
# `ffcv` is compiled: where pkg-config does not find OpenCV and libturbojpeg, it is passed over.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-frameworks
tests=tests/frameworks

if [ ! "$venv/ready" -nt "$tests/constraints.txt" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    # The constraints keep torch's CUDA libraries out.
    "$venv/bin/pip" install --quiet -c "$tests/constraints.txt" torch torchdata lightning \
        accelerate transformers "ray[train]" requests filelock platformdirs pillow bracex tqdm \
        "ray[data]" "dask[bag]" datasets duckdb fsspec grain mfusepy pandas pyarrow pylance
    touch "$venv/ready"
fi

python="$PWD/$venv/bin/python"
export PYTHONPATH="$PWD:$PWD/$tests:$PWD/examples/frameworks" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
export CUDA_VISIBLE_DEVICES="" RAY_USAGE_STATS_ENABLED=0 RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S=300 ACCELERATE_USE_CPU=true HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
records=$(mktemp -d)
trap 'rm -rf "$records"' EXIT

fresh() {
    RECORDS=$(mktemp -d -p "$records")
    export RECORDS
}
two_ranks() {
    fresh
    program="$tests/$1"
    shift
    "$python" -m torch.distributed.run --standalone --nproc-per-node=2 "$program" "$@"
}

get_ffcv() {
    pkg-config --exists opencv4 libturbojpeg &&
        "$venv/bin/pip" install --quiet -c "$tests/constraints.txt" numba assertpy fastargs \
            opencv-python-headless psutil terminaltables &&
        "$venv/bin/pip" install --quiet -c "$tests/constraints.txt" --no-deps ffcv
}

for name in ${*:-lightning accelerate trainer ray files mount raydata dask datasets grain lance openclip ffcv}; do
    case $name in
        lightning)
            fresh && "$python" "$tests/lightning_ddp.py" trainer
            fresh && "$python" "$tests/lightning_ddp.py" module
            fresh && "$python" "$tests/lightning_ddp.py" fabric
            two_ranks recipes.py lightning
            two_ranks recipes.py fabric ;;
        accelerate | trainer) two_ranks recipes.py "$name" ;;
        ray)
            fresh && "$python" "$tests/recipes.py" ray
            "$python" "$tests/ray_executor.py" ;;
        files | mount | raydata | dask | datasets | grain)
            "$python" "$tests/handover.py" "$name" ;;
        openclip)
            "$venv/bin/pip" install --quiet -c "$tests/constraints.txt" --no-deps open_clip_torch \
                torchvision timm
            "$venv/bin/pip" install --quiet -c "$tests/constraints.txt" ftfy regex webdataset
            "$python" "$tests/open_clip_loop.py"
            "$python" "$tests/open_clip_saves.py"
            two_ranks open_clip_naflex.py ;;
        lance) "$python" "$tests/moving.py" lance ;;
        ffcv)
            if "$python" -c 'import ffcv' 2> /dev/null || get_ffcv; then
                "$python" "$tests/moving.py" ffcv
            else
                echo 'ffcv: not run, since it could not be built (libopencv-dev, libturbojpeg0-dev)'
            fi ;;
        *) echo "unknown framework: $name" >&2; exit 2 ;;
    esac
done
