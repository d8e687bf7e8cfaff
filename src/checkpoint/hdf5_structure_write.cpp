// Writing half of hdf5_structure.hpp.
#include "checkpoint/hdf5_structure.hpp"
#include "checkpoint/hdf5_types.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/scaled_weights.hpp"
#include "hdf5/hdf5_handle.hpp"

#include <hdf5.h>

#include <algorithm>
#include <set>

namespace metro {

namespace {

// The file exists and is ours by now: what fails here is the machine (disk full, quota, I/O error).
constexpr ExitCode on_failure = ExitCode::machine;

Hdf5Handle property_list(Hdf5Id list_class) {
  return Hdf5Handle(H5Pcreate(list_class), H5Pclose, on_failure, "HDF5 property list");
}

// Pages of 4096 bytes for direct reads; the format of HDF5 1.8, which has checksums on its metadata.
Hdf5Handle file_access() {
  Hdf5Handle access = property_list(H5P_FILE_ACCESS);
  checked_hdf5(H5Pset_alignment(access.id(), 1, 4096), on_failure, "HDF5 alignment");
  checked_hdf5(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_V18), on_failure, "HDF5 format");
  return access;
}

// Without times two conversions of one folder give the same bytes.
Hdf5Handle creation_without_times(Hdf5Id list_class) {
  Hdf5Handle creation = property_list(list_class);
  checked_hdf5(H5Pset_obj_track_times(creation.id(), false), on_failure, "HDF5 object times");
  return creation;
}

class StructureWriter {
 public:
  explicit StructureWriter(const std::string& path)
      : what_("cannot write " + path),
        file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation_without_times(H5P_FILE_CREATE).id(), file_access().id()),
              H5Fclose, on_failure, what_),
        group_creation_(creation_without_times(H5P_GROUP_CREATE)),
        dataset_creation_(creation_without_times(H5P_DATASET_CREATE)) {
    check(H5Pset_layout(dataset_creation_.id(), H5D_CONTIGUOUS));
    check(H5Pset_alloc_time(dataset_creation_.id(), H5D_ALLOC_TIME_EARLY));
    check(H5Pset_fill_time(dataset_creation_.id(), H5D_FILL_TIME_NEVER));
  }

  void text_attribute(const std::string& name, const std::string& text) {
    Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose, on_failure, what_);
    check(H5Tset_size(type.id(), text.size()));
    check(H5Tset_cset(type.id(), H5T_CSET_UTF8));
    check(H5Tset_strpad(type.id(), H5T_STR_NULLPAD));
    const Hdf5Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, on_failure, what_);
    attribute(file_.id(), name, type.id(), scalar.id(), type.id(), text.data());
  }

  void integer_attribute(const std::string& name, std::int64_t value) {
    const Hdf5Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, on_failure, what_);
    attribute(file_.id(), name, H5T_STD_I64LE, scalar.id(), H5T_NATIVE_INT64, &value);
  }

  void source_file(const SourceFile& source) {
    const Digest digest = digest_of(source.content);
    Hdf5Handle data = dataset(std::string(layout::source_group) + "/" + source.name, H5T_STD_U8LE,
                              {static_cast<std::int64_t>(source.content.size())}, {digest});
    check(H5Dwrite(data.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, source.content.data()));
    data.close(on_failure, what_);
  }

  // Returns the offset of its bytes in the file.
  std::int64_t tensor(const TensorInfo& info) {
    const Hdf5Handle type = hdf5_type_of(info.type, on_failure);
    Hdf5Handle data = dataset(info.dataset, type.id(), extents_in_file(info.type, info.shape), info.digests);
    const haddr_t offset = H5Dget_offset(data.id());
    if (offset == HADDR_UNDEF) {
      throw_hdf5(on_failure, what_ + ": no room for " + info.dataset);
    }
    data.close(on_failure, what_);
    return static_cast<std::int64_t>(offset);
  }

  void close() { file_.close(on_failure, what_); }

 private:
  template <class T>
  T check(T result) const {
    return checked_hdf5(result, on_failure, what_);
  }

  void attribute(Hdf5Id object, const std::string& name, Hdf5Id type, Hdf5Id space, Hdf5Id memory_type,
                 const void* values) {
    Hdf5Handle created(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, on_failure,
                       what_ + ": attribute " + name);
    check(H5Awrite(created.id(), memory_type, values));
    created.close(on_failure, what_);
  }

  // Groups are made one by one, since those that HDF5 makes by itself would carry times.
  void make_parents(const std::string& dataset_path) {
    for (auto slash = dataset_path.find('/', 1); slash != std::string::npos;
         slash = dataset_path.find('/', slash + 1)) {
      const std::string group = dataset_path.substr(0, slash);
      if (groups_.insert(group).second) {
        Hdf5Handle created(H5Gcreate2(file_.id(), group.c_str(), H5P_DEFAULT, group_creation_.id(), H5P_DEFAULT),
                           H5Gclose, on_failure, what_ + ": group " + group);
        created.close(on_failure, what_);
      }
    }
  }

  Hdf5Handle dataset(const std::string& name, Hdf5Id type, const std::vector<std::int64_t>& shape,
                     const std::vector<Digest>& digests) {
    make_parents(name);
    const std::vector<hsize_t> extents(shape.begin(), shape.end());
    const Hdf5Handle space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose,
                           on_failure, what_);
    Hdf5Handle created(
        H5Dcreate2(file_.id(), name.c_str(), type, space.id(), H5P_DEFAULT, dataset_creation_.id(), H5P_DEFAULT),
        H5Dclose, on_failure, what_ + ": dataset " + name);
    const hsize_t num_digests = digests.size();
    const Hdf5Handle digest_space(H5Screate_simple(1, &num_digests, nullptr), H5Sclose, on_failure, what_);
    attribute(created.id(), digest_attribute, H5T_STD_U64LE, digest_space.id(), H5T_NATIVE_UINT64, digests.data());
    return created;
  }

  std::string what_;  // begins the message of a failure
  Hdf5Handle file_;
  Hdf5Handle group_creation_;
  Hdf5Handle dataset_creation_;
  std::set<std::string> groups_;
};

