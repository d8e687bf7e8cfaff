// By which way memory of kernels gets to other ranks: each wish against what there is.
#include "transport/exchange_way.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

using metro::choose_exchange_way;
using metro::ExchangeFacts;
using metro::ExchangeWay;
using metro::ExitCode;
using metro::test::expect_error;

namespace {

constexpr ExchangeFacts cpus{.on_devices = false, .has_nccl = false, .shares_devices = false};
constexpr ExchangeFacts gpus{.on_devices = true, .has_nccl = true, .shares_devices = false};
constexpr ExchangeFacts shared_gpus{.on_devices = true, .has_nccl = true, .shares_devices = true};
constexpr ExchangeFacts gpus_without_nccl{.on_devices = true, .has_nccl = false, .shares_devices = false};

constexpr ExchangeFacts aware_gpus{.on_devices = true, .has_nccl = true, .shares_devices = false, .mpi_is_aware = true};
constexpr ExchangeFacts shared_aware_gpus{
    .on_devices = true, .has_nccl = true, .shares_devices = true, .mpi_is_aware = true};

}  // namespace

TEST_CASE("rows in the memory of the host go by the transport itself") {
  CHECK(choose_exchange_way("auto", cpus).way == ExchangeWay::host);
  CHECK(choose_exchange_way("auto", cpus).why.empty());
  CHECK(choose_exchange_way("mpi", cpus).way == ExchangeWay::host);
}

TEST_CASE("rows in the memory of devices go by NCCL unless something is in its way") {
  CHECK(choose_exchange_way("auto", gpus).way == ExchangeWay::nccl);
  CHECK(choose_exchange_way("auto", gpus).why == "auto: each rank has a GPU of its own");
  CHECK(choose_exchange_way("auto", shared_gpus).way == ExchangeWay::staged);
  CHECK(choose_exchange_way("auto", shared_gpus).why ==
        "auto: ranks share a GPU (device.share), which NCCL refuses; this MPI is not CUDA-aware");
  CHECK(choose_exchange_way("auto", gpus_without_nccl).way == ExchangeWay::staged);
  CHECK(choose_exchange_way("auto", gpus_without_nccl).why ==
        "auto: this metro was built without NCCL; this MPI is not CUDA-aware");
}

TEST_CASE("rows in the memory of devices go by MPI from there where it is CUDA-aware") {
  CHECK(choose_exchange_way("mpi", aware_gpus).way == ExchangeWay::aware);
  CHECK(choose_exchange_way("mpi", aware_gpus).why == "this MPI is CUDA-aware");
  CHECK(choose_exchange_way("auto", shared_aware_gpus).way == ExchangeWay::aware);
  CHECK(choose_exchange_way("auto", shared_aware_gpus).why ==
        "auto: ranks share a GPU (device.share), which NCCL refuses; this MPI is CUDA-aware");
  CHECK(choose_exchange_way("auto", aware_gpus).way == ExchangeWay::nccl);
}

TEST_CASE("the deck chooses between NCCL and MPI for rows in the memory of devices") {
  CHECK(choose_exchange_way("nccl", gpus).way == ExchangeWay::nccl);
  CHECK(choose_exchange_way("mpi", gpus).way == ExchangeWay::staged);
  CHECK(choose_exchange_way("mpi", gpus).why == "this MPI is not CUDA-aware");
  CHECK(choose_exchange_way("mpi", shared_gpus).way == ExchangeWay::staged);
}

TEST_CASE("NCCL that cannot be is refused with the reason and what is allowed") {
  expect_error(ExitCode::usage,
               {"exchange.transport = \"nccl\": this metro computes on CPUs", "; allowed here: \"auto\" and \"mpi\""},
               [] { choose_exchange_way("nccl", cpus); });
  expect_error(ExitCode::usage, {"exchange.transport = \"nccl\": this metro was built without NCCL"},
               [] { choose_exchange_way("nccl", gpus_without_nccl); });
  expect_error(ExitCode::usage, {"exchange.transport = \"nccl\": ranks share a GPU (device.share)"},
               [] { choose_exchange_way("nccl", shared_gpus); });
}
