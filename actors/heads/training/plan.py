"""What is trained, in which folder; and the texts that are learned from, as they are kept."""

import json
import os
from collections.abc import Sequence as Many
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import torch

from outrider.actors.errors import InvalidConfig
from outrider.actors.heads.training.draft_lesson import DraftLesson
from outrider.actors.heads.training.eagle_lesson import EagleLesson
from outrider.actors.heads.training.medusa_lesson import MedusaLesson
from outrider.actors.lookahead.round_report import DRAFT, EAGLE3, MEDUSA

LESSONS: dict[str, type[EagleLesson | MedusaLesson | DraftLesson]] = {
    EAGLE3: EagleLesson,
    MEDUSA: MedusaLesson,
    DRAFT: DraftLesson,
}
Text = tuple[list[int], int]  # ids, and how many of them are of the prompt


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """All that the weights are a function of, but the texts. Raises InvalidConfig."""

    kind: str
    target: str  # its folder's name
    digest: str  # of its files
    seed: int = 0
    steps: int = 0  # 0: as many as fit into `minutes`
    minutes: float = 20.0
    rows: int = 16  # texts of a step
    rate: float = 3e-3
    device: str = ""  # "": CUDA where there is one
    dtype: str = ""  # of all products; "": as the device multiplies fastest

    def __post_init__(self) -> None:
        if self.kind not in LESSONS:
            raise InvalidConfig(f"Got kind={self.kind!r}, accepted: {', '.join(LESSONS)}")
        if self.steps < 0 or self.minutes <= 0 or self.rows < 1 or not 0 < self.rate < 1:
            raise InvalidConfig(
                f"Got steps={self.steps}, minutes={self.minutes}, rows={self.rows}, "
                f"rate={self.rate}, expected at least 0, more than 0, at least 1, between 0 and 1"
            )


def claimed(folder: Path, plan: HeadPlan) -> HeadPlan:
    """Make the folder this plan's own: what it holds, if that is the same training."""
    path = folder / "plan.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        device = plan.device or ("cuda" if torch.cuda.is_available() else "cpu")
        plan = replace(plan, device=device, dtype=plan.dtype or fastest_dtype(device))
        write_plan(folder, plan)
        return plan
    told = json.loads(path.read_text())
    if told.keys() != {each.name for each in fields(HeadPlan)}:
        raise of_another_version(folder)
    there = HeadPlan(**told)
    wished = replace(
        plan,
        steps=plan.steps or there.steps,
        device=plan.device or there.device,
        dtype=plan.dtype or there.dtype,
    )
    differing = [n for n, value in asdict(wished).items() if asdict(there)[n] != value]
    if differing:
        got, held = (
            ", ".join(f"{n}={asdict(each)[n]}" for n in differing) for each in (wished, there)
        )
        raise InvalidConfig(
            f"Got {got}, but {folder} holds a training with {held}; expected the same, or another "
            "folder"
        )
    return there


def of_another_version(folder: Path) -> InvalidConfig:
    """What is there is not what this version would have written."""
    return InvalidConfig(
        f"Got {folder} with a training of another version of Outrider, which cannot go on; "
        "expected another folder"
    )


def fastest_dtype(device: str) -> str:
    """Bfloat16 where there are instructions for it."""
    if device == "cpu":
        known = torch.cpu.get_capabilities().items()
        has_it = any(able and "bf16" in name for name, able in known)
    else:
        has_it = torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if has_it else "float32"


def write_plan(folder: Path, plan: HeadPlan) -> None:
    partial = folder / "plan.partial"
    partial.write_text(json.dumps(asdict(plan), indent=1) + "\n")
    partial.replace(folder / "plan.json")


def card(plan: HeadPlan, shares: tuple[float, ...], num_texts: int, steps: int) -> str:
    """A README.md for the head's folder."""
    told = ", ".join(f"{share:.3f}" for share in shares)
    if plan.kind == DRAFT:
        what, of = "A draft model", "out of the text alone"
        right = f"On texts that it never saw, so many of its guesses are right: {told}.\n\n"
    else:
        what, of = f"A head of kind {plan.kind}", "out of that model's hidden states"
        right = (
            "On texts that it never saw, the first token it guesses is right in so many places, "
            f"the\nnext behind it, and so on: {told}.\n\n"
        )
    return (
        f"# {what} for {plan.target}\n\n"
        f"It guesses what {plan.target} will say, {of}. Trained by\n"
        f"`outrider train-head` on {num_texts} texts of the target's own: {steps} steps of "
        f"{plan.rows} texts, seed {plan.seed}.\n\n"
        f"{right}"
        f"    outrider serve --target {plan.target} {option(plan.kind, 'FOLDER')}\n"
    )


def option(kind: str, folder: Path | str) -> str:
    """How what was trained is served."""
    return f"--draft {folder}" if kind == DRAFT else f"--drafter {kind}:{folder}"


def read_texts(path: Path) -> list[Text]:
    """Those that are whole: a line may have been cut off."""
    texts = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            ids, num_prompt = json.loads(line)
        except ValueError:
            break
        texts.append(([int(each) for each in ids], int(num_prompt)))
    return texts


def append_texts(path: Path, texts: Many[Text]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(text) + "\n" for text in texts)
        file.flush()
        os.fsync(file.fileno())
