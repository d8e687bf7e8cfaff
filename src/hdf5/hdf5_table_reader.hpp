// Reads files as Hdf5TableWriter makes them. Nothing in the file is believed before it is checked.
#pragma once

#include "base/error.hpp"
#include "hdf5/hdf5_table_writer.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace metro {

// The text attribute `name` of the root group of an HDF5 file; empty if the file is no HDF5 file or has no such text.
// For telling files apart; throws nothing but Error(on_failure) when HDF5 itself fails.
std::string hdf5_text_attribute_or_empty(const std::string& path, const std::string& name, ExitCode on_failure);

// All methods throw Error(on_failure) naming the file and the object that is missing or not of this shape and type.
class Hdf5TableReader {
 public:
  Hdf5TableReader(const std::string& path, ExitCode on_failure);
  ~Hdf5TableReader();
  Hdf5TableReader(const Hdf5TableReader&) = delete;
  Hdf5TableReader& operator=(const Hdf5TableReader&) = delete;

  bool has_attribute(const std::string& name) const;
  std::string text_attribute(const std::string& name) const;
  std::int64_t integer_attribute(const std::string& name) const;
  double number_attribute(const std::string& name) const;

  bool has_dataset(const std::string& name) const;
  std::string text(const std::string& name) const;
  // All values of a dataset of integers, whatever its shape.
  std::vector<std::int32_t> integers(const std::string& name) const;
  // Extents of a dataset.
  std::vector<std::int64_t> shape(const std::string& name) const;
  std::int64_t num_rows(const std::string& name) const { return shape(name).at(0); }

  // Rows first .. first + num_rows - 1 of a column [rows] (width 0) or [rows, ...] with `width` values in a row, as
  // [num_rows * max(width, 1)].
  template <class T>
  std::vector<T> rows(const std::string& name, std::int64_t first, std::int64_t num_rows, std::int64_t width) const {
    std::vector<T> values(checked_num_values(name, first, num_rows, width));
    read_values(name, column_type_of<T>(), first, num_rows, width, values.data());
    return values;
  }

 private:
  std::size_t checked_num_values(const std::string& name, std::int64_t first, std::int64_t num_rows,
                                 std::int64_t width) const;
  void read_values(const std::string& name, ColumnType type, std::int64_t first, std::int64_t num_rows,
                   std::int64_t width, void* values) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
