"""From a scene of mini-sts to an English sentence: which names, and in which order.

A second sentence can be told to keep the first one's wording or to avoid it, wherever there is
another.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from jaxgeom.tasks._lexicon import ACTIONS, ADJECTIVES, NOUNS, NUMBERS, SETTINGS
from jaxgeom.tasks._scenes import Entity, Scene, draw

# {a} agent, {o} object, {is_a} and {is_o} their "is" or "are", {p} the verb's present participle,
# {v} its past one, {s} the setting.
TEMPLATES = (
    "{a} {is_a} {p} {o} {s}",
    "{o} {is_o} being {v} by {a} {s}",
    "{s} {a} {is_a} {p} {o}",
    "{s} {o} {is_o} being {v} by {a}",
    "there {is_a} {a} {p} {o} {s}",
    "there {is_o} {o} being {v} by {a} {s}",
    "{a} can be seen {p} {o} {s}",
    "{o} can be seen being {v} by {a} {s}",
)

T = TypeVar("T")


class Wording:
    """Choices among names for the same; one object words both sentences of a pair."""

    def __init__(self, rng: Random, keep: float):
        self._rng = rng
        self._keep = keep  # how often a choice made before is made again
        self._made: dict[str, int] = {}  # what was named -> which name

    def sentence(self, scene: Scene) -> str:
        """Return a sentence that tells the scene."""
        template = self._choose("template", TEMPLATES)
        verb = self._choose(f"verb {scene.action}", ACTIONS[scene.action].verbs)
        words = template.format(
            a=self._noun_phrase(scene.agent),
            o=self._noun_phrase(scene.object),
            p=verb.present,
            v=verb.past,
            s="" if scene.setting is None else self._setting(scene.setting),
            is_a="is" if scene.agent.number is None else "are",
            is_o="is" if scene.object.number is None else "are",
        )
        text = " ".join(words.split())
        return f"{text[0].upper()}{text[1:]}."

    def _noun_phrase(self, entity: Entity) -> str:
        """Return article or number, adjective and noun."""
        noun = self._choose(f"noun {entity.meaning}", NOUNS[entity.kind][entity.meaning])
        adjective = ""
        if entity.adjective is not None:
            name = f"adjective {entity.kind} {entity.adjective}"
            adjective = self._choose(name, ADJECTIVES[entity.kind][entity.adjective])
        if entity.number is None:
            words = f"{adjective} {noun.singular}".strip()
            return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
        number = self._choose(f"number {entity.number}", NUMBERS[entity.number])
        return f"{number} {adjective} {noun.plural}"

    def _setting(self, setting: int) -> str:
        """Return where or when."""
        return self._choose(f"setting {setting}", SETTINGS[setting])

    def _choose(self, name: str, options: Sequence[T]) -> T:
        """Choose, with regard to what was chosen under the same name before."""
        made = self._made.get(name)
        keeps = self._rng.random() < self._keep
        if made is None:
            choice = draw(self._rng, range(len(options)))
        elif keeps or len(options) == 1:
            choice = made
        else:
            choice = draw(self._rng, [i for i in range(len(options)) if i != made])
        self._made[name] = choice
        return options[choice]
