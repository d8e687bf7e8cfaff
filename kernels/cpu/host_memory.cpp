// Allocation where kernels use the memory of the host.
#include "kernels/buffer.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"

#include <cstdint>
#include <cstring>
#include <exception>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace metro {

namespace {

// Large host buffers live in huge pages where the system has them: weights are streamed, and page walks cost bandwidth.
void advise_huge_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] std::int64_t num_bytes) {
#ifdef __linux__
  constexpr std::int64_t huge_page = std::int64_t{1} << 21;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto skipped =
      static_cast<std::int64_t>((huge_page - static_cast<std::int64_t>(address % huge_page)) % huge_page);
  const std::int64_t whole_pages = (num_bytes - skipped) / huge_page;
  if (whole_pages > 0) {
    // Advice only: a kernel without huge pages refuses it and nothing else changes.
    static_cast<void>(::madvise(data + skipped, static_cast<std::size_t>(whole_pages * huge_page), MADV_HUGEPAGE));
  }
#endif
}

void fill_with_zeros(std::byte* data, std::int64_t num_bytes) {
  constexpr std::int64_t piece = std::int64_t{1} << 20;
  portable::for_each_item(
      "zero_buffer", (num_bytes + piece - 1) / piece, KOKKOS_LAMBDA(std::int64_t i) {
        const std::int64_t left = num_bytes - i * piece;
        memset(data + i * piece, 0, static_cast<std::size_t>(left < piece ? left : piece));
      });
}

}  // namespace

RawBuffer::RawBuffer(const std::string& label, std::int64_t num_bytes, FirstContent content) : num_bytes_(num_bytes) {
  METRO_REQUIRE(num_bytes >= 0, label + ": " + std::to_string(num_bytes) + " bytes");
  METRO_REQUIRE(Kokkos::is_initialized(), label);
  if (num_bytes == 0) {
    return;
  }
  std::string reason = "out of memory";
  try {
    data_ =
        static_cast<std::byte*>(Kokkos::kokkos_malloc<portable::Memory>(label, static_cast<std::size_t>(num_bytes)));
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (data_ == nullptr) {
    throw Error(ExitCode::machine,
                "cannot allocate " + std::to_string(num_bytes) + " bytes for " + label + ": " + reason);
  }
  advise_huge_pages(data_, num_bytes);
  if (content == FirstContent::zeros) {
    fill_with_zeros(data_, num_bytes);
  }
}

RawBuffer::~RawBuffer() {
  if (data_ != nullptr) {
    Kokkos::kokkos_free<portable::Memory>(data_);
  }
}

PinnedBuffer::PinnedBuffer(const std::string& label, std::int64_t num_bytes) {
  METRO_REQUIRE(false, label + ": " + std::to_string(num_bytes) + " bytes beside the memory of the host");
}

PinnedBuffer::~PinnedBuffer() = default;

void copy_bytes_from_host(std::byte* to, const std::byte* from_host, std::int64_t num_bytes) {
  if (num_bytes > 0) {
    std::memcpy(to, from_host, static_cast<std::size_t>(num_bytes));
  }
}

void copy_bytes_to_host(std::byte* to_host, const std::byte* from, std::int64_t num_bytes) {
  copy_bytes_from_host(to_host, from, num_bytes);
}

}  // namespace metro
