#include "hdf5/hdf5_table_writer.hpp"

#include "base/file.hpp"
#include "hdf5/hdf5_handle.hpp"
#include "hdf5/hdf5_table_types.hpp"

#include <fmt/format.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>

namespace metro {

namespace {

constexpr ExitCode on_failure = ExitCode::machine;

Hdf5Handle property_list(Hdf5Id list_class) {
  return Hdf5Handle(H5Pcreate(list_class), H5Pclose, on_failure, "HDF5 property list");
}

std::int64_t product_of(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

// Extents of a dataset or of a part of it: `num_rows` rows of this shape.
std::vector<hsize_t> rows_of(std::int64_t num_rows, const std::vector<std::int64_t>& row_shape) {
  std::vector<hsize_t> extents{static_cast<hsize_t>(num_rows)};
  extents.insert(extents.end(), row_shape.begin(), row_shape.end());
  return extents;
}

Hdf5Handle create_file(const std::string& path) {
  prepare_hdf5();
  const std::string what = "cannot create " + path;
  // HDF5 would follow a link at `path`, or fill a file that is there and stays readable to whoever made it.
  ::close(make_new_file(path));
  const Hdf5Handle access = table_file_access(on_failure);
  Hdf5Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), H5Fclose, on_failure, what);
  return file;
}

struct Column {
  std::string name;
  ColumnType type;
  std::vector<std::int64_t> row_shape;
  std::int64_t num_rows;
  Hdf5Handle dataset;
};

}  // namespace

struct Hdf5TableWriter::Impl {
  std::string what;  // begins the message of a failure
  std::int64_t chunk_rows;
  Hdf5Handle file;
  std::vector<Column> columns;

  Impl(const std::string& path, std::int64_t chunk)
      : what("cannot write " + path), chunk_rows(chunk), file(create_file(path)) {}

  template <class T>
  T check(T result) const {
    return checked_hdf5(result, on_failure, what);
  }

  Hdf5Handle space(const std::vector<std::int64_t>& shape, const std::vector<hsize_t>& most) const {
    const std::vector<hsize_t> extents(shape.begin(), shape.end());
    return Hdf5Handle(
        H5Screate_simple(static_cast<int>(extents.size()), extents.data(), most.empty() ? nullptr : most.data()),
        H5Sclose, on_failure, what);
  }

  Hdf5Handle scalar() const { return Hdf5Handle(H5Screate(H5S_SCALAR), H5Sclose, on_failure, what); }

  Hdf5Handle dataset(const std::string& name, const Hdf5Handle& type, const Hdf5Handle& shape, Hdf5Id creation) const {
    return Hdf5Handle(H5Dcreate2(file.id(), name.c_str(), type.id(), shape.id(), H5P_DEFAULT, creation, H5P_DEFAULT),
                      H5Dclose, on_failure, what + ": dataset " + name);
  }

