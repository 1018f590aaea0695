#!/usr/bin/env bash
# What a day with a GPU begins with, a piece at a time, each under nine minutes:
#   bash tests/benches/gpu/day.sh ceilings|products|kernels|law|decode|attention|engine|pair|host|verdict
# Runs from a checkout on whatever torch and transformers are there; `host` needs no GPU.
set -uo pipefail
cd "$(dirname "$0")/../../.."
export PYTHONPATH=.types:tests:tests/benches/gpu${PYTHONPATH:+:$PYTHONPATH}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} PYTHONUNBUFFERED=1
pytest="python3 -m pytest -c /dev/null --rootdir=. --import-mode=importlib -p no:cacheprovider
  -q -m gpu -W ignore --durations=5 -o asyncio_mode=auto"
case "${1:-}" in
  ceilings) python3 tests/benches/gpu/ceilings.py ;;
  products) python3 tests/benches/gpu/products.py "${@:2}" ;;
  kernels) $pytest -s tests/kernels/cuda/test_gpu.py "${@:2}" ;;
  law) $pytest tests/actors/runner/gpu tests/actors/runner/test_architectures.py tests/law/test_cuda.py \
    tests/actors/heads \
    "${@:2}" ;;
  decode) python3 tests/benches/gpu/decode.py "${@:2}" ;;
  attention) python3 tests/benches/gpu/attention.py ;;
  engine) python3 tests/benches/gpu/engine.py "${@:2}" ;;
  pair) python3 tests/benches/gpu/pair.py "${@:2}" ;;
  host) python3 tests/benches/gpu/host.py ;;
  verdict) python3 tests/benches/gpu/verdict.py ;;
  *) echo "Got piece '${1:-}', expected one of those named at the top of this file" >&2; exit 2 ;;
esac
