"""Training of encoders: the study's Siamese fine-tuning, which may be interrupted at any moment."""

from jaxgeom.training.checkpoints import CheckpointError
from jaxgeom.training.evaluation import evaluate, sentence_vectors
from jaxgeom.training.finetuning import finetune
from jaxgeom.training.loop import DivergenceError
from jaxgeom.training.sentence_model import save_sentence_model
from jaxgeom.training.siamese import SiameseConfig, siamese_loss

__all__ = [
    "CheckpointError",
    "DivergenceError",
    "SiameseConfig",
    "evaluate",
    "finetune",
    "save_sentence_model",
    "sentence_vectors",
    "siamese_loss",
]
