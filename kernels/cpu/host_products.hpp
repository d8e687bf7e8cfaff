// linear(), linear_of_heads() and expert_ffn() on a CPU. Arguments are those of kernels/linear.hpp,
// kernels/head_linear.hpp and kernels/experts.hpp, checked there.
#pragma once

#include "kernels/experts.hpp"
#include "kernels/head_linear.hpp"
#include "kernels/packed_matrix.hpp"

#include <cstdint>
#include <span>

namespace metro::cpu {

void linear(const float* x, std::int64_t num_rows, const PackedMatrix& w, float* y);

void linear_of_heads(const HeadInputs& x, std::int64_t num_rows, const HeadMatrices& w, float* y);

// `work` is not empty.
void expert_ffn(std::span<const ExpertWork> work, const float* x, float* hidden, float* y);

}  // namespace metro::cpu
