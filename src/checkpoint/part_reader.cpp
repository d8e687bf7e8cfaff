#include "checkpoint/part_reader.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "checkpoint/scaled_weights.hpp"

#include <fmt/format.h>

namespace metro {

void PartReader::fail(const std::string& tensor, const SafetensorsEntry& entry, std::int64_t element,
                      const std::string& complaint) const {
  throw Error(ExitCode::checkpoint,
              fmt::format("{}: tensor {} has {} at element {}", folder_.path_of(entry), tensor, complaint, element));
}

std::span<const std::byte> PartReader::stored(const PlannedPart& part, std::int64_t offset, std::int64_t num_bytes) {
  bytes_.resize(at(num_bytes));
  folder_.read(*part.entry, offset, bytes_);
  if (part.type == SourceType::e4m3) {
    METRO_REQUIRE(offset % part.row_length == 0, part.name);
    const Fp8Rows rows{bytes_, offset / part.row_length, part.row_length, fp8_scales(part)};
    if (const std::int64_t bad = find_nan(rows); bad >= 0) {
      fail(part.name, *part.entry, offset + bad, "a NaN or an infinity");
    }
    if (const std::int64_t bad = find_lost_weight(rows); bad >= 0) {
      fail(part.name, *part.entry, offset + bad,
           fmt::format("a weight that is not 0, but its scale in {} is", part.scales_name));
    }
  } else if (!has_scales(part.type)) {
    if (const std::int64_t bad = find_non_finite(part.type, bytes_); bad >= 0) {
      fail(part.name, *part.entry, offset / bytes_of(part.type, 1) + bad, "a NaN or an infinity");
    }
  }
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
  folder_.read(*part.scales, first_row * row_exponents, exponents_);
  if (const std::int64_t bad = find_bad_exponent(exponents_); bad >= 0) {
    fail(part.scales_name, *part.scales, first_row * row_exponents + bad,
         fmt::format("the scale {}, which is not from 0 to 252,", std::to_integer<int>(exponents_[at(bad)])));
  }
  return exponents_;
}

}  // namespace metro
