// Why a kill at any moment leaves a folder from which the run goes on, or a new one begins: a new run removes the old
// state before the old output, and writes its own state before the journal and the journal before any output; so where
// there is output of this run, there are both. The end removes the state first: what is left then is a finished run.
#include "resume/run_folder.hpp"

#include "base/error.hpp"
#include "requests/completion_writer.hpp"
#include "requests/recovered_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace metro {

namespace {

namespace fs = std::filesystem;

constexpr const char* state_name = "resume.state";
constexpr const char* journal_name = "resume.journal";

// A launcher that was killed leaves its ranks behind for a second or two.
constexpr double patience_s = 10.0;

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    throw Error(ExitCode::machine, fmt::format("cannot remove {}: {}", path, std::strerror(errno)));
  }
}

bool has_content(const std::string& path) {
  std::error_code failure;
  const auto num_bytes = fs::file_size(path, failure);
  return !failure && num_bytes > 0;
}

std::string with_part(const std::string& path, std::int64_t part) {
  const fs::path whole = path;
  return (whole.parent_path() / fmt::format("{}.{}{}", whole.stem().string(), part, whole.extension().string()))
      .string();
}

}  // namespace

RunFolder::RunFolder(std::string directory, bool overwrite, std::vector<RunKey> keys)
    : directory_(std::move(directory)), overwrite_(overwrite) {
  state_.keys = std::move(keys);
  if (!overwrite_ && fs::exists(path(state_name))) {
    take_up();
  }
  if (goes_on_) {
    return;
  }
  check_output(directory_, overwrite_);
  if (fs::exists(path(journal_name))) {
    const LineJournal in_use(path(journal_name), patience_s);  // or it throws
  }
}

std::string RunFolder::path(const std::string& name) const {
  return (fs::path(directory_) / name).string();
}

std::string RunFolder::of_part(const std::string& path) const {
  return part() == 1 ? path : with_part(path, part());
}

void RunFolder::require_same_keys(const RunState& earlier) const {
  for (std::size_t i = 0; i < std::max(earlier.keys.size(), state_.keys.size()); ++i) {
    const RunKey was = i < earlier.keys.size() ? earlier.keys[i] : RunKey{state_.keys[i].name, "not there"};
    const RunKey is = i < state_.keys.size() ? state_.keys[i] : RunKey{was.name, "not there"};
    if (was != is) {
      throw Error(
          ExitCode::usage,
          fmt::format("{} is {}, but was {} when the unfinished run in {} began; go on with that, choose another "
                      "output.directory, or give --overwrite to begin anew",
                      is.name, is.value, was.value, directory_));
    }
  }
}

// Goes on from the state in the folder, if it is still there once nobody else works here.
void RunFolder::take_up() {
  const bool had_journal = fs::exists(path(journal_name));
  if (!had_journal && (has_content(path("completions.jsonl")) || has_content(path("errors.jsonl")))) {
    throw Error(ExitCode::input,
                fmt::format("cannot go on in {}: {} is missing; --overwrite begins anew", directory_, journal_name));
  }
  journal_.emplace(path(journal_name), patience_s);
  if (!fs::exists(path(state_name))) {
    journal_.reset();
    return;  // the other run has finished
  }
  RunState earlier = read_run_state(path(state_name));
  require_same_keys(earlier);
  RecoveredOutput output = recover_output(directory_, *journal_);
  earlier_lines_ = std::move(output.finished);
  num_completions_ = output.num_completions;
  num_errors_ = output.num_errors;
  if (output.was_cut) {
    note_ = fmt::format("cut off what was incomplete at the end of the output in {}", directory_);
  }
  for (EarlierRequest& request : earlier.requests) {
    if (!earlier_lines_.is_finished(request.line.number)) {
      earlier_lines_.add(request.line, false);
      state_.requests.push_back(std::move(request));
    }
  }
  num_continued_ = std::ssize(state_.requests);
  state_.part = earlier.part + 1;
  goes_on_ = true;
}

void RunFolder::remove_partial_states() const {
  const std::string prefix = fmt::format("{}.partial-", state_name);
  std::error_code failure;  // of a folder that cannot be listed: what is there stays
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, failure)) {
    if (entry.path().filename().string().starts_with(prefix)) {
      remove_file(entry.path().string());
    }
  }
}

void RunFolder::remove_earlier_output() const {
  for (const char* name : {"completions.jsonl", "errors.jsonl", "metrics.h5"}) {
    remove_file(path(name));
  }
  for (std::int64_t part = 2; fs::exists(path(with_part("metrics.h5", part))); ++part) {
    remove_file(path(with_part("metrics.h5", part)));
  }
}

void RunFolder::begin() {
  remove_partial_states();
  if (!goes_on_) {
    check_output(directory_, overwrite_);
    remove_file(path(state_name));
    remove_file(path(journal_name));
    if (overwrite_) {
      remove_earlier_output();
    }
  }
  write_run_state(path(state_name), state_);
  if (!journal_) {
    journal_.emplace(path(journal_name), patience_s);
  }
}

void RunFolder::save(std::vector<EarlierRequest> requests) {
  state_.requests = std::move(requests);
  write_run_state(path(state_name), state_);
}

void RunFolder::end() {
  remove_file(path(state_name));
  remove_file(path(journal_name));
}

}  // namespace metro
