// What kernels/queue.hpp, mirror.hpp, graph.hpp and buffer.hpp promise of a device: work runs late, memory is apart,
// failures have names.
#include "kernels/queue.hpp"
#include "device_double/device_double.hpp"
#include "kernels/graph.hpp"
#include "kernels/linear.hpp"
#include "kernels/mirror.hpp"
#include "support/child_process.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <vector>

using metro::Buffer;
using metro::ExitCode;
using metro::KernelGraph;
using metro::Mirror;
using metro::RawBuffer;
using metro::device_double::Progress;
using metro::test::end_of_child;
using metro::test::expect_error;

namespace {

// Leaves the double as other tests expect it.
class CleanDouble {
 public:
  CleanDouble() {
    metro::wait_for_kernels();
    metro::device_double::reset();
  }
  CleanDouble(const CleanDouble&) = delete;
  CleanDouble& operator=(const CleanDouble&) = delete;
  ~CleanDouble() {
    metro::device_double::reset();
    metro::set_waiting_check({});
    metro::wait_for_kernels();
  }
};

cudaStream_t stream() {
  return static_cast<cudaStream_t>(metro::native_queue());
}

void enqueue(metro::device_double::Work work) {
  REQUIRE(metro::device_double::enqueue(stream(), std::move(work)) == cudaSuccess);
}

Mirror<float> ones(std::int64_t size) {
  Mirror<float> values("values", size);
  for (float& value : values.span()) {
    value = 1.0F;
  }
  values.to_kernels(size);
  return values;
}

}  // namespace

TEST_CASE("a result is not there before the wait") {
  const CleanDouble clean;
  const Mirror<float> x = ones(3);
  metro::wait_for_kernels();

  metro::add(x.kernels(), 3, x.kernels());
  x.to_host(3);

  CHECK(metro::device_double::num_queued() == 2);
  CHECK(x[0] == 1.0F);
  metro::wait_for_kernels();
  CHECK(metro::device_double::num_queued() == 0);
  CHECK(x[0] == 2.0F);
}

TEST_CASE("a copy to kernels takes what is in the host's part when the queue gets there") {
  const CleanDouble clean;
  const Mirror<float> x = ones(1);

  x[0] = 5.0F;  // too early: the copy has not run
  metro::wait_for_kernels();
  x.to_host(1);
  metro::wait_for_kernels();

  CHECK(x[0] == 5.0F);
}

TEST_CASE("host code that reads or writes device memory dies") {
  const CleanDouble clean;
  const Mirror<float> x = ones(1);
  metro::wait_for_kernels();

  const auto reads = end_of_child([&] {
    std::signal(SIGSEGV, SIG_DFL);
    const volatile float value = *x.kernels();
    static_cast<void>(value);
  });
  const auto writes = end_of_child([&] {
    std::signal(SIGSEGV, SIG_DFL);
    *x.kernels() = 1.0F;
  });
  const auto stays_on_its_side = end_of_child([&] { x.host()[0] = 2.0F; });

  CHECK(WIFSIGNALED(reads.status));
  CHECK(WTERMSIG(reads.status) == SIGSEGV);
  CHECK(WIFSIGNALED(writes.status));
  CHECK(stays_on_its_side.status == 0);
}

TEST_CASE("memory whose content is unspecified is not zero on a device, other memory is") {
  const RawBuffer unspecified("weights", 64, metro::FirstContent::unspecified);
  const RawBuffer zeros("rows", 64);
  std::vector<std::byte> copied(64);

  metro::copy_bytes_to_host(copied.data(), unspecified.data(), 64);
  CHECK(copied == std::vector<std::byte>(64, std::byte{0xff}));
  metro::copy_bytes_to_host(copied.data(), zeros.data(), 64);
  CHECK(copied == std::vector<std::byte>(64, std::byte{0}));
}

