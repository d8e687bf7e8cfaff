#include "trace/import_packed.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/stored_type.hpp"
#include "trace/index_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

namespace metro {

namespace {

constexpr std::size_t largest_file = std::size_t{1} << 36;

std::string path_in(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::vector<std::int32_t> layers_from(std::int32_t first, std::size_t num_layers) {
  std::vector<std::int32_t> layers(num_layers);
  std::iota(layers.begin(), layers.end(), first);
  return layers;
}

// The task of a row, which is part of file names: it must not lead out of the folder.
const std::string& task_of(const IndexTable& index, std::int64_t row) {
  const std::string& task = index.text(row, "task");
  if (task.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
    throw Error(ExitCode::input, fmt::format("{}: task '{}' must be the beginning of a file name, without a folder",
                                             index.place(row), excerpt(task, 60)));
  }
  return task;
}

// The experts of the tokens of one file, one byte each. [tokens, layers, top_k]
std::vector<std::uint16_t> read_experts(const std::string& path, const TraceModel& model) {
  const std::string bytes = read_file(path, ExitCode::input, largest_file);
  if (static_cast<std::int64_t>(bytes.size()) % model.ids_per_token() != 0) {
    throw Error(ExitCode::input,
                fmt::format("{}: has {} bytes; tokens of {} layers and top {} need a multiple of {}", path,
                            bytes.size(), model.num_layers(), model.top_k, model.ids_per_token()));
  }
  std::vector<std::uint16_t> experts(bytes.size());
  std::transform(bytes.begin(), bytes.end(), experts.begin(), [](char id) { return static_cast<std::uint8_t>(id); });
  return experts;
}

// num_values little-endian numbers, as floats.
std::vector<float> read_weights(const std::string& path, std::size_t num_values, StoredType type) {
  static_assert(std::endian::native == std::endian::little);
  const std::string bytes = read_file(path, ExitCode::input, largest_file);
  const auto needed = static_cast<std::size_t>(bytes_of(type, static_cast<std::int64_t>(num_values)));
  if (bytes.size() != needed) {
    throw Error(ExitCode::input,
                fmt::format("{}: has {} bytes; {} weights need {}", path, bytes.size(), num_values, needed));
  }
  std::vector<float> weights(num_values);
  if (type == StoredType::f32) {
    std::memcpy(weights.data(), bytes.data(), needed);
    return weights;
  }
  std::vector<std::uint16_t> words(num_values);
  std::memcpy(words.data(), bytes.data(), needed);
  std::transform(words.begin(), words.end(), weights.begin(), widen_bf16);
  return weights;
}

// One line of an index: tokens of a file that are one request.
struct RequestSpan {
  std::int64_t request, first_position, num_tokens, first_token;
};

// Adds the tokens of one file to `trace`. Their experts [file tokens, layers, top_k]; weights alike, or empty.
void add_request(const IndexTable& index, std::int64_t row, const RequestSpan& span, TracePhase phase,
                 const std::vector<std::uint16_t>& experts, const std::vector<float>& weights, RoutingTrace& trace) {
  const std::int64_t width = trace.model.ids_per_token();
  const std::int64_t num_tokens = std::ssize(experts) / width;
  if (span.first_token + span.num_tokens > num_tokens) {
    throw Error(ExitCode::input, fmt::format("{}: tokens {} to {}; the file of experts has {}", index.place(row),
                                             span.first_token, span.first_token + span.num_tokens, num_tokens));
  }
  if (span.first_position + span.num_tokens > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ExitCode::input, fmt::format("{}: {} tokens from position {}: positions have 32 bits", index.place(row),
                                             span.num_tokens, span.first_position));
  }
  const auto append = [&](const auto& from, auto& to) {
    to.insert(to.end(), from.begin() + span.first_token * width,
              from.begin() + (span.first_token + span.num_tokens) * width);
  };
  append(experts, trace.topk_idx);
  if (!weights.empty()) {
    append(weights, trace.topk_weight);
  }
  for (std::int64_t i = 0; i < span.num_tokens; ++i) {
    trace.request.push_back(static_cast<std::uint32_t>(span.request));
    trace.position.push_back(static_cast<std::uint32_t>(span.first_position + i));
    trace.token_id.push_back(RoutingTrace::unknown_token);
    trace.step.push_back(RoutingTrace::unknown_step);
    trace.phase.push_back(phase);
  }
}

}  // namespace

ImportedTrace import_gpt_oss(const std::string& folder) {
  ImportedTrace imported;
  RoutingTrace& trace = imported.trace;
  trace.model = {"gpt_oss", "gpt-oss-20b, decode, github.com/AmanPriyanshu/GPT-OSS-MoE-ExpertFingerprinting", 32, 4,
                 layers_from(0, 24)};
  const IndexTable index(path_in(folder, "index.tsv"));
  const std::vector<std::uint16_t> experts = read_experts(path_in(folder, "experts.u8"), trace.model);
  std::vector<float> weights;
  const std::string weights_path = path_in(folder, "weights.bf16");
  if (is_there(weights_path)) {
    weights = read_weights(weights_path, experts.size(), StoredType::bf16);
  } else {
    imported.notes.emplace_back("there is no weights.bf16: the trace has no weights");
  }
  for (std::int64_t row = 0; row < index.num_rows(); ++row) {
    const RequestSpan span{index.number(row, "request"), index.number(row, "first_token_pos"),
                           index.number(row, "n_decode_tokens"), index.number(row, "token_offset")};
    add_request(index, row, span, TracePhase::decode, experts, weights, trace);
  }
  if (trace.num_tokens() == 0) {
    throw Error(ExitCode::input, fmt::format("{}: no request has a token", path_in(folder, "index.tsv")));
  }
  check_trace(trace, folder);
  return imported;
}

ImportedTrace import_deepseek_v2_lite(const std::string& folder) {
  ImportedTrace imported;
  RoutingTrace& trace = imported.trace;
  trace.model = {"deepseek_v2", "DeepSeek-V2-Lite, prefill, github.com/deepseek-ai/ESFT", 64, 6, layers_from(1, 26)};
  const IndexTable index(path_in(folder, "index.tsv"));

  std::map<std::string, std::vector<std::uint16_t>> experts_of;  // by task
  bool all_have_weights = true;
  for (std::int64_t row = 0; row < index.num_rows(); ++row) {
    const std::string& task = task_of(index, row);
    const std::string path = path_in(folder, task + ".experts.u8");
    if (experts_of.contains(task)) {
      continue;
    }
    if (is_there(path)) {
      experts_of[task] = read_experts(path, trace.model);
      all_have_weights = all_have_weights && is_there(path_in(folder, task + ".weights.f32"));
    } else {
      experts_of[task] = {};
      imported.notes.push_back(fmt::format("there is no {}.experts.u8: task {} is left out", task, task));
    }
  }
  std::map<std::string, std::vector<float>> weights_of;
  for (const auto& [task, experts] : experts_of) {
    if (all_have_weights && !experts.empty()) {
      weights_of[task] = read_weights(path_in(folder, task + ".weights.f32"), experts.size(), StoredType::f32);
    }
  }
  if (!all_have_weights) {
    imported.notes.emplace_back("not every task has weights: the trace has none");
  }
  for (std::int64_t row = 0; row < index.num_rows(); ++row) {
    const std::string& task = index.text(row, "task");
    if (!experts_of[task].empty()) {
      const RequestSpan span{row, 0, index.number(row, "n_tokens"), index.number(row, "token_offset")};
      add_request(index, row, span, TracePhase::prefill, experts_of[task], weights_of[task], trace);
    }
  }
  if (trace.num_tokens() == 0) {
    throw Error(ExitCode::input, fmt::format("{}: no task of index.tsv has a file TASK.experts.u8", folder));
  }
  check_trace(trace, folder);
  return imported;
}

}  // namespace metro
