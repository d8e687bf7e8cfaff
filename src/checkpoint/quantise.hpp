// Rows of weights as int8 with one scale each. The same bytes on every machine: single operations of IEEE 754 single
// precision, rounded to nearest even, and no sums.
#pragma once

#include <cstdint>
#include <span>

namespace metro {

// Of each row of rows [num_rows, row_length], all of them finite numbers:
//   scale = max |w| / 127,  q = w / scale, then to the nearest integer (ties to the even one), then into -127..127
// scales [num_rows], quantised [num_rows, row_length]. A row whose scale is 0 (all weights 0, or so small that the
// scale underflows) has q = 0. Hence |w - q * scale| <= (1/2 + 2^-16) * scale where max |w| is at least 2^-119.
void quantise_rows(std::span<const float> rows, std::span<float> scales, std::span<std::int8_t> quantised);

}  // namespace metro
