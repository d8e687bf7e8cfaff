#!/usr/bin/env python3
"""Makes the small tokenizers with byte fallback beside this file (llama_*, sp_*) and what others make of some texts.

llama_*: tokenizer.json in the forms that models of the Llama and Mistral families have; ids and texts are those of the
tokenizers library. sp_*: tokenizer.model and tokenizer_config.json; ids and texts are those of the class
LlamaTokenizerFast of the transformers library, which converts the model for the tokenizers library: SentencePiece has
no part in them.

Usage: pip install tokenizers==0.23.3 sentencepiece==0.2.3, then python3 make_fallback_golden.py llama
       pip install transformers==4.57.1 sentencepiece==0.2.3 protobuf, then python3 make_fallback_golden.py sp
"""
import io
import json
import os
import sys

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from make_golden import CORPUS, HERE, TEXTS, write_lines

MARK = "\u2581"
MORE_TEXTS = ["<s>[INST] Hi [/INST] there</s><s>[INST]", "a<s> b", " <s>x", "x</s>", "<s>", "<unk>", "\u2581a \u2581 b", "<0x0A>\n",
              "new\nline\r\n\ttab", "\u4e2d\u6587\u0b95\U0001f600\u0301", "user <|user|>\n hi <|end|>  then", "[CALL] [CALL]x[CALL]",
              "the  experts   that the gate", "a\x00b"]


def train(model_type, **options):
    model = io.BytesIO()
    lines = [line for line in CORPUS.splitlines() if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=model_type, byte_fallback=True, character_coverage=0.99,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, minloglevel=2,
        **options)
    return model.getvalue()


def bpe_of(model, **options):
    """The vocabulary and merges of a BPE model, with the pieces in the order of their ids."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for i, piece in enumerate(pieces):
        if not processor.is_byte(i) and not processor.is_control(i):
            splits = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
            merges += [(vocab[piece], left, right) for left, right in splits if left in vocab and right in vocab]
    merges.sort(key=lambda merge: -processor.get_score(merge[0]))
    return Tokenizer(models.BPE(vocab=vocab, merges=[(left, right) for _, left, right in merges], unk_token="<unk>",
                                fuse_unk=True, byte_fallback=True, **options))


def decoder(strips=True):
    parts = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(parts + ([decoders.Strip(" ", 1, 0)] if strips else []))


def frame(single, *tokens):
    return processors.TemplateProcessing(single=single, pair=None, special_tokens=list(tokens))


SPECIAL = [AddedToken(content, special=True, normalized=False) for content in ("<unk>", "<s>", "</s>")]
CHAT = [AddedToken("<|user|>", special=True, normalized=False, rstrip=True), AddedToken("<|end|>", special=True, normalized=False),
        AddedToken("[CALL]", normalized=True), AddedToken(" then", normalized=True)]


def make_json(name, model):
    tokenizer = bpe_of(model, ignore_merges=name == "llama_always")
    tokenizer.decoder = decoder(strips=name != "llama_never")
    if name == "llama_legacy":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
        tokenizer.post_processor = frame("<s> $A", ("<s>", 1))
    elif name == "llama_first":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARK, prepend_scheme="first", split=False)
        tokenizer.post_processor = frame("<s> $A </s>", ("<s>", 1), ("</s>", 2))
    elif name == "llama_always":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(False), pre_tokenizers.Metaspace(MARK)])
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex("\\s+"), MARK)])
        tokenizer.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_previous")
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens(CHAT)
    return tokenizer


def golden(texts, encode, encode_prompt, decode):
    pairs = []
    for text in texts:
        ids = encode(text)
        pair = {"text": text, "ids": ids, "decoded": decode(ids, False)}
        if decode(ids, True) != pair["decoded"]:
            pair["decoded_without_special"] = decode(ids, True)
        if encode_prompt(text) != ids:
            pair["prompt_ids"] = encode_prompt(text)
        pairs.append(pair)
    return pairs


def write_folder(name, files, pairs):
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    for file_name, content in files.items():
        with open(os.path.join(folder, file_name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    write_lines(os.path.join(folder, "golden.json"), pairs)


def make_llama(bpe):
    for name in ("llama_legacy", "llama_first", "llama_always", "llama_never"):
        tokenizer = make_json(name, bpe)
        write_folder(name, {"tokenizer.json": tokenizer.to_str()},
                     golden(TEXTS + MORE_TEXTS, lambda text: tokenizer.encode(text, add_special_tokens=False).ids, lambda text: tokenizer.encode(text).ids,
                            lambda ids, skips: tokenizer.decode(ids, skip_special_tokens=skips)))


def make_sp(bpe):
    from transformers import LlamaTokenizerFast

    chat = {"content": "<|user|>", "lstrip": False, "rstrip": True, "normalized": False, "single_word": False, "special": True}
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "tokenizer_class": "LlamaTokenizer"}
    folders = {
        "sp_bpe": (bpe, {**special, "legacy": True, "add_eos_token": True}),
        "sp_bpe_first": (bpe, {**special, "legacy": False, "add_bos_token": False, "added_tokens_decoder": {
            **{str(i): {**chat, "content": content, "rstrip": False} for i, content in enumerate(("<unk>", "<s>", "</s>"))},
            "560": chat, "561": {**chat, "content": "<|end|>", "rstrip": False}}}),
        "sp_unigram": (train("unigram", vocab_size=420, user_defined_symbols=["[CALL]"], control_symbols=["<|end|>"]),
                       {**special, "legacy": False, "add_prefix_space": False}),
    }
    for name, (model, config) in folders.items():
        files = {"tokenizer.model": model, "tokenizer_config.json": json.dumps(config, indent=1) + "\n"}
        write_folder(name, files, [])
        tokenizer = LlamaTokenizerFast.from_pretrained(os.path.join(HERE, name))
        write_folder(name, files,
                     golden([text for text in TEXTS + MORE_TEXTS if "<0x" not in text or name != "sp_unigram"],
                            lambda text: tokenizer.encode(text, add_special_tokens=False), tokenizer.encode,
                            lambda ids, skips: tokenizer.decode(ids, skip_special_tokens=skips, clean_up_tokenization_spaces=False)))


if __name__ == "__main__":
    {"llama": make_llama, "sp": make_sp}[sys.argv[1]](train("bpe", vocab_size=560))
