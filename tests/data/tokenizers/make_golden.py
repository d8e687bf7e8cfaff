#!/usr/bin/env python3
"""Makes the small tokenizers beside this file and what the Hugging Face tokenizers library makes of some texts.

Usage: pip install tokenizers==0.23.3 && python3 make_golden.py   (writes <name>/tokenizer.json and <name>/golden.json)
"""
import json
import os
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())

# Something to learn merges from.
CORPUS = """
A token is sent to the experts that the gate has chosen for it, and the results come back to the rank that owns it.
There are more experts than ranks; some experts live on several ranks, and the router picks one of them for each token.
When the router spreads the tokens well, no rank reads more weights than the others, and all of them finish together.
It's what we're after: they'll say it can't be done, I've seen that it's possible, and you'd better try, I'm sure.
def route(tokens, ranks):\n    for token in tokens:\n        if token.is_special:\n            continue\n\n    return ranks
for (int i = 0; i < 1024; ++i) {\n\t\ttotal += values[i] * 3.14159;\n\t}\n
The years 1969, 1984 and 2001 have 4 digits each; 123456 has six and 7890123 seven.    Spaces  come   in    runs.
汉字测试，语言模型。日本語のテスト。カタカナ 한국어 문장 русский текст ελληνικά naïve café déjà vu straße
""" * 3

