// tokenizer_config.json and the older files beside it: special tokens, and what a class of the transformers library
// does. All functions throw Error(checkpoint) that names the file and the key.
#pragma once

#include "tokenizer/added_tokens.hpp"
#include "tokenizer/byte_pair_encoder.hpp"
#include "tokenizer/tokenizer_definition.hpp"

#include <nlohmann/json_fwd.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metro::text {

constexpr const char* tokenizer_config_file = "tokenizer_config.json";

// The configuration, with the special tokens of special_tokens_map.json where it has no added_tokens_decoder. An empty
// object if there are no such files.
nlohmann::json read_tokenizer_config(const TokenizerFiles& files);

// tokenizer_class without "Fast" at its end; empty if there is none.
std::string tokenizer_class_of(const nlohmann::json& config);

// Added tokens of tokenizers that have no tokenizer.json: of added_tokens_decoder, else of added_tokens.json; and the
// special tokens that the configuration names or, if `vocab` has them, those that the class does.
std::vector<AddedToken> read_added_tokens(const TokenizerFiles& files, const nlohmann::json& config,
                                          const TokenIds& vocab,
                                          std::span<const std::string_view> default_special_tokens);

// Replaces definition.prompt_frame if the class adds tokens to prompts by add_bos_token and add_eos_token.
void take_frame_of_class(const nlohmann::json& config, TokenizerDefinition& definition);

}  // namespace metro::text
