"""From a corpus to rows: sources, sentences, tokenizer, token store, plan, rows, pipeline."""
