"""mini-sts: an STS set made up from a grammar, which needs no file, no network and no licence.

    python -m jaxgeom.tasks.mini_sts --split dev --seed 0 > dev.csv

A scene has an agent, an action and an object, and details: adjectives, numbers, where or when. Two
sentences tell two scenes, and the score, 0 to 5, says what these have in common: all of it (5),
all but a dropped or changed detail, the same three with their roles exchanged, two of the three,
one, nothing (0). Wording (synonyms, passive, order) differs alike for all scores, so that counting
common words does not do. Train, dev and test share no combination of a
template and the words that fill it: which agents, actions and objects go together belongs to one of
them.

The set is for trying things out where no data is at hand. Its language is that of a grammar, and no
person has judged its scores.
"""

import argparse
import csv
import sys
from collections.abc import Sequence

from jaxgeom.tasks.sts import MINI_STS_PAIRS, SPLITS, made_up


def main(args: Sequence[str] | None = None) -> int:
    """Print pairs as CSV without a header: sentence1, sentence2, score.

    Args:
        args: The flags; those of the process where None.

    Returns:
        The exit status: 0, or 2 for a number out of range.
    """
    parser = argparse.ArgumentParser(
        prog="python -m jaxgeom.tasks.mini_sts",
        description="Print an STS set made up from a grammar, as CSV: sentence1, sentence2, score.",
    )
    parser.add_argument("--split", choices=SPLITS, default="dev")
    sizes = ", ".join(f"{number} for {split}" for split, number in MINI_STS_PAIRS.items())
    parser.add_argument("--n-pairs", type=int, help=f"how many pairs; without it {sizes}")
    parser.add_argument("--seed", type=int, default=0, help="another one draws other pairs")
    options = parser.parse_args(args)
    try:
        pairs = made_up(options.split, n_pairs=options.n_pairs, seed=options.seed)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(zip(pairs.sentences1, pairs.sentences2, pairs.scores, strict=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
