// Batches of made-up router choices whose statistics are known: popularity = softmax of normal numbers, and every token
// draws distinct experts by it. Tokens are independent, unlike those of a text; real ones come from a file.
#pragma once

#include <cstdint>
#include <vector>

namespace metro {

struct SyntheticBatches {
  std::int64_t num_experts = 128;
  std::int64_t num_tokens = 64;  // of a batch
  std::int64_t top_k = 8;        // at most num_experts
  double skew = 0.7;             // standard deviation of the logarithm of an expert's popularity; 0: all equal
  std::uint64_t seed = 1;

  // Share of each expert in the choices of a router that draws with replacement, in millionths, at least 1: what a
  // placement is planned with. [num_experts]
  std::vector<std::int64_t> loads() const;
  // expert_ids [num_tokens * top_k] of batch `number`, distinct within a token.
  std::vector<std::int32_t> batch(std::int64_t number) const;

 private:
  std::vector<double> log_popularity() const;
};

}  // namespace metro
