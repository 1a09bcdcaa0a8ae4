"""mini-sts: its grades, its splits, its sentences, and that it is the same everywhere."""

import collections
import csv
import hashlib
import io
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from jaxgeom.tasks import mini_sts, read_sts
from jaxgeom.tasks._lexicon import ACTIONS, ADJECTIVES, NOUNS, NUMBERS, SETTINGS
from jaxgeom.tasks._pairs import KINDS, ScoredPair, grade
from jaxgeom.tasks._scenes import Entity, Scene, belongs, draw_scene, exchanged, split_of
from jaxgeom.tasks._wording import TEMPLATES, Wording
from jaxgeom.tasks.sts import MINI_STS_PAIRS, made_up

MAN = Entity("person", "man", 0, None)
DOG = Entity("animal", "dog", None, 1)
SCENE = Scene(MAN, "chasing", DOG, 3)


# The sets as a user draws them: a process of its own, without the checks of every call in tests,
# which take a dozen times as long as the drawing.
DRAW = """
import json
from jaxgeom.tasks import read_sts
from jaxgeom.tasks._pairs import draw_pairs
from jaxgeom.tasks.sts import MINI_STS_PAIRS
print(json.dumps({name: list(draw_pairs(name, n, 0)) for name, n in MINI_STS_PAIRS.items()}))
read = {name: read_sts("mini-sts", split=name) for name in MINI_STS_PAIRS}
print(json.dumps({name: [*p[:2], p.scores.tolist(), p.name] for name, p in read.items()}))
"""


