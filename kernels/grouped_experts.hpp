// The expert FFN of a prefill step by the grouped matrix product of the device's vendor (cuBLAS), which uses tensor
// cores: activations are rounded to bf16 on their way, and the order of sums is the library's. Its results are close to
// those of expert_ffn() and not equal to them; they may depend on which rows are computed together
// (docs/gpu_kernels.md).
#pragma once

#include "kernels/experts.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace metro {

class GroupedExperts {
 public:
  // Whether kernels run on a device that has such a product. If not, making one is a Bug.
  static bool is_supported();

  // Why experts of this kind (their data may be missing) cannot be computed so; empty: they can.
  static std::string why_not(const ExpertWeights& shape);

  // most_experts: that have rows at a time. Throws Error(machine) with what the library says if it does not start.
  GroupedExperts(std::int64_t hidden_size, std::int64_t intermediate_size, std::int64_t most_experts);
  ~GroupedExperts();
  GroupedExperts(GroupedExperts&&) noexcept;
  GroupedExperts& operator=(GroupedExperts&&) noexcept;

  // In queue order, like a kernel: y = down(silu(gate(x)) * up(x)) for each item of `work`, of bf16 weights [F, H] and
  // [H, F]. x [num_rows_total, H], overwritten; hidden [num_rows_total, F] scratch; y [num_rows_total, H]; memory of
  // kernels, aligned to 16 bytes. Rounded to bf16: x, gate(x), up(x), their product, y. Allocates nothing. Not again
  // before wait_for_kernels(). Throws Error(machine) with what the library says if it refuses.
  void run(std::span<const ExpertWork> work, float* x, float* hidden, float* y);

  // Memory of kernels. What the library itself takes when it starts is not known to it.
  std::int64_t num_bytes() const;
  static std::int64_t planned_bytes(std::int64_t hidden_size, std::int64_t intermediate_size,
                                    std::int64_t most_experts);

 private:
  struct Native;
  std::unique_ptr<Native> native_;
};

}  // namespace metro
