"""Text and a recipe so small that pre-training takes a moment; for the tests of pre-training."""

from pathlib import Path

import numpy as np

from jaxgeom.training.mlm import MLMConfig

TEXT = "the a old small red boat dog river engineer measures crosses watches rain lake morning"
WORDS = f"{TEXT} quiet slowly under over two three".split()
# All tests train with these shapes: the step is compiled once for each architecture.
RECIPE = MLMConfig(
    arch="bert",
    vocab_size=300,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=24,
    row_length=16,
    batch_size=4,
    n_steps=7,
    learning_rate=1e-2,
    held_out_share=0.1,
)
EVERY = 3  # checkpoints after steps 3, 6 and 7


def sentences(n: int = 200, seed: int = 0) -> list[str]:
    """Different made-up sentences of 2 to 8 words."""
    rng = np.random.default_rng(seed)
    made = (" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(2 * n))
    return list(dict.fromkeys(made))[:n]


def write_corpus(folder: Path) -> Path:
    """Write two text files with the sentences, one of them with empty and repeated lines."""
    folder.mkdir(parents=True, exist_ok=True)
    made = sentences()
    (folder / "a.txt").write_text("\n".join(made[:100]) + "\n\n", encoding="utf-8")
    (folder / "b.txt").write_text("\n".join([*made[100:], made[0]]), encoding="utf-8")
    return folder
