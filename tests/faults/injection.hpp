// What the library for tests that is preloaded into the metro program shall do wrong, once, on one rank; chosen by
//
//     METRO_TEST_FAULT="call=MPI_Isend do=flip:0 rank=1 at=3 bytes=9"     for a call of MPI
//     METRO_TEST_FAULT="call=write file=completions.jsonl at=3 do=errno:ENOSPC"     for a call of the C library
//
// `at` counts, from 1, the calls that have at least so many `bytes` and a file whose name contains `file`. An
// ill-formed variable ends the process with exit code 99.
#pragma once

#include <cstddef>
#include <string>

namespace faults {

struct Fault {
  std::string call;      // its name in C
  std::string act;       // what happens: the part of `do` before the colon
  std::string argument;  // and the part after it
  std::string file;      // part of the name of the file, for calls that have one
  long rank = 0;
  long at = 1;
  long bytes = 0;   // the least
  long number = 0;  // argument as a number, for acts that have one
};

// Rank of this process as the launcher tells it; 0 without one.
long launched_rank();

// The fault, if it happens in this call, which is counted; null otherwise. descriptor: -1 for calls without a file.
const Fault* due(const char* call, std::size_t num_bytes, int descriptor = -1);

// Like due(), once more true in every later call of the kind: a full disk stays full.
const Fault* due_from_then_on(const char* call, std::size_t num_bytes, int descriptor);

// Does what needs no knowledge of the call: signal, abort, exit, throw, bad_alloc, hang, late. Others are left to the
// caller.
void act(const Fault& fault);

}  // namespace faults
