"""The pairs of mini-sts: a scene, what becomes of it, and how much the two then have in common."""

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from jaxgeom.tasks._lexicon import ADJECTIVES, NUMBERS, SETTINGS
from jaxgeom.tasks._scenes import (
    Entity,
    Scene,
    belongs,
    draw,
    draw_entity,
    draw_scene,
    exchanged,
)
from jaxgeom.tasks._wording import Wording

# What is left of 5 by the parts of the core that two scenes share.
_CORE = {
    ("agent", "action", "object"): 5.0,
    ("action", "object"): 2.8,
    ("agent", "action"): 2.4,
    ("agent", "object"): 2.0,
    ("action",): 0.8,
    ("agent",): 0.8,
    ("object",): 0.8,
    (): 0.0,
}
_EXCHANGED = 2.2  # the same three, but the other one acts
# What each detail leaves of that: one that only one of the scenes has, one that is another there.
_DROPPED, _CHANGED = 0.85, 0.75
# How often the second sentence uses the first one's words, where it has others for the same: alike
# for all scores, since otherwise the number of common words would give them away.
_KEPT = 0.6


class ScoredPair(NamedTuple):
    """Two sentences and how alike in meaning they are."""

    sentence1: str
    sentence2: str
    score: float  # 0 (unrelated) to 5 (equivalent), one decimal
    kind: str  # one of KINDS


def draw_pairs(split: str, n_pairs: int, seed: int) -> Iterator[ScoredPair]:
    """Yield the pairs of a split; a larger number begins with the same ones.

    The seed changes what is drawn, never which cores belong to the split.
    """
    names = tuple(KINDS)
    for i in range(n_pairs):
        rng = Random(f"mini-sts {split} {seed} {i}")
        kind = names[i % len(names)]
        first, second = _scenes(rng, kind, split)
        wording = Wording(rng, keep=_KEPT)
        sentence1 = sentence2 = wording.sentence(first)
        while sentence2 == sentence1:
            sentence2 = wording.sentence(second)
        if rng.random() < 0.5:
            sentence1, sentence2 = sentence2, sentence1
        yield ScoredPair(sentence1, sentence2, grade(first, second), kind)


def grade(first: Scene, second: Scene) -> float:
    """Return how alike two scenes are, 0 to 5."""
    swapped = (first.agent.meaning, first.object.meaning) == (
        second.object.meaning,
        second.agent.meaning,
    )
    if swapped and first.action == second.action:
        second = exchanged(second)
        score = _EXCHANGED
    else:
        score = _CORE[_shared(first, second)]
    for mine, others in zip(_details(first), _details(second), strict=True):
        if mine != others:
            score *= _DROPPED if None in (mine, others) else _CHANGED
    return round(score, 1)


def _shared(first: Scene, second: Scene) -> tuple[str, ...]:
    """Return which parts of the core two scenes have in common."""
    return tuple(
        name
        for name, same in (
            ("agent", first.agent.meaning == second.agent.meaning),
            ("action", first.action == second.action),
            ("object", first.object.meaning == second.object.meaning),
        )
        if same
    )


def _details(scene: Scene) -> tuple[object, ...]:
    """Return a scene's details, None where it says nothing; a number is always said."""
    agent, target = scene.agent, scene.object
    one = len(NUMBERS)
    return (
        agent.adjective,
        target.adjective,
        scene.setting,
        one if agent.number is None else agent.number,
        one if target.number is None else target.number,
    )


def _scenes(rng: Random, kind: str, split: str) -> tuple[Scene, Scene]:
    """Draw a scene and what the kind makes of it, until both belong to the split."""
    while True:
        first = draw_scene(rng, split)
        second = KINDS[kind](rng, first)
        if belongs(second, split) and (second != first or kind == "paraphrase"):
            return first, second


def _same(_: Random, scene: Scene) -> Scene:
    """Return the scene itself."""
    return scene


