#include "transport/mpi_roll_call.hpp"

#include "base/seconds_since.hpp"
#include "transport/mpi_check.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

namespace metro {

namespace {

constexpr int tag = 0;
constexpr std::int64_t most_listeners = 4;
constexpr double listen_s = 0.5;    // until the lowest listener speaks: others look every 0.05 s
constexpr double fallback_s = 0.7;  // until another rank speaks, since no listener answers
constexpr double turn_s = 0.05;     // between such ranks
constexpr double leave_s = 1.0;     // until the others go: whoever speaks has ended the job before

}  // namespace

MpiRollCall::MpiRollCall(MPI_Comm comm, std::int64_t rank, const Peers& peers)
    : comm_(comm), rank_(rank), peers_(&peers) {
  const std::int64_t size = peers.size();
  const std::int64_t num_listeners = std::min(size, most_listeners);
  for (std::int64_t i = 0; i < num_listeners; ++i) {
    listeners_.push_back(i * size / num_listeners);
  }
  has_reported_.resize(static_cast<std::size_t>(size));
}

bool MpiRollCall::is_called() const {
  int is_there = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &is_there, MPI_STATUS_IGNORE), "MPI_Iprobe");
  return is_there != 0;
}

bool MpiRollCall::is_listener(std::int64_t rank) const {
  return std::ranges::binary_search(listeners_, rank);
}

void MpiRollCall::report_to(std::int64_t rank, const Report& own) {
  if (rank != rank_) {
    check_mpi(MPI_Isend(&own, static_cast<int>(sizeof own), MPI_BYTE, static_cast<int>(rank), tag, comm_,
                        &sends_.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
  }
}

void MpiRollCall::receive_reports(const Report& own) {
  while (is_called()) {
    Report report;
    check_mpi(
        MPI_Recv(&report, static_cast<int>(sizeof report), MPI_BYTE, MPI_ANY_SOURCE, tag, comm_, MPI_STATUS_IGNORE),
        "MPI_Recv");
    const auto source = static_cast<std::size_t>(report.rank);
    if (!has_reported_.at(source) && report.rank != own.rank) {
      has_reported_[source] = true;
      reports_.push_back(report);
    }
  }
}

std::string MpiRollCall::hold(Report own, const std::string& why) {
  const std::int64_t size = peers_->size();
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  const bool listens = is_listener(rank_);
  own.may_speak = own.may_speak && listens;
  reports_.push_back(own);
  const auto begin = std::chrono::steady_clock::now();
  for (const std::int64_t rank : listens ? all : listeners_) {
    report_to(rank, own);
  }

  // Everybody hears of the listeners that answer, so each rank knows whether it is the one to speak.
  const double own_turn_s =
      own.may_speak ? listen_s : fallback_s + turn_s * static_cast<double>(std::min<std::int64_t>(rank_, 5));
  const auto has_all = [&] { return own.may_speak && std::ssize(reports_) == size; };
  for (; seconds_since(begin) < own_turn_s && !has_all(); std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    receive_reports(own);
  }
  const bool another_speaks = std::ranges::any_of(reports_, [&](const Report& report) {
    return report.may_speak && report.rank != rank_ && (!own.may_speak || report.rank < rank_);
  });
  if (!another_speaks) {
    return roll_call_text(reports_, listens ? all : listeners_, *peers_, why);
  }
  for (; seconds_since(begin) < leave_s; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    receive_reports(own);  // also moves on what this rank sends
  }
  return "";
}

}  // namespace metro