// The oldest that has all of the tensors.
std::int64_t version_of(const std::vector<TensorInfo>& tensors) {
  std::int64_t version = layout::plain_version;
  for (const TensorInfo& tensor : tensors) {
    if (has_scales(tensor.type)) {
      version = std::max(version, version_with(tensor.type));
    }
  }
  return version;
}

}  // namespace

void create_structure(const std::string& path, const std::string& family, const std::string& producer,
                      const std::vector<SourceFile>& source_files, std::vector<TensorInfo>& tensors) {
  prepare_hdf5();
  StructureWriter writer(path);
  writer.text_attribute("format", layout::format_name);
  writer.integer_attribute("version", version_of(tensors));
  writer.text_attribute("family", family);
  writer.text_attribute("producer", producer);
  for (const SourceFile& source : source_files) {
    writer.source_file(source);
  }
  for (TensorInfo& tensor : tensors) {
    tensor.digests.assign(tensor.is_expert_tensor ? static_cast<std::size_t>(tensor.shape.front()) : 1, 0);
    tensor.file_offset = writer.tensor(tensor);
  }
  writer.close();
}

void write_digests(const std::string& path, const std::vector<TensorInfo>& tensors) {
  prepare_hdf5();
  const std::string what = "cannot write digests to " + path;
  Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, file_access().id()), H5Fclose, on_failure, what);
  for (const TensorInfo& tensor : tensors) {
    // The dataset must stay open: after H5Aopen_by_name HDF5 1.10.8 fails to write.
    Hdf5Handle dataset(H5Dopen2(file.id(), tensor.dataset.c_str(), H5P_DEFAULT), H5Dclose, on_failure, what);
    Hdf5Handle attribute(H5Aopen(dataset.id(), digest_attribute, H5P_DEFAULT), H5Aclose, on_failure, what);
    checked_hdf5(H5Awrite(attribute.id(), H5T_NATIVE_UINT64, tensor.digests.data()), on_failure, what);
    attribute.close(on_failure, what);
    dataset.close(on_failure, what);
  }
  file.close(on_failure, what);
}

}  // namespace metro
