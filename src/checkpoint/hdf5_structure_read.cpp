// Reading half of hdf5_structure.hpp. Nothing in the file is believed before it is compared with what must be there.
#include "checkpoint/hdf5_structure.hpp"
#include "checkpoint/hdf5_types.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/scaled_weights.hpp"
#include "hdf5/hdf5_dataset.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>

#include <algorithm>
#include <array>

namespace metro {

namespace {

constexpr ExitCode on_failure = ExitCode::checkpoint;
constexpr std::size_t longest_text = 4096;

Hdf5Handle open_file(const std::string& path) {
  prepare_hdf5();
  const htri_t is_hdf5 = H5Fis_hdf5(path.c_str());
  if (is_hdf5 <= 0) {
    H5Eclear2(H5E_DEFAULT);
    throw Error(on_failure, path + ": not an HDF5 file");
  }
  return Hdf5Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, on_failure, path + ": cannot open");
}

}  // namespace

struct StructureReader::Impl {
  std::string path;
  std::int64_t file_bytes;
  Hdf5Handle file;

  Impl(const std::string& file_path, std::int64_t size)
      : path(file_path), file_bytes(size), file(open_file(file_path)) {}

  [[noreturn]] void fail(const std::string& object, const std::string& complaint) const {
    throw Error(on_failure, fmt::format("{}: {} {}", path, object, complaint));
  }

  std::string name_of(const std::string& object) const { return fmt::format("{}: {}", path, object); }

  Hdf5Handle open_attribute(Hdf5Id object, const std::string& name, const std::string& shown) const {
    const htri_t exists = checked_hdf5(H5Aexists(object, name.c_str()), on_failure, name_of(shown));
    if (exists == 0) {
      fail(shown, "is missing");
    }
    return Hdf5Handle(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, on_failure, name_of(shown));
  }

  // Refuses an attribute that does not have `count` values of this class.
  Hdf5Handle attribute_type(const Hdf5Handle& attribute, const std::string& shown, H5T_class_t expected_class,
                            std::int64_t count) const {
    const Hdf5Handle space(H5Aget_space(attribute.id()), H5Sclose, on_failure, name_of(shown));
    Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose, on_failure, name_of(shown));
    const std::int64_t points = H5Sget_simple_extent_npoints(space.id());
    if (H5Tget_class(type.id()) != expected_class || points != count) {
      fail(shown, fmt::format("must hold {} {}", count, expected_class == H5T_STRING ? "text" : "integer value(s)"));
    }
    return type;
  }

  std::vector<Digest> digests(const Hdf5Handle& dataset, const std::string& name, std::int64_t count) const {
    const std::string shown = fmt::format("attribute {} of {}", digest_attribute, name);
    const Hdf5Handle attribute = open_attribute(dataset.id(), digest_attribute, shown);
    attribute_type(attribute, shown, H5T_INTEGER, count);
    std::vector<Digest> values(static_cast<std::size_t>(count));
    checked_hdf5(H5Aread(attribute.id(), H5T_NATIVE_UINT64, values.data()), on_failure, name_of(shown));
    return values;
  }

  Hdf5Handle open_dataset(const std::string& name) const { return open_hdf5_dataset(file, name, path, on_failure); }

  std::vector<std::int64_t> shape(const Hdf5Handle& dataset, const std::string& name) const {
    const Hdf5Handle space(H5Dget_space(dataset.id()), H5Sclose, on_failure, name_of(name));
    const int num_axes = checked_hdf5(H5Sget_simple_extent_ndims(space.id()), on_failure, name_of(name));
    std::vector<hsize_t> extents(static_cast<std::size_t>(num_axes));
    checked_hdf5(H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr), on_failure, name_of(name));
    return {extents.begin(), extents.end()};
  }

  // Where `num_bytes` of a dataset lie: in one piece, in this file, inside it.
  std::int64_t offset(const Hdf5Handle& dataset, const std::string& name, std::int64_t num_bytes) const {
    if (num_bytes == 0) {
      return 0;
    }
    const Hdf5Handle creation(H5Dget_create_plist(dataset.id()), H5Pclose, on_failure, name_of(name));
    if (H5Pget_layout(creation.id()) != H5D_CONTIGUOUS) {
      fail("dataset " + name, "is not stored in one piece in the file");
    }
    const haddr_t first = H5Dget_offset(dataset.id());
    H5Eclear2(H5E_DEFAULT);
    if (first == HADDR_UNDEF || num_bytes > file_bytes || first > static_cast<haddr_t>(file_bytes - num_bytes)) {
      fail("dataset " + name, "does not lie inside the file: the file is damaged");
    }
    return static_cast<std::int64_t>(first);
  }
};

