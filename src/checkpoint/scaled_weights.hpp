// Weights with a scale per block, as they are published and stored: fp8 (e4m3) and mxfp4 (e2m1). What their scales
// look like, which bytes are none, and the numbers they stand for: weight * scale, rounded once to fp32.
#pragma once

#include "base/stored_type.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// The scales beside a dataset. `shape` is that of the weights, [out, in] or [E, out, in]; part_rows: rows of each of
// the matrices that are stacked in it, every one of which has blocks of its own.
//   int8   f32 [.., out]
//   fp8    f32 [.., matrices * ceil(part_rows / 128), ceil(in / 128)]
//   mxfp4  int8 [.., out, in / 32], the exponents of two
std::vector<std::int64_t> scale_shape(StoredType type, const std::vector<std::int64_t>& shape, std::int64_t part_rows);
StoredType scale_type(StoredType type);

// The first version of the checkpoint format whose files may have such weights.
std::int64_t version_with(StoredType type);

// Extents of a dataset in the file: two mxfp4 weights are one element there.
std::vector<std::int64_t> extents_in_file(StoredType type, std::vector<std::int64_t> shape);

// 448 times this, the largest e4m3, is still a finite bf16.
inline constexpr float largest_fp8_scale = 0x1p119F;
// Index of the first that is not a number from 0 to largest_fp8_scale, or -1.
std::int64_t find_bad_scale(std::span<const float> scales);

// Rows first_row and on of an fp8 matrix, row_length codes each, and the scales of the whole matrix,
// [.., ceil(row_length / 128)].
struct Fp8Rows {
  std::span<const std::byte> codes;
  std::int64_t first_row;
  std::int64_t row_length;
  std::span<const float> scales;

  std::int64_t scale_idx(std::int64_t code_idx) const;
};
// Index in `codes` of the first that is a NaN (0x7f, 0xff), or -1.
std::int64_t find_nan(const Fp8Rows& rows);
// Index in `codes` of the first that is not 0 in spite of a scale 0, or -1.
std::int64_t find_lost_weight(const Fp8Rows& rows);
// weights: as many as codes.
void widen(const Fp8Rows& rows, std::span<float> weights);

// Published scales of mxfp4 are exponents plus 127 (e8m0). Index of the first that is NaN (0xff) or with which the
// weight 6 would not be finite, or -1.
std::int64_t find_bad_exponent(std::span<const std::byte> published);
// The int8 exponents they stand for.
void unbias(std::span<const std::byte> published, std::span<std::byte> exponents);
// Of whole blocks of 32 weights, 16 bytes each: one exponent per block. weights: twice as many as bytes.
void widen_mxfp4(std::span<const std::byte> pairs, std::span<const std::byte> exponents, std::span<float> weights);

}  // namespace metro
