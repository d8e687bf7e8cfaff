// Messages of NCCL's test double: each is one of MPI, with a header that says what it is.
#include "device_double/nccl_state.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace metro::nccl_double {

namespace {

std::string text_of(const Header& header) {
  const char* const names[] = {"start", "all-gather", "broadcast", "message"};
  std::string text = std::string(names[static_cast<std::size_t>(header.kind)]) + " " + std::to_string(header.number) +
                     " of " + std::to_string(header.bytes) + " bytes";
  return header.kind == Kind::broadcast ? text + " from rank " + std::to_string(header.root) : text;
}

bool is_same(const Header& a, const Header& b) {
  return a.kind == b.kind && a.number == b.number && a.bytes == b.bytes && a.root == b.root;
}

}  // namespace

void check_mpi_call(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    std::fprintf(stderr, "nccl double: %s returned %d\n", call, code);
    std::abort();
  }
}

void Transfers::send(int to, const Header& header, const std::byte* data) {
  const auto sent = sent_.emplace_back(std::make_unique<Sent>()).get();
  sent->bytes.resize(sizeof header + static_cast<std::size_t>(header.bytes));
  std::memcpy(sent->bytes.data(), &header, sizeof header);
  if (header.bytes > 0) {
    std::memcpy(sent->bytes.data() + sizeof header, data, static_cast<std::size_t>(header.bytes));
  }
  check_mpi_call(MPI_Isend(sent->bytes.data(), static_cast<int>(sent->bytes.size()), MPI_BYTE, to, tag_, MPI_COMM_WORLD,
                           &sent->request),
                 "MPI_Isend");
}

void Transfers::expect(int from, const Header& header, std::function<void(const std::byte* data)> take) {
  Expected expected;
  expected.from = from;
  expected.header = header;
  expected.take = std::move(take);
  expected_.push_back(std::move(expected));
}

bool Transfers::begin_receiving(Expected& expected) {
  int is_there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi_call(MPI_Improbe(expected.from, tag_, MPI_COMM_WORLD, &is_there, &message, &status), "MPI_Improbe");
  if (is_there == 0) {
    return false;
  }
  int bytes = 0;
  check_mpi_call(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  expected.bytes.resize(static_cast<std::size_t>(bytes));
  check_mpi_call(MPI_Imrecv(expected.bytes.data(), bytes, MPI_BYTE, &message, &expected.request), "MPI_Imrecv");
  return true;
}

bool Transfers::finish_receiving(Expected& expected, std::string& fault) {
  int is_there = 0;
  check_mpi_call(MPI_Test(&expected.request, &is_there, MPI_STATUS_IGNORE), "MPI_Test");
  if (is_there == 0) {
    return false;
  }
  Header header;
  std::memcpy(&header, expected.bytes.data(), sizeof header);
  if (!is_same(header, expected.header)) {
    fault = "rank " + std::to_string(expected.from) + " takes part with " + text_of(header) + ", this rank expects " +
            text_of(expected.header);
    return false;
  }
  expected.take(expected.bytes.data() + sizeof header);
  return true;
}

bool Transfers::advance(std::string& fault) {
  std::vector<int> waited_for;  // messages of a rank come in order
  bool all_done = true;
  for (Expected& expected : expected_) {
    if (expected.is_done) {
      continue;
    }
    bool is_blocked = false;
    for (const int from : waited_for) {
      is_blocked = is_blocked || from == expected.from;
    }
    expected.is_matched = expected.is_matched || (!is_blocked && begin_receiving(expected));
    if (!expected.is_matched) {
      waited_for.push_back(expected.from);
    } else {
      expected.is_done = finish_receiving(expected, fault);
    }
    all_done = all_done && expected.is_done;
  }
  for (const auto& sent : sent_) {
    int is_gone = 0;
    check_mpi_call(MPI_Test(&sent->request, &is_gone, MPI_STATUS_IGNORE), "MPI_Test");
    all_done = all_done && is_gone != 0;
  }
  return all_done;
}

}  // namespace metro::nccl_double
