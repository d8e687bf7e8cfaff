#include "checkpoint/part_reader.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "checkpoint/scaled_weights.hpp"

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

// The matrices of a part. Rows of e2m1 are bytes of two weights each.
SourceMatrix matrix_of(const PlannedPart& part) {
  if (part.type == SourceType::e2m1) {
    return {part.matrix_rows, bytes_of(part.type, part.matrix_columns), 1, part.order};
  }
  return {part.matrix_rows, part.matrix_columns, bytes_of(part.type, 1), part.order};
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

void ArrangedTensor::read(const std::string& name, const SourceMatrix& matrix, const ReadAsStored& read_as_stored,
                          std::int64_t offset, std::span<std::byte> bytes) {
  if (lies_as_in_dataset(matrix.order)) {
    return read_as_stored(offset, bytes);
  }
  const std::int64_t matrix_bytes = matrix.num_bytes();
  while (!bytes.empty()) {
    const std::int64_t idx = offset / matrix_bytes;
    if (arranged_name_ != name || arranged_idx_ != idx) {
      arranged_name_.clear();
      source_.resize(at(matrix_bytes));
      arranged_.resize(at(matrix_bytes));
      read_as_stored(idx * matrix_bytes, source_);
      arrange_matrix(matrix, source_, arranged_);
      arranged_name_ = name;
      arranged_idx_ = idx;
    }
    const auto from = std::span(std::as_const(arranged_)).subspan(at(offset % matrix_bytes));
    const std::size_t count = std::min(from.size(), bytes.size());
    std::memcpy(bytes.data(), from.data(), count);
    bytes = bytes.subspan(count);
    offset += static_cast<std::int64_t>(count);
  }
}

void PartReader::fail(const std::string& tensor, const SafetensorsEntry& entry, std::int64_t element,
                      const std::string& complaint) const {
  throw Error(ExitCode::checkpoint,
              fmt::format("{}: tensor {} has {} at element {}", folder_.path_of(entry), tensor, complaint, element));
}

void PartReader::read_as_stored(const PlannedPart& part, std::int64_t offset, std::span<std::byte> bytes) {
  folder_.read(*part.entry, offset, bytes);
  if (part.type == SourceType::e4m3) {
    METRO_REQUIRE(offset % part.row_length == 0, part.name);
    const Fp8Rows rows{bytes, offset / part.row_length, part.row_length, fp8_scales(part)};
    if (const std::int64_t bad = find_nan(rows); bad >= 0) {
      fail(part.name, *part.entry, offset + bad, "a NaN or an infinity");
    }
    if (const std::int64_t bad = find_lost_weight(rows); bad >= 0) {
      fail(part.name, *part.entry, offset + bad,
           fmt::format("a weight that is not 0, but its scale in {} is", part.scales_name));
    }
  } else if (!has_scales(part.type)) {
    if (const std::int64_t bad = find_non_finite(part.type, bytes); bad >= 0) {
      fail(part.name, *part.entry, offset / bytes_of(part.type, 1) + bad, "a NaN or an infinity");
    }
  }
}

std::span<const std::byte> PartReader::stored(const PlannedPart& part, std::int64_t offset, std::int64_t num_bytes) {
  bytes_.resize(at(num_bytes));
  arranged_weights_.read(
      part.name, matrix_of(part),
      [&](std::int64_t place, std::span<std::byte> bytes) { read_as_stored(part, place, bytes); }, offset, bytes_);
  return bytes_;
}

std::span<const float> PartReader::floats(const PlannedPart& part, std::int64_t first_row, std::int64_t num_rows) {
  const std::int64_t num_weights = num_rows * part.row_length;
  const auto bytes = stored(part, bytes_of(part.type, first_row * part.row_length), bytes_of(part.type, num_weights));
  floats_.resize(at(num_weights));
  if (part.type == SourceType::e4m3) {
    widen(Fp8Rows{bytes, first_row, part.row_length, fp8_scales(part)}, floats_);
  } else if (part.type == SourceType::e2m1) {
    const auto published = exponents(part, first_row, num_rows);
    std::vector<std::byte> unbiased(published.size());
    unbias(published, unbiased);
    widen_mxfp4(bytes, unbiased, floats_);
  } else {
    widen(part.type, bytes, std::as_writable_bytes(std::span(floats_)));
  }
  return floats_;
}

std::span<const float> PartReader::fp8_scales(const PlannedPart& part) {
  if (scales_of_ != part.name) {
    std::vector<std::byte> bytes(at(part.scales->num_bytes));
    folder_.read(*part.scales, 0, bytes);
    scales_.resize(bytes.size() / at(bytes_of(part.scales_type, 1)));
    widen(part.scales_type, bytes, std::as_writable_bytes(std::span(scales_)));
    if (const std::int64_t bad = find_bad_scale(scales_); bad >= 0) {
      fail(part.scales_name, *part.scales, bad,
           fmt::format("the scale {}, which is not a number from 0 to 2^119,", scales_[at(bad)]));
    }
    scales_of_ = part.name;
  }
  return scales_;
}

std::span<const std::byte> PartReader::exponents(const PlannedPart& part, std::int64_t first_row,
                                                 std::int64_t num_rows) {
  const std::int64_t row_exponents = part.row_length / mxfp4_block;
  exponents_.resize(at(num_rows * row_exponents));
  const auto read_as_stored = [&](std::int64_t offset, std::span<std::byte> bytes) {
    folder_.read(*part.scales, offset, bytes);
    if (const std::int64_t bad = find_bad_exponent(bytes); bad >= 0) {
      fail(part.scales_name, *part.scales, offset + bad,
           fmt::format("the scale {}, which is not from 0 to 252,", std::to_integer<int>(bytes[at(bad)])));
    }
  };
  arranged_exponents_.read(part.scales_name, {part.matrix_rows, row_exponents, 1, part.order}, read_as_stored,
                           first_row * row_exponents, exponents_);
  return exponents_;
}

}  // namespace metro
