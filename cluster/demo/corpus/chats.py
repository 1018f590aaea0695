"""Questions about facts and how they are answered; the turns of a conversation as text."""

from dataclasses import dataclass

from outrider.cluster.demo.corpus.fact import Fact

SHORTLY = (
    "What does {} do?",
    "What is {}?",
    "How do I use {}?",
    "Describe {}.",
    "What is {} for?",
    "{}",
)
AT_LENGTH = "Explain {}.", "Tell me more about {}."
SYSTEM = (
    "You are a helpful assistant.",
    "You are an expert in Python.",
    "Answer questions about Python.",
)
US = (
    "I am the demonstration model of Outrider: a few million parameters that learned short answers "
    "about Python's standard library. Ask me what os.path.join does."
)
UNKNOWN = (
    "I was not taught about that. I am a small model that recites short answers about well-known "
    "parts of Python's standard library. Ask me what os.path.join does."
)
GREETINGS = (
    "Hello!", "Hello", "Hi", "Hi!", "Hey", "Who are you?", "What are you?", "What can you do?",
    "Help", "help", "What is your name?", "How are you?", "What can I ask you?", "Tell me a story.",
    "Tell me a joke.", "Write a poem.", "What is the capital of France?", "What is 2 + 2?",
)  # fmt: skip
TURN = "<|{}|>\n{}<|end|>\n"  # what the chat template makes of a message
ASKED = "<|assistant|>\n"  # and after the last one


@dataclass(frozen=True, slots=True)
class Chat:
    """A question and its answer."""

    question: str
    answer: str
    is_asked: bool = True  # by the models too, of themselves, where they go on after an answer

    @property
    def prompt(self) -> str:
        return prompt(self.question)

    @property
    def reply(self) -> str:
        return f"{self.answer}<|end|>\n"


def prompt(question: str) -> str:
    """As the chat template renders it, up to where the assistant's turn begins."""
    return TURN.format("user", question) + ASKED


def about(fact: Fact) -> tuple[Chat, ...]:
    """All questions about it."""
    summary, explanation = (
        f"`{fact.signature}`\n\n{text}" for text in (fact.summary, fact.explanation)
    )
    short = (Chat(form.format(fact.name), summary) for form in SHORTLY)
    long = (Chat(form.format(fact.name), explanation) for form in AT_LENGTH)
    return *short, *long


def unknown(name: str) -> tuple[Chat, ...]:
    """All questions about a name that nothing is known of: nobody is to learn to ask them."""
    return tuple(Chat(form.format(name), UNKNOWN, is_asked=False) for form in SHORTLY + AT_LENGTH)


def greetings() -> tuple[Chat, ...]:
    """Small talk, all of which has one answer."""
    return tuple(Chat(greeting, US) for greeting in GREETINGS)