def _dropped(rng: Random, scene: Scene) -> Scene:
    """Say nothing of up to two details."""
    return _without(rng, _without(rng, scene) if rng.random() < 0.5 else scene)


def _without(rng: Random, scene: Scene) -> Scene:
    """Say nothing of one detail, if the one drawn is there."""
    return draw(
        rng,
        (
            scene._replace(agent=scene.agent._replace(adjective=None)),
            scene._replace(object=scene.object._replace(adjective=None)),
            scene._replace(setting=None),
        ),
    )


def _changed(rng: Random, scene: Scene) -> Scene:
    """Say something else of up to three details."""
    for _ in range(1 + int(rng.random() * 3)):
        scene = _otherwise(rng, scene)
    return scene


def _otherwise(rng: Random, scene: Scene) -> Scene:
    """Say something else of one detail."""
    return draw(
        rng,
        (
            scene._replace(agent=_other_adjective(rng, scene.agent)),
            scene._replace(object=_other_adjective(rng, scene.object)),
            scene._replace(agent=_other_number(rng, scene.agent)),
            scene._replace(object=_other_number(rng, scene.object)),
            scene._replace(setting=draw(rng, range(len(SETTINGS)))),
        ),
    )


def _other_adjective(rng: Random, entity: Entity) -> Entity:
    """Return the entity with an adjective drawn anew."""
    return entity._replace(adjective=draw(rng, range(len(ADJECTIVES[entity.kind]))))


def _other_number(rng: Random, entity: Entity) -> Entity:
    """Return the entity with a number drawn anew, one among them."""
    return entity._replace(number=draw(rng, (None, *range(len(NUMBERS)))))


def _exchanged(rng: Random, scene: Scene) -> Scene:
    """Let agent and object change places."""
    return _perhaps_edited(rng, exchanged(scene))


def _other_agent(rng: Random, scene: Scene) -> Scene:
    """Let somebody else do it."""
    return _perhaps_edited(rng, scene._replace(agent=_another(rng, scene.agent)))


def _other_object(rng: Random, scene: Scene) -> Scene:
    """Let it be done to something else."""
    return _perhaps_edited(rng, scene._replace(object=_another(rng, scene.object)))


def _other_action(rng: Random, scene: Scene) -> Scene:
    """Let something else be done."""
    return _perhaps_edited(rng, scene._replace(action=draw_scene(rng).action))


def _one_in_common(rng: Random, scene: Scene) -> Scene:
    """Keep one part of the core."""
    other = draw_scene(rng)
    kept = draw(
        rng,
        (
            scene._replace(agent=_another(rng, scene.agent), object=_another(rng, scene.object)),
            scene._replace(action=other.action, object=other.object),
            scene._replace(action=other.action, agent=other.agent),
        ),
    )
    return _perhaps_edited(rng, kept)


def _unrelated(rng: Random, scene: Scene) -> Scene:
    """Keep nothing of the core, but perhaps where it happens."""
    other = draw_scene(rng)
    while _shared(scene, other):
        other = draw_scene(rng)
    return other._replace(setting=scene.setting) if rng.random() < 0.5 else other


def _another(rng: Random, entity: Entity) -> Entity:
    """Return somebody or something of the same kind, of whom the same is said."""
    new = draw_entity(rng, (entity.kind,))
    return new._replace(adjective=entity.adjective, number=entity.number)


def _perhaps_edited(rng: Random, scene: Scene) -> Scene:
    """Drop or change a detail as well, half of the time."""
    if rng.random() < 0.5:
        return scene
    return draw(rng, (_without, _otherwise))(rng, scene)


# What becomes of a scene; each kind makes as many pairs as any other.
KINDS: dict[str, Callable[[Random, Scene], Scene]] = {
    "paraphrase": _same,
    "dropped": _dropped,
    "changed": _changed,
    "exchanged": _exchanged,
    "other agent": _other_agent,
    "other object": _other_object,
    "other action": _other_action,
    "one in common": _one_in_common,
    "unrelated": _unrelated,
}
