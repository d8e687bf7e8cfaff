// What a tokenizer file says, whichever form it has: the readers fill this in, Tokenizer is built from it.
#pragma once

#include "tokenizer/added_tokens.hpp"
#include "tokenizer/byte_pair_encoder.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/token_decoder.hpp"
#include "tokenizer/tokenizer.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metro::text {

// What gets a space before it: each stretch between added tokens, the text if it begins with none, nothing.
enum class SpacePrefix { every_stretch, text, none };

struct SentencePieceRules {
  std::string content;  // of the model file, as sentence_piece_model.hpp makes it
  SpacePrefix prefix = SpacePrefix::every_stretch;
};

// What a prompt gets around it: ids of the beginning and end of a text.
struct PromptFrame {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

struct TokenizerDefinition {
  std::string origin;  // file name, for messages
  std::vector<NormalizationRule> normalizer;
  PreTokenizerRules pre_tokenizer;
  BpeRules model;                                    // of a SentencePiece model only the vocabulary
  std::optional<SentencePieceRules> sentence_piece;  // instead of normaliser, pre-tokeniser and merges
  DecoderRules decoder;
  std::vector<AddedToken> added_tokens;
  PromptFrame prompt_frame;
};

// Reads tokenizer.json and what tokenizer_config.json says beside it. Nothing if there is no tokenizer.json. These
// three throw Error(checkpoint) that names what is damaged or not supported.
std::optional<TokenizerDefinition> read_tokenizer_json(const TokenizerFiles& files);

// Reads tokenizer.model (or .v3, .v2, .v1 in its place) and what other files say beside it, as the class
// LlamaTokenizer. Nothing if there is none.
std::optional<TokenizerDefinition> read_sentence_piece_files(const TokenizerFiles& files);

// Reads vocab.json, merges.txt, tokenizer_config.json and, if there, added_tokens.json, for the classes Qwen2Tokenizer
// and GPT2Tokenizer. Nothing if there is neither vocab.json nor merges.txt.
std::optional<TokenizerDefinition> read_vocab_files(const TokenizerFiles& files);

}  // namespace metro::text
