"""How many tokens' keys and values a pair's pools hold, by the memory that is free: arithmetic.

On the CPU memory is taken as it is written, and others use the machine too: pools may grow to half
of what is free beside the weights. A device is there for the models alone.
"""

from dataclasses import dataclass

from outrider.actors.errors import InvalidConfig
from outrider.actors.sizing.footprint import Footprint

GB = 1e9
CPU_SHARE, DEVICE_SHARE = 0.5, 0.9
WORKER_BYTES = 600_000_000  # a worker's process without a model: interpreter and libraries
FALLBACK_TOKENS = 32_768  # where a config does not say how wide keys and values are
TREE_TOKENS = 64  # KV rows of the draft for a sequence's branches, beside its text
LOGITS_COPIES = 4  # a row of logits, as computed, as float32, edited, and as probabilities


@dataclass(frozen=True, slots=True)
class Pair:
    """What is to be placed, and the bytes of one number of it."""

    target: Footprint
    draft: Footprint | None
    item_bytes: int
    max_batch: int

    @property
    def models(self) -> tuple[Footprint, ...]:
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def token_bytes(self) -> int | None:
        """Of one token of text, in all pools."""
        found = [model.kv_bytes(self.item_bytes) for model in self.models]
        return None if None in found else sum(each for each in found if each is not None)

    @property
    def most_tokens(self) -> int:
        """More than these a full batch of longest texts has no use for."""
        return self.max_batch * (self.target.context_len or FALLBACK_TOKENS)

    @property
    def fixed_bytes(self) -> int:
        """Weights, logits of a full batch, and the draft's trees."""
        weights = sum(model.weight_bytes(self.item_bytes) for model in self.models)
        logits = self.max_batch * self.target.vocab_size * 4 * LOGITS_COPIES
        of_draft = self.draft.kv_bytes(self.item_bytes) if self.draft is not None else None
        return weights + logits + (of_draft or 0) * self.max_batch * TREE_TOKENS


def cpu_tokens(pair: Pair, free_bytes: int | None, num_replicas: int, asked: int | None) -> int:
    """Tokens that the pools hold; those `asked` for, if they fit. Raises InvalidConfig."""
    if free_bytes is None or pair.token_bytes is None:
        return asked or min(FALLBACK_TOKENS, pair.most_tokens)
    fixed = pair.fixed_bytes + WORKER_BYTES * len(pair.models)
    room = free_bytes // num_replicas - fixed
    if room <= 0:
        raise InvalidConfig(
            f"The models take {fixed / GB:.1f} GB of memory without any text, "
            f"{free_bytes / GB:.1f} GB are free here for {num_replicas} replicas"
        )
    if asked is None:
        return max(1, min(int(CPU_SHARE * room) // pair.token_bytes, pair.most_tokens))
    if asked * pair.token_bytes > room:
        raise InvalidConfig(
            f"Got engine.kv_tokens={asked}, which take {asked * pair.token_bytes / GB:.1f} GB, "
            f"expected at most {room // pair.token_bytes}: {free_bytes / GB:.1f} GB are free here "
            f"for {num_replicas} replicas, and the models take {fixed / GB:.1f} GB"
        )
    return asked


def device_tokens(pair: Pair, total_bytes: int, used_bytes: int) -> int:
    """Tokens that fit on a device of which so much is used, by weights, activations and others.

    Raises InvalidConfig.
    """
    room = int(DEVICE_SHARE * total_bytes) - used_bytes
    token_bytes = pair.token_bytes
    if token_bytes is None:
        return min(FALLBACK_TOKENS, pair.most_tokens)
    if room < token_bytes:
        raise InvalidConfig(
            f"No text fits beside the models: {used_bytes / GB:.1f} of {total_bytes / GB:.1f} GB "
            f"of the device are used, and a tenth is kept free"
        )
    return min(room // token_bytes, pair.most_tokens)
