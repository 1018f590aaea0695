"""On PYTHONPATH of a worker's process: its model breaks, as the environment says.

POISON_MODEL is the end of the model's path; POISON_IDS are ids that it must not be given, or "any";
POISON_DEED what happens then: an error, an error of the device, an exit, a long or an endless step.
Nothing is poison until the file POISON_FLAG is there; POISON_FLAG.hit is made when it was.
"""

import os
import time
from pathlib import Path

if "POISON_MODEL" in os.environ:
    from outrider.actors.runner.runner import Runner

    MODEL, DEED, FLAG = (os.environ[f"POISON_{name}"] for name in ("MODEL", "DEED", "FLAG"))
    IDS = os.environ["POISON_IDS"].split()

    class AcceleratorError(RuntimeError):
        """By the name that torch gives a device's."""

    def deed(num_tokens):
        match DEED.split(":"):
            case ["raise"]:
                raise ZeroDivisionError("poison of somebody")
            case ["device"]:
                raise AcceleratorError("CUDA error: an illegal memory access was encountered")
            case ["exit"]:
                os._exit(139)
            case ["slow", seconds]:  # for each token
                time.sleep(float(seconds) * num_tokens)
            case ["hang"]:
                time.sleep(3600)

    def forward(self, chunks, forward=Runner.forward):
        tokens = [token for chunk in chunks for token in chunk.tokens]
        if str(self.loaded.path).endswith(MODEL) and Path(FLAG).exists():
            if IDS == ["any"] or not set(map(str, tokens)).isdisjoint(IDS):
                Path(f"{FLAG}.hit").touch()
                deed(len(tokens))
        return forward(self, chunks)

    Runner.forward = forward
