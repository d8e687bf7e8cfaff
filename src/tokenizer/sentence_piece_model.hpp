// A SentencePiece model file (a protocol buffer, ModelProto), read far enough to know its tokens and to refuse what the
// library would trip over or what is not supported.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace metro::text {

// As the file numbers them.
enum class PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct SentencePieceModel {
  struct Piece {
    std::string text;
    PieceType type = PieceType::normal;
  };

  std::vector<Piece> pieces;  // by id
  // The file without what is not needed (tests of itself) and with the settings under which a space is a mark and
  // nothing else: no space is put before a text, none is taken away.
  std::string content;
};

// Throws Error(checkpoint), message beginning with `origin`, for a file that is damaged or not supported: other types
// than BPE and Unigram, normalisation rules, marks behind words, unused pieces.
SentencePieceModel parse_sentence_piece_model(std::string_view file, const std::string& origin);

}  // namespace metro::text
