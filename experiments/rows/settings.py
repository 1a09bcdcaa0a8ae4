"""The row of one setting, as table1.json and table2.json have it."""

from typing import Any

from experiments.rows import paper
from experiments.spaces.space import Space
from jaxgeom import study


def setting_row(
    space: Space, setting: dict[str, Any], result: study.SettingResult
) -> dict[str, Any]:
    """Return the row of one setting: what it is, what it gave, what the study prints there."""
    named = {"model": space.model, "state": space.state, **setting}
    printed = paper.printed_beside(paper.MODELS.get(space.model, ""), named)
    return {
        **named,
        "seed": space.seed,
        "protocol": space.protocol,
        "n_tokens": result.n_tokens,
        "spearman": study.spearman(result.vectors, space.scores),
        "isotropy": result.isotropy.isotropy,
        "isotropy_low": result.isotropy.low,
        "isotropy_high": result.isotropy.high,
        "n_zero_rows": result.n_zero_rows,
        "n_zero_sentences": result.n_zero_sentences,
        "n_empty_clusters": result.n_empty_clusters,
        "paper_spearman": printed and printed.spearman,
        "paper_isotropy": printed and printed.isotropy,
    }
