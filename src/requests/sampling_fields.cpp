#include "requests/sampling_fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace metro::sampling_fields {

using nlohmann::json;

namespace {

constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t int64_min = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();
constexpr double any_number = std::numeric_limits<double>::max();
constexpr std::int64_t most_samples = 128;
constexpr std::size_t most_stop_strings = 16;
constexpr double largest_bias = 100.0;

double read_penalty(std::string_view field, const json& value) {
  return read_number(field, value, -2.0, 2.0, "a number from -2 to 2 is expected");
}

// A key of logit_bias: the id in decimal digits, in the one form that JSON has for it.
std::int32_t token_of_key(const std::string& key, std::int64_t vocab_size) {
  const json number = json::parse(key, nullptr, false);
  const auto id = number.is_discarded() ? std::nullopt : integer_of(number);
  if (!id || *id < 0 || *id >= vocab_size || std::to_string(*id) != key) {
    throw LineError("logit_bias", fmt::format("logit_bias: {} is no token id; ids are integers from 0 to {}",
                                              excerpt(json(key)), vocab_size - 1));
  }
  return static_cast<std::int32_t>(*id);
}

std::string read_stop_string(std::size_t index, const json& value) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    throw LineError("stop", fmt::format("stop[{}]: {} is not allowed; a string that is not empty is expected", index,
                                        excerpt(value)));
  }
  return value.get<std::string>();
}

}  // namespace

void read_temperature(const json& value, RequestDraft& draft) {
  draft.temperature = read_number("temperature", value, 0.0, any_number, "a number of at least 0 is expected");
}

void read_top_p(const json& value, RequestDraft& draft) {
  constexpr double least = std::numeric_limits<double>::denorm_min();
  draft.request.sampling.top_p = read_number("top_p", value, least, 1.0, "a number above 0 and at most 1 is expected");
}

void read_top_k(const json& value, RequestDraft& draft) {
  const std::int64_t count =
      read_integer("top_k", value, -1, int64_max, "an integer of at least 1, or 0 or -1 for all tokens, is expected");
  // More than the vocabulary is all of it.
  draft.request.sampling.top_k = count <= 0 || count >= draft.vocab_size ? 0 : static_cast<std::int32_t>(count);
}

void read_min_p(const json& value, RequestDraft& draft) {
  draft.request.sampling.min_p = read_number("min_p", value, 0.0, 1.0, "a number from 0 to 1 is expected");
}

void read_seed(const json& value, RequestDraft& draft) {
  const std::int64_t seed =
      read_integer("seed", value, int64_min, int64_max, "an integer from -2^63 to 2^63 - 1 is expected");
  if (seed != -1) {
    draft.seed = seed;
  }
}

void read_n(const json& value, RequestDraft& draft) {
  draft.origin.num_samples = static_cast<std::int32_t>(
      read_integer("n", value, 1, most_samples, fmt::format("an integer from 1 to {} is expected", most_samples)));
}

void read_best_of(const json& value, RequestDraft& draft) {
  draft.best_of = read_integer("best_of", value, 1, most_samples, "the value of n is expected");
}

void read_presence_penalty(const json& value, RequestDraft& draft) {
  draft.request.sampling.presence_penalty = read_penalty("presence_penalty", value);
}

void read_frequency_penalty(const json& value, RequestDraft& draft) {
  draft.request.sampling.frequency_penalty = read_penalty("frequency_penalty", value);
}

void read_repetition_penalty(const json& value, RequestDraft& draft) {
  constexpr double least = std::numeric_limits<double>::denorm_min();
  draft.request.sampling.repetition_penalty =
      read_number("repetition_penalty", value, least, any_number, "a number above 0 is expected");
}

void read_logit_bias(const json& value, RequestDraft& draft) {
  if (!value.is_object()) {
    refuse("logit_bias", value, "an object from token ids to numbers is expected");
  }
  std::vector<TokenBias>& biases = draft.request.sampling.logit_bias;
  for (const auto& [key, bias] : value.items()) {
    const std::int32_t token = token_of_key(key, draft.vocab_size);
    const bool is_allowed =
        bias.is_number() && bias.get<double>() >= -largest_bias && bias.get<double>() <= largest_bias;
    if (!is_allowed) {
      throw LineError("logit_bias",
                      fmt::format("logit_bias[{}]: {} is not allowed; a number from -100 to 100 is expected", token,
                                  excerpt(bias)));
    }
    biases.push_back({token, bias.get<double>()});
  }
  std::sort(biases.begin(), biases.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
}

void read_stop(const json& value, RequestDraft& draft) {
  const bool is_list = value.is_array() && value.size() <= most_stop_strings;
  const bool has_other =
      is_list && std::any_of(value.begin(), value.end(), [](const json& one) { return !one.is_string(); });
  if ((!is_list && !value.is_string()) || has_other) {
    refuse("stop", value, fmt::format("a string or an array of at most {} strings is expected", most_stop_strings));
  }
  std::vector<std::string>& stop = draft.request.sampling.stop;
  if (value.is_string()) {
    stop.push_back(read_stop_string(0, value));
  } else {
    for (const json& one : value) {
      stop.push_back(read_stop_string(stop.size(), one));
    }
  }
  if (!stop.empty() && draft.tokenizer == nullptr) {
    refuse("stop", value, "the checkpoint has no tokenizer; give stop_token_ids instead");
  }
}

void read_stop_token_ids(const json& value, RequestDraft& draft) {
  if (!value.is_array()) {
    refuse("stop_token_ids", value, "an array of token ids is expected");
  }
  std::vector<std::int32_t>& ids = draft.request.sampling.stop_token_ids;
  ids = read_token_ids("stop_token_ids", value, draft.vocab_size);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

void read_include_stop(const json& value, RequestDraft& draft) {
  draft.origin.include_stop = read_bool("include_stop_str_in_output", value);
}

void read_min_tokens(const json& value, RequestDraft& draft) {
  draft.request.sampling.min_tokens = static_cast<std::int32_t>(
      read_integer("min_tokens", value, 0, int32_max, "an integer of at least 0 is expected"));
}

}  // namespace metro::sampling_fields
