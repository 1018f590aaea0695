"""llama.cpp's server out of the package xllamacpp: those flags of `llama-server` that are given."""

import argparse
import os
import signal
from typing import Any

import xllamacpp

KINDS = xllamacpp.common_speculative_type


def main() -> None:
    """Until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # its threads inherit it
    server = xllamacpp.Server(_parameters(_flags()))
    signal.sigwait({signal.SIGTERM})
    print(f"ends: {server.listening_address}", flush=True)
    os._exit(0)  # its threads would go on


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="model")
    parser.add_argument("-md", dest="draft")
    for flag in ("--host", "--spec-type"):
        parser.add_argument(flag)
    whole = ("-t", "-tb", "-td", "-tbd", "-c", "-np", "--port")
    for flag in (*whole, "--spec-draft-n-max", "--spec-draft-n-min"):
        parser.add_argument(flag, type=int)
    parser.add_argument("--spec-draft-p-min", type=float)
    for flag in ("--no-warmup", "--no-webui"):
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


def _parameters(flags: argparse.Namespace) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = flags.model
    parameters.hostnames, parameters.port = [flags.host], flags.port
    parameters.n_ctx, parameters.n_parallel = flags.c, flags.np
    parameters.n_gpu_layers = 0
    parameters.cpuparams.n_threads = flags.t
    parameters.cpuparams_batch.n_threads = flags.tb
    parameters.warmup, parameters.ui = not flags.no_warmup, not flags.no_webui
    parameters.fit_params = False  # what is given is meant
    if flags.spec_type is not None:
        name = f"COMMON_SPECULATIVE_TYPE_{flags.spec_type.upper().replace('-', '_')}"
        parameters.speculative.types = [getattr(KINDS, name)]
    if flags.draft is not None:
        draft = parameters.speculative.draft
        draft.mparams.path = flags.draft
        draft.n_max, draft.n_min = flags.spec_draft_n_max, flags.spec_draft_n_min
        draft.p_min = flags.spec_draft_p_min
        draft.cpuparams.n_threads, draft.cpuparams_batch.n_threads = flags.td, flags.tbd
    return parameters


if __name__ == "__main__":
    main()
