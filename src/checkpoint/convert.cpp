#include "checkpoint/convert.hpp"

#include "base/file.hpp"
#include "checkpoint/convert_plan.hpp"
#include "checkpoint/file_descriptor.hpp"
#include "checkpoint/hdf5_structure.hpp"
#include "checkpoint/tensor_copier.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

namespace metro {

namespace {

// Files of the folder that go into the checkpoint as they are, by the last part of their names; only the first must be
// there.
constexpr std::array source_names = {"config.json",
                                     "generation_config.json",
                                     "tokenizer.json",
                                     "tokenizer_config.json",
                                     "vocab.json",
                                     "merges.txt",
                                     "added_tokens.json",
                                     "special_tokens_map.json",
                                     "tokenizer.model",
                                     "tokenizer.model.v3",
                                     "tokenizer.model.v2",
                                     "tokenizer.model.v1",
                                     "chat_template.jinja",
                                     "chat_template.json",
                                     "additional_chat_templates/tool_use.jinja"};

// "<output>.partial-<pid>", which becomes <output> by commit() or disappears.
class PartialFile {
 public:
  explicit PartialFile(const std::string& output)
      : output_(output), file_(FileDescriptor::create(fmt::format("{}.partial-{}", output, ::getpid()))) {}
  ~PartialFile() {
    if (!committed_) {
      ::unlink(path().c_str());
    }
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const std::string& path() const { return file_.path(); }
  const FileDescriptor& file() const { return file_; }

  void commit() {
    file_.sync_and_close();
    if (std::rename(path().c_str(), output_.c_str()) != 0) {
      throw Error(ExitCode::usage, fmt::format("cannot rename {} to {}: {}", path(), output_, std::strerror(errno)));
    }
    committed_ = true;
  }

 private:
  std::string output_;
  FileDescriptor file_;
  bool committed_ = false;
};

void check_output(const std::string& output, bool overwrite) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::symlink_status(output, ignored);
  if (std::filesystem::is_directory(status)) {
    throw Error(ExitCode::usage, fmt::format("cannot write {}: it is a folder", output));
  }
  // The rename at the end would replace a device, a pipe or a link by the file.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw Error(ExitCode::usage, fmt::format("cannot write {}: something else than a plain file is there", output));
  }
  if (!overwrite && std::filesystem::exists(output, ignored)) {
    throw Error(ExitCode::usage, fmt::format("{} exists and may not be overwritten", output));
  }
}

std::vector<SourceFile> read_source_files(const std::string& folder) {
  std::vector<SourceFile> files;
  std::error_code ignored;
  for (const char* name : source_names) {
    const std::string path = folder + "/" + name;
    if (name == source_names.front() || std::filesystem::exists(path, ignored)) {
      const std::string last_part = std::filesystem::path(name).filename().string();
      files.push_back({last_part, read_file(path, ExitCode::checkpoint)});
    }
  }
  return files;
}

ModelSpec spec_of(const std::vector<SourceFile>& files, const std::string& folder) {
  std::optional<std::string_view> generation;
  for (const SourceFile& file : files) {
    if (file.name == "generation_config.json") {
      generation = file.content;
    }
  }
  try {
    return parse_model_spec(files.front().content, generation);
  } catch (const Error& error) {
    throw Error(error.exit_code(), fmt::format("{}/{}", folder, error.what()));
  }
}

}  // namespace

ConvertedWeights converted_weights_of(std::string_view name) {
  if (name == "stored") {
    return ConvertedWeights::stored;
  }
  if (name == "int8") {
    return ConvertedWeights::int8;
  }
  if (name == "bf16") {
    return ConvertedWeights::bf16;
  }
  throw Error(ExitCode::usage,
              fmt::format("convert: --weights {}: must be stored, int8 or bf16", one_line(std::string(name))));
}

ConvertSummary convert_checkpoint(const std::string& hf_folder, const std::string& output, bool overwrite,
                                  const std::function<void(const ConvertProgress&)>& progress, ConvertedWeights weights,
                                  std::int64_t chunk_bytes) {
  METRO_REQUIRE(chunk_bytes > 0 && chunk_bytes % 4 == 0, fmt::format("chunk_bytes {}", chunk_bytes));
  check_output(output, overwrite);
  const std::vector<SourceFile> source_files = read_source_files(hf_folder);
  const ModelSpec spec = spec_of(source_files, hf_folder);
  const SafetensorsFolder folder(hf_folder);
  ConvertPlan plan = plan_conversion(tensor_sources(spec), folder, hf_folder, weights);

  ConvertSummary summary;
  summary.num_tensors = static_cast<std::int64_t>(plan.tensors.size());
  summary.notes = plan.notes;
  for (const TensorInfo& tensor : plan.tensors) {
    summary.num_bytes += tensor.num_bytes();
  }

  PartialFile partial(output);
  // Once before HDF5 writes, which does not bear a full disk, and once again since it empties the file.
  partial.file().reserve(summary.num_bytes);
  create_structure(partial.path(), spec.family, "metro " METRO_VERSION, source_files, plan.tensors);
  partial.file().reserve(partial.file().size(ExitCode::machine));
  TensorCopier copier(folder, partial.file(), summary.num_bytes, chunk_bytes, progress);
  for (std::size_t idx = 0; idx < plan.tensors.size(); ++idx) {
    TensorInfo& tensor = plan.tensors[idx];
    if (has_scales(tensor.type)) {
      copier.copy(plan.parts[idx], tensor, plan.tensors[idx + 1]);
      ++idx;
    } else {
      copier.copy(plan.parts[idx], tensor);
    }
  }
  write_digests(partial.path(), plan.tensors);
  check_output(output, overwrite);  // again, since hours may have passed
  partial.commit();
  return summary;
}

}  // namespace metro
