"""Makes a tiny Llama with random weights and a tokenizer, offline; run by vLLM's own Python, never imported.

Usage: python tiny_model.py FOLDER
"""

import sys
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTEXT = 8192
END, START, PADDING = "<|end|>", "<|start|>", "<|padding|>"
TEMPLATE = (
    f"{{% for message in messages %}}{START}{{{{ message['role'] }}}}\n"
    f"{{{{ message['content'] }}}}{END}\n{{% endfor %}}"
    f"{{% if add_generation_prompt %}}{START}assistant\n{{% endif %}}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE, trained on the source of Python's standard library, which is always present."""
    library = Path(sysconfig.get_path("stdlib"))
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in sorted(library.glob("*.py"))[:100])
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=2048,
            special_tokens=[PADDING, START, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    trained = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PADDING,
        additional_special_tokens=[START],
        model_max_length=CONTEXT,
    )
    trained.chat_template = TEMPLATE
    return trained


def main() -> None:
    folder = sys.argv[1]
    words = tokenizer()
    words.save_pretrained(folder)
    torch.manual_seed(67)
    shape = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    LlamaForCausalLM(shape).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main()
