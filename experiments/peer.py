"""What the training step is measured beside: transformers' BertForMaskedLM under torch."""

import numpy as np

from bertx.benchmark import Part
from bertx.encoder_config import EncoderConfig
from bertx.types import Example


def torch_training(config: EncoderConfig, batch: Example, gathered: bool) -> Part:
    """A step of transformers' BertForMaskedLM with AdamW in float32, dropout 0; 15 % of the positions have a label.

    gathered: its head is applied to those alone; as released it is applied to all.
    """
    import torch
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(
        BertConfig(
            vocab_size=config.vocab_size, hidden_size=config.width, num_hidden_layers=config.layers,
            num_attention_heads=config.heads, intermediate_size=config.mlp_width,
            max_position_embeddings=config.max_positions, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    ).train()  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens, mask, types = (
        torch.tensor(np.asarray(x)).long() for x in (batch.tokens, batch.segment_ids, batch.type_ids)
    )
    chosen = torch.rand(tokens.shape) < 0.15
    labels = torch.where(chosen, tokens, -100)

    def part() -> None:
        optimizer.zero_grad()
        if gathered:
            hidden = model.bert(tokens, attention_mask=mask, token_type_ids=types).last_hidden_state
            loss = torch.nn.functional.cross_entropy(model.cls(hidden[chosen]), tokens[chosen])
        else:
            loss = model(tokens, attention_mask=mask, token_type_ids=types, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return part
