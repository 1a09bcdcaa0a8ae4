"""Pre-training and the study's fine-tuning of encoders; both may be interrupted at any moment."""

from jaxgeom.training.checkpoints import CheckpointError
from jaxgeom.training.evaluation import evaluate, sentence_vectors
from jaxgeom.training.finetuning import finetune
from jaxgeom.training.loop import DivergenceError
from jaxgeom.training.mlm import MLMConfig
from jaxgeom.training.pretraining import pretrain
from jaxgeom.training.sentence_model import save_sentence_model
from jaxgeom.training.siamese import SiameseConfig, siamese_loss

__all__ = [
    "CheckpointError",
    "DivergenceError",
    "MLMConfig",
    "SiameseConfig",
    "evaluate",
    "finetune",
    "pretrain",
    "save_sentence_model",
    "sentence_vectors",
    "siamese_loss",
]
