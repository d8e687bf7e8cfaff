// Text <-> token ids: byte-level BPE as Hugging Face tokenizer files define it.
// text -> added tokens cut out -> normaliser -> pre-tokeniser regex -> bytes -> merges -> ids.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// Returns the content of a tokenizer file by name ("tokenizer.json", "vocab.json", "merges.txt",
// "tokenizer_config.json", "added_tokens.json"), or nothing if there is none. Both a folder and a checkpoint can.
using TokenizerFiles = std::function<std::optional<std::string>(const std::string& name)>;

class Tokenizer {
 public:
  // From tokenizer.json, or else vocab.json + merges.txt + tokenizer_config.json. Throws Error(checkpoint) naming the
  // file and what is wrong or not supported (a component type that is unknown is refused, never ignored).
  // Returns null when there is none of tokenizer.json, vocab.json and merges.txt.
  static std::unique_ptr<Tokenizer> load(const TokenizerFiles& files);
  ~Tokenizer();

  // Ids of `text`, without adding special tokens; the text of added tokens inside `text` becomes their ids.
  // Invalid UTF-8 throws Error(input) with the byte offset. Time is linear in the length of the text.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // Text of `ids`; bytes that are no UTF-8 become U+FFFD, as Hugging Face does. Ids outside the vocabulary add nothing.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;

  // Raw bytes of one token (maybe part of a character); empty for ids outside the vocabulary.
  std::string_view token_bytes(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  std::int64_t vocab_size() const;                                     // highest id + 1
  std::optional<std::int32_t> token_id(std::string_view token) const;  // of an added token or vocabulary entry

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes a growing sequence: gives out text only up to the last complete character.
class StreamingDecoder {
 public:
  StreamingDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);
  // Text that became complete with this token (maybe empty).
  std::string push(std::int32_t id);
  // What is left: an incomplete character becomes U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;
};

}  // namespace metro