def in_a_process(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def drawn() -> list[dict[str, Any]]:
    return [json.loads(line) for line in in_a_process("-c", DRAW).splitlines()]


@pytest.fixture(scope="module")
def splits(drawn: list[dict[str, Any]]) -> dict[str, list[ScoredPair]]:
    return {name: [ScoredPair(*pair) for pair in pairs] for name, pairs in drawn[0].items()}


@pytest.mark.parametrize(
    ("other", "score"),
    [
        (SCENE, 5.0),
        (SCENE._replace(setting=None), 4.2),  # 5 × 0.85
        (SCENE._replace(setting=None, agent=MAN._replace(adjective=None)), 3.6),
        (SCENE._replace(setting=5), 3.8),  # 5 × 0.75
        (SCENE._replace(object=DOG._replace(number=None)), 3.8),
        (SCENE._replace(agent=MAN._replace(meaning="woman")), 2.8),
        (SCENE._replace(object=DOG._replace(meaning="cat")), 2.4),
        (SCENE._replace(action="feeding"), 2.0),
        (Scene(DOG, "chasing", MAN, 3), 2.2),
        (Scene(DOG, "chasing", MAN, None), 1.9),  # 2.2 × 0.85
        (Scene(DOG, "feeding", MAN, 3), 0.0),
        (SCENE._replace(action="feeding", agent=MAN._replace(meaning="king")), 0.8),
    ],
)
def test_grades(other: Scene, score: float) -> None:
    assert grade(SCENE, other) == grade(other, SCENE) == score


def test_kinds_are_graded_from_paraphrase_to_unrelated(splits: dict) -> None:
    scores = collections.defaultdict(list)
    for pair in splits["dev"]:
        scores[pair.kind].append(pair.score)
    assert set(scores["paraphrase"]) == {5.0}
    assert set(scores["unrelated"]) == {0.0}
    means = [np.mean(scores[kind]) for kind in KINDS]
    paraphrase, dropped, changed, *two_thirds, one, unrelated = means
    assert paraphrase > dropped > changed > max(two_thirds)
    assert min(two_thirds) > one > unrelated
    assert {pair.kind for pair in splits["dev"]} == set(KINDS)
    assert len({pair.score for pair in splits["dev"]}) > 20


def test_splits_share_no_core_and_no_sentence(splits: dict) -> None:
    sentences = {name: {s for pair in pairs for s in pair[:2]} for name, pairs in splits.items()}
    for name, others in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not sentences[name] & sentences[others]
    rng = Random(0)
    cores = collections.defaultdict(set)
    for name in splits:
        for _ in range(100):
            scene = draw_scene(rng, name)
            assert belongs(scene, name)
            assert split_of(exchanged(scene)) == name
            cores[name].add((scene.agent.meaning, scene.action, scene.object.meaning))
    assert not cores["train"] & cores["dev"]


def test_a_pair_is_seldom_drawn_twice(splits: dict) -> None:
    for pairs in splits.values():
        assert len({pair[:2] for pair in pairs}) > 0.99 * len(pairs)
        assert all(pair.sentence1 != pair.sentence2 for pair in pairs)


def bag_of_words(sentence: str) -> collections.Counter[str]:
    return collections.Counter(re.findall(r"\w+", sentence.lower()))


def cosine(first: collections.Counter[str], second: collections.Counter[str]) -> float:
    dot = sum(count * second[word] for word, count in first.items())
    lengths = [sum(count**2 for count in bag.values()) for bag in (first, second)]
    return dot / np.sqrt(lengths[0] * lengths[1])


def test_counting_words_does_not_do(splits: dict) -> None:
    for name in ("dev", "test"):
        cosines = [cosine(*map(bag_of_words, pair[:2])) for pair in splits[name]]
        spearman = 100 * spearmanr(cosines, [pair.score for pair in splits[name]]).statistic
        assert 25 < spearman <= 65


def test_sentences_are_sentences(splits: dict) -> None:
    for pair in splits["train"]:
        for sentence in pair[:2]:
            assert re.fullmatch(r"[A-Z][a-z ]+\.", sentence), sentence
            assert "  " not in sentence
            words = sentence[:-1].lower().split()
            for article, word in itertools.pairwise(words):
                if article in ("a", "an"):
                    assert (article == "an") == (word[0] in "aeiou"), sentence


def test_numbers_agree() -> None:
    scene = SCENE._replace(setting=None)
    told = {Wording(Random(i), keep=1.0).sentence(scene) for i in range(200)}
    for sentence in told:
        one_first = re.match(r"(An?|There is an?) ", sentence)
        assert (" is " in sentence) or (" are " in sentence) or " can be seen " in sentence
        if " is " in sentence:
            assert one_first, sentence
        if " are " in sentence:
            assert "three" in sentence.lower()


def test_every_word_is_used_and_every_action_can_happen() -> None:
    for action in ACTIONS.values():
        assert set(action.agents) | set(action.objects) <= set(NOUNS)
    names = [name for nouns in NOUNS.values() for names in nouns.values() for name in names]
    assert len({name.singular for name in names}) == len(names)  # no name means two things
    for groups in (NUMBERS, SETTINGS, *ADJECTIVES.values()):
        flat = [name for group in groups for name in group]
        assert len(set(flat)) == len(flat)
    assert len(TEMPLATES) == len(set(TEMPLATES)) == 8


# The digest of "sentence1,sentence2,score" lines, the same under every version of Python and NumPy.
DIGESTS = {
    "train": "adb4a0e77a9a245c0b94dd0a5339127ae889d24058f91b14e25f8517ed1b4be4",
    "dev": "7c6adeab78d80580d65a98b1540a4cf66ff266c0c5e999d49d547aa3379797a9",
    "test": "9f69e33f090d4b75c89a7b60b31ae50b65fdc81258679a1aa587fac63ab7c008",
}


@pytest.mark.parametrize("split", DIGESTS)
def test_the_same_everywhere(split: str, drawn: list, splits: dict) -> None:
    *columns, name = drawn[1][split]
    read = list(zip(*columns, strict=True))
    assert read == [pair[:3] for pair in splits[split]]
    assert (len(read), name) == (MINI_STS_PAIRS[split], f"mini-sts:{split}")
    text = "".join(f"{a},{b},{score}\n" for a, b, score in read)
    assert hashlib.sha256(text.encode()).hexdigest() == DIGESTS[split]


def test_larger_sets_begin_alike_and_seeds_differ() -> None:
    small, large, other = (
        made_up("dev", n_pairs=20),
        made_up("dev", n_pairs=40),
        made_up("dev", n_pairs=20, seed=1),
    )
    assert large.sentences1[:20] == small.sentences1
    assert other.sentences1 != small.sentences1


def test_printed_as_csv(tmp_path: Path, splits: dict) -> None:
    printed = in_a_process("-m", "jaxgeom.tasks.mini_sts", "--split", "dev", "--seed", "0")
    (tmp_path / "dev.csv").write_text(printed, encoding="utf-8")
    again = read_sts(tmp_path)
    assert list(zip(*again[:2], again.scores, strict=True)) == [p[:3] for p in splits["dev"]]
    assert len(list(csv.reader(io.StringIO(printed)))) == 1000


def test_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert mini_sts.main(["--n-pairs", "3", "--split", "test"]) == 0
    assert capsys.readouterr().out.count("\n") == 3
    assert mini_sts.main(["--n-pairs", "0"]) == 2
    assert capsys.readouterr().err == "error: n_pairs must be at least 1, got 0\n"
    assert mini_sts.main(["--seed", "-1"]) == 2
    assert "seed must be at least 0" in capsys.readouterr().err
