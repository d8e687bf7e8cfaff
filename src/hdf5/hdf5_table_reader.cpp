#include "hdf5/hdf5_table_reader.hpp"

#include "hdf5/hdf5_dataset.hpp"
#include "hdf5/hdf5_table_types.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>

#include <algorithm>

namespace metro {

namespace {

constexpr std::size_t longest_attribute = 4096;

Hdf5Handle open_file(const std::string& path, ExitCode on_failure) {
  prepare_hdf5();
  return Hdf5Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, table_file_access(on_failure).id()), H5Fclose, on_failure,
                    path + ": cannot open");
}

// Texts that H5Dread allocated, given back in any case.
class ReadTexts {
 public:
  ReadTexts(Hdf5Id type, Hdf5Id space, std::size_t count) : type_(type), space_(space), starts_(count, nullptr) {}
  ~ReadTexts() { H5Dvlen_reclaim(type_, space_, H5P_DEFAULT, starts_.data()); }
  ReadTexts(const ReadTexts&) = delete;
  ReadTexts& operator=(const ReadTexts&) = delete;

  char** data() { return starts_.data(); }
  void copy_to(std::string* texts) const {
    std::transform(starts_.begin(), starts_.end(), texts,
                   [](const char* start) { return start == nullptr ? std::string() : std::string(start); });
  }

 private:
  Hdf5Id type_, space_;
  std::vector<char*> starts_;
};

// Whether rows of a dataset of this shape hold `width` values (0: one value, and no axis but that of the rows). The
// extents of a damaged file may be anything, so nothing is multiplied before it is known to fit.
bool has_width(const std::vector<std::int64_t>& shape, std::int64_t width) {
  if (width == 0 || shape.size() == 1) {
    return width == 0 && shape.size() == 1;
  }
  std::int64_t rest = width;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) {
    if (shape[axis] <= 0 || rest % shape[axis] != 0) {
      return false;
    }
    rest /= shape[axis];
  }
  return rest == 1;
}

}  // namespace

struct Hdf5TableReader::Impl {
  std::string path;
  ExitCode on_failure;
  Hdf5Handle file;

  Impl(const std::string& file_path, ExitCode failure)
      : path(file_path), on_failure(failure), file(open_file(file_path, failure)) {}

  [[noreturn]] void fail(const std::string& object, const std::string& complaint) const {
    throw Error(on_failure, fmt::format("{}: {} {}", path, object, complaint));
  }
  std::string name_of(const std::string& object) const { return fmt::format("{}: {}", path, object); }

  // A single value of this class.
  Hdf5Handle attribute(const std::string& name, H5T_class_t expected, const char* shown_type) const {
    const std::string shown = "attribute " + name;
    if (checked_hdf5(H5Aexists(file.id(), name.c_str()), on_failure, name_of(shown)) == 0) {
      fail(shown, "is missing");
    }
    Hdf5Handle opened(H5Aopen(file.id(), name.c_str(), H5P_DEFAULT), H5Aclose, on_failure, name_of(shown));
    const Hdf5Handle type(H5Aget_type(opened.id()), H5Tclose, on_failure, name_of(shown));
    const Hdf5Handle space(H5Aget_space(opened.id()), H5Sclose, on_failure, name_of(shown));
    if (H5Tget_class(type.id()) != expected || H5Sget_simple_extent_npoints(space.id()) != 1) {
      fail(shown, fmt::format("must hold one {}", shown_type));
    }
    return opened;
  }

  Hdf5Handle dataset(const std::string& name) const { return open_hdf5_dataset(file, name, path, on_failure); }

  void require_type(const Hdf5Handle& opened, const std::string& name, ColumnType type) const {
    const Hdf5Handle stored(H5Dget_type(opened.id()), H5Tclose, on_failure, name_of(name));
    if (H5Tequal(stored.id(), stored_type_of(type, on_failure).id()) <= 0) {
      fail("dataset " + name, "does not have the type that belongs there");
    }
  }

  void read(const Hdf5Handle& opened, const std::string& name, ColumnType type, const Hdf5Handle& in_memory,
            Hdf5Id in_file, void* values) const {
    const Hdf5Handle memory_type = memory_type_of(type, on_failure);
    const std::string what = name_of("dataset " + name + " cannot be read");
    if (type != ColumnType::text) {
      checked_hdf5(H5Dread(opened.id(), memory_type.id(), in_memory.id(), in_file, H5P_DEFAULT, values), on_failure,
                   what);
      return;
    }
    const auto count = static_cast<std::size_t>(H5Sget_simple_extent_npoints(in_memory.id()));
    ReadTexts texts(memory_type.id(), in_memory.id(), count);
    checked_hdf5(H5Dread(opened.id(), memory_type.id(), in_memory.id(), in_file, H5P_DEFAULT, texts.data()), on_failure,
                 what);
    texts.copy_to(static_cast<std::string*>(values));
  }
};

Hdf5TableReader::Hdf5TableReader(const std::string& path, ExitCode on_failure)
    : impl_(std::make_unique<Impl>(path, on_failure)) {}
Hdf5TableReader::~Hdf5TableReader() = default;

bool Hdf5TableReader::has_attribute(const std::string& name) const {
  return checked_hdf5(H5Aexists(impl_->file.id(), name.c_str()), impl_->on_failure,
                      impl_->name_of("attribute " + name)) > 0;
}

