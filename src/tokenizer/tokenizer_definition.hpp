// What a tokenizer file says, whichever form it has: the readers fill this in, Tokenizer is built from it.
#pragma once

#include "tokenizer/added_tokens.hpp"
#include "tokenizer/byte_pair_encoder.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/tokenizer.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metro::text {

struct TokenizerDefinition {
  std::string origin;  // file name, for messages
  std::vector<NormalForm> normal_forms;
  PreTokenizerRules pre_tokenizer;
  BpeRules model;
  std::vector<AddedToken> added_tokens;
};

// Reads the content of tokenizer.json. Throws Error(checkpoint) that names what is damaged or not supported.
TokenizerDefinition read_tokenizer_json(std::string_view content);

// Reads vocab.json, merges.txt, tokenizer_config.json and, if there, added_tokens.json, for the classes Qwen2Tokenizer
// and GPT2Tokenizer. Nothing if there is neither vocab.json nor merges.txt. Throws Error(checkpoint) as above.
std::optional<TokenizerDefinition> read_vocab_files(const TokenizerFiles& files);

}  // namespace metro::text
