#include "tokenizer/added_tokens.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro::text {

namespace {

// \w of the library that finds added tokens.
constexpr std::string_view word_character_pattern = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])";

std::size_t skip_white_space(std::string_view utf8, std::size_t from) {
  while (from < utf8.size() && is_white_space(character_at(utf8, from))) {
    from += sequence_at(utf8, from).length;
  }
  return from;
}

std::size_t skip_white_space_backwards(std::string_view utf8, std::size_t from, std::size_t limit) {
  while (from > limit) {
    const std::size_t start = start_of_previous_character(utf8, from);
    if (!is_white_space(character_at(utf8, start))) {
      return from;
    }
    from = start;
  }
  return std::max(from, limit);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens, const std::string& origin)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t token_idx = 0; token_idx < tokens_.size(); ++token_idx) {
    const AddedToken& token = tokens_[token_idx];
    METRO_REQUIRE(!token.content.empty(), "an added token without text");
    insert(token, static_cast<std::int32_t>(token_idx), origin);
    if (token.single_word && !word_character_.has_value()) {
      word_character_.emplace(word_character_pattern, Regex::Syntax::pcre2, origin);
    }
  }
}

void AddedTokenMatcher::insert(const AddedToken& token, std::int32_t token_idx, const std::string& origin) {
  can_begin_[static_cast<unsigned char>(token.content.front())] = true;
  std::int32_t node_idx = 0;
  for (const char byte : token.content) {
    std::int32_t next_idx = child_of(node_idx, byte);
    if (next_idx < 0) {
      next_idx = static_cast<std::int32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& children = nodes_[static_cast<std::size_t>(node_idx)].children;
      children.insert(std::upper_bound(children.begin(), children.end(), std::pair(byte, next_idx)), {byte, next_idx});
    }
    node_idx = next_idx;
  }
  std::int32_t& end = nodes_[static_cast<std::size_t>(node_idx)].token_idx;
  if (end >= 0) {
    throw Error(ExitCode::checkpoint, fmt::format("{}: added tokens {} and {} are both {:?}", origin,
                                                  tokens_[static_cast<std::size_t>(end)].id, token.id, token.content));
  }
  end = token_idx;
}

std::int32_t AddedTokenMatcher::child_of(std::int32_t node_idx, char byte) const {
  const auto& children = nodes_[static_cast<std::size_t>(node_idx)].children;
  const auto child = std::lower_bound(children.begin(), children.end(), byte,
                                      [](const auto& entry, char wanted) { return entry.first < wanted; });
  return child != children.end() && child->first == byte ? child->second : -1;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view utf8, std::size_t from) const {
  for (std::size_t begin = from; begin < utf8.size(); ++begin) {
    if (!can_begin_[static_cast<unsigned char>(utf8[begin])]) {
      continue;
    }
    std::optional<Match> longest;
    std::int32_t node_idx = child_of(0, utf8[begin]);
    for (std::size_t end = begin + 1; node_idx >= 0; ++end) {
      const std::int32_t token_idx = nodes_[static_cast<std::size_t>(node_idx)].token_idx;
      if (token_idx >= 0) {
        longest = Match{begin, end, &tokens_[static_cast<std::size_t>(token_idx)]};
      }
      node_idx = end < utf8.size() ? child_of(node_idx, utf8[end]) : -1;
    }
    if (longest.has_value()) {
      return longest;
    }
  }
  return std::nullopt;
}

bool AddedTokenMatcher::is_word_character(std::string_view utf8, std::size_t at) const {
  Regex::Matches matches(*word_character_, utf8.substr(at, sequence_at(utf8, at).length));
  return matches.next().has_value();
}

bool AddedTokenMatcher::touches_word(std::string_view utf8, const Match& match) const {
  if (match.begin > 0 && is_word_character(utf8, start_of_previous_character(utf8, match.begin))) {
    return true;
  }
  return match.end < utf8.size() && is_word_character(utf8, match.end);
}

void AddedTokenMatcher::cut(std::string_view utf8, const TakeStretch& take_stretch) const {
  if (tokens_.empty()) {
    if (!utf8.empty()) {
      take_stretch(utf8, std::nullopt);
    }
    return;
  }
  std::size_t taken = 0;            // everything before is given out
  std::size_t white_space_end = 0;  // of the run that an rstrip token has measured last
  std::size_t search_from = 0;
  while (const auto match = find(utf8, search_from)) {
    search_from = match->end;
    if (match->token->single_word && touches_word(utf8, *match)) {
      continue;
    }
    std::size_t begin = match->begin;
    std::size_t end = match->end;
    if (match->token->lstrip) {
      begin = skip_white_space_backwards(utf8, begin, taken);
    }
    if (match->token->rstrip) {
      // Tokens of white space inside of that run would measure it again and again.
      white_space_end = end < white_space_end ? white_space_end : skip_white_space(utf8, end);
      end = white_space_end;
    }
    if (taken < begin) {
      take_stretch(utf8.substr(taken, begin - taken), std::nullopt);
    }
    take_stretch(utf8.substr(begin, std::max(begin, end) - begin), match->token->id);
    taken = end;
  }
  if (taken < utf8.size()) {
    take_stretch(utf8.substr(taken), std::nullopt);
  }
}

}  // namespace metro::text
