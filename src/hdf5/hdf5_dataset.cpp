#include "hdf5/hdf5_dataset.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

namespace metro {

namespace {

// A byte of deflate stands for 1032 bytes at most.
constexpr std::int64_t most_unpacked_per_byte = 1032;

herr_t refuse_link(const char*, const char*, const char*, const char*, unsigned*, hid_t, void* was_met) {
  *static_cast<bool*>(was_met) = true;
  return -1;
}

class Opening {
 public:
  Opening(const std::string& name, const std::string& path, ExitCode on_failure)
      : name_(name), path_(path), on_failure_(on_failure) {}

  // Properties of `list_class`, a kind of link access, that stop at a link to another file.
  Hdf5Handle access(Hdf5Id list_class) {
    Hdf5Handle list(H5Pcreate(list_class), H5Pclose, on_failure_, "HDF5 property list");
    checked_hdf5(H5Pset_elink_cb(list.id(), refuse_link, &met_link_), on_failure_, "HDF5 property list");
    return list;
  }

  Hdf5Handle opened(Hdf5Id id, Hdf5Handle::Close close, const char* kind) const {
    if (id < 0 && met_link_) {
      H5Eclear2(H5E_DEFAULT);
      fail(fmt::format("{} {} is a link to another file, which is not followed", kind, name_));
    }
    return Hdf5Handle(id, close, on_failure_, fmt::format("{}: {} {} is missing or unreadable", path_, kind, name_));
  }

  void require_own_data(const Hdf5Handle& dataset) const {
    const Hdf5Handle creation(H5Dget_create_plist(dataset.id()), H5Pclose, on_failure_, shown());
    const H5D_layout_t layout = H5Pget_layout(creation.id());
    if (layout == H5D_VIRTUAL || H5Pget_external_count(creation.id()) != 0) {
      fail(fmt::format("dataset {} takes its data from other files, which is not allowed", name_));
    }
    const Hdf5Handle type(H5Dget_type(dataset.id()), H5Tclose, on_failure_, shown());
    const auto element_bytes = static_cast<std::int64_t>(H5Tget_size(type.id()));
    if (layout == H5D_CHUNKED) {
      require_usable_chunks(creation, element_bytes);
    }
    const std::optional<std::int64_t> claimed = product(extents(dataset), element_bytes);
    const auto stored = static_cast<std::int64_t>(
        std::min<hsize_t>(H5Dget_storage_size(dataset.id()), std::numeric_limits<std::int64_t>::max()));
    H5Eclear2(H5E_DEFAULT);
    if (!claimed || *claimed / most_unpacked_per_byte > stored) {
      fail(fmt::format("dataset {} claims more than its {} stored bytes can hold: the file is damaged", name_, stored));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& complaint) const {
    throw Error(on_failure_, fmt::format("{}: {}", path_, complaint));
  }
  std::string shown() const { return fmt::format("{}: dataset {}", path_, name_); }

  void require_usable_chunks(const Hdf5Handle& creation, std::int64_t element_bytes) const {
    std::array<hsize_t, H5S_MAX_RANK> extents{};
    const int num_axes = checked_hdf5(H5Pget_chunk(creation.id(), H5S_MAX_RANK, extents.data()), on_failure_, shown());
    const auto bytes = product({extents.begin(), extents.begin() + num_axes}, element_bytes);
    if (!bytes || *bytes > most_chunk_bytes) {
      fail(fmt::format("dataset {} has chunks of more than {} bytes", name_, most_chunk_bytes));
    }
    const int num_filters = checked_hdf5(H5Pget_nfilters(creation.id()), on_failure_, shown());
    for (int idx = 0; idx < num_filters; ++idx) {
      std::size_t num_values = 0;
      unsigned flags = 0;
      unsigned config = 0;
      const H5Z_filter_t filter =
          H5Pget_filter2(creation.id(), static_cast<unsigned>(idx), &flags, &num_values, nullptr, 0, nullptr, &config);
      if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_FLETCHER32) {
        fail(fmt::format("dataset {} is packed with filter {}; read are deflate, shuffle and fletcher32", name_,
                         static_cast<int>(filter)));
      }
    }
  }

  std::vector<hsize_t> extents(const Hdf5Handle& dataset) const {
    const Hdf5Handle space(H5Dget_space(dataset.id()), H5Sclose, on_failure_, shown());
    std::array<hsize_t, H5S_MAX_RANK> extents{};
    const int num_axes =
        checked_hdf5(H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr), on_failure_, shown());
    return {extents.begin(), extents.begin() + num_axes};
  }

  // Nothing if it does not fit into 63 bits.
  static std::optional<std::int64_t> product(const std::vector<hsize_t>& extents, std::int64_t element_bytes) {
    std::int64_t result = element_bytes;
    for (const hsize_t extent : extents) {
      if (extent > static_cast<hsize_t>(std::numeric_limits<std::int64_t>::max()) ||
          __builtin_mul_overflow(result, static_cast<std::int64_t>(extent), &result)) {
        return std::nullopt;
      }
    }
    return result;
  }

  const std::string& name_;
  const std::string& path_;
  ExitCode on_failure_;
  bool met_link_ = false;
};

}  // namespace

Hdf5Handle open_hdf5_dataset(const Hdf5Handle& file, const std::string& name, const std::string& path,
                             ExitCode on_failure) {
  Opening opening(name, path, on_failure);
  const Hdf5Handle access = opening.access(H5P_DATASET_ACCESS);
  Hdf5Handle dataset = opening.opened(H5Dopen2(file.id(), name.c_str(), access.id()), H5Dclose, "dataset");
  opening.require_own_data(dataset);
  return dataset;
}

Hdf5Handle open_hdf5_group(const Hdf5Handle& file, const std::string& name, const std::string& path,
                           ExitCode on_failure) {
  Opening opening(name, path, on_failure);
  const Hdf5Handle access = opening.access(H5P_GROUP_ACCESS);
  return opening.opened(H5Gopen2(file.id(), name.c_str(), access.id()), H5Gclose, "group");
}

bool has_hdf5_link(const Hdf5Handle& file, const std::string& name, const std::string& path, ExitCode on_failure) {
  Opening opening(name, path, on_failure);
  const Hdf5Handle access = opening.access(H5P_LINK_ACCESS);
  return checked_hdf5(H5Lexists(file.id(), name.c_str(), access.id()), on_failure,
                      fmt::format("{}: {} cannot be looked up", path, name)) > 0;
}

}  // namespace metro
