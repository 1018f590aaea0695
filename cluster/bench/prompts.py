"""What is continued: questions, or random ids where the tokenizer has no chat template."""

import random
from pathlib import Path

from outrider.actors.text.tokenizer import Tokenizer

QUESTIONS = (
    "What does os.path.join do?",
    "What does str.split do?",
    "Explain asyncio.gather.",
    "What is collections.OrderedDict?",
    "How do I use json.dumps?",
)
NAMES = (
    "os.walk", "str.join", "list.sort", "re.match", "json.load", "math.isclose", "time.sleep",
    "itertools.chain", "functools.partial", "shutil.copy", "socket.socket", "random.choice",
    "dict.get", "set.union", "zipfile.ZipFile", "csv.reader", "logging.info", "heapq.merge",
    "bisect.insort", "copy.deepcopy", "pathlib.Path", "queue.Queue", "string.Template",
    "threading.Lock", "struct.pack", "enum.Enum", "glob.glob",
)  # fmt: skip
Ids = tuple[int, ...]
NUM_ALONE = len(QUESTIONS)  # prompts of one stream, one after another
RANDOM_LEN = 24


def prompts(tokenizer: Tokenizer, num: int) -> tuple[Ids, ...]:
    """The same every time; more than there are questions come round again."""
    if not tokenizer.has_chat_template:
        source = random.Random(0)
        ids = sorted(set(tokenizer.vocabulary.values()) - tokenizer.special_ids)
        return tuple(tuple(source.choices(ids, k=RANDOM_LEN)) for _ in range(num))
    asked = [*QUESTIONS, *(f"What does {name} do?" for name in NAMES)]
    chats = [[{"role": "user", "content": asked[i % len(asked)]}] for i in range(num)]
    return tuple(tuple(tokenizer.render_chat(chat)) for chat in chats)


def longest_prompt(model: Path) -> int:
    """The length of the longest that `prompts` gives for a model."""
    return max(map(len, prompts(Tokenizer(model), len(QUESTIONS) + len(NAMES))))
