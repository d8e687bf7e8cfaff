// Who still answers when a collective takes too long. A rank that gives up tells a few listeners where it is; a
// listener tells everybody; whoever waits and hears of it reports in turn. After half a second the lowest listener that
// answers says which ranks do not.
#pragma once

#include "transport/peers.hpp"
#include "transport/roll_call.hpp"

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

class MpiRollCall {
 public:
  // comm: of its own, so that its messages meet no others; stays the caller's. peers outlives this.
  MpiRollCall(MPI_Comm comm, std::int64_t rank, const Peers& peers);

  // Whether another rank has given up: then this one must call hold() too. Not collective; cheap.
  bool is_called() const;

  // own.may_speak: false for a rank that has been stopped itself, or has only come meanwhile; it is left to others
  // then. Reports, and listens for about a second at most. Returns the line that this rank is to print, or "" if
  // another prints it. The job is to be ended right afterwards. Throws Error(machine) if MPI fails.
  std::string hold(Report own, const std::string& why);

 private:
  bool is_listener(std::int64_t rank) const;
  void report_to(std::int64_t rank, const Report& own);
  void receive_reports(const Report& own);

  MPI_Comm comm_;
  std::int64_t rank_;
  const Peers* peers_;
  std::vector<std::int64_t> listeners_;  // ascending; spread over the ranks, since a whole node may be gone
  std::vector<Report> reports_;          // with the own one
  std::vector<bool> has_reported_;       // [size]
  std::vector<MPI_Request> sends_;       // never waited for: the job ends
};

}  // namespace metro
