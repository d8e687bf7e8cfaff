#include "checkpoint/scaled_weights.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "checkpoint/layout.hpp"

#include <algorithm>
#include <array>

namespace metro {

namespace {

constexpr std::uint32_t published_bias = 127;

constexpr std::array<float, 256> values_of_codes() {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = widen_e4m3(static_cast<std::uint8_t>(code));
  }
  return values;
}

constexpr bool is_nan(std::byte code) {
  return (code & std::byte{0x7f}) == std::byte{0x7f};
}

template <class Range, class IsBad>
std::int64_t find_first(const Range& range, const IsBad& is_bad) {
  const auto found = std::find_if(range.begin(), range.end(), is_bad);
  return found == range.end() ? -1 : found - range.begin();
}

}  // namespace

std::vector<std::int64_t> scale_shape(StoredType type, const std::vector<std::int64_t>& shape, std::int64_t part_rows) {
  METRO_REQUIRE(has_scales(type) && shape.size() >= 2 && part_rows > 0, name_of(type));
  std::vector<std::int64_t> result(shape.begin(), shape.end() - 1);
  if (type == StoredType::fp8) {
    METRO_REQUIRE(result.back() % part_rows == 0, "a matrix is stacked of whole parts");
    result.back() = result.back() / part_rows * ceil_div(part_rows, fp8_block);
    result.push_back(ceil_div(shape.back(), fp8_block));
  } else if (type == StoredType::mxfp4) {
    METRO_REQUIRE(shape.back() % mxfp4_block == 0, "rows of whole blocks");
    result.push_back(shape.back() / mxfp4_block);
  }
  return result;
}

StoredType scale_type(StoredType type) {
  return type == StoredType::mxfp4 ? StoredType::int8 : StoredType::f32;
}

std::int64_t version_with(StoredType type) {
  METRO_REQUIRE(has_scales(type), name_of(type));
  return type == StoredType::int8 ? layout::int8_version : layout::block_scale_version;
}

std::vector<std::int64_t> extents_in_file(StoredType type, std::vector<std::int64_t> shape) {
  if (type == StoredType::mxfp4) {
    shape.back() /= 2;
  }
  return shape;
}

std::int64_t find_bad_scale(std::span<const float> scales) {
  return find_first(scales, [](float scale) { return !(scale >= 0.0F && scale <= largest_fp8_scale); });
}

std::int64_t Fp8Rows::scale_idx(std::int64_t code_idx) const {
  const std::int64_t row = first_row + code_idx / row_length;
  return row / fp8_block * ceil_div(row_length, fp8_block) + code_idx % row_length / fp8_block;
}

std::int64_t find_nan(const Fp8Rows& rows) {
  return find_first(rows.codes, is_nan);
}

std::int64_t find_lost_weight(const Fp8Rows& rows) {
  if (std::find(rows.scales.begin(), rows.scales.end(), 0.0F) == rows.scales.end()) {
    return -1;
  }
  for (std::int64_t i = 0; i < std::ssize(rows.codes); ++i) {
    if ((rows.codes[at(i)] & std::byte{0x7f}) != std::byte{0} && rows.scales[at(rows.scale_idx(i))] == 0.0F) {
      return i;
    }
  }
  return -1;
}

void widen(const Fp8Rows& rows, std::span<float> weights) {
  METRO_REQUIRE(weights.size() == rows.codes.size(), "one weight per code");
  static constexpr auto values = values_of_codes();
  for (std::int64_t first = 0; first < std::ssize(rows.codes);) {  // a row's blocks; the last may be shorter
    const std::int64_t end = first + std::min(rows.row_length - first % rows.row_length, fp8_block);
    const float scale = rows.scales[at(rows.scale_idx(first))];
    for (; first < end; ++first) {
      weights[at(first)] = values[std::to_integer<std::size_t>(rows.codes[at(first)])] * scale;
    }
  }
}

std::int64_t find_bad_exponent(std::span<const std::byte> published) {
  return find_first(published, [](std::byte exponent) {
    return std::to_integer<std::uint32_t>(exponent) > published_bias + largest_mxfp4_exponent;
  });
}

void unbias(std::span<const std::byte> published, std::span<std::byte> exponents) {
  METRO_REQUIRE(exponents.size() == published.size(), "as many as published");
  for (std::size_t i = 0; i < published.size(); ++i) {
    exponents[i] = static_cast<std::byte>(std::to_integer<std::uint32_t>(published[i]) - published_bias);
  }
}

void widen_mxfp4(std::span<const std::byte> pairs, std::span<const std::byte> exponents, std::span<float> weights) {
  constexpr std::size_t block_bytes = mxfp4_block / 2;
  METRO_REQUIRE(pairs.size() == block_bytes * exponents.size() && weights.size() == 2 * pairs.size(),
                "32 weights per exponent, two per byte");
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const float scale = power_of_two(static_cast<std::int8_t>(exponents[i / block_bytes]));
    const auto pair = std::to_integer<std::uint32_t>(pairs[i]);
    weights[2 * i] = widen_e2m1(pair & 0xfU) * scale;
    weights[2 * i + 1] = widen_e2m1(pair >> 4) * scale;
  }
}

}  // namespace metro
