// A test double of NCCL over MPI and the double of the CUDA runtime. What is called becomes an item of the stream when
// the state of the communicator is asked for next: calls say "in progress" before, as those of a communicator that does
// not block may. An item sends what it has to send when the stream gets there, and is over when what it expects has
// come; only memory of the device is taken. Wrong use is an error with one line on stderr, "nccl double: WHAT": a call
// while another is in progress, on another stream, with no bytes, outside a group where that can deadlock, after an
// abort, or that other ranks do not match. For one thread at a time.
//
// A whole program is set up by the environment: METRO_NCCL_DOUBLE_FAIL ("ncclAllGather:2:3": the 3rd call of it gives
// error 2), METRO_NCCL_DOUBLE_FAIL_LATER ("6:3": the 3rd item fails when it runs, with error 6),
// METRO_NCCL_DOUBLE_SILENT (a number: from that item on, this rank neither sends nor receives; 0: nor does it start).
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace metro::nccl_double {

// What was called since the start or the last reset(): "ncclGroupStart", "ncclSend 90 to 1", "ncclBroadcast 5 from 0".
// Without what only asks: version, errors, states.
const std::vector<std::string>& calls();

// The nth call of `function` from now on gives `error` and does nothing.
void fail_call(const std::string& function, ncclResult_t error, std::int64_t nth = 1);
// The nth item that runs from now on fails: the state of its communicator becomes `error`, and it ends only when that
// is aborted.
void fail_later(ncclResult_t error, std::int64_t nth = 1);
// As fail_later(), but the item ends like any other: nothing waits for it any more when the error is there.
void fail_at_end(ncclResult_t error, std::int64_t nth = 1);
// From the nth item on, this rank neither sends nor receives. 0: from the start of its next communicator on.
void be_silent(std::int64_t nth);

// NCCL refuses two ranks on one device of a machine; the double does so only if told, since the devices of different
// processes are all the same to it otherwise.
void refuse_shared_devices(bool refuse);

// Forgets calls and failures.
void reset();

}  // namespace metro::nccl_double