TEST_CASE("copies that wait see all that was enqueued before") {
  const CleanDouble clean;
  const Mirror<float> x = ones(1);
  metro::add(x.kernels(), 1, x.kernels());
  float result = 0.0F;

  metro::copy_to_host<float>({&result, 1}, x.kernels());

  CHECK(result == 2.0F);
}

TEST_CASE("the check of waiting is called again and again and at the end, and what it throws ends the wait") {
  const CleanDouble clean;
  int num_polls = 0, num_checks = 0, num_ends = 0;
  enqueue([&] { return ++num_polls < 5 ? Progress::not_yet : Progress::done; });
  metro::set_waiting_check([&](bool is_over) { ++(is_over ? num_ends : num_checks); });

  metro::wait_for_kernels();

  CHECK(num_checks == 4);
  CHECK(num_ends == 1);
  enqueue([] { return Progress::not_yet; });
  metro::set_waiting_check([](bool) { throw metro::Error(ExitCode::machine, "rank 3 does not answer"); });
  expect_error(ExitCode::machine, {"rank 3 does not answer"}, [] { metro::wait_for_kernels(); });
  metro::device_double::fail_item(cudaErrorUnknown);  // or the queue would never end
  metro::set_waiting_check({});
  CHECK_THROWS_AS(metro::wait_for_kernels(), metro::Error);
}

TEST_CASE("what is found when everything has run ends the wait as well") {
  const CleanDouble clean;
  const Mirror<float> x = ones(1);
  metro::wait_for_kernels();
  metro::set_waiting_check([](bool is_over) {
    if (is_over) {
      throw metro::Error(ExitCode::machine, "an exchange has failed");
    }
  });
  metro::add(x.kernels(), 1, x.kernels());

  expect_error(ExitCode::machine, {"an exchange has failed"}, [] { metro::wait_for_kernels(); });

  CHECK(metro::device_double::num_queued() == 0);
  metro::set_waiting_check({});
}

TEST_CASE("a failure in the queue is an error of the machine with the device's text, now and later") {
  const CleanDouble clean;
  const Mirror<float> x = ones(1);
  metro::wait_for_kernels();
  metro::device_double::fail_item(cudaErrorIllegalAddress, 2);

  metro::add(x.kernels(), 1, x.kernels());
  x.to_host(1);

  for (int i = 0; i < 2; ++i) {
    expect_error(ExitCode::machine,
                 {"work of the device failed", "illegal memory access", "cudaErrorIllegalAddress, 700"},
                 [] { metro::wait_for_kernels(); });
  }
  expect_error(ExitCode::machine, {"launch of add failed", "illegal memory access"},
               [&] { metro::add(x.kernels(), 1, x.kernels()); });
}

TEST_CASE("a call that the device refuses is an error of the machine that names it") {
  const CleanDouble clean;
  const Mirror<float> x = ones(1);
  metro::device_double::fail_call("cudaMemcpyAsync", cudaErrorInitializationError);

  expect_error(ExitCode::machine, {"cudaMemcpyAsync failed", "initialization error", "cudaErrorInitializationError, 3"},
               [&] { x.to_host(1); });
  x.to_host(1);  // later ones are not refused
}

TEST_CASE("memory that there is not names label, size and kind, and leaves the device usable") {
  const CleanDouble clean;

  expect_error(ExitCode::machine,
               {"cannot allocate 1125899906842624 bytes of device memory for KV cache", "out of memory"},
               [] { const RawBuffer buffer("KV cache", std::int64_t{1} << 50); });
  metro::device_double::fail_call("cudaMallocHost", cudaErrorMemoryAllocation);
  expect_error(ExitCode::machine, {"cannot allocate 40 bytes of pinned memory of the host for step inputs"},
               [] { const Mirror<float> mirror("step inputs", 10); });
  const Mirror<float> x = ones(1);
  metro::wait_for_kernels();
}

