#include "checkpoint/checkpoint_reader.hpp"

#include "base/error.hpp"
#include "checkpoint/file_descriptor.hpp"
#include "checkpoint/hdf5_structure.hpp"
#include "checkpoint/layout.hpp"
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
  if (version != layout::plain_version && version != layout::int8_version) {
    throw Error(on_failure,
                fmt::format("{}: version {} of the checkpoint format; this program reads versions {} and {}", path,
                            version, layout::plain_version, layout::int8_version));
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
  std::int64_t bytes_read = 0;

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
    if (tensor.type == StoredType::int8) {
      if (!source.may_be_int8 || version != layout::int8_version) {
        throw Error(on_failure, fmt::format("{}: dataset {} is int8, which {}", file.path(), source.dataset,
                                            source.may_be_int8 ? fmt::format("files of version {} do not have", version)
                                                               : "only experts, projections and dense MLPs may be"));
      }
      const std::string name = layout::scale_of(source.dataset);
      TensorInfo scales = structure.tensor(name, {source.shape.begin(), source.shape.end() - 1}, source.per_expert);
      if (scales.type != StoredType::f32) {
        throw Error(on_failure,
                    fmt::format("{}: dataset {} is {}, must be f32", file.path(), name, name_of(scales.type)));
      }
      tensors.emplace(name, std::move(scales));
    }
    tensors.emplace(source.dataset, std::move(tensor));
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

  // Reads what `digest_idx` stands for (the tensor, or one expert of it) and verifies it.
  void read_unit(const TensorInfo& tensor, std::size_t digest_idx, std::span<std::byte> out) {
    const auto unit_bytes = static_cast<std::int64_t>(out.size());
    const std::int64_t offset = tensor.file_offset + static_cast<std::int64_t>(digest_idx) * unit_bytes;
    file.read_at(offset, out, on_failure, max_read_bytes);
    bytes_read += unit_bytes;
    if (digest_of(out) != tensor.digests[digest_idx]) {
      const std::string expert = tensor.is_expert_tensor ? fmt::format(", expert {},", digest_idx) : "";
      throw Error(on_failure,
                  fmt::format("{}: tensor {}{} does not have the digest it was written with: the file is damaged",
                              file.path(), tensor.dataset, expert));
    }
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

void CheckpointReader::read_tensor(const std::string& dataset, std::span<std::byte> out) {
  const TensorInfo& tensor = info(dataset);
  METRO_REQUIRE(static_cast<std::int64_t>(out.size()) == tensor.num_bytes(), dataset);
  const std::size_t unit_bytes = out.size() / tensor.digests.size();
  for (std::size_t idx = 0; idx < tensor.digests.size(); ++idx) {
    impl_->read_unit(tensor, idx, out.subspan(idx * unit_bytes, unit_bytes));
  }
}

void CheckpointReader::read_expert(const std::string& dataset, std::int64_t expert, std::span<std::byte> out) {
  const TensorInfo& tensor = info(dataset);
  METRO_REQUIRE(tensor.is_expert_tensor, dataset);
  METRO_REQUIRE(expert >= 0 && expert < tensor.shape.front(), fmt::format("{}: expert {}", dataset, expert));
  METRO_REQUIRE(static_cast<std::int64_t>(out.size()) == tensor.num_bytes() / tensor.shape.front(), dataset);
  impl_->read_unit(tensor, static_cast<std::size_t>(expert), out);
}

std::int64_t CheckpointReader::bytes_read() const {
  return impl_->bytes_read;
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