  void write_whole(const std::string& name, ColumnType type, const Hdf5Handle& shape, const void* values) const {
    Hdf5Handle data = dataset(name, stored_type_of(type, on_failure), shape, H5P_DEFAULT);
    check(H5Dwrite(data.id(), memory_type_of(type, on_failure).id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    data.close(on_failure, what);
  }

  void write_attribute(const std::string& name, const Hdf5Handle& stored, const Hdf5Handle& memory,
                       const void* value) const {
    const Hdf5Handle shape = scalar();
    Hdf5Handle created(H5Acreate2(file.id(), name.c_str(), stored.id(), shape.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                       on_failure, what + ": attribute " + name);
    check(H5Awrite(created.id(), memory.id(), value));
    created.close(on_failure, what);
  }

  Hdf5Handle column_creation(ColumnType type, const std::vector<std::int64_t>& row_shape, std::int64_t rows) const {
    Hdf5Handle creation = property_list(H5P_DATASET_CREATE);
    const std::vector<hsize_t> chunk = rows_of(rows, row_shape);
    check(H5Pset_chunk(creation.id(), static_cast<int>(chunk.size()), chunk.data()));
    // Counts and times of a run compress to a fifth or so; texts lie elsewhere, where filters do not reach.
    if (type != ColumnType::text && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0) {
      check(H5Pset_shuffle(creation.id()));
      check(H5Pset_deflate(creation.id(), 1));
    }
    return creation;
  }
};

Hdf5TableWriter::Hdf5TableWriter(const std::string& path, std::int64_t chunk_rows) {
  METRO_REQUIRE(chunk_rows > 0, fmt::format("chunk_rows {}", chunk_rows));
  impl_ = std::make_unique<Impl>(path, chunk_rows);
}
Hdf5TableWriter::~Hdf5TableWriter() = default;

void Hdf5TableWriter::attribute(const std::string& name, const std::string& value) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose, on_failure, impl_->what);
  impl_->check(H5Tset_size(type.id(), std::max<std::size_t>(1, value.size())));
  impl_->check(H5Tset_cset(type.id(), H5T_CSET_UTF8));
  impl_->check(H5Tset_strpad(type.id(), H5T_STR_NULLPAD));
  impl_->write_attribute(name, type, type, value.c_str());
}
void Hdf5TableWriter::attribute(const std::string& name, std::int64_t value) {
  impl_->write_attribute(name, stored_type_of(ColumnType::i64, on_failure), memory_type_of(ColumnType::i64, on_failure),
                         &value);
}
void Hdf5TableWriter::attribute(const std::string& name, double value) {
  impl_->write_attribute(name, stored_type_of(ColumnType::f64, on_failure), memory_type_of(ColumnType::f64, on_failure),
                         &value);
}

void Hdf5TableWriter::make_group(const std::string& name) {
  Hdf5Handle group(H5Gcreate2(impl_->file.id(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose,
                   on_failure, impl_->what + ": group " + name);
  group.close(on_failure, impl_->what);
}

void Hdf5TableWriter::text(const std::string& name, const std::string& value) {
  const char* start = value.c_str();
  impl_->write_whole(name, ColumnType::text, impl_->scalar(), &start);
}

void Hdf5TableWriter::texts(const std::string& name, std::span<const std::string> values) {
  std::vector<const char*> starts;
  for (const std::string& value : values) {
    starts.push_back(value.c_str());
  }
  impl_->write_whole(name, ColumnType::text, impl_->space({std::ssize(values)}, {}), starts.data());
}

void Hdf5TableWriter::integers(const std::string& name, const std::vector<std::int64_t>& shape,
                               std::span<const std::int32_t> values) {
  METRO_REQUIRE(product_of(shape) == std::ssize(values), fmt::format("{}: {} values", name, values.size()));
  impl_->write_whole(name, ColumnType::i32, impl_->space(shape, {}), values.data());
}

std::size_t Hdf5TableWriter::make_column(const std::string& name, ColumnType type, std::int64_t width,
                                         std::int64_t chunk_rows) {
  METRO_REQUIRE(width >= 0, fmt::format("{}: width {}", name, width));
  return make_column(name, type, width == 0 ? std::vector<std::int64_t>() : std::vector<std::int64_t>{width},
                     chunk_rows);
}

std::size_t Hdf5TableWriter::make_column(const std::string& name, ColumnType type,
                                         const std::vector<std::int64_t>& row_shape, std::int64_t chunk_rows) {
  METRO_REQUIRE(std::all_of(row_shape.begin(), row_shape.end(), [](std::int64_t extent) { return extent > 0; }),
                fmt::format("{}: an extent of a row is not positive", name));
  std::vector<std::int64_t> shape{0};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  std::vector<hsize_t> most = rows_of(0, row_shape);
  most.front() = H5S_UNLIMITED;
  const Hdf5Handle creation = impl_->column_creation(type, row_shape, chunk_rows > 0 ? chunk_rows : impl_->chunk_rows);
  impl_->columns.push_back(
      {name, type, row_shape, 0,
       impl_->dataset(name, stored_type_of(type, on_failure), impl_->space(shape, most), creation.id())});
  return impl_->columns.size() - 1;
}

void Hdf5TableWriter::append_values(std::size_t column_idx, ColumnType type, const void* values,
                                    std::int64_t num_values) {
  Column& column = impl_->columns.at(column_idx);
  const std::int64_t row_values = product_of(column.row_shape);
  METRO_REQUIRE(type == column.type && num_values % row_values == 0,
                fmt::format("{}: {} values of rows of {}", column.name, num_values, row_values));
  if (num_values == 0) {
    return;
  }
  const std::int64_t num_rows = num_values / row_values;
  std::vector<hsize_t> first(column.row_shape.size() + 1, 0);
  first.front() = static_cast<hsize_t>(column.num_rows);
  const std::vector<hsize_t> extents = rows_of(num_rows, column.row_shape);
  impl_->check(H5Dset_extent(column.dataset.id(), rows_of(column.num_rows + num_rows, column.row_shape).data()));
  const Hdf5Handle in_file(H5Dget_space(column.dataset.id()), H5Sclose, on_failure, impl_->what);
  impl_->check(H5Sselect_hyperslab(in_file.id(), H5S_SELECT_SET, first.data(), nullptr, extents.data(), nullptr));
  const Hdf5Handle in_memory = impl_->space({num_values}, {});

  std::vector<const char*> starts;
  if (type == ColumnType::text) {
    const auto* texts = static_cast<const std::string*>(values);
    std::transform(texts, texts + num_values, std::back_inserter(starts),
                   [](const auto& text) { return text.c_str(); });
    values = starts.data();
  }
  impl_->check(H5Dwrite(column.dataset.id(), memory_type_of(type, on_failure).id(), in_memory.id(), in_file.id(),
                        H5P_DEFAULT, values));
  column.num_rows += num_rows;
}

void Hdf5TableWriter::flush() {
  impl_->check(H5Fflush(impl_->file.id(), H5F_SCOPE_LOCAL));
}

void Hdf5TableWriter::close() {
  for (Column& column : impl_->columns) {
    column.dataset.close(on_failure, impl_->what);
  }
  impl_->file.close(on_failure, impl_->what);
}

}  // namespace metro