TEST_CASE("memory of a device comes back when a buffer ends, and not before the queue has used it") {
  const CleanDouble clean;
  std::size_t free_before = 0, free_inside = 0, free_after = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free_before, &total) == cudaSuccess);
  {
    const Buffer<float> buffer("rows", 256);
    REQUIRE(cudaMemGetInfo(&free_inside, &total) == cudaSuccess);
    metro::add(buffer.data(), 256, buffer.data());
  }
  REQUIRE(cudaMemGetInfo(&free_after, &total) == cudaSuccess);

  CHECK(free_before - free_inside == 1024);
  CHECK(free_after == free_before);
  CHECK(metro::device_double::num_queued() == 0);
  metro::wait_for_kernels();
}

TEST_CASE("a mirror may end while its copies are in the queue") {
  const CleanDouble clean;
  const Mirror<float> sum = ones(1);
  {
    const Mirror<float> x = ones(1);
    metro::add(x.kernels(), 1, sum.kernels());
    x.to_host(1);
  }
  sum.to_host(1);

  metro::wait_for_kernels();

  CHECK(sum[0] == 2.0F);
}

TEST_CASE("copies in the queue take no memory of the host that is not pinned") {
  const CleanDouble clean;
  const Mirror<float> x = ones(1);
  float pageable = 0.0F;

  expect_error(ExitCode::machine, {"cudaMemcpyAsync failed", "invalid argument"},
               [&] { metro::queue_copy_to_host(&pageable, x.kernels(), 4); });
  expect_error(ExitCode::machine, {"cudaMemcpyAsync failed"},
               [&] { metro::queue_copy_to_kernels(x.kernels(), &pageable, 4); });
  expect_error(ExitCode::machine, {"cudaMemcpyAsync failed"}, [&] { metro::queue_copy(x.kernels(), x.host(), 4); });
}

TEST_CASE("waiting, allocating and copies that wait end a recording with an error, and the queue goes on") {
  const CleanDouble clean;
  const Mirror<float> x = ones(1);
  metro::wait_for_kernels();
  float result = 0.0F;
  KernelGraph graph;
  const std::vector<std::function<void()>> forbidden = {[] { metro::wait_for_kernels(); },
                                                        [] { const Buffer<float> buffer("rows", 1); },
                                                        [&] {
                                                          metro::copy_to_host<float>({&result, 1}, x.kernels());
                                                        }};

  for (const auto& work : forbidden) {
    const std::int64_t before = metro::num_launches();
    expect_error(ExitCode::machine, {"operation not permitted when stream is capturing"}, [&] {
      graph.record([&] {
        metro::add(x.kernels(), 1, x.kernels());
        work();
      });
    });
    CHECK(!graph.is_recorded());
    CHECK(metro::num_launches() == before);
  }

  metro::add(x.kernels(), 1, x.kernels());
  x.to_host(1);
  metro::wait_for_kernels();
  CHECK(x[0] == 2.0F);
}

TEST_CASE("an error while recording is passed on, and one that nobody passed on is found at the end") {
  const CleanDouble clean;
  KernelGraph graph;

  expect_error(ExitCode::machine, {"rank 2 is gone"},
               [&] { graph.record([] { throw metro::Error(ExitCode::machine, "rank 2 is gone"); }); });
  expect_error(ExitCode::machine, {"recording of kernels", "failed due to a previous error during capture"},
               [&] { graph.record([] { static_cast<void>(cudaDeviceSynchronize()); }); });
  for (const char* call : {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"}) {
    metro::device_double::fail_call(call, cudaErrorMemoryAllocation);
    expect_error(ExitCode::machine, {call, "out of memory"}, [&] { graph.record([] {}); });
    metro::device_double::reset();
    cudaGraph_t left = nullptr;  // where the end itself was refused the capture is still there
    if (cudaStreamEndCapture(stream(), &left) == cudaSuccess) {
      REQUIRE(cudaGraphDestroy(left) == cudaSuccess);
    }
  }
  graph.record([] {});
  metro::device_double::fail_call("cudaGraphLaunch", cudaErrorLaunchFailure);
  expect_error(ExitCode::machine, {"cudaGraphLaunch failed", "unspecified launch failure"}, [&] { graph.launch(); });
}
