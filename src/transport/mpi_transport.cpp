#include "transport/mpi_transport.hpp"

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/integers.hpp"
#include "base/last_words.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/mpi_check.hpp"
#include "transport/preconditions.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace metro {

namespace {

// Calls take(piece) for data in pieces of at most piece_size elements.
template <class T, class F>
void for_each_piece(std::span<T> data, std::int64_t piece_size, const F& take) {
  const auto step = static_cast<std::size_t>(piece_size);
  for (std::size_t offset = 0; offset < data.size(); offset += step) {
    take(data.subspan(offset, std::min(step, data.size() - offset)));
  }
}

template <class T>
int count_of(std::span<T> data) {
  return static_cast<int>(data.size());
}

}  // namespace

MpiTransport::MpiTransport(double timeout_s, std::int64_t piece_bytes, std::int64_t ranks_per_node)
    : timeout_s_(timeout_s),
      piece_bytes_(piece_bytes),
      ranks_per_node_(ranks_per_node),
      exceptions_at_start_(std::uncaught_exceptions()) {
  METRO_REQUIRE(timeout_s > 0.0, std::to_string(timeout_s));
  METRO_REQUIRE(piece_bytes > 0 && piece_bytes <= default_piece_bytes, std::to_string(piece_bytes));
  set_up();
  counts_.resize(static_cast<std::size_t>(size_));
  displacements_.resize(static_cast<std::size_t>(size_));
  set_up_flags();
  bytes_sent_ = 0;  // that was nothing of a caller's
}

MpiTransport::~MpiTransport() {
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    static_cast<void>(flags_.release());  // until the process ends: whoever reports the exception sets its flag
    return;
  }
  if (flags_ != nullptr && said_flag() == flags_->bytes().data() + rank_) {
    set_said_flag(nullptr);
  }
  try {
    barrier();  // whoever is missing is named
    const Deadline deadline("MPI_Comm_free", timeout_s_);
    check_mpi(MPI_Comm_free(&roll_call_comm_), "MPI_Comm_free");
    check_mpi(MPI_Comm_free(&comm_), "MPI_Comm_free");
  } catch (const std::exception& failure) {
    write_last_words(failure.what());
    abort_job(static_cast<int>(ExitCode::machine));
  }
}

void MpiTransport::set_up() {
  const Deadline deadline("the set-up of communicators", timeout_s_);
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  rank_ = rank;
  size_ = size;
  for (MPI_Comm* comm : {&comm_, &roll_call_comm_}) {
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  const PeerProcess own = own_process();
  std::vector<PeerProcess> all(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&own, static_cast<int>(sizeof own), MPI_BYTE, all.data(), static_cast<int>(sizeof own),
                          MPI_BYTE, comm_),
            "MPI_Allgather");
  peers_ = std::make_unique<const Peers>(rank_, std::move(all));
  roll_call_ = std::make_unique<MpiRollCall>(roll_call_comm_, rank_, *peers_);
}

void MpiTransport::set_up_flags() {
  try {
    flags_ = allocate_node_memory(size_);
  } catch (const AgreedError&) {
    return;  // it only makes messages better
  }
  const auto flags = flags_->bytes();
  flags[static_cast<std::size_t>(rank_)] = std::byte{0};
  flags_->publish();
  set_said_flag(&flags[static_cast<std::size_t>(rank_)]);
}

void MpiTransport::all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                              std::span<const std::int64_t> recv_bytes) {
  require_all_gather_sizes(*this, send, recv, recv_bytes);
  if (recv.empty()) {
    return;  // every rank knows that
  }
  bytes_sent_ += std::ssize(send) * (size_ - 1);
  if (levels_ == Levels::two && std::ssize(recv) <= board_->num_bytes()) {
    all_gather_by_nodes(send, recv, recv_bytes);
    return;
  }
  start_gather(send, recv, recv_bytes);
  wait_all("all-gather");
}

void MpiTransport::start_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                                std::span<const std::int64_t> recv_bytes) {
  if (std::ssize(recv) <= piece_bytes_) {
    int offset = 0;
    for (std::size_t r = 0; r < counts_.size(); ++r) {
      counts_[r] = static_cast<int>(recv_bytes[r]);
      displacements_[r] = offset;
      offset += counts_[r];
    }
    check_mpi(MPI_Iallgatherv(send.data(), count_of(send), MPI_BYTE, recv.data(), counts_.data(), displacements_.data(),
                              MPI_BYTE, comm_, &new_request()),
              "MPI_Iallgatherv");
    return;
  }
  // Displacements are int as well: beyond that, every rank broadcasts its message.
  std::int64_t offset = 0;
  for (std::int64_t r = 0; r < size_; ++r) {
    const std::int64_t bytes = recv_bytes[static_cast<std::size_t>(r)];
    const auto message = recv.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
    if (r == rank_) {
      std::copy(send.begin(), send.end(), message.begin());
    }
    start_broadcast(message, r);
    offset += bytes;
  }
}

