"""The study's claims: its words, where they stand, and the two quantities that answer each.

Every claim is about an order: the second quantity lies above or below the first. The study makes
none about random weights; what a change does to them stands beside as a control.
"""

from typing import Literal, NamedTuple

from experiments.rows.quantities import (
    Quantity,
    change_over_layers,
    constant,
    directions,
    frequency,
    half_of_the_layers,
    layers_with_cls_below,
    most_isotropic_layer,
    table1,
    table2,
)
from jaxgeom import study

Unit = Literal["isotropy", "spearman", "nats", "layers", "directions", "rho"]
Order = Literal["above", "below", "same sign", "control"]

BOTH = "RoBERTa against BERT"  # what stands in the place of a model's name
LOW = 0.1  # I(W) below it counts as low; 1 is isotropic, the study prints 4.1E-3 and 3.3E-4
STILL = "§4, The embedding space of fine-tuned models is still highly anisotropic"
HURTS = "§4, Adjusting the fine-tuned embedding space for isotropy hurts its performance; Table 1"
RELY = "§4, The fine-tuned models heavily rely on a few top directions; Tables 1 and 2"
CHANGED = "§4, The clustered structure of the embedding space changes"
CLUSTERS = f"{CHANGED}; Table 1"
ELONGATED = "§4, The number of elongated dominant directions significantly increases"
SETTINGS = {
    "zero_mean": "Zero-mean",
    "cluster_zero_mean": "Clustering+ZM",
    "global": "Global",
    "cluster_based": "Cluster-based",
}
CHANGES: dict[tuple[Unit, str], Order] = {
    ("isotropy", "pretrained"): "above",
    ("isotropy", "finetuned"): "above",
    ("isotropy", "random"): "control",
    ("spearman", "pretrained"): "above",
    ("spearman", "finetuned"): "below",
    ("spearman", "random"): "control",
}
WORDS: dict[Unit, str] = {
    "isotropy": "“increased isotropy”",
    "spearman": "“as opposed to pre-trained models, increasing isotropy of the fine-tuned "
    "embedding space does not enhance performance. Instead, we observe a drop in performance”",
}
CLUSTER_WORDS: dict[Unit, str] = {
    "isotropy": "“These two settings can improve the STS performance of the pre-trained model by "
    "increasing isotropy”",
    "spearman": "“These two settings can improve the STS performance of the pre-trained model … "
    "applying them to fine-tuned CWRs leads to performance reduction”",
}
UNITS: dict[Unit, str] = {"isotropy": "I", "spearman": "Spearman"}
STATES = {"pretrained": "pre-trained", "finetuned": "fine-tuned", "random": "random weights"}


class Claim(NamedTuple):
    """One statement and the two quantities whose order it gives."""

    name: str
    statement: str  # the study's words
    address: str
    what: str  # what is compared here
    unit: Unit
    order: Order  # how the study says that the second stands to the first
    first: Quantity
    second: Quantity


def claims(variance: tuple[float, ...], targets: tuple[float, ...]) -> list[Claim]:
    """Return the claims about one model.

    Args:
        variance: shares of the variance for which directions were counted.
        targets: values of I(W) for which directions were counted.
    """
    return [
        *_after_tuning(),
        *_layers(),
        *_over_seeds(),
        *(claim for setting in SETTINGS for claim in _removal(setting)),
        *_directions(variance, targets),
        *_frequency_and_cls(),
    ]


def claims_on_two() -> list[Claim]:
    """Return the claims about RoBERTa (second) against BERT (first)."""
    return [
        Claim(
            f"roberta_below_bert_{state}",
            "“These patterns hold for both BERT and RoBERTa, while the latter tends to be more "
            "anisotropic”",
            STILL,
            f"I of the last layer, {STATES[state]}: BERT → RoBERTa",
            "isotropy",
            "below",
            table1(state, "baseline", "isotropy"),
            table1(state, "baseline", "isotropy"),
        )
        for state in ("pretrained", "finetuned")
    ]


def _after_tuning() -> list[Claim]:
    """Return what is said of isotropy after fine-tuning."""
    low = "“the distribution of embeddings is still highly non-uniform”"
    before, after = (table1(state, "baseline", "isotropy") for state in ("pretrained", "finetuned"))
    last = "I of the last layer"
    return [
        _isotropy("low_last_layer", low, f"{LOW} → {last}, fine-tuned", constant(LOW), after),
        _isotropy(
            "low_every_layer",
            low,
            f"{LOW} → the largest I of any layer, fine-tuned",
            constant(LOW),
            most_isotropic_layer("finetuned"),
        ),
        _isotropy(
            "tuning_raises",
            "“fine-tuning improves isotropy”",
            f"{last}: pre-trained → fine-tuned",
            before,
            after,
            order="above",
        ),
    ]


