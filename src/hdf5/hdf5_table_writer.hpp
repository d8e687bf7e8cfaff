// Writes an HDF5 file of attributes, texts and columns that grow row by row: measurements of a run, not tensors.
// After flush() what was appended can be read even if the process ends without closing the file.
#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace metro {

enum class ColumnType { u8, u16, u32, i32, i64, f32, f64, text };

template <class T>
constexpr ColumnType column_type_of() {
  if constexpr (std::is_same_v<T, std::string>) {
    return ColumnType::text;
  } else if constexpr (std::is_same_v<T, std::uint8_t>) {
    return ColumnType::u8;
  } else if constexpr (std::is_same_v<T, std::uint16_t>) {
    return ColumnType::u16;
  } else if constexpr (std::is_same_v<T, std::uint32_t>) {
    return ColumnType::u32;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return ColumnType::i32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return ColumnType::i64;
  } else if constexpr (std::is_same_v<T, float>) {
    return ColumnType::f32;
  } else {
    static_assert(std::is_same_v<T, double>, "not a type of columns");
    return ColumnType::f64;
  }
}

// All methods throw Error(machine) naming the file when writing fails, the constructor Error(usage) when the file
// cannot be created.
class Hdf5TableWriter {
 public:
  // Creates `path`; a plain file that is there is replaced. chunk_rows: rows of a column that are stored (and
  // compressed) together.
  Hdf5TableWriter(const std::string& path, std::int64_t chunk_rows);
  ~Hdf5TableWriter();
  Hdf5TableWriter(const Hdf5TableWriter&) = delete;
  Hdf5TableWriter& operator=(const Hdf5TableWriter&) = delete;

  // Attributes of the root group.
  void attribute(const std::string& name, const std::string& value);
  void attribute(const std::string& name, std::int64_t value);
  void attribute(const std::string& name, double value);

  void make_group(const std::string& name);
  // Datasets that are whole at once: one text, texts [n], integers of any shape.
  void text(const std::string& name, const std::string& value);
  void texts(const std::string& name, std::span<const std::string> values);
  void integers(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const std::int32_t> values);

  // A dataset without rows. width 0: one value per row, shape [rows]; else [rows, width]. Returns its number.
  // chunk_rows 0: those of the file; wide rows want fewer, a chunk is in memory as a whole.
  std::size_t make_column(const std::string& name, ColumnType type, std::int64_t width, std::int64_t chunk_rows = 0);
  // The same for rows of any shape: [rows, row_shape...]; an empty row_shape is one value per row.
  std::size_t make_column(const std::string& name, ColumnType type, const std::vector<std::int64_t>& row_shape,
                          std::int64_t chunk_rows = 0);
  // Rows behind those that are there. T must be the type of the column; values [rows * values of a row].
  template <class T>
  void append(std::size_t column, std::span<const T> values) {
    append_values(column, column_type_of<T>(), values.data(), static_cast<std::int64_t>(values.size()));
  }

  void flush();
  void close();

 private:
  void append_values(std::size_t column, ColumnType type, const void* values, std::int64_t num_values);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A column whose rows are collected in memory and written by flush().
template <class T>
class Hdf5Column {
 public:
  Hdf5Column(Hdf5TableWriter& file, const std::string& name, std::int64_t width = 0, std::int64_t chunk_rows = 0)
      : file_(&file), column_(file.make_column(name, column_type_of<T>(), width, chunk_rows)) {}

  // One value; a row of `width` of them is pushed one after another.
  void push(T value) { values_.push_back(std::move(value)); }
  void flush() {
    file_->append(column_, std::span<const T>(values_));
    values_.clear();
  }

 private:
  Hdf5TableWriter* file_;
  std::size_t column_;
  std::vector<T> values_;
};

}  // namespace metro
