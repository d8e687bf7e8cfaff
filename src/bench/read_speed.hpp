// How fast memory can be read here: the limit that benchmarks hold their results against.
#pragma once

#include "kernels/buffer.hpp"
#include "kernels/memory_speed.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace metro {

double seconds_of(const std::function<void()>& run);  // until the kernels that it launches are done
double median_of(std::vector<double> values);         // not empty
double least_of(const std::vector<double>& values);   // not empty

// Reads stretches of given memory of kernels: by their threads on a host, by a kernel on a device.
class ReadSpeed {
 public:
  // `memory` must outlive it.
  explicit ReadSpeed(std::span<const std::uint64_t> memory);

  // Tries the ways of reading and keeps the fastest: the limit is what memory gives, not what one loop gets out of it.
  // To be called again when the number of threads changes. On a device there is one way.
  void choose_order();
  const ReadingOrder& order() const { return order_; }

  // Seconds for num_bytes from first_byte on.
  double seconds(std::int64_t first_byte, std::int64_t num_bytes) { return read(first_byte, num_bytes, order_); }

 private:
  double read(std::int64_t first_byte, std::int64_t num_bytes, const ReadingOrder& order);

  std::span<const std::uint64_t> memory_;
  ReadingOrder order_;
  Buffer<std::uint64_t> sums_;           // on a device
  volatile std::uint64_t checksum_ = 0;  // or a compiler would not read at all
};

std::string description_of(const ReadingOrder& order);  // "in 4 streams, without prefetch"

}  // namespace metro
