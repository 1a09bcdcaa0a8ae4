"""From models and pairs to spaces: checkpoints, fine-tuned states, embeddings, labels."""
