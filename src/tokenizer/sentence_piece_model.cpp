#include "tokenizer/sentence_piece_model.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "tokenizer/json_fields.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <unordered_set>

namespace metro::text {

namespace {

// Numbers of fields, as the format assigns them.
namespace model_field {
constexpr std::uint64_t pieces = 1, trainer = 2, normalizer = 3;
}
namespace piece_field {
constexpr std::uint64_t text = 1, score = 2, type = 3;
}
namespace trainer_field {
constexpr std::uint64_t model_type = 3, mark_is_suffix = 24;
}
namespace normalizer_field {
constexpr std::uint64_t rules = 2, escapes_spaces = 5;
}

// The settings under `content` in the header, as bytes that follow the file's own: normalizer field 3 (a space before a
// text) and 4 (spaces taken away) are 0. Of a field that is there twice the later one counts.
constexpr std::string_view neutral_normalizer("\x1a\x04\x18\x00\x20\x00", 6);

// One field of a message: a number, or `bytes`.
struct Field {
  std::uint64_t number = 0;
  bool has_bytes = false;
  std::uint64_t value = 0;
  std::string_view bytes;
  std::string_view whole;  // with its tag
};

// The fields of a message, one after the other.
class FieldReader {
 public:
  FieldReader(std::string_view message, const std::string& origin) : rest_(message), origin_(origin) {}

  std::optional<Field> next() {
    if (rest_.empty()) {
      return std::nullopt;
    }
    const std::string_view begin = rest_;
    const std::uint64_t tag = take_varint();
    Field field;
    field.number = tag >> 3;
    constexpr std::uint64_t wire_type_mask = 7;
    switch (tag & wire_type_mask) {
      case 0:
        field.value = take_varint();
        break;
      case 1:
        field.value = take_fixed(8);
        break;
      case 2:
        field.has_bytes = true;
        field.bytes = take(take_varint());
        break;
      case 5:
        field.value = take_fixed(4);
        break;
      default:
        fail();
    }
    if (field.number == 0) {
      fail();
    }
    field.whole = begin.substr(0, begin.size() - rest_.size());
    return field;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(ExitCode::checkpoint, origin_ + ": it is damaged, or no SentencePiece model");
  }

  std::string_view take(std::uint64_t num_bytes) {
    if (num_bytes > rest_.size()) {
      fail();
    }
    const std::string_view taken = rest_.substr(0, num_bytes);
    rest_.remove_prefix(num_bytes);
    return taken;
  }

  std::uint64_t take_fixed(std::size_t num_bytes) {
    std::uint64_t value = 0;
    const std::string_view bytes = take(num_bytes);
    for (std::size_t i = 0; i < num_bytes; ++i) {
      value |= std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
    }
    return value;
  }

  std::uint64_t take_varint() {
    constexpr int bits_per_byte = 7;
    constexpr int max_bits = 64;
    std::uint64_t value = 0;
    for (int shift = 0; shift < max_bits; shift += bits_per_byte) {
      const auto byte = static_cast<std::uint8_t>(take(1).front());
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    fail();
  }

  std::string_view rest_;
  const std::string& origin_;
};

class ModelParser {
 public:
  explicit ModelParser(const std::string& origin) : origin_(origin) {}

  SentencePieceModel parse(std::string_view file) {
    FieldReader fields(file, origin_);
    while (const auto field = fields.next()) {
      if (field->number > model_field::normalizer) {
        continue;
      }
      require_bytes(*field);
      if (field->number == model_field::pieces) {
        take_piece(field->bytes);
      } else if (field->number == model_field::trainer) {
        check_trainer(field->bytes);
      } else {
        check_normalizer(field->bytes);
      }
      model_.content += field->whole;
    }
    check_pieces();
    model_.content += neutral_normalizer;
    return std::move(model_);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ExitCode::checkpoint, fmt::format("{}: {}", origin_, reason));
  }

  void require_bytes(const Field& field) const {
    if (!field.has_bytes) {
      refuse("it is damaged, or no SentencePiece model");
    }
  }

  void take_piece(std::string_view message) {
    const std::size_t id = model_.pieces.size();
    if (id > static_cast<std::size_t>(max_token_id)) {
      refuse(fmt::format("it has more than {} pieces", max_token_id + 1));
    }
    SentencePieceModel::Piece piece;
    FieldReader fields(message, origin_);
    while (const auto field = fields.next()) {
      if (field->number == piece_field::text) {
        require_bytes(*field);
        piece.text = field->bytes;
      } else if (field->number == piece_field::score) {
        check_score(*field, id);
      } else if (field->number == piece_field::type) {
        piece.type = type_of_piece(*field, id);
      }
    }
    if (piece.text.empty() || piece.text.find('\0') != piece.text.npos || first_invalid_byte(piece.text).has_value()) {
      refuse(fmt::format("piece {} must be a text in UTF-8 without NUL", id));
    }
    model_.pieces.push_back(std::move(piece));
  }

  void check_score(const Field& field, std::size_t id) const {
    const auto bits = static_cast<std::uint32_t>(field.value);
    float score = 0.0F;
    std::memcpy(&score, &bits, sizeof(score));
    if (field.has_bytes || !std::isfinite(score)) {
      refuse(fmt::format("the score of piece {} is no finite number", id));
    }
  }

  PieceType type_of_piece(const Field& field, std::size_t id) const {
    const auto type = static_cast<PieceType>(field.value);
    const bool is_known = !field.has_bytes && field.value >= 1 && field.value <= 6;
    if (!is_known || type == PieceType::unused) {
      refuse(fmt::format("piece {} has the type {}; supported are 1 to 4 and 6", id, field.value));
    }
    return type;
  }

  void check_trainer(std::string_view message) const {
    constexpr std::uint64_t unigram = 1, bpe = 2;
    FieldReader fields(message, origin_);
    while (const auto field = fields.next()) {
      if (field->number == trainer_field::model_type && field->value != unigram && field->value != bpe) {
        refuse(fmt::format("trainer_spec.model_type {} is not supported; supported are 1 (unigram) and 2 (BPE)",
                           field->value));
      }
      if (field->number == trainer_field::mark_is_suffix && field->value != 0) {
        refuse("trainer_spec.treat_whitespace_as_suffix is not supported");
      }
    }
  }

  // Rules are a table with offsets that the library follows unchecked.
  void check_normalizer(std::string_view message) const {
    FieldReader fields(message, origin_);
    while (const auto field = fields.next()) {
      if (field->number == normalizer_field::rules && !field->bytes.empty()) {
        refuse("normalizer_spec.precompiled_charsmap is not supported; only the normalisation \"identity\" is");
      }
      if (field->number == normalizer_field::escapes_spaces && field->value == 0) {
        refuse("normalizer_spec.escape_whitespaces must be true");
      }
    }
  }

  void check_pieces() const {
    if (model_.pieces.empty()) {
      refuse("it has no pieces: it is damaged, or no SentencePiece model");
    }
    std::unordered_set<std::string_view> texts;
    for (const auto& piece : model_.pieces) {
      if (!texts.insert(piece.text).second) {
        refuse(fmt::format("two pieces are {:?}", piece.text));
      }
    }
  }

  const std::string& origin_;
  SentencePieceModel model_;
};

}  // namespace

SentencePieceModel parse_sentence_piece_model(std::string_view file, const std::string& origin) {
  return ModelParser(origin).parse(file);
}

}  // namespace metro::text