std::string Hdf5TableReader::text_attribute(const std::string& name) const {
  const std::string shown = "attribute " + name;
  const Hdf5Handle attribute = impl_->attribute(name, H5T_STRING, "text");
  const Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose, impl_->on_failure, impl_->name_of(shown));
  const std::size_t size = H5Tget_size(type.id());
  if (H5Tis_variable_str(type.id()) != 0 || size == 0 || size > longest_attribute) {
    impl_->fail(shown, fmt::format("must be text of a fixed length of at most {} bytes", longest_attribute));
  }
  std::string text(size, '\0');
  checked_hdf5(H5Aread(attribute.id(), type.id(), text.data()), impl_->on_failure, impl_->name_of(shown));
  text.resize(std::min(text.find('\0'), size));
  return text;
}

std::int64_t Hdf5TableReader::integer_attribute(const std::string& name) const {
  const Hdf5Handle attribute = impl_->attribute(name, H5T_INTEGER, "integer");
  std::int64_t value = 0;
  checked_hdf5(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), impl_->on_failure, impl_->name_of(name));
  return value;
}

double Hdf5TableReader::number_attribute(const std::string& name) const {
  const Hdf5Handle attribute = impl_->attribute(name, H5T_FLOAT, "floating-point number");
  double value = 0.0;
  checked_hdf5(H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, &value), impl_->on_failure, impl_->name_of(name));
  return value;
}

bool Hdf5TableReader::has_dataset(const std::string& name) const {
  return has_hdf5_link(impl_->file, name, impl_->path, impl_->on_failure);
}

std::string Hdf5TableReader::text(const std::string& name) const {
  const Hdf5Handle opened = impl_->dataset(name);
  impl_->require_type(opened, name, ColumnType::text);
  const Hdf5Handle space(H5Dget_space(opened.id()), H5Sclose, impl_->on_failure, impl_->name_of(name));
  if (H5Sget_simple_extent_npoints(space.id()) != 1) {
    impl_->fail("dataset " + name, "must be one text");
  }
  std::string value;
  impl_->read(opened, name, ColumnType::text, space, H5S_ALL, &value);
  return value;
}

std::vector<std::int32_t> Hdf5TableReader::integers(const std::string& name) const {
  const Hdf5Handle opened = impl_->dataset(name);
  impl_->require_type(opened, name, ColumnType::i32);
  const Hdf5Handle space(H5Dget_space(opened.id()), H5Sclose, impl_->on_failure, impl_->name_of(name));
  const std::int64_t num_values =
      checked_hdf5(H5Sget_simple_extent_npoints(space.id()), impl_->on_failure, impl_->name_of(name));
  std::vector<std::int32_t> values(static_cast<std::size_t>(num_values));
  impl_->read(opened, name, ColumnType::i32, space, H5S_ALL, values.data());
  return values;
}

std::vector<std::int64_t> Hdf5TableReader::shape(const std::string& name) const {
  const Hdf5Handle opened = impl_->dataset(name);
  const Hdf5Handle space(H5Dget_space(opened.id()), H5Sclose, impl_->on_failure, impl_->name_of(name));
  const int num_axes = checked_hdf5(H5Sget_simple_extent_ndims(space.id()), impl_->on_failure, impl_->name_of(name));
  if (num_axes < 1) {
    impl_->fail("dataset " + name, "must have rows");
  }
  std::vector<hsize_t> extents(static_cast<std::size_t>(num_axes));
  checked_hdf5(H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr), impl_->on_failure, impl_->name_of(name));
  return {extents.begin(), extents.end()};
}

std::size_t Hdf5TableReader::checked_num_values(const std::string& name, std::int64_t first, std::int64_t num_rows,
                                                std::int64_t width) const {
  const std::vector<std::int64_t> found = shape(name);
  const bool fits = has_width(found, width) && first >= 0 && num_rows >= 0 && first <= found[0] - num_rows;
  if (!fits) {
    impl_->fail("dataset " + name,
                fmt::format("has shape {}, needed are rows {} to {}{}", found, first, first + num_rows,
                            width == 0 ? std::string() : fmt::format(" of width {}", width)));
  }
  return static_cast<std::size_t>(num_rows * std::max<std::int64_t>(1, width));
}

void Hdf5TableReader::read_values(const std::string& name, ColumnType type, std::int64_t first, std::int64_t num_rows,
                                  std::int64_t width, void* values) const {
  if (num_rows == 0) {
    return;
  }
  const Hdf5Handle opened = impl_->dataset(name);
  impl_->require_type(opened, name, type);
  const std::vector<std::int64_t> found = shape(name);
  std::vector<hsize_t> start(found.size(), 0);
  start.front() = static_cast<hsize_t>(first);
  std::vector<hsize_t> extents(found.begin(), found.end());
  extents.front() = static_cast<hsize_t>(num_rows);
  const hsize_t num_values = static_cast<hsize_t>(num_rows * std::max<std::int64_t>(1, width));
  const std::string what = impl_->name_of(name);
  const Hdf5Handle in_file(H5Dget_space(opened.id()), H5Sclose, impl_->on_failure, what);
  checked_hdf5(H5Sselect_hyperslab(in_file.id(), H5S_SELECT_SET, start.data(), nullptr, extents.data(), nullptr),
               impl_->on_failure, what);
  const Hdf5Handle in_memory(H5Screate_simple(1, &num_values, nullptr), H5Sclose, impl_->on_failure, what);
  impl_->read(opened, name, type, in_memory, in_file.id(), values);
}

std::string hdf5_text_attribute_or_empty(const std::string& path, const std::string& name, ExitCode on_failure) {
  prepare_hdf5();
  const bool is_hdf5 = H5Fis_hdf5(path.c_str()) > 0;
  H5Eclear2(H5E_DEFAULT);
  if (!is_hdf5) {
    return "";
  }
  const Hdf5TableReader reader(path, on_failure);
  return reader.has_attribute(name) ? reader.text_attribute(name) : "";
}

}  // namespace metro
