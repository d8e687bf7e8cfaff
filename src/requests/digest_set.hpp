// Which texts were there before, by their 64-bit digests: at most 16 bytes a text, whatever its length. Two different
// texts are taken for the same with probability 2^-64 each; among a million texts that happens once in 37 million runs.
#pragma once

#include "base/digest.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace metro {

class DigestSet {
 public:
  // False if it was there already.
  bool insert(Digest digest);
  std::int64_t size() const;
  std::int64_t memory_bytes() const;  // of the tables

 private:
  // An open hash table, full to three quarters at most. 0 marks a free slot; the digest 0 has a flag of its own.
  struct Table {
    std::vector<Digest> slots;
    std::size_t num_used = 0;
    bool insert(Digest digest);
    void grow();
  };

  // Many small tables by the highest bits: while one grows, only it is there twice.
  std::array<Table, 64> tables_;
  bool has_zero_ = false;
};

}  // namespace metro