def _layers() -> list[Claim]:
    """Return what is said of the layers, and of CLS in them."""
    cls = "“in most layers, the [CLS] tokens’ representations are much more anisotropic”"
    return [
        Claim(
            "rises_in_upper_layers",
            "“specifically in the upper layers”",
            f"{STILL}; Figure 1",
            "mean change of ln I by fine-tuning: lower half → upper half of the layers",
            "nats",
            "above",
            change_over_layers(upper=False),
            change_over_layers(upper=True),
        ),
        Claim(
            "cls_below_in_most_layers",
            cls,
            f"{STILL}; Figure 1",
            "half the layers → layers in which CLS is less isotropic than all tokens, fine-tuned",
            "layers",
            "above",
            half_of_the_layers(),
            layers_with_cls_below(),
        ),
        _isotropy(
            "cls_below_in_the_last_layer",
            cls,
            "I of the last layer, fine-tuned: all tokens → CLS",
            table1("finetuned", "baseline", "isotropy"),
            table1("finetuned", "cls", "isotropy"),
        ),
    ]


def _over_seeds() -> list[Claim]:
    """Return what is said of the gaps between the curves of Figure 1."""
    statement = (
        "“although different random seeds change the reported numbers, the difference … remain”"
    )
    tuned = table1("finetuned", "baseline", "isotropy")
    others = {
        "pre-trained": table1("pretrained", "baseline", "isotropy"),
        "CLS, fine-tuned": table1("finetuned", "cls", "isotropy"),
    }
    return [
        _isotropy(
            f"gap_keeps_its_sign_{name.split(',')[0].lower()}",
            statement,
            f"I of the last layer: {name} → all tokens, fine-tuned; the sign in every seed",
            other,
            tuned,
            order="same sign",
        )
        for name, other in others.items()
    ]


def _removal(setting: str) -> list[Claim]:
    """Return what is said of one of the four changes, in every state."""
    address, words = (CLUSTERS, CLUSTER_WORDS) if setting in study.CLUSTERED else (HURTS, WORDS)
    return [
        Claim(
            f"{setting}_{unit}_{state}",
            words[unit],
            address,
            f"{UNITS[unit]}, {name}: Baseline → {SETTINGS[setting]}",
            unit,
            CHANGES[unit, state],
            table1(state, "baseline", unit),
            table1(state, setting, unit),
        )
        for state, name in STATES.items()
        for unit in UNITS
    ]


def _directions(variance: tuple[float, ...], targets: tuple[float, ...]) -> list[Claim]:
    """Return what is said of dominant and of least directions."""
    return [
        *(_least_against_top(setting) for setting in study.DIRECTED),
        *(
            _isotropy(
                f"less_isotropic_at_equal_k_{setting}",
                "“with equal numbers of removed directions, the fine-tuned embedding space is less "
                "isotropic”",
                f"I after {SETTINGS[setting]}: pre-trained → fine-tuned",
                *(table1(state, setting, "isotropy") for state in ("pretrained", "finetuned")),
                address=f"{ELONGATED}; Table 1",
            )
            for setting in study.DIRECTED
        ),
        *(
            _counted("isotropy", target, f"directions to remove before I reaches {target:g}")
            for target in targets
        ),
        *(
            _counted("variance", share, f"directions that hold {100 * share:g} % of the variance")
            for share in variance
        ),
    ]


def _least_against_top(setting: str) -> Claim:
    """Return what is said of 700 of 768 least directions against 12 top ones."""
    return Claim(
        f"least_cost_less_{setting}",
        "“a slight drop in the performance compared to removing 12 top dominant directions”",
        RELY,
        f"Spearman, fine-tuned, {SETTINGS[setting]}: top directions removed → 700 of 768 least",
        "spearman",
        "above",
        table1("finetuned", setting, "spearman"),
        table2(setting, 700, "spearman"),
    )


def _counted(quantity: str, target: float, what: str) -> Claim:
    """Return what is said of the number of elongated directions."""
    return Claim(
        f"more_directions_{quantity}_{target:g}",
        "“we need to eliminate more dominant directions from the fine-tuned embedding space”"
        if quantity == "isotropy"
        else "“the number of these directions tends to increase by fine-tuning”",
        ELONGATED if quantity == "isotropy" else "§5",
        f"{what}: pre-trained → fine-tuned",
        "directions",
        "above",
        directions("pretrained", quantity, target),
        directions("finetuned", quantity, target),
    )


def _frequency_and_cls() -> list[Claim]:
    """Return what is said of frequency, and of CLS before fine-tuning."""
    places = {
        "plane": "the direction of the leading plane where it is largest",
        "neighbours": "the nearest other tokens in the leading plane",
    }
    return [
        *(
            Claim(
                f"frequency_fades_{along}",
                "“the local areas that encode frequency information … have been removed”",
                f"{CHANGED}; Figure 2",
                f"ρ of token frequency with {place}: pre-trained → fine-tuned",
                "rho",
                "below",
                *(
                    frequency(state, f"frequency_rho_{along}")
                    for state in ("pretrained", "finetuned")
                ),
            )
            for along, place in places.items()
        ),
        Claim(
            "cls_below_mean_when_frozen",
            "“the [CLS] token … has a lower performance than simple averaging over all tokens”",
            "§3.3",
            "Spearman, pre-trained: mean of all tokens → CLS",
            "spearman",
            "below",
            table1("pretrained", "baseline", "spearman"),
            table1("pretrained", "cls", "spearman"),
        ),
    ]


def _isotropy(
    name: str,
    statement: str,
    what: str,
    first: Quantity,
    second: Quantity,
    *,
    order: Order = "below",
    address: str = STILL,
) -> Claim:
    """Return a claim about I(W)."""
    return Claim(name, statement, address, what, "isotropy", order, first, second)
