"""The scenes of mini-sts: who does what to whom, how many, of what kind, and where; no words yet.

A scene's core is agent, action and object; everything else is detail. Each core belongs to one
split, so that no two splits have a sentence's filling in common. Draws use nothing of `Random` but
`random()`, whose sequence Python promises to keep from version to version.
"""

import hashlib
from collections.abc import Sequence
from random import Random
from typing import NamedTuple, TypeVar

from jaxgeom.tasks._lexicon import ACTIONS, ADJECTIVES, NOUNS, NUMBERS, SETTINGS

SHARES = {"train": 0.6, "dev": 0.2, "test": 0.2}  # of the cores

T = TypeVar("T")


class Entity(NamedTuple):
    """Somebody or something."""

    kind: str
    meaning: str
    adjective: int | None  # which of the kind's
    number: int | None  # which of NUMBERS; None is one


class Scene(NamedTuple):
    """Who does what to whom, and where or when."""

    agent: Entity
    action: str
    object: Entity
    setting: int | None


def draw(rng: Random, options: Sequence[T]) -> T:
    """Return one of the options, each as likely as any other."""
    return options[int(rng.random() * len(options))]


def draw_scene(rng: Random, split: str | None = None) -> Scene:
    """Draw a scene, of a split if one is named."""
    while True:
        action = draw(rng, tuple(ACTIONS))
        agent = draw_entity(rng, ACTIONS[action].agents)
        target = draw_entity(rng, ACTIONS[action].objects)
        setting = draw(rng, range(len(SETTINGS))) if rng.random() < 0.75 else None
        scene = Scene(agent, action, target, setting)
        if _makes_sense(scene) and split in (None, split_of(scene)):
            return scene


def draw_entity(rng: Random, kinds: Sequence[str]) -> Entity:
    """Draw somebody or something of one of the kinds, half of the time with an adjective."""
    kind = draw(rng, kinds)
    return Entity(
        kind,
        draw(rng, tuple(NOUNS[kind])),
        draw(rng, range(len(ADJECTIVES[kind]))) if rng.random() < 0.5 else None,
        draw(rng, range(len(NUMBERS))) if rng.random() < 0.3 else None,
    )


def belongs(scene: Scene, split: str) -> bool:
    """Whether a scene makes sense and is one of the split's."""
    return _makes_sense(scene) and split_of(scene) == split


def _makes_sense(scene: Scene) -> bool:
    """Whether the action can have this agent and this object, who are not the same."""
    action = ACTIONS[scene.action]
    fits = scene.agent.kind in action.agents and scene.object.kind in action.objects
    return fits and scene.agent.meaning != scene.object.meaning


def exchanged(scene: Scene) -> Scene:
    """Return the scene in which agent and object have changed places."""
    return scene._replace(agent=scene.object, object=scene.agent)


def split_of(scene: Scene) -> str:
    """Return the split of a scene's core: its text alone decides, whoever of the two acts."""
    core = sorted((scene.agent.meaning, scene.object.meaning))
    digest = hashlib.sha256("|".join([scene.action, *core]).encode()).digest()
    place = int.from_bytes(digest[:4], "big") / 2**32
    for split, share in SHARES.items():
        place -= share
        if place < 0:
            return split
    return "test"
