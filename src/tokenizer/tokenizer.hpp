// Text <-> token ids, as Hugging Face tokenizer files or a SentencePiece model define it.
// text -> added tokens cut out -> normaliser -> pre-tokeniser -> bytes or characters -> merges -> ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// Returns the content of a tokenizer file by name ("tokenizer.json", "tokenizer.model", "tokenizer_config.json" and
// so on; docs/tokenizer.md), or nothing if there is none. Both a
// folder and a checkpoint can.
using TokenizerFiles = std::function<std::optional<std::string>(const std::string& name)>;

namespace text {
struct DecoderRules;
}

// Where decoded tokens stand: some tokenizers drop a space at the beginning of a text, and not where tokens go on after
// others, as a completion does after its prompt.
enum class TextPart { whole, continuation };

class Tokenizer {
 public:
  // From tokenizer.json, or else tokenizer.model, or else vocab.json + merges.txt; with them from tokenizer_config.json
  // and its kin. Throws Error(checkpoint) naming the file and what is wrong or not supported (a component type that is
  // unknown is refused, never ignored). Returns null when there is none of these.
  static std::unique_ptr<Tokenizer> load(const TokenizerFiles& files);
  ~Tokenizer();

  // Ids of `text`, without adding special tokens; the text of added tokens inside `text` becomes their ids.
  // Invalid UTF-8 throws Error(input) with the byte offset. Time is linear in the length of the text.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // The same with what the tokenizer adds to a prompt: most often nothing or a token that begins a text.
  std::vector<std::int32_t> encode_prompt(std::string_view text) const;

  // Text of `ids`; bytes that are no UTF-8 become U+FFFD. Ids outside the vocabulary add nothing.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens,
                     TextPart part = TextPart::whole) const;

  // Raw bytes of one token (maybe part of a character); empty for ids outside the vocabulary.
  std::string_view token_bytes(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  std::int64_t vocab_size() const;                                     // highest id + 1
  std::optional<std::int32_t> token_id(std::string_view token) const;  // of an added token or vocabulary entry

  // One line for people: the file, the kind, the number of ids, what prompts get added.
  std::string description() const;

  const text::DecoderRules& decoder_rules() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes a growing sequence: gives out text only up to the last complete character. `tokenizer` must outlive it.
class StreamingDecoder {
 public:
  StreamingDecoder(const Tokenizer& tokenizer, bool skip_special_tokens, TextPart part = TextPart::whole);
  // Text that became complete with this token (maybe empty).
  std::string push(std::int32_t id);
  // What is left: an incomplete character becomes U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::size_t num_spaces_to_drop_;
  std::string pending_;
};

}  // namespace metro
