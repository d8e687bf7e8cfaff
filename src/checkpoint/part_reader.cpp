#include "checkpoint/part_reader.hpp"

#include "base/integers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace metro {

namespace {

// Row of the source that is row `row` of the dataset.
std::int64_t source_row(const SourceMatrix& matrix, std::int64_t row) {
  if (!matrix.order.is_interleaved) {
    return row;
  }
  const std::int64_t half = matrix.num_rows / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

// In tiles, so that the lines of the cache that a column goes through are still there for the next column.
template <std::size_t element_bytes>
void transpose(const SourceMatrix& matrix, const std::byte* source, std::byte* arranged) {
  constexpr std::int64_t tile = 64;
  const std::int64_t rows = matrix.num_rows;
  const std::int64_t columns = matrix.num_columns;
  for (std::int64_t first_row = 0; first_row < rows; first_row += tile) {
    const std::int64_t end_row = std::min(rows, first_row + tile);
    for (std::int64_t first_column = 0; first_column < columns; first_column += tile) {
      const std::int64_t end_column = std::min(columns, first_column + tile);
      for (std::int64_t row = first_row; row < end_row; ++row) {
        const std::byte* from = source + at(source_row(matrix, row)) * element_bytes;
        std::byte* to = arranged + at(row * columns) * element_bytes;
        for (std::int64_t column = first_column; column < end_column; ++column) {
          std::memcpy(to + at(column) * element_bytes, from + at(column * rows) * element_bytes, element_bytes);
        }
      }
    }
  }
}

bool lies_as_in_dataset(const PartOrder& order) {
  return !order.is_transposed && !order.is_interleaved;
}

}  // namespace

void arrange_matrix(const SourceMatrix& matrix, std::span<const std::byte> source, std::span<std::byte> arranged) {
  const std::size_t num_bytes = at(matrix.num_rows * matrix.num_columns * matrix.element_bytes);
  METRO_REQUIRE(source.size() == num_bytes && arranged.size() == num_bytes, "one whole matrix");
  METRO_REQUIRE(!matrix.order.is_interleaved || matrix.num_rows % 2 == 0, "as many even rows as odd ones");
  if (!matrix.order.is_transposed) {
    const std::size_t row_bytes = at(matrix.num_columns * matrix.element_bytes);
    for (std::int64_t row = 0; row < matrix.num_rows; ++row) {
      std::memcpy(arranged.data() + at(row) * row_bytes, source.data() + at(source_row(matrix, row)) * row_bytes,
                  row_bytes);
    }
    return;
  }
  switch (matrix.element_bytes) {
    case 1:
      return transpose<1>(matrix, source.data(), arranged.data());
    case 2:
      return transpose<2>(matrix, source.data(), arranged.data());
    case 4:
      return transpose<4>(matrix, source.data(), arranged.data());
    default:
      METRO_REQUIRE(false, fmt::format("elements of {} bytes", matrix.element_bytes));
  }
}

void PartReader::read_as_stored(const PlannedPart& part, std::int64_t offset, std::span<std::byte> bytes) const {
  folder_.read(*part.entry, offset, bytes);
  const std::int64_t bad_idx = find_non_finite(part.type, bytes);
  if (bad_idx >= 0) {
    throw Error(ExitCode::checkpoint,
                fmt::format("{}: tensor {} has a NaN or an infinity at element {}", folder_.path_of(*part.entry),
                            part.name, offset / bytes_of(part.type) + bad_idx));
  }
}

void PartReader::arrange(const PlannedPart& part, std::int64_t matrix_idx) {
  if (arranged_entry_ == part.entry && arranged_idx_ == matrix_idx) {
    return;
  }
  const SourceMatrix matrix{part.matrix_rows, part.matrix_columns, bytes_of(part.type), part.order};
  source_.resize(at(matrix.num_rows * matrix.num_columns * matrix.element_bytes));
  arranged_.resize(source_.size());
  arranged_entry_ = nullptr;
  read_as_stored(part, matrix_idx * std::ssize(source_), source_);
  arrange_matrix(matrix, source_, arranged_);
  arranged_entry_ = part.entry;
  arranged_idx_ = matrix_idx;
}

void PartReader::read(const PlannedPart& part, std::int64_t offset, std::span<std::byte> bytes) {
  if (lies_as_in_dataset(part.order)) {
    return read_as_stored(part, offset, bytes);
  }
  const std::int64_t matrix_bytes = part.matrix_rows * part.matrix_columns * bytes_of(part.type);
  while (!bytes.empty()) {
    arrange(part, offset / matrix_bytes);
    const auto from = std::span(std::as_const(arranged_)).subspan(at(offset % matrix_bytes));
    const std::size_t count = std::min(from.size(), bytes.size());
    std::memcpy(bytes.data(), from.data(), count);
    bytes = bytes.subspan(count);
    offset += static_cast<std::int64_t>(count);
  }
}

}  // namespace metro