void MpiTransport::all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                              std::span<std::byte> recv, std::span<const std::int64_t> recv_bytes) {
  require_all_to_all_sizes(*this, send, send_bytes, recv, recv_bytes);
  const std::int64_t to_itself = send_bytes[at(rank_)];
  bytes_sent_ += std::ssize(send) - to_itself;
  if (levels_ == Levels::two) {
    all_to_all_by_nodes(send, send_bytes, recv, recv_bytes);
    return;
  }
  take_next_tag();
  const auto every = [](std::int64_t) { return true; };
  start_messages(send, send_bytes, recv, recv_bytes, every, every);
  wait_all("all-to-all");
}

void MpiTransport::exchange_messages(std::span<const std::span<const std::byte>> to_ranks,
                                     std::span<const std::span<std::byte>> from_ranks, const char* operation) {
  require_exchange_sizes(*this, to_ranks, from_ranks);
  take_next_tag();
  for (std::int64_t rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      start_receive(from_ranks[at(rank)], rank);
    }
  }
  for (std::int64_t rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      start_send(to_ranks[at(rank)], rank);
      bytes_sent_ += std::ssize(to_ranks[at(rank)]);
    }
  }
  wait_all(operation);
}

void MpiTransport::take_next_tag() {
  // All pieces of one exchange have one tag: MPI keeps the order of equal messages. Tags differ between exchanges so
  // that ranks which are out of step meet a time-out and not each other's rows. 32767 is the least MPI_TAG_UB.
  tag_ = tag_ == 32767 ? 0 : tag_ + 1;
}

void MpiTransport::start_messages(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                                  std::span<std::byte> recv, std::span<const std::int64_t> recv_bytes,
                                  const RankFilter& goes_to, const RankFilter& comes_from) {
  std::span<std::byte> own_recv;
  for (std::int64_t r = 0, offset = 0; r < size_; ++r) {
    const auto message = recv.subspan(at(offset), at(recv_bytes[at(r)]));
    if (r == rank_) {
      own_recv = message;
    } else if (comes_from(r)) {
      start_receive(message, r);
    }
    offset += recv_bytes[at(r)];
  }
  for (std::int64_t r = 0, offset = 0; r < size_; ++r) {
    const auto message = send.subspan(at(offset), at(send_bytes[at(r)]));
    if (r == rank_) {
      std::copy(message.begin(), message.end(), own_recv.begin());
    } else if (goes_to(r)) {
      start_send(message, r);
    }
    offset += send_bytes[at(r)];
  }
}

void MpiTransport::broadcast(std::span<std::byte> data, std::int64_t root) {
  require_rank(*this, root);
  start_broadcast(data, root);
  wait_all("broadcast");
  bytes_sent_ += root == rank_ ? std::ssize(data) * (size_ - 1) : 0;
}

void MpiTransport::all_reduce_max(std::span<std::int64_t> values) {
  reduce(values, MPI_MAX);
}

void MpiTransport::all_reduce_sum(std::span<std::int64_t> values) {
  reduce(values, MPI_SUM);
}

void MpiTransport::barrier() {
  check_mpi(MPI_Ibarrier(comm_, &new_request()), "MPI_Ibarrier");
  wait_all("barrier");
}

void MpiTransport::reduce(std::span<std::int64_t> values, MPI_Op operation) {
  const auto value_bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
  for_each_piece(values, std::max<std::int64_t>(piece_bytes_ / value_bytes, 1), [&](std::span<std::int64_t> piece) {
    check_mpi(
        MPI_Iallreduce(MPI_IN_PLACE, piece.data(), count_of(piece), MPI_INT64_T, operation, comm_, &new_request()),
        "MPI_Iallreduce");
  });
  wait_all("all-reduce");
  bytes_sent_ += std::ssize(values) * value_bytes * (size_ - 1);
}

MPI_Request& MpiTransport::new_request() {
  return requests_.emplace_back(MPI_REQUEST_NULL);
}

void MpiTransport::start_broadcast(std::span<std::byte> data, std::int64_t root) {
  for_each_piece(data, piece_bytes_, [&](std::span<std::byte> piece) {
    check_mpi(MPI_Ibcast(piece.data(), count_of(piece), MPI_BYTE, static_cast<int>(root), comm_, &new_request()),
              "MPI_Ibcast");
  });
}

void MpiTransport::start_receive(std::span<std::byte> data, std::int64_t source) {
  for_each_piece(data, piece_bytes_, [&](std::span<std::byte> piece) {
    announced_.push_back({requests_.size(), source, count_of(piece)});
    check_mpi(MPI_Irecv(piece.data(), count_of(piece), MPI_BYTE, static_cast<int>(source), tag_, comm_, &new_request()),
              "MPI_Irecv");
  });
}

void MpiTransport::start_send(std::span<const std::byte> data, std::int64_t destination) {
  for_each_piece(data, piece_bytes_, [&](std::span<const std::byte> piece) {
    check_mpi(
        MPI_Isend(piece.data(), count_of(piece), MPI_BYTE, static_cast<int>(destination), tag_, comm_, &new_request()),
        "MPI_Isend");
  });
}

std::unique_ptr<Transport> make_mpi_transport(double timeout_s) {
  return std::make_unique<MpiTransport>(timeout_s);
}

}  // namespace metro