LATIN = "A-Za-zµÀ-ÖØ-öø-ʓʕ-ʯͰ-ͳͶͷΈ-ΊΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ\\u1e00-\\u1f15\\u2126\\u212a-\\u212dꙀ-ꙭＡ-Ｚａ-ｚ𐐀-𐑏"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
               r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(add_prefix_space=False, use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def sequence(*parts):
    return pre_tokenizers.Sequence(list(parts))


def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def plain(content, **flags):
    return AddedToken(content, **{"normalized": False, **flags})


# Every flag of an added token, contents that overlap, and contents that a normal form changes.
FLAGS = [
    plain("<l>", lstrip=True), plain("<r>", rstrip=True), plain("<lr>", lstrip=True, rstrip=True, special=True),
    plain("word", single_word=True, normalized=True), plain("caf\u00e9", normalized=True),
    plain("cafe\u0301s", normalized=True), plain("ab"), plain("abc"), plain("bcd"), plain("x y", normalized=True),
    plain("\u00c5", special=True), plain("solo", single_word=True, lstrip=True), plain("  ", rstrip=True),
    plain("õ", normalized=True),
]

# name: normalizer, pre-tokenizer, added tokens, ignore_merges
SPECS = {
    "neox": (None, byte_level(use_regex=True),
             [plain(" " * n, normalized=True) for n in range(8, 1, -1)] + special("<|endoftext|>", "<|padding|>"), False),
    "llama3": (None, sequence(split(LLAMA3), byte_level()), special("<|begin_of_text|>", "<|eot_id|>"), True),
    "deepseek_v3": (None, sequence(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK_V3), byte_level()),
                    [plain("<think>"), plain("<｜User｜>")] + special("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"), False),
    "deepseek_v2": (None, sequence(split("[\r\n]"), split(r"\s?[" + LATIN + "]+"), split(r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"),
                                   split(r"\s+$"), split("[一-龥ࠀ-一가-\ud7ff]+"), pre_tokenizers.Digits(True), byte_level()),
                    special("<｜begin▁of▁sentence｜>") + [plain(c, normalized=True) for c in "õ÷Áý"], False),
    "o200k": (normalizers.NFC(), sequence(split(O200K, "removed", True), byte_level()), special("<|start|>"), True),
    "flags_nfc": (normalizers.NFC(), sequence(split(LLAMA3), byte_level()), FLAGS, False),
    "flags_nfkd": (normalizers.Sequence([normalizers.NFC(), normalizers.NFKD()]),
                   sequence(pre_tokenizers.Split(". ", "merged_with_previous"), split(r"\s", "merged_with_next"),
                            split("[A-Z]", "contiguous"), split(r"\d+", "removed"), split("(?=x)"), split("^[#]|;$"),
                            pre_tokenizers.Digits(False), byte_level(add_prefix_space=True)), FLAGS, False),
    "prefix_nfkc": (normalizers.NFKC(), sequence(pre_tokenizers.Digits(True), byte_level(add_prefix_space=True, use_regex=True)),
                    special("<fim>"), False),
}

TEXTS = [
    "", "a", " ", "  two  spaces", "Hello, world!", "don't WON'T I'LL we'Ve it'\u017f 'S's", "1234567 3.14 ½²٣ 12",
    "tabs\tand\nnewlines\n\n\n  end ", "\r\n\r\n x\r\ny \n z  \n", "naïve café cafe\u0301 cafe\u0301s cafés",
    "汉字テスト，カタカナ。한국어 가각ㅏ", "emoji 😀👩\u200d👩\u200d👧 flag 🇩🇪", "a\u00a0b\u1680c\u180ed\u2003e\u2028f\u202fg\u3000h\u0085i\u200bj",
    "a\x1cb\x1fc\x0bd\x0ce\x00f", "<|endoftext|>x<|padding|>", "<|begin_of_text|>user<|eot_id|>\n", "<think>so</think><｜User｜> hi",
    "<｜begin▁of▁sentence｜>A<｜end▁of▁sentence｜>", "<fim> <|start|>", "a <l> b <r> c <lr> d", "<l><r>  <lr>   <l>", " <r>    x",
    "word swords word. _word word1 éword wordé word", "solo  solo solos a solo", "abcd abcbcd bcd abab", "x y xx yy x  y",
    "\u00c5 \u212b A\u030a e\u0301 q\u0323\u0307 q\u0307\u0323", "ﬁ ﬆ ß ẞ K \u212a Ⅷ ㍿ ½", "õ÷Áý \u0301 x",
    "\u0d3b\U00016af1 \u05a4\U0001e135 a\U000107b2", "One. Two.  Three. ABC deFG 12a34 (5)", "#a;\n#b;\n;c#", "int main() { return 0; }",
    "def f(x):\n    return x  # ok\n", "https://example.org/a?b=c&d=1_000", "snake_case camelCase HTTPServer X1", "      deep\n        deeper",
    "Ａ１ ｶﾞ", "ΑΒΓ αβγ ς", "русский ТЕКСТ", "עברית العربية हिन्दी ไทย", "“quotes” ‘x’ — dash…", "a" * 60, " " * 60, " " * 40 + "7", "\n" * 30,
    "ab" * 40, "😀" * 12, "'" * 5 + '"' * 5, "\ufeffbom", "tokens experts ranks router", "The experts that the gate has chosen",
]


def make(name):
    normalizer, pre_tokenizer, added_tokens, ignore_merges = SPECS[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=ALPHABET, show_progress=False)
    tokenizer.train_from_iterator([CORPUS], trainer)
    tokenizer.add_tokens(added_tokens)
    return tokenizer


def golden(tokenizer):
    generator = random.Random(7)
    vocab_size = tokenizer.get_vocab_size()
    pairs = []
    for text in TEXTS:
        pairs.append({"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids})
    for _ in range(20):  # ids that need not make text: decoding only
        pairs.append({"ids": [generator.randrange(vocab_size + 3) for _ in range(8)]})
    for pair in pairs:
        pair["decoded"] = tokenizer.decode(pair["ids"], skip_special_tokens=False)
        without_special = tokenizer.decode(pair["ids"], skip_special_tokens=True)
        if without_special != pair["decoded"]:
            pair["decoded_without_special"] = without_special
    return pairs


def write_lines(path, pairs):
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(pair, separators=(",", ":")) for pair in pairs) + "\n]\n")


def main():
    for name in SPECS:
        folder = os.path.join(HERE, name)
        os.makedirs(folder, exist_ok=True)
        tokenizer = make(name)
        tokenizer.save(os.path.join(folder, "tokenizer.json"), pretty=False)
        write_lines(os.path.join(folder, "golden.json"), golden(tokenizer))

    # The older form of files, for GPT2Tokenizer: no tokenizer.json; a special token that is a plain vocabulary entry.
    folder = os.path.join(HERE, "gpt2")
    os.makedirs(folder, exist_ok=True)
    tokenizer = make("neox")
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    vocab["<|endoftext|>"] = len(vocab)
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump(vocab, file)
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "eos_token": "<|endoftext|>",
                   "model_max_length": 1024}, file, indent=1)
    same = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(merge) for merge in merges]))
    same.pre_tokenizer = byte_level(use_regex=True)
    same.decoder = decoders.ByteLevel()
    same.add_special_tokens(["<|endoftext|>"])
    write_lines(os.path.join(folder, "golden.json"), golden(same))


if __name__ == "__main__":
    main()