StructureReader::StructureReader(const std::string& path, std::int64_t file_bytes)
    : impl_(std::make_unique<Impl>(path, file_bytes)) {}
StructureReader::~StructureReader() = default;

std::string StructureReader::text_attribute(const std::string& name) const {
  const std::string shown = "attribute " + name;
  const Hdf5Handle attribute = impl_->open_attribute(impl_->file.id(), name, shown);
  const Hdf5Handle type = impl_->attribute_type(attribute, shown, H5T_STRING, 1);
  const std::size_t size = H5Tget_size(type.id());
  if (H5Tis_variable_str(type.id()) != 0 || size == 0 || size > longest_text) {
    impl_->fail(shown, fmt::format("must be text of a fixed length of at most {} bytes", longest_text));
  }
  std::string text(size, '\0');
  checked_hdf5(H5Aread(attribute.id(), type.id(), text.data()), on_failure, impl_->name_of(shown));
  text.resize(std::min(text.find('\0'), size));
  return text;
}

std::int64_t StructureReader::integer_attribute(const std::string& name) const {
  const std::string shown = "attribute " + name;
  const Hdf5Handle attribute = impl_->open_attribute(impl_->file.id(), name, shown);
  impl_->attribute_type(attribute, shown, H5T_INTEGER, 1);
  std::int64_t value = 0;
  checked_hdf5(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), on_failure, impl_->name_of(shown));
  return value;
}

std::vector<std::string> StructureReader::source_file_names() const {
  const std::string shown = impl_->name_of(std::string("group ") + layout::source_group);
  const Hdf5Handle group = open_hdf5_group(impl_->file, layout::source_group, impl_->path, on_failure);
  H5G_info_t info{};
  checked_hdf5(H5Gget_info(group.id(), &info), on_failure, shown);
  std::vector<std::string> names;
  for (hsize_t idx = 0; idx < info.nlinks; ++idx) {
    std::string name(longest_text, '\0');
    const ssize_t length = checked_hdf5(
        H5Lget_name_by_idx(group.id(), ".", H5_INDEX_NAME, H5_ITER_INC, idx, name.data(), name.size(), H5P_DEFAULT),
        on_failure, shown);
    name.resize(std::min(name.size() - 1, static_cast<std::size_t>(length)));
    names.push_back(name);
  }
  return names;
}

SourceInfo StructureReader::source_file(const std::string& name) const {
  const std::string path = std::string(layout::source_group) + "/" + name;
  const Hdf5Handle dataset = impl_->open_dataset(path);
  const Hdf5Handle type(H5Dget_type(dataset.id()), H5Tclose, on_failure, impl_->name_of(path));
  const auto shape = impl_->shape(dataset, path);
  if (shape.size() != 1 || H5Tget_class(type.id()) != H5T_INTEGER || H5Tget_size(type.id()) != 1) {
    impl_->fail("dataset " + path, "must be one row of bytes");
  }
  SourceInfo info;
  info.num_bytes = shape.front();
  info.file_offset = impl_->offset(dataset, path, info.num_bytes);
  info.digest = impl_->digests(dataset, path, 1).front();
  return info;
}

TensorInfo StructureReader::tensor(const std::string& dataset, const std::vector<std::int64_t>& shape,
                                   bool is_expert_tensor) const {
  const Hdf5Handle opened = impl_->open_dataset(dataset);
  TensorInfo info;
  info.dataset = dataset;
  info.shape = shape;
  info.is_expert_tensor = is_expert_tensor;
  const Hdf5Handle type(H5Dget_type(opened.id()), H5Tclose, on_failure, impl_->name_of(dataset));
  constexpr std::array known = {StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8,
                                StoredType::mxfp4};
  const auto* const found = std::find_if(known.begin(), known.end(), [&](StoredType candidate) {
    return H5Tequal(type.id(), hdf5_type_of(candidate, on_failure).id()) > 0;
  });
  if (found == known.end()) {
    impl_->fail("dataset " + dataset, "is none of bf16, little-endian float32, int8, fp8 and mxfp4");
  }
  info.type = *found;
  const auto found_extents = impl_->shape(opened, dataset);
  const auto extents = extents_in_file(info.type, shape);
  if (found_extents != extents) {
    impl_->fail("dataset " + dataset, fmt::format("has shape {}, the model needs {}", found_extents, extents));
  }
  info.file_offset = impl_->offset(opened, dataset, info.num_bytes());
  info.digests = impl_->digests(opened, dataset, is_expert_tensor ? shape.front() : 1);
  return info;
}

}  // namespace metro
