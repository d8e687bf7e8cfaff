// The components of tokenizer.json: each is read in full or refused by the name of its type. `where` names the
// component in messages ("tokenizer.json: decoder"). All throw Error(checkpoint).
#pragma once

#include "tokenizer/normalizer.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/token_decoder.hpp"
#include "tokenizer/tokenizer_definition.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace metro::text {

std::vector<NormalizationRule> read_normalizer(const nlohmann::json& component, const std::string& where);

struct PreTokenizerComponent {
  PreTokenizerRules rules;
  bool is_byte_level = false;  // it ends in ByteLevel
};

// Whatever is there before ByteLevel or Metaspace, and one of these or none.
PreTokenizerComponent read_pre_tokenizer(const nlohmann::json& component, const std::string& where);

DecoderRules read_decoder(const nlohmann::json& component, const std::string& where);

// What the post-processor adds to a single text.
PromptFrame read_post_processor(const nlohmann::json& component, const std::string& where);

}  // namespace metro::text
