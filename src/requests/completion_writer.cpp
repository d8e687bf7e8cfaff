// A finished request as a line of OpenAI's batch output form, with the additions of vLLM (token ids). Ids are made from
// custom_id alone: the same request gives the same line wherever it stands in the input.
#include "requests/completion_writer.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "requests/choice_json.hpp"
#include "requests/line_file.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace metro {

using nlohmann::ordered_json;

namespace {

constexpr double flush_interval_s = 5.0;

void make_folder(const std::string& directory) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  if (failure) {
    throw Error(ExitCode::usage, fmt::format("cannot create the folder {}: {}", directory, failure.message()));
  }
}

std::string path_in(const std::string& directory, const char* name) {
  return (std::filesystem::path(directory) / name).string();
}

}  // namespace

void check_output(const std::string& directory, bool overwrite) {
  make_folder(directory);
  require_room_for_output(path_in(directory, "completions.jsonl"), overwrite);
  require_room_for_output(path_in(directory, "errors.jsonl"), overwrite);
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    throw Error(ExitCode::usage, fmt::format("cannot write in {}: {}", directory, std::strerror(errno)));
  }
}

struct CompletionWriter::Impl {
  const Tokenizer* tokenizer;
  LineJournal* journal;  // may be null
  LineFile completions;
  LineFile errors;
  bool has_new_lines = false;  // since the last flush
  double last_flush_s = 0.0;

  Impl(const std::string& directory, const Tokenizer* given, LineJournal* given_journal)
      : tokenizer(given),
        journal(given_journal),
        completions(path_in(directory, "completions.jsonl"), journal != nullptr),
        errors(path_in(directory, "errors.jsonl"), journal != nullptr) {}
  void write(OutputFile file, const InputLine& input_line, const std::string& text);
};

void CompletionWriter::Impl::write(OutputFile file, const InputLine& input_line, const std::string& text) {
  LineFile& lines = file == OutputFile::completions ? completions : errors;
  if (journal != nullptr) {
    DigestStream digest;
    digest.update(std::as_bytes(std::span(text)));
    digest.update(std::as_bytes(std::span("\n", 1)));
    journal->append({input_line, file, lines.num_bytes(), std::ssize(text) + 1, digest.digest()});
  }
  lines.write(text);
  has_new_lines = true;
}

CompletionWriter::CompletionWriter(const std::string& directory, const Tokenizer* tokenizer) {
  check_output(directory, false);
  impl_ = std::make_unique<Impl>(directory, tokenizer, nullptr);
}

CompletionWriter::CompletionWriter(const std::string& directory, const Tokenizer* tokenizer, LineJournal& journal) {
  make_folder(directory);
  impl_ = std::make_unique<Impl>(directory, tokenizer, &journal);
}

CompletionWriter::~CompletionWriter() = default;

void CompletionWriter::write(const CompletedLine& line) {
  const RequestOrigin& origin = line.origin;
  METRO_REQUIRE(static_cast<std::int32_t>(line.samples.size()) == origin.num_samples && origin.num_samples > 0,
                fmt::format("{} of {} completions", line.samples.size(), origin.num_samples));
  const std::string key = to_hex(digest_of(origin.custom_id));
  ordered_json choices = ordered_json::array();
  std::size_t num_generated = 0;
  for (const FinishedSequence& sample : line.samples) {
    choices.push_back(choice_json(impl_->tokenizer, line, sample));
    num_generated += origin.drops_completion ? 0 : sample.tokens.size();
  }
  const std::size_t num_prompt_tokens = line.samples.front().request.prompt.size();
  const ordered_json usage{{"prompt_tokens", num_prompt_tokens},
                           {"completion_tokens", num_generated},
                           {"total_tokens", num_prompt_tokens + num_generated}};
  const ordered_json body{{"id", (origin.is_chat ? "chatcmpl-" : "cmpl-") + key},
                          {"object", origin.is_chat ? "chat.completion" : "text_completion"},
                          {"created", 0},
                          {"model", origin.model},
                          {"choices", std::move(choices)},
                          {"usage", usage}};
  const ordered_json answer{{"id", "batch_req_" + key},
                            {"custom_id", origin.custom_id},
                            {"response", {{"status_code", 200}, {"request_id", "req_" + key}, {"body", body}}},
                            {"error", nullptr}};
  impl_->write(OutputFile::completions, origin.input_line, to_json_line(answer));
}

void CompletionWriter::write(const Rejection& rejection) {
  const std::string key = to_hex(digest_of(rejection.custom_id));
  ordered_json error{{"message", rejection.message}, {"type", "invalid_request_error"}, {"param", nullptr}};
  if (!rejection.field.empty()) {
    error["param"] = rejection.field;
  }
  error["code"] = nullptr;
  const ordered_json body{{"error", error}};
  const ordered_json line{{"id", "batch_req_" + key},
                          {"custom_id", rejection.custom_id},
                          {"response", {{"status_code", 400}, {"request_id", "req_" + key}, {"body", body}}},
                          {"error", nullptr},
                          {"file", rejection.file},
                          {"line", rejection.line}};
  impl_->write(OutputFile::errors, rejection.input_line, to_json_line(line));
}

void CompletionWriter::flush() {
  impl_->completions.flush();
  impl_->errors.flush();
  if (impl_->journal != nullptr) {
    impl_->journal->flush();
  }
  impl_->has_new_lines = false;
}

bool CompletionWriter::flush_if_due(double now_s) {
  if (!impl_->has_new_lines || now_s - impl_->last_flush_s < flush_interval_s) {
    return false;
  }
  flush();
  impl_->last_flush_s = now_s;
  return true;
}

}  // namespace metro
