#include "checkpoint/convert.hpp"

#include "base/file.hpp"
#include "checkpoint/convert_plan.hpp"
#include "checkpoint/file_descriptor.hpp"
#include "checkpoint/hdf5_structure.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace metro {

namespace {

// Files of the folder that go into the checkpoint as they are; only the first must be there.
constexpr std::array source_names = {
    "config.json", "generation_config.json", "tokenizer.json",          "tokenizer_config.json", "vocab.json",
    "merges.txt",  "added_tokens.json",      "special_tokens_map.json", "chat_template.jinja"};

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
      files.push_back({name, read_file(path, ExitCode::checkpoint)});
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

// Digests of a tensor whose bytes arrive in pieces of any size: one, or one per `unit_bytes`.
class UnitDigests {
 public:
  explicit UnitDigests(std::int64_t unit_bytes) : unit_bytes_(unit_bytes) {}

  void update(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto count = std::min(bytes.size(), static_cast<std::size_t>(unit_bytes_ - bytes_in_unit_));
      stream_->update(bytes.first(count));
      bytes_in_unit_ += static_cast<std::int64_t>(count);
      if (bytes_in_unit_ == unit_bytes_) {
        digests_.push_back(stream_->digest());
        stream_ = std::make_unique<DigestStream>();
        bytes_in_unit_ = 0;
      }
      bytes = bytes.subspan(count);
    }
  }
  const std::vector<Digest>& digests() const { return digests_; }

 private:
  std::int64_t unit_bytes_;
  std::int64_t bytes_in_unit_ = 0;
  std::unique_ptr<DigestStream> stream_ = std::make_unique<DigestStream>();
  std::vector<Digest> digests_;
};

class Copier {
 public:
  Copier(const SafetensorsFolder& folder, const FileDescriptor& out, std::int64_t bytes_total, std::int64_t chunk_bytes,
         const std::function<void(const ConvertProgress&)>& report)
      : folder_(folder), out_(out), chunk_bytes_(chunk_bytes), report_(report) {
    progress_.bytes_total = bytes_total;
  }

  // Streams the parts of one dataset to their place and fills in its digests.
  void copy(const std::vector<PlannedPart>& parts, TensorInfo& tensor) {
    progress_.tensor = tensor.dataset;
    std::int64_t offset = tensor.file_offset;
    UnitDigests digests(tensor.num_bytes() / (tensor.is_expert_tensor ? tensor.shape.front() : 1));
    for (const PlannedPart& part : parts) {
      for (std::int64_t done = 0; done < part.entry->num_bytes; done += chunk_bytes_) {
        const auto bytes = next_chunk(part, done, tensor.type);
        digests.update(bytes);
        out_.write_at(offset, bytes);
        offset += static_cast<std::int64_t>(bytes.size());
        progress_.bytes_done += static_cast<std::int64_t>(bytes.size());
        if (report_) {
          report_(progress_);
        }
      }
    }
    tensor.digests = digests.digests();
  }

 private:
  // Bytes of a part from `done` on, as they will be stored.
  std::span<const std::byte> next_chunk(const PlannedPart& part, std::int64_t done, StoredType stored) {
    source_.resize(static_cast<std::size_t>(std::min(chunk_bytes_, part.entry->num_bytes - done)));
    folder_.read(*part.entry, done, source_);
    const std::int64_t bad_idx = find_non_finite(part.type, source_);
    if (bad_idx >= 0) {
      throw Error(ExitCode::checkpoint,
                  fmt::format("{}: tensor {} has a NaN or an infinity at element {}", folder_.path_of(*part.entry),
                              part.name, done / bytes_of(part.type) + bad_idx));
    }
    if (bytes_of(part.type) == bytes_of(stored)) {
      return source_;
    }
    widened_.resize(2 * source_.size());
    widen(part.type, source_, widened_);
    return widened_;
  }

  const SafetensorsFolder& folder_;
  const FileDescriptor& out_;
  std::int64_t chunk_bytes_;
  const std::function<void(const ConvertProgress&)>& report_;
  ConvertProgress progress_;
  std::vector<std::byte> source_;
  std::vector<std::byte> widened_;
};

}  // namespace

ConvertSummary convert_checkpoint(const std::string& hf_folder, const std::string& output, bool overwrite,
                                  const std::function<void(const ConvertProgress&)>& progress,
                                  std::int64_t chunk_bytes) {
  METRO_REQUIRE(chunk_bytes > 0 && chunk_bytes % 4 == 0, fmt::format("chunk_bytes {}", chunk_bytes));
  check_output(output, overwrite);
  const std::vector<SourceFile> source_files = read_source_files(hf_folder);
  const ModelSpec spec = spec_of(source_files, hf_folder);
  const SafetensorsFolder folder(hf_folder);
  ConvertPlan plan = plan_conversion(tensor_sources(spec), folder, hf_folder);

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
  Copier copier(folder, partial.file(), summary.num_bytes, chunk_bytes, progress);
  for (std::size_t idx = 0; idx < plan.tensors.size(); ++idx) {
    copier.copy(plan.parts[idx], plan.tensors[idx]);
  }
  write_digests(partial.path(), plan.tensors);
  check_output(output, overwrite);  // again, since hours may have passed
  partial.commit();
  return summary;
}

}  // namespace metro
