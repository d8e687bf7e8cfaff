// What the test double of cuBLAS insists on, and what becomes of its failures.
#include "base/error.hpp"
#include "device_double/device_double.hpp"
#include "kernels/cuda/grouped_gemm.hpp"
#include "kernels/grouped_experts.hpp"
#include "kernels/mirror.hpp"
#include "kernels/queue.hpp"
#include "support/child_process.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>

using metro::ExitCode;
using metro::Mirror;
using metro::cuda::Cublas;
using metro::cuda::GroupedProducts;
using metro::cuda::GroupShape;
using metro::test::end_of_child;
using metro::test::expect_error;
namespace cuda_double = metro::device_double;

namespace {

constexpr std::uint16_t one = 0x3f80;
constexpr std::uint16_t two = 0x4000;

Mirror<std::uint16_t> words(std::int64_t size, std::uint16_t word) {
  Mirror<std::uint16_t> mirror("words", size);
  for (std::uint16_t& value : mirror.span()) {
    value = word;
  }
  mirror.to_kernels(size);
  return mirror;
}

// C of one product of ones and twos; what is wrong with it shows when it is waited for.
void multiply(const GroupShape& shape, const void* a, const void* b, void* c) {
  const Cublas cublas;
  GroupedProducts products(1, 1);
  products.begin_group(shape);
  products.add(a, b, c);
  products.enqueue(cublas);
  metro::wait_for_kernels();
}

}  // namespace

TEST_CASE("a grouped product computes matrices of their leading dimensions and leaves the rest alone") {
  const Mirror<std::uint16_t> a = words(64, one);  // 2 x 3 in columns of 8
  const Mirror<std::uint16_t> b = words(64, two);  // 3 x 2 in columns of 8
  const Mirror<std::uint16_t> c = words(64, one);  // 2 x 2 in columns of 16
  constexpr std::uint16_t six = 0x40c0;

  multiply({2, 2, 3, 8, 8, 16}, a.kernels(), b.kernels(), c.kernels());
  c.to_host(c.size());
  metro::wait_for_kernels();

  for (std::int64_t i = 0; i < c.size(); ++i) {
    CHECK(c[i] == (i % 16 < 2 && i < 32 ? six : one));
  }
}

TEST_CASE("a grouped product runs when the queue gets there, and no earlier") {
  const Cublas cublas;
  const Mirror<std::uint16_t> a = words(64, one);
  const Mirror<std::uint16_t> c = words(64, one);
  GroupedProducts products(1, 1);
  products.begin_group({1, 1, 1, 8, 8, 8});
  products.add(a.kernels(), a.kernels(), c.kernels());
  metro::wait_for_kernels();
  const std::int64_t launches = metro::num_launches();

  products.enqueue(cublas);
  const std::int64_t queued = cuda_double::num_queued();
  metro::wait_for_kernels();

  CHECK(queued == 4);  // three copies of pointers, and the product
  CHECK(metro::num_launches() - launches == 4);
}

TEST_CASE("an empty list of products is not enqueued") {
  const Cublas cublas;
  GroupedProducts products(1, 1);
  metro::wait_for_kernels();

  products.enqueue(cublas);

  CHECK(cuda_double::num_queued() == 0);
}

TEST_CASE("sizes that do not fit together are refused with what cuBLAS says") {
  const Mirror<std::uint16_t> matrix = words(64, one);
  const GroupShape shape = GENERATE(GroupShape{9, 1, 1, 8, 8, 16}, GroupShape{1, 1, 9, 8, 8, 8},
                                    GroupShape{8, 1, 1, 8, 8, 7}, GroupShape{0, 1, 1, 8, 8, 8});

  expect_error(ExitCode::machine,
               {"cublasGemmGroupedBatchedEx failed: an unsupported value or parameter was passed to the function "
                "(CUBLAS_STATUS_INVALID_VALUE, 7); kernels.reproducible = \"on\" does without cuBLAS"},
               [&] { multiply(shape, matrix.kernels(), matrix.kernels(), matrix.kernels()); });
}

TEST_CASE("a group without products is refused") {
  const Cublas cublas;
  const Mirror<std::uint16_t> matrix = words(64, one);
  GroupedProducts products(2, 1);
  products.begin_group({1, 1, 1, 8, 8, 8});
  products.begin_group({1, 1, 1, 8, 8, 8});
  products.add(matrix.kernels(), matrix.kernels(), matrix.kernels());

  expect_error(ExitCode::machine, {"CUBLAS_STATUS_INVALID_VALUE"}, [&] { products.enqueue(cublas); });
}

TEST_CASE("a matrix of a grouped product in memory of the host, or not aligned, fails the device") {
  // A device that has failed stays so: each in a process of its own, which ends with the code of the error.
  const auto product_with = [](std::int64_t offset, bool on_host) {
    return end_of_child([=] {
      try {
        const Mirror<std::uint16_t> matrix = words(64, one);
        multiply({1, 1, 1, 8, 8, 8}, on_host ? matrix.host() : matrix.kernels() + offset, matrix.kernels(),
                 matrix.kernels());
      } catch (const metro::Error& error) {
        ::_exit(static_cast<int>(error.exit_code()));
      }
    });
  };
  const int failed = static_cast<int>(ExitCode::machine);

  const auto on_host = product_with(0, true);
  const auto not_aligned = product_with(4, false);
  const auto fine = product_with(8, false);

  CHECK(WEXITSTATUS(on_host.status) == failed);
  CHECK_THAT(on_host.errors, Catch::Contains("A of a grouped product is not memory of the device"));
  CHECK(WEXITSTATUS(not_aligned.status) == failed);
  CHECK_THAT(not_aligned.errors, Catch::Contains("A of a grouped product is not aligned to 16 bytes"));
  CHECK(fine.status == 0);
}

TEST_CASE("cuBLAS that does not start is an error with its text, and takes no memory with it") {
  metro::wait_for_kernels();
  const std::string function = GENERATE("cublasCreate", "cublasSetStream", "cublasSetWorkspace");
  cuda_double::reset();
  cuda_double::fail_call(function, cudaErrorMemoryAllocation);
  const std::int64_t room = metro::kernel_memory_room().value();

  expect_error(ExitCode::machine,
               {(function + " failed: the resource allocation failed (CUBLAS_STATUS_ALLOC_FAILED, 3)").c_str()},
               [] { metro::GroupedExperts(8, 8, 1); });

  CHECK(metro::kernel_memory_room().value() == room);
  CHECK(cuda_double::num_calls("cublasDestroy") == (function == "cublasCreate" ? 0 : 1));
  cuda_double::reset();
}
