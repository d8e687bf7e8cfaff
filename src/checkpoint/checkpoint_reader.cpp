#include "checkpoint/checkpoint_reader.hpp"

#include "base/error.hpp"
#include "checkpoint/file_descriptor.hpp"
#include "checkpoint/hdf5_structure.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/scaled_weights.hpp"
#include "model/family.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

namespace {

constexpr ExitCode on_failure = ExitCode::checkpoint;

// Returns the version.
std::int64_t check_format(const StructureReader& structure, const std::string& path) {
  const std::string format = structure.text_attribute("format");
  if (format != layout::format_name) {
    throw Error(on_failure, fmt::format("{}: format is \"{}\", must be \"{}\"", path, format, layout::format_name));
  }
  const std::int64_t version = structure.integer_attribute("version");
  if (version < layout::plain_version || version > layout::block_scale_version) {
    throw Error(on_failure, fmt::format("{}: version {} of the checkpoint format; this program reads versions {} to {}",
                                        path, version, layout::plain_version, layout::block_scale_version));
  }
  return version;
}

}  // namespace

struct CheckpointReader::Impl {
  FileDescriptor file;
  std::int64_t max_read_bytes;
  std::int64_t version = 0;
  std::string producer;
  ModelSpec spec;
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, SourceInfo> source_files;

  Impl(const std::string& path, std::int64_t max_bytes)
      : file(FileDescriptor::open_to_read(path, on_failure)), max_read_bytes(max_bytes) {
    const StructureReader structure(path, file.size(on_failure));
    version = check_format(structure, path);
    producer = structure.text_attribute("producer");
    for (const std::string& name : structure.source_file_names()) {
      source_files.emplace(name, structure.source_file(name));
    }
    read_spec(structure.text_attribute("family"));
    for (const TensorSource& source : tensor_sources(spec)) {
      add_tensor(structure, source);
    }
  }

  // With its scales, if it has any.
  void add_tensor(const StructureReader& structure, const TensorSource& source) {
    TensorInfo tensor = structure.tensor(source.dataset, source.shape, source.per_expert);
    if (has_scales(tensor.type)) {
      require_allowed(source, tensor.type);
      const std::string name = layout::scale_of(source.dataset);
      const std::vector<std::int64_t> shape = scale_shape(tensor.type, source.shape, matrix_shape(source).front());
      TensorInfo scales = structure.tensor(name, shape, source.per_expert);
      if (scales.type != scale_type(tensor.type)) {
        throw Error(on_failure, fmt::format("{}: dataset {} is {}, must be {}", file.path(), name, name_of(scales.type),
                                            name_of(scale_type(tensor.type))));
      }
      tensors.emplace(name, std::move(scales));
    }
    tensors.emplace(source.dataset, std::move(tensor));
  }

  // Refuses a type with scales where it cannot be.
  void require_allowed(const TensorSource& source, StoredType type) const {
    std::string complaint;
    if (!source.may_be_quantised) {
      complaint = "which only experts, projections and dense MLPs may be";
    } else if (version < version_with(type)) {
      complaint = fmt::format("which files of version {} do not have", version);
    } else if (type == StoredType::mxfp4 && source.shape.back() % mxfp4_block != 0) {
      complaint = fmt::format("but its rows of {} weights are no whole blocks of {}", source.shape.back(), mxfp4_block);
    }
    if (!complaint.empty()) {
      throw Error(on_failure,
                  fmt::format("{}: dataset {} is {}, {}", file.path(), source.dataset, name_of(type), complaint));
    }
  }

  void read_spec(const std::string& family) {
    const auto config = read_source("config.json");
    if (!config) {
      throw Error(on_failure, fmt::format("{}: {}/config.json is missing", file.path(), layout::source_group));
    }
    const auto generation = read_source("generation_config.json");
    try {
      spec = parse_model_spec(*config, generation);
    } catch (const Error& error) {
      throw Error(error.exit_code(), fmt::format("{}: {}/{}", file.path(), layout::source_group, error.what()));
    }
    if (spec.family != family) {
      throw Error(on_failure, fmt::format("{}: family is \"{}\", but config.json has model_type \"{}\"", file.path(),
                                          family, spec.family));
    }
  }

  std::optional<std::string> read_source(const std::string& name) const {
    const auto found = source_files.find(name);
    if (found == source_files.end()) {
      return std::nullopt;
    }
    std::string content(static_cast<std::size_t>(found->second.num_bytes), '\0');
    file.read_at(found->second.file_offset, std::as_writable_bytes(std::span(content)), on_failure, max_read_bytes);
    if (digest_of(content) != found->second.digest) {
      throw Error(on_failure, fmt::format("{}: {}/{} does not have the digest it was written with: the file is damaged",
                                          file.path(), layout::source_group, name));
    }
    return content;
  }
};

CheckpointReader::CheckpointReader(const std::string& path, std::int64_t max_read_bytes) {
  METRO_REQUIRE(max_read_bytes > 0, fmt::format("max_read_bytes {}", max_read_bytes));
  impl_ = std::make_unique<Impl>(path, max_read_bytes);
}
CheckpointReader::~CheckpointReader() = default;

const std::string& CheckpointReader::path() const {
  return impl_->file.path();
}
const std::string& CheckpointReader::producer() const {
  return impl_->producer;
}
const ModelSpec& CheckpointReader::spec() const {
  return impl_->spec;
}
const std::map<std::string, TensorInfo>& CheckpointReader::tensors() const {
  return impl_->tensors;
}

std::optional<std::string> CheckpointReader::source_file(const std::string& name) const {
  return impl_->read_source(name);
}

std::vector<std::string> CheckpointReader::source_file_names() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : impl_->source_files) {
    names.push_back(name);
  }
  return names;
}

void CheckpointReader::read_bytes(const TensorInfo& tensor, std::int64_t offset, std::span<std::byte> out) const {
  try {
    impl_->file.read_at(tensor.file_offset + offset, out, on_failure, impl_->max_read_bytes);
  } catch (const Error& error) {
    throw Error(error.exit_code(), fmt::format("{} (tensor {})", error.what(), tensor.dataset));
  }
}

Digest CheckpointReader::digest() const {
  std::string summary = fmt::format("version {}\n", impl_->version);
  for (const auto& [name, tensor] : impl_->tensors) {
    summary += fmt::format("{} {} {}", name, name_of(tensor.type), fmt::join(tensor.shape, "x"));
    for (const Digest digest : tensor.digests) {
      summary += fmt::format(" {}", to_hex(digest));
    }
    summary += '\n';
  }
  for (const auto& [name, source] : impl_->source_files) {
    summary += fmt::format("{} {}\n", name, to_hex(source.digest));
  }
  return digest_of(summary);
}

}  // namespace metro
